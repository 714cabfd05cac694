// Inference as gRPC messages: from ModelInferRequest to the wire's neutral form, and from a
// finished request to ModelInferResponse.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/grpc_service.pb.h"
#include "runtime/request.h"
#include "server/wire.h"

namespace stampmill {

// Tensor bytes made from typed contents; `wire` views them.
struct DecodedContents {
  std::vector<std::string> tensors;
};

// Fills `wire` with views into `message`, which outlives it. INVALID_ARGUMENT with Triton's texts;
// UNIMPLEMENTED for sequence batching and classification.
absl::Status ParseInference(const inference::ModelInferRequest& message, WireInference& wire,
                            DecodedContents& decoded);

// INVALID_ARGUMENT when the answer would pass what one gRPC message can hold.
absl::Status CheckResponseSize(const Request& request);

// The response but for raw_output_contents.
void DescribeResponse(const Request& request, inference::ModelInferResponse& response);
// One raw_output_contents entry an output, empty for those in shared memory: clients index by
// position.
void FillResponse(const Request& request, inference::ModelInferResponse& response);

}  // namespace stampmill
