// OpenAiService: the routes of the OpenAI API under /v1, and what vLLM's and llama.cpp's servers
// have beside them: /tokenize, /detokenize, /health, /ping, /version. Also generate and
// generate_stream of Triton under /v2, for language models.
#pragma once

#include <functional>
#include <memory>

#include "server/http/http_server.h"
#include "server/language_models.h"
#include "server/openai/constraints.h"

namespace stampmill {

// Thread-safe; outlives the HttpServer that calls it.
class OpenAiService {
 public:
  // Borrows `models`. `is_ready`: whether the daemon serves.
  OpenAiService(LanguageModels* models, std::function<bool()> is_ready)
      : models_(*models), is_ready_(std::move(is_ready)) {}

  // Answers requests whose path is one of these, now or later; false: another's path.
  bool Handle(HttpRequest& request, HttpReply& reply) const;

 private:
  LanguageModels& models_;
  const std::shared_ptr<ConstraintPool> constraints_ = std::make_shared<ConstraintPool>();
  const std::function<bool()> is_ready_;
};

}  // namespace stampmill
