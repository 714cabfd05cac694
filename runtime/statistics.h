// ModelStatistics: what a model version did, in the terms of Triton's statistics extension and its
// nv_* metrics. Counters only; the engine thread adds, anybody reads. A snapshot is not one
// instant: each counter is exact, two may be a request apart.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/limits.h"

namespace stampmill {

// Times of one request in nanoseconds of the engine's clock; 0: not reached.
struct RequestTimes {
  int64_t arrival = 0;               // the server began to read it; set by the server
  int64_t queue_start = 0;           // Submit
  int64_t compute_start = 0;         // its step was formed: queue ends, binding of inputs begins
  int64_t compute_input_end = 0;     // given to the device
  int64_t compute_output_start = 0;  // the device finished
  int64_t end = 0;                   // outputs ready, handed to the server
};

// Why a request failed: the values of nv_inference_request_failure's `reason`.
enum class FailureReason : uint8_t { kRejected, kCanceled, kBackend, kOther };
inline constexpr int kFailureReasonCount = 4;
const char* Name(FailureReason reason);  // "REJECTED", "CANCELED", "BACKEND", "OTHER"

struct DurationCount {
  uint64_t count = 0;
  uint64_t nanos = 0;
};

struct BatchStatistics {
  uint64_t batch_size = 0;
  DurationCount compute_input, compute_infer, compute_output;
};

struct StatisticsSnapshot {
  DurationCount success, fail, queue, compute_input, compute_infer, compute_output;
  uint64_t last_inference_ms = 0;  // Unix time of the last request that ended well
  uint64_t inference_count = 0;    // rows, that is elements of batches
  uint64_t execution_count = 0;    // steps
  uint64_t pending_count = 0;      // requests submitted whose step is not formed yet
  uint64_t failures[kFailureReasonCount] = {};
  int64_t load_nanos = 0;     // from the model file to the end of its warm-up
  uint64_t bytes_copied = 0;  // by gathering and scattering batches; 0 for requests alone
  std::vector<BatchStatistics> batches;  // sizes that occurred, ascending
};

// Thread-safe. All counters are allocated when made.
class ModelStatistics {
 public:
  // Rows of a batch are counted apart up to `batch_size_max` (at most kBatchSizesCountedMax).
  explicit ModelStatistics(int32_t batch_size_max);

  // A request of `rows` rows ended well; `unix_ms` is now.
  void AddSuccess(const RequestTimes& times, int64_t rows, int64_t unix_ms);
  void AddFailure(const RequestTimes& times, FailureReason reason);
  // A step of `rows` rows ran.
  void AddExecution(const RequestTimes& times, int64_t rows);
  void AddBytesCopied(int64_t bytes);
  void AddPending(int64_t change);
  // Once, before the model is served.
  void SetLoadNanos(int64_t nanos);

  StatisticsSnapshot Snapshot() const;

 private:
  struct AtomicDuration {
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> nanos{0};
    void Add(int64_t duration);
    DurationCount Read() const;
  };
  struct AtomicBatch {
    AtomicDuration compute_input, compute_infer, compute_output;
  };

  AtomicDuration success_, fail_, queue_, compute_input_, compute_infer_, compute_output_;
  std::atomic<uint64_t> last_inference_ms_{0};
  std::atomic<uint64_t> inference_count_{0};
  std::atomic<uint64_t> execution_count_{0};
  std::atomic<int64_t> pending_count_{0};
  std::atomic<uint64_t> failures_[kFailureReasonCount] = {};
  std::atomic<uint64_t> bytes_copied_{0};
  std::atomic<int64_t> load_nanos_{0};
  const int32_t batch_size_max_;
  const std::unique_ptr<AtomicBatch[]> batches_;  // [0, batch_size_max_], 0 for larger ones
};

}  // namespace stampmill
