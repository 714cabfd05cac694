// Wire: from what a protocol's message says of an inference to a Request, every field checked, with
// the texts that clients know; and what both protocols share in answering. Knows neither HTTP nor
// gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/request.h"
#include "runtime/served_model.h"
#include "runtime/tensor_pool.h"

namespace stampmill {

// A range of a registered client region, as named by the client.
struct WireSharedMemory {
  absl::string_view region;
  uint64_t offset = 0;
  uint64_t byte_size = 0;
};

struct WireInput {
  absl::string_view name;
  absl::string_view datatype;  // "FP32"
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // borrowed from the message; unused with shared memory
  std::optional<WireSharedMemory> shared_memory;
};

struct WireOutput {
  absl::string_view name;
  std::optional<WireSharedMemory> shared_memory;
};

// Views into a message that outlives the request made of it.
struct WireInference {
  absl::string_view id;
  std::vector<WireInput> inputs;
  std::vector<WireOutput> outputs;  // empty: all
  uint64_t priority = 0;
  uint64_t timeout_us = 0;
};

// "", "1", ... as a version; 0 for none. INVALID_ARGUMENT with Triton's text for anything else.
absl::StatusOr<int64_t> ParseVersion(absl::string_view version);

// Fills `request` (just acquired, model pinned) from `wire`. Claims shared memory; the bytes of
// other inputs stay borrowed. INVALID_ARGUMENT, NOT_FOUND name the field. Whether the tensors fit
// the model is checked by ServedModel::Prepare when the request is submitted.
absl::Status FillRequest(const WireInference& wire, TensorPool& pool, Request& request);

// The inverse of a datatype's name and size checks for JSON data: an error for types that JSON
// cannot carry (FP16, BF16), as Triton words it.
absl::Status CheckJsonDatatype(DType dtype, absl::string_view input);

// "[request id: 7] " or "[request id: <id_unknown>] ": how Triton begins messages about a request.
std::string RequestPrefix(absl::string_view id);

}  // namespace stampmill
