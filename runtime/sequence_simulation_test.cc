// The scheduler of sequences and its pool on a simulated clock, over a model that remembers in
// every slot of the cache which text its token ended. One seed is one history: arrivals with common
// prefixes, cancels, deadlines, pauses, drafts, failing steps, pools too small, two steps in
// flight. Every computed token sees exactly the keys of its own prefix, whoever computed them;
// every text is the one that its sequence has alone; every request ends once, and nobody starves.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "runtime/sequence_scheduler.h"

namespace stampmill {
namespace {

constexpr int32_t kSequenceTokensMax = 120;
constexpr int32_t kVocabulary = 3;
constexpr uint64_t kGarbage = 0xbad;

// The key of a token depends on it and all before it; what comes next depends on the last key.
uint64_t KeyOf(uint64_t before, int32_t token) {
  uint64_t x = (before ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15;
  return x ^ (x >> 29);
}
int32_t NextToken(uint64_t key) { return static_cast<int32_t>((key >> 33) % kVocabulary); }

// A request, and the text it must get.
struct Sent {
  int id = 0;
  Sequence* sequence = nullptr;
  int32_t prompt_size = 0;
  int32_t stops_at = 0;       // tokens
  std::vector<int32_t> text;  // prompt and answer, up to the most there can be
  std::vector<uint64_t> keys;
  int64_t steps_before = 0;
  int64_t steps_max = 0;  // that it may take, if nobody pauses and no step fails
  bool cancelled = false;
  int64_t queue_deadline = kNoDeadline, deadline = kNoDeadline;
  bool started = false;
  int ends = 0;
};

// A step as the device got it.
struct Step {
  struct Part {
    int id = 0;
    int32_t row = 0;
    std::vector<int32_t> blocks;  // read and written
  };
  SequenceBatch* batch = nullptr;
  std::vector<StepEntry> entries;  // as they were
  std::vector<Part> parts;
  std::vector<int32_t> sampled;  // by row of the results
  bool computed = false;
};

struct Options {
  uint32_t seed = 0;
  bool faults = true;  // failing steps, pauses: what bounds on waiting do not hold with
  int events = 250;
};

class Simulation {
 public:
  explicit Simulation(const Options& options)
      : options_(options),
        random_(options.seed),
        pool_(Between(3, 40)),
        depth_(Between(1, 2)),
        levels_(options.faults ? Between(1, 3) : 1),
        memory_(static_cast<size_t>(pool_.capacity() * kBlockTokens), kGarbage),
        scheduler_(MakeOptions(), &pool_) {
    for (int i = 0; i < 3; ++i) {
      common_.emplace_back();
      // Blocks of the last one differ only in what is before them.
      for (int t = 0; t < 80; ++t)
        common_.back().push_back(i < 2 ? Between(0, kVocabulary - 1) : 0);
    }
  }

  void Run() {
    for (int event = 0; event < options_.events && !testing::Test::HasFailure(); ++event) {
      switch (Between(0, 15)) {
        case 0:
        case 1:
          Arrive();
          break;
        case 2:
          if (Between(0, 9) == 0) {
            for (int i = Between(5, 30); i > 0; --i) Arrive();
          }
          break;
        case 3:
          Cancel();
          break;
        case 4:
          now_ += Between(0, 50);
          break;
        case 5:
          Pause();
          break;
        case 6:
          if (options_.faults && Between(0, 3) == 0) Fail();
          break;
        case 7:
          ChangePool();
          break;
        default:
          Turn();
      }
      Check();
    }
    Drain();
  }

  uint64_t preemptions() const { return scheduler_.counters().preemptions; }
  uint64_t hits() const { return scheduler_.counters().prefix_hit_tokens; }
  std::map<absl::StatusCode, int> ends;
  int64_t accepted_drafts = 0, removed_in_flight = 0, overlapping = 0, failed_steps = 0;
  std::vector<std::pair<int, absl::StatusCode>> order;

 private:
  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  SequenceSchedulerOptions MakeOptions() {
    const int32_t sequences = Between(1, 9);
    return {.sequences_max = sequences,
            .waiting_max = 40,
            .levels = levels_,
            .step_tokens_max = sequences + kBlockTokens + Between(0, 100),
            .sequence_tokens_max = kSequenceTokensMax,
            .steps_in_flight_max = depth_};
  }

  // A common beginning or none, and something of its own.
  std::vector<int32_t> MakePrompt() {
    std::vector<int32_t> prompt;
    if (Between(0, 2) > 0) {
      const std::vector<int32_t>& common = common_[static_cast<size_t>(Between(0, 2))];
      prompt.assign(common.begin(), common.begin() + Between(1, 80));
    }
    for (int i = Between(prompt.empty(), 6); i > 0; --i) {
      prompt.push_back(Between(0, kVocabulary - 1));
    }
    return prompt;
  }

  void Arrive() {
    const std::vector<int32_t> prompt = MakePrompt();
    const auto prompt_size = static_cast<int32_t>(prompt.size());
    if (free_.empty()) {
      free_.push_back(made_.emplace_back(std::make_unique<Sequence>()).get());
    }
    const int id = next_id_++;
    Sent& sent = sent_[id];
    Sequence& s = *free_.back();
    const int32_t tokens_max = prompt_size + std::min(Between(0, 40), 125 - prompt_size);
    s.Begin(prompt, tokens_max, 4, RootHash(1, ""));
    s.level = Between(0, levels_ - 1);
    s.client = static_cast<uint64_t>(Between(0, 3));
    s.waits_for_host = Between(0, 3) == 0;
    if (Between(0, 5) == 0) s.logits_begin = Between(0, prompt_size - 1);
    if (Between(0, 5) == 0) s.deadline_nanos = sent.deadline = now_ + Between(0, 300);
    if (Between(0, 5) == 0) s.queue_deadline_nanos = sent.queue_deadline = now_ + Between(0, 200);
    const absl::Status status = scheduler_.Enqueue(&s);
    if (!status.ok()) {
      if (absl::IsInvalidArgument(status)) {
        EXPECT_TRUE(s.tokens_max > kSequenceTokensMax ||
                    SequenceScheduler::BlocksNeeded(s) > pool_.total());
      } else {
        EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      }
      Count(id, status.code());
      return;
    }
    free_.pop_back();
    sent.sequence = &s;
    sent.prompt_size = prompt_size;
    sent.stops_at = Between(prompt_size, tokens_max);
    sent.text = prompt;
    for (int32_t i = 0; i < tokens_max; ++i) {
      if (i >= prompt_size) sent.text.push_back(NextToken(KeyBefore(sent, i)));
      sent.keys.push_back(KeyOf(KeyBefore(sent, i), sent.text[Index(i)]));
    }
    sent.steps_before = steps_;
    sent.steps_max = StepsMax();
    sent.id = id;
    s.context = &sent;
    live_[id] = &s;
  }
  static size_t Index(int32_t i) { return static_cast<size_t>(i); }
  static uint64_t KeyBefore(const Sent& sent, int32_t position) {
    return position == 0 ? 0 : sent.keys[Index(position - 1)];
  }

  // The first in order goes on in every step and is not stopped any more. It may have to compute
  // all of it twice. So do those before it: all that are here, and until it runs one more of each
  // client for each of them.
  int64_t StepsMax() const {
    return 2 * kSequenceTokensMax * (5 * static_cast<int64_t>(live_.size()) + 5) + 10;
  }

  static int IdOf(const Sequence& s) { return static_cast<const Sent*>(s.context)->id; }

  void Count(int id, absl::StatusCode code) {
    Sent& sent = sent_[id];
    ++sent.ends;
    EXPECT_EQ(sent.ends, 1) << "request " << id;
    ++ends[code];
    order.emplace_back(id, code);
  }

  // The request has left the scheduler; its sequence is used again for another one at once.
  void End(int id, absl::StatusCode code) {
    Sent& sent = sent_[id];
    Sequence& s = *sent.sequence;
    const auto size = std::min(s.tokens.size(), sent.text.size());
    EXPECT_TRUE(std::equal(s.tokens.begin(), s.tokens.end(), sent.text.begin(),
                           sent.text.begin() + static_cast<int64_t>(size)));
    if (!options_.faults) EXPECT_LE(steps_ - sent.steps_before, sent.steps_max);
    live_.erase(id);
    free_.push_back(&s);
    sent.sequence = nullptr;
    Count(id, code);
  }

  int AnyId() {
    return std::next(live_.begin(), Between(0, static_cast<int32_t>(live_.size()) - 1))->first;
  }

  void Cancel() {
    if (live_.empty() || Between(0, 1) == 0) return;
    const int id = AnyId();
    Sequence* const s = sent_[id].sequence;
    for (const Step& step : in_flight_) {
      for (const StepEntry& entry : step.entries) removed_in_flight += entry.sequence == s;
    }
    scheduler_.Remove(s);
    End(id, absl::StatusCode::kCancelled);
  }

  void Pause() {
    if (!options_.faults || live_.empty()) return;
    // Whose tokens nobody takes must have had some.
    Sequence* const s = sent_[AnyId()].sequence;
    if (s->state != SequenceState::kWaiting) s->paused = !s->paused && Between(0, 1) == 0;
  }

  void ChangePool() {
    if (Between(0, 3) > 0) return;
    int32_t least = 3;
    for (const auto& [id, s] : live_) least = std::max(least, SequenceScheduler::BlocksNeeded(*s));
    if (Between(0, 3) == 0) pool_.DropCached();
    pool_.Resize(Between(least, pool_.capacity()));
    for (int32_t block; (block = pool_.TakeUsedMemory()) != kNoBlock;) {
      std::fill_n(memory_.begin() + block * kBlockTokens, kBlockTokens, kGarbage);
    }
  }

  void Expire() {
    while (Sequence* const s = scheduler_.TakeExpired(now_)) {
      const int id = IdOf(*s);
      const Sent& sent = sent_[id];
      EXPECT_TRUE(sent.deadline <= now_ || (!sent.started && sent.queue_deadline <= now_));
      End(id, absl::StatusCode::kDeadlineExceeded);
    }
    EXPECT_GT(scheduler_.NextDeadline(), now_);
    for (const auto& [id, s] : live_) {
      const Sent& sent = sent_[id];
      EXPECT_GT(sent.deadline, now_);
      if (s->state == SequenceState::kWaiting) EXPECT_GT(sent.queue_deadline, now_);
    }
  }

  void Turn() {
    Expire();
    if (Between(0, 1) == 0) Propose();
    Form();
    const auto most = static_cast<size_t>(depth_);
    if (!in_flight_.empty() && (in_flight_.size() == most || Between(0, 1) == 0)) Finish();
  }

  void Propose() {
    for (const auto& [id, s] : live_) {
      if (s->state != SequenceState::kRunning || s->pending > 0 || Between(0, 2) > 0) continue;
      const std::vector<int32_t>& text = sent_[id].text;
      s->drafts.clear();
      for (int i = Between(0, 4); i > 0; --i) {
        const size_t at = s->tokens.size() + s->drafts.size();
        const bool right = at < text.size() && Between(0, 3) > 0;
        s->drafts.push_back(right ? text[at] : Between(0, kVocabulary - 1));
      }
    }
  }

  // Who must be in the next step, if nothing is in flight and all have the same level.
  const Sequence* FirstInOrder() const {
    const Sequence* first = nullptr;
    for (const auto& [id, s] : live_) {
      if (s->state != SequenceState::kRunning || s->paused) continue;
      if (first == nullptr || s->arrival_number < first->arrival_number) first = s;
    }
    return first;
  }
  bool AnyCanGoOn() const {
    return std::ranges::any_of(live_, [](const auto& pair) { return !pair.second->paused; });
  }

  void Form() {
    const bool nothing_in_flight = in_flight_.empty();
    const bool any = AnyCanGoOn();
    const Sequence* const first = FirstInOrder();
    SequenceBatch* const batch = scheduler_.FormBatch(Between(0, 150));
    if (nothing_in_flight) EXPECT_EQ(batch != nullptr, any);
    if (batch == nullptr) return;
    Step step{.batch = batch, .entries = batch->entries};
    for (const StepEntry& entry : batch->entries) {
      Sequence& s = *entry.sequence;
      sent_[IdOf(s)].started = true;
      EXPECT_FALSE(s.paused);
      const std::span<const int32_t> blocks = scheduler_.BlocksOf(s);
      step.parts.push_back({IdOf(s), s.row, {blocks.begin(), blocks.end()}});
    }
    if (nothing_in_flight && levels_ == 1 && first != nullptr) {
      EXPECT_TRUE(std::ranges::any_of(
          step.entries, [&](const StepEntry& entry) { return entry.sequence == first; }));
    }
    overlapping += !nothing_in_flight;
    CheckApart(step, step);
    for (const Step& other : in_flight_) CheckApart(step, other);
    in_flight_.push_back(std::move(step));
    ++steps_;
    if (Between(0, 1) == 0) Compute();
  }

  // Nobody writes to a block that another one has in the same step or in one that is in flight.
  void CheckApart(const Step& writes, const Step& has) {
    std::map<int32_t, int> writers;
    for (size_t i = 0; i < writes.entries.size(); ++i) {
      const StepEntry& entry = writes.entries[i];
      for (int32_t b = entry.first / kBlockTokens;
           b <= (entry.first + entry.count - 1) / kBlockTokens; ++b) {
        writers[writes.parts[i].blocks[Index(b)]] = writes.parts[i].id;
      }
    }
    for (const Step::Part& part : has.parts) {
      for (const int32_t block : part.blocks) {
        const auto it = writers.find(block);
        EXPECT_TRUE(it == writers.end() || it->second == part.id)
            << "block " << block << " of " << part.id << " written by " << it->second;
      }
    }
  }

  uint64_t& Slot(const Step& step, int32_t row, int32_t position) {
    const SequenceBatch& batch = *step.batch;
    const int32_t block = batch.tables[Index(row * batch.blocks_per_row + position / kBlockTokens)];
    return memory_[Index(block * kBlockTokens + position % kBlockTokens)];
  }

  // Runs all steps in flight that have not run, in order.
  void Compute() {
    for (size_t i = 0; i < in_flight_.size(); ++i) {
      Step& step = in_flight_[i];
      if (!step.computed) ComputeStep(step);
    }
  }

  void ComputeStep(Step& step) {
    step.computed = true;
    const SequenceBatch& batch = *step.batch;
    size_t at = 0;
    std::vector<uint64_t> results;
    for (size_t i = 0; i < step.entries.size(); ++i) {
      const StepEntry& entry = step.entries[i];
      const Step::Part& part = step.parts[i];
      const Sent& sent = sent_[part.id];
      for (int32_t p = 0; p < entry.first; ++p) {
        ASSERT_EQ(Slot(step, part.row, p), sent.keys[Index(p)]) << part.id << " at " << p;
      }
      uint64_t key = KeyBefore(sent, entry.first);
      for (int32_t p = entry.first; p < entry.first + entry.count; ++p, ++at) {
        int32_t token = batch.tokens[at];
        if (token < 0) token = last_sampled_[Index(-1 - token)];
        ASSERT_EQ(batch.positions[at], p);
        ASSERT_EQ(batch.sequences[at], part.row);
        if (p < entry.first + entry.count - entry.drafts) ASSERT_EQ(token, sent.text[Index(p)]);
        key = KeyOf(key, token);
        Slot(step, part.row, p) = key;
        if (p >= entry.first + entry.count - entry.outputs) {
          ASSERT_EQ(batch.outputs[results.size()], static_cast<int32_t>(at));
          if (p == entry.first + entry.count - entry.outputs) {
            ASSERT_EQ(entry.outputs_begin, static_cast<int32_t>(results.size()));
          }
          results.push_back(key);
        }
      }
    }
    ASSERT_EQ(results.size(), batch.outputs.size());
    // Nobody's writing touched what another one sees.
    for (size_t i = 0; i < step.entries.size(); ++i) {
      const StepEntry& entry = step.entries[i];
      for (int32_t p = 0; p < entry.first + entry.count - entry.drafts; ++p) {
        ASSERT_EQ(Slot(step, step.parts[i].row, p), sent_[step.parts[i].id].keys[Index(p)]);
      }
    }
    for (const uint64_t key : results) step.sampled.push_back(NextToken(key));
    last_sampled_ = step.sampled;
  }

  void Finish() {
    Compute();
    if (testing::Test::HasFailure()) return;
    const Step step = std::move(in_flight_.front());
    in_flight_.pop_front();
    for (StepEntry& entry : step.batch->entries) {
      if (!entry.samples) continue;
      const auto rows = std::span(step.sampled)
                            .subspan(Index(entry.outputs_begin + entry.outputs - entry.drafts - 1),
                                     Index(entry.drafts + 1));
      const auto drafts = step.batch->tokens.begin() + FirstDraft(step, entry);
      entry.accepted = 0;
      while (entry.accepted < entry.drafts &&
             rows[Index(entry.accepted)] == drafts[entry.accepted]) {
        ++entry.accepted;
      }
      entry.token = rows[Index(entry.accepted)];
      accepted_drafts += entry.sequence != nullptr ? entry.accepted : 0;
    }
    scheduler_.StepDone();
    Check();
    for (const StepEntry& entry : step.batch->entries) {
      if (entry.sequence == nullptr) continue;
      Sequence& s = *entry.sequence;
      const int id = IdOf(s);
      const Sent& sent = sent_[id];
      const bool whole_prompt = s.computed >= sent.prompt_size;
      if (!whole_prompt || s.size() < sent.stops_at) continue;
      scheduler_.Remove(&s);
      End(id, absl::StatusCode::kOk);
    }
  }
  // Where the drafts of an entry are among the tokens of its step.
  static int64_t FirstDraft(const Step& step, const StepEntry& entry) {
    int64_t at = 0;
    for (const StepEntry& e : step.batch->entries) {
      at += e.count;
      if (&e == &entry) break;
    }
    return at - entry.drafts;
  }

  // The steps in flight end without results; what they wrote is anything.
  void Fail() {
    if (in_flight_.empty()) return;
    for (const Step& step : in_flight_) {
      for (size_t i = 0; i < step.entries.size(); ++i) {
        const StepEntry& entry = step.entries[i];
        for (int32_t p = entry.first; p < entry.first + entry.count; ++p) {
          Slot(step, step.parts[i].row, p) = kGarbage;
        }
      }
    }
    in_flight_.clear();
    scheduler_.StepsFailed();
    ++failed_steps;
  }

  void Check() {
    scheduler_.CheckInvariants();
    EXPECT_EQ(pool_.free() + pool_.cached() + pool_.referenced(), pool_.total());
    EXPECT_EQ(scheduler_.running() + scheduler_.waiting(), static_cast<int32_t>(live_.size()));
    EXPECT_EQ(scheduler_.steps_in_flight(), static_cast<int32_t>(in_flight_.size()));
  }

  // Without new arrivals every request comes to its end.
  void Drain() {
    const int64_t steps_max = steps_ + StepsMax();
    for (const auto& [id, s] : live_) s->paused = false;
    while (!live_.empty() && !testing::Test::HasFailure()) {
      Turn();
      Check();
      ASSERT_LE(steps_, steps_max);
    }
    while (!in_flight_.empty() && !testing::Test::HasFailure()) Finish();
    if (testing::Test::HasFailure()) return;
    for (const auto& [id, sent] : sent_) EXPECT_EQ(sent.ends, 1) << "request " << id;
    EXPECT_TRUE(scheduler_.empty());
    EXPECT_EQ(pool_.referenced(), 0);
  }

  const Options options_;
  std::mt19937 random_;
  BlockPool pool_;
  const int32_t depth_;
  const int32_t levels_;
  std::vector<uint64_t> memory_;  // of the cache: a key for each token
  SequenceScheduler scheduler_;
  std::vector<std::vector<int32_t>> common_;
  int64_t now_ = 0;
  int64_t steps_ = 0;
  int next_id_ = 0;
  std::map<int, Sent> sent_;
  std::vector<std::unique_ptr<Sequence>> made_;
  std::vector<Sequence*> free_;
  std::map<int, Sequence*> live_;  // those in the scheduler
  std::deque<Step> in_flight_;
  std::vector<int32_t> last_sampled_;
};

TEST(SequenceSimulationTest, EveryTokenSeesTheKeysOfItsOwnPrefixAndEveryRequestEndsOnce) {
  std::map<absl::StatusCode, int> ends;
  uint64_t preemptions = 0, hits = 0;
  int64_t accepted = 0, removed = 0, overlapping = 0, failed = 0;
  for (uint32_t seed = 0; seed < 1000 && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation simulation({.seed = seed});
    simulation.Run();
    for (const auto& [code, count] : simulation.ends) ends[code] += count;
    preemptions += simulation.preemptions();
    hits += simulation.hits();
    accepted += simulation.accepted_drafts;
    removed += simulation.removed_in_flight;
    overlapping += simulation.overlapping;
    failed += simulation.failed_steps;
  }
  // The histories hold all that they are made for.
  EXPECT_GT(ends[absl::StatusCode::kOk], 10000);
  EXPECT_GT(ends[absl::StatusCode::kCancelled], 1000);
  EXPECT_GT(ends[absl::StatusCode::kDeadlineExceeded], 1000);
  EXPECT_GT(ends[absl::StatusCode::kInvalidArgument], 250);
  EXPECT_GT(ends[absl::StatusCode::kResourceExhausted], 50);
  EXPECT_GT(preemptions, 1000u);
  EXPECT_GT(hits, 50000u);
  EXPECT_GT(accepted, 5000);
  EXPECT_GT(removed, 250);
  EXPECT_GT(overlapping, 5000);
  EXPECT_GT(failed, 500);
}

TEST(SequenceSimulationTest, WithoutFaultsNobodyWaitsForMoreThanThoseBeforeIt) {
  for (uint32_t seed = 10000; seed < 10300 && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation({.seed = seed, .faults = false}).Run();
  }
}

TEST(SequenceSimulationTest, OneSeedIsOneHistory) {
  Simulation a({.seed = 7}), b({.seed = 7});
  a.Run();
  b.Run();
  EXPECT_EQ(a.order, b.order);
  EXPECT_EQ(a.preemptions(), b.preemptions());
}

// One client has a thousand requests waiting at any time; another sends one now and then.
TEST(SequenceSimulationTest, AClientWithAThousandRequestsDoesNotHoldUpOneWithOne) {
  BlockPool pool(200);
  SequenceScheduler scheduler({.sequences_max = 8,
                               .waiting_max = 1100,
                               .step_tokens_max = 64,
                               .sequence_tokens_max = kSequenceTokensMax},
                              &pool);
  std::deque<Sequence> sequences;
  int32_t many = 0;
  const auto add = [&](uint64_t client) {
    Sequence& s = sequences.emplace_back();
    s.Begin(std::vector<int32_t>(10, static_cast<int32_t>(sequences.size())), 26, 0,
            RootHash(1, ""));
    s.client = client;
    CHECK_OK(scheduler.Enqueue(&s));
    many += client == 1;
    return &s;
  };
  Sequence* one = nullptr;
  int steps_of_one = 0, ended = 0;
  for (int step = 0; ended < 50 && step < 10000; ++step) {
    while (many < 1000) add(1);
    if (one == nullptr) {
      one = add(2);
      steps_of_one = 0;
    }
    SequenceBatch* const batch = scheduler.FormBatch(64);
    ASSERT_NE(batch, nullptr);
    scheduler.StepDone();
    ++steps_of_one;
    for (const StepEntry& entry : batch->entries) {
      Sequence* const s = entry.sequence;
      if (s->size() < s->tokens_max) continue;
      scheduler.Remove(s);
      if (s != one) {
        --many;
        continue;
      }
      // One running sequence must end, and one of the other client's may be before it.
      EXPECT_LE(steps_of_one, 3 * 17);
      one = nullptr;
      ++ended;
    }
  }
  EXPECT_EQ(ended, 50);
}

}  // namespace
}  // namespace stampmill
