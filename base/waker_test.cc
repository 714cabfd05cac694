#include "base/waker.h"

#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(Waker, ReturnsAtOnceWhenTheEpochHasMoved) {
  Waker waker;
  const uint32_t seen = waker.epoch();
  waker.Wake();
  EXPECT_TRUE(waker.WaitUntil(seen, kNoDeadline));
  EXPECT_TRUE(waker.WaitUntil(seen, 0));
}

TEST(Waker, ReturnsFalseAtItsDeadline) {
  Waker waker;
  EXPECT_FALSE(waker.WaitUntil(waker.epoch(), 0));
  EXPECT_FALSE(waker.WaitUntil(waker.epoch(), -5));
  const int64_t deadline = RealClock().NowNanos() + 2'000'000;
  EXPECT_FALSE(waker.WaitUntil(waker.epoch(), deadline));
  EXPECT_GE(RealClock().NowNanos(), deadline);
}

TEST(Waker, WakesEverySleeper) {
  Waker waker;
  const uint32_t seen = waker.epoch();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(waker.WaitUntil(seen, kNoDeadline)); });
  }
  waker.Wake();
  for (std::thread& thread : threads) thread.join();
}

// Two threads hand a plain integer to and fro: a lost wake-up hangs, a missing order is a race that
// the sanitized twin reports.
TEST(Waker, LosesNoWakeUpAndOrdersMemory) {
  Waker to_worker, to_main;
  constexpr int kRounds = 20'000;
  int value = 0;
  std::atomic<int> turns{0};
  std::thread worker([&] {
    for (int i = 0; i < kRounds; ++i) {
      for (uint32_t seen = to_worker.epoch(); seen <= static_cast<uint32_t>(i);
           seen = to_worker.epoch()) {
        to_worker.WaitUntil(seen, kNoDeadline);
      }
      ++value;
      turns.fetch_add(1, std::memory_order_relaxed);
      to_main.Wake();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    const uint32_t seen = to_main.epoch();
    value += 2;
    to_worker.Wake();
    EXPECT_TRUE(to_main.WaitUntil(seen, kNoDeadline));
  }
  worker.join();
  EXPECT_EQ(turns.load(), kRounds);
  EXPECT_EQ(value, 3 * kRounds);
}

}  // namespace
}  // namespace stampmill
