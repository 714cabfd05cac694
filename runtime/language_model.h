// LanguageModel: one language model as it is served: its compiled program, its tokenizer, its chat
// template, and the engine that turns it. Made and destroyed by whoever serves it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/waker.h"
#include "compiler/cache/kernel_cache.h"
#include "devices/device.h"
#include "runtime/huge_pages.h"
#include "runtime/language_engine.h"
#include "runtime/model.h"
#include "runtime/model_image.h"
#include "runtime/text_constraint.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace stampmill {

struct LanguageModelOptions {
  std::string name;
  std::string path;
  ModelImageOptions image;
  Device* device = nullptr;      // borrowed, outlives the model
  Waker* news_waker = nullptr;   // likewise
  KernelCache* cache = nullptr;  // borrowed while it loads
  int32_t context_tokens = 0;    // --max-model-len; 0: the model's
  int32_t sequences_max = 256;
  int32_t waiting_max = 1024;
  int32_t step_tokens_max = 2048;
  int32_t drafts_max = 0;     // LanguageEngineOptions::drafts_max
  uint64_t kv_bytes_max = 0;  // of the cache; 0: what all sequences can need
  std::string chat_template;  // in place of the model's own; empty: that
};

// What a model that continues texts and one that embeds them (embedding_model.h) have in common.
struct LanguageModelParts {
  std::shared_ptr<const Model> model;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::string chat_template;  // empty: none
  int32_t context_tokens = 0;
};
// Compiles it unless the cache has it. Errors are the importer's, the compiler's and the
// tokenizer's, and name the file.
absl::StatusOr<LanguageModelParts> LoadLanguageModelParts(const LanguageModelOptions& options);

class LanguageModel {
 public:
  // Parts and the rest at once. INVALID_ARGUMENT for a model that embeds texts.
  static absl::StatusOr<std::unique_ptr<LanguageModel>> Load(const LanguageModelOptions& options);
  // Errors are the chat template's and the engine's, and name the file.
  static absl::StatusOr<std::unique_ptr<LanguageModel>> Create(const LanguageModelOptions& options,
                                                               LanguageModelParts parts);
  // REQUIRES: the engine is stopped and has no news left.
  ~LanguageModel();

  const std::string& name() const { return name_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Those that end a text.
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  // Null where the model has none.
  const ChatTemplate* chat_template() const { return chat_template_.get(); }
  // What it was parsed from; empty where there is none.
  const std::string& chat_template_source() const { return chat_template_source_; }
  int32_t context_tokens() const { return engine_->options().context_tokens; }
  GenerationPool& generations() { return *generations_; }
  LanguageEngine& engine() { return *engine_; }
  // Made when it is first asked for: most texts are free. Thread-safe.
  const ConstraintVocabulary& constraint_vocabulary() const;
  const BlockHash& root() const { return root_; }
  int64_t loaded_unix_seconds() const { return loaded_unix_seconds_; }

 private:
  LanguageModel() = default;

  std::string name_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> end_tokens_;
  std::unique_ptr<ChatTemplate> chat_template_;
  std::string chat_template_source_;
  mutable std::once_flag constraint_vocabulary_once_;
  mutable std::unique_ptr<const ConstraintVocabulary> constraint_vocabulary_;
  std::unique_ptr<GenerationPool> generations_;
  std::unique_ptr<LanguageEngine> engine_;
  std::optional<HugePageMove> weights_move_;  // of the engine's model
  BlockHash root_;
  int64_t loaded_unix_seconds_ = 0;
};

// What a model says of itself beside the graph.
struct LanguageModelFile {
  TokenizerSpec tokenizer;
  std::string chat_template;  // empty: none
  int64_t context_tokens = 0;
};
// `path`: a GGUF file, or a folder of Hugging Face's layout.
absl::StatusOr<LanguageModelFile> ReadLanguageModelFile(const std::string& path);

}  // namespace stampmill
