#include "runtime/run_token.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(RunTokenTest, TheFirstToAskRuns) {
  RunToken token;
  ASSERT_TRUE(token.Ask());
  token.BeginRound();
  EXPECT_TRUE(token.EndRound());
  EXPECT_TRUE(token.Ask());
}

TEST(RunTokenTest, WhoAsksDuringARoundGetsAnotherOne) {
  RunToken token;
  ASSERT_TRUE(token.Ask());
  token.BeginRound();
  EXPECT_FALSE(token.Ask());
  EXPECT_FALSE(token.Ask());
  EXPECT_FALSE(token.EndRound());
  token.BeginRound();
  EXPECT_TRUE(token.EndRound());
}

TEST(RunTokenTest, WhoAsksBeforeTheFirstRoundBeginsIsPartOfIt) {
  RunToken token;
  ASSERT_TRUE(token.Ask());
  EXPECT_FALSE(token.Ask());
  token.BeginRound();
  EXPECT_TRUE(token.EndRound());
}

TEST(RunTokenTest, ATokenThatWasLeftIsTakenOverOnce) {
  RunToken token;
  EXPECT_FALSE(token.TakeOver());
  ASSERT_TRUE(token.Ask());
  token.BeginRound();
  EXPECT_FALSE(token.Ask());
  token.HandOver();
  EXPECT_FALSE(token.Ask()) << "nobody runs, but somebody will";
  ASSERT_TRUE(token.TakeOver());
  EXPECT_FALSE(token.TakeOver());
  token.BeginRound();
  EXPECT_TRUE(token.EndRound());
  EXPECT_TRUE(token.Ask());
}

TEST(RunTokenTest, ManyThreadsLoseNothingAndNeverRunTogether) {
  constexpr int kThreads = 4;
  constexpr int64_t kEach = 20'000;
  RunToken token;
  std::atomic<int64_t> inbox{0};
  int64_t taken = 0;  // by the holder alone: the thread sanitizer checks it
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int64_t i = 0; i < kEach; ++i) {
        inbox.fetch_add(1, std::memory_order_relaxed);
        if (!token.Ask()) continue;
        do {
          token.BeginRound();
          taken += inbox.exchange(0, std::memory_order_relaxed);
        } while (!token.EndRound());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, kThreads * kEach);
}

}  // namespace
}  // namespace stampmill
