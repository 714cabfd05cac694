// Bodies of requests: whatever comes is read in its limits or refused with a message.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "server/openai/constraints.h"
#include "server/openai/errors.h"
#include "server/openai/generate_request.h"
#include "server/openai/requests.h"

namespace stampmill {
namespace {

void CheckOptions(const GenerationOptions& options) {
  CHECK(options.choices >= 1 && options.choices <= kChoicesMax);
  CHECK(options.sampling.temperature >= 0 && options.sampling.top_k >= 0);
  CHECK(options.sampling.logprobs >= -1 && options.sampling.logprobs <= kRequestLogprobsMax);
  CHECK(options.stop.tokens_max.value_or(1) >= 0 && options.stop.tokens_min >= 0);
  for (const auto& [token, bias] : options.sampling.biases) {
    CHECK(token >= 0 && bias >= -100 && bias <= 100);
  }
}

// Whatever it is, it compiles within its bounds or is refused.
void CheckConstraint(const Constraint& constraint) {
  if (constraint.kind == Constraint::Kind::kNone) return;
  CHECK(!constraint.param.empty());
  const auto grammar = GrammarOf(constraint);
  if (grammar.ok()) {
    CHECK((*grammar)->nodes().size() <= Grammar::kNodesMax);
  } else {
    CHECK(ToApiError(grammar.status()).status == 400);
  }
}

void CheckRefused(const absl::Status& status) {
  CHECK(absl::IsInvalidArgument(status));
  const ApiError error = ToApiError(status);
  CHECK(error.status == 400 && !error.message.empty());
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  if (const auto chat = ParseChatRequest(body); chat.ok()) {
    CheckOptions(chat->options);
    CheckConstraint(chat->options.constraint);
    CHECK(!chat->conversation.messages.empty());
  } else {
    CheckRefused(chat.status());
  }
  if (const auto completion = ParseCompletionRequest(body); completion.ok()) {
    CheckOptions(completion->options);
    CHECK(!completion->prompts.empty());
  } else {
    CheckRefused(completion.status());
  }
  for (const bool events : {false, true}) {
    if (const auto generate = ParseGenerateRequest(body, events); generate.ok()) {
      CheckOptions(generate->completion.options);
      CHECK(generate->completion.prompts.size() == 1);
      CHECK(events || !generate->completion.options.stream);
    } else {
      CheckRefused(generate.status());
    }
  }
  if (const auto embedding = ParseEmbeddingRequest(body); !embedding.ok()) {
    CheckRefused(embedding.status());
  }
  if (const auto tokens = ParseTokenizeRequest(body); !tokens.ok()) CheckRefused(tokens.status());
  if (const auto text = ParseDetokenizeRequest(body); !text.ok()) CheckRefused(text.status());
  return 0;
}
