// Lets ThreadSanitizer see absl's locks, whose library is not instrumented: Mutex, CondVar,
// Notification and BlockingCounter.
//
// Linked, exported, into every ThreadSanitizer binary that uses them (also through gRPC), this
// defines the public locking methods. Each calls the library's own definition, which is the next
// one of that symbol, and tells the sanitizer what it acquired or released; without it every use of
// these locks would be reported as a race. Those that take a Condition poll it instead: the library
// lets whichever thread unlocks evaluate it, behind the sanitizer's back.
//
// The symbols are those of absl 20220623, whose distribution calls its inline namespace debian3.
#include <dlfcn.h>
#include <time.h>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);

namespace {

// The library's definition of `symbol`, as a function that takes the object first.
template <typename Result, typename... Arguments>
class Next {
 public:
  explicit Next(const char* symbol)
      : function_(reinterpret_cast<Result (*)(void*, Arguments...)>(dlsym(RTLD_NEXT, symbol))) {}
  Result operator()(void* object, Arguments... arguments) const {
    return function_(object, arguments...);
  }

 private:
  Result (*function_)(void*, Arguments...);
};

void Acquire(absl::Mutex* mutex, const Next<void>& next) {
  next(mutex);
  __tsan_acquire(mutex);
}

void Release(absl::Mutex* mutex, const Next<void>& next) {
  __tsan_release(mutex);
  next(mutex);
}

bool Try(absl::Mutex* mutex, const Next<bool>& next) {
  const bool locked = next(mutex);
  if (locked) __tsan_acquire(mutex);
  return locked;
}

// Waits, with the lock held as `lock` and `unlock` do it, until `condition` holds or `deadline` is
// past; whether it holds then.
bool Poll(absl::Mutex* mutex, void (absl::Mutex::*lock)(), void (absl::Mutex::*unlock)(),
          const absl::Condition& condition, absl::Time deadline) {
  while (!condition.Eval()) {
    if (absl::Now() >= deadline) return false;
    (mutex->*unlock)();
    const timespec pause = {0, 100'000};
    nanosleep(&pause, nullptr);
    (mutex->*lock)();
  }
  return true;
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

#define MUTEX "_ZN4absl7debian35Mutex"
#define CONDVAR "_ZN4absl7debian37CondVar"
#define NOTIFICATION "_ZN4absl7debian312Notification"
#define CONST_NOTIFICATION "_ZNK4absl7debian312Notification"
#define COUNTER "_ZN4absl7debian315BlockingCounter"

void Mutex::Lock() {
  static const Next<void> next(MUTEX "4LockEv");
  Acquire(this, next);
}
void Mutex::Unlock() {
  static const Next<void> next(MUTEX "6UnlockEv");
  Release(this, next);
}
bool Mutex::TryLock() {
  static const Next<bool> next(MUTEX "7TryLockEv");
  return Try(this, next);
}
void Mutex::ReaderLock() {
  static const Next<void> next(MUTEX "10ReaderLockEv");
  Acquire(this, next);
}
void Mutex::ReaderUnlock() {
  static const Next<void> next(MUTEX "12ReaderUnlockEv");
  Release(this, next);
}
bool Mutex::ReaderTryLock() {
  static const Next<bool> next(MUTEX "13ReaderTryLockEv");
  return Try(this, next);
}

void Mutex::Await(const Condition& condition) { AwaitWithDeadline(condition, InfiniteFuture()); }
bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  return AwaitWithDeadline(condition, Now() + timeout);
}
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  // REQUIRES: held exclusively; a reader that awaits would come back as a writer. Nothing here
  // does.
  return Poll(this, &Mutex::Lock, &Mutex::Unlock, condition, deadline);
}

void Mutex::LockWhen(const Condition& condition) {
  LockWhenWithDeadline(condition, InfiniteFuture());
}
bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  return LockWhenWithDeadline(condition, Now() + timeout);
}
bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  Lock();
  return Poll(this, &Mutex::Lock, &Mutex::Unlock, condition, deadline);
}

void Mutex::ReaderLockWhen(const Condition& condition) {
  ReaderLockWhenWithDeadline(condition, InfiniteFuture());
}
bool Mutex::ReaderLockWhenWithTimeout(const Condition& condition, Duration timeout) {
  return ReaderLockWhenWithDeadline(condition, Now() + timeout);
}
bool Mutex::ReaderLockWhenWithDeadline(const Condition& condition, Time deadline) {
  ReaderLock();
  return Poll(this, &Mutex::ReaderLock, &Mutex::ReaderUnlock, condition, deadline);
}

void CondVar::Wait(Mutex* mutex) {
  static const Next<void, Mutex*> next(CONDVAR "4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  next(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const Next<bool, Mutex*, Duration> next(CONDVAR
                                                 "15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const Next<bool, Mutex*, Time> next(CONDVAR "16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

void Notification::Notify() {
  static const Next<void> next(NOTIFICATION "6NotifyEv");
  // Both for the waits below and for HasBeenNotified, which is inline and reads the flag after the
  // mutex.
  __tsan_release(this);
  __tsan_release(reinterpret_cast<char*>(this) + sizeof(Mutex));
  next(this);
}

void Notification::WaitForNotification() const {
  static const Next<void> next(CONST_NOTIFICATION "19WaitForNotificationEv");
  Notification* const self = const_cast<Notification*>(this);
  next(self);
  __tsan_acquire(self);
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static const Next<bool, Duration> next(CONST_NOTIFICATION
                                         "30WaitForNotificationWithTimeoutENS0_8DurationE");
  Notification* const self = const_cast<Notification*>(this);
  const bool notified = next(self, timeout);
  if (notified) __tsan_acquire(self);
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  static const Next<bool, Time> next(CONST_NOTIFICATION
                                     "31WaitForNotificationWithDeadlineENS0_4TimeE");
  Notification* const self = const_cast<Notification*>(this);
  const bool notified = next(self, deadline);
  if (notified) __tsan_acquire(self);
  return notified;
}

bool BlockingCounter::DecrementCount() {
  static const Next<bool> next(COUNTER "14DecrementCountEv");
  __tsan_release(this);
  const bool zero = next(this);
  if (zero) __tsan_acquire(this);
  return zero;
}

void BlockingCounter::Wait() {
  static const Next<void> next(COUNTER "4WaitEv");
  next(this);
  __tsan_acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl
