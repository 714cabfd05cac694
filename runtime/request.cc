// Slots, their release, and pins.
#include "runtime/request.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace stampmill {

absl::StatusOr<TensorShape> TensorShape::From(std::span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kTensorRankMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape: got ", dims.size(), " dims, limit ", kTensorRankMax));
  }
  TensorShape shape;
  for (const int64_t dim : dims) {
    if (dim < 0) {
      return absl::InvalidArgumentError(absl::StrCat("shape: got dim ", dim, ", limit 0"));
    }
    shape.dims_[static_cast<size_t>(shape.rank_++)] = dim;
  }
  return shape;
}

std::optional<int64_t> TensorShape::element_count() const {
  constexpr int64_t kMax = int64_t{1} << 62;
  int64_t count = 1;
  bool overflow = false;
  for (const int64_t dim : dims()) {
    if (dim == 0) return 0;
    overflow = overflow || count > kMax / dim;
    if (!overflow) count *= dim;
  }
  if (overflow) return std::nullopt;
  return count;
}

std::string TensorShape::ToString() const {
  const std::span<const int64_t> d = dims();
  return absl::StrCat("[", absl::StrJoin(d.begin(), d.end(), ","), "]");
}

bool operator==(const TensorShape& a, const TensorShape& b) {
  return std::ranges::equal(a.dims(), b.dims());
}

ModelPin::ModelPin(ServedModel* model, PinCount* pins) : model_(model), pins_(pins) {
  pins_->count_.fetch_add(1, std::memory_order_relaxed);
}

ModelPin& ModelPin::operator=(ModelPin&& other) noexcept {
  if (this != &other) {
    Reset();
    model_ = std::exchange(other.model_, nullptr);
    pins_ = other.pins_;
  }
  return *this;
}

void ModelPin::Reset() {
  if (std::exchange(model_, nullptr) == nullptr) return;
  // Once the count is 0 the model may be gone, and its PinCount with it.
  Waker* const unpinned = pins_->unpinned_;
  if (pins_->count_.fetch_sub(1, std::memory_order_acq_rel) == 1) unpinned->Wake();
}

void RequestRelease::operator()(Request* request) const {
  if (request != nullptr) pool->Release(request);
}

RequestPool::RequestPool(int32_t slots)
    : capacity_(std::max(slots, 1)),
      slots_(std::make_unique<Request[]>(static_cast<size_t>(capacity_))),
      free_(static_cast<size_t>(capacity_)) {
  for (int32_t i = 0; i < capacity_; ++i) {
    slots_[i].slot = static_cast<uint32_t>(i);
    slots_[i].generation = 1;
    free_.PushCertainly(static_cast<uint32_t>(i));
  }
}

RequestPool::~RequestPool() { CHECK_EQ(in_use(), 0); }

absl::StatusOr<RequestHandle> RequestPool::Acquire() {
  const std::optional<uint32_t> index = free_.Pop();
  if (!index.has_value()) return absl::UnavailableError("Exceeds maximum queue size");
  in_use_.fetch_add(1, std::memory_order_relaxed);
  return Adopt(&slots_[*index]);
}

void Request::Cancel(uint32_t of_generation) {
  uint32_t seen = cancelled_generation.load(std::memory_order_relaxed);
  // A cancel that comes late must not undo one of a later use.
  while (
      static_cast<int32_t>(of_generation - seen) > 0 &&
      !cancelled_generation.compare_exchange_weak(seen, of_generation, std::memory_order_release)) {
  }
}

void RequestPool::Release(Request* request) {
  Request& r = *request;
  r.model.Reset();
  r.inputs.clear();
  r.outputs.clear();
  r.id.clear();
  r.priority = 0;
  r.timeout_us = 0;
  r.deadline_nanos = kNoDeadline;
  r.context = nullptr;
  r.times = {};
  r.status = absl::OkStatus();
  r.rows = 1;
  r.signature = 0;
  r.queue_deadline_nanos = kNoDeadline;
  r.level = 0;
  r.delayed = false;
  r.alone = false;
  r.next = r.previous = nullptr;
  // From here on tags of the use that ends are stale. 0 stays free: it means "not cancelled".
  if (++r.generation == 0) r.generation = 1;
  in_use_.fetch_sub(1, std::memory_order_relaxed);
  free_.PushCertainly(r.slot);
}

Request* RequestPool::slot(uint32_t index) {
  return index < static_cast<uint32_t>(capacity_) ? &slots_[index] : nullptr;
}

}  // namespace stampmill
