// EmbeddingEngine: computes embeddings of texts with a program that gives rows for tokens
// (compiler/language/transformer.h says which), on a thread of its own. A text is computed whole,
// in one step; a step takes texts of all jobs in turn, so that a job of one text does not wait for
// all texts of one with thousands. What a text gets does not depend on what else is in its step.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/waker.h"
#include "devices/device.h"
#include "runtime/language_step.h"
#include "runtime/model.h"
#include "runtime/model_step.h"
#include "runtime/ring.h"

namespace stampmill {

struct EmbeddingEngineOptions {
  std::shared_ptr<const Model> model;
  int32_t context_tokens = 0;  // of one text at most
  int32_t jobs_max = 1024;     // at once
};

// The texts of one request.
struct EmbeddingJob {
  std::vector<std::vector<int32_t>> texts;  // of tokens of the vocabulary
  // Called once, on the engine's thread; the embeddings are in the order of the texts, of length 1.
  std::function<void(absl::StatusOr<std::vector<std::vector<float>>>)> done;
  std::shared_ptr<std::atomic<bool>>
      cancelled;  // set by who does not want it any more; may be null

 private:
  friend class EmbeddingEngine;
  std::vector<std::vector<float>> embeddings_;
  size_t begun_ = 0;  // texts
};

class EmbeddingEngine {
 public:
  // Whether a program gives embeddings, and not text.
  static bool Serves(const Model& model);

  // INVALID_ARGUMENT for another program, RESOURCE_EXHAUSTED for memory.
  static absl::StatusOr<std::unique_ptr<EmbeddingEngine>> Create(EmbeddingEngineOptions options);
  ~EmbeddingEngine();  // Stop

  // False where a program gives rows of tokens and no embedding of a text.
  bool pools() const { return pooling_ != Pooling::kEach; }
  int64_t width() const { return width_; }
  int32_t context_tokens() const { return options_.context_tokens; }

  // Any thread. INVALID_ARGUMENT for a text that is empty or too long, or no texts; UNAVAILABLE
  // when draining or too many are there: then `done` is not called.
  absl::Status Submit(std::unique_ptr<EmbeddingJob> job);

  void BeginDrain();
  // Ends what is there with UNAVAILABLE, once its step is over, and joins the thread.
  void Stop();
  int64_t in_flight() const { return in_flight_.load(std::memory_order_acquire); }

 private:
  enum class Pooling : uint8_t { kMean, kFirst, kLast, kEach };
  // A text of the step.
  struct Text {
    EmbeddingJob* job;
    size_t index;
    int32_t outputs_begin, outputs;  // rows
  };

  explicit EmbeddingEngine(EmbeddingEngineOptions options);
  absl::Status ReadProgram();
  void Run();
  bool DrainInbox();
  void DropCancelled();
  // The texts of the next step.
  void FormStep();
  void AddText(EmbeddingJob& job, size_t index);
  absl::Status RunStep();
  void TakeEmbedding(const Text& text);
  void FinishJobs(const absl::Status& status);
  void Finish(std::unique_ptr<EmbeddingJob> job, const absl::Status& status);

  const EmbeddingEngineOptions options_;
  Pooling pooling_ = Pooling::kEach;
  bool sees_all_ = false;
  int64_t width_ = 0;
  Waker waker_;
  BoundedRing<EmbeddingJob*> inbox_;
  std::atomic<int64_t> in_flight_{0};
  std::atomic<bool> draining_{false}, stopping_{false};

  // The thread's.
  std::deque<std::unique_ptr<EmbeddingJob>> jobs_;
  std::unique_ptr<CacheStates> states_;
  std::unique_ptr<ModelStep> step_;
  std::unique_ptr<Queue> queue_;
  uint64_t signal_ = 0;
  std::vector<Text> texts_;
  std::vector<int32_t> tokens_, positions_, lasts_, sequences_, tables_, outputs_;
  std::vector<float> rows_;
  std::thread thread_;
};

}  // namespace stampmill
