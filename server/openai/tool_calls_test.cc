#include "server/openai/tool_calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace stampmill {
namespace {

std::unique_ptr<const Tokenizer> MakeTokenizer(const std::vector<std::string>& special) {
  TokenizerSpec spec;
  for (int byte = 0x20; byte < 0x7F; ++byte)
    spec.tokens.Add(std::string(1, static_cast<char>(byte)));
  spec.tokens.Add("\n");
  spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
  for (const std::string& text : special) {
    spec.tokens.Add(text);
    spec.kinds.push_back(TokenKind::kControl);
  }
  auto tokenizer = Tokenizer::Create(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

bool Has(const ToolGrammar& grammar, const ConstraintVocabulary& vocabulary,
         absl::string_view text) {
  const auto compiled = GrammarOf(grammar, vocabulary);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  GrammarMatcher matcher(**compiled, vocabulary.trie());
  return *matcher.Accept(text) && matcher.can_end();
}

TEST(ToolCallsTest, FindsTheFormatByTheMarkersOfTheTemplate) {
  const auto of = [](absl::string_view source) { return FormatOfTemplate(source).tools; };
  EXPECT_EQ(of("{{ messages }}"), ToolFormat::kNone);
  EXPECT_EQ(of("<tool_call>\n{\"name\": x}"), ToolFormat::kHermes);
  EXPECT_EQ(of("<tool_call>\n{{ call | tojson }}"), ToolFormat::kHermes);
  EXPECT_EQ(of("<tool_call>\n<function={{ name }}>{{ tools | tojson }}"), ToolFormat::kNone);
  EXPECT_EQ(of("<tool_call>{{ name }}<arg_key>{{ tools | tojson }}"), ToolFormat::kNone);
  EXPECT_EQ(of("Environment: ipython {\"parameters\": }"), ToolFormat::kLlama3);
  EXPECT_EQ(of("<|python_tag|>"), ToolFormat::kLlama3);
  EXPECT_EQ(of("[TOOL_CALLS] [AVAILABLE_TOOLS]"), ToolFormat::kMistral);
  EXPECT_FALSE(FormatOfTemplate("[TOOL_CALLS]").name_before_arguments);
  EXPECT_TRUE(FormatOfTemplate("[TOOL_CALLS]f[ARGS]").name_before_arguments);
  EXPECT_EQ(FormatOfTemplate("x</think>").reasoning_begin, "<think>");
  EXPECT_EQ(FormatOfTemplate("[/THINK]").reasoning_end, "[/THINK]");
  EXPECT_EQ(FormatOfTemplate("think").reasoning_end, "");
}

TEST(ToolCallsTest, MarkersThatAreTokensAreAskedForAsTokens) {
  const std::vector<Tool> tools = {{.name = "f", .parameters = R"({"const": 1})"}};
  const auto plain = MakeTokenizer({});
  const auto special = MakeTokenizer({"[TOOL_CALLS]", "[ARGS]"});
  const ConstraintVocabulary plain_vocabulary(plain.get()), vocabulary(special.get());
  ToolGrammar grammar = {.format = FormatOfTemplate("[TOOL_CALLS][ARGS]"), .tools = tools};
  EXPECT_TRUE(Has(grammar, plain_vocabulary, "[TOOL_CALLS]f[ARGS]1"));
  EXPECT_FALSE(Has(grammar, vocabulary, "[TOOL_CALLS]f[ARGS]1"));
  EXPECT_TRUE(Has(grammar, vocabulary, "\xFF[TOOL_CALLS]f\xFF[ARGS]1\xFF[TOOL_CALLS]f\xFF[ARGS]1"));
  grammar.parallel = false;
  EXPECT_FALSE(
      Has(grammar, vocabulary, "\xFF[TOOL_CALLS]f\xFF[ARGS]1\xFF[TOOL_CALLS]f\xFF[ARGS]1"));
  grammar.behind_marker = true;
  EXPECT_TRUE(Has(grammar, vocabulary, "f\xFF[ARGS]1"));
}

TEST(ToolCallsTest, AllowsCallsOfEachToolWithItsOwnArguments) {
  const auto tokenizer = MakeTokenizer({});
  const ConstraintVocabulary vocabulary(tokenizer.get());
  // The same place in two schemas.
  const std::vector<Tool> tools = {
      {.name = "f", .parameters = R"({"$ref": "#/$defs/x", "$defs": {"x": {"const": 1}}})"},
      {.name = "g", .parameters = R"({"$ref": "#/$defs/x", "$defs": {"x": {"const": 2}}})"}};
  ToolGrammar grammar = {.format = FormatOfTemplate("<tool_call>tojson"), .tools = tools};
  const auto call = [](absl::string_view name, int value) {
    return absl::StrCat("<tool_call>\n{\"name\": \"", name, "\", \"arguments\": ", value,
                        "}\n</tool_call>");
  };
  EXPECT_TRUE(Has(grammar, vocabulary, call("f", 1)));
  EXPECT_TRUE(Has(grammar, vocabulary, absl::StrCat(call("g", 2), "\n", call("f", 1))));
  EXPECT_FALSE(Has(grammar, vocabulary, call("f", 2)));
  EXPECT_FALSE(Has(grammar, vocabulary, call("h", 1)));
  EXPECT_FALSE(Has(grammar, vocabulary, ""));
  grammar.beside = BesideCalls::kJson;
  grammar.answer = {.kind = Constraint::Kind::kJsonSchema, .text = R"({"const": 3})"};
  EXPECT_TRUE(Has(grammar, vocabulary, "3"));
  EXPECT_TRUE(Has(grammar, vocabulary, call("f", 1)));

  grammar = {
      .format = FormatOfTemplate("<|python_tag|>"), .tools = tools, .beside = BesideCalls::kText};
  for (const char* text : {"", "any text {", "{\"name\": \"g\", \"parameters\": 2}"}) {
    EXPECT_TRUE(Has(grammar, vocabulary, text)) << text;
  }
  for (const char* text : {"{", " {", "{\"name\": \"g\", \"parameters\": 1}"}) {
    EXPECT_FALSE(Has(grammar, vocabulary, text)) << text;
  }
}

TEST(ToolCallsTest, NamesTheToolWhoseSchemaCannotBeKept) {
  const auto tokenizer = MakeTokenizer({});
  const ConstraintVocabulary vocabulary(tokenizer.get());
  const std::vector<Tool> tools = {{.name = "f"}, {.name = "g", .parameters = R"({"not": {}})"}};
  const auto grammar =
      GrammarOf({.format = FormatOfTemplate("[TOOL_CALLS]"), .tools = tools}, vocabulary);
  ASSERT_TRUE(absl::IsInvalidArgument(grammar.status()));
  EXPECT_NE(grammar.status().message().find("'g'.parameters"), absl::string_view::npos);
  EXPECT_NE(grammar.status().message().find("'not'"), absl::string_view::npos);
}

}  // namespace
}  // namespace stampmill
