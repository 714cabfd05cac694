// Counters are relaxed: each is exact on its own, and nothing else is published by them.
#include "runtime/statistics.h"

#include <algorithm>

namespace stampmill {

const char* Name(FailureReason reason) {
  switch (reason) {
    case FailureReason::kRejected:
      return "REJECTED";
    case FailureReason::kCanceled:
      return "CANCELED";
    case FailureReason::kBackend:
      return "BACKEND";
    case FailureReason::kOther:
      return "OTHER";
  }
  return "OTHER";
}

ModelStatistics::ModelStatistics(int32_t batch_size_max)
    : batch_size_max_(std::clamp(batch_size_max, 1, kBatchSizesCountedMax)),
      batches_(std::make_unique<AtomicBatch[]>(static_cast<size_t>(batch_size_max_) + 1)) {}

void ModelStatistics::AtomicDuration::Add(int64_t duration) {
  count.fetch_add(1, std::memory_order_relaxed);
  nanos.fetch_add(static_cast<uint64_t>(std::max<int64_t>(duration, 0)), std::memory_order_relaxed);
}

DurationCount ModelStatistics::AtomicDuration::Read() const {
  return {count.load(std::memory_order_relaxed), nanos.load(std::memory_order_relaxed)};
}

void ModelStatistics::AddSuccess(const RequestTimes& times, int64_t rows, int64_t unix_ms) {
  success_.Add(times.end - times.arrival);
  queue_.Add(times.compute_start - times.queue_start);
  compute_input_.Add(times.compute_input_end - times.compute_start);
  compute_infer_.Add(times.compute_output_start - times.compute_input_end);
  compute_output_.Add(times.end - times.compute_output_start);
  inference_count_.fetch_add(static_cast<uint64_t>(rows), std::memory_order_relaxed);
  last_inference_ms_.store(static_cast<uint64_t>(unix_ms), std::memory_order_relaxed);
}

void ModelStatistics::AddFailure(const RequestTimes& times, FailureReason reason) {
  fail_.Add(times.end - times.arrival);
  failures_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void ModelStatistics::AddExecution(const RequestTimes& times, int64_t rows) {
  execution_count_.fetch_add(1, std::memory_order_relaxed);
  AtomicBatch& batch = batches_[rows <= batch_size_max_ ? static_cast<size_t>(rows) : 0];
  batch.compute_input.Add(times.compute_input_end - times.compute_start);
  batch.compute_infer.Add(times.compute_output_start - times.compute_input_end);
  batch.compute_output.Add(times.end - times.compute_output_start);
}

void ModelStatistics::AddBytesCopied(int64_t bytes) {
  bytes_copied_.fetch_add(static_cast<uint64_t>(bytes), std::memory_order_relaxed);
}

void ModelStatistics::AddPending(int64_t change) {
  pending_count_.fetch_add(change, std::memory_order_relaxed);
}

void ModelStatistics::SetLoadNanos(int64_t nanos) {
  load_nanos_.store(nanos, std::memory_order_relaxed);
}

StatisticsSnapshot ModelStatistics::Snapshot() const {
  StatisticsSnapshot s;
  s.success = success_.Read();
  s.fail = fail_.Read();
  s.queue = queue_.Read();
  s.compute_input = compute_input_.Read();
  s.compute_infer = compute_infer_.Read();
  s.compute_output = compute_output_.Read();
  s.last_inference_ms = last_inference_ms_.load(std::memory_order_relaxed);
  s.inference_count = inference_count_.load(std::memory_order_relaxed);
  s.execution_count = execution_count_.load(std::memory_order_relaxed);
  s.pending_count =
      static_cast<uint64_t>(std::max<int64_t>(0, pending_count_.load(std::memory_order_relaxed)));
  for (int i = 0; i < kFailureReasonCount; ++i) {
    s.failures[i] = failures_[i].load(std::memory_order_relaxed);
  }
  s.load_nanos = load_nanos_.load(std::memory_order_relaxed);
  s.bytes_copied = bytes_copied_.load(std::memory_order_relaxed);
  for (int32_t i = 0; i <= batch_size_max_; ++i) {
    const AtomicBatch& batch = batches_[static_cast<size_t>(i)];
    BatchStatistics b{static_cast<uint64_t>(i), batch.compute_input.Read(),
                      batch.compute_infer.Read(), batch.compute_output.Read()};
    if (b.compute_infer.count > 0) s.batches.push_back(b);
  }
  return s;
}

}  // namespace stampmill
