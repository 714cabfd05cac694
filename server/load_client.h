// LoadClient: one connection of the load harness: asks a server about a model, then sends the same
// inference again and again. Over HTTP (binary tensors) and gRPC.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// What a server says of a model's inputs; -1 for dims that the request chooses.
struct LoadInput {
  std::string name, datatype;
  std::vector<int64_t> shape;
  std::string bytes;  // to be sent, in size as the shape says
};

struct LoadTarget {
  std::string host;
  uint16_t port = 0;
  std::string model, version;
};

// Owned by one thread.
class LoadClient {
 public:
  virtual ~LoadClient() = default;
  virtual absl::StatusOr<std::vector<LoadInput>> DescribeInputs() = 0;
  // What Infer sends.
  virtual absl::Status Prepare(const std::vector<LoadInput>& inputs) = 0;
  // One inference, answered; the outputs are received and dropped.
  virtual absl::Status Infer() = 0;
};

absl::StatusOr<std::unique_ptr<LoadClient>> ConnectHttp(const LoadTarget& target);
absl::StatusOr<std::unique_ptr<LoadClient>> ConnectGrpc(const LoadTarget& target);

// "HOST:PORT", also with "http://" before it. INVALID_ARGUMENT else.
absl::Status ParseLoadUrl(absl::string_view url, LoadTarget& target);

// Closes open dims (the first with `batch`, others with 1 or what `shapes` says for the input's
// name) and fills in data: zeros. INVALID_ARGUMENT for types without a size and sizes beyond
// reason.
absl::Status FillInputs(const std::map<std::string, std::vector<int64_t>>& shapes, int64_t batch,
                        std::vector<LoadInput>& inputs);

}  // namespace stampmill
