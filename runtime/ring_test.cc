#include "runtime/ring.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(BoundedRingTest, RefusesWhenFullAndGivesNothingWhenEmpty) {
  BoundedRing<int> ring(2);
  EXPECT_EQ(ring.Pop(), std::nullopt);
  EXPECT_TRUE(ring.Push(1));
  EXPECT_TRUE(ring.Push(2));
  EXPECT_FALSE(ring.Push(3));
  EXPECT_EQ(ring.Pop(), 1);
  EXPECT_EQ(ring.Pop(), 2);
}

// As slots are taken and given back: each has a place, but Push alone may find the ring full.
TEST(BoundedRingTest, WhatHasAPlaceIsNeverLost) {
  constexpr int kThreads = 4, kSlots = 2, kEach = 20'000;
  BoundedRing<int> ring(kSlots);
  for (int slot = 0; slot < kSlots; ++slot) ring.PushCertainly(slot);
  std::atomic<int> taken[kSlots] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        const std::optional<int> slot = ring.Pop();
        if (!slot.has_value()) continue;
        EXPECT_EQ(taken[*slot].fetch_add(1), 0);
        taken[*slot].fetch_sub(1);
        ring.PushCertainly(*slot);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int slot = 0; slot < kSlots; ++slot) EXPECT_NE(ring.Pop(), std::nullopt);
  EXPECT_EQ(ring.Pop(), std::nullopt);
}

}  // namespace
}  // namespace stampmill
