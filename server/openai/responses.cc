#include "server/openai/responses.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/http/json_text.h"

namespace stampmill {
namespace {

void AppendInt(int64_t value, std::string& out) {
  std::array<char, 24> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  CHECK(error == std::errc());
  out.append(digits.data(), static_cast<size_t>(end - digits.data()));
}

// A text, or null where it is empty.
void AppendTextOrNull(absl::string_view text, std::string& out) {
  if (text.empty()) {
    out += "null";
  } else {
    AppendJsonString(text, out);
  }
}

// Infinity is no JSON: the API says -9999 for what is as good as impossible.
void AppendLogprob(float logprob, std::string& out) {
  if (std::isnan(logprob)) {
    out += "null";
  } else {
    AppendJsonNumber(std::isinf(logprob) ? -9999.0f : logprob, out);
  }
}

void AppendTokenName(const LikelyText& token, bool as_id, std::string& out) {
  if (as_id) {
    absl::StrAppend(&out, "\"token_id:", token.token, "\"");
  } else {
    AppendJsonString(token.text, out);
  }
}

void AppendUsage(const TokenUsage& usage, std::string& out) {
  out += R"({"prompt_tokens":)";
  AppendInt(usage.prompt_tokens, out);
  out += R"(,"completion_tokens":)";
  AppendInt(usage.completion_tokens, out);
  out += R"(,"total_tokens":)";
  AppendInt(usage.prompt_tokens + usage.completion_tokens, out);
  out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  AppendInt(usage.cached_tokens, out);
  if (usage.reasoning_tokens > 0) {
    out += R"(},"completion_tokens_details":{"reasoning_tokens":)";
    AppendInt(usage.reasoning_tokens, out);
  }
  out += "}}";
}

void AppendFinish(const Finish& finish, std::string& out) {
  out += R"(,"finish_reason":)";
  AppendTextOrNull(finish.reason, out);
  if (finish.reason.empty()) return;
  out += R"(,"stop_reason":)";
  if (finish.stop_token >= 0) {
    AppendInt(finish.stop_token, out);
  } else {
    AppendTextOrNull(finish.stop_text, out);
  }
}

void AppendChatToken(const LikelyText& token, bool as_id, std::string& out) {
  out += R"({"token":)";
  AppendTokenName(token, as_id, out);
  out += R"(,"logprob":)";
  AppendLogprob(token.logprob, out);
  out += R"(,"bytes":[)";
  for (size_t i = 0; i < token.text.size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendInt(static_cast<unsigned char>(token.text[i]), out);
  }
  out.push_back(']');
}

void AppendChatLogprobs(std::span<const TokenLogprobs> logprobs, bool as_ids, std::string& out) {
  out += R"({"content":[)";
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendChatToken(logprobs[i].chosen, as_ids, out);
    out += R"(,"top_logprobs":[)";
    for (size_t k = 0; k < logprobs[i].top.size(); ++k) {
      if (k > 0) out.push_back(',');
      AppendChatToken(logprobs[i].top[k], as_ids, out);
      out.push_back('}');
    }
    out += "]}";
  }
  out += R"(],"refusal":null})";
}

// Characters that begin in `text`: of those split over tokens, the first one's.
int64_t CharactersOf(absl::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

// The likeliest tokens of one position, the chosen one among them, each name once.
void AppendTopMap(const TokenLogprobs& position, bool as_ids, std::string& out) {
  const auto same = [&](const LikelyText& a, const LikelyText& b) {
    return as_ids ? a.token == b.token : a.text == b.text;
  };
  out.push_back('{');
  AppendTokenName(position.chosen, as_ids, out);
  out.push_back(':');
  AppendLogprob(position.chosen.logprob, out);
  for (size_t k = 0; k < position.top.size(); ++k) {
    const LikelyText& token = position.top[k];
    bool seen = same(token, position.chosen);
    for (size_t j = 0; j < k && !seen; ++j) seen = same(token, position.top[j]);
    if (seen) continue;
    out.push_back(',');
    AppendTokenName(token, as_ids, out);
    out.push_back(':');
    AppendLogprob(token.logprob, out);
  }
  out.push_back('}');
}

// The older shape, in columns. `offset` is that of the first token, and then that behind the last.
void AppendCompletionLogprobs(std::span<const TokenLogprobs> logprobs, bool as_ids, int64_t& offset,
                              std::string& out) {
  const auto column = [&](absl::string_view name, const auto& append) {
    absl::StrAppend(&out, "\"", name, "\":[");
    for (size_t i = 0; i < logprobs.size(); ++i) {
      if (i > 0) out.push_back(',');
      append(logprobs[i]);
    }
    out.push_back(']');
  };
  out.push_back('{');
  column("text_offset", [&](const TokenLogprobs& position) {
    AppendInt(offset, out);
    offset += CharactersOf(position.chosen.text);
  });
  out.push_back(',');
  column("token_logprobs",
         [&](const TokenLogprobs& position) { AppendLogprob(position.chosen.logprob, out); });
  out.push_back(',');
  column("tokens",
         [&](const TokenLogprobs& position) { AppendTokenName(position.chosen, as_ids, out); });
  out.push_back(',');
  column("top_logprobs", [&](const TokenLogprobs& position) {
    if (std::isnan(position.chosen.logprob)) {
      out += "null";
    } else {
      AppendTopMap(position, as_ids, out);
    }
  });
  out.push_back('}');
}

// As vLLM writes them: null for the first, then a map by token.
void AppendPromptLogprobs(std::span<const TokenLogprobs> logprobs, std::string& out) {
  out.push_back('[');
  const auto entry = [&](const LikelyText& token) {
    absl::StrAppend(&out, "\"", token.token, R"(":{"logprob":)");
    AppendLogprob(token.logprob, out);
    absl::StrAppend(&out, R"(,"rank":)", token.rank + 1, R"(,"decoded_token":)");
    AppendJsonString(token.text, out);
    out.push_back('}');
  };
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (i > 0) out.push_back(',');
    if (std::isnan(logprobs[i].chosen.logprob)) {
      out += "null";
      continue;
    }
    out.push_back('{');
    entry(logprobs[i].chosen);
    for (const LikelyText& token : logprobs[i].top) {
      if (token.token == logprobs[i].chosen.token) continue;
      out.push_back(',');
      entry(token);
    }
    out.push_back('}');
  }
  out.push_back(']');
}

void AppendHead(const AnswerHead& head, absl::string_view object, std::string& out) {
  out += R"({"id":)";
  AppendJsonString(head.id, out);
  absl::StrAppend(&out, R"(,"object":")", object, R"(","created":)", head.created, R"(,"model":)");
  AppendJsonString(head.model, out);
  out += R"(,"system_fingerprint":)";
  AppendTextOrNull(head.system_fingerprint, out);
  out += R"(,"choices":[)";
}

// From the end of the choices to the end of the event.
void EndChunk(StreamStyle style, const TokenUsage& usage, std::string& out) {
  if (style.continuous_usage) {
    out += R"(],"usage":)";
    AppendUsage(usage, out);
    out += "}\n\n";
  } else {
    out += style.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
  }
}

void UsageChunk(absl::string_view prefix, const TokenUsage& usage, std::string& out) {
  out.append(prefix.data(), prefix.size());
  out += R"(],"usage":)";
  AppendUsage(usage, out);
  out += "}\n\n";
}

void AppendToolCall(const ToolCallDelta& call, bool with_index, std::string& out) {
  out.push_back('{');
  if (with_index) {
    out += R"("index":)";
    AppendInt(call.index, out);
    out.push_back(',');
  }
  if (!call.id.empty()) {
    out += R"("id":)";
    AppendJsonString(call.id, out);
    out += R"(,"type":"function",)";
  }
  out += R"("function":{)";
  if (!call.name.empty()) {
    out += R"("name":)";
    AppendJsonString(call.name, out);
    out.push_back(',');
  }
  out += R"("arguments":)";
  AppendJsonString(call.arguments, out);
  out += "}}";
}

}  // namespace

ChatChunks::ChatChunks(const AnswerHead& head, StreamStyle style) : style_(style) {
  prefix_ = "data: ";
  AppendHead(head, "chat.completion.chunk", prefix_);
}

void ChatChunks::BeginDelta(int32_t choice, std::string& out) const {
  out += prefix_;
  out += R"({"index":)";
  AppendInt(choice, out);
  out += R"(,"delta":{)";
}

void ChatChunks::EndDelta(std::span<const TokenLogprobs> logprobs, const Finish& finish,
                          const TokenUsage& usage, std::string& out) const {
  out += R"(},"logprobs":)";
  if (logprobs.empty()) {
    out += "null";
  } else {
    AppendChatLogprobs(logprobs, style_.tokens_as_token_ids, out);
  }
  AppendFinish(finish, out);
  out.push_back('}');
  EndChunk(style_, usage, out);
}

void ChatChunks::Role(int32_t choice, const TokenUsage& usage, std::string& out) const {
  BeginDelta(choice, out);
  out += R"("role":"assistant","content":"")";
  EndDelta({}, {}, usage, out);
}

void ChatChunks::Content(int32_t choice, absl::string_view text,
                         std::span<const TokenLogprobs> logprobs, const TokenUsage& usage,
                         std::string& out) const {
  BeginDelta(choice, out);
  out += R"("content":)";
  AppendJsonString(text, out);
  EndDelta(logprobs, {}, usage, out);
}

void ChatChunks::Reasoning(int32_t choice, absl::string_view text,
                           std::span<const TokenLogprobs> logprobs, const TokenUsage& usage,
                           std::string& out) const {
  BeginDelta(choice, out);
  out += R"("reasoning_content":)";
  AppendJsonString(text, out);
  EndDelta(logprobs, {}, usage, out);
}

void ChatChunks::ToolCall(int32_t choice, const ToolCallDelta& call, const TokenUsage& usage,
                          std::string& out) const {
  BeginDelta(choice, out);
  out += R"("tool_calls":[)";
  AppendToolCall(call, /*with_index=*/true, out);
  out.push_back(']');
  EndDelta({}, {}, usage, out);
}

void ChatChunks::End(int32_t choice, const Finish& finish, const TokenUsage& usage,
                     std::string& out) const {
  BeginDelta(choice, out);
  EndDelta({}, finish, usage, out);
}

void ChatChunks::Usage(const TokenUsage& usage, std::string& out) const {
  UsageChunk(prefix_, usage, out);
}

CompletionChunks::CompletionChunks(const AnswerHead& head, StreamStyle style) : style_(style) {
  prefix_ = "data: ";
  AppendHead(head, "text_completion", prefix_);
}

void CompletionChunks::Text(int32_t choice, absl::string_view text,
                            std::span<const TokenLogprobs> logprobs, const Finish& finish,
                            const TokenUsage& usage, std::string& out) {
  out += prefix_;
  out += R"({"index":)";
  AppendInt(choice, out);
  out += R"(,"text":)";
  AppendJsonString(text, out);
  out += R"(,"logprobs":)";
  if (logprobs.empty()) {
    out += "null";
  } else {
    if (offsets_.size() <= static_cast<size_t>(choice)) {
      offsets_.resize(static_cast<size_t>(choice) + 1);
    }
    AppendCompletionLogprobs(logprobs, style_.tokens_as_token_ids,
                             offsets_[static_cast<size_t>(choice)], out);
  }
  AppendFinish(finish, out);
  out.push_back('}');
  EndChunk(style_, usage, out);
}

void CompletionChunks::Usage(const TokenUsage& usage, std::string& out) const {
  UsageChunk(prefix_, usage, out);
}

std::string ChatCompletionText(const AnswerHead& head, std::span<const ChatChoice> choices,
                               std::span<const TokenLogprobs> prompt_logprobs,
                               const TokenUsage& usage, bool tokens_as_token_ids) {
  std::string out;
  AppendHead(head, "chat.completion", out);
  for (size_t i = 0; i < choices.size(); ++i) {
    const ChatChoice& choice = choices[i];
    absl::StrAppend(&out, i > 0 ? "," : "", R"({"index":)", i,
                    R"(,"message":{"role":"assistant","content":)");
    if (choice.tool_calls.empty()) {
      AppendJsonString(choice.content, out);
    } else {
      AppendTextOrNull(choice.content, out);
    }
    out += R"(,"refusal":null)";
    if (!choice.reasoning.empty()) {
      out += R"(,"reasoning_content":)";
      AppendJsonString(choice.reasoning, out);
    }
    if (!choice.tool_calls.empty()) {
      out += R"(,"tool_calls":[)";
      for (size_t k = 0; k < choice.tool_calls.size(); ++k) {
        if (k > 0) out.push_back(',');
        AppendToolCall(choice.tool_calls[k], /*with_index=*/false, out);
      }
      out.push_back(']');
    }
    out += R"(},"logprobs":)";
    if (choice.wants_logprobs) {
      AppendChatLogprobs(choice.logprobs, tokens_as_token_ids, out);
    } else {
      out += "null";
    }
    AppendFinish(choice.finish, out);
    out.push_back('}');
  }
  out += "]";
  if (!prompt_logprobs.empty()) {
    out += R"(,"prompt_logprobs":)";
    AppendPromptLogprobs(prompt_logprobs, out);
  }
  out += R"(,"usage":)";
  AppendUsage(usage, out);
  out.push_back('}');
  return out;
}

std::string CompletionText(const AnswerHead& head, std::span<const CompletionChoice> choices,
                           const TokenUsage& usage, bool tokens_as_token_ids) {
  std::string out;
  AppendHead(head, "text_completion", out);
  for (size_t i = 0; i < choices.size(); ++i) {
    const CompletionChoice& choice = choices[i];
    absl::StrAppend(&out, i > 0 ? "," : "", R"({"index":)", i, R"(,"text":)");
    AppendJsonString(choice.text, out);
    out += R"(,"logprobs":)";
    if (choice.wants_logprobs) {
      int64_t offset = 0;
      AppendCompletionLogprobs(choice.logprobs, tokens_as_token_ids, offset, out);
    } else {
      out += "null";
    }
    if (!choice.prompt_logprobs.empty()) {
      out += R"(,"prompt_logprobs":)";
      AppendPromptLogprobs(choice.prompt_logprobs, out);
    }
    AppendFinish(choice.finish, out);
    out.push_back('}');
  }
  out += R"(],"usage":)";
  AppendUsage(usage, out);
  out.push_back('}');
  return out;
}

std::string EmbeddingsText(absl::string_view model, std::span<const std::vector<float>> embeddings,
                           bool base64, int64_t prompt_tokens) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < embeddings.size(); ++i) {
    const std::vector<float>& embedding = embeddings[i];
    absl::StrAppend(&out, i > 0 ? "," : "", R"({"object":"embedding","index":)", i,
                    R"(,"embedding":)");
    if (base64) {
      // Little-endian floats, as they lie here.
      const absl::string_view bytes(reinterpret_cast<const char*>(embedding.data()),
                                    embedding.size() * sizeof(float));
      absl::StrAppend(&out, "\"", absl::Base64Escape(bytes), "\"}");
      continue;
    }
    out.push_back('[');
    for (size_t k = 0; k < embedding.size(); ++k) {
      if (k > 0) out.push_back(',');
      AppendJsonNumber(embedding[k], out);
    }
    out += "]}";
  }
  out += R"(],"model":)";
  AppendJsonString(model, out);
  absl::StrAppend(&out, R"(,"usage":{"prompt_tokens":)", prompt_tokens, R"(,"total_tokens":)",
                  prompt_tokens, "}}");
  return out;
}

std::string ModelText(const ModelCard& model) {
  std::string out = R"({"id":)";
  AppendJsonString(model.id, out);
  absl::StrAppend(&out, R"(,"object":"model","created":)", model.created,
                  R"(,"owned_by":"stampmill")");
  if (model.context_tokens > 0) {
    absl::StrAppend(&out, R"(,"max_model_len":)", model.context_tokens);
  }
  out.push_back('}');
  return out;
}

std::string ModelListText(std::span<const ModelCard> models) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < models.size(); ++i) {
    absl::StrAppend(&out, i > 0 ? "," : "", ModelText(models[i]));
  }
  out += "]}";
  return out;
}

std::string TokenizeText(std::span<const int32_t> tokens, int32_t context_tokens,
                         const std::vector<std::string>* pieces) {
  std::string out = absl::StrCat(R"({"count":)", tokens.size(), R"(,"max_model_len":)",
                                 context_tokens, R"(,"tokens":[)");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendInt(tokens[i], out);
  }
  out += R"(],"token_strs":)";
  if (pieces == nullptr) {
    out += "null}";
    return out;
  }
  out.push_back('[');
  for (size_t i = 0; i < pieces->size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendJsonString((*pieces)[i], out);
  }
  out += "]}";
  return out;
}

std::string DetokenizeText(absl::string_view text) {
  std::string escaped;
  AppendJsonString(text, escaped);
  return absl::StrCat(R"({"prompt":)", escaped, R"(,"content":)", escaped, "}");
}

std::string GenerateText(absl::string_view model, absl::string_view id, absl::string_view text) {
  std::string out = "{";
  if (!id.empty()) {
    out += "\"id\":";
    AppendJsonString(id, out);
    out += ',';
  }
  out += "\"model_name\":";
  AppendJsonString(model, out);
  out += ",\"model_version\":\"1\",\"text_output\":";
  AppendJsonString(text, out);
  return out + "}";
}

std::string ErrorText(const ApiError& error) {
  std::string out = R"({"error":{"message":)";
  AppendJsonString(error.message, out);
  out += R"(,"type":)";
  AppendJsonString(error.type, out);
  out += R"(,"param":)";
  AppendTextOrNull(error.param, out);
  out += R"(,"code":)";
  AppendTextOrNull(error.code, out);
  out += "}}";
  return out;
}

void AppendErrorEvent(const ApiError& error, std::string& out) {
  absl::StrAppend(&out, "data: ", ErrorText(error), "\n\n");
}

}  // namespace stampmill
