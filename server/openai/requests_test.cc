#include "server/openai/requests.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/openai/errors.h"

namespace stampmill {
namespace {

constexpr char kMessages[] = R"("messages": [{"role": "user", "content": "hi"}])";

std::string Chat(absl::string_view fields) {
  return absl::StrCat("{\"model\": \"m\", ", kMessages, fields.empty() ? "" : ", ", fields, "}");
}
std::string Completion(absl::string_view fields) {
  return absl::StrCat(R"({"model": "m", "prompt": "p")", fields.empty() ? "" : ", ", fields, "}");
}

ChatRequest ChatOf(absl::string_view body) {
  absl::StatusOr<ChatRequest> request = ParseChatRequest(body);
  EXPECT_TRUE(request.ok()) << request.status() << body;
  return request.ok() ? *std::move(request) : ChatRequest();
}
CompletionRequest CompletionOf(absl::string_view body) {
  absl::StatusOr<CompletionRequest> request = ParseCompletionRequest(body);
  EXPECT_TRUE(request.ok()) << request.status() << body;
  return request.ok() ? *std::move(request) : CompletionRequest();
}

// The error names the field, and its message has `part`.
void ExpectError(const absl::Status& status, absl::string_view param, absl::string_view part,
                 absl::string_view body) {
  ASSERT_FALSE(status.ok()) << body;
  const ApiError error = ToApiError(status);
  EXPECT_EQ(error.status, 400) << body;
  EXPECT_EQ(error.type, "invalid_request_error") << body;
  EXPECT_EQ(error.param, param) << body;
  EXPECT_TRUE(absl::StrContains(error.message, part)) << error.message << " without " << part;
}
void ExpectChatError(absl::string_view fields, absl::string_view param, absl::string_view part) {
  ExpectError(ParseChatRequest(Chat(fields)).status(), param, part, fields);
}
void ExpectCompletionError(absl::string_view fields, absl::string_view param,
                           absl::string_view part) {
  ExpectError(ParseCompletionRequest(Completion(fields)).status(), param, part, fields);
}
void ExpectMessageError(absl::string_view message, absl::string_view param,
                        absl::string_view part) {
  const std::string body = absl::StrCat(R"({"messages": [)", message, "]}");
  ExpectError(ParseChatRequest(body).status(), param, part, body);
}

TEST(ChatRequestTest, HasTheDefaultsOfTheApi) {
  const ChatRequest request = ChatOf(Chat(""));
  EXPECT_EQ(request.options.model, "m");
  EXPECT_EQ(request.options.sampling.temperature, 1);
  EXPECT_EQ(request.options.sampling.logprobs, -1);
  EXPECT_FALSE(request.options.sampling.seed.has_value());
  EXPECT_FALSE(request.options.stop.tokens_max.has_value());
  EXPECT_EQ(request.options.choices, 1);
  EXPECT_FALSE(request.options.stream);
  EXPECT_EQ(request.options.constraint.kind, Constraint::Kind::kNone);
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::kNone);
  EXPECT_TRUE(request.conversation.add_generation_prompt);
}

TEST(ChatRequestTest, ReadsHowTokensAreChosen) {
  const SamplingOptions sampling =
      ChatOf(Chat(R"("temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05,
                     "typical_p": 0.8, "seed": -3, "presence_penalty": 1, "frequency_penalty": -2,
                     "repetition_penalty": 1.1, "logit_bias": {"50": -100, "7": 2.5},
                     "logprobs": true, "top_logprobs": 5, "prompt_logprobs": 2)"))
          .options.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.05f);
  EXPECT_FLOAT_EQ(sampling.typical_p, 0.8f);
  EXPECT_EQ(sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_FLOAT_EQ(sampling.presence_penalty, 1);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, -2);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  const std::vector<std::pair<int32_t, float>> biases = {{7, 2.5f}, {50, -100.f}};
  EXPECT_EQ(sampling.biases, biases);
  EXPECT_EQ(sampling.logprobs, 5);
  EXPECT_EQ(sampling.prompt_logprobs, 2);
  EXPECT_EQ(ChatOf(Chat(R"("top_k": -1, "seed": 18446744073709551615)")).options.sampling.seed,
            ~uint64_t{0});
  EXPECT_EQ(ChatOf(Chat(R"("logprobs": true)")).options.sampling.logprobs, 0);
}

TEST(ChatRequestTest, ReadsWhenToStop) {
  const StopOptions stop =
      ChatOf(Chat(R"("max_tokens": 7, "max_completion_tokens": 9.0, "min_tokens": 2,
                     "stop": ["a", "bc"], "stop_token_ids": [1, 2], "ignore_eos": true,
                     "include_stop_str_in_output": true)"))
          .options.stop;
  EXPECT_EQ(stop.tokens_max, 9);
  EXPECT_EQ(stop.tokens_min, 2);
  EXPECT_EQ(stop.texts, (std::vector<std::string>{"a", "bc"}));
  EXPECT_EQ(stop.tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(stop.ignore_eos);
  EXPECT_TRUE(stop.include_text);
  EXPECT_EQ(ChatOf(Chat(R"("stop": "x")")).options.stop.texts, std::vector<std::string>{"x"});
}

TEST(ChatRequestTest, ReadsWhatTheAnswerIsLike) {
  const GenerationOptions options =
      ChatOf(Chat(R"("n": 3, "best_of": 3, "stream": true, "priority": -5, "timeout": 1.5,
                     "stream_options": {"include_usage": true, "continuous_usage_stats": true},
                     "skip_special_tokens": false, "spaces_between_special_tokens": false,
                     "return_tokens_as_token_ids": true, "add_special_tokens": false,
                     "cache_salt": "s", "user": "u")"))
          .options;
  EXPECT_EQ(options.choices, 3);
  EXPECT_TRUE(options.stream && options.include_usage && options.continuous_usage);
  EXPECT_EQ(options.priority, -5);
  EXPECT_FLOAT_EQ(*options.timeout_seconds, 1.5);
  EXPECT_FALSE(options.skip_special_tokens || options.spaces_between_special_tokens);
  EXPECT_TRUE(options.tokens_as_token_ids);
  EXPECT_EQ(options.add_special_tokens, false);
  EXPECT_EQ(options.cache_salt, "s");
  EXPECT_EQ(options.user, "u");
}

TEST(ChatRequestTest, TakesNullForWhatIsNotSet) {
  const ChatRequest request = ChatOf(
      Chat(R"("temperature": null, "stop": null, "tools": null, "tool_choice": null, "seed": null,
              "response_format": null, "logit_bias": null, "max_tokens": null, "n": null,
              "stream": null, "stream_options": null, "suffix": null, "functions": null)"));
  EXPECT_EQ(request.options.sampling.temperature, 1);
}

TEST(ChatRequestTest, AcceptsWhatItDoesNotKnow) {
  ChatOf(Chat(R"("metadata": {"a": "b"}, "store": false, "service_tier": "auto", "modalities":
                 ["text"], "prompt_cache_key": "k", "whatever": [1, {"x": null}], "mirostat": 0,
                 "lora": [], "use_beam_search": false, "length_penalty": 1.0, "suffix": "")"));
}

TEST(ChatRequestTest, PutsMessagesInTheFormOfTemplates) {
  const ChatRequest request = ChatOf(R"({"messages": [
      {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "developer", "content": "d"}, {"role": "user", "content": "q", "name": "joe"},
      {"role": "assistant", "content": null, "tool_calls": [
          {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
          {"id": "2", "type": "function", "function": {"name": "g", "arguments": "no json"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "function", "name": "f",
       "content": ""}],
      "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false},
      "chat_template": "t", "documents": [{"title": "x"}], "continue_final_message": true})");
  const Conversation& conversation = request.conversation;
  EXPECT_EQ(conversation.messages.size(), 6u);
  EXPECT_EQ(boost::json::serialize(conversation.messages[0]),
            R"({"role":"system","content":"a\nb"})");
  EXPECT_EQ(boost::json::serialize(conversation.messages[3].at("tool_calls")),
            R"([{"id":"1","type":"function","function":{"name":"f","arguments":{"x":1}}},)"
            R"({"id":"2","type":"function","function":{"name":"g","arguments":"no json"}}])");
  EXPECT_EQ(boost::json::serialize(conversation.template_arguments),
            R"({"reasoning_effort":"low","enable_thinking":false})");
  EXPECT_EQ(conversation.chat_template, "t");
  EXPECT_EQ(conversation.documents.size(), 1u);
  EXPECT_TRUE(conversation.continue_final_message);
  EXPECT_FALSE(conversation.add_generation_prompt);
}

TEST(ChatRequestTest, ReadsTools) {
  constexpr char kTools[] =
      R"("tools": [{"type": "function", "function": {"name": "get", "description": "d", "strict":
          true, "parameters": {"type": "object"}}},
          {"type": "function", "function": {"name": "b"}}])";
  ChatRequest request = ChatOf(Chat(kTools));
  ASSERT_EQ(request.tools.size(), 2u);
  EXPECT_EQ(request.tools[0].name, "get");
  EXPECT_EQ(request.tools[0].description, "d");
  EXPECT_EQ(request.tools[0].parameters, R"({"type":"object"})");
  EXPECT_TRUE(request.tools[0].strict);
  EXPECT_EQ(request.tools[1].parameters, "");
  EXPECT_EQ(request.conversation.tools.size(), 2u);
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::kAuto);
  EXPECT_TRUE(request.parallel_tool_calls);
  for (const auto& [text, kind] :
       {std::pair("none", ToolChoice::Kind::kNone), std::pair("auto", ToolChoice::Kind::kAuto),
        std::pair("required", ToolChoice::Kind::kRequired)}) {
    request = ChatOf(Chat(
        absl::StrCat(kTools, R"(, "parallel_tool_calls": false, "tool_choice": ")", text, "\"")));
    EXPECT_EQ(request.tool_choice.kind, kind);
    EXPECT_FALSE(request.parallel_tool_calls);
  }
  request = ChatOf(Chat(
      absl::StrCat(kTools, R"(, "tool_choice": {"type": "function", "function": {"name": "b"}})")));
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::kNamed);
  EXPECT_EQ(request.tool_choice.name, "b");
  for (const char* choice : {R"("any")", "1", R"({"type": "function", "function": {"name": "c"}})",
                             R"({"type": "function"})", R"({"type": "allowed_tools"})"}) {
    EXPECT_FALSE(ParseChatRequest(Chat(absl::StrCat(kTools, ", \"tool_choice\": ", choice))).ok())
        << choice;
  }
  ExpectChatError(absl::StrCat(kTools, R"(, "tool_choice": "required", "guided_regex": "a")"),
                  "tool_choice", "guided_regex");
}

TEST(ChatRequestTest, ReadsEachWayToConstrainTheAnswer) {
  using Kind = Constraint::Kind;
  const struct {
    const char* fields;
    Kind kind;
    const char* text;
  } kCases[] = {
      {R"("response_format": {"type": "text"})", Kind::kNone, ""},
      {R"("response_format": {"type": "json_object"})", Kind::kJsonObject, ""},
      {R"("response_format": {"type": "json_object", "schema": {"a": 1}})", Kind::kJsonSchema,
       R"({"a":1})"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true,
          "schema": {"type": "string"}}})",
       Kind::kJsonSchema, R"({"type":"string"})"},
      {R"("guided_json": {"type": "string"})", Kind::kJsonSchema, R"({"type":"string"})"},
      {R"("guided_json": "{\"type\": \"string\"}")", Kind::kJsonSchema, R"({"type":"string"})"},
      {R"("guided_regex": "a+")", Kind::kRegex, "a+"},
      {R"("guided_grammar": "root ::= x")", Kind::kGrammar, "root ::= x"},
      {R"("guided_choice": ["yes", "no"])", Kind::kChoice, ""},
      {R"("structured_outputs": {"json": true})", Kind::kJsonSchema, "true"},
      {R"("structured_outputs": {"regex": "a"})", Kind::kRegex, "a"},
      {R"("structured_outputs": {"grammar": "g"})", Kind::kGrammar, "g"},
      {R"("structured_outputs": {"choice": ["yes", "no"]})", Kind::kChoice, ""},
      {R"("structured_outputs": {"json_object": true})", Kind::kJsonObject, ""},
      {R"("grammar": "root ::= y")", Kind::kGrammar, "root ::= y"},
      {R"("grammar": "")", Kind::kNone, ""},
      {R"("json_schema": {})", Kind::kJsonSchema, "{}"},
  };
  for (const auto& test : kCases) {
    const Constraint constraint = ChatOf(Chat(test.fields)).options.constraint;
    EXPECT_EQ(constraint.kind, test.kind) << test.fields;
    EXPECT_EQ(constraint.text, test.text) << test.fields;
    if (test.kind == Kind::kChoice) {
      EXPECT_EQ(constraint.choices, (std::vector<std::string>{"yes", "no"}));
    }
  }
}

TEST(ChatRequestTest, RefusesConstraintsThatAreNone) {
  ExpectChatError(R"("response_format": {"type": "xml"})", "response_format.type", "xml");
  ExpectChatError(R"("response_format": {})", "response_format.type", "json_schema");
  ExpectChatError(R"("response_format": {"type": "json_schema"})", "response_format.json_schema",
                  "missing");
  ExpectChatError(R"("response_format": {"type": "json_schema", "json_schema": {}})",
                  "response_format.json_schema.schema", "missing");
  ExpectChatError(R"("response_format": {"type": "json_schema", "json_schema": {"schema": 3}})",
                  "response_format.json_schema.schema", "a number");
  ExpectChatError(R"("guided_json": "{")", "guided_json", "JSON");
  ExpectChatError(R"("guided_json": [])", "guided_json", "an array");
  ExpectChatError(R"("guided_regex": "")", "guided_regex", "empty");
  ExpectChatError(R"("guided_choice": [])", "guided_choice", "no choices");
  ExpectChatError(R"("guided_choice": ["a", 1])", "guided_choice[1]", "a number");
  ExpectChatError(R"("guided_regex": "a", "grammar": "b")", "grammar", "guided_regex");
  ExpectChatError(R"("structured_outputs": {"structural_tag": "x"})",
                  "structured_outputs.structural_tag", "not supported");
}

// A value of each wrong type for each field.
TEST(ChatRequestTest, RefusesWrongTypesInEveryField) {
  const struct {
    std::vector<const char*> fields;
    std::vector<const char*> values;
  } kCases[] = {
      {{"model", "user", "cache_salt", "chat_template", "reasoning_effort", "guided_regex",
        "guided_grammar"},
       {"1", "true", "[]", "{}"}},
      {{"temperature", "top_p", "min_p", "typical_p", "presence_penalty", "frequency_penalty",
        "repetition_penalty", "repeat_penalty", "timeout"},
       {"\"1\"", "true", "[]", "{}", "[1]"}},
      {{"top_k", "n", "best_of", "max_tokens", "max_completion_tokens", "min_tokens", "seed",
        "priority", "prompt_logprobs", "top_logprobs"},
       {"\"1\"", "1.5", "true", "[]", "{}", "1e300", "18446744073709551616"}},
      {{"stream", "logprobs", "ignore_eos", "skip_special_tokens", "echo", "parallel_tool_calls",
        "spaces_between_special_tokens", "include_stop_str_in_output", "add_generation_prompt",
        "continue_final_message", "return_tokens_as_token_ids", "add_special_tokens"},
       {"1", "\"true\"", "[]", "{}", "0"}},
      {{"stop"}, {"1", "true", "{}", "[1]", "[[]]", "[null]"}},
      {{"stop_token_ids", "tools", "documents", "guided_choice"}, {"1", "\"a\"", "{}", "true"}},
      {{"stop_token_ids"}, {"[\"1\"]", "[1.5]", "[-1]", "[2147483648]", "[null]"}},
      {{"logit_bias", "stream_options", "response_format", "structured_outputs",
        "chat_template_kwargs"},
       {"1", "\"a\"", "[]", "true"}},
      {{"logit_bias"}, {R"({"a": 1})", R"({"-1": 1})", R"({"1": "1"})", R"({"1": null})"}},
      {{"tools"}, {"[1]", "[{}]", R"([{"type": "function"}])"}},
      {{"tool_choice"}, {"1", "[]", "\"required\"", "{}"}},
  };
  for (const auto& [fields, values] : kCases) {
    for (const char* field : fields) {
      for (const char* value : values) {
        const std::string body = Chat(absl::StrCat("\"stream\": true, \"", field, "\": ", value));
        const absl::Status status = ParseChatRequest(body).status();
        ASSERT_TRUE(absl::IsInvalidArgument(status)) << body;
        const ApiError error = ToApiError(status);
        EXPECT_TRUE(absl::StartsWith(error.param, field)) << body << status;
        EXPECT_TRUE(absl::StartsWith(error.message, error.param)) << body << status;
      }
    }
  }
}

TEST(ChatRequestTest, RefusesValuesBeyondTheirLimits) {
  const struct {
    const char* field;
    std::vector<const char*> values;
  } kCases[] = {
      {"temperature", {"-0.1", "101", "1e39", "-1e300"}},
      {"top_p", {"-0.1", "1.1"}},
      {"min_p", {"-0.1", "1.1"}},
      {"typical_p", {"-0.1", "1.1"}},
      {"top_k", {"-2", "2147483648"}},
      {"presence_penalty", {"-2.1", "2.1"}},
      {"frequency_penalty", {"-2.1", "2.1"}},
      {"repetition_penalty", {"0", "-1", "101"}},
      {"n", {"0", "-1", "129", "4294967297"}},
      {"max_tokens", {"0", "-1", "2147483648", "99999999999999999999"}},
      {"max_completion_tokens", {"-1", "2147483648"}},
      {"min_tokens", {"-1"}},
      {"prompt_logprobs", {"-1", "21"}},
      {"priority", {"-9", "9"}},
      {"timeout", {"0", "-1", "100000"}},
      {"logit_bias", {R"({"1": 100.5})", R"({"1": -101})", R"({"1": 1, "01": 2})"}},
  };
  for (const auto& [field, values] : kCases) {
    for (const char* value : values) {
      const absl::Status status =
          ParseChatRequest(Chat(absl::StrCat("\"", field, "\": ", value))).status();
      ASSERT_TRUE(absl::IsInvalidArgument(status)) << field << value;
      EXPECT_TRUE(absl::StartsWith(ToApiError(status).param, field)) << status;
    }
  }
  ExpectChatError(R"("temperature": -1)", "temperature", "got -1, limit 0 to 100");
  ExpectChatError(R"("max_tokens": 3, "min_tokens": 4)", "min_tokens", "got 4, limit 3");
  ExpectChatError(R"("top_logprobs": 2)", "top_logprobs", "logprobs: true");
  ExpectChatError(R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "limit 0 to 20");
  ExpectChatError(R"("stream_options": {"include_usage": true})", "stream_options", "stream");
  ExpectChatError(R"("stream": true, "stream_options": {"include_usage": 1})",
                  "stream_options.include_usage", "a number");
  ExpectChatError(R"("stream": true, "prompt_logprobs": 1)", "prompt_logprobs", "stream");
  ExpectChatError(absl::StrCat("\"stop\": [\"", std::string(513, 'x'), "\"]"), "stop[0]", "513");
  ExpectChatError(R"("stop": ["a", ""])", "stop[1]", "0 bytes");
  std::string stops = "\"a\"";
  for (int i = 0; i < 16; ++i) stops += ", \"a\"";
  ExpectChatError(absl::StrCat("\"stop\": [", stops, "]"), "stop", "got 17 entries, limit 16");
  ExpectChatError(R"("continue_final_message": true, "add_generation_prompt": true)",
                  "continue_final_message", "add_generation_prompt");
}

TEST(ChatRequestTest, RefusesByNameWhatIsNotOffered) {
  for (const char* field :
       {R"("suffix": "x")", R"("use_beam_search": true)", R"("best_of": 2)",
        R"("modalities": ["text", "audio"])", R"("audio": {})", R"("lora": [{"id": 0}])",
        R"("lora_request": {})", R"("functions": [{"name": "f"}])", R"("function_call": "auto")",
        R"("logits_processors": ["x"])", R"("bad_words": ["x"])", R"("mirostat": 2)",
        R"("allowed_token_ids": [1])", R"("length_penalty": 0.5)", R"("echo": true)"}) {
    const absl::Status status = ParseChatRequest(Chat(field)).status();
    ASSERT_FALSE(status.ok()) << field;
    const ApiError error = ToApiError(status);
    EXPECT_EQ(error.code, "unsupported_parameter") << status;
    EXPECT_EQ(error.status, 400);
    EXPECT_TRUE(absl::StrContains(field, absl::StrCat("\"", error.param, "\""))) << status;
  }
}

TEST(ChatRequestTest, RefusesMessagesThatAreNone) {
  for (const char* body : {"{}", R"({"messages": []})", R"({"messages": null})",
                           R"({"messages": "hi"})", R"({"messages": {}})"}) {
    ExpectError(ParseChatRequest(body).status(), "messages", "", body);
  }
  ExpectMessageError("1", "messages[0]", "a number");
  ExpectMessageError("{}", "messages[0].role", "missing");
  ExpectMessageError(R"({"role": "king", "content": "x"})", "messages[0].role", "king");
  ExpectMessageError(R"({"role": 1, "content": "x"})", "messages[0].role", "a number");
  ExpectMessageError(R"({"role": "user"})", "messages[0].content", "missing");
  ExpectMessageError(R"({"role": "user", "content": 1})", "messages[0].content", "a number");
  ExpectMessageError(R"({"role": "user", "content": ["x"]})", "messages[0].content[0]", "a string");
  ExpectMessageError(R"({"role": "user", "content": [{"type": "text"}]})",
                     "messages[0].content[0].text", "missing");
  ExpectMessageError(R"({"role": "user", "content": [{"text": "x"}]})",
                     "messages[0].content[0].type", "missing");
  for (const char* type : {"image_url", "input_audio", "video_url", "file"}) {
    ExpectMessageError(absl::StrCat(R"({"role": "user", "content": [{"type": ")", type, R"("}]})"),
                       "messages[0].content[0].type", type);
  }
  ExpectMessageError(R"({"role": "user", "content": "x", "name": 1})", "messages[0].name",
                     "a number");
  ExpectMessageError(R"({"role": "user", "content": "x", "tool_calls": []})",
                     "messages[0].tool_calls", "assistant");
  ExpectMessageError(R"({"role": "assistant", "tool_calls": 1})", "messages[0].tool_calls",
                     "a number");
  ExpectMessageError(R"({"role": "assistant", "tool_calls": [{"type": "function"}]})",
                     "messages[0].tool_calls[0].function", "missing");
  ExpectMessageError(
      R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]})",
      "messages[0].tool_calls[0].function.arguments", "a number");
  ExpectMessageError(R"({"role": "assistant", "tool_calls": [{"function": {"arguments": "1"}}]})",
                     "messages[0].tool_calls[0].function.name", "missing");
  ExpectChatError(R"("tools": [{"type": "function", "function": {"name": "a b"}}])",
                  "tools[0].function.name", "a b");
  ExpectChatError(R"("tools": [{"type": "function", "function": {"name": "a"}},
                               {"type": "function", "function": {"name": "a"}}])",
                  "tools[1].function.name", "twice");
  ExpectChatError(R"("tools": [{"type": "custom", "function": {"name": "a"}}])", "tools[0].type",
                  "custom");
}

TEST(RequestsTest, RefuseWhatIsNoJsonObject) {
  std::string deep = "{\"model\": ";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  for (const std::string& body :
       {std::string(""), std::string("{"), std::string("[]"), std::string("1"), std::string("null"),
        std::string("{} x"), std::string("{\"model\": \"\xff\"}"), std::string("{\"a\": NaN}"),
        deep}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseChatRequest(body).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCompletionRequest(body).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(ParseEmbeddingRequest(body).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(ParseTokenizeRequest(body).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDetokenizeRequest(body).status()));
  }
}

TEST(CompletionRequestTest, TakesPromptsInEveryForm) {
  EXPECT_EQ(CompletionOf(R"({"prompt": "a"})").prompts[0].text, "a");
  EXPECT_EQ(CompletionOf(R"({"prompt": ""})").prompts.size(), 1u);
  CompletionRequest request = CompletionOf(R"({"prompt": ["a", "b"]})");
  ASSERT_EQ(request.prompts.size(), 2u);
  EXPECT_EQ(request.prompts[1].text, "b");
  EXPECT_FALSE(request.prompts[1].is_tokens);
  request = CompletionOf(R"({"prompt": [1, 2, 3]})");
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_TRUE(request.prompts[0].is_tokens);
  EXPECT_EQ(request.prompts[0].tokens, (std::vector<int32_t>{1, 2, 3}));
  request = CompletionOf(R"({"prompt": [[1], [2, 3]]})");
  ASSERT_EQ(request.prompts.size(), 2u);
  EXPECT_EQ(request.prompts[1].tokens, (std::vector<int32_t>{2, 3}));
  for (const char* prompt : {"1", "{}", "[]", "[[]]", "[1, \"a\"]", "[-1]", "[1.5]", "[null]",
                             "[[1], [\"a\"]]", "[true]", "null", "[\"a\", 1]"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        ParseCompletionRequest(absl::StrCat(R"({"prompt": )", prompt, "}")).status()))
        << prompt;
  }
}

TEST(CompletionRequestTest, ReadsWhatOnlyCompletionsHave) {
  const CompletionRequest request =
      CompletionOf(Completion(R"("logprobs": 3, "echo": true, "max_tokens": 0)"));
  EXPECT_EQ(request.options.sampling.logprobs, 3);
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.options.stop.tokens_max, 0);
  ExpectCompletionError(R"("logprobs": true)", "logprobs", "a boolean");
  ExpectCompletionError(R"("logprobs": 21)", "logprobs", "limit 0 to 20");
  ExpectCompletionError(R"("max_tokens": 0)", "max_tokens", "echo");
  ExpectCompletionError(R"("suffix": "x")", "suffix", "not supported");
  ExpectCompletionError(R"("best_of": 3)", "best_of", "only n");
  std::string prompts = "\"a\"";
  for (int i = 0; i < 99; ++i) prompts += ", \"a\"";
  ExpectError(
      ParseCompletionRequest(absl::StrCat(R"({"n": 100, "prompt": [)", prompts, "]}")).status(),
      "n", "got 10000 answers together, limit 2048", "");
}

TEST(EmbeddingRequestTest, ReadsItsFields) {
  const auto request = ParseEmbeddingRequest(
      R"({"model": "m", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 64})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->inputs.size(), 2u);
  EXPECT_TRUE(request->base64);
  EXPECT_EQ(request->dimensions, 64);
  for (const char* body :
       {R"({"model": "m"})", R"({"input": ""})", R"({"input": ["a", ""]})", R"({"input": []})",
        R"({"input": "a", "encoding_format": "hex"})", R"({"input": "a", "dimensions": 0})",
        R"({"input": "a", "model": 1})", R"({"input": {"text": "a"}})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseEmbeddingRequest(body).status())) << body;
  }
}

TEST(TokenizeRequestTest, TakesATextOrAConversation) {
  auto request = ParseTokenizeRequest(
      R"({"model": "m", "prompt": "a", "add_special_tokens": false, "return_token_strs": true})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->prompt, "a");
  EXPECT_EQ(request->add_special_tokens, false);
  EXPECT_TRUE(request->with_pieces);
  request = ParseTokenizeRequest(R"({"content": "b", "add_special": true, "with_pieces": true})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->prompt, "b");
  EXPECT_EQ(request->add_special_tokens, true);
  request = ParseTokenizeRequest(Chat(""));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->conversation->messages.size(), 1u);
  for (const char* body : {"{}", R"({"prompt": 1})", R"({"prompt": "a", "content": "b"})",
                           R"({"messages": []})", R"({"prompt": "a", "add_special": 1})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseTokenizeRequest(body).status())) << body;
  }
}

TEST(DetokenizeRequestTest, TakesTokens) {
  const auto request = ParseDetokenizeRequest(R"({"model": "m", "tokens": [1, 2]})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->tokens, (std::vector<int32_t>{1, 2}));
  for (const char* body :
       {"{}", R"({"tokens": 1})", R"({"tokens": ["a"]})", R"({"tokens": [-1]})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDetokenizeRequest(body).status())) << body;
  }
}

TEST(ApiErrorTest, HasTheCodesOfTheApi) {
  EXPECT_EQ(ToApiError(absl::NotFoundError("m")).status, 404);
  EXPECT_EQ(ToApiError(absl::UnimplementedError("m")).status, 501);
  EXPECT_EQ(ToApiError(absl::UnavailableError("m")).status, 429);
  EXPECT_EQ(ToApiError(NotReady("m")).status, 503);
  EXPECT_EQ(ToApiError(NotReady("m")).code, "not_ready");
  EXPECT_EQ(ToApiError(absl::ResourceExhaustedError("m")).status, 429);
  EXPECT_EQ(ToApiError(absl::DeadlineExceededError("m")).status, 503);
  EXPECT_EQ(ToApiError(absl::InternalError("m")).status, 500);
  const ApiError error = ToApiError(ContextTooLong("messages", "got 9 tokens, limit 8"));
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.param, "messages");
  EXPECT_EQ(error.message, "messages: got 9 tokens, limit 8");
}

}  // namespace
}  // namespace stampmill
