#include "runtime/sequence_scheduler.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

// A scheduler over a pool, and steps that sample the number of the step.
class SequenceSchedulerTest : public testing::Test {
 protected:
  struct Setup {
    int32_t blocks = 100;
    int32_t sequences_max = 8;
    int32_t step_tokens_max = 256;
    int32_t waiting_max = 100;
    int32_t levels = 1;
    int32_t steps_in_flight_max = 1;
  };
  // An entry as a test sees it: whose, from where, how many.
  struct Part {
    const Sequence* sequence;
    int32_t first, count;
    friend bool operator==(const Part&, const Part&) = default;
  };
  using Parts = std::vector<Part>;

  void SetUpScheduler(const Setup& setup) {
    pool_.emplace(setup.blocks);
    scheduler_.emplace(SequenceSchedulerOptions{.sequences_max = setup.sequences_max,
                                                .waiting_max = setup.waiting_max,
                                                .levels = setup.levels,
                                                .step_tokens_max = setup.step_tokens_max,
                                                .sequence_tokens_max = 1000,
                                                .steps_in_flight_max = setup.steps_in_flight_max},
                       &*pool_);
  }
  // A prompt of so many tokens from `first_token` on.
  Sequence* Make(int32_t prompt, int32_t answer, int32_t first_token = 0) {
    std::vector<int32_t> tokens(static_cast<size_t>(prompt));
    std::iota(tokens.begin(), tokens.end(), first_token);
    sequences_.push_back(std::make_unique<Sequence>());
    sequences_.back()->Begin(tokens, prompt + answer, 4, RootHash(7, ""));
    return sequences_.back().get();
  }
  // Prompts of different numbers share nothing.
  Sequence* MakeUnlike(int32_t prompt, int32_t answer) {
    return Make(prompt, answer, 1000 * static_cast<int32_t>(1 + sequences_.size()));
  }
  Sequence* Enqueue(Sequence* sequence) {
    EXPECT_TRUE(scheduler_->Enqueue(sequence).ok());
    scheduler_->CheckInvariants();
    return sequence;
  }
  Parts Form(int64_t budget = 1 << 20) {
    batch_ = scheduler_->FormBatch(budget);
    scheduler_->CheckInvariants();
    if (batch_ == nullptr) return {};
    return PartsOf(*batch_);
  }
  static Parts PartsOf(const SequenceBatch& batch) {
    Parts parts;
    for (const StepEntry& e : batch.entries) parts.push_back({e.sequence, e.first, e.count});
    return parts;
  }
  void Done() {
    ++steps_;
    for (StepEntry& entry : batch_->entries) entry.token = steps_;
    scheduler_->StepDone();
    scheduler_->CheckInvariants();
  }
  Parts Step(int64_t budget = 1 << 20) {
    Parts parts = Form(budget);
    if (batch_ != nullptr) Done();
    return parts;
  }
  void Remove(Sequence* sequence) {
    scheduler_->Remove(sequence);
    scheduler_->CheckInvariants();
  }

  std::optional<BlockPool> pool_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::optional<SequenceScheduler> scheduler_;
  SequenceBatch* batch_ = nullptr;
  int32_t steps_ = 0;
};

TEST_F(SequenceSchedulerTest, ComputesAPromptAndThenOneTokenAStep) {
  SetUpScheduler({});
  Sequence* const a = Enqueue(Make(20, 3));
  EXPECT_EQ(Form(), Parts({{a, 0, 20}}));
  EXPECT_TRUE(batch_->entries[0].samples);
  EXPECT_EQ(batch_->entries[0].outputs, 1);
  EXPECT_EQ(batch_->outputs, std::vector<int32_t>({19}));
  Done();
  EXPECT_EQ(a->tokens[20], 1);
  EXPECT_EQ(Form(), Parts({{a, 20, 1}}));
  EXPECT_EQ(batch_->tokens, std::vector<int32_t>({1}));
  EXPECT_EQ(batch_->positions, std::vector<int32_t>({20}));
  Done();
  EXPECT_EQ(Step(), Parts({{a, 21, 1}}));
  EXPECT_EQ(a->size(), a->tokens_max);
  EXPECT_EQ(Step(), Parts());  // it can only be removed
  Remove(a);
  EXPECT_TRUE(scheduler_->empty());
  EXPECT_EQ(pool_->referenced(), 0);
}

TEST_F(SequenceSchedulerTest, LaysOutTheTokensOfAllSequencesOneAfterTheOther) {
  SetUpScheduler({});
  Sequence* const a = Enqueue(MakeUnlike(3, 5));
  Sequence* const b = Enqueue(MakeUnlike(2, 5));
  Form();
  EXPECT_EQ(batch_->tokens, std::vector<int32_t>({1000, 1001, 1002, 2000, 2001}));
  EXPECT_EQ(batch_->positions, std::vector<int32_t>({0, 1, 2, 0, 1}));
  EXPECT_EQ(batch_->sequences, std::vector<int32_t>({a->row, a->row, a->row, b->row, b->row}));
  EXPECT_EQ(batch_->outputs, std::vector<int32_t>({2, 4}));
  EXPECT_EQ(batch_->entries[1].outputs_begin, 1);
  for (const Sequence* s : {a, b}) {
    EXPECT_EQ(batch_->tables[static_cast<size_t>(s->row * batch_->blocks_per_row)],
              scheduler_->BlocksOf(*s)[0]);
  }
}

TEST_F(SequenceSchedulerTest, ALongPromptIsComputedInWholeBlocksBesidesTheTokensOfOthers) {
  SetUpScheduler({.step_tokens_max = 40});
  Sequence* const a = Enqueue(MakeUnlike(4, 50));
  Step();
  Sequence* const b = Enqueue(MakeUnlike(102, 5));
  EXPECT_EQ(Form(), Parts({{a, 4, 1}, {b, 0, 32}}));
  EXPECT_FALSE(batch_->entries[1].samples);
  EXPECT_EQ(batch_->outputs, std::vector<int32_t>({0}));
  Done();
  EXPECT_EQ(b->size(), 102);
  EXPECT_EQ(Step(), Parts({{a, 5, 1}, {b, 32, 32}}));
  EXPECT_EQ(Step(), Parts({{a, 6, 1}, {b, 64, 38}}));
  EXPECT_EQ(Step(), Parts({{a, 7, 1}, {b, 102, 1}}));
}

TEST_F(SequenceSchedulerTest, ASmallBudgetStopsNeitherTheRunningNorAPrompt) {
  SetUpScheduler({});
  Sequence* const a = Enqueue(MakeUnlike(4, 50));
  Sequence* const b = Enqueue(MakeUnlike(4, 50));
  Step();
  Sequence* const c = Enqueue(MakeUnlike(40, 50));
  EXPECT_EQ(Step(1), Parts({{a, 4, 1}, {b, 4, 1}, {c, 0, 16}}));
  EXPECT_EQ(Step(1), Parts({{a, 5, 1}, {b, 5, 1}, {c, 16, 16}}));
}

TEST_F(SequenceSchedulerTest, RunsNoMoreThanItsLimitAndTheOthersByArrival) {
  SetUpScheduler({.sequences_max = 2});
  Sequence* const a = Enqueue(MakeUnlike(4, 5));
  Sequence* const b = Enqueue(MakeUnlike(4, 5));
  Sequence* const c = Enqueue(MakeUnlike(4, 5));
  EXPECT_EQ(Step(), Parts({{a, 0, 4}, {b, 0, 4}}));
  EXPECT_EQ(scheduler_->running(), 2);
  EXPECT_EQ(scheduler_->waiting(), 1);
  Remove(a);
  EXPECT_EQ(Step(), Parts({{b, 4, 1}, {c, 0, 4}}));
}

TEST_F(SequenceSchedulerTest, HigherLevelsComeFirstAndPushOutLowerOnes) {
  SetUpScheduler({.sequences_max = 2, .levels = 3});
  const auto add = [&](int32_t level) {
    Sequence* const s = MakeUnlike(20, 50);
    s->level = level;
    return Enqueue(s);
  };
  Sequence* const low = add(2);
  Sequence* const middle = add(1);
  EXPECT_EQ(Step(), Parts({{middle, 0, 20}, {low, 0, 20}}));
  Sequence* const high = add(0);
  EXPECT_EQ(Step(), Parts({{middle, 20, 1}, {high, 0, 20}}));
  EXPECT_EQ(low->state, SequenceState::kPreempted);
  EXPECT_EQ(scheduler_->counters().preemptions, 1u);
  add(2);
  Remove(middle);
  // Who ran before comes first in its level, and finds its first block again.
  EXPECT_EQ(Step(), Parts({{high, 20, 1}, {low, 16, 5}}));
}

TEST_F(SequenceSchedulerTest, ClientsTakeTurnsWithinALevel) {
  SetUpScheduler({.sequences_max = 1});
  std::vector<Sequence*> many, order;
  const auto add = [&](uint64_t client) {
    Sequence* const s = MakeUnlike(4, 1);
    s->client = client;
    return Enqueue(s);
  };
  for (int i = 0; i < 5; ++i) many.push_back(add(1));
  Sequence* const other = add(2);
  Sequence* const third = add(3);
  Sequence* const other_too = add(2);
  while (!scheduler_->empty()) {
    const Parts parts = Step();
    ASSERT_EQ(parts.size(), 1u);
    order.push_back(const_cast<Sequence*>(parts[0].sequence));
    Remove(order.back());
  }
  EXPECT_EQ(order, std::vector<Sequence*>(
                       {many[0], other, third, many[1], other_too, many[2], many[3], many[4]}));
}

TEST_F(SequenceSchedulerTest, WhoIsNextAndDoesNotFitIsNotPassed) {
  SetUpScheduler({.blocks = 6});
  Sequence* const a = Enqueue(MakeUnlike(20, 10));
  Step();
  Sequence* const large = Enqueue(MakeUnlike(90, 5));
  Sequence* const small = MakeUnlike(4, 5);
  small->client = 1;
  Enqueue(small);
  EXPECT_EQ(Step(), Parts({{a, 20, 1}}));
  Remove(a);
  EXPECT_EQ(Step(), Parts({{large, 0, 90}}));
  EXPECT_EQ(small->state, SequenceState::kWaiting);
}

TEST_F(SequenceSchedulerTest, ASharedPrefixIsComputedOnceAndItsBlocksAreShared) {
  SetUpScheduler({});
  Sequence* const a = Enqueue(Make(40, 10));
  Step();
  Sequence* const b = Enqueue(Make(40, 10));
  EXPECT_EQ(Step(), Parts({{a, 40, 1}, {b, 32, 8}}));
  EXPECT_EQ(b->cached_at_start, 32);
  EXPECT_EQ(scheduler_->BlocksOf(*a)[1], scheduler_->BlocksOf(*b)[1]);
  EXPECT_NE(scheduler_->BlocksOf(*a)[2], scheduler_->BlocksOf(*b)[2]);
  EXPECT_EQ(scheduler_->counters().prefix_query_tokens, 80u);
  EXPECT_EQ(scheduler_->counters().prefix_hit_tokens, 32u);
  Remove(a);
  Remove(b);
  // Nobody has it any more, but it is found.
  EXPECT_EQ(pool_->referenced(), 0);
  Sequence* const c = Enqueue(Make(33, 10));
  EXPECT_EQ(Step(), Parts({{c, 32, 1}}));
}

TEST_F(SequenceSchedulerTest, TheLastTokenOfAPromptIsAlwaysComputed) {
  SetUpScheduler({});
  Enqueue(Make(32, 10));
  Step();
  Sequence* const b = Enqueue(Make(32, 10));
  Form();
  EXPECT_EQ(PartsOf(*batch_)[1], (Part{b, 16, 16}));
  EXPECT_EQ(batch_->entries[1].outputs, 1);
}

TEST_F(SequenceSchedulerTest, SequencesOfDifferentRootsShareNothing) {
  SetUpScheduler({});
  Enqueue(Make(40, 10));
  Step();
  Sequence* const b = Make(40, 10);
  b->Begin(std::vector<int32_t>(b->tokens), 50, 0, RootHash(7, "other"));
  Enqueue(b);
  EXPECT_EQ(Step()[1], (Part{b, 0, 40}));
}

TEST_F(SequenceSchedulerTest, WhoNeedsWhatAnotherIsMakingWaitsForIt) {
  SetUpScheduler({.step_tokens_max = 64});
  Sequence* const a = Enqueue(Make(100, 10));
  Sequence* const b = Enqueue(Make(100, 10));
  Sequence* const c = MakeUnlike(20, 10);
  c->client = 1;
  Enqueue(c);
  EXPECT_EQ(Step(), Parts({{a, 0, 64}}));
  EXPECT_EQ(Step(), Parts({{a, 64, 36}, {c, 0, 20}}));  // b waits, but stops nobody else
  EXPECT_EQ(Step(), Parts({{a, 100, 1}, {c, 20, 1}, {b, 96, 4}}));
}

TEST_F(SequenceSchedulerTest, NobodyWaitsForLongForOneThatDoesNotGoOn) {
  SetUpScheduler({.step_tokens_max = 64});
  Sequence* const a = Enqueue(Make(100, 10));
  Step();
  Sequence* const b = Enqueue(Make(100, 10));
  Form();
  scheduler_->StepsFailed();
  a->paused = true;
  // What a announced stays announced; b takes what is there and goes on by itself.
  int steps = 0;
  while (b->size() == 100 && ++steps < 10) Step();
  EXPECT_LT(steps, 10);
}

TEST_F(SequenceSchedulerTest, WithoutBlocksTheYoungestGivesItsBackAndFindsThemAgain) {
  SetUpScheduler({.blocks = 5});
  Sequence* const a = Enqueue(MakeUnlike(30, 40));
  Sequence* const b = Enqueue(MakeUnlike(36, 20));
  EXPECT_EQ(Step(), Parts({{a, 0, 30}, {b, 0, 36}}));  // two and three blocks
  EXPECT_EQ(Step().size(), 2u);
  EXPECT_EQ(Step().size(), 2u);
  // a needs a third one. What b computed in the step before stays valid.
  EXPECT_EQ(b->size(), 39);
  EXPECT_EQ(Step(), Parts({{a, 32, 1}}));
  EXPECT_EQ(b->state, SequenceState::kPreempted);
  EXPECT_EQ(b->preemptions, 1);
  EXPECT_EQ(b->size(), 39);
  EXPECT_EQ(scheduler_->waiting(), 1);
  Remove(a);
  EXPECT_EQ(Step(), Parts({{b, 32, 7}}));
}

TEST_F(SequenceSchedulerTest, TheYoungestItselfKeepsItsBlocksAndWaits) {
  SetUpScheduler({.blocks = 4});
  Sequence* const a = Enqueue(MakeUnlike(17, 15));
  Sequence* const b = Enqueue(MakeUnlike(32, 10));
  Step();
  EXPECT_EQ(Step(), Parts({{a, 17, 1}}));  // b's next token needs a third block
  EXPECT_EQ(b->computed, 32);
  EXPECT_EQ(scheduler_->counters().preemptions, 0u);
  Remove(a);
  EXPECT_EQ(Step(), Parts({{b, 32, 1}}));
}

TEST_F(SequenceSchedulerTest, OneThatIsPausedGivesItsBlocksFirst) {
  SetUpScheduler({.blocks = 4});
  Sequence* const a = Enqueue(MakeUnlike(17, 15));
  Sequence* const b = Enqueue(MakeUnlike(32, 10));
  Step();
  a->paused = true;
  EXPECT_EQ(Step(), Parts({{b, 32, 1}}));
  EXPECT_EQ(a->state, SequenceState::kPreempted);
  EXPECT_EQ(Step(), Parts({{b, 33, 1}}));
  a->paused = false;
  Remove(b);
  EXPECT_EQ(Step(), Parts({{a, 16, 2}}));
}

TEST_F(SequenceSchedulerTest, APreemptedSequenceLosesItsPlaceInTheStep) {
  SetUpScheduler({.blocks = 4});
  Sequence* const a = Enqueue(MakeUnlike(40, 10));
  EXPECT_EQ(Step(1), Parts({{a, 0, 16}}));
  a->paused = true;
  Sequence* const b = Enqueue(MakeUnlike(4, 40));
  while (b->size() < 40) EXPECT_EQ(Step().size(), 1u);
  EXPECT_EQ(scheduler_->BlocksOf(*b).size(), 3u);
  // b has its one token already when a takes blocks for its many.
  a->paused = false;
  EXPECT_EQ(Step(), Parts({{a, 16, 24}}));
  EXPECT_EQ(b->state, SequenceState::kPreempted);
  EXPECT_EQ(b->size(), 40);
}

TEST_F(SequenceSchedulerTest, WhatCanNeverFitIsRefused) {
  SetUpScheduler({.blocks = 3, .waiting_max = 2});
  const absl::Status blocks = scheduler_->Enqueue(Make(40, 10));
  EXPECT_TRUE(absl::IsInvalidArgument(blocks));
  EXPECT_EQ(blocks.message(),
            "tokens of a sequence: got 50, which need 4 blocks of the cache of keys and values, "
            "limit 3");
  EXPECT_EQ(scheduler_->Enqueue(Make(40, 961)).message(),
            "tokens of a sequence: got 1001, limit 1000");
  Enqueue(Make(40, 9));  // the last token is never computed
  Enqueue(Make(40, 9));
  EXPECT_TRUE(absl::IsResourceExhausted(scheduler_->Enqueue(Make(1, 1))));
}

TEST_F(SequenceSchedulerTest, APromptAloneIsComputedButNothingSampled) {
  SetUpScheduler({});
  Sequence* const a = Make(20, 0);
  a->logits_begin = 5;
  Enqueue(a);
  EXPECT_EQ(Form(), Parts({{a, 0, 20}}));
  EXPECT_FALSE(batch_->entries[0].samples);
  EXPECT_EQ(batch_->outputs.size(), 15u);
  Done();
  EXPECT_EQ(a->size(), 20);
  EXPECT_EQ(a->computed, 20);
  EXPECT_EQ(Step(), Parts());
}

TEST_F(SequenceSchedulerTest, LogitsThatAreWantedAreComputedWhateverIsCached) {
  SetUpScheduler({.step_tokens_max = 40});
  Enqueue(Make(60, 4));
  Step();
  Step();
  Remove(sequences_[0].get());
  Sequence* const b = Make(60, 4);
  b->logits_begin = 20;
  Enqueue(b);
  EXPECT_EQ(Form(), Parts({{b, 16, 32}}));
  EXPECT_EQ(batch_->entries[0].outputs, 28);
  EXPECT_EQ(batch_->outputs.front(), 4);
  Done();
  EXPECT_EQ(Form(), Parts({{b, 48, 12}}));
  EXPECT_EQ(batch_->entries[0].outputs, 12);
}

TEST_F(SequenceSchedulerTest, AcceptedDraftsAreTokensAndRejectedOnesAreComputedAnew) {
  SetUpScheduler({});
  Sequence* const a = Enqueue(Make(15, 10));
  Step();
  a->drafts = {50, 51, 52};
  EXPECT_EQ(Form(), Parts({{a, 15, 4}}));
  EXPECT_EQ(batch_->tokens, std::vector<int32_t>({1, 50, 51, 52}));
  EXPECT_EQ(batch_->outputs.size(), 4u);
  EXPECT_EQ(batch_->entries[0].drafts, 3);
  batch_->entries[0].accepted = 1;
  batch_->entries[0].token = 99;
  scheduler_->StepDone();
  scheduler_->CheckInvariants();
  EXPECT_EQ(a->size(), 18);
  EXPECT_EQ(a->tokens[16], 50);
  EXPECT_EQ(a->tokens[17], 99);
  EXPECT_TRUE(a->drafts.empty());
  EXPECT_EQ(Step(), Parts({{a, 17, 1}}));
}

TEST_F(SequenceSchedulerTest, DraftsTakeNobodysBlocksAndGoNoFurtherThanTheEnd) {
  SetUpScheduler({.blocks = 3});
  Sequence* const a = Enqueue(MakeUnlike(14, 20));
  Sequence* const b = Enqueue(MakeUnlike(20, 3));
  Step();
  a->drafts = b->drafts = {7, 7, 7, 7};
  // a's first block has room for two tokens; b ends with its third sampled token.
  EXPECT_EQ(Step(), Parts({{a, 14, 2}, {b, 20, 2}}));
  EXPECT_EQ(scheduler_->counters().preemptions, 0u);
}

TEST_F(SequenceSchedulerTest, APausedSequenceDoesNotGoOn) {
  SetUpScheduler({});
  Sequence* const a = Enqueue(MakeUnlike(4, 5));
  Sequence* const b = Enqueue(MakeUnlike(4, 5));
  Step();
  a->paused = true;
  EXPECT_EQ(Step(), Parts({{b, 4, 1}}));
  a->paused = false;
  EXPECT_EQ(Step(), Parts({{a, 4, 1}, {b, 5, 1}}));
}

TEST_F(SequenceSchedulerTest, ARemovedSequencesBlocksRestUntilItsStepHasEnded) {
  SetUpScheduler({.blocks = 4});
  Sequence* const a = Enqueue(MakeUnlike(20, 5));
  Sequence* const b = Enqueue(MakeUnlike(20, 5));
  Form();
  Remove(a);
  EXPECT_EQ(batch_->entries[0].sequence, nullptr);
  EXPECT_EQ(a->state, SequenceState::kOutside);
  EXPECT_EQ(pool_->available(), 0);
  Done();
  EXPECT_EQ(pool_->available(), 2);
  EXPECT_EQ(b->size(), 21);
}

TEST_F(SequenceSchedulerTest, AFailedStepLeavesSequencesAsTheyWere) {
  SetUpScheduler({});
  Sequence* const a = Enqueue(MakeUnlike(20, 5));
  Step();
  Form();
  scheduler_->StepsFailed();
  scheduler_->CheckInvariants();
  EXPECT_EQ(a->size(), 21);
  EXPECT_EQ(Step(), Parts({{a, 20, 1}}));
}

TEST_F(SequenceSchedulerTest, ASecondStepComputesTokensThatTheFirstOneSamples) {
  SetUpScheduler({.steps_in_flight_max = 2});
  Sequence* const a = Enqueue(MakeUnlike(3, 4));
  Sequence* const b = Enqueue(MakeUnlike(2, 4));
  b->waits_for_host = true;
  Form();
  SequenceBatch* const first = batch_;
  EXPECT_EQ(Form(), Parts({{a, 3, 1}}));
  EXPECT_EQ(batch_->tokens, std::vector<int32_t>({-1}));  // row 0 of the first
  SequenceBatch* const second = batch_;
  EXPECT_EQ(Form(), Parts());  // enough is in flight
  first->entries[0].token = 70;
  first->entries[1].token = 71;
  scheduler_->StepDone();
  scheduler_->CheckInvariants();
  EXPECT_EQ(a->size(), 4);
  EXPECT_EQ(Form(), Parts({{a, 4, 1}, {b, 2, 1}}));
  EXPECT_EQ(batch_->tokens, std::vector<int32_t>({-1, 71}));
  second->entries[0].token = 72;
  scheduler_->StepDone();
  // a's last token is not computed.
  EXPECT_EQ(a->size(), 5);
  EXPECT_EQ(Form(), Parts({{a, 5, 1}}));
  EXPECT_EQ(a->size() + a->pending, a->tokens_max);
}

TEST_F(SequenceSchedulerTest, OneInFlightGivesItsBlocksOnceItsStepHasEnded) {
  SetUpScheduler({.blocks = 2, .steps_in_flight_max = 2});
  Sequence* const a = Enqueue(MakeUnlike(15, 10));
  Sequence* const b = Enqueue(MakeUnlike(4, 10));
  EXPECT_EQ(Form(), Parts({{a, 0, 15}, {b, 0, 4}}));
  EXPECT_EQ(Form(), Parts({{a, 15, 1}, {b, 4, 1}}));
  scheduler_->StepDone();
  EXPECT_EQ(Form(), Parts());  // a needs a block, and b may not go on
  scheduler_->StepDone();
  EXPECT_EQ(b->size(), 6);
  EXPECT_EQ(Form(), Parts({{a, 16, 1}}));
  EXPECT_EQ(b->state, SequenceState::kPreempted);
}

TEST_F(SequenceSchedulerTest, WhoWaitsOrRunsTooLongIsTakenOut) {
  SetUpScheduler({.sequences_max = 1});
  EXPECT_EQ(scheduler_->NextDeadline(), kNoDeadline);
  Sequence* const a = Make(4, 50);
  a->deadline_nanos = 300;
  a->queue_deadline_nanos = 100;
  Enqueue(a);
  EXPECT_EQ(scheduler_->NextDeadline(), 100);
  Step();
  Sequence* const b = MakeUnlike(4, 5);
  b->queue_deadline_nanos = 200;
  Enqueue(b);
  EXPECT_EQ(scheduler_->TakeExpired(199), nullptr);  // a has run: the queue's does not count
  EXPECT_EQ(scheduler_->NextDeadline(), 200);
  EXPECT_EQ(scheduler_->TakeExpired(200), b);
  EXPECT_EQ(scheduler_->TakeExpired(200), nullptr);
  EXPECT_EQ(scheduler_->NextDeadline(), 300);
  Form();
  EXPECT_EQ(scheduler_->TakeExpired(300), a);
  EXPECT_EQ(batch_->entries[0].sequence, nullptr);
  Done();
  EXPECT_TRUE(scheduler_->empty());
  EXPECT_EQ(scheduler_->TakeAny(), nullptr);
}

TEST_F(SequenceSchedulerTest, SequencesCanBeTakenOutInAnyState) {
  SetUpScheduler({.blocks = 4, .sequences_max = 3});
  Enqueue(MakeUnlike(31, 10));
  Enqueue(MakeUnlike(30, 10));
  for (int i = 0; i < 4; ++i) Step();
  EXPECT_EQ(sequences_[1]->state, SequenceState::kPreempted);
  Enqueue(MakeUnlike(30, 10));
  int taken = 0;
  while (Sequence* const s = scheduler_->TakeAny()) {
    EXPECT_EQ(s->state, SequenceState::kOutside);
    scheduler_->CheckInvariants();
    ++taken;
  }
  EXPECT_EQ(taken, 3);
  EXPECT_EQ(pool_->referenced(), 0);
}

}  // namespace
}  // namespace stampmill
