// What scheduling a step costs: forming a batch and taking its results, with so many sequences that
// run. Sequences that end are replaced, as in a server; others wait all the time.
#include <cstdint>
#include <deque>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "benchmark/benchmark.h"
#include "runtime/sequence_scheduler.h"

namespace stampmill {
namespace {

constexpr int32_t kContext = 4096;
constexpr int32_t kWaiting = 1000;

class Load {
 public:
  explicit Load(int32_t running, int32_t prompt, int32_t answer)
      : prompt_(static_cast<size_t>(prompt)),
        answer_(answer),
        pool_(running * (kContext / kBlockTokens)),
        scheduler_({.sequences_max = running,
                    .waiting_max = 2 * kWaiting,
                    .step_tokens_max = 2048,
                    .sequence_tokens_max = kContext},
                   &pool_) {
    for (int32_t i = 0; i < running + kWaiting; ++i) Add(&sequences_.emplace_back());
    while (scheduler_.running() < running) Step();
  }

  // The scheduler's part of a step.
  const SequenceBatch& Schedule() {
    SequenceBatch* const batch = scheduler_.FormBatch(2048);
    for (StepEntry& entry : batch->entries) entry.token = entry.first;
    scheduler_.StepDone();
    return *batch;
  }
  // What belongs to requests.
  void Replace(const SequenceBatch& batch) {
    for (const StepEntry& entry : batch.entries) {
      Sequence* const s = entry.sequence;
      if (s->size() < s->tokens_max) continue;
      scheduler_.Remove(s);
      Add(s);
    }
  }
  int64_t Step() {
    const SequenceBatch& batch = Schedule();
    const auto tokens = static_cast<int64_t>(batch.tokens.size());
    Replace(batch);
    return tokens;
  }

 private:
  void Add(Sequence* s) {
    std::iota(prompt_.begin(), prompt_.end(), 100000 * made_);
    // Ends are spread over time.
    const int32_t answer = answer_ / 2 + made_ * 37 % answer_;
    s->Begin(prompt_, static_cast<int32_t>(prompt_.size()) + answer, 0, RootHash(1, ""));
    s->client = static_cast<uint64_t>(made_++ % 16);
    CHECK_OK(scheduler_.Enqueue(s));
  }

  std::vector<int32_t> prompt_;
  const int32_t answer_;
  int32_t made_ = 0;
  BlockPool pool_;
  SequenceScheduler scheduler_;
  std::deque<Sequence> sequences_;
};

// All have one token to go.
void Decode(benchmark::State& state) {
  Load load(static_cast<int32_t>(state.range(0)), 64, 2000);
  int64_t tokens = 0;
  for (auto unused : state) tokens += load.Step();
  state.SetItemsProcessed(tokens);
}
BENCHMARK(Decode)->Arg(1)->Arg(16)->Arg(256);
// The difference of the two, for those who count instructions (tests/peers/scheduler.sh).
BENCHMARK(Decode)->Arg(256)->Iterations(100);
BENCHMARK(Decode)->Arg(256)->Iterations(600);

// A prompt is computed beside the others in almost every step.
void WithPrompts(benchmark::State& state) {
  Load load(static_cast<int32_t>(state.range(0)), 512, 400);
  int64_t tokens = 0;
  for (auto unused : state) tokens += load.Step();
  state.SetItemsProcessed(tokens);
}
BENCHMARK(WithPrompts)->Arg(16)->Arg(256);
BENCHMARK(WithPrompts)->Arg(256)->Iterations(100);
BENCHMARK(WithPrompts)->Arg(256)->Iterations(600);

}  // namespace
}  // namespace stampmill
