#include "text/regex_grammar.h"

#include <gtest/gtest.h>

#include <chrono>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "text/grammar_matcher.h"
#include "text/token_trie.h"

namespace stampmill {
namespace {

const TokenTrie& NoTokens() {
  static const TokenTrie& trie = *new TokenTrie({});
  return trie;
}

bool Has(const Grammar& grammar, absl::string_view text) {
  GrammarMatcher matcher(grammar, NoTokens());
  const auto accepted = matcher.Accept(text);
  EXPECT_TRUE(accepted.ok()) << accepted.status();
  return accepted.ok() && *accepted && matcher.can_end();
}

TEST(RegexGrammarTest, HasTheTextsThatAMatcherOfWholeTextsFinds) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() == 5) continue;
    for (const char c : {'a', 'b', '1'}) texts.push_back(texts[i] + c);
  }
  for (const char* pattern :
       {"",      "a",    "a*",      "(a|b)*1", "a+b?",    "(ab|1){2}", "a{1,3}",
        "[^a]+", "^a*$", "(^a|b$)", "a^b",     "(a*)*",   "(a|a)*b",   "(a?){3}b",
        "(?:)*", "a|",   "\\d\\D",  "\\w{2,}", "a(b$|1)", "(?:^)*a",   "(a|b$)*",
        ".*1.*", "a*?b", "$",       "^",       "(?:a$)?b"}) {
    const auto grammar = GrammarOfRegex(pattern);
    ASSERT_TRUE(grammar.ok()) << pattern << ": " << grammar.status();
    const std::regex expected(pattern, std::regex::ECMAScript);
    for (const std::string& text : texts) {
      EXPECT_EQ(Has(**grammar, text), std::regex_match(text, expected)) << pattern << " " << text;
    }
  }
}

TEST(RegexGrammarTest, CharactersAreOfUnicode) {
  const auto grammar = GrammarOfRegex("[α-ω]\\p{Lu}.😀?");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_TRUE(Has(**grammar, "λÄé"));
  EXPECT_TRUE(Has(**grammar, "λΔ!😀"));
  EXPECT_FALSE(Has(**grammar, "λä!"));
  EXPECT_FALSE(Has(**grammar, "λÄ\n"));
  EXPECT_FALSE(Has(**grammar, "λÄ\xC3"));
}

TEST(RegexGrammarTest, ClassesWithShortNamesAreAscii) {
  const auto grammar = GrammarOfRegex("\\d\\w\\s|\\D");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_TRUE(Has(**grammar, "1a "));
  EXPECT_FALSE(Has(**grammar, "٣a "));
  EXPECT_FALSE(Has(**grammar, "1é "));
  EXPECT_FALSE(Has(**grammar, "1a\u00A0"));
  EXPECT_TRUE(Has(**grammar, "x"));
  EXPECT_FALSE(Has(**grammar, "٣"));
}

TEST(RegexGrammarTest, TextsNeverRunWhereTheyCannotEnd) {
  for (const char* pattern :
       {"[^]a]*(?:^a)b", ".*(?:^a)b", "(.*^)?ab", "(a[^\\s\\S]|ab)", "a(b|$c)"}) {
    const auto grammar = GrammarOfRegex(pattern);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    GrammarMatcher matcher(**grammar, NoTokens());
    EXPECT_FALSE(*matcher.Accept("x")) << pattern;
    EXPECT_FALSE(*matcher.Accept("aa")) << pattern;
    EXPECT_TRUE(*matcher.Accept("ab")) << pattern;
    EXPECT_TRUE(matcher.can_end()) << pattern;
    EXPECT_FALSE(matcher.can_go_on()) << pattern;
  }
}

TEST(RegexGrammarTest, WhatCannotBeKeptIsRefusedByName) {
  for (const auto& [pattern, part] :
       std::vector<std::pair<std::string, std::string>>{{"(", "regex"},
                                                        {"(a)\\1", "back reference"},
                                                        {"a\\b", "assertion"},
                                                        {"(?=a)b", "assertion"},
                                                        {"(?<!ab)c", "assertion"},
                                                        {"a{9,1}", "regex"},
                                                        {"(a{1000}){1000}", "instructions"},
                                                        {std::string(100'000, 'a'), "regex"}}) {
    const auto grammar = GrammarOfRegex(pattern);
    ASSERT_FALSE(grammar.ok()) << pattern;
    EXPECT_NE(grammar.status().message().find(part), absl::string_view::npos) << grammar.status();
  }
}

TEST(RegexGrammarTest, ExpressionsThatBacktrackingDiesOfAreQuick) {
  const std::string long_text(20'000, 'a');
  for (const char* pattern : {"(a+)+b", "(a|a)*b", "(a*)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)b"}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto grammar = GrammarOfRegex(pattern);
    ASSERT_TRUE(grammar.ok()) << pattern;
    EXPECT_FALSE(Has(**grammar, long_text));
    EXPECT_TRUE(Has(**grammar, long_text + "b"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << pattern;
  }
}

}  // namespace
}  // namespace stampmill
