#include "server/openai/responses.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

namespace json = boost::json;

const AnswerHead kHead = {
    .id = "chatcmpl-1", .model = "m\"x", .created = 1700000000, .system_fingerprint = "fp"};
const TokenUsage kUsage = {.prompt_tokens = 3, .completion_tokens = 2, .cached_tokens = 1};

json::value Parse(absl::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse({text.data(), text.size()}, error);
  EXPECT_FALSE(error) << text;
  return value;
}

// The JSON of one event.
json::value EventOf(absl::string_view text) {
  EXPECT_TRUE(absl::ConsumePrefix(&text, "data: ")) << text;
  EXPECT_TRUE(absl::ConsumeSuffix(&text, "\n\n")) << text;
  EXPECT_FALSE(absl::StrContains(text, "\n"));
  return Parse(text);
}

const json::value& ChoiceOf(const json::value& answer) { return answer.at("choices").at(0); }

TEST(ChatChunksTest, ArePartsOfOneAnswer) {
  const ChatChunks chunks(kHead, {});
  std::string out;
  chunks.Role(2, kUsage, out);
  json::value event = EventOf(out);
  EXPECT_EQ(event.at("id"), "chatcmpl-1");
  EXPECT_EQ(event.at("object"), "chat.completion.chunk");
  EXPECT_EQ(event.at("created"), 1700000000);
  EXPECT_EQ(event.at("model"), "m\"x");
  EXPECT_EQ(event.at("system_fingerprint"), "fp");
  EXPECT_EQ(ChoiceOf(event), Parse(R"({"index":2,"delta":{"role":"assistant","content":""},
                                       "logprobs":null,"finish_reason":null})"));
  EXPECT_EQ(event.as_object().count("usage"), 0u);
  out.clear();
  chunks.Content(0, "a\n\"\xE2\x82\xAC\"", {}, kUsage, out);
  EXPECT_EQ(ChoiceOf(EventOf(out)).at("delta"), Parse(R"({"content":"a\n\"€\""})"));
  out.clear();
  chunks.Reasoning(0, "hm", {}, kUsage, out);
  EXPECT_EQ(ChoiceOf(EventOf(out)).at("delta"), Parse(R"({"reasoning_content":"hm"})"));
  out.clear();
  chunks.ToolCall(0, {.index = 1, .id = "call_1", .name = "f"}, kUsage, out);
  EXPECT_EQ(ChoiceOf(EventOf(out)).at("delta"),
            Parse(R"({"tool_calls":[{"index":1,"id":"call_1","type":"function",
                                     "function":{"name":"f","arguments":""}}]})"));
  out.clear();
  chunks.ToolCall(0, {.index = 1, .arguments = "{\"x\""}, kUsage, out);
  EXPECT_EQ(ChoiceOf(EventOf(out)).at("delta"),
            Parse(R"({"tool_calls":[{"index":1,"function":{"arguments":"{\"x\""}}]})"));
  out.clear();
  chunks.End(0, {.reason = "stop", .stop_token = 7}, kUsage, out);
  EXPECT_EQ(ChoiceOf(EventOf(out)), Parse(R"({"index":0,"delta":{},"logprobs":null,
                                              "finish_reason":"stop","stop_reason":7})"));
}

TEST(ChatChunksTest, HaveTheUsageThatIsWanted) {
  const json::value usage = Parse(R"({"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,
                                      "prompt_tokens_details":{"cached_tokens":1}})");
  std::string out;
  const ChatChunks last(kHead, {.include_usage = true});
  last.Content(0, "x", {}, kUsage, out);
  EXPECT_TRUE(EventOf(out).at("usage").is_null());
  out.clear();
  last.Usage(kUsage, out);
  EXPECT_EQ(EventOf(out).at("usage"), usage);
  EXPECT_TRUE(EventOf(out).at("choices").as_array().empty());
  out.clear();
  const ChatChunks each(kHead, {.include_usage = true, .continuous_usage = true});
  each.Content(0, "x", {}, kUsage, out);
  EXPECT_EQ(EventOf(out).at("usage"), usage);
}

TEST(ChatChunksTest, TellLogprobs) {
  const std::vector<LikelyText> top = {
      {.text = "a", .token = 5, .logprob = -0.5f},
      {.text = "\xE2", .token = 6, .logprob = -std::numeric_limits<float>::infinity()}};
  const TokenLogprobs one = {.chosen = top[0], .top = top};
  std::string out;
  ChatChunks(kHead, {}).Content(0, "a", {&one, 1}, kUsage, out);
  EXPECT_EQ(ChoiceOf(EventOf(out)).at("logprobs"),
            Parse(R"({"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[
                      {"token":"a","logprob":-0.5,"bytes":[97]},
                      {"token":"\ufffd","logprob":-9999.0,"bytes":[226]}]}],"refusal":null})"));
  out.clear();
  ChatChunks(kHead, {.tokens_as_token_ids = true}).Content(0, "a", {&one, 1}, kUsage, out);
  EXPECT_TRUE(absl::StrContains(out, R"("token":"token_id:6")"));
}

TEST(CompletionChunksTest, TellLogprobsInColumns) {
  const std::vector<LikelyText> top = {{.text = "b", .token = 2, .logprob = -0.25f},
                                       {.text = "b", .token = 3, .logprob = -2.f}};
  const std::vector<TokenLogprobs> first = {
      {.chosen = {.text = "\xC3\xA9x", .token = 1}},
      {.chosen = {.text = "a", .token = 9, .logprob = -3.f}, .top = top}};
  const TokenLogprobs second = {.chosen = top[0], .top = top};
  CompletionChunks chunks(kHead, {});
  std::string out;
  chunks.Text(1, "\xC3\xA9xa", first, {}, kUsage, out);
  EXPECT_EQ(ChoiceOf(EventOf(out)),
            Parse(R"({"index":1,"text":"éxa","logprobs":{"text_offset":[0,2],
                      "token_logprobs":[null,-3.0],"tokens":["éx","a"],
                      "top_logprobs":[null,{"a":-3.0,"b":-0.25}]},"finish_reason":null})"));
  out.clear();
  chunks.Text(1, "b", {&second, 1}, {.reason = "stop", .stop_text = "END"}, kUsage, out);
  EXPECT_EQ(ChoiceOf(EventOf(out)),
            Parse(R"({"index":1,"text":"b","logprobs":{"text_offset":[3],"token_logprobs":[-0.25],
                      "tokens":["b"],"top_logprobs":[{"b":-0.25}]},
                      "finish_reason":"stop","stop_reason":"END"})"));
}

TEST(AnswersTest, TellChatsWhole) {
  const LikelyText token = {.text = "x", .token = 4, .logprob = -1.f, .rank = 2};
  const std::vector<TokenLogprobs> prompt = {{.chosen = {.text = "p", .token = 3}},
                                             {.chosen = token}};
  const std::vector<ChatChoice> choices = {
      {.content = "hi", .finish = {.reason = "length"}},
      {.reasoning = "why",
       .tool_calls = {{.id = "c", .name = "f", .arguments = "{}"}},
       .logprobs = {{.chosen = token}},
       .wants_logprobs = true,
       .finish = {.reason = "tool_calls"}}};
  const json::value answer = Parse(ChatCompletionText(kHead, choices, prompt, kUsage, false));
  EXPECT_EQ(answer.at("object"), "chat.completion");
  EXPECT_EQ(answer.at("choices").at(0),
            Parse(R"({"index":0,"message":{"role":"assistant","content":"hi","refusal":null},
                      "logprobs":null,"finish_reason":"length","stop_reason":null})"));
  EXPECT_EQ(answer.at("choices").at(1),
            Parse(R"({"index":1,"message":{"role":"assistant","content":null,"refusal":null,
                      "reasoning_content":"why","tool_calls":[{"id":"c","type":"function",
                      "function":{"name":"f","arguments":"{}"}}]},
                      "logprobs":{"content":[{"token":"x","logprob":-1.0,"bytes":[120],
                      "top_logprobs":[]}],"refusal":null},
                      "finish_reason":"tool_calls","stop_reason":null})"));
  EXPECT_EQ(answer.at("prompt_logprobs"),
            Parse(R"([null,{"4":{"logprob":-1.0,"rank":3,"decoded_token":"x"}}])"));
  EXPECT_EQ(answer.at("usage").at("total_tokens"), 5);
}

TEST(AnswersTest, TellCompletionsWhole) {
  const std::vector<CompletionChoice> choices = {
      {.text = "a", .wants_logprobs = true, .finish = {.reason = "stop"}}, {.text = "b"}};
  const json::value answer = Parse(CompletionText(kHead, choices, kUsage, false));
  EXPECT_EQ(answer.at("object"), "text_completion");
  EXPECT_EQ(answer.at("choices").at(0).at("logprobs").at("tokens"), Parse("[]"));
  EXPECT_EQ(answer.at("choices").at(1).at("text"), "b");
}

TEST(AnswersTest, TellEmbeddings) {
  const std::vector<std::vector<float>> embeddings = {{1.f, -0.5f}, {}};
  EXPECT_EQ(Parse(EmbeddingsText("m", embeddings, false, 4)),
            Parse(R"({"object":"list","data":[{"object":"embedding","index":0,
                      "embedding":[1.0,-0.5]},{"object":"embedding","index":1,"embedding":[]}],
                      "model":"m","usage":{"prompt_tokens":4,"total_tokens":4}})"));
  EXPECT_EQ(Parse(EmbeddingsText("m", embeddings, true, 4)).at("data").at(0).at("embedding"),
            "AACAPwAAAL8=");
}

TEST(AnswersTest, TellModelsTokensAndErrors) {
  const std::vector<ModelCard> models = {{.id = "a", .created = 5, .context_tokens = 9},
                                         {.id = "b"}};
  EXPECT_EQ(Parse(ModelListText(models)),
            Parse(R"({"object":"list","data":[{"id":"a","object":"model","created":5,
                      "owned_by":"stampmill","max_model_len":9},
                      {"id":"b","object":"model","created":0,"owned_by":"stampmill"}]})"));
  const std::vector<int32_t> tokens = {7, 8};
  const std::vector<std::string> pieces = {"x", "\xFF"};
  EXPECT_EQ(TokenizeText(tokens, 9, nullptr),
            R"({"count":2,"max_model_len":9,"tokens":[7,8],"token_strs":null})");
  EXPECT_EQ(Parse(TokenizeText(tokens, 9, &pieces)).at("token_strs"), Parse(R"(["x","\ufffd"])"));
  EXPECT_EQ(DetokenizeText("a\"b"), R"({"prompt":"a\"b","content":"a\"b"})");
  const ApiError error = {
      .status = 400, .message = "n: bad", .type = "invalid_request_error", .param = "n"};
  EXPECT_EQ(ErrorText(error), R"({"error":{"message":"n: bad","type":"invalid_request_error",)"
                              R"("param":"n","code":null}})");
  std::string out;
  AppendErrorEvent(error, out);
  EXPECT_EQ(EventOf(out).at("error").at("message"), "n: bad");
}

}  // namespace
}  // namespace stampmill
