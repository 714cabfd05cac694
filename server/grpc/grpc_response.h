// A finished request as the bytes of a ModelInferResponse. Large outputs are not copied: the
// message is a list of slices, and those hold the outputs' leases until the transport has sent
// them.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/grpc_service.pb.h"
#include "runtime/request.h"

namespace stampmill {

// Leases that gRPC holds now. Outlives them all: WaitUntilReturned is called before what the leases
// are of goes. Thread-safe.
class LentOutputs {
 public:
  int64_t count() const { return count_.load(std::memory_order_acquire); }
  // After the server has shut down: the transports' last slices go with its threads.
  void WaitUntilReturned() const;

 private:
  friend class ResponseWriter;
  std::atomic<int64_t> count_{0};
};

// Writes responses; keeps its memory from one to the next. Used by one thread at a time.
class ResponseWriter {
 public:
  // INVALID_ARGUMENT when the answer would pass what one gRPC message can hold. `buffer` may
  // outlive the request; `lent` outlives `buffer`.
  absl::Status Write(const Request& request, LentOutputs& lent, grpc::ByteBuffer& buffer);

 private:
  inference::ModelInferResponse response_;
  std::string head_;
};

}  // namespace stampmill
