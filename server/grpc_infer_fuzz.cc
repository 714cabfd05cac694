// A serialized ModelInferRequest, up to the check against the model.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"
#include "proto/grpc_service.pb.h"
#include "runtime/testing/engine_fixture.h"
#include "server/grpc_infer.h"

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

void Try(const inference::ModelInferRequest& message) {
  static Fixture& fixture = *new Fixture;
  WireInference wire;
  DecodedContents decoded;
  if (!ParseInference(message, wire, decoded).ok()) return;
  RequestHandle request = *fixture.engine.requests.Acquire();
  request->model = fixture.model->Pin();
  if (FillRequest(wire, *fixture.engine.pool, *request).ok()) {
    fixture.model->Prepare(*request).IgnoreError();
  }
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  inference::ModelInferRequest message;
  if (message.ParseFromArray(data, static_cast<int>(size))) stampmill::Try(message);
  return 0;
}
