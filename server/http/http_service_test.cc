#include "server/http/http_service.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "server/testing/http_client.h"
#include "server/testing/serving_fixture.h"

namespace stampmill {
namespace {

std::string Ints(std::vector<int32_t> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
}

class HttpServiceTest : public testing::Test {
 protected:
  HttpServiceTest() : service_(*fixture_.serving, [] { return "# metrics\n"; }) {
    auto made = HttpServer::Start({}, [this](HttpRequest request, HttpReply reply) {
      service_.Handle(std::move(request), std::move(reply));
    });
    CHECK_OK(made);
    server_ = *std::move(made);
  }
  ~HttpServiceTest() override { server_.reset(); }

  HttpResponse Get(const std::string& path) {
    HttpClient client(server_->port());
    return client.Get(path).value();
  }
  HttpResponse Post(const std::string& path, const std::string& body,
                    const std::string& headers = "") {
    HttpClient client(server_->port());
    return client.Post(path, body, headers).value();
  }
  HttpResponse Infer(const std::string& body) { return Post("/v2/models/add/infer", body); }
  // JSON of `json_bytes`, then `blob`.
  HttpResponse InferBinary(const std::string& json, const std::string& blob) {
    return Post("/v2/models/add/infer", json + blob,
                absl::StrCat("Inference-Header-Content-Length: ", json.size(), "\r\n"));
  }

  ServingFixture fixture_;
  HttpService service_;
  std::unique_ptr<HttpServer> server_;
};

#define EXPECT_ANSWER(response, code, text)                               \
  do {                                                                    \
    const HttpResponse got = (response);                                  \
    EXPECT_EQ(got.status, code) << got.body;                              \
    EXPECT_TRUE(absl::StrContains(got.body, text)) << "got " << got.body; \
  } while (false)

TEST_F(HttpServiceTest, TellsOfTheServerAndItsModels) {
  EXPECT_ANSWER(Get("/v2"), 200, R"({"name":"stampmill","version":)");
  EXPECT_ANSWER(Get("/v2/health/live"), 200, R"({"live":true})");
  EXPECT_ANSWER(Get("/v2/health/ready"), 200, R"({"ready":true})");
  EXPECT_ANSWER(Get("/v2/models/add"), 200, R"("inputs":[{"name":"IN","datatype":"INT32")");
  EXPECT_ANSWER(Get("/v2/models/add/versions/1"), 200, R"("versions":["1"])");
  EXPECT_ANSWER(Get("/v2/models/add/ready"), 200, R"("ready":true)");
  EXPECT_ANSWER(Get("/v2/models/add/config"), 200, R"("max_batch_size":32)");
  EXPECT_ANSWER(Get("/v2/models/add/stats"), 200, R"("inference_count":0)");
  EXPECT_ANSWER(Get("/v2/models/stats"), 200, R"("model_stats":[{)");
  EXPECT_ANSWER(Get("/metrics"), 200, "# metrics");
  EXPECT_ANSWER(Get("/v2/models/%61dd"), 200, R"("name":"add")");
}

TEST_F(HttpServiceTest, RefusesWhatIsNotThere) {
  EXPECT_ANSWER(Get("/"), 404, R"({"error":"Not Found"})");
  EXPECT_ANSWER(Get("/v2/"), 404, "Not Found");
  EXPECT_ANSWER(Get("/v2/models"), 404, "Not Found");
  EXPECT_ANSWER(Get("/v2/models/add/nothing"), 404, "Not Found");
  EXPECT_ANSWER(Get("/v2/models/add/versions/x"), 404, "Not Found");
  EXPECT_ANSWER(Get("/v2/models/none"), 404, "Request for unknown model: 'none' is not found");
  EXPECT_ANSWER(Get("/v2/models/add/versions/7"), 404, "version 7 is not found");
  EXPECT_ANSWER(Get("/v2/models/none/ready"), 400, R"("ready":false)");
  EXPECT_ANSWER(Post("/v2", ""), 405, "Method Not Allowed");
  EXPECT_ANSWER(Get("/v2/models/add/infer"), 405, "Method Not Allowed");
  EXPECT_ANSWER(Get("/v2/models/%zz"), 400, "escape");
  EXPECT_ANSWER(Get("/v2/models/a%00"), 400, "NUL");
  EXPECT_ANSWER(Get("/v2/trace/setting"), 501, "trac");
  EXPECT_ANSWER(Get("/v2/logging"), 501, "logging");
  EXPECT_ANSWER(Get("/v2/cudasharedmemory/status"), 501, "CUDA");
}

TEST_F(HttpServiceTest, InfersFromJson) {
  EXPECT_ANSWER(Infer(R"({"id":"7","inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32",)"
                      R"("data":[1,2,3,4]}]})"),
                200, R"("data":[3,4,5,6])");
  EXPECT_ANSWER(Infer(R"({"id":"7","inputs":[{"name":"IN","shape":[2,4],"datatype":"INT32",)"
                      R"("data":[[1,2,3,4],[-2,-2,-2,-2147483648]]}]})"),
                200, R"("data":[3,4,5,6,0,0,0,-2147483646])");
}

TEST_F(HttpServiceTest, InfersFromBinaryData) {
  const std::string json = R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32",)"
                           R"("parameters":{"binary_data_size":16}}],)"
                           R"("outputs":[{"name":"OUT","parameters":{"binary_data":true}}]})";
  const HttpResponse response = InferBinary(json, Ints({1, 2, 3, 4}));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.at("content-type"), "application/octet-stream");
  const size_t head = std::stoul(response.headers.at("inference-header-content-length"));
  EXPECT_EQ(response.body.substr(head), Ints({3, 4, 5, 6}));
}

TEST_F(HttpServiceTest, InfersFromARawBody) {
  const HttpResponse response =
      Post("/v2/models/add/infer", Ints({1, 2, 3, 4}), "Inference-Header-Content-Length: 0\r\n");
  ASSERT_EQ(response.status, 200) << response.body;
  const size_t head = std::stoul(response.headers.at("inference-header-content-length"));
  EXPECT_EQ(response.body.substr(head), Ints({3, 4, 5, 6}));
}

// What is wrong with the JSON, and a part of the message.
TEST_F(HttpServiceTest, RefusesFaultyJson) {
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"{", "failed to parse the request JSON buffer"},
      {"[]", ""},
      {"{}", "'inputs'"},
      {R"({"inputs":{}})", "'inputs'"},
      {R"({"inputs":[{"shape":[1,4],"datatype":"INT32","data":[1,2,3,4]}]})", "'name'"},
      {R"({"inputs":[{"name":"IN","datatype":"INT32","data":[1,2,3,4]}]})", "'shape'"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"data":[1,2,3,4]}]})", "'datatype'"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32"}]})",
       "Input must set only one of the following fields"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","data":[1,2,3,4],)"
       R"("parameters":{"binary_data_size":16}}]})",
       "But set 'data' 'binary_data_size'"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","data":[1,2,3]}]})", "data"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","data":[1,2,3,4,5]}]})", "data"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","data":[1,2,3,"4"]}]})", "data"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","data":[1,2,3,2147483648]}]})",
       "IN"},
      {R"({"inputs":[{"name":"IN","shape":[1,-4],"datatype":"INT32","data":[]}]})", "'shape'"},
      {R"({"inputs":[{"name":"IN","shape":[1,4.5],"datatype":"INT32","data":[]}]})", "'shape'"},
      {R"({"inputs":[{"name":"IN","shape":["1"],"datatype":"INT32","data":[]}]})", "'shape'"},
      {R"({"inputs":[{"name":"IN","shape":[1,4611686018427387904],"datatype":"INT32","data":[]}]})",
       ""},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]})",
       "inference input 'IN' data-type is 'FP32', but model 'add' expects 'INT32'"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"FP16","data":[1,2,3,4]}]})",
       "receiving FP16 data via JSON is not supported"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"NO","data":[1,2,3,4]}]})",
       "invalid datatype for input IN"},
      {R"({"inputs":[{"name":"X","shape":[1,4],"datatype":"INT32","data":[1,2,3,4]}]})",
       "unexpected inference input 'X' for model 'add'"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","data":[1,2,3,4]}],)"
       R"("outputs":[{"name":"Y"}]})",
       "unexpected inference output 'Y' for model 'add'"},
      {R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","data":[1,2,3,4]},)"
       R"({"name":"IN","shape":[1,4],"datatype":"INT32","data":[1,2,3,4]}]})",
       "input 'IN' already exists in request"},
      {R"({"inputs":[]})", "expected 1 inputs but got 0 inputs for model 'add'"},
      {R"({"id":"9","inputs":[{"name":"IN","shape":[1,3],"datatype":"INT32","data":[1,2,3]}]})",
       "[request id: 9] unexpected shape for input 'IN' for model 'add'. Expected [-1,4], got"},
      {R"({"parameters":{"triton_x":1},"inputs":[]})", "'triton_' are reserved"},
      {R"({"parameters":{"timeout":-1},"inputs":[]})", "timeout"},
      {R"({"parameters":{"x":[1]},"inputs":[]})", ""},
  };
  for (const auto& [json, text] : faults) {
    const HttpResponse response = Infer(json);
    EXPECT_EQ(response.status, 400) << json << " -> " << response.body;
    EXPECT_TRUE(absl::StrContains(response.body, text)) << json << " -> " << response.body;
    EXPECT_TRUE(absl::StartsWith(response.body, "{\"error\":\"")) << response.body;
  }
}

TEST_F(HttpServiceTest, RefusesFaultyBinaryData) {
  const auto json = [](int size) {
    return absl::StrCat(R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32",)",
                        R"("parameters":{"binary_data_size":)", size, "}}]}");
  };
  EXPECT_ANSWER(InferBinary(json(16), Ints({1, 2, 3})), 400,
                "unexpected size for input 'IN', expecting 4 additional bytes");
  EXPECT_ANSWER(InferBinary(json(16), Ints({1, 2, 3, 4, 5})), 400,
                "unexpected additional input data for model 'add'");
  EXPECT_ANSWER(InferBinary(json(12), Ints({1, 2, 3})), 400, "input byte size mismatch");
  EXPECT_ANSWER(InferBinary(json(-1), ""), 400, "");
  for (const char* length : {"-1", "1000", "abc", "12x", "99999999999999999999"}) {
    const HttpResponse response =
        Post("/v2/models/add/infer", "{}",
             absl::StrCat("Inference-Header-Content-Length: ", length, "\r\n"));
    EXPECT_EQ(response.status, 400) << length;
  }
}

TEST_F(HttpServiceTest, SurvivesDeepJson) {
  const std::string deep(100'000, '[');
  EXPECT_EQ(Infer(deep).status, 400);
  EXPECT_EQ(Infer(R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","data":)" + deep +
                  std::string(100'000, ']') + "}]}")
                .status,
            400);
  EXPECT_EQ(Get("/v2/health/live").status, 200);
}

TEST_F(HttpServiceTest, LoadsAndUnloadsModels) {
  fixture_.AddModelFile("later", "5");
  EXPECT_ANSWER(Post("/v2/repository/index", ""), 200, R"("name":"add","version":"1")");
  EXPECT_ANSWER(Post("/v2/repository/index", R"({"ready":true})"), 200, R"([{"name":"add")");
  EXPECT_ANSWER(Get("/v2/repository/index"), 405, "");
  EXPECT_ANSWER(Post("/v2/repository/models/later/load", "{}"), 200, "");
  EXPECT_ANSWER(
      Post("/v2/models/later/infer", R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32",)"
                                     R"("data":[0,0,0,0]}]})"),
      200, R"("data":[10,10,10,10])");
  EXPECT_ANSWER(Post("/v2/repository/models/later/unload", ""), 200, "");
  EXPECT_ANSWER(Get("/v2/models/later"), 404, "later");
  EXPECT_EQ(Post("/v2/repository/models/none/load", "").status / 100, 4);
  EXPECT_ANSWER(Post("/v2/repository/models/bad/load", ""), 400, "cannot compile");
  EXPECT_ANSWER(Post("/v2/repository/named/models/add/load", ""), 501, "repository_name");
  EXPECT_ANSWER(Post("/v2/repository/models/add/load", "{"), 400, "JSON");
}

TEST_F(HttpServiceTest, TakesAndGivesTensorsInSharedMemory) {
  const std::string key = absl::StrCat("/stampmill_http_service_test_", getpid());
  const int fd = shm_open(key.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 64), 0);
  auto* const memory =
      static_cast<int32_t*>(mmap(nullptr, 64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  for (int i = 0; i < 4; ++i) memory[i] = i;
  const std::string base = "/v2/systemsharedmemory";
  EXPECT_ANSWER(Post(base + "/region/r/register",
                     absl::StrCat(R"({"key":")", key, R"(","offset":0,"byte_size":64})")),
                200, "");
  EXPECT_ANSWER(Get(base + "/status"), 200, R"("byte_size":64)");
  EXPECT_ANSWER(Get(base + "/region/x/status"), 404, "'x'");
  EXPECT_ANSWER(Infer(R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","parameters":)"
                      R"({"shared_memory_region":"r","shared_memory_byte_size":16}}],"outputs":)"
                      R"([{"name":"OUT","parameters":{"shared_memory_region":"r",)"
                      R"("shared_memory_offset":32,"shared_memory_byte_size":16}}]})"),
                200, R"([{"name":"OUT","datatype":"INT32","shape":[1,4]}])");
  EXPECT_EQ(memory[8], 2);
  EXPECT_EQ(memory[11], 5);
  EXPECT_ANSWER(Infer(R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","parameters":)"
                      R"({"shared_memory_region":"r","shared_memory_offset":60,)"
                      R"("shared_memory_byte_size":16}}]})"),
                400, "Invalid offset + byte size for shared memory region: 'r'");
  EXPECT_ANSWER(Infer(R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","parameters":)"
                      R"({"shared_memory_region":"no","shared_memory_byte_size":16}}]})"),
                404, "Unable to find shared memory region: 'no'");
  EXPECT_ANSWER(Post(base + "/region/r/unregister", ""), 200, "");
  EXPECT_ANSWER(Post(base + "/unregister", ""), 200, "");
  munmap(memory, 64);
  close(fd);
  shm_unlink(key.c_str());
}

TEST_F(HttpServiceTest, IsNotReadyWhileShuttingDown) {
  fixture_.serving->BeginShutdown();
  EXPECT_ANSWER(Get("/v2/health/ready"), 400, R"({"ready":false})");
  EXPECT_ANSWER(Get("/v2/health/live"), 200, "");
  EXPECT_ANSWER(Infer("{}"), 503, "Server exiting");
}

TEST(PercentDecodeTest, DecodesAndRefuses) {
  EXPECT_EQ(PercentDecode("a%20b%2f").value(), "a b/");
  EXPECT_EQ(PercentDecode("").value(), "");
  for (const char* text : {"%", "%2", "%zz", "a%00b"}) {
    EXPECT_FALSE(PercentDecode(text).ok()) << text;
  }
}

}  // namespace
}  // namespace stampmill
