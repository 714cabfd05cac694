// What a client may ask over HTTP: the first line is method and target, the rest the body. Every
// answer is well-formed and none says that the mistake is ours; afterwards the model that is served
// can be loaded again and answers.
#include <algorithm>
#include <boost/json/parse.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "server/http/http_server.h"
#include "server/http/http_service.h"
#include "server/testing/http_client.h"
#include "server/testing/serving_fixture.h"

namespace stampmill {
namespace {

class Daemon {
 public:
  Daemon() : service_(*fixture_.serving, [] { return "# metrics\n"; }) {
    auto made = HttpServer::Start({.threads = 1}, [this](HttpRequest request, HttpReply reply) {
      service_.Handle(std::move(request), std::move(reply));
    });
    CHECK_OK(made);
    server_ = *std::move(made);
  }
  ~Daemon() { server_.reset(); }

  HttpResponse Ask(absl::string_view method_and_target, absl::string_view body) {
    HttpClient client(server_->port());
    client.Send(absl::StrCat(method_and_target, " HTTP/1.1\r\nHost: test\r\nContent-Length: ",
                             body.size(), "\r\n\r\n", body));
    const std::optional<HttpResponse> response =
        client.Read(/*no_body=*/absl::StartsWith(method_and_target, "HEAD "));
    CHECK(response.has_value()) << method_and_target;
    return *response;
  }

 private:
  ServingFixture fixture_;
  HttpService service_;
  std::unique_ptr<HttpServer> server_;
};

constexpr char kInfer[] =
    R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"INT32","data":[1,2,3,4]}]})";

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  // Lines of their own would be header fields, which are http_server's.
  if (line == absl::string_view::npos ||
      std::any_of(data, data + line, [](uint8_t c) { return c < ' '; })) {
    return 0;
  }
  static Daemon daemon;
  const HttpResponse answer = daemon.Ask(text.substr(0, line), text.substr(line + 1));
  CHECK(answer.status >= 200 && answer.status < 600) << answer.body;
  // As Triton does, 500 for an object that cannot be opened.
  if (answer.status == 500) CHECK(absl::StrContains(answer.body, "shared memory region"));
  const auto type = answer.headers.find("content-type");
  if (!answer.body.empty() && type != answer.headers.end() && type->second == "application/json") {
    boost::json::parse(answer.body);  // throws when it is none
  }
  CHECK(daemon.Ask("POST /v2/systemsharedmemory/unregister", "").status == 200);
  const HttpResponse loaded = daemon.Ask("POST /v2/repository/models/add/load", "");
  CHECK(loaded.status == 200) << loaded.body;
  const HttpResponse inferred = daemon.Ask("POST /v2/models/add/infer", kInfer);
  CHECK(inferred.status == 200) << inferred.body;
  return 0;
}
