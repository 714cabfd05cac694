// Conformance: signals, wakers, waits between queues, failures, fairness, destruction, threads.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "devices/conformance/fixture.h"
#include "devices/limits.h"

namespace stampmill {
namespace {

TEST_F(DeviceConformance, NoCommandsAreAList) {
  std::unique_ptr<Queue> queue = NewQueue();
  for (int32_t i = 0; i < 2 * kQueueListsMax; ++i) EXPECT_TRUE(queue->Submit({}).ok());
  EXPECT_EQ(queue->completed(), 0u);
  EXPECT_TRUE(queue->Synchronize(0).ok());
}

TEST_F(DeviceConformance, EverySignalPassesAndWakesTheWaker) {
  Waker waker;
  std::unique_ptr<Queue> queue = NewQueue(&waker);
  const Buffer counters = ToDevice(std::vector<int32_t>(100));
  const BufferRef buffers[] = {Ref(counters)};
  uint64_t signal = 0;
  for (int round = 0; round < 200; ++round) {
    const Command commands[] = {Launch("count", buffers, 100), SignalCommand{signal + 1},
                                Launch("count", buffers, 100), SignalCommand{signal + 3}};
    signal += 3;
    ASSERT_TRUE(queue->Submit(commands).ok());
    // As the engine does it: look, and sleep only if nothing has happened since.
    for (;;) {
      const uint32_t seen = waker.epoch();
      if (queue->completed() == signal) break;
      ASSERT_LT(queue->completed(), signal);
      waker.WaitUntil(seen, kNoDeadline);
    }
  }
  EXPECT_TRUE(queue->status().ok());
  EXPECT_EQ(FromDevice<int32_t>(counters), std::vector<int32_t>(100, 400));
}

TEST_F(DeviceConformance, ManyListsRunOneBehindAnother) {
  // Half the limit: a list whose last signal has passed may count for a moment longer.
  constexpr int32_t kRounds = 50, kLists = kQueueListsMax / 2;
  std::unique_ptr<Queue> queue = NewQueue();
  const Buffer log = ToDevice(std::vector<int64_t>(kRounds * kLists + 1));
  const BufferRef buffers[] = {Ref(log)};
  std::vector<int64_t> expected = {kRounds * kLists};
  for (int32_t round = 0; round < kRounds; ++round) {
    std::vector<int64_t> values(kLists);
    std::iota(values.begin(), values.end(), round * kLists);
    expected.insert(expected.end(), values.begin(), values.end());
    std::vector<std::vector<Command>> lists;
    for (const int64_t& value : values) {
      lists.push_back({Launch("append", buffers, 1, std::span(&value, 1), 60'000 * (value % 2)),
                       SignalCommand{static_cast<uint64_t>(value + 1)}});
      ASSERT_TRUE(queue->Submit(lists.back()).ok());
    }
    ASSERT_TRUE(queue->Synchronize(static_cast<uint64_t>(values.back() + 1)).ok());
  }
  EXPECT_EQ(FromDevice<int64_t>(log), expected);
}

TEST_F(DeviceConformance, ListsBeyondTheLimitAreRefusedAndNothingIsLost) {
  std::unique_ptr<Queue> first = NewQueue(), second = NewQueue();
  const Buffer counters = ToDevice(std::vector<int32_t>(1));
  const BufferRef buffers[] = {Ref(counters)};
  const Command wait[] = {WaitCommand{.queue = first.get(), .value = 1}};
  ASSERT_TRUE(second->Submit(wait).ok());
  const Command count[] = {Launch("count", buffers, 1)};
  for (int32_t i = 1; i < kQueueListsMax; ++i) ASSERT_TRUE(second->Submit(count).ok());
  EXPECT_EQ(second->Submit(count).code(), absl::StatusCode::kResourceExhausted);
  const Command go[] = {SignalCommand{1}};
  Run(*first, go, 1);
  second = nullptr;
  EXPECT_EQ(FromDevice<int32_t>(counters)[0], kQueueListsMax - 1);
}

TEST_F(DeviceConformance, AQueueWaitsForTheSignalOfAnother) {
  for (int round = 0; round < 50; ++round) {
    std::unique_ptr<Queue> first = NewQueue(), second = NewQueue();
    const Buffer log = ToDevice(std::vector<int64_t>(3));
    const BufferRef buffers[] = {Ref(log)};
    const int64_t one[] = {1}, two[] = {2};
    const Command waits[] = {WaitCommand{.queue = first.get(), .value = 5},
                             Launch("append", buffers, 1, two), SignalCommand{1}};
    ASSERT_TRUE(second->Submit(waits).ok());
    const Command goes[] = {SignalCommand{4}, Launch("append", buffers, 1, one), SignalCommand{6}};
    Run(*first, goes, 6);
    EXPECT_TRUE(second->Synchronize(1).ok());
    EXPECT_EQ(FromDevice<int64_t>(log), (std::vector<int64_t>{2, 1, 2}));
  }
}

TEST_F(DeviceConformance, QueuesPassABallToEachOther) {
  constexpr int64_t kRounds = 300;
  std::unique_ptr<Queue> left = NewQueue(), right = NewQueue();
  const Buffer log = ToDevice(std::vector<int64_t>(2 * kRounds + 1));
  const BufferRef buffers[] = {Ref(log)};
  std::vector<int64_t> values(2 * kRounds);
  std::iota(values.begin(), values.end(), 0);
  std::vector<Command> lefts, rights;
  for (int64_t i = 0; i < kRounds; ++i) {
    const uint64_t value = static_cast<uint64_t>(i + 1);
    lefts.push_back(WaitCommand{.queue = right.get(), .value = value - 1});
    lefts.push_back(Launch("append", buffers, 1, std::span(&values[2 * i], 1)));
    lefts.push_back(SignalCommand{value});
    rights.push_back(WaitCommand{.queue = left.get(), .value = value});
    rights.push_back(Launch("append", buffers, 1, std::span(&values[2 * i + 1], 1)));
    rights.push_back(SignalCommand{value});
  }
  ASSERT_TRUE(right->Submit(rights).ok());
  ASSERT_TRUE(left->Submit(lefts).ok());
  EXPECT_TRUE(right->Synchronize(kRounds).ok());
  EXPECT_TRUE(left->Synchronize(kRounds).ok());
  std::vector<int64_t> expected = {2 * kRounds};
  expected.insert(expected.end(), values.begin(), values.end());
  EXPECT_EQ(FromDevice<int64_t>(log), expected);
}

TEST_F(DeviceConformance, QueuesOfTwoDevicesWaitForEachOther) {
  const std::unique_ptr<Device> other = NewDevice();
  std::unique_ptr<Queue> here = NewQueue();
  std::unique_ptr<Queue> there = *other->CreateQueue(nullptr);
  const Command back[] = {WaitCommand{.queue = there.get(), .value = 1}, SignalCommand{1}};
  ASSERT_TRUE(here->Submit(back).ok());
  EXPECT_EQ(here->completed(), 0u);
  const Command go[] = {SignalCommand{1}};
  ASSERT_TRUE(there->Submit(go).ok());
  EXPECT_TRUE(here->Synchronize(1).ok());
}

TEST_F(DeviceConformance, AFailedKernelFailsItsQueueAndNoOther) {
  for (const int64_t estimate : {0, 1000, 5'000'000}) {
    Waker waker;
    std::unique_ptr<Queue> queue = NewQueue(&waker), other = NewQueue();
    const Buffer failing = ToDevice(std::vector<int32_t>(50)),
                 after = ToDevice(std::vector<int32_t>(1));
    const BufferRef failing_buffers[] = {Ref(failing)}, after_buffers[] = {Ref(after)};
    const int64_t dims[] = {37, 123};
    const Command commands[] = {SignalCommand{1},
                                Launch("fail", failing_buffers, 50, dims, estimate),
                                Launch("count", after_buffers, 1, {}, estimate),
                                FillCommand{.target = Ref(after), .value = 9}, SignalCommand{2}};
    const uint32_t seen = waker.epoch();
    ASSERT_TRUE(queue->Submit(commands).ok());
    const absl::Status status = queue->Synchronize(2);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(std::string(status.message()).find("'fail'"), std::string::npos) << status;
    EXPECT_NE(std::string(status.message()).find("123"), std::string::npos) << status;
    EXPECT_EQ(queue->status(), status);
    EXPECT_NE(waker.epoch(), seen);
    EXPECT_EQ(FromDevice<int32_t>(after)[0], 0) << "what follows a failure must not run";
    const Command later[] = {Launch("count", after_buffers, 1), SignalCommand{3}};
    EXPECT_EQ(queue->Submit(later), status);
    Run(*other, later, 3);
    EXPECT_EQ(FromDevice<int32_t>(after)[0], 1);
  }
}

TEST_F(DeviceConformance, AFailureTravelsThroughAWaitForWhatFollowsIt) {
  std::unique_ptr<Queue> queue = NewQueue(), early = NewQueue(), late = NewQueue();
  const Buffer counters = ToDevice(std::vector<int32_t>(1)),
               after = ToDevice(std::vector<int32_t>(2));
  const Command early_list[] = {WaitCommand{.queue = queue.get(), .value = 1}, SignalCommand{1}};
  const BufferRef after_buffers[] = {Ref(after)};
  const Command late_list[] = {WaitCommand{.queue = queue.get(), .value = 2},
                               Launch("count", after_buffers, 2), SignalCommand{1}};
  ASSERT_TRUE(late->Submit(late_list).ok());
  const BufferRef buffers[] = {Ref(counters)};
  const int64_t dims[] = {0, 5};
  const Command commands[] = {SignalCommand{1}, Launch("fail", buffers, 1, dims), SignalCommand{2}};
  ASSERT_TRUE(queue->Submit(commands).ok());
  EXPECT_EQ(queue->Synchronize(2).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(late->Synchronize(1).code(), absl::StatusCode::kInternal);
  ASSERT_TRUE(early->Submit(early_list).ok());
  EXPECT_TRUE(early->Synchronize(1).ok());
  EXPECT_EQ(FromDevice<int32_t>(after), std::vector<int32_t>(2, 0));
}

TEST_F(DeviceConformance, ADestroyedQueueReleasesThoseThatWaitForIt) {
  std::unique_ptr<Queue> gone = NewQueue(), waiting = NewQueue();
  const Command commands[] = {WaitCommand{.queue = gone.get(), .value = 5}, SignalCommand{1}};
  ASSERT_TRUE(waiting->Submit(commands).ok());
  EXPECT_EQ(waiting->completed(), 0u);
  gone.reset();
  EXPECT_EQ(waiting->Synchronize(1).code(), absl::StatusCode::kCancelled);
}

TEST_F(DeviceConformance, ALongQueueDoesNotStarveAShortOne) {
  ASSERT_TRUE(device().info().host_memory);
  std::unique_ptr<Queue> slow = NewQueue(), quick = NewQueue();
  constexpr int64_t kTasks = 1 << 20;  // half a minute if nothing stops it
  std::vector<int32_t> spun(kTasks), stop(1), counters(64);
  const Buffer spun_buffer = Import(spun), stop_buffer = Import(stop),
               counters_buffer = Import(counters);
  const BufferRef spin_buffers[] = {Ref(spun_buffer), Ref(stop_buffer)};
  const int64_t rounds[] = {1000};
  const Command spins[] = {Launch("spin", spin_buffers, kTasks, rounds, kTasks * 30'000),
                           SignalCommand{1}};
  ASSERT_TRUE(slow->Submit(spins).ok());
  const BufferRef buffers[] = {Ref(counters_buffer)};
  for (uint64_t signal = 1; signal <= 20; ++signal) {
    const Command counts[] = {Launch("count", buffers, 64), SignalCommand{signal}};
    Run(*quick, counts, signal);
  }
  EXPECT_EQ(slow->completed(), 0u);
  std::atomic_ref(stop[0]).store(1);
  EXPECT_TRUE(slow->Synchronize(1).ok());
  EXPECT_EQ(spun, std::vector<int32_t>(kTasks, 1));
  EXPECT_EQ(counters, std::vector<int32_t>(64, 20));
}

TEST_F(DeviceConformance, DestroyingAQueueFinishesItsWork) {
  const Buffer counters = ToDevice(std::vector<int32_t>(1000));
  const BufferRef buffers[] = {Ref(counters)};
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    std::unique_ptr<Queue> queue = NewQueue();
    const std::vector<Command> commands(20, Command(Launch("count", buffers, 1000)));
    ASSERT_TRUE(queue->Submit(commands).ok());
    queue.reset();
  }
  EXPECT_EQ(FromDevice<int32_t>(counters), std::vector<int32_t>(1000, 20 * kRounds));
}

TEST_F(DeviceConformance, QueuesComeAndGoWithoutEnd) {
  const Buffer counters = ToDevice(std::vector<int32_t>(3));
  const BufferRef buffers[] = {Ref(counters)};
  for (int round = 0; round < 3000; ++round) {
    std::unique_ptr<Queue> queue = NewQueue();
    if (round % 3 != 0) continue;
    const Command commands[] = {Launch("count", buffers, 3), SignalCommand{1}};
    Run(*queue, commands, 1);
  }
  EXPECT_EQ(FromDevice<int32_t>(counters), std::vector<int32_t>(3, 1000));
}

TEST_F(DeviceConformance, ThreadsWithQueuesOfTheirOwnDoNotDisturbEachOther) {
  constexpr int kThreads = 4, kRounds = 200;
  constexpr int64_t kTasks = 37;
  std::vector<Buffer> counters;
  for (int i = 0; i < kThreads; ++i) counters.push_back(ToDevice(std::vector<int32_t>(kTasks)));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Waker waker;
      std::unique_ptr<Queue> queue = NewQueue(&waker);
      const BufferRef buffers[] = {Ref(counters[i])};
      for (int round = 0; round < kRounds; ++round) {
        const int64_t estimate = round % 3 == 0 ? 0 : round % 3 == 1 ? 1000 : 100'000;
        const uint64_t signal = static_cast<uint64_t>(round + 1);
        const Command commands[] = {Launch("count", buffers, kTasks, {}, estimate),
                                    Launch("count", buffers, kTasks, {}, estimate),
                                    SignalCommand{signal}};
        Run(*queue, commands, signal);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Buffer& buffer : counters) {
    EXPECT_EQ(FromDevice<int32_t>(buffer), std::vector<int32_t>(kTasks, 2 * kRounds));
  }
}

// A name that matches nothing would leave its test unlisted in silence.
TEST(ConformanceLists, NameTestsThatExist) {
  std::vector<ConformanceException> all = ConformanceBackendUnderTest().unsupported;
  for (const auto& failure : ConformanceBackendUnderTest().expected_failures) {
    all.push_back(failure);
  }
  const testing::UnitTest& unit = *testing::UnitTest::GetInstance();
  for (const ConformanceException& exception : all) {
    bool found = false;
    for (int i = 0; i < unit.total_test_suite_count(); ++i) {
      const testing::TestSuite& suite = *unit.GetTestSuite(i);
      for (int j = 0; j < suite.total_test_count(); ++j) {
        found |= suite.GetTestInfo(j)->name() == exception.test;
      }
    }
    EXPECT_TRUE(found) << exception.test;
    EXPECT_FALSE(exception.reason.empty()) << exception.test;
  }
}

}  // namespace
}  // namespace stampmill
