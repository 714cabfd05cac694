#include "base/clock.h"

#include <time.h>

#include <algorithm>

#include "base/check.h"

namespace stampmill {
namespace {

class MonotonicClock final : public Clock {
 public:
  int64_t NowNanos() const override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }

  bool WaitUntil(Waker& waker, uint32_t seen_epoch, int64_t deadline_nanos) override {
    return waker.WaitUntil(seen_epoch, deadline_nanos);
  }
};

}  // namespace

Clock& RealClock() {
  static MonotonicClock clock;
  return clock;
}

int64_t SimulatedClock::NowNanos() const {
  absl::MutexLock lock(&mutex_);
  return now_nanos_;
}

bool SimulatedClock::WaitUntil(Waker& waker, uint32_t seen_epoch, int64_t deadline_nanos) {
  if (waker.epoch() != seen_epoch) return true;
  {
    absl::MutexLock lock(&mutex_);
    if (now_nanos_ >= deadline_nanos) return false;
    sleepers_.push_back({&waker, deadline_nanos});
  }
  // A deadline that passes bumps the waker too. That bump is not an event of the caller's, but it
  // cannot be told from one, so the answer is "woken" only if the deadline has not passed.
  waker.WaitUntil(seen_epoch, kNoDeadline);
  absl::MutexLock lock(&mutex_);
  const auto self = std::find_if(sleepers_.begin(), sleepers_.end(), [&](const Sleeper& sleeper) {
    return sleeper.waker == &waker && sleeper.deadline_nanos == deadline_nanos;
  });
  CHECK(self != sleepers_.end());
  sleepers_.erase(self);
  return now_nanos_ < deadline_nanos;
}

void SimulatedClock::Advance(int64_t nanos) {
  CHECK_GE(nanos, 0);
  const int64_t now = NowNanos();
  AdvanceTo(nanos > kNoDeadline - 1 - now ? kNoDeadline - 1 : now + nanos);
}

void SimulatedClock::AdvanceTo(int64_t nanos) {
  // Woken under the lock: a sleeper takes itself off the list before its waker can die.
  absl::MutexLock lock(&mutex_);
  now_nanos_ = std::max(now_nanos_, nanos);
  for (const Sleeper& sleeper : sleepers_) {
    if (sleeper.deadline_nanos <= now_nanos_) sleeper.waker->Wake();
  }
}

}  // namespace stampmill
