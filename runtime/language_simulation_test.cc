// The engine of language models on a simulated clock, over a toy language that any wrong block of
// the cache would spoil. One seed is one history: arrivals with common beginnings, cancels,
// deadlines, readers that take their time or leave, failing devices, a cache that is too small, a
// drain or a stop in the middle. Every text ends exactly once and is what it must be; no block is
// lost, and nobody starves.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "base/check.h"
#include "base/clock.h"
#include "devices/cpu/cpu_device.h"
#include "devices/testing/faulty_device.h"
#include "gtest/gtest.h"
#include "runtime/testing/language_fixture.h"

namespace stampmill {
namespace {

constexpr int64_t kMillis = 1'000'000;

struct SimulationOptions {
  uint32_t seed = 0;
  bool faults = true;  // of the device
  bool lazy = true;    // readers
  int events = 1500;
  int drain_at = -1;  // event; -1: never
  int stop_at = -1;   // likewise
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options)
      : options_(options),
        random_(options.seed),
        device_(MakeDevice(), &plan_),
        fixture_({.context_tokens = kContext,
                  .sequences_max = Between(1, 9),
                  .waiting_max = 20,
                  .step_tokens_max = Between(16, 120),
                  .kv_blocks = Between(8, 60),
                  .drafts_max = std::max(Between(-8, 16), 0),
                  .steps_at_once = true,
                  .clock = &clock_,
                  .device = &device_}) {
    for (int i = 0; i < 2; ++i) {
      common_.emplace_back();
      for (int t = 0; t < 80; ++t) common_.back().push_back(AnyToken());
    }
  }

  std::vector<std::pair<int, absl::StatusCode>> Run() {
    for (int event = 0; event < options_.events && !testing::Test::HasFailure(); ++event) {
      if (event == options_.drain_at) {
        draining_ = true;
        fixture_.engine->BeginDrain();
      }
      if (event == options_.stop_at) {
        draining_ = stopping_ = true;
        fixture_.engine->Stop();
      }
      switch (Between(0, 9)) {
        case 0:
        case 1:
          Arrive();
          break;
        case 2:
          for (int i = Between(0, 9) == 0 ? Between(5, 25) : 0; i > 0; --i) Arrive();
          break;
        case 3:
          Cancel();
          break;
        case 4:
          clock_.Advance(Between(0, 60) * kMillis);
          break;
        case 5:
          plan_.HoldCompletions();
          break;
        case 6:
          plan_.ReleaseCompletions();
          break;
        case 7:
          PlanFault();
          break;
        default:
          Read();
      }
      Turn();
    }
    Finish();
    return ends_;
  }

  uint64_t CountOf(absl::StatusCode code) const {
    return static_cast<uint64_t>(
        std::ranges::count_if(ends_, [&](const auto& end) { return end.second == code; }));
  }
  LanguageEngineCounters counters() const { return fixture_.engine->counters(); }
  int left_alone = 0, by_stop_token = 0, by_stop_text = 0;
  int64_t prompt_tokens_told = 0;

 private:
  static constexpr int32_t kContext = 120;

  struct Sent {
    ToyText text;
    int32_t prompt_size = 0;
    GenerationTag tag;
    Generation* generation = nullptr;  // until it is over
    GenerationHandle over;             // then, until all of it was read
    bool lazy = false, leaves = false;
    bool may_be_cancelled = false, refused = false;
    int64_t deadline = kNoDeadline;
    std::vector<int32_t> got;
    int ends = 0;
  };

  static std::unique_ptr<Device> MakeDevice() {
    auto device = CreateCpuDevice({.threads = 1});
    CHECK_OK(device);
    return *std::move(device);
  }
  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  int32_t AnyToken() { return Between(0, kToyVocabulary - 1); }

  std::vector<int32_t> MakePrompt() {
    std::vector<int32_t> prompt;
    if (Between(0, 2) > 0) {
      const std::vector<int32_t>& common = common_[static_cast<size_t>(Between(0, 1))];
      prompt.assign(common.begin(), common.begin() + Between(1, 80));
    }
    for (int i = Between(prompt.empty(), 6); i > 0; --i) prompt.push_back(AnyToken());
    return prompt;
  }

  StopConditions MakeStop(int32_t prompt_size) {
    StopConditions stop = {.tokens_max = std::min(Between(1, 90), kContext - prompt_size)};
    stop.tokens_min = Between(0, 3) == 0 ? Between(0, stop.tokens_max) : 0;
    if (Between(0, 1) == 0) stop.tokens = {AnyToken()};
    if (Between(0, 3) == 0) {
      stop.texts = {std::string(1, static_cast<char>('a' + AnyToken())), "never"};
    }
    return stop;
  }

  SamplingParameters MakeSampling() {
    SamplingParameters sampling = {.temperature = Between(0, 1) == 0 ? 0.0F : 1.0F,
                                   .seed = random_()};
    if (Between(0, 4) == 0) sampling.presence_penalty = 1;
    if (Between(0, 2) == 0) sampling.logprobs = Between(0, 3);
    if (Between(0, 4) == 0) sampling.prompt_logprobs = Between(0, 3);
    return sampling;
  }

  void Arrive() {
    if (fixture_.generations.in_use() == fixture_.generations.capacity()) {
      EXPECT_TRUE(absl::IsUnavailable(fixture_.generations.Acquire().status()));
      return;
    }
    const int id = static_cast<int>(sent_.size());
    Sent& sent = sent_[id];
    const std::vector<int32_t> prompt = MakePrompt();
    sent.prompt_size = static_cast<int32_t>(prompt.size());
    const StopConditions stop = MakeStop(sent.prompt_size);
    const SamplingParameters sampling = MakeSampling();
    sent.text = ExpectedToyText(prompt, sampling, stop);
    GenerationHandle generation =
        fixture_.MakeGeneration(prompt, stop, sampling, static_cast<uint64_t>(Between(0, 3)),
                                std::max(Between(-4, kPriorityMax), 0));
    generation->context = &sent;
    if (Between(0, 5) == 0) {
      sent.deadline = clock_.NowNanos() + Between(0, 2000) * kMillis;
      generation->sequence().deadline_nanos = sent.deadline;
    }
    sent.lazy = options_.lazy && Between(0, 3) == 0;
    sent.leaves = sent.lazy && Between(0, 5) == 0;
    sent.tag = generation->tag();
    sent.generation = generation.get();
    const absl::Status status = fixture_.engine->Submit(generation);
    if (status.ok()) return;
    sent.refused = true;
    sent.generation = nullptr;
    // One that can never fit is told so even then.
    EXPECT_TRUE(absl::IsInvalidArgument(status) || (draining_ && absl::IsUnavailable(status)))
        << status;
  }

  void Cancel() {
    if (sent_.empty()) return;
    // Also texts that ended long ago.
    Sent& sent = sent_[Between(0, static_cast<int32_t>(sent_.size()) - 1)];
    sent.may_be_cancelled = true;
    fixture_.engine->Cancel(sent.tag);
  }

  void PlanFault() {
    if (!options_.faults || Between(0, 3) != 0) return;
    constexpr FaultyOperation kOperations[] = {FaultyOperation::kCreateQueue,
                                               FaultyOperation::kSubmit, FaultyOperation::kLaunch};
    plan_.FailNth(kOperations[Between(0, 2)], Between(1, 3), absl::InternalError("planned fault"));
  }

  // A lazy reader takes some of what is there.
  void Read() {
    for (auto& [id, sent] : sent_) {
      if (sent.lazy && !sent.leaves && (sent.generation != nullptr || sent.over != nullptr) &&
          Between(0, 1) == 0) {
        Take(id, sent, Between(1, 60));
      }
    }
  }

  void Take(int id, Sent& sent, int32_t most) {
    Generation* const generation = sent.over != nullptr ? sent.over.get() : sent.generation;
    for (int32_t i = 0; i < most; ++i) {
      const std::optional<Generation::News> news = generation->Take();
      if (!news.has_value()) {
        if (sent.over != nullptr) End(id, sent);
        return;
      }
      const size_t at = static_cast<size_t>(sent.prompt_size) + sent.got.size();
      ASSERT_LT(at, sent.text.tokens.size()) << "text " << id;
      ASSERT_EQ(news->token.token, sent.text.tokens[at]) << "text " << id << " at " << at;
      if (generation->sampling.logprobs >= 0) CheckLikely(*news, sent.text.logprobs[at - 1]);
      if (sent.got.empty()) CheckPrompt(*generation, sent);
      sent.got.push_back(news->token.token);
    }
    if (sent.over == nullptr) fixture_.engine->CaughtUp(*generation);
  }

  static void CheckLikely(const Generation::News& news, float logprob) {
    EXPECT_EQ(news.token.logprob, logprob);
    for (size_t i = 0; i < news.likely.size(); ++i) {
      EXPECT_TRUE(i == 0 || news.likely[i - 1].logprob >= news.likely[i].logprob);
      EXPECT_EQ(news.likely[i].token == news.token.token,
                static_cast<int32_t>(i) == news.token.rank);
    }
  }

  void CheckPrompt(const Generation& generation, const Sent& sent) {
    const auto told = generation.prompt_tokens();
    if (generation.sampling.prompt_logprobs < 0) {
      EXPECT_TRUE(told.empty());
      return;
    }
    ASSERT_EQ(told.size(), static_cast<size_t>(sent.prompt_size) - 1);
    for (size_t i = 0; i < told.size(); ++i, ++prompt_tokens_told) {
      EXPECT_EQ(told[i].token, sent.text.tokens[i + 1]);
      EXPECT_EQ(told[i].logprob, sent.text.logprobs[i]);
      EXPECT_EQ(generation.prompt_likely(i).size(),
                static_cast<size_t>(generation.sampling.prompt_logprobs));
    }
  }

  bool Turn() {
    const bool did = fixture_.engine->Turn();
    fixture_.engine->CheckInvariants();
    for (;;) {
      LanguageEngine::News news = fixture_.engine->PopNews();
      if (news.generation == nullptr) return did;
      Sent& sent = *static_cast<Sent*>(news.generation->context);
      const int id = IdOf(sent);
      if (news.over != nullptr) {
        ++sent.ends;
        sent.over = std::move(news.over);
        sent.generation = nullptr;
        ends_.emplace_back(id, sent.over->status.code());
      }
      // Who left is heard of no more: what is over is dropped unread.
      if (sent.over != nullptr && sent.leaves) {
        End(id, sent);
      } else if (!sent.lazy || (sent.over != nullptr && drained_out_)) {
        Take(id, sent, 1 << 20);
      }
    }
  }
  int IdOf(const Sent& sent) const {
    for (const auto& [id, candidate] : sent_) {
      if (&candidate == &sent) return id;
    }
    return -1;
  }

  // All of it was read, and it is over.
  void End(int id, Sent& sent) {
    SCOPED_TRACE(testing::Message() << "text " << id);
    const GenerationHandle over = std::move(sent.over);
    const absl::Status& status = over->status;
    switch (status.code()) {
      case absl::StatusCode::kOk:
        EXPECT_EQ(over->reason, sent.text.reason);
        if (!sent.leaves) {
          EXPECT_EQ(sent.got.size() + static_cast<size_t>(sent.prompt_size),
                    sent.text.tokens.size());
        }
        by_stop_token += over->reason == FinishReason::kStopToken;
        by_stop_text += over->reason == FinishReason::kStopText;
        break;
      case absl::StatusCode::kCancelled:
        EXPECT_TRUE(sent.may_be_cancelled);
        break;
      case absl::StatusCode::kDeadlineExceeded:
        EXPECT_LE(sent.deadline, clock_.NowNanos());
        break;
      case absl::StatusCode::kUnavailable:
        if (absl::StrContains(status.message(), "has taken no tokens")) {
          EXPECT_TRUE(sent.lazy);
          ++left_alone;
        } else if (absl::StrContains(status.message(), "shutting down")) {
          EXPECT_TRUE(stopping_);
        }
        break;
      default:
        EXPECT_TRUE(options_.faults) << status;
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    }
  }

  // Without arrivals time alone, and readers that read, bring every text to its end.
  void Finish() {
    plan_.ReleaseCompletions();
    drained_out_ = true;
    while (fixture_.engine->in_flight() > 0 && !testing::Test::HasFailure()) {
      if (Turn()) continue;
      const int64_t next = fixture_.engine->NextDeadline();
      bool read = false;
      for (auto& [id, sent] : sent_) {
        if (sent.generation == nullptr || !sent.lazy || sent.leaves) continue;
        read = true;
        Take(id, sent, 1 << 20);
      }
      if (!Turn() && next != kNoDeadline) clock_.AdvanceTo(next);
      ASSERT_TRUE(read || next != kNoDeadline || fixture_.engine->in_flight() == 0)
          << fixture_.engine->counters().running << " run, " << fixture_.engine->counters().waiting
          << " wait, " << fixture_.engine->in_flight() << " are there";
    }
    for (auto& [id, sent] : sent_) {
      if (sent.over != nullptr) Take(id, sent, 1 << 20);
      EXPECT_EQ(sent.ends, sent.refused ? 0 : 1) << "text " << id;
    }
    if (testing::Test::HasFailure()) return;
    EXPECT_EQ(fixture_.generations.in_use(), 0);
    Turn();
    EXPECT_EQ(fixture_.engine->counters().blocks_used, 0);
    EXPECT_EQ(fixture_.engine->counters().running, 0);
    EXPECT_EQ(fixture_.engine->counters().waiting, 0);
  }

  const SimulationOptions options_;
  std::mt19937 random_;
  SimulatedClock clock_{kMillis};
  FaultPlan plan_;
  FaultyDevice device_;
  std::map<int, Sent> sent_;
  LanguageFixture fixture_;
  std::vector<std::vector<int32_t>> common_;
  bool stopping_ = false, draining_ = false, drained_out_ = false;
  std::vector<std::pair<int, absl::StatusCode>> ends_;
};

TEST(LanguageSimulationTest, EveryTextEndsExactlyOnceAndIsItsOwn) {
  int64_t drafted = 0, held = 0;
  uint64_t good = 0, cancelled = 0, late = 0, failed = 0, preempted = 0, shared = 0;
  int64_t left = 0, tokens_stop = 0, texts_stop = 0, told = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation simulation({.seed = seed});
    simulation.Run();
    good += simulation.CountOf(absl::StatusCode::kOk);
    cancelled += simulation.CountOf(absl::StatusCode::kCancelled);
    late += simulation.CountOf(absl::StatusCode::kDeadlineExceeded);
    failed += simulation.CountOf(absl::StatusCode::kInternal);
    preempted += simulation.counters().sequences.preemptions;
    shared += simulation.counters().sequences.prefix_hit_tokens;
    drafted += simulation.counters().draft_tokens;
    held += simulation.counters().accepted_tokens;
    left += simulation.left_alone;
    tokens_stop += simulation.by_stop_token;
    texts_stop += simulation.by_stop_text;
    told += simulation.prompt_tokens_told;
    if (HasFailure()) return;
  }
  // The histories hold all that they are made for.
  EXPECT_GT(good, 5000u);
  EXPECT_GT(cancelled, 100u);
  EXPECT_GT(late, 100u);
  EXPECT_GT(failed, 100u);
  EXPECT_GT(preempted, 100u);
  EXPECT_GT(shared, 1000u);
  EXPECT_GT(held, 1000);
  EXPECT_GT(drafted - held, 1000);
  EXPECT_GT(left, 10);
  EXPECT_GT(tokens_stop, 100);
  EXPECT_GT(texts_stop, 100);
  EXPECT_GT(told, 1000);
}

TEST(LanguageSimulationTest, WithoutFaultsNothingFails) {
  for (uint32_t seed = 100; seed < 115; ++seed) {
    Simulation simulation({.seed = seed, .faults = false, .lazy = false});
    simulation.Run();
    EXPECT_EQ(simulation.CountOf(absl::StatusCode::kInternal), 0u);
    EXPECT_EQ(simulation.left_alone, 0);
  }
}

TEST(LanguageSimulationTest, ADrainEndsAllAndAStopEndsThemAtOnce) {
  for (uint32_t seed = 200; seed < 220; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation drain({.seed = seed, .drain_at = 700});
    drain.Run();
    Simulation stop({.seed = seed, .drain_at = 600, .stop_at = 700});
    stop.Run();
    if (HasFailure()) return;
  }
}

TEST(LanguageSimulationTest, OneSeedIsOneHistory) {
  EXPECT_EQ(Simulation({.seed = 7}).Run(), Simulation({.seed = 7}).Run());
}

}  // namespace
}  // namespace stampmill
