// An inference over HTTP: the first line of the input is the header
// Inference-Header-Content-Length (none is sent when it is empty), the rest the body. What is
// accepted is run and answered.
#include <boost/json/parse.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "runtime/testing/engine_fixture.h"
#include "server/http/json_infer.h"

namespace stampmill {
namespace {

struct Fixture {
  EngineFixture engine;
  std::unique_ptr<ServedModel> model;

  Fixture() {
    auto made = engine.Serve({.second_output = true});
    CHECK_OK(made);
    model = *std::move(made);
  }
};

absl::Status Infer(const HttpRequest& http) {
  static Fixture& fixture = *new Fixture;
  const absl::StatusOr<int64_t> json_bytes = ParseHeaderLength(http);
  if (!json_bytes.ok()) return json_bytes.status();
  const auto parsed = JsonInference::Parse(http.body, *json_bytes, *fixture.model);
  if (!parsed.ok()) return parsed.status();
  RequestHandle request = *fixture.engine.requests.Acquire();
  request->model = fixture.model->Pin();
  if (absl::Status filled = FillRequest((*parsed)->wire(), *fixture.engine.pool, *request);
      !filled.ok()) {
    return filled;
  }
  if (absl::Status taken = fixture.engine.engine->Submit(request); !taken.ok()) return taken;
  request = fixture.engine.TurnUntilReady();
  if (!request->status.ok()) return request->status;
  const HttpAnswer answer = AnswerInference(*request, **parsed, nullptr);
  boost::json::parse(answer.body);  // throws when it is no JSON
  return absl::OkStatus();
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  if (line == absl::string_view::npos) return 0;
  HttpRequest http;
  if (line > 0) {
    http.headers.emplace_back("inference-header-content-length", std::string(text.substr(0, line)));
  }
  http.body = std::string(text.substr(line + 1));
  const absl::Status status = Infer(http);
  // Whatever a client sends is not our mistake.
  CHECK(HttpStatus(status) != 500) << status;
  boost::json::parse(ErrorJson(absl::string_view(status.message())));
  return 0;
}
