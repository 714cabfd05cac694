// EmbeddingModel: one model that embeds texts, as it is served: its tokenizer and the engine that
// turns its program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/embedding_engine.h"
#include "runtime/language_model.h"

namespace stampmill {

class EmbeddingModel {
 public:
  // REQUIRES: EmbeddingEngine::Serves the program. Errors are the engine's, and name the file.
  static absl::StatusOr<std::unique_ptr<EmbeddingModel>> Create(const LanguageModelOptions& options,
                                                                LanguageModelParts parts);

  const std::string& name() const { return name_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  int32_t context_tokens() const { return engine_->context_tokens(); }
  EmbeddingEngine& engine() { return *engine_; }
  int64_t loaded_unix_seconds() const { return loaded_unix_seconds_; }

 private:
  EmbeddingModel() = default;

  std::string name_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<EmbeddingEngine> engine_;
  int64_t loaded_unix_seconds_ = 0;
};

}  // namespace stampmill
