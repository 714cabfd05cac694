// A serialized ModelInferRequest; what is accepted is run and answered.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "proto/grpc_service.pb.h"
#include "runtime/testing/engine_fixture.h"
#include "server/grpc/grpc_infer.h"

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

absl::Status Infer(const inference::ModelInferRequest& message) {
  static Fixture& fixture = *new Fixture;
  WireInference wire;
  DecodedContents decoded;
  RETURN_IF_ERROR(ParseVersion(message.model_version()).status());
  RETURN_IF_ERROR(ParseInference(message, wire, decoded));
  RequestHandle request = *fixture.engine.requests.Acquire();
  request->model = fixture.model->Pin();
  RETURN_IF_ERROR(FillRequest(wire, *fixture.engine.pool, *request));
  RETURN_IF_ERROR(fixture.engine.engine->Submit(request));
  request = fixture.engine.TurnUntilReady();
  RETURN_IF_ERROR(request->status);
  RETURN_IF_ERROR(CheckResponseSize(*request));
  inference::ModelInferResponse response;
  FillResponse(*request, response);
  CHECK_EQ(response.outputs_size(), response.raw_output_contents_size());
  return absl::OkStatus();
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  inference::ModelInferRequest message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  const absl::Status status = stampmill::Infer(message);
  // Whatever a client sends is not our mistake.
  CHECK(!absl::IsInternal(status) && !absl::IsUnknown(status)) << status;
  return 0;
}
