#include "text/json_schema.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "text/grammar_matcher.h"
#include "text/token_trie.h"

namespace stampmill {
namespace {

// Every byte is a token, so that a mask says which bytes may follow.
const TokenTrie& Bytes() {
  static const TokenTrie& trie = *[] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return new TokenTrie(tokens);
  }();
  return trie;
}

// "yes" or "no": whether the schema's grammar has the document; "error: ..." without a grammar.
std::string Has(const std::string& schema, absl::string_view document) {
  const auto grammar = GrammarOfJsonSchema(boost::json::parse(schema));
  if (!grammar.ok()) return absl::StrCat("error: ", grammar.status().message());
  GrammarMatcher matcher(**grammar, Bytes());
  const auto accepted = matcher.Accept(document);
  if (!accepted.ok()) return absl::StrCat("error: ", accepted.status().message());
  return *accepted && matcher.can_end() ? "yes" : "no";
}

struct Case {
  std::string schema;
  std::vector<std::string> accepted;
  std::vector<std::string> refused;
};

void Check(const Case& c) {
  for (const std::string& document : c.accepted) {
    EXPECT_EQ(Has(c.schema, document), "yes") << c.schema << "\n" << document;
  }
  for (const std::string& document : c.refused) {
    EXPECT_EQ(Has(c.schema, document), "no") << c.schema << "\n" << document;
  }
}

TEST(JsonSchemaTest, KnowsTheTypes) {
  Check({"{}",
         {"null", "true", "-1.5e+10", R"("a\n\u00e9\"é🎉")", "[]", "[1, [2], {}]", "{}",
          R"({"a": {"b": [null]}, "c":1})"},
         {"", "nul", "01", "+1", "1.", "'a'", "\"a\nb\"", R"("\ud800")", R"("\x")", "[1,]", "{a:1}",
          R"({"a" 1})", "[1}", "1 2"}});
  Check({R"({"type": "integer"})", {"0", "-7", "12345"}, {"1.5", "1e3", "\"1\"", "null", "-"}});
  Check({R"({"type": "number"})", {"0.5", "1E5", "-0"}, {".5", "true"}});
  Check({R"({"type": ["string", "null"]})", {"null", "\"\""}, {"1", "[]"}});
  Check({R"({"type": "boolean"})", {"true", "false"}, {"1", "True"}});
  Check({R"({"type": "object"})", {"{}", R"({"a": 1})"}, {"[]", "1"}});
}

TEST(JsonSchemaTest, KeepsConstants) {
  Check({R"({"enum": ["a", 1, null, {"k": [true]}, "é"]})",
         {"\"a\"", "1", "null", R"({"k":[true]})", "\"é\""},
         {"\"b\"", "2", "{}", "\"aa\""}});
  Check({R"({"const": "x\"y"})", {R"("x\"y")"}, {R"("x")"}});
  Check({R"({"type": "string", "enum": ["a", 1]})", {"\"a\""}, {"1"}});
}

TEST(JsonSchemaTest, KeepsLengths) {
  Check({R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {"\"ab\"", "\"é🎉\\n\"", "\"\\u00e9ab\""},
         {"\"a\"", "\"abcd\"", "\"\""}});
  Check({R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
         {"[1]", "[1, 2,3]", "[\n  1,\n  2\n]"},
         {"[]", "[1,2,3,4]", "[\"a\"]", "[1 2]"}});
  Check({R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}});
  Check(
      {R"({"type": "array", "prefixItems": [{"type": "string"}, {"const": null}], "items": false})",
       {"[]", "[\"a\"]", "[\"a\", null]"},
       {"[null]", "[\"a\", null, 1]", "[\"a\", 1]"}});
  Check(
      {R"({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 3})",
       {"[1,2,2]", "[1,2,2,2]"},
       {"[1]", "[1,2]", "[2,2,2]"}});
}

TEST(JsonSchemaTest, KeepsProperties) {
  Check({R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
             "c": {"type": "null"}}, "required": ["b"], "additionalProperties": false})",
         {R"({"b": "x"})", R"({"a": 1, "b": "x"})", R"({"a":1,"b":"x","c":null})",
          "{\n  \"b\": \"x\",\n  \"c\": null\n}"},
         {"{}", R"({"a": 1})", R"({"b": 1})", R"({"b": "x", "d": 1})", R"({"b": "x", "a": 1})",
          R"({"b": "x",})", R"({, "b": "x"})", R"({"b": "x", "b": "y"})"}});
  // Others come behind, and none has the name of a property.
  const std::string open = R"({"type": "object", "properties": {"ab": {"const": 1},
                               "a\"": {"const": 2}}, "additionalProperties": {"const": 3}})";
  Check({open,
         {"{}", R"({"ab": 1})", R"({"a": 3, "abc": 3, "b": 3, "a\n": 3, "é": 3, "": 3})",
          R"({"ab":1,"a\"":2,"x":3})"},
         {R"({"ab": 3})", R"({"a\"": 3})", R"({"a": 3, "ab": 1})", R"({"x": 1})",
          R"({"\u0061b": 3})"}});
  Check({R"({"type": "object", "required": ["z"], "additionalProperties": {"type": "integer"}})",
         {R"({"z": 1})", R"({"z": 1, "y": 2})"},
         {"{}", R"({"y": 2})", R"({"z": "a"})"}});
}

TEST(JsonSchemaTest, FollowsReferences) {
  Check({R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties":
             {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"},
             {"type": "null"}]}}, "required": ["value", "next"], "additionalProperties": false}}})",
         {R"({"value": 1, "next": null})",
          R"({"value": 1, "next": {"value": 2, "next": {"value": 3, "next": null}}})"},
         {R"({"value": 1})", R"({"value": 1, "next": 2})"}});
  Check({R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[], [[]]]"}, {"[1]", "[["}});
  Check({R"({"allOf": [{"const": 1}], "title": "T", "description": "d"})", {"1"}, {"2"}});
}

TEST(JsonSchemaTest, RefusesByNameWhatItCannotKeep) {
  for (const std::string keyword :
       {"pattern", "format", "minimum", "oneOf", "not", "uniqueItems", "patternProperties", "if",
        "dependentRequired", "minProperties", "multipleOf", "contains"}) {
    EXPECT_EQ(
        Has(absl::StrCat(R"({"type": "object", "properties": {"a/b": {")", keyword, R"(": 1}}})"),
            ""),
        absl::StrCat("error: schema: #/properties/a~1b: keyword '", keyword, "' is not supported"));
  }
  EXPECT_EQ(Has(R"({"anyOf": [{}], "type": "string"})", ""),
            "error: schema: #: 'type' beside 'anyOf' is not supported");
  EXPECT_EQ(Has(R"({"$ref": "http://a/b"})", ""),
            "error: schema: #: '$ref' to 'http://a/b' is not supported");
  EXPECT_EQ(Has(R"({"allOf": [{}, {}]})", ""),
            "error: schema: #: 'allOf' of more than one schema is not supported");
}

TEST(JsonSchemaTest, RefusesWhatIsNoSchema) {
  EXPECT_EQ(Has("[]", ""), "error: schema: #: a schema must be an object or a boolean");
  EXPECT_EQ(Has("false", ""), "error: schema: #: the schema accepts nothing");
  EXPECT_EQ(Has(R"({"type": "text"})", ""), "error: schema: #: type \"text\" is not known");
  EXPECT_EQ(Has(R"({"$ref": "#/nowhere"})", ""),
            "error: schema: #: '$ref' names '#/nowhere', which is not there");
  EXPECT_EQ(Has(R"({"$ref": "#"})", ""), "error: grammar: rule '#' begins with itself");
  EXPECT_EQ(Has(R"({"minLength": -1})", ""),
            "error: schema: #: 'minLength' must be an integer from 0 to 4096");
  EXPECT_EQ(Has(R"({"minItems": 2, "maxItems": 1})", ""),
            "error: schema: #: 'maxItems' is below 'minItems'");
  EXPECT_EQ(Has(R"({"type": "string", "enum": [1]})", ""),
            "error: schema: #: no value is of the type");
  EXPECT_EQ(Has(R"({"required": ["a"], "additionalProperties": false})", ""),
            "error: schema: #: property 'a' is required and not allowed");
  // Enormous: bounded, not slow.
  EXPECT_TRUE(absl::StartsWith(
      Has(R"({"type": "array", "minItems": 4096, "items": {"type": "string", "minLength": 4096}})",
          ""),
      "no"));
  std::string wide = R"({"type": "object", "properties": {)";
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&wide, i == 0 ? "" : ",", "\"p", i, "\": {}");
  EXPECT_TRUE(absl::StartsWith(Has(wide + "}}", ""), "error: schema: ")) << Has(wide + "}}", "");
}

TEST(JsonSchemaTest, GeneratesDocumentsThatParse) {
  const auto grammar = GrammarOfJsonSchema(boost::json::parse(
      R"({"type": "object", "properties": {"id": {"type": "integer"}, "tags": {"type": "array",
          "items": {"enum": ["x", "y"]}, "maxItems": 2}, "name": {"type": "string",
          "maxLength": 3}, "any": {}}, "required": ["id", "name"]})"));
  ASSERT_TRUE(grammar.ok());
  std::mt19937 random(1);
  int ended = 0;
  for (int document = 0; document < 200; ++document) {
    GrammarMatcher matcher(**grammar, Bytes());
    std::string text;
    while (!matcher.can_end() && text.size() < 300) {
      const auto mask = matcher.Mask();
      ASSERT_TRUE(mask.ok());
      std::string allowed;
      for (int byte = 0; byte < 256; ++byte) {
        if (((*mask)[byte / 64] >> (byte % 64)) & 1) allowed += static_cast<char>(byte);
      }
      ASSERT_FALSE(allowed.empty()) << text;
      // Brackets and quotes that close are taken when they can, or documents would not end.
      const size_t close = allowed.find_first_of("}]\"");
      const char next = close != std::string::npos && random() % 2 == 0
                            ? allowed[close]
                            : allowed[random() % allowed.size()];
      ASSERT_TRUE(*matcher.Accept(absl::string_view(&next, 1)));
      text += next;
    }
    if (!matcher.can_end()) continue;
    ++ended;
    boost::json::error_code error;
    const boost::json::value value = boost::json::parse(text, error);
    ASSERT_FALSE(error) << text;
    EXPECT_TRUE(value.at("id").is_int64()) << text;
    EXPECT_TRUE(value.at("name").is_string()) << text;
    if (const auto* tags = value.get_object().if_contains("tags")) {
      EXPECT_LE(tags->as_array().size(), 2) << text;
    }
  }
  EXPECT_GT(ended, 50);
}

}  // namespace
}  // namespace stampmill
