// Scheduling sequences neither allocates nor frees, from the first step on: all room is made when
// scheduler, pool and sequences are. Prompts with common prefixes, a pool too small for all.
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/check.h"
#include "gtest/gtest.h"
#include "runtime/sequence_scheduler.h"
#include "runtime/testing/allocation_counter.h"

namespace stampmill {
namespace {

TEST(SequenceSteadyStateTest, SchedulingNeitherAllocatesNorFrees) {
  BlockPool pool(100);
  SequenceScheduler scheduler({.sequences_max = 16,
                               .waiting_max = 64,
                               .levels = 2,
                               .step_tokens_max = 128,
                               .sequence_tokens_max = 400,
                               .steps_in_flight_max = 2},
                              &pool);
  std::mt19937 random(1);
  std::vector<Sequence> sequences(64);
  std::vector<int32_t> prompt(200);
  int64_t ended = 0;
  const auto enqueue = [&](Sequence& s) {
    const size_t size = 1 + random() % prompt.size();
    const auto tokens_max = static_cast<int32_t>(size + random() % 200);
    s.Begin(std::span(prompt).first(size), tokens_max, 4, RootHash(random() % 2, ""));
    s.level = static_cast<int32_t>(random() % 2);
    s.client = random();
    const AllocationCounting counting;
    CHECK_OK(scheduler.Enqueue(&s));
  };
  for (Sequence& s : sequences) enqueue(s);
  for (int step = 0; step < 20000; ++step) {
    for (Sequence& s : sequences) {
      if (s.state != SequenceState::kRunning || s.pending > 0 || random() % 8 != 0) continue;
      s.drafts.assign(random() % 4, 1);
    }
    bool expired = false;
    {
      const AllocationCounting counting;
      expired = scheduler.TakeExpired(step) != nullptr;
      scheduler.FormBatch(128);
      if (scheduler.steps_in_flight() > 1) scheduler.StepDone();
      if (random() % 64 == 0) scheduler.StepsFailed();
      for (Sequence& s : sequences) {
        if (s.computed >= s.prompt_size && s.size() >= s.tokens_max) scheduler.Remove(&s);
      }
    }
    EXPECT_FALSE(expired);
    for (Sequence& s : sequences) {
      if (s.state != SequenceState::kOutside) continue;
      enqueue(s);
      ++ended;
    }
  }
  EXPECT_EQ(AllocationCalls(), 0);
  EXPECT_GT(ended, 1000);
  EXPECT_GT(scheduler.counters().preemptions, 100u);
  EXPECT_GT(scheduler.counters().prefix_hit_tokens, 10000u);
  {
    const AllocationCounting counting;
    prompt.reserve(1000);
  }
  EXPECT_GT(AllocationCalls(), 0);  // the counter works
}

}  // namespace
}  // namespace stampmill
