// LoadClient: one connection of the load harness: asks a server about a model, then sends the same
// inference again and again. Over HTTP (binary tensors) and gRPC.
//
// All clients of a LoadLoop belong to one thread, which waits for whichever is answered next: a
// harness that wakes a thread for each answer takes the cores from the server that it measures.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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

// Owned by the thread of its loop, which it outlives not.
class LoadClient {
 public:
  virtual ~LoadClient() = default;
  virtual absl::StatusOr<std::vector<LoadInput>> DescribeInputs() = 0;
  // What Begin sends.
  virtual absl::Status Prepare(const std::vector<LoadInput>& inputs) = 0;
  // Begins an inference, whose outputs are received and dropped. REQUIRES: the one before is over.
  virtual void Begin() = 0;
};

// Owned by one thread.
class LoadLoop {
 public:
  struct Answered {
    LoadClient* client = nullptr;
    absl::Status status;
  };
  virtual ~LoadLoop() = default;
  virtual absl::StatusOr<std::unique_ptr<LoadClient>> Connect(const LoadTarget& target) = 0;
  // The next inference that is over, waiting for it until `nanos` of RealClock at most.
  virtual std::optional<Answered> Next(int64_t nanos) = 0;
};

std::unique_ptr<LoadLoop> NewHttpLoadLoop();
std::unique_ptr<LoadLoop> NewGrpcLoadLoop();

// "HOST:PORT", also with "http://" before it. INVALID_ARGUMENT else.
absl::Status ParseLoadUrl(absl::string_view url, LoadTarget& target);

// Closes open dims (the first with `batch`, others with 1 or what `shapes` says for the input's
// name) and fills in data: zeros. INVALID_ARGUMENT for types without a size and sizes beyond
// reason.
absl::Status FillInputs(const std::map<std::string, std::vector<int64_t>>& shapes, int64_t batch,
                        std::vector<LoadInput>& inputs);

}  // namespace stampmill
