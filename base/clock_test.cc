#include "base/clock.h"

#include <thread>

#include "base/waker.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(RealClock, NeverRunsBackwards) {
  int64_t last = RealClock().NowNanos();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = RealClock().NowNanos();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(RealClock, WaitsForDeadlineOrWaker) {
  Waker waker;
  const uint32_t seen = waker.epoch();
  const int64_t deadline = RealClock().NowNanos() + 1'000'000;
  EXPECT_FALSE(RealClock().WaitUntil(waker, seen, deadline));
  EXPECT_GE(RealClock().NowNanos(), deadline);
  waker.Wake();
  EXPECT_TRUE(RealClock().WaitUntil(waker, seen, kNoDeadline));
}

TEST(SimulatedClock, MovesOnlyWhenTold) {
  SimulatedClock clock(5);
  EXPECT_EQ(clock.NowNanos(), 5);
  clock.Advance(10);
  EXPECT_EQ(clock.NowNanos(), 15);
  clock.AdvanceTo(12);
  EXPECT_EQ(clock.NowNanos(), 15);
  clock.AdvanceTo(20);
  EXPECT_EQ(clock.NowNanos(), 20);
  clock.Advance(kNoDeadline);
  EXPECT_EQ(clock.NowNanos(), kNoDeadline - 1);
}

TEST(SimulatedClock, DoesNotWaitForWhatHasHappened) {
  SimulatedClock clock(100);
  Waker waker;
  const uint32_t seen = waker.epoch();
  EXPECT_FALSE(clock.WaitUntil(waker, seen, 100));
  waker.Wake();
  EXPECT_TRUE(clock.WaitUntil(waker, seen, 100));
}

TEST(SimulatedClock, ReleasesASleeperWhenItsDeadlinePasses) {
  SimulatedClock clock;
  Waker waker;
  const uint32_t seen = waker.epoch();
  std::thread sleeper([&] { EXPECT_FALSE(clock.WaitUntil(waker, seen, 50)); });
  clock.Advance(60);
  sleeper.join();
}

TEST(SimulatedClock, ReleasesASleeperWhenItsWakerIsWoken) {
  SimulatedClock clock;
  Waker waker;
  const uint32_t seen = waker.epoch();
  std::thread sleeper([&] { EXPECT_TRUE(clock.WaitUntil(waker, seen, 50)); });
  clock.Advance(40);
  waker.Wake();
  sleeper.join();
}

}  // namespace
}  // namespace stampmill
