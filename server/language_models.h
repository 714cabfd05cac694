// The language models that the daemon serves, and the one thread that takes from their engines what
// they have to tell and hands it to whoever answers for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "base/waker.h"
#include "runtime/embedding_model.h"
#include "runtime/language_model.h"
#include "runtime/memory_budget.h"

namespace stampmill {

// One request for texts of a language model, between its message and its answer: one text, or
// several at once. Shared by the texts that are under way, by what the connection may still call,
// and by nobody else. Its functions but the constructor run on the thread of LanguageModels.
class GenerationCall : public std::enable_shared_from_this<GenerationCall> {
 public:
  virtual ~GenerationCall() = default;
  // Text `index` has tokens to take, or none any more: Generation::Take. What it leaves there holds
  // the text up, until LanguageModels::Resume.
  virtual void Advance(Generation& generation, int32_t index) = 0;
  // It is over; Advance was called for the last time.
  virtual void End(GenerationHandle generation, int32_t index) = 0;
};

// Thread-safe.
class LanguageModels {
 public:
  // What all models have in common; name and path are each one's own.
  // `budget` is borrowed: weights and caches are reserved there.
  LanguageModels(LanguageModelOptions common, MemoryBudget* budget);
  ~LanguageModels();  // Stop

  // Compiles and loads; blocks. ALREADY_EXISTS for a name that is taken. One of `shares` that have
  // to get along with what is left of the budget: its cache takes no more than its share.
  absl::Status Load(const std::string& name, const std::string& path, int32_t shares);
  // Null when there is none of this name, or it is not loaded yet. It lives as long as this.
  LanguageModel* Find(absl::string_view name) const;
  std::vector<LanguageModel*> List() const;
  // Those that embed texts, likewise.
  EmbeddingModel* FindEmbedding(absl::string_view name) const;
  std::vector<EmbeddingModel*> ListEmbedding() const;

  // Takes a text that was begun; `call` hears of it as text `index`. On failure the caller still
  // owns it.
  absl::Status Submit(LanguageModel& model, GenerationHandle& generation,
                      std::shared_ptr<GenerationCall> call, int32_t index);
  // From any thread: `resume` is called on the thread of this, which then may take what it left.
  void Run(std::function<void()> resume);

  void BeginDrain();
  // Texts, and requests for embeddings, that are under way.
  int64_t in_flight() const;
  // Ends what is left, and its calls, and joins all threads.
  void Stop();

 private:
  // Behind Generation::context.
  struct Place {
    std::shared_ptr<GenerationCall> call;
    int32_t index = 0;
  };
  // With the weights reserved; the rest is undone by Load.
  absl::Status LoadReserved(LanguageModelOptions& options, LanguageModelParts parts,
                            int32_t shares);
  void Serve();
  bool TakeNews(LanguageModel& model);
  bool RunWork();
  absl::Status LoadEmbedding(const LanguageModelOptions& options, LanguageModelParts parts);
  absl::Status CheckFree(absl::string_view name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const LanguageModelOptions common_;
  MemoryBudget& budget_;
  Waker waker_;
  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<LanguageModel>> models_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<EmbeddingModel>> embedding_models_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace stampmill
