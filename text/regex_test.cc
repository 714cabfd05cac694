#include "text/regex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <regex>
#include <string>
#include <vector>

namespace stampmill {
namespace {

// The matches, each in brackets, with the text between them.
std::string Found(absl::string_view pattern, const std::string& text,
                  RegexDialect dialect = RegexDialect::kOniguruma) {
  const auto regex = Regex::Compile(pattern, dialect);
  if (!regex.ok()) return std::string(regex.status().message());
  std::string result;
  size_t at = 0;
  Regex::Search search(**regex, text);
  while (const auto match = search.Next()) {
    result += text.substr(at, match->begin - at);
    result += "[" + text.substr(match->begin, match->end - match->begin) + "]";
    at = match->end;
  }
  return result + text.substr(at);
}

TEST(RegexTest, TakesTheMatchThatBacktrackingFindsFirst) {
  EXPECT_EQ(Found("a|ab", "abab"), "[a]b[a]b");
  EXPECT_EQ(Found("ab|a", "aab"), "[a][ab]");
  EXPECT_EQ(Found("a+?", "aaa"), "[a][a][a]");
  EXPECT_EQ(Found("a+?b", "aaab"), "[aaab]");
  EXPECT_EQ(Found("a{2,3}", "aaaaa"), "[aaa][aa]");
  EXPECT_EQ(Found("a{2}", "aaaaa"), "[aa][aa]a");
  EXPECT_EQ(Found("(a|b)*c", "abcab"), "[abc]ab");
  EXPECT_EQ(Found("x*", "axx"), "[]a[xx]");
}

TEST(RegexTest, SpacesBeforeAWordLeaveTheLastOneToIt) {
  constexpr absl::string_view kPattern =
      "'s|'t| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
  EXPECT_EQ(Found(kPattern, "it's   a 12 ok!!  \n"), "[it]['s][  ][ a][ 12][ ok][!!][  \n]");
  EXPECT_EQ(Found(kPattern, "\xC3\xA4\xC3\xB6 \xE4\xB8\xAD"), "[\xC3\xA4\xC3\xB6][ \xE4\xB8\xAD]");
  EXPECT_EQ(Found("\\s+(?!\\S)", "  a "), "[ ] a[ ]");
}

TEST(RegexTest, AssertionsLookAtOneCharacter) {
  EXPECT_EQ(Found("((?=[\\p{L}])([^a-z]))+", "ABcD1"), "[AB]c[D]1");
  EXPECT_EQ(Found("\\bfoo\\b", "foo foobar foo"), "[foo] foobar [foo]");
  EXPECT_EQ(Found("(?<=a)b", "abbb"), "a[b]bb");
  EXPECT_EQ(Found("(?<!a)b", "abbb"), "ab[b][b]");
  EXPECT_EQ(Found("^a", "a\na"), "[a]\n[a]");
  EXPECT_EQ(Found("^a", "a\na", RegexDialect::kEcmaScript), "[a]\na");
  EXPECT_EQ(Found("\\s+$", " a  \nb  "), " a[  ]\nb[  ]");
  EXPECT_EQ(Found("\\s+$", " a  \nb  ", RegexDialect::kEcmaScript), " a  \nb[  ]");
  EXPECT_EQ(Found("\\Aa|a\\z", "aaa"), "[a]a[a]");
}

TEST(RegexTest, ClassesNestIntersectAndNegate) {
  EXPECT_EQ(Found("[a-c&&[^b]]+", "abca"), "[a]b[ca]");
  EXPECT_EQ(Found("[]a]", "]a"), "[]][a]");
  EXPECT_EQ(Found("[^\\p{L}]", "a1"), "a[1]");
  EXPECT_EQ(Found("[\\p{Lu}\\p{^L}]", "aA1"), "a[A][1]");
  EXPECT_EQ(Found("[[:alpha:]-]+", "a-b1"), "[a-b]1");
  EXPECT_EQ(Found("\\p{Han}+", "a\xE4\xB8\xAD"), "a[\xE4\xB8\xAD]");
  EXPECT_EQ(Found("\\x41\\u0042\\x{43}", "ABC"), "[ABC]");
}

TEST(RegexTest, CaseIsIgnoredWhereThatIsAsked) {
  EXPECT_EQ(Found("(?i:'s|'ll)", "'S'Ll's"), "['S]['Ll]['s]");
  EXPECT_EQ(Found("(?i:a)b", "AbAB"), "[Ab]AB");
  EXPECT_EQ(Found("(?i)a|b", "AB"), "[A][B]");
  EXPECT_EQ(Found("(?i:s)", "\xC5\xBF"), "[\xC5\xBF]");
}

TEST(RegexTest, AgreesWithABacktrackingEngineOnRandomPatterns) {
  std::mt19937 random(7);
  const char* const atoms[] = {"a",    "b",     "[ab]",  "[^a]",   ".",    "(a|ab)",
                               "(b|)", "(?=a)", "(?!b)", "(ab|a)", "(a*)", "\\s"};
  const char* const repeats[] = {"", "", "", "*", "+", "?", "*?", "+?", "{1,2}"};
  for (int i = 0; i < 1000; ++i) {
    std::string pattern, text;
    for (int k = random() % 5; k >= 0; --k) {
      const std::string atom = atoms[random() % std::size(atoms)];
      pattern += atom;
      if (atom.substr(0, 3) != "(?=" && atom.substr(0, 3) != "(?!") {
        pattern += repeats[random() % std::size(repeats)];
      }
      if (k > 0 && random() % 4 == 0) pattern += "|";
    }
    for (int k = random() % 12; k > 0; --k) text += "abc "[random() % 4];
    const auto regex = Regex::Compile(pattern, RegexDialect::kEcmaScript);
    ASSERT_TRUE(regex.ok()) << regex.status();
    const std::regex reference(pattern);
    for (size_t at = 0; at <= text.size(); ++at) {
      // The first match of the rest; looking behind is not in these patterns.
      const std::string rest = text.substr(at);
      std::smatch expected;
      const bool found = std::regex_search(rest, expected, reference);
      Regex::Search search(**regex, rest);
      const auto match = search.Next();
      ASSERT_EQ(match.has_value(), found) << pattern << " in '" << rest << "'";
      if (!found) continue;
      ASSERT_EQ(match->begin, expected.position(0)) << pattern << " in '" << rest << "'";
      ASSERT_EQ(match->end - match->begin, expected.length(0)) << pattern << " in '" << rest << "'";
    }
  }
}

TEST(RegexTest, WhatIsNoFiniteAutomatonIsRefusedByName) {
  for (const auto& [pattern, name] : std::vector<std::pair<std::string, std::string>>{
           {"(a)\\1", "back reference"},
           {"(?=ab)c", "assertion on more than one character"},
           {"a++", "possessive"},
           {"(?>a)", "atomic"},
           {"\\p{Klingon}", "Klingon"},
           {"\\X", "\\X"}}) {
    const auto regex = Regex::Compile(pattern, RegexDialect::kOniguruma);
    EXPECT_EQ(regex.status().code(), absl::StatusCode::kUnimplemented) << pattern;
    EXPECT_NE(regex.status().message().find(name), absl::string_view::npos) << regex.status();
  }
}

TEST(RegexTest, WhatIsMalformedOrTooLargeIsRefused) {
  for (const std::string pattern :
       {"(", ")", "[", "[b-a]", "*", "a{3,2}", "\\", "\\x4", "\\x{110000}", "(?<a",
        "[[:alpha:", "((((a{1000}){1000}){1000}){1000})", "(a|b)*a(a|b){14}"}) {
    const auto regex = Regex::Compile(pattern, RegexDialect::kOniguruma);
    EXPECT_EQ(regex.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
  }
  EXPECT_FALSE(Regex::Compile(std::string(200, '('), RegexDialect::kOniguruma).ok());
  EXPECT_FALSE(Regex::Compile(std::string(1 << 20, 'a'), RegexDialect::kOniguruma).ok());
  EXPECT_TRUE(Regex::Compile("((((){1000}){1000}){1000}){1000}", RegexDialect::kOniguruma).ok());
}

TEST(RegexTest, ALongTextThatMatchesNowhereTakesLinearTime) {
  const auto regex = Regex::Compile("\\s+$|a+b", RegexDialect::kEcmaScript);
  ASSERT_TRUE(regex.ok());
  for (const char letter : {' ', 'a'}) {
    const std::string text = std::string(1 << 16, letter) + "x";
    const auto begin = std::chrono::steady_clock::now();
    Regex::Search search(**regex, text);
    EXPECT_FALSE(search.Next().has_value());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_FALSE(search.spent());
  }
}

TEST(RegexTest, ASearchThatLooksFarAheadForEveryMatchIsGivenUp) {
  const auto regex = Regex::Compile("a(a*b)?", RegexDialect::kEcmaScript);
  ASSERT_TRUE(regex.ok());
  const std::string text(1 << 15, 'a');
  Regex::Search search(**regex, text);
  while (search.Next()) {
  }
  EXPECT_TRUE(search.spent());
}

}  // namespace
}  // namespace stampmill
