// Requests of the OpenAI API, with what vLLM's and llama.cpp's servers add to it, as plain data.
//
// Every field's type and range is checked; errors name the field, what it got and the limit
// (server/openai/errors.h makes the API's error object of them). What would change the answer and
// is not offered is refused by its name, unless it has its neutral value. Fields that are not known
// are accepted: real clients send many that concern other servers.
//
// What only the model can tell is the caller's to check: whether tokens are in its vocabulary,
// whether the prompt fits.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// OpenAI's own bounds, but for the last two.
inline constexpr int32_t kChoicesMax = 128;
inline constexpr size_t kRequestStopTextsMax = 16;
inline constexpr size_t kRequestStopTextBytesMax = 512;
inline constexpr int32_t kRequestLogprobsMax = 20;
inline constexpr int32_t kRequestPriorityMax = 8;  // and its negative
inline constexpr size_t kToolsMax = 128;
inline constexpr size_t kPromptsMax = 2048;
inline constexpr size_t kLogitBiasesMax = 1024;
inline constexpr size_t kStopTokensMax = 128;

// How tokens are chosen. Neutral unless set, but for the temperature.
struct SamplingOptions {
  float temperature = 1;
  float top_p = 1, min_p = 0, typical_p = 1;
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int32_t top_k = 0;  // 0: all
  std::optional<uint64_t> seed;
  std::vector<std::pair<int32_t, float>> biases;  // sorted by token, each once
  int32_t logprobs = -1;                          // of how many tokens beside the chosen; -1: none
  int32_t prompt_logprobs = -1;                   // likewise of the prompt's tokens
};

struct StopOptions {
  std::optional<int32_t> tokens_max;  // missing: as many as the context holds
  int32_t tokens_min = 0;
  std::vector<int32_t> tokens;
  std::vector<std::string> texts;
  bool ignore_eos = false;
  bool include_text = false;  // a stop text is part of the answer
};

// What the answer must conform to.
struct Constraint {
  enum class Kind : uint8_t { kNone, kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar };
  Kind kind = Kind::kNone;
  std::string text;  // the schema as JSON, the regex, the grammar
  std::vector<std::string> choices;
  std::string param;  // the field that asked for it, for errors
};

// What completions and chat completions have in common.
struct GenerationOptions {
  std::string model;  // empty: not given
  SamplingOptions sampling;
  StopOptions stop;
  Constraint constraint;
  int32_t choices = 1;   // n
  int32_t priority = 0;  // smaller comes first
  std::optional<float> timeout_seconds;
  bool stream = false;
  bool include_usage = false;     // a chunk of its own at the end of the stream
  bool continuous_usage = false;  // in every chunk
  bool skip_special_tokens = true;
  bool spaces_between_special_tokens = true;
  bool tokens_as_token_ids = false;  // logprobs name tokens "token_id:7"
  std::optional<bool> add_special_tokens;
  std::string cache_salt;  // prefixes are shared only among requests of the same
  std::string user;
};

struct Tool {
  std::string name;
  std::string description;
  std::string parameters;  // a JSON schema; empty: none given
  bool strict = false;
};

struct ToolChoice {
  enum class Kind : uint8_t { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;  // kNamed: one of the tools
};

// What a chat template is rendered with. Checked: roles, types, that text is all there is.
struct Conversation {
  // As they were sent but for two things that templates rely on: parts of text are one string,
  // joined by line ends, and arguments of tool calls that are a JSON object in a string are that
  // object.
  boost::json::array messages;
  boost::json::array tools;                // as sent
  boost::json::array documents;            // as sent
  boost::json::object template_arguments;  // chat_template_kwargs, reasoning_effort
  std::string chat_template;               // instead of the model's; empty: not given
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

struct ChatRequest {
  GenerationOptions options;
  Conversation conversation;
  std::vector<Tool> tools;
  ToolChoice tool_choice;  // kNone when there are no tools
  bool parallel_tool_calls = true;
};

// Text or tokens.
struct Prompt {
  std::string text;
  std::vector<int32_t> tokens;
  bool is_tokens = false;
};

struct CompletionRequest {
  GenerationOptions options;
  std::vector<Prompt> prompts;  // at least one; an empty text is possible
  bool echo = false;
};

struct EmbeddingRequest {
  std::string model;
  std::vector<Prompt> inputs;  // at least one, none empty
  bool base64 = false;
  std::optional<int32_t> dimensions;
  std::string user;
};

struct TokenizeRequest {
  std::string model;
  std::string prompt;
  std::optional<Conversation> conversation;  // instead of the prompt
  std::optional<bool> add_special_tokens;
  bool with_pieces = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};

// INVALID_ARGUMENT of each: server/openai/errors.h.
absl::StatusOr<ChatRequest> ParseChatRequest(absl::string_view body);
absl::StatusOr<CompletionRequest> ParseCompletionRequest(absl::string_view body);
absl::StatusOr<EmbeddingRequest> ParseEmbeddingRequest(absl::string_view body);
absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(absl::string_view body);
absl::StatusOr<DetokenizeRequest> ParseDetokenizeRequest(absl::string_view body);

}  // namespace stampmill
