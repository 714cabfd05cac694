#include "server/openai/requests.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/openai/errors.h"
#include "server/openai/parse_parts.h"

namespace stampmill {

namespace json = boost::json;

namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

absl::StatusOr<std::vector<int32_t>> TokensOf(const json::array& array, absl::string_view path) {
  std::vector<int32_t> tokens;
  tokens.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    absl::StatusOr<int64_t> token =
        IntegerOf(array[i], 0, kInt32Max, absl::StrCat(path, "[", i, "]"));
    RETURN_IF_ERROR(token.status());
    tokens.push_back(static_cast<int32_t>(*token));
  }
  return tokens;
}

// One entry of a list of prompts.
absl::StatusOr<Prompt> PromptOf(const json::value& value, absl::string_view path) {
  if (value.is_string()) return Prompt{.text = std::string(JsonText(value))};
  if (!value.is_array()) {
    return FieldError(
        path, absl::StrCat("got ", JsonKind(value), ", expected a string or an array of tokens"));
  }
  if (value.get_array().empty()) return FieldError(path, "got no tokens, limit 1 or more");
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, TokensOf(value.get_array(), path));
  return Prompt{.tokens = std::move(tokens), .is_tokens = true};
}

// A text, tokens, or a list of either.
absl::StatusOr<std::vector<Prompt>> PromptsOf(const JsonFields& fields, absl::string_view name) {
  const json::value* value = fields.Find(name);
  if (value == nullptr) return FieldError(name, "missing");
  std::vector<Prompt> prompts;
  const json::array* list = value->if_array();
  const bool is_list =
      list != nullptr && !list->empty() && (list->front().is_string() || list->front().is_array());
  if (!is_list) {
    ASSIGN_OR_RETURN(Prompt prompt, PromptOf(*value, name));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  if (list->size() > kPromptsMax) {
    return FieldError(name, absl::StrCat("got ", list->size(), " entries, limit ", kPromptsMax));
  }
  for (size_t i = 0; i < list->size(); ++i) {
    ASSIGN_OR_RETURN(Prompt prompt, PromptOf((*list)[i], absl::StrCat(name, "[", i, "]")));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletionRequest(absl::string_view body) {
  ASSIGN_OR_RETURN(const json::object object, ParseJsonObject(body));
  JsonFields fields(object);
  CompletionRequest request;
  ReadGenerationOptions(fields, request.options);
  fields.Int("logprobs", 0, kRequestLogprobsMax, request.options.sampling.logprobs);
  fields.Bool("echo", request.echo);
  const std::optional<int32_t>& tokens_max = request.options.stop.tokens_max;
  if (tokens_max.has_value() && *tokens_max < 1 && !request.echo) {
    fields.Fail("max_tokens", absl::StrCat("got ", *tokens_max, ", limit 1 or more without echo"));
  }
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(request.prompts, PromptsOf(fields, "prompt"));
  const size_t answers = request.prompts.size() * static_cast<size_t>(request.options.choices);
  if (answers > kPromptsMax) {
    return FieldError("n", absl::StrCat("got ", answers, " answers together, limit ", kPromptsMax));
  }
  return request;
}

absl::StatusOr<EmbeddingRequest> ParseEmbeddingRequest(absl::string_view body) {
  ASSIGN_OR_RETURN(const json::object object, ParseJsonObject(body));
  JsonFields fields(object);
  EmbeddingRequest request;
  fields.String("model", request.model);
  fields.String("user", request.user);
  std::string encoding = "float";
  fields.String("encoding_format", encoding);
  request.base64 = encoding == "base64";
  if (!request.base64 && encoding != "float") {
    fields.Fail("encoding_format", absl::StrCat("got '", encoding, "', limit float, base64"));
  }
  fields.Int("dimensions", 1, kInt32Max, request.dimensions);
  RefuseUnsupported(fields);
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(request.inputs, PromptsOf(fields, "input"));
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (!request.inputs[i].is_tokens && request.inputs[i].text.empty()) {
      return FieldError("input", absl::StrCat("entry ", i, " is an empty text"));
    }
  }
  return request;
}

absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(absl::string_view body) {
  ASSIGN_OR_RETURN(const json::object object, ParseJsonObject(body));
  JsonFields fields(object);
  TokenizeRequest request;
  fields.String("model", request.model);
  // llama.cpp's name of each, then vLLM's.
  for (const char* name : {"add_special", "add_special_tokens"}) {
    if (fields.Find(name) == nullptr) continue;
    bool add = false;
    fields.Bool(name, add);
    request.add_special_tokens = add;
  }
  for (const char* name : {"with_pieces", "return_token_strs"}) {
    fields.Bool(name, request.with_pieces);
  }
  int sources = 0;
  for (const char* name : {"content", "prompt"}) {
    if (fields.Find(name) != nullptr) ++sources;
    fields.String(name, request.prompt);
  }
  if (fields.Find("messages") != nullptr) {
    ++sources;
    ReadConversation(fields, request.conversation.emplace());
  }
  if (sources != 1) fields.Fail("prompt", "expected one of prompt, content, messages");
  RETURN_IF_ERROR(fields.status());
  return request;
}

absl::StatusOr<DetokenizeRequest> ParseDetokenizeRequest(absl::string_view body) {
  ASSIGN_OR_RETURN(const json::object object, ParseJsonObject(body));
  JsonFields fields(object);
  DetokenizeRequest request;
  fields.String("model", request.model);
  if (fields.Find("tokens") == nullptr) fields.Fail("tokens", "missing");
  fields.Tokens("tokens", std::numeric_limits<size_t>::max(), request.tokens);
  RETURN_IF_ERROR(fields.status());
  return request;
}

}  // namespace stampmill
