// Waker: how one thread tells another that something happened.
//
// A counter that producers add one to and a consumer sleeps on (a futex). The consumer reads the
// epoch, looks at all its sources of work, and sleeps only if the epoch is still the one it read,
// so nothing that happens in between is missed:
//
//   const uint32_t seen = waker.epoch();
//   if (!DoWork()) waker.WaitUntil(seen, deadline);
//
// Wake costs one atomic addition when nobody sleeps. Spinning before sleeping is the caller's
// affair. Thread-safe. A Waker must outlive every Wake call, also one whose effect was already
// seen.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

namespace stampmill {

// A deadline that never comes.
inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

class Waker {
 public:
  Waker() = default;
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Everything written before a Wake is visible after an epoch() that counts it.
  uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

  void Wake() {
    // Sequentially consistent with the two in WaitUntil: either the sleeper sees the new epoch, or
    // this sees the sleeper.
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) WakeSleepers();
  }

  // Sleeps until the epoch differs from `seen` (true) or CLOCK_MONOTONIC reaches `deadline_nanos`
  // (false). Returns at once if either holds already; a changed epoch wins.
  bool WaitUntil(uint32_t seen, int64_t deadline_nanos);

 private:
  void WakeSleepers();

  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace stampmill
