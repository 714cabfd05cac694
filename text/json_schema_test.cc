#include "text/json_schema.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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

TEST(JsonSchemaTest, KeepsNumbersBetweenBounds) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const int low = static_cast<int>(random() % 2400) - 1200;
    const int high = low + static_cast<int>(random() % (round % 2 == 0 ? 20 : 2000));
    const bool has_low = random() % 4 != 0, has_high = random() % 4 != 0;
    const bool above = random() % 3 == 0, below = random() % 3 == 0;
    std::string bounds;
    if (has_low) {
      absl::StrAppend(&bounds, above ? R"(, "exclusiveMinimum": )" : R"(, "minimum": )", low);
    }
    if (has_high) {
      absl::StrAppend(&bounds, below ? R"(, "exclusiveMaximum": )" : R"(, "maximum": )", high);
    }
    const auto fits = [&](double value) {
      return !(has_low && (above ? value <= low : value < low)) &&
             !(has_high && (below ? value >= high : value > high));
    };
    const auto check = [&](const char* type, absl::string_view fraction) {
      const std::string schema = absl::StrCat(R"({"type": ")", type, "\"", bounds, "}");
      const auto grammar = GrammarOfJsonSchema(boost::json::parse(schema));
      if (!grammar.ok()) {  // too close to each other
        EXPECT_TRUE(absl::StrContains(grammar.status().message(), "no number")) << schema;
        EXPECT_LE(high - low, 1);
        return;
      }
      GrammarMatcher matcher(**grammar, Bytes());
      for (int i = -1300; i <= 3300; ++i) {
        for (const char* sign : {"", "-"}) {
          const std::string document = absl::StrCat(sign, std::abs(i), fraction);
          double value = 0;
          ASSERT_TRUE(absl::SimpleAtod(document, &value));
          if ((i > 0 && *sign != '\0') || (i < 0 && *sign == '\0')) continue;
          if (value == 0 && *sign != '\0') continue;
          matcher.Reset();
          ASSERT_EQ(*matcher.Accept(document) && matcher.can_end(), fits(value))
              << schema << " " << document;
        }
      }
    };
    check("integer", "");
    check("number", "");
    check("number", ".25");
  }
  EXPECT_TRUE(absl::StrContains(Has(R"({"type": "integer", "minimum": 5, "maximum": 4})", "4"),
                                "no number is between the bounds"));
  EXPECT_TRUE(absl::StrContains(Has(R"({"minimum": 0.5})", "4"), "'minimum'"));
  EXPECT_TRUE(absl::StrContains(Has(R"({"maximum": 1e300})", "4"), "'maximum'"));
  EXPECT_TRUE(absl::StrContains(Has(R"({"maximum": "1"})", "4"), "'maximum'"));
  Check({R"({"type": "number", "minimum": 0, "exclusiveMaximum": 1})",
         {"0", "0.5", "0.999", "0.0"},
         {"1", "-0", "-0.1", "1.0", "0e1", "00.1"}});
}

TEST(JsonSchemaTest, KeepsPatterns) {
  Check({R"({"type": "string", "pattern": "^[a-c]+$"})",
         {R"("a")", R"("abc")"},
         {R"("")", R"("ad")", R"("\u0061")"}});
  Check({R"({"type": "string", "pattern": "b\\d"})",
         {R"("b1")", R"("xxb1\n😀")"},
         {R"("b")", R"("1b")"}});
  Check({R"({"type": "string", "pattern": "^[\"\\\\/\\n]$"})",
         {R"("\"")", R"("\\")", R"("/")", R"("\n")"},
         {R"(""")", R"("\")", R"("\/")", "\"\n\"", R"("\t")"}});
  Check({R"x({"type": ["string", "null"], "pattern": "^(a|b$)"})x",
         {"null", R"("ax")", R"("b")"},
         {R"("bx")", R"("xa")"}});
  for (const char* schema :
       {R"({"pattern": "("})", R"({"pattern": "a)(b"})", R"({"pattern": "\\bx"})",
        R"({"pattern": 5})", R"({"pattern": "a", "minLength": 1})",
        R"({"pattern": "a", "format": "date"})"}) {
    EXPECT_TRUE(absl::StrContains(Has(schema, "1"), "error: schema: #: '")) << Has(schema, "1");
    EXPECT_TRUE(absl::StrContains(Has(schema, "1"), "'pattern'")) << Has(schema, "1");
  }
}

TEST(JsonSchemaTest, KeepsFormats) {
  const auto check = [](const std::string& format, std::vector<std::string> accepted,
                        std::vector<std::string> refused) {
    for (auto* texts : {&accepted, &refused}) {
      for (std::string& text : *texts) text = absl::StrCat("\"", text, "\"");
    }
    Check({absl::StrCat(R"({"type": "string", "format": ")", format, "\"}"), accepted, refused});
  };
  check("date", {"2026-12-01", "1999-02-28"}, {"2026-13-01", "2026-02-30", "2026-04-31", "26-1-1"});
  check("time", {"01:02:03Z", "23:59:59.5+01:30"}, {"24:00:00Z", "01:02:03", "1:2:3Z"});
  check("date-time", {"2026-12-01T10:00:00Z"}, {"2026-12-01", "2026-12-01 10:00:00Z"});
  check("duration", {"P3W", "P1D", "PT5M", "P1DT2H"}, {"P", "PT", "P1"});
  check("email", {"a.b@example.org"}, {"a", "@b.c", "a@b", "a..b@c.d"});
  check("hostname", {"a.example.org"}, {"-a.b", "a..b"});
  check("ipv4", {"0.0.0.0", "255.1.20.199"}, {"256.1.1.1", "1.1.1", "01.1.1.1"});
  check("ipv6", {"1:2:3:4:5:6:7:ffff"}, {"1:2:3", "g:2:3:4:5:6:7:8"});
  check("uri", {"https://a.example.org/x/y", "http://a.b"}, {"a.b", "ftp//a"});
  check("uuid", {"123e4567-e89b-12d3-a456-426614174000"}, {"123e4567", "x23e4567-e89b"});
  // One that the standard does not know says nothing.
  check("color", {"", "anything"}, {});
  EXPECT_TRUE(absl::StrContains(Has(R"({"format": "regex"})", "1"), "'regex' is not supported"));
}

TEST(JsonSchemaTest, TakesOneOfWhereNoTwoCanBeMet) {
  Check({R"({"oneOf": [{"type": "string"}, {"type": "integer"}, {"const": null}]})",
         {R"("a")", "5", "null"},
         {"true", "1.5"}});
  Check({R"({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
             "a": {"type": "object", "required": ["kind"], "additionalProperties": false,
                   "properties": {"kind": {"const": "a"}}},
             "b": {"type": "object", "required": ["kind"], "additionalProperties": false,
                   "properties": {"kind": {"enum": ["b", "c"]}}}}})",
         {R"({"kind": "a"})", R"({"kind": "c"})"},
         {R"({"kind": "d"})", "{}"}});
  for (const char* schema :
       {R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})",
        R"({"oneOf": [{}, {"const": 1}]})", R"({"oneOf": [{"enum": [1, 2]}, {"enum": [2.0, 3]}]})",
        R"({"oneOf": [{"type": "object", "properties": {"k": {"const": 1}}},
                      {"type": "object", "properties": {"k": {"const": 2}}}]})",
        R"({"oneOf": [{"$ref": "#"}, {"type": "string"}]})"}) {
    EXPECT_TRUE(absl::StrContains(Has(schema, "1"), "'oneOf' of schemas that may overlap"))
        << Has(schema, "1");
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
       {"not", "uniqueItems", "patternProperties", "if", "dependentRequired", "minProperties",
        "multipleOf", "contains"}) {
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
