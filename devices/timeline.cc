#include "devices/timeline.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stampmill {

Timeline::~Timeline() {
  absl::MutexLock lock(&mutex_);
  while (waiters_ != nullptr) {
    Waiter* waiter = waiters_;
    waiters_ = waiter->next_;
    waiter->Release(absl::CancelledError(absl::StrCat(
        "queue: destroyed before it signalled ", waiter->value_, ", which another waits for")));
  }
}

absl::Status Timeline::status() const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  return status_;
}

absl::Status Timeline::StatusAt(uint64_t value) const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  return StatusAtLocked(value);
}

absl::Status Timeline::StatusAtLocked(uint64_t value) const {
  return value <= good_ ? absl::OkStatus() : status_;
}

absl::Status Timeline::Wait(uint64_t value) {
  for (;;) {
    const uint32_t seen = passed_.epoch();
    if (completed() >= value) return status();
    passed_.WaitUntil(seen, kNoDeadline);
  }
}

bool Timeline::AddWaiter(uint64_t value, Waiter* waiter) {
  absl::MutexLock lock(&mutex_);
  // Sequentially consistent with the two in Pass: either this sees the value, or Pass the waiter.
  waiter_count_.fetch_add(1, std::memory_order_seq_cst);
  if (completed_.load(std::memory_order_seq_cst) >= value) {
    waiter_count_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  waiter->value_ = value;
  waiter->next_ = waiters_;
  waiters_ = waiter;
  return true;
}

void Timeline::Pass(uint64_t value) { Pass(value, waker_); }

void Timeline::PassInSubmit(uint64_t value) { Pass(value, nullptr); }

void Timeline::Pass(uint64_t value, Waker* waker) {
  CHECK_GT(value, completed_.load(std::memory_order_relaxed));
  completed_.store(value, std::memory_order_seq_cst);
  passed_.Wake();
  if (waker != nullptr) waker->Wake();
  if (waiter_count_.load(std::memory_order_seq_cst) > 0) ReleaseWaiters();
}

void Timeline::Fail(const absl::Status& status) {
  CHECK(!status.ok());
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return;
    status_ = status;
    good_ = completed_.load(std::memory_order_relaxed);
    failed_.store(true, std::memory_order_release);
  }
  if (waker_ != nullptr) waker_->Wake();
}

void Timeline::ReleaseWaiters() {
  absl::MutexLock lock(&mutex_);
  const uint64_t completed = completed_.load(std::memory_order_relaxed);
  for (Waiter** link = &waiters_; *link != nullptr;) {
    Waiter* waiter = *link;
    if (waiter->value_ > completed) {
      link = &waiter->next_;
      continue;
    }
    *link = waiter->next_;
    waiter_count_.fetch_sub(1, std::memory_order_relaxed);
    waiter->Release(StatusAtLocked(waiter->value_));
  }
}

}  // namespace stampmill
