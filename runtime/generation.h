// Generation: one text that a language model continues, on its way through the daemon: the tokens
// to begin with, how to choose the next ones, when to stop, and the tokens that were chosen.
//
//   server: GenerationPool::Acquire -> fill -> Begin -> LanguageEngine::Submit    (any thread)
//   engine: tokens and, once, the end
//   server: LanguageEngine::PopNews -> Take each token; at the end the handle     (one thread)
//
// Slots are allocated at start and used again with the memory that they have grown to.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/waker.h"
#include "runtime/ring.h"
#include "runtime/sequence.h"
#include "runtime/text_constraint.h"

namespace stampmill {

// How the next token is chosen; kernels/sample.cc says what each does. Neutral by default but for
// the temperature, as in the APIs.
struct SamplingParameters {
  float temperature = 1;
  float top_p = 1, min_p = 0, typical_p = 1;
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int32_t top_k = 0;
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> biases;
  int32_t logprobs = -1;         // how many of the likeliest are told beside the token; -1: nothing
  int32_t prompt_logprobs = -1;  // the same of the prompt's tokens

  bool HasPenalties() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};
inline constexpr int32_t kLogprobsMax = 20;

struct StopConditions {
  int32_t tokens_max = 16;         // of the answer
  int32_t tokens_min = 0;          // before it no stop token is chosen, and no text stops
  std::vector<int32_t> tokens;     // end the answer and are part of it
  std::vector<std::string> texts;  // likewise, wherever they begin and end in tokens
};
inline constexpr int32_t kPriorityMax = 8;
inline constexpr size_t kStopTextsMax = 16;
inline constexpr size_t kStopTextBytesMax = 512;

enum class FinishReason : uint8_t {
  kNone,       // failed: Generation::status
  kLength,     // tokens_max, or the model's context
  kStopToken,  // the last token is one of StopConditions::tokens
  kStopText,   // the last token completes one of StopConditions::texts
  kComplete,   // the constraint allows nothing more
};

struct GeneratedToken {
  int32_t token = 0;
  float logprob = 0;
  int32_t rank = 0;  // 0: no other was likelier
};

struct LikelyToken {
  int32_t token = -1;  // -1: the vocabulary has no more
  float logprob = 0;
};

// When things happened, nanoseconds of the engine's clock; 0: not yet.
struct GenerationTimes {
  int64_t arrival = 0;  // set by the server
  int64_t queued = 0;
  int64_t scheduled = 0;  // first taken into a step
  int64_t first_token = 0;
  int64_t last_token = 0;
  int64_t end = 0;
};

// Names one use of one slot, so that a late cancel cannot hit the slot's next text.
struct GenerationTag {
  uint32_t slot = 0;
  uint32_t use = 0;
};

// Owned by the server until submitted, then by the engine until its end was popped.
class Generation {
 public:
  // Tokens that lie ready for the server at most; the text is held up when it does not take them.
  static constexpr uint32_t kTokensReadyMax = 64;

  // Set by the server before Begin.
  SamplingParameters sampling;
  StopConditions stop;
  // What the answer must conform to, at its beginning and not complete; or null.
  std::unique_ptr<TextConstraint> constraint;
  int32_t priority = 0;     // smaller comes first; from -kPriorityMax to kPriorityMax
  uint64_t client = 0;      // who asks: texts that wait take turns by client
  void* context = nullptr;  // the server's own
  GenerationTimes times;

  // Makes the sequence and room for what the text can need at most. `drafts_max` as
  // Sequence::Begin's. REQUIRES: the prompt is not empty, and prompt and tokens_max together are at
  // most `context_tokens`, the model's.
  void Begin(std::span<const int32_t> prompt, int32_t context_tokens, const BlockHash& root);
  Sequence& sequence() { return sequence_; }
  const Sequence& sequence() const { return sequence_; }

  // The server's, after PopNews: the next token, or none now. `likely` is valid until the next
  // call.
  struct News {
    GeneratedToken token;
    std::span<const LikelyToken> likely;
  };
  std::optional<News> Take();
  // Of the prompt's tokens but the first, once the first token is there, if they were wanted.
  std::span<const GeneratedToken> prompt_tokens() const { return prompt_tokens_; }
  std::span<const LikelyToken> prompt_likely(size_t i) const;

  // The engine's verdict, once it is over.
  FinishReason reason = FinishReason::kNone;
  size_t stop_text = 0;  // kStopText: which
  absl::Status status;

  GenerationTag tag() const { return {slot_, use_}; }
  bool cancelled() const { return cancelled_use_.load(std::memory_order_acquire) == use_; }

 private:
  friend class GenerationPool;
  friend class LanguageEngine;

  // The engine's. REQUIRES: there is room.
  bool HasRoom() const { return Room() > 0; }
  uint32_t Room() const;  // for so many tokens
  void Put(const GeneratedToken& token, std::span<const int32_t> tokens,
           std::span<const float> logprobs);

  uint32_t slot_ = 0;
  uint32_t use_ = 0;
  std::atomic<uint32_t> cancelled_use_{0};

  Sequence sequence_;
  // Tokens ready: a ring of one writer and one reader.
  std::array<GeneratedToken, kTokensReadyMax> ready_;
  std::vector<LikelyToken> ready_likely_;  // [kTokensReadyMax, logprobs]
  std::atomic<uint32_t> put_{0}, taken_{0};
  std::vector<GeneratedToken> prompt_tokens_;
  std::vector<LikelyToken> prompt_likely_;

  // Bits: it is in the ring of news; it is over.
  static constexpr uint32_t kAnnounced = 1, kOver = 2;
  std::atomic<uint32_t> state_{0};
  std::atomic<bool> held_up_{false};

  // The engine thread's.
  int64_t held_up_since_ = 0;
  // Drafts: how many are tried next, after how many steps without, how often none held in a row.
  int32_t drafts_next_ = 0, draft_rest_ = 0, draft_misses_ = 0;
  std::string tail_;  // the end of the text, as much as a stop text may begin in
  // How often each token was generated, for penalties, and whether it is in the prompt.
  struct Seen {
    int32_t token;
    int32_t in_prompt;
    int32_t times;
  };
  std::vector<Seen> seen_;  // sorted by token
  Generation* next_ = nullptr;
  Generation* previous_ = nullptr;
};

class GenerationPool;
struct GenerationRelease {
  GenerationPool* pool = nullptr;
  void operator()(Generation* generation) const;
};
using GenerationHandle = std::unique_ptr<Generation, GenerationRelease>;

// All slots of one engine. Thread-safe, lock-free.
class GenerationPool {
 public:
  explicit GenerationPool(int32_t slots);
  ~GenerationPool();  // REQUIRES: every handle was dropped

  // With all parameters as they are by default. UNAVAILABLE when all are in use.
  absl::StatusOr<GenerationHandle> Acquire();
  GenerationHandle Adopt(Generation* generation) {
    return GenerationHandle(generation, GenerationRelease{this});
  }
  // Null for a slot that there is not.
  Generation* slot(uint32_t index);
  int32_t capacity() const { return capacity_; }
  int32_t in_use() const { return in_use_.load(std::memory_order_relaxed); }

 private:
  friend struct GenerationRelease;
  void Release(Generation* generation);

  const int32_t capacity_;
  const std::unique_ptr<Generation[]> slots_;
  BoundedRing<uint32_t> free_;
  std::atomic<int32_t> in_use_{0};
};

}  // namespace stampmill
