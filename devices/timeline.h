// Timeline: how far a queue has come, for those who ask, those who sleep and other queues that
// wait.
//
// Every backend's queue has one and moves it: Pass for each signal in order, Fail at the first
// failure. Nothing here allocates. A queue that must wait for another hangs a Waiter on the other's
// timeline and leaves its thread; this is how queues of different backends wait for each other
// without knowing each other.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/waker.h"

namespace stampmill {

// Thread-safe; Pass and Fail are called by one thread at a time.
class Timeline {
 public:
  // A place in the list of those who wait; lives in the waiting queue. Release is called once, on
  // the thread that moves or destroys the timeline, under its lock: it must not call the timeline,
  // and should only make the waiting queue runnable. `status` is StatusAt(the awaited value).
  class Waiter {
   public:
    virtual void Release(const absl::Status& status) = 0;

   protected:
    ~Waiter() = default;

   private:
    friend class Timeline;
    uint64_t value_ = 0;
    Waiter* next_ = nullptr;
  };

  // `waker` may be null; it is bumped by Pass and Fail and outlives the timeline.
  explicit Timeline(Waker* waker) : waker_(waker) {}
  // Releases the waiters with CANCELLED.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // The highest value passed; 0 at first.
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }
  // OK or the first failure.
  absl::Status status() const;
  // The same, but OK if `value` had passed before the failure: what it stands for is good.
  absl::Status StatusAt(uint64_t value) const;
  // Blocks until `value` has passed; returns status().
  absl::Status Wait(uint64_t value);

  // Hangs `waiter` here until `value` passes: true, and Release is called then, maybe before this
  // returns. False if it has passed already: nothing will be called.
  bool AddWaiter(uint64_t value, Waiter* waiter);

  // REQUIRES: value > completed().
  void Pass(uint64_t value);
  // The same inside a Submit, whose caller sees the value itself: the waker is left alone.
  void PassInSubmit(uint64_t value);
  // The first failure is kept, later ones are ignored. REQUIRES: not OK.
  void Fail(const absl::Status& status);

 private:
  void Pass(uint64_t value, Waker* waker);
  void ReleaseWaiters();
  absl::Status StatusAtLocked(uint64_t value) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Waker* const waker_;
  Waker passed_;  // for Wait
  std::atomic<uint64_t> completed_{0};
  std::atomic<bool> failed_{false};
  std::atomic<int32_t> waiter_count_{0};
  mutable absl::Mutex mutex_;
  Waiter* waiters_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  uint64_t good_ ABSL_GUARDED_BY(mutex_) = 0;  // completed() at the failure
};

}  // namespace stampmill
