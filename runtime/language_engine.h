// LanguageEngine: the loop that turns one language model: texts that come in, which of them go on
// and by how many tokens (SequenceScheduler), a step on the device, the tokens that were chosen,
// when a text is over. Its thread sleeps only on its waker: work finished, arrival, cancel, a
// reader that has caught up, the next deadline.
//
//   server: pool.Acquire -> fill -> Submit                                        (any thread)
//   engine: inbox -> SequenceScheduler -> LanguageStep -> Queue -> news
//   server: PopNews -> Generation::Take each token -> drop the handle at the end  (one thread)
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/waker.h"
#include "devices/device.h"
#include "runtime/block_pool.h"
#include "runtime/generation.h"
#include "runtime/generation_statistics.h"
#include "runtime/language_step.h"
#include "runtime/model.h"
#include "runtime/ring.h"
#include "runtime/sequence_scheduler.h"

namespace stampmill {

struct LanguageEngineOptions {
  std::shared_ptr<const Model> model;
  GenerationPool* generations = nullptr;  // borrowed, outlives the engine
  Waker* news_waker = nullptr;            // likewise; woken when there are news
  Clock* clock = nullptr;                 // likewise; RealClock() in the daemon
  // Bytes of a token, for stop texts; of control tokens none. Thread-safe, allocates nothing.
  std::function<absl::string_view(int32_t token)> token_bytes;
  int32_t vocabulary = 0;       // tokens that there are
  int32_t context_tokens = 0;   // of prompt and answer
  int32_t sequences_max = 256;  // that run at once
  int32_t waiting_max = 1024;   // beyond them
  int32_t step_tokens_max = 2048;
  int32_t kv_blocks = 0;  // of the cache
  // A step takes no more tokens than are expected to run so long; 0: no bound.
  int64_t step_nanos_max = 100'000'000;
  // Tokens that are guessed from the text so far and checked in a step, at most, over all texts; 0:
  // none. A text is the same with them as without.
  int32_t drafts_max = 0;
};

struct LanguageEngineCounters {
  int32_t running = 0, waiting = 0;
  int32_t blocks_total = 0, blocks_used = 0;
  SequenceCounters sequences;
  int64_t prompt_tokens = 0, generated_tokens = 0, steps = 0;
  // Guesses, the tokens in them, and those of them that held.
  int64_t drafts = 0, draft_tokens = 0, accepted_tokens = 0;
};

class LanguageEngine {
 public:
  // INVALID_ARGUMENT for a model that is no language model, RESOURCE_EXHAUSTED for a cache that
  // does not fit into memory.
  static absl::StatusOr<std::unique_ptr<LanguageEngine>> Create(LanguageEngineOptions options);
  // REQUIRES: no news are left.
  ~LanguageEngine();

  // Any thread. Takes a text that was begun. On failure the caller still owns it: INVALID_ARGUMENT
  // for one that can never fit, UNAVAILABLE when draining or too many wait. One that was taken ends
  // exactly once, whatever happens.
  absl::Status Submit(GenerationHandle& generation);
  // Any thread, any time: it ends with CANCELLED, at once or after the step that it is in.
  void Cancel(GenerationTag tag);

  // One thread at a time: a text that has tokens to take, or that is over; null when there is none.
  struct News {
    Generation* generation = nullptr;
    GenerationHandle over;  // holds it, once it is over
  };
  News PopNews();
  // Whoever held up a text by not taking its tokens has taken some.
  void CaughtUp(Generation& generation);

  // Runs Turn on a thread of its own, until Stop.
  void Start();
  void BeginDrain();  // from now on Submit refuses; what was taken goes on
  // Drains; ends what is there with UNAVAILABLE once its step is over, then joins the thread.
  void Stop();
  int64_t in_flight() const { return in_flight_.load(std::memory_order_acquire); }

  // One turn of the loop, for a simulation: the only thread. True when anything was done.
  bool Turn();
  int64_t NextDeadline() const;
  void CheckInvariants() const;

  Waker& waker() { return waker_; }
  const LanguageEngineOptions& options() const { return options_; }
  // Any thread; a moment's picture.
  LanguageEngineCounters counters() const;
  // Thread-safe.
  GenerationStatistics& statistics() { return statistics_; }

 private:
  explicit LanguageEngine(LanguageEngineOptions options);
  void Run();
  int64_t Now() const { return options_.clock->NowNanos(); }

  // Parts of a turn; each is true when it did anything.
  bool DrainInbox();
  bool DropCancelled();
  bool DropExpired();
  bool ResumeHeldUp();
  bool StartStep();
  // Guesses for the texts that are one token from the next.
  void Propose();
  bool FinishStep();

  absl::Status BindStep(SequenceBatch& batch);
  void AddRows(const StepEntry& entry);
  // The token at `position` is to be chosen, or, `forced` >= 0, is that one.
  void AddRow(Generation& generation, int32_t position, int32_t forced);
  // What the step gave to the prompt's tokens; and to the one that it chose.
  void TakePromptResults(Generation& generation, const StepEntry& entry);
  // The text is `size` tokens long with it. False when it ended the text.
  bool TakeToken(Generation& generation, size_t row, int32_t size);
  // How many of an entry's drafts hold.
  int32_t CheckDrafts(Generation& generation, const StepEntry& entry);
  std::span<const int32_t> LikelyTokens(size_t row, int32_t count) const;
  std::span<const float> LikelyLogprobs(size_t row, int32_t count) const;
  static void CountSeen(Generation& generation, int32_t token);
  // What the token ends; nullopt: nothing.
  std::optional<FinishReason> EndOf(Generation& generation, int32_t token, int32_t size);
  void FailStep(const absl::Status& status);
  void Finish(Generation& generation, absl::Status status, FinishReason reason);
  void Announce(Generation& generation, uint32_t bits);
  void Link(Generation& generation);
  void Unlink(Generation& generation);
  void PublishCounters();

  const LanguageEngineOptions options_;
  Waker waker_;
  BoundedRing<Generation*> inbox_, news_;
  std::atomic<int64_t> in_flight_{0};
  std::atomic<bool> draining_{false}, stopping_{false}, look_for_cancels_{false},
      look_for_room_{false};
  std::thread thread_;
  GenerationStatistics statistics_;

  // The engine thread's.
  BlockPool blocks_;
  SequenceScheduler scheduler_;
  std::unique_ptr<LanguageStep> step_;
  std::unique_ptr<Queue> queue_;
  uint64_t signal_ = 0;
  SequenceBatch* batch_ = nullptr;  // of the step in flight
  int64_t step_begin_ = 0;
  SamplingRows rows_;
  int32_t mask_rows_ = 0;  // of rows_.masks
  LanguageResults results_;
  Generation* all_ = nullptr;  // that were taken and are not over
  double nanos_of_token_ = 0;  // smoothed
  bool told_any_ = false;      // in this turn: wake the server once
  int64_t prompt_tokens_ = 0, generated_tokens_ = 0, steps_ = 0;
  int64_t drafts_ = 0, draft_tokens_ = 0, accepted_tokens_ = 0;
  // The numbers of LanguageEngineCounters, in their order, after the last turn.
  std::array<std::atomic<int64_t>, 13> published_{};
};

}  // namespace stampmill
