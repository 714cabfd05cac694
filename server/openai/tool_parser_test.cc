#include "server/openai/tool_parser.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

using Calls = std::vector<std::pair<std::string, std::string>>;

struct Output {
  std::string content, reasoning;
  Calls calls;  // name and arguments
  bool operator==(const Output&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Output& output) {
  out << "content '" << output.content << "' reasoning '" << output.reasoning << "'";
  for (const auto& [name, arguments] : output.calls) out << " " << name << "(" << arguments << ")";
  return out;
}

// `text` in pieces of the sizes that `next_size` says.
template <typename Size>
Output ParseIn(const OutputFormat& format, absl::string_view text, const Size& next_size) {
  int ids = 0;
  OutputParser parser(format, [&ids] { return absl::StrCat("call_", ids++); });
  Output output;
  OutputDelta delta;
  const auto take = [&] {
    output.content += delta.content;
    output.reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.calls) {
      if (!call.name.empty()) {
        EXPECT_EQ(call.index, static_cast<int32_t>(output.calls.size()));
        EXPECT_EQ(call.id, absl::StrCat("call_", call.index));
        output.calls.emplace_back(call.name, "");
      }
      EXPECT_EQ(call.index + 1, static_cast<int32_t>(output.calls.size()));
      output.calls.back().second += call.arguments;
    }
    delta.Clear();
  };
  while (!text.empty()) {
    const size_t size = std::min<size_t>(next_size(), text.size());
    parser.Add(text.substr(0, size), delta);
    take();
    text.remove_prefix(size);
  }
  parser.Finish(delta);
  take();
  EXPECT_EQ(parser.calls(), static_cast<int32_t>(output.calls.size()));
  return output;
}

// However it is cut into pieces.
void ExpectOutput(const OutputFormat& format, absl::string_view text, const Output& expected) {
  EXPECT_EQ(ParseIn(format, text, [&] { return text.size(); }), expected) << text;
  EXPECT_EQ(ParseIn(format, text, [] { return 1; }), expected) << text;
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(ParseIn(format, text, [&] { return 1 + random() % 9; }), expected) << text;
  }
}

TEST(OutputParserTest, PassesOnWhatHasNoFormat) {
  ExpectOutput({}, " <think>a</think> <tool_call>{}</tool_call>",
               {.content = " <think>a</think> <tool_call>{}</tool_call>"});
}

TEST(OutputParserTest, ReadsCallsOfHermes) {
  const OutputFormat hermes = {.tools = ToolFormat::kHermes};
  ExpectOutput(hermes, " just text ", {.content = " just text "});
  ExpectOutput(hermes, "a <tool", {.content = "a <tool"});
  ExpectOutput(hermes, "a <b> <tool_x> c", {.content = "a <b> <tool_x> c"});
  ExpectOutput(
      hermes,
      "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"x\": \"}\\\"{\", \"y\": [1, {}]}}\n"
      "</tool_call>",
      {.calls = {{"get", R"({"x": "}\"{", "y": [1, {}]})"}}});
  ExpectOutput(hermes,
               "Let me see.\n<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n"
               "<tool_call>{\"name\":\"b\",\"arguments\":{\"q\":1}}</tool_call>\n",
               {.content = "Let me see.\n", .calls = {{"a", "{}"}, {"b", R"({"q":1})"}}});
  ExpectOutput(hermes, "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call> done",
               {.content = " done", .calls = {{"a", "{}"}}});
}

TEST(OutputParserTest, TakesCallsInOtherOrdersAndForms) {
  const OutputFormat hermes = {.tools = ToolFormat::kHermes};
  ExpectOutput(hermes, R"(<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call>)",
               {.calls = {{"f", R"({"x": 1})"}}});
  ExpectOutput(hermes, R"(<tool_call>{"name": "f"}</tool_call>)", {.calls = {{"f", "{}"}}});
  ExpectOutput(hermes,
               R"(<tool_call>{"id": 7, "name": "f", "arguments": {}, "t": [1]}</tool_call>)",
               {.calls = {{"f", "{}"}}});
  ExpectOutput(hermes, R"(<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call>)",
               {.calls = {{"f", R"({"x": 1})"}}});
  // Without its end.
  ExpectOutput(hermes, R"(<tool_call>{"name": "f", "arguments": {"x": )",
               {.calls = {{"f", R"({"x": )"}}});
}

TEST(OutputParserTest, KeepsWhatIsNoCallAsContent) {
  const OutputFormat hermes = {.tools = ToolFormat::kHermes};
  for (const char* text :
       {"<tool_call>", "<tool_call>\n", "<tool_call>{\"name\": ", "<tool_call>[1]",
        "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"\"}", "<tool_call>{name: 1}", "<tool_call>{\"name\":\"f\",}",
        "<tool_call>{\"x\": }", "<tool_call>text</tool_call>",
        "<tool_call>{\"arguments\": 5, \"name\": \"f\"}"}) {
    ExpectOutput(hermes, text, {.content = text});
  }
}

TEST(OutputParserTest, ReadsCallsOfLlama3) {
  const OutputFormat llama = {.tools = ToolFormat::kLlama3, .tool_names = {"get", "b"}};
  ExpectOutput(llama, R"({"name": "get", "parameters": {"x": 1}})",
               {.calls = {{"get", R"({"x": 1})"}}});
  ExpectOutput(llama, R"( {"type": "function", "name": "get", "parameters": {}} )",
               {.calls = {{"get", "{}"}}});
  ExpectOutput(llama, R"(<|python_tag|>{"name": "get", "parameters": {}})",
               {.calls = {{"get", "{}"}}});
  ExpectOutput(llama, R"({"name": "get", "parameters": {}}; {"name": "b", "parameters": {"y":2}})",
               {.calls = {{"get", "{}"}, {"b", R"({"y":2})"}}});
  // JSON that is an answer.
  for (const char* text :
       {R"({"name": "joe", "parameters": {"x": 1}})", R"({"name": "get", "age": 3})",
        R"({"a": {"name": "get", "parameters": {}}})", " {}", "{", "{\"name\": \"get\"}",
        "<|python_tag|>print(1)", "text {\"name\": \"get\", \"parameters\": {}}"}) {
    ExpectOutput(llama, text, {.content = text});
  }
}

TEST(OutputParserTest, ReadsCallsOfMistral) {
  const OutputFormat mistral = {.tools = ToolFormat::kMistral};
  ExpectOutput(mistral,
               R"([TOOL_CALLS] [{"name": "a", "arguments": {"x": "]"}}, )"
               R"({"name": "b", "arguments": {}}])",
               {.calls = {{"a", R"({"x": "]"})"}, {"b", "{}"}}});
  ExpectOutput(mistral, R"([TOOL_CALLS]get[ARGS]{"x": 1}[TOOL_CALLS]b{})",
               {.calls = {{"get", R"({"x": 1})"}, {"b", "{}"}}});
  ExpectOutput(mistral, "see [1] [TOOL", {.content = "see [1] [TOOL"});
  for (const char* text : {"[TOOL_CALLS]", "[TOOL_CALLS] ", "[TOOL_CALLS][", "[TOOL_CALLS][1]",
                           "[TOOL_CALLS]get[ARGS]", "[TOOL_CALLS][ARGS]{}"}) {
    ExpectOutput(mistral, text, {.content = text});
  }
}

TEST(OutputParserTest, TellsReasoningApart) {
  const OutputFormat format = {
      .tools = ToolFormat::kHermes, .reasoning_begin = "<think>", .reasoning_end = "</think>"};
  ExpectOutput(format, "<think>\nso <tool_call> and <x>\n\n</think>\n\nHi  there ",
               {.content = "Hi  there ", .reasoning = "so <tool_call> and <x>"});
  ExpectOutput(format, " \n<think></think>Hi", {.content = "Hi"});
  ExpectOutput(format,
               "<think>a b</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
               {.reasoning = "a b", .calls = {{"f", "{}"}}});
  ExpectOutput(format, "no <think>x</think>", {.content = "no <think>x</think>"});
  ExpectOutput(format, "<think>cut </thi", {.reasoning = "cut </thi"});
  ExpectOutput(format, "<thin", {.content = "<thin"});
  OutputFormat open = format;
  open.reasoning_open = true;
  ExpectOutput(open, "a</think>b", {.content = "b", .reasoning = "a"});
  ExpectOutput(open, "<think>\na</think>b", {.content = "b", .reasoning = "a"});
}

// Fragments in any order, most of them no call.
TEST(OutputParserTest, DoesNotDependOnHowTextIsCut) {
  const std::vector<std::string> fragments = {
      "<tool_call>{\"name\": \"g\", \"arguments\": {\"z\": {}}}",
      "[TOOL_CALLS]g[ARGS]{\"z\": 1}",
      "[TOOL_CALLS][{\"name\": \"g\"}]",
      "<tool_call>",
      "</tool_call>",
      "<|python_tag|>",
      "[TOOL_CALLS]",
      "[ARGS]",
      "<think>",
      "</think>",
      "{",
      "}",
      "[",
      "]",
      ",",
      ";",
      ":",
      " ",
      "\n",
      "\"",
      "\\",
      "\"name\"",
      "\"arguments\"",
      "{\"name\": \"f\", \"parameters\": {\"x\": [1]}}",
      "\"f\"",
      "text",
      "5",
      "{\"name\": \"f\", ",
      "\"arguments\": {\"y\": \"}\"}",
      "<",
      "[TOOL",
      "</th"};
  std::mt19937 random(11);
  size_t calls = 0;
  for (int round = 0; round < 20'000; ++round) {
    const OutputFormat format = {.tools = static_cast<ToolFormat>(random() % 4),
                                 .reasoning_begin = random() % 2 == 0 ? "" : "<think>",
                                 .reasoning_end = "</think>",
                                 .reasoning_open = random() % 4 == 0,
                                 .tool_names = {"f"}};
    std::string text;
    for (size_t i = random() % 12; i > 0; --i) text += fragments[random() % fragments.size()];
    const Output whole = ParseIn(format, text, [&] { return text.size(); });
    calls += whole.calls.size();
    ASSERT_EQ(ParseIn(format, text, [] { return 1; }), whole) << text;
    ASSERT_EQ(ParseIn(format, text, [&] { return 1 + random() % 20; }), whole) << text;
  }
  EXPECT_GT(calls, 1000u);
}

TEST(OutputParserTest, SendsArgumentsAsTheyCome) {
  OutputParser parser({.tools = ToolFormat::kHermes}, [] { return std::string("id"); });
  OutputDelta delta;
  parser.Add("<tool_call>{\"name\": \"f\", \"arguments\": {\"te", delta);
  ASSERT_EQ(delta.calls.size(), 1u);
  EXPECT_EQ(delta.calls[0].name, "f");
  EXPECT_EQ(delta.calls[0].id, "id");
  EXPECT_EQ(delta.calls[0].arguments, "{\"te");
  delta.Clear();
  parser.Add("xt\": 1", delta);
  ASSERT_EQ(delta.calls.size(), 1u);
  EXPECT_EQ(delta.calls[0].name, "");
  EXPECT_EQ(delta.calls[0].arguments, "xt\": 1");
}

TEST(OutputParserTest, BoundsNesting) {
  const std::string deep = absl::StrCat("<tool_call>{\"x\": ", std::string(10'000, '['));
  ExpectOutput({.tools = ToolFormat::kHermes}, deep, {.content = deep});
}

}  // namespace
}  // namespace stampmill
