// GenerationStatistics: what one language model did, in the terms of vLLM's metrics: histograms of
// times and sizes, and how its texts ended. Any thread adds, any thread reads, nobody waits; a
// picture is not one instant, two numbers may be a text apart.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/generation.h"

namespace stampmill {

// Thread-safe. Values are integers of a unit that the user knows, and not negative.
class Histogram {
 public:
  // Ascending upper bounds, each part of its bucket. What is greater than all has one too.
  explicit Histogram(std::vector<int64_t> bounds);

  void Observe(int64_t value);

  const std::vector<int64_t>& bounds() const { return bounds_; }
  struct Snapshot {
    std::vector<uint64_t> counts;  // by bucket, bounds().size() + 1
    int64_t sum = 0;
  };
  Snapshot Read() const;

 private:
  const std::vector<int64_t> bounds_;
  const std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<int64_t> sum_{0};
};

// How a text ended.
enum class TextOutcome : uint8_t { kStop, kLength, kAbort, kError };
inline constexpr int kTextOutcomeCount = 4;
const char* Name(TextOutcome outcome);  // "stop", "length", "abort", "error"

class GenerationStatistics {
 public:
  explicit GenerationStatistics(int32_t context_tokens);

  // A step computed so many tokens of prompts and chose so many.
  void AddStep(int64_t tokens) { iteration_tokens.Observe(tokens); }
  // A text has got a token `now`; times.last_token is still that of the one before.
  void AddToken(const GenerationTimes& times, int64_t now);
  // A text is over: its status, reason, times and tokens.
  void AddText(const Generation& generation);
  // A request for `texts` answers to one prompt has ended well; the longest has so many tokens.
  void AddRequest(int64_t texts, int64_t tokens_max);

  uint64_t texts(TextOutcome outcome) const {
    return outcomes_[static_cast<size_t>(outcome)].load(std::memory_order_relaxed);
  }

  // Nanoseconds. What a text's are is known when it has ended with a token.
  Histogram time_to_first_token;    // since its arrival
  Histogram inter_token_latency;    // between two tokens of one text
  Histogram time_per_output_token;  // of a text, on average, the first not counted
  Histogram e2e_latency, queue_time, inference_time, prefill_time, decode_time;
  // Tokens.
  Histogram prompt_tokens, generation_tokens, tokens_max, longest_tokens, iteration_tokens;
  Histogram texts_wanted;

 private:
  std::array<std::atomic<uint64_t>, kTextOutcomeCount> outcomes_{};
};

}  // namespace stampmill
