// Prints the answer that its argument names, as it goes over the wire: for a test that reads it
// with the openai package.
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "server/openai/responses.h"

namespace stampmill {
namespace {

const AnswerHead kHead = {
    .id = "chatcmpl-1", .model = "m", .created = 1700000000, .system_fingerprint = "fp"};
const TokenUsage kUsage = {
    .prompt_tokens = 3, .completion_tokens = 4, .cached_tokens = 1, .reasoning_tokens = 2};

const std::vector<LikelyText> kTop = {
    {.text = "a", .token = 5, .logprob = -0.5f},
    {.text = "\xE2", .token = 6, .logprob = -std::numeric_limits<float>::infinity()}};
const std::vector<TokenLogprobs> kLogprobs = {{.chosen = {.text = "p", .token = 1}},
                                              {.chosen = kTop[0], .top = kTop}};

std::string ChatStream(bool fails) {
  const ChatChunks chunks(kHead, {.include_usage = true});
  std::string out = kSseKeepAlive;
  chunks.Role(0, kUsage, out);
  chunks.Reasoning(0, "why", {}, kUsage, out);
  chunks.Content(0, "\"h\xC3\xA9llo\"\n", {}, kUsage, out);
  if (fails) {
    AppendErrorEvent({.status = 500, .message = "it broke", .type = "server_error"}, out);
    return out + kSseDone;
  }
  out += kSseKeepAlive;
  chunks.Content(0, "a", {&kLogprobs[1], 1}, kUsage, out);
  chunks.ToolCall(0, {.index = 0, .id = "call_1", .name = "f"}, kUsage, out);
  chunks.ToolCall(0, {.index = 0, .arguments = "{\"x\""}, kUsage, out);
  chunks.ToolCall(0, {.index = 0, .arguments = ": 1}"}, kUsage, out);
  chunks.End(0, {.reason = "tool_calls"}, kUsage, out);
  chunks.Usage(kUsage, out);
  return out + kSseDone;
}

std::string CompletionStream() {
  CompletionChunks chunks(kHead, {.include_usage = true, .continuous_usage = true});
  std::string out;
  chunks.Text(0, "pa", kLogprobs, {}, kUsage, out);
  chunks.Text(1, "b", {}, {.reason = "length"}, kUsage, out);
  chunks.Text(0, "", {}, {.reason = "stop", .stop_text = "END"}, kUsage, out);
  chunks.Usage(kUsage, out);
  return out + kSseDone;
}

std::string Chat() {
  const std::vector<ChatChoice> choices = {
      {.content = "hi",
       .reasoning = "why",
       .logprobs = {kLogprobs[1]},
       .wants_logprobs = true,
       .finish = {.reason = "stop", .stop_token = 2}},
      {.tool_calls = {{.id = "call_1", .name = "f", .arguments = "{\"x\": 1}"}},
       .finish = {.reason = "tool_calls"}}};
  return ChatCompletionText(kHead, choices, kLogprobs, kUsage, false);
}

std::string Completion() {
  const std::vector<CompletionChoice> choices = {
      {.text = "pa",
       .logprobs = {kLogprobs[1], kLogprobs[1]},
       .wants_logprobs = true,
       .prompt_logprobs = kLogprobs,
       .finish = {.reason = "length"}},
      {.text = "b", .finish = {.reason = "stop", .stop_text = "END"}}};
  return CompletionText(kHead, choices, kUsage, true);
}

std::string Sample(const std::string& name) {
  const std::vector<std::vector<float>> embeddings = {{1.f, -0.5f, 1e-9f}, {0.f, 3e8f, -1.f}};
  const std::vector<ModelCard> models = {{.id = "a", .created = 5, .context_tokens = 9},
                                         {.id = "b"}};
  if (name == "chat") return Chat();
  if (name == "chat_stream") return ChatStream(/*fails=*/false);
  if (name == "chat_stream_fails") return ChatStream(/*fails=*/true);
  if (name == "completion") return Completion();
  if (name == "completion_stream") return CompletionStream();
  if (name == "embeddings") return EmbeddingsText("m", embeddings, /*base64=*/false, 4);
  if (name == "embeddings_base64") return EmbeddingsText("m", embeddings, /*base64=*/true, 4);
  if (name == "models") return ModelListText(models);
  if (name == "model") return ModelText(models[0]);
  if (name == "error") return ErrorText(ToApiError(FieldError("n", "got 0, limit 1 to 128")));
  return "";
}

}  // namespace
}  // namespace stampmill

int main(int argc, char** argv) {
  const std::string text = stampmill::Sample(argc > 1 ? argv[1] : "");
  std::fwrite(text.data(), 1, text.size(), stdout);
  return text.empty() ? 1 : 0;
}
