// Request: one inference on its way through the daemon, and the slots that requests live in.
//
// All slots are allocated at start, so that nothing is allocated for a request on the
// engine thread and the number of requests in the daemon has a bound. The server takes a slot from
// the RequestPool, fills it, and submits it to an Engine; the engine gives it back through its
// ready ring with a result; the server answers and drops the handle, which returns the slot.
// Vectors and strings of a slot keep their capacity.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/waker.h"
#include "graph/dtype.h"
#include "runtime/limits.h"
#include "runtime/ring.h"
#include "runtime/statistics.h"
#include "runtime/tensor_pool.h"

namespace stampmill {

class ServedModel;

// Dims of a tensor, in place.
class TensorShape {
 public:
  TensorShape() = default;
  // INVALID_ARGUMENT for more than kTensorRankMax dims or a negative one.
  static absl::StatusOr<TensorShape> From(std::span<const int64_t> dims);

  int32_t rank() const { return rank_; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  int64_t operator[](int32_t i) const { return dims_[static_cast<size_t>(i)]; }
  void set(int32_t i, int64_t dim) { dims_[static_cast<size_t>(i)] = dim; }
  // REQUIRES: rank() < kTensorRankMax.
  void Append(int64_t dim) { dims_[static_cast<size_t>(rank_++)] = dim; }
  // Product of the dims; nullopt when it passes 2^62.
  std::optional<int64_t> element_count() const;
  std::string ToString() const;  // "[2,128]"
  friend bool operator==(const TensorShape& a, const TensorShape& b);

 private:
  std::array<int64_t, kTensorRankMax> dims_ = {};
  int32_t rank_ = 0;
};

// One input. `bytes` are read in place until the request is ready again: they lie in `lease`, or
// are borrowed from the server, which keeps them as long as it has not got the request back.
struct InputTensor {
  int32_t index = -1;  // in the model's inputs()
  DType dtype = DType::kInvalid;
  TensorShape shape;  // as the client sent it, batch dim included
  std::span<const std::byte> bytes;
  Lease lease;
};

// One requested output. `target`: where the client wants it (its shared memory); else the engine
// takes a lease from the tensor pool. The rest is the result.
struct OutputTensor {
  int32_t index = -1;  // in the model's outputs()
  Lease target;
  DType dtype = DType::kInvalid;
  TensorShape shape;
  Lease lease;  // holds bytes; the target or a part of the pool
  std::span<const std::byte> bytes;
};

// How many pins keep something loaded. Thread-safe.
class PinCount {
 public:
  // `unpinned` is woken when the count reaches 0; it outlives this.
  explicit PinCount(Waker* unpinned) : unpinned_(unpinned) {}
  int32_t count() const { return count_.load(std::memory_order_acquire); }

 private:
  friend class ModelPin;
  std::atomic<int32_t> count_{0};
  Waker* const unpinned_;
};

// Keeps a ServedModel loaded: its memory is returned only when no pin is left. Move-only.
class ModelPin {
 public:
  ModelPin() = default;
  ModelPin(ServedModel* model, PinCount* pins);
  ModelPin(ModelPin&& other) noexcept
      : model_(std::exchange(other.model_, nullptr)), pins_(other.pins_) {}
  ModelPin& operator=(ModelPin&& other) noexcept;
  ~ModelPin() { Reset(); }

  void Reset();
  bool valid() const { return model_ != nullptr; }
  ServedModel* get() const { return model_; }
  ServedModel* operator->() const { return model_; }
  ServedModel& operator*() const { return *model_; }

 private:
  ServedModel* model_ = nullptr;
  PinCount* pins_ = nullptr;
};

// Names one use of one slot, so that a late cancel cannot hit the slot's next request.
struct RequestTag {
  uint32_t slot = 0;
  uint32_t generation = 0;
};

// Owned by the server until submitted, then by the engine thread until it is ready again.
struct Request {
  // Set by the server.
  ModelPin model;
  std::vector<InputTensor> inputs;    // every input of the model, once each, in any order
  std::vector<OutputTensor> outputs;  // empty: all of the model, in its order
  std::string id;                     // the client's, echoed
  uint64_t priority = 0;              // 1 is the highest; 0: the model's default
  uint64_t timeout_us = 0;            // Triton's `timeout`: the longest wait in the queue; 0: none
  int64_t deadline_nanos = kNoDeadline;  // of the engine's clock: ends also running work
  void* context = nullptr;               // the server's own
  RequestTimes times;                    // the server sets `arrival`

  // Set by the engine. A failed request has no outputs' bytes.
  absl::Status status;

  RequestTag tag() const { return {slot, generation}; }
  // Any thread, any time; ignored unless this slot's use of that generation is not over.
  void Cancel(uint32_t of_generation);
  // The owner's.
  bool cancelled() const {
    return cancelled_generation.load(std::memory_order_acquire) == generation;
  }

  // The engine's own; see scheduler.h.
  uint32_t slot = 0;
  uint32_t generation = 0;
  std::atomic<uint32_t> cancelled_generation{0};
  int64_t rows = 1;        // dim 0 of a batchable model's inputs
  uint64_t signature = 0;  // hash of all dims but the batch
  int64_t queue_deadline_nanos = kNoDeadline;
  int32_t level = 0;  // priority level, 0 the highest
  uint64_t arrival_number = 0;
  bool delayed = false;  // its queue timeout passed and the policy is DELAY
  bool alone = false;    // its step failed together with others: it runs once more by itself
  bool queued = false;   // in its model's scheduler
  Request* next = nullptr;
  Request* previous = nullptr;
};

class RequestPool;

// Returns the slot to its pool. Whoever holds the handle owns the request.
struct RequestRelease {
  RequestPool* pool = nullptr;
  void operator()(Request* request) const;
};
using RequestHandle = std::unique_ptr<Request, RequestRelease>;

// All slots of the process. Thread-safe, lock-free.
class RequestPool {
 public:
  explicit RequestPool(int32_t slots);
  // REQUIRES: every handle was dropped.
  ~RequestPool();

  // An empty request. UNAVAILABLE "Exceeds maximum queue size" when all are in use: refuse now.
  absl::StatusOr<RequestHandle> Acquire();
  RequestHandle Adopt(Request* request) { return RequestHandle(request, RequestRelease{this}); }

  int32_t capacity() const { return capacity_; }
  int32_t in_use() const { return in_use_.load(std::memory_order_relaxed); }

 private:
  friend class Engine;
  friend struct RequestRelease;
  void Release(Request* request);
  // nullptr when out of range: tags may come late.
  Request* slot(uint32_t index);

  const int32_t capacity_;
  const std::unique_ptr<Request[]> slots_;
  BoundedRing<uint32_t> free_;
  std::atomic<int32_t> in_use_{0};
};

}  // namespace stampmill
