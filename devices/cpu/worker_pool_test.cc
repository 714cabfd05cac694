// The worker pool under load: every task once, whatever the counts of workers, chunks and streams,
// asleep or awake.
#include "devices/cpu/worker_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace stampmill {
namespace {

// dims: the number of the job; buffers: one counter a task.
int32_t CountTasks(const KernelArgs* args, int64_t begin, int64_t end) {
  auto* counters = static_cast<std::atomic<int32_t>*>(args->buffers[0]);
  for (int64_t task = begin; task < end; ++task) {
    counters[task].fetch_add(1, std::memory_order_relaxed);
  }
  return 0;
}

int32_t FailAtTask7(const KernelArgs*, int64_t begin, int64_t end) {
  return begin <= 7 && 7 < end ? 42 : 0;
}

// A stream that runs `jobs` jobs one after the other and then wakes whoever waits.
class Chain {
 public:
  Chain(WorkerPool& pool, int64_t tasks, int64_t chunks, int64_t jobs)
      : pool_(pool), counters_(tasks), chunks_(chunks), jobs_(jobs) {
    buffers_[0] = counters_.data();
    absl::StatusOr<WorkerPool::Stream*> stream = pool.OpenStream(
        [](void* chain, WorkerPool::Turn& turn) { static_cast<Chain*>(chain)->Continue(turn); },
        this);
    EXPECT_TRUE(stream.ok()) << stream.status();
    stream_ = *stream;
  }
  ~Chain() { pool_.CloseStream(stream_); }

  void Start() { pool_.Publish(stream_, PoolJob(), nullptr); }

  // Until the chain has ended; then it can start again. Returns the last job's result.
  int64_t Wait() {
    for (;;) {
      const uint32_t seen = pool_.closing_waker().epoch();
      if (ended_.exchange(false)) return result_;
      pool_.closing_waker().WaitUntil(seen, kNoDeadline);
    }
  }

  void ExpectEachTaskRan(int32_t times) {
    for (const auto& counter : counters_) ASSERT_EQ(counter.load(), times);
  }

  CpuKernel function = CountTasks;

 private:
  void Continue(WorkerPool::Turn& turn) {
    if (run_ < jobs_) {
      ++run_;
      pool_.Publish(stream_,
                    {.function = function,
                     .buffers = buffers_,
                     .tasks = static_cast<int64_t>(counters_.size()),
                     .chunks = chunks_},
                    &turn);
      return;
    }
    run_ = 0;
    result_ = pool_.Result(stream_);
    pool_.Idle(stream_);
    // With this the waiting thread may destroy the chain.
    WorkerPool& pool = pool_;
    ended_.store(true);
    pool.closing_waker().Wake();
  }

  WorkerPool& pool_;
  WorkerPool::Stream* stream_ = nullptr;
  std::vector<std::atomic<int32_t>> counters_;
  void* buffers_[1];
  const int64_t chunks_, jobs_;
  int64_t run_ = 0;
  int64_t result_ = 0;
  std::atomic<bool> ended_{false};
};

std::unique_ptr<WorkerPool> NewPool(int32_t threads) {
  absl::StatusOr<std::unique_ptr<WorkerPool>> pool = WorkerPool::Create(threads);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

TEST(WorkerPoolTest, EachTaskOfEachJobRunsOnceForAnyCounts) {
  for (const int32_t threads : {1, 2, 3, 8}) {
    const std::unique_ptr<WorkerPool> pool = NewPool(threads);
    for (const int64_t tasks : {1, 2, 5, 64, 1001}) {
      for (const int64_t chunks : {int64_t{1}, int64_t{2}, (tasks + 1) / 2, tasks}) {
        if (chunks > tasks) continue;
        Chain chain(*pool, tasks, chunks, 20);
        chain.Start();
        EXPECT_EQ(chain.Wait(), 0);
        chain.ExpectEachTaskRan(20);
      }
    }
  }
}

TEST(WorkerPoolTest, LongChainsOfTinyJobsLoseNothing) {
  const std::unique_ptr<WorkerPool> pool = NewPool(4);
  Chain chain(*pool, 13, 13, 20'000);
  chain.Start();
  EXPECT_EQ(chain.Wait(), 0);
  chain.ExpectEachTaskRan(20'000);
}

TEST(WorkerPoolTest, WorkComesThroughToWorkersThatSleep) {
  const std::unique_ptr<WorkerPool> pool = NewPool(2);
  Chain chain(*pool, 4, 4, 1);
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    // Rounds end at every stage of a worker's way to sleep.
    for (int i = 0; i < round * 20; ++i) __builtin_ia32_pause();
    chain.Start();
    EXPECT_EQ(chain.Wait(), 0);
  }
  chain.ExpectEachTaskRan(kRounds);
}

TEST(WorkerPoolTest, ManyStreamsFromManyThreadsAllComeToTheirEnd) {
  const std::unique_ptr<WorkerPool> pool = NewPool(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&pool, i] {
      for (int round = 0; round < 10; ++round) {
        Chain chain(*pool, 10 + i, 5, 100);
        for (int start = 0; start < 5; ++start) {
          chain.Start();
          EXPECT_EQ(chain.Wait(), 0);
        }
        chain.ExpectEachTaskRan(500);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(WorkerPoolTest, MoreStreamsThanAWordHasBitsAreAllServed) {
  const std::unique_ptr<WorkerPool> pool = NewPool(2);
  std::vector<std::unique_ptr<Chain>> chains;
  for (int i = 0; i < 150; ++i) chains.push_back(std::make_unique<Chain>(*pool, 3, 3, 10));
  for (const auto& chain : chains) chain->Start();
  for (const auto& chain : chains) EXPECT_EQ(chain->Wait(), 0);
  for (const auto& chain : chains) chain->ExpectEachTaskRan(10);
}

TEST(WorkerPoolTest, TheFirstNonzeroCodeIsTheResult) {
  const std::unique_ptr<WorkerPool> pool = NewPool(2);
  Chain chain(*pool, 20, 10, 1);
  chain.function = FailAtTask7;
  chain.Start();
  EXPECT_EQ(chain.Wait(), 42);
  chain.function = CountTasks;
  chain.Start();
  EXPECT_EQ(chain.Wait(), 0);
}

TEST(ScratchTest, GrowsAndIsAligned) {
  Scratch scratch;
  EXPECT_EQ(scratch.Get(0), nullptr);
  void* const small = scratch.Get(10);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % 64, 0u);
  EXPECT_EQ(scratch.Get(64), small);
  void* const large = scratch.Get(1 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % 64, 0u);
  EXPECT_EQ(scratch.Get(10), large);
  EXPECT_EQ(scratch.Get(0), nullptr);
}

}  // namespace
}  // namespace stampmill
