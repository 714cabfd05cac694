// Loops go over levels and, in each, its two lists: that is the order of service.
#include "runtime/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace stampmill {
namespace {

int64_t AddSaturating(int64_t a, int64_t b) { return a > kNoDeadline - b ? kNoDeadline : a + b; }

int64_t MicrosToNanos(uint64_t micros) {
  return micros > static_cast<uint64_t>(kNoDeadline) / 1000 ? kNoDeadline
                                                            : static_cast<int64_t>(micros) * 1000;
}

// Parts of a step's time: how long to wait for the next request of those that are expected back,
// and for all of them. After a step so short that the first would be below the minimum nobody
// waits.
constexpr int64_t kReturnGapPart = 12;
constexpr int64_t kReturnPart = 4;
constexpr int64_t kReturnGapNanosMin = 50'000;
constexpr int64_t kReturnGapNanosMax = 1'000'000;
constexpr int32_t kStepsWithoutWait = 32;

// When a request of this policy has waited too long. A request's own timeout shortens the model's
// default where the model allows it, and counts alone where the model sets none.
int64_t QueueDeadline(const QueuePolicy& policy, const Request& request, int64_t now) {
  uint64_t timeout_us = policy.default_timeout_us;
  if (request.timeout_us > 0 && timeout_us == 0) {
    timeout_us = request.timeout_us;
  } else if (request.timeout_us > 0 && policy.allow_timeout_override) {
    timeout_us = std::min(timeout_us, request.timeout_us);
  }
  return timeout_us == 0 ? kNoDeadline : AddSaturating(now, MicrosToNanos(timeout_us));
}

}  // namespace

void RequestList::PushBack(Request* request) {
  request->next = nullptr;
  request->previous = tail;
  (tail != nullptr ? tail->next : head) = request;
  tail = request;
  ++size;
}

void RequestList::InsertByArrival(Request* request) {
  Request* after = head;
  while (after != nullptr && after->arrival_number < request->arrival_number) after = after->next;
  if (after == nullptr) {
    PushBack(request);
    return;
  }
  request->next = after;
  request->previous = after->previous;
  (after->previous != nullptr ? after->previous->next : head) = request;
  after->previous = request;
  ++size;
}

void RequestList::Remove(Request* request) {
  (request->previous != nullptr ? request->previous->next : head) = request->next;
  (request->next != nullptr ? request->next->previous : tail) = request->previous;
  request->next = request->previous = nullptr;
  --size;
}

Scheduler::Scheduler(const BatchingPolicy& policy, int32_t requests_max)
    : policy_(policy),
      requests_max_(static_cast<size_t>(
          policy.dynamic ? std::clamp<int64_t>(policy.max_batch_size, 1, std::max(requests_max, 1))
                         : 1)) {
  CHECK(!policy_.levels.empty());
  for (const QueuePolicy& level : policy_.levels) levels_.push_back({level, {}, {}});
  batch_.reserve(requests_max_);
}

RequestList& Scheduler::ListOf(const Request& request) {
  Level& level = levels_[static_cast<size_t>(request.level)];
  return request.delayed ? level.delayed : level.on_time;
}

void Scheduler::NoteDeadline(const Request& request) {
  next_expiry_nanos_ =
      std::min({next_expiry_nanos_, request.queue_deadline_nanos, request.deadline_nanos});
}

bool Scheduler::Enqueue(Request* request, int64_t now) {
  // Triton's levels count from 1, 0 asks for the default, and what is beyond the last is the last.
  const auto last = static_cast<int32_t>(levels_.size()) - 1;
  request->level = request->priority == 0
                       ? policy_.default_level
                       : static_cast<int32_t>(std::min<uint64_t>(request->priority - 1,
                                                                 static_cast<uint64_t>(last)));
  Level& level = levels_[static_cast<size_t>(request->level)];
  if (level.policy.max_queue_size > 0 &&
      level.on_time.size + level.delayed.size >= level.policy.max_queue_size) {
    return false;
  }
  request->delayed = false;
  request->queued = true;
  request->arrival_number = arrivals_++;
  last_arrival_nanos_ = now;
  request->queue_deadline_nanos = QueueDeadline(level.policy, *request, now);
  level.on_time.PushBack(request);
  ++waiting_;
  NoteDeadline(*request);
  return true;
}

void Scheduler::Remove(Request* request) {
  CHECK(request->queued);
  ListOf(*request).Remove(request);
  request->queued = false;
  --waiting_;
}

void Scheduler::PutBack(std::span<Request* const> requests) {
  for (Request* const request : requests) {
    CHECK(!request->queued);
    request->queued = true;
    ListOf(*request).InsertByArrival(request);
    ++waiting_;
    NoteDeadline(*request);
  }
}

Request* Scheduler::TakeExpired(int64_t now) {
  if (now < next_expiry_nanos_) return nullptr;
  next_expiry_nanos_ = kNoDeadline;
  for (Level& level : levels_) {
    for (RequestList* list : {&level.on_time, &level.delayed}) {
      for (Request *request = list->head, *next; request != nullptr; request = next) {
        next = request->next;
        const bool queue_time_over = request->queue_deadline_nanos <= now;
        if (queue_time_over && level.policy.delay_on_timeout && request->deadline_nanos > now) {
          list->Remove(request);
          request->delayed = true;
          request->queue_deadline_nanos = kNoDeadline;
          level.delayed.PushBack(request);
        } else if (queue_time_over || request->deadline_nanos <= now) {
          Remove(request);
          next_expiry_nanos_ = now;  // not seen to the end: look again
          return request;
        }
        NoteDeadline(*request);
      }
    }
  }
  return nullptr;
}

Request* Scheduler::TakeCancelled() {
  for (Level& level : levels_) {
    for (RequestList* list : {&level.on_time, &level.delayed}) {
      for (Request* request = list->head; request != nullptr; request = request->next) {
        if (!request->cancelled()) continue;
        Remove(request);
        return request;
      }
    }
  }
  return nullptr;
}

Request* Scheduler::TakeAny() {
  for (Level& level : levels_) {
    for (RequestList* list : {&level.on_time, &level.delayed}) {
      if (Request* request = list->head; request != nullptr) {
        Remove(request);
        return request;
      }
    }
  }
  return nullptr;
}

bool Scheduler::Compatible(const Request& a, const Request& b) {
  if (a.alone || b.alone) return false;
  if (a.signature != b.signature || a.inputs.size() != b.inputs.size()) return false;
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const TensorShape& x = a.inputs[i].shape;
    const TensorShape& y = b.inputs[i].shape;
    if (x.rank() != y.rank()) return false;
    for (int32_t d = 1; d < x.rank(); ++d) {
      if (x[d] != y[d]) return false;
    }
  }
  return true;
}

Scheduler::Candidates Scheduler::CollectCandidates() {
  Candidates found;
  batch_.clear();
  for (Level& level : levels_) {
    for (RequestList* list : {&level.on_time, &level.delayed}) {
      for (Request* request = list->head; request != nullptr; request = request->next) {
        if (!batch_.empty() && !Compatible(*batch_.front(), *request)) {
          if (!policy_.preserve_ordering) continue;
          found.can_grow = false;
          return found;
        }
        if (!batch_.empty() && (batch_.size() == requests_max_ ||
                                request->rows > policy_.max_batch_size - found.rows)) {
          found.can_grow = false;
          return found;
        }
        found.oldest_start_nanos =
            batch_.empty() ? request->times.queue_start
                           : std::min(found.oldest_start_nanos, request->times.queue_start);
        batch_.push_back(request);
        found.rows += request->rows;
        if (std::ranges::binary_search(policy_.preferred_sizes, found.rows)) {
          found.preferred_count = batch_.size();
        }
        if (request->alone || found.rows >= policy_.max_batch_size ||
            batch_.size() == requests_max_) {
          found.can_grow = false;
          return found;
        }
      }
    }
  }
  return found;
}

void Scheduler::StepEnded(int64_t requests, int64_t nanos, int64_t now) {
  expected_ = requests + waiting_;
  if (steps_without_wait_ > 0) {
    --steps_without_wait_;
    expected_ = 0;
  }
  step_nanos_ = nanos;
  step_end_nanos_ = now;
}

int64_t Scheduler::ReturnDeadline(int64_t now) const {
  const int64_t gap = std::min(step_nanos_ / kReturnGapPart, kReturnGapNanosMax);
  if (waiting_ >= expected_ || gap < kReturnGapNanosMin) return now;
  return std::min(std::max(step_end_nanos_, last_arrival_nanos_) + gap,
                  step_end_nanos_ + step_nanos_ / kReturnPart);
}

std::span<Request* const> Scheduler::FormBatch(int64_t now) {
  next_batch_nanos_ = kNoDeadline;
  if (waiting_ == 0) return {};
  const Candidates found = CollectCandidates();
  const int64_t delay_end = AddSaturating(found.oldest_start_nanos, policy_.max_queue_delay_nanos);
  const bool delay_over = policy_.max_queue_delay_nanos > 0 && now >= delay_end;
  if (found.preferred_count > 0 && !delay_over) {
    batch_.resize(found.preferred_count);
  } else if (found.can_grow && policy_.dynamic && now < delay_end) {
    next_batch_nanos_ = delay_end;
    return {};
  } else if (const int64_t end = ReturnDeadline(now);
             now < end && found.can_grow && policy_.dynamic && !delay_over) {
    next_batch_nanos_ = end;
    waits_for_returns_ = true;
    return {};
  }
  if (waits_for_returns_ && last_arrival_nanos_ <= step_end_nanos_) {
    steps_without_wait_ = kStepsWithoutWait;
  }
  waits_for_returns_ = false;
  expected_ = 0;
  for (Request* request : batch_) Remove(request);
  return batch_;
}

int64_t Scheduler::NextDeadline() const {
  return waiting_ == 0 ? kNoDeadline : std::min(next_expiry_nanos_, next_batch_nanos_);
}

void Scheduler::CheckInvariants() const {
  int64_t waiting = 0;
  for (size_t i = 0; i < levels_.size(); ++i) {
    const Level& level = levels_[i];
    for (const RequestList* list : {&level.on_time, &level.delayed}) {
      const Request* before = nullptr;
      int64_t size = 0;
      for (const Request* request = list->head; request != nullptr; request = request->next) {
        CHECK(request->previous == before);
        CHECK(request->queued);
        CHECK_EQ(static_cast<size_t>(request->level), i);
        CHECK_EQ(request->delayed, list == &level.delayed);
        CHECK_GE(std::min(request->queue_deadline_nanos, request->deadline_nanos),
                 next_expiry_nanos_);
        if (before != nullptr && list == &level.on_time) {
          CHECK_GT(request->arrival_number, before->arrival_number);
        }
        before = request;
        ++size;
      }
      CHECK(list->tail == before);
      CHECK_EQ(list->size, size);
      waiting += size;
    }
  }
  CHECK_EQ(waiting, waiting_);
}

}  // namespace stampmill
