// The bounds are vLLM's, so that its dashboards and alerts read these numbers as they read its own.
#include "runtime/generation_statistics.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace stampmill {
namespace {

std::vector<int64_t> Seconds(std::initializer_list<double> seconds) {
  std::vector<int64_t> nanos;
  for (const double each : seconds) nanos.push_back(static_cast<int64_t>(each * 1e9 + 0.5));
  return nanos;
}

std::vector<int64_t> RequestBounds() {
  return Seconds({0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                  30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680});
}

std::vector<int64_t> FirstTokenBounds() {
  return Seconds({0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                  1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560});
}

std::vector<int64_t> TokenBounds() {
  return Seconds({0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
                  20, 40, 80});
}

// 1, 2 and 5 times the powers of ten, up to the limit.
std::vector<int64_t> SizeBounds(int64_t limit) {
  std::vector<int64_t> bounds;
  for (int64_t power = 1; power <= limit; power *= 10) {
    for (const int64_t digit : {1, 2, 5}) {
      if (digit * power <= limit) bounds.push_back(digit * power);
    }
  }
  return bounds;
}

std::vector<int64_t> StepBounds() {
  std::vector<int64_t> bounds = {1};
  for (int64_t tokens = 8; tokens <= 16384; tokens *= 2) bounds.push_back(tokens);
  return bounds;
}

}  // namespace

Histogram::Histogram(std::vector<int64_t> bounds)
    : bounds_(std::move(bounds)),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds_.size() + 1)) {}

void Histogram::Observe(int64_t value) {
  const auto place = std::ranges::lower_bound(bounds_, value);
  counts_[static_cast<size_t>(place - bounds_.begin())].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::Read() const {
  Snapshot snapshot;
  for (size_t i = 0; i <= bounds_.size(); ++i) {
    snapshot.counts.push_back(counts_[i].load(std::memory_order_relaxed));
  }
  snapshot.sum = sum_.load(std::memory_order_relaxed);
  return snapshot;
}

const char* Name(TextOutcome outcome) {
  static constexpr const char* kNames[] = {"stop", "length", "abort", "error"};
  return kNames[static_cast<size_t>(outcome)];
}

GenerationStatistics::GenerationStatistics(int32_t context_tokens)
    : time_to_first_token(FirstTokenBounds()),
      inter_token_latency(TokenBounds()),
      time_per_output_token(TokenBounds()),
      e2e_latency(RequestBounds()),
      queue_time(RequestBounds()),
      inference_time(RequestBounds()),
      prefill_time(RequestBounds()),
      decode_time(RequestBounds()),
      prompt_tokens(SizeBounds(context_tokens)),
      generation_tokens(SizeBounds(context_tokens)),
      tokens_max(SizeBounds(context_tokens)),
      longest_tokens(SizeBounds(context_tokens)),
      iteration_tokens(StepBounds()),
      texts_wanted({1, 2, 5, 10, 20}) {}

void GenerationStatistics::AddToken(const GenerationTimes& times, int64_t now) {
  if (times.first_token == 0) {
    time_to_first_token.Observe(now - (times.arrival != 0 ? times.arrival : times.queued));
  } else {
    inter_token_latency.Observe(now - times.last_token);
  }
}

void GenerationStatistics::AddText(const Generation& generation) {
  TextOutcome outcome = TextOutcome::kStop;
  if (absl::IsCancelled(generation.status)) {
    outcome = TextOutcome::kAbort;
  } else if (!generation.status.ok()) {
    outcome = TextOutcome::kError;
  } else if (generation.reason == FinishReason::kLength) {
    outcome = TextOutcome::kLength;
  }
  outcomes_[static_cast<size_t>(outcome)].fetch_add(1, std::memory_order_relaxed);
  if (!generation.status.ok() || generation.times.first_token == 0) return;
  const GenerationTimes& times = generation.times;
  const Sequence& sequence = generation.sequence();
  const int64_t tokens = sequence.size() - sequence.prompt_size;
  e2e_latency.Observe(times.end - (times.arrival != 0 ? times.arrival : times.queued));
  queue_time.Observe(times.scheduled - times.queued);
  prefill_time.Observe(times.first_token - times.scheduled);
  decode_time.Observe(times.last_token - times.first_token);
  inference_time.Observe(times.last_token - times.scheduled);
  if (tokens > 1) {
    time_per_output_token.Observe((times.last_token - times.first_token) / (tokens - 1));
  }
  prompt_tokens.Observe(sequence.prompt_size);
  generation_tokens.Observe(tokens);
  tokens_max.Observe(generation.stop.tokens_max);
}

void GenerationStatistics::AddRequest(int64_t texts, int64_t tokens_max) {
  texts_wanted.Observe(texts);
  longest_tokens.Observe(tokens_max);
}

}  // namespace stampmill
