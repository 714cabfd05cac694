#include "server/grpc/grpc_response.h"

#include <grpcpp/support/slice.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "server/grpc/grpc_infer.h"

namespace stampmill {
namespace {

// Below this a copy costs less than a slice of its own.
constexpr size_t kCopiedBytesMax = 4096;

struct Loan {
  Lease lease;
  std::atomic<int64_t>* count;
};

void Return(void* loan) {
  const std::unique_ptr<Loan> owned(static_cast<Loan*>(loan));
  std::atomic<int64_t>* const count = owned->count;
  owned->lease = Lease();
  count->fetch_sub(1, std::memory_order_release);
}

void AppendVarint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

// Tag of ModelInferResponse.raw_output_contents: field 6, length-delimited.
constexpr char kRawOutputTag = 6 << 3 | 2;

}  // namespace

void LentOutputs::WaitUntilReturned() const {
  while (count() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

absl::Status ResponseWriter::Write(const Request& request, LentOutputs& lent,
                                   grpc::ByteBuffer& buffer) {
  RETURN_IF_ERROR(CheckResponseSize(request));
  response_.Clear();
  DescribeResponse(request, response_);
  head_.clear();
  response_.AppendToString(&head_);
  std::vector<grpc::Slice> slices;
  for (const OutputTensor& output : request.outputs) {
    // One entry an output, also for those in shared memory: clients index by position.
    const size_t size = output.target.valid() ? 0 : output.bytes.size();
    head_.push_back(kRawOutputTag);
    AppendVarint(size, head_);
    if (size <= kCopiedBytesMax) {
      head_.append(reinterpret_cast<const char*>(output.bytes.data()), size);
      continue;
    }
    slices.emplace_back(head_.data(), head_.size());
    head_.clear();
    lent.count_.fetch_add(1, std::memory_order_relaxed);
    auto loan = std::make_unique<Loan>(Loan{.lease = output.lease, .count = &lent.count_});
    // gRPC only reads it.
    void* const bytes = const_cast<std::byte*>(output.bytes.data());
    slices.emplace_back(bytes, size, &Return, loan.release());
  }
  if (!head_.empty()) slices.emplace_back(head_.data(), head_.size());
  buffer = grpc::ByteBuffer(slices.data(), slices.size());
  return absl::OkStatus();
}

}  // namespace stampmill
