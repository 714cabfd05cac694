// The body of an inference over HTTP, the JSON part and the binary one: first two bytes, how long
// the JSON is (0xffff: no header was sent).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "runtime/testing/engine_fixture.h"
#include "server/json_infer.h"

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

void Try(absl::string_view body, int64_t json_bytes) {
  static Fixture& fixture = *new Fixture;
  const auto parsed = JsonInference::Parse(body, json_bytes, *fixture.model);
  if (!parsed.ok()) return;
  RequestHandle request = *fixture.engine.requests.Acquire();
  request->model = fixture.model->Pin();
  if (FillRequest((*parsed)->wire(), *fixture.engine.pool, *request).ok()) {
    fixture.model->Prepare(*request).IgnoreError();
  }
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const int64_t length = data[0] | data[1] << 8;
  const absl::string_view body(reinterpret_cast<const char*>(data) + 2, size - 2);
  const int64_t json_bytes = length == 0xffff ? -1 : length;
  if (json_bytes <= static_cast<int64_t>(body.size())) stampmill::Try(body, json_bytes);
  return 0;
}
