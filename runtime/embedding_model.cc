#include "runtime/embedding_model.h"

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stampmill {

absl::StatusOr<std::unique_ptr<EmbeddingModel>> EmbeddingModel::Create(
    const LanguageModelOptions& options, LanguageModelParts parts) {
  auto model = std::unique_ptr<EmbeddingModel>(new EmbeddingModel());
  model->name_ = options.name;
  model->tokenizer_ = std::move(parts.tokenizer);
  absl::StatusOr<std::unique_ptr<EmbeddingEngine>> engine =
      EmbeddingEngine::Create({.model = std::move(parts.model),
                               .context_tokens = parts.context_tokens,
                               .jobs_max = options.waiting_max});
  if (!engine.ok()) {
    return absl::Status(engine.status().code(),
                        absl::StrCat("model ", options.path, ": ", engine.status().message()));
  }
  model->engine_ = *std::move(engine);
  model->loaded_unix_seconds_ = time(nullptr);
  return model;
}

}  // namespace stampmill
