#include "base/waker.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace stampmill {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is one 32-bit word");

bool Waker::WaitUntil(uint32_t seen, int64_t deadline_nanos) {
  if (epoch() != seen) return true;
  timespec until = {};
  const timespec* timeout = nullptr;
  if (deadline_nanos != kNoDeadline) {
    const int64_t nanos = std::max<int64_t>(deadline_nanos, 0);
    until.tv_sec = nanos / 1'000'000'000;
    until.tv_nsec = nanos % 1'000'000'000;
    timeout = &until;
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  bool woken = true;
  while (epoch_.load(std::memory_order_seq_cst) == seen) {
    // The bitset form takes an absolute CLOCK_MONOTONIC time, so a signal does not stretch the
    // wait.
    const long result = syscall(SYS_futex, &epoch_, FUTEX_WAIT_BITSET_PRIVATE, seen, timeout,
                                nullptr, FUTEX_BITSET_MATCH_ANY);
    if (result != 0 && errno == ETIMEDOUT) {
      woken = epoch() != seen;
      break;
    }
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return woken;
}

void Waker::WakeSleepers() {
  syscall(SYS_futex, &epoch_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace stampmill
