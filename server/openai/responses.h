// Answers of the OpenAI API as JSON text, whole or as events of a stream.
//
// Texts are made by appending, without a tree: what is the same in every chunk of a stream is made
// once, and a token's chunk is a few copies. Bytes that are no UTF-8 become U+FFFD, so that a
// caller cuts texts between characters (text_stream.h).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/openai/errors.h"

namespace stampmill {

inline constexpr char kSseDone[] = "data: [DONE]\n\n";
inline constexpr char kSseKeepAlive[] = ": keep-alive\n\n";
inline constexpr char kSseContentType[] = "text/event-stream";

// What all parts of one answer share.
struct AnswerHead {
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  std::string model;
  int64_t created = 0;  // seconds of Unix time
  std::string system_fingerprint;
};

struct TokenUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt's
  int64_t reasoning_tokens = 0;
};

// One token and how likely it was.
struct LikelyText {
  absl::string_view text;  // its bytes, which may be a part of a character
  int32_t token = 0;
  // NaN: not known, which the first token of a prompt's is.
  float logprob = std::numeric_limits<float>::quiet_NaN();
  int32_t rank = 0;  // 0: the likeliest
};
struct TokenLogprobs {
  LikelyText chosen;
  std::span<const LikelyText> top;
};

struct Finish {
  absl::string_view reason;  // "stop", "length", "tool_calls"; empty: not finished
  int32_t stop_token = -1;   // what it stopped at, if it was one
  absl::string_view stop_text;
};

// A part of a call of a tool; `id` and `name` come with its first one.
struct ToolCallDelta {
  int32_t index = 0;
  std::string id;
  std::string name;
  std::string arguments;
};

struct StreamStyle {
  bool include_usage = false;     // chunks have a usage, null but in the last
  bool continuous_usage = false;  // and each its own
  bool tokens_as_token_ids = false;
};

// The events of one stream of a chat; each function appends one. Owned by one thread.
class ChatChunks {
 public:
  ChatChunks(const AnswerHead& head, StreamStyle style);

  // The first one of each choice.
  void Role(int32_t choice, const TokenUsage& usage, std::string& out) const;
  // `logprobs`: of the tokens that made it; empty: not wanted.
  void Content(int32_t choice, absl::string_view text, std::span<const TokenLogprobs> logprobs,
               const TokenUsage& usage, std::string& out) const;
  void Reasoning(int32_t choice, absl::string_view text, std::span<const TokenLogprobs> logprobs,
                 const TokenUsage& usage, std::string& out) const;
  void ToolCall(int32_t choice, const ToolCallDelta& call, const TokenUsage& usage,
                std::string& out) const;
  void End(int32_t choice, const Finish& finish, const TokenUsage& usage, std::string& out) const;
  // After all choices, if StreamStyle::include_usage.
  void Usage(const TokenUsage& usage, std::string& out) const;

 private:
  void BeginDelta(int32_t choice, std::string& out) const;
  void EndDelta(std::span<const TokenLogprobs> logprobs, const Finish& finish,
                const TokenUsage& usage, std::string& out) const;

  const StreamStyle style_;
  std::string prefix_;  // of every event, to "choices":[
};

// The same of a completion.
class CompletionChunks {
 public:
  CompletionChunks(const AnswerHead& head, StreamStyle style);

  // `finish` with the last one of each choice.
  void Text(int32_t choice, absl::string_view text, std::span<const TokenLogprobs> logprobs,
            const Finish& finish, const TokenUsage& usage, std::string& out);
  void Usage(const TokenUsage& usage, std::string& out) const;

 private:
  const StreamStyle style_;
  std::string prefix_;
  std::vector<int64_t> offsets_;  // of each choice: characters of the tokens so far
};

struct ChatChoice {
  std::string content;
  std::string reasoning;
  std::vector<ToolCallDelta> tool_calls;
  std::vector<TokenLogprobs> logprobs;
  bool wants_logprobs = false;
  Finish finish;
};
struct CompletionChoice {
  std::string text;
  std::vector<TokenLogprobs> logprobs;
  bool wants_logprobs = false;
  std::vector<TokenLogprobs> prompt_logprobs;  // empty: not wanted
  Finish finish;
};

// Whole answers. `prompt_logprobs` empty: not wanted.
std::string ChatCompletionText(const AnswerHead& head, std::span<const ChatChoice> choices,
                               std::span<const TokenLogprobs> prompt_logprobs,
                               const TokenUsage& usage, bool tokens_as_token_ids);
std::string CompletionText(const AnswerHead& head, std::span<const CompletionChoice> choices,
                           const TokenUsage& usage, bool tokens_as_token_ids);

std::string EmbeddingsText(absl::string_view model, std::span<const std::vector<float>> embeddings,
                           bool base64, int64_t prompt_tokens);

struct ModelCard {
  std::string id;
  int64_t created = 0;
  int32_t context_tokens = 0;  // 0: has none
};
std::string ModelText(const ModelCard& model);
std::string ModelListText(std::span<const ModelCard> models);

// With vLLM's names; `pieces` null: not wanted.
std::string TokenizeText(std::span<const int32_t> tokens, int32_t context_tokens,
                         const std::vector<std::string>* pieces);
// With vLLM's and llama.cpp's names.
std::string DetokenizeText(absl::string_view text);

// An answer of Triton's generate extension, or one of its events; `id` empty: not told.
std::string GenerateText(absl::string_view model, absl::string_view id, absl::string_view text);

std::string ErrorText(const ApiError& error);
// Tells of a failure after the head of a stream was sent; kSseDone follows.
void AppendErrorEvent(const ApiError& error, std::string& out);

}  // namespace stampmill
