// The engine of language models with its own thread, and what it owes to those who wait.
#include "runtime/language_engine.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "runtime/generation_statistics.h"
#include "runtime/testing/language_fixture.h"

namespace stampmill {
namespace {

// What a test keeps of a text, by its context.
struct Kept {
  ToyText text;
  size_t prompt_size = 0;
  std::vector<int32_t> got;
  std::optional<absl::Status> status;
};

// Takes all news that there are; how many texts are over.
int TakeNews(LanguageFixture& fixture) {
  int over = 0;
  for (;;) {
    LanguageEngine::News news = fixture.engine->PopNews();
    if (news.generation == nullptr) return over;
    Kept& kept = *static_cast<Kept*>(news.generation->context);
    while (const std::optional<Generation::News> token = news.generation->Take()) {
      kept.got.push_back(token->token.token);
    }
    if (news.over == nullptr) {
      fixture.engine->CaughtUp(*news.generation);
      continue;
    }
    EXPECT_FALSE(kept.status.has_value());
    kept.status = news.over->status;
    ++over;
  }
}

void ExpectWhole(const Kept& kept) {
  ASSERT_TRUE(kept.status.has_value());
  EXPECT_TRUE(kept.status->ok()) << *kept.status;
  EXPECT_EQ(kept.got,
            std::vector<int32_t>(kept.text.tokens.begin() + static_cast<int64_t>(kept.prompt_size),
                                 kept.text.tokens.end()));
}

GenerationHandle Make(LanguageFixture& fixture, Kept& kept, std::vector<int32_t> prompt,
                      int32_t tokens_max, const SamplingParameters& sampling = {.temperature = 0},
                      uint64_t client = 0, int32_t priority = 0) {
  const StopConditions stop = {.tokens_max = tokens_max};
  kept.text = ExpectedToyText(prompt, sampling, stop);
  kept.prompt_size = prompt.size();
  GenerationHandle generation = fixture.MakeGeneration(prompt, stop, sampling, client, priority);
  generation->context = &kept;
  return generation;
}

// Turns by hand until so many texts are over.
void TurnUntilOver(LanguageFixture& fixture, int texts) {
  while (texts > 0) {
    const uint32_t seen = fixture.engine->waker().epoch();
    const bool did = fixture.engine->Turn();
    fixture.engine->CheckInvariants();
    texts -= TakeNews(fixture);
    if (!did && texts > 0) fixture.engine->waker().WaitUntil(seen, kNoDeadline);
  }
}

TEST(LanguageEngineTest, TextsAreTheSameAloneAndTogetherInACacheThatIsTooSmallForAll) {
  // Eight texts of 140 tokens need 72 blocks: all run, and all find the cache full.
  LanguageFixture fixture({.kv_blocks = 20});
  std::vector<Kept> kept(8);
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto first = static_cast<int32_t>(i);
    GenerationHandle generation = Make(fixture, kept[i], {first, 1, 2}, 137,
                                       {.temperature = i % 2 == 0 ? 0.0F : 1.0F, .seed = 100 + i});
    ASSERT_TRUE(fixture.engine->Submit(generation).ok());
  }
  TurnUntilOver(fixture, 8);
  for (const Kept& one : kept) ExpectWhole(one);
  EXPECT_GT(fixture.engine->counters().sequences.preemptions, 0u);
  EXPECT_EQ(fixture.engine->counters().blocks_used, 0);
}

TEST(LanguageEngineTest, GuessesThatHoldMakeFewerStepsOfTheSameText) {
  for (const float temperature : {0.0F, 1.0F}) {
    int64_t steps[2];
    for (const bool drafts : {false, true}) {
      LanguageFixture fixture({.drafts_max = drafts ? 8 : 0});
      Kept kept;
      GenerationHandle generation =
          Make(fixture, kept, {3, 1}, 150, {.temperature = temperature, .seed = 5});
      ASSERT_TRUE(fixture.engine->Submit(generation).ok());
      TurnUntilOver(fixture, 1);
      ExpectWhole(kept);
      const LanguageEngineCounters counters = fixture.engine->counters();
      steps[drafts] = counters.steps;
      EXPECT_EQ(counters.steps + counters.accepted_tokens, 150);
      EXPECT_EQ(counters.drafts > 0, drafts);
      EXPECT_LE(counters.accepted_tokens, counters.draft_tokens);
    }
    EXPECT_EQ(steps[false], 150);
    EXPECT_LT(steps[true], 120);
  }
}

TEST(LanguageEngineTest, AClientWithAThousandRequestsDoesNotHoldUpOneWithOne) {
  LanguageFixture fixture({.sequences_max = 4, .waiting_max = 1100});
  std::vector<Kept> many(1000);
  for (Kept& one : many) {
    GenerationHandle generation = Make(fixture, one, {1, 2, 3}, 10, {.temperature = 0}, 1);
    ASSERT_TRUE(fixture.engine->Submit(generation).ok());
  }
  for (int i = 0; i < 20; ++i) fixture.engine->Turn();
  Kept single;
  GenerationHandle generation = Make(fixture, single, {4, 5}, 10, {.temperature = 0}, 2);
  ASSERT_TRUE(fixture.engine->Submit(generation).ok());
  const int64_t before = fixture.engine->counters().steps;
  int over = 0;
  while (!single.status.has_value()) {
    fixture.engine->Turn();
    over += TakeNews(fixture);
  }
  ExpectWhole(single);
  // Its turn comes when one of the four that run is over, and then it needs its ten steps.
  EXPECT_LE(fixture.engine->counters().steps - before, 24);
  EXPECT_LT(over, 30);
  TurnUntilOver(fixture, 1001 - over);
  for (const Kept& one : many) ExpectWhole(one);
}

TEST(LanguageEngineTest, ASmallerPriorityComesFirstAndMakesOthersGiveWay) {
  LanguageFixture fixture({.sequences_max = 2});
  std::vector<Kept> kept(5);
  for (size_t i = 0; i < 4; ++i) {
    GenerationHandle generation = Make(fixture, kept[i], {1, static_cast<int32_t>(i)}, 60);
    ASSERT_TRUE(fixture.engine->Submit(generation).ok());
  }
  for (int i = 0; i < 10; ++i) fixture.engine->Turn();
  GenerationHandle generation = Make(fixture, kept[4], {2, 2}, 10, {.temperature = 0}, 0, -3);
  ASSERT_TRUE(fixture.engine->Submit(generation).ok());
  while (!kept[4].status.has_value()) {
    fixture.engine->Turn();
    TakeNews(fixture);
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(kept[i].status.has_value());
  TurnUntilOver(fixture, 4);
  for (const Kept& one : kept) ExpectWhole(one);
  EXPECT_GT(fixture.engine->counters().sequences.preemptions, 0u);
}

TEST(LanguageEngineTest, ACancelFreesTheBlocksWithinOneStep) {
  LanguageFixture fixture;
  Kept kept;
  GenerationHandle generation = Make(fixture, kept, std::vector<int32_t>(100, 3), 50);
  const GenerationTag tag = generation->tag();
  ASSERT_TRUE(fixture.engine->Submit(generation).ok());
  while (kept.got.size() < 3) {
    fixture.engine->Turn();
    TakeNews(fixture);
  }
  fixture.engine->Cancel(tag);
  const int64_t before = fixture.engine->counters().steps;
  TurnUntilOver(fixture, 1);
  while (fixture.engine->Turn()) {
  }
  EXPECT_EQ(kept.status->code(), absl::StatusCode::kCancelled);
  EXPECT_LE(fixture.engine->counters().steps - before, 1);
  EXPECT_EQ(fixture.engine->counters().blocks_used, 0);
}

// Threads that submit and cancel, one that reads, and the engine's own, all at once.
class Busy {
 public:
  static constexpr int kThreads = 3, kTexts = 60;

  Busy() : fixture_({.sequences_max = 6, .waiting_max = kThreads * kTexts, .kv_blocks = 30}) {}

  void Submit(int thread) {
    std::mt19937 random(static_cast<uint32_t>(thread));
    for (int i = 0; i < kTexts; ++i) {
      Kept& kept = kept_[static_cast<size_t>(thread * kTexts + i)];
      std::vector<int32_t> prompt(1 + random() % 60, static_cast<int32_t>(random() % 3));
      prompt.push_back(thread);
      GenerationHandle generation =
          Make(fixture_, kept, std::move(prompt), static_cast<int32_t>(1 + random() % 80),
               {.temperature = static_cast<float>(random() % 2), .seed = random()},
               static_cast<uint64_t>(thread));
      const GenerationTag tag = generation->tag();
      if (!fixture_.engine->Submit(generation).ok()) {
        ++refused_;
        continue;
      }
      if (random() % 4 == 0) fixture_.engine->Cancel(tag);
    }
  }

  // `stop_after`: texts that are over before it is stopped.
  void Run(int stop_after) {
    fixture_.engine->Start();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([this, t] { Submit(t); });
    int over = 0;
    std::thread stopper;
    while (over + refused_ < kThreads * kTexts) {
      const uint32_t seen = fixture_.news_waker.epoch();
      const int news = TakeNews(fixture_);
      over += news;
      if (over >= stop_after && !stopper.joinable()) {
        stopper = std::thread([this] { fixture_.engine->Stop(); });
      }
      fixture_.engine->counters();
      // Refusals are not news.
      if (news == 0 && over + refused_ < kThreads * kTexts) {
        fixture_.news_waker.WaitUntil(seen, RealClock().NowNanos() + 1'000'000);
      }
    }
    for (std::thread& thread : threads) thread.join();
    if (stopper.joinable()) stopper.join();
    for (const Kept& kept : kept_) {
      if (!kept.status.has_value()) continue;
      ++ends_[kept.status->code()];
      if (kept.status->ok()) ExpectWhole(kept);
    }
  }

  int refused() const { return refused_; }
  std::map<absl::StatusCode, int>& ends() { return ends_; }

 private:
  std::vector<Kept> kept_{kThreads * kTexts};
  std::map<absl::StatusCode, int> ends_;
  std::atomic<int> refused_{0};
  LanguageFixture fixture_;
};

TEST(LanguageEngineTest, ThreadsThatSubmitCancelAndReadGetEveryTextOnce) {
  Busy busy;
  busy.Run(Busy::kThreads * Busy::kTexts);
  EXPECT_EQ(busy.refused(), 0);
  EXPECT_GT(busy.ends()[absl::StatusCode::kOk], 0);
  EXPECT_EQ(busy.ends()[absl::StatusCode::kOk] + busy.ends()[absl::StatusCode::kCancelled],
            Busy::kThreads * Busy::kTexts);
}

TEST(LanguageEngineTest, AStopInTheMiddleEndsEveryTextOnce) {
  Busy busy;
  busy.Run(20);
  int ends = 0;
  for (const auto& [code, count] : busy.ends()) {
    EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kCancelled ||
                code == absl::StatusCode::kUnavailable);
    ends += count;
  }
  EXPECT_EQ(ends + busy.refused(), Busy::kThreads * Busy::kTexts);
}

// By bucket, all of them.
uint64_t Count(const Histogram& histogram) {
  uint64_t count = 0;
  for (const uint64_t each : histogram.Read().counts) count += each;
  return count;
}

TEST(LanguageEngineTest, CountsHowTextsEndAndWhatTheyTook) {
  SimulatedClock clock;
  LanguageFixture fixture({.clock = &clock});
  std::vector<Kept> kept(2);
  GenerationHandle whole = Make(fixture, kept[0], {1, 2, 3}, 4);
  GenerationHandle left = Make(fixture, kept[1], {2, 3}, 40);
  clock.Advance(1'000'000);
  ASSERT_TRUE(fixture.engine->Submit(whole).ok());
  const GenerationTag tag = left->tag();
  ASSERT_TRUE(fixture.engine->Submit(left).ok());
  TurnUntilOver(fixture, 1);
  const int64_t steps = fixture.engine->counters().steps;
  fixture.engine->Cancel(tag);
  TurnUntilOver(fixture, 1);
  // Its blocks rest while the step runs that it was in, and no longer.
  while (fixture.engine->counters().blocks_used > 0) {
    const uint32_t seen = fixture.engine->waker().epoch();
    if (!fixture.engine->Turn()) fixture.engine->waker().WaitUntil(seen, kNoDeadline);
  }
  EXPECT_LE(fixture.engine->counters().steps, steps + 1);
  const GenerationStatistics& statistics = fixture.engine->statistics();
  EXPECT_EQ(statistics.texts(TextOutcome::kLength), 1U);
  EXPECT_EQ(statistics.texts(TextOutcome::kAbort), 1U);
  EXPECT_EQ(statistics.texts(TextOutcome::kStop) + statistics.texts(TextOutcome::kError), 0U);
  // Times of texts that ended well; tokens and steps of all.
  for (const Histogram* histogram :
       {&statistics.e2e_latency, &statistics.queue_time, &statistics.decode_time,
        &statistics.prefill_time, &statistics.inference_time, &statistics.time_per_output_token}) {
    EXPECT_EQ(Count(*histogram), 1U);
  }
  EXPECT_EQ(Count(statistics.time_to_first_token), 2U);
  EXPECT_EQ(Count(statistics.inter_token_latency) + 2, kept[0].got.size() + kept[1].got.size());
  EXPECT_EQ(statistics.prompt_tokens.Read().sum, 3);
  EXPECT_EQ(statistics.generation_tokens.Read().sum, 4);
  EXPECT_EQ(statistics.tokens_max.Read().sum, 4);
  const LanguageEngineCounters counters = fixture.engine->counters();
  EXPECT_EQ(statistics.iteration_tokens.Read().sum,
            counters.prompt_tokens + counters.generated_tokens);
  EXPECT_EQ(Count(statistics.iteration_tokens), static_cast<uint64_t>(counters.steps));
}

TEST(HistogramTest, ABoundIsPartOfItsBucket) {
  Histogram histogram({1, 10, 100});
  for (const int64_t value : {0, 1, 2, 10, 11, 1000}) histogram.Observe(value);
  const Histogram::Snapshot snapshot = histogram.Read();
  EXPECT_EQ(snapshot.counts, (std::vector<uint64_t>{2, 2, 1, 1}));
  EXPECT_EQ(snapshot.sum, 1024);
}

TEST(GenerationStatisticsTest, BoundsOfTokensEndWithTheContext) {
  EXPECT_EQ(GenerationStatistics(100).prompt_tokens.bounds(),
            (std::vector<int64_t>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(GenerationStatistics(99).prompt_tokens.bounds().back(), 50);
}

}  // namespace
}  // namespace stampmill
