// Clock: time as the engine sees it, real or simulated.
//
// All times are nanoseconds of one monotonic clock that starts anywhere; they are compared and
// subtracted, never shown as a date. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/waker.h"

namespace stampmill {

class Clock {
 public:
  virtual ~Clock() = default;

  virtual int64_t NowNanos() const = 0;

  // Sleeps until `waker`'s epoch differs from `seen_epoch` (true) or this clock reaches
  // `deadline_nanos` (false; kNoDeadline waits for the waker alone).
  virtual bool WaitUntil(Waker& waker, uint32_t seen_epoch, int64_t deadline_nanos) = 0;
};

// CLOCK_MONOTONIC. Lives as long as the process.
Clock& RealClock();

// A clock that moves only when told to. Waiting threads sleep until their waker is woken or Advance
// passes their deadline; a simulation on one thread never waits but advances to the next deadline.
class SimulatedClock final : public Clock {
 public:
  explicit SimulatedClock(int64_t start_nanos = 0) : now_nanos_(start_nanos) {}

  int64_t NowNanos() const override;
  bool WaitUntil(Waker& waker, uint32_t seen_epoch, int64_t deadline_nanos) override;

  // REQUIRES: nanos >= 0. Saturates below kNoDeadline.
  void Advance(int64_t nanos);

  // Never moves back: an earlier time is ignored.
  void AdvanceTo(int64_t nanos);

 private:
  struct Sleeper {
    Waker* waker;  // Borrowed from the WaitUntil call that is in progress.
    int64_t deadline_nanos;
  };

  mutable absl::Mutex mutex_;
  int64_t now_nanos_ ABSL_GUARDED_BY(mutex_);
  std::vector<Sleeper> sleepers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stampmill
