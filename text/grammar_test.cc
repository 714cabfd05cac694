#include "text/grammar.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "text/grammar_matcher.h"
#include "text/token_trie.h"

namespace stampmill {
namespace {

const TokenTrie& NoTokens() {
  static const TokenTrie trie({});
  return trie;
}

// Whether the grammar has exactly this text; "error: ..." if there is no grammar.
std::string Has(absl::string_view gbnf, absl::string_view text) {
  const auto grammar = Grammar::FromGbnf(gbnf);
  if (!grammar.ok()) return absl::StrCat("error: ", grammar.status().message());
  GrammarMatcher matcher(**grammar, NoTokens());
  const auto accepted = matcher.Accept(text);
  if (!accepted.ok()) return absl::StrCat("error: ", accepted.status().message());
  return *accepted && matcher.can_end() ? "yes" : "no";
}

TEST(GrammarTest, ReadsGbnf) {
  const absl::string_view list = R"(# a list of numbers
root  ::= "[" ws ( number ("," ws number)* )? "]"
number ::= "-"? ("0" | [1-9] [0-9]{0,3}) # at most four digits
ws ::= [ \t\n]*)";
  EXPECT_EQ(Has(list, "[]"), "yes");
  EXPECT_EQ(Has(list, "[1, -20,\n3000]"), "yes");
  EXPECT_EQ(Has(list, "[01]"), "no");
  EXPECT_EQ(Has(list, "[12345]"), "no");
  EXPECT_EQ(Has(list, "[1"), "no");
  EXPECT_EQ(Has("root ::= a |\n  b\na ::= \"x\"\nb ::= \"y\"", "y"), "yes");
  EXPECT_EQ(Has(R"(root ::= "\"\\\x41\u00e9\U0001F389\n")", "\"\\A\u00e9\U0001F389\n"), "yes");
  EXPECT_EQ(Has("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,1}", "aabbb"), "yes");
  EXPECT_EQ(Has("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,1}",
                "aab"
                "cc"),
            "no");
}

TEST(GrammarTest, CountsCharactersAndNotBytes) {
  EXPECT_EQ(Has("root ::= .{3}", "日é🎉"), "yes");
  EXPECT_EQ(Has("root ::= .", "日é"), "no");
  EXPECT_EQ(Has("root ::= [а-я]+", "привет"), "yes");
  EXPECT_EQ(Has("root ::= [а-я]+", "prёvet"), "no");
  EXPECT_EQ(Has("root ::= [^a-z日]+", "ABC本"), "yes");
  EXPECT_EQ(Has("root ::= [^a-z日]+", "AB日"), "no");
  EXPECT_EQ(Has("root ::= .*", "\xC3("), "no");
  EXPECT_EQ(Has("root ::= .*", "\xED\xA0\x80"), "no");
  EXPECT_EQ(Has("root ::= .*", "\xF4\x90\x80\x80"), "no");
}

TEST(GrammarTest, FollowsRulesWithinRules) {
  const absl::string_view nested = R"gbnf(root ::= "(" root ")" | "x" | root2
root2 ::= "[" root "]")gbnf";
  EXPECT_EQ(Has(nested, "([([x])])"), "yes");
  EXPECT_EQ(Has(nested, "([([x)])]"), "no");
  // A rule that ends in itself does not pile up calls.
  EXPECT_EQ(Has("root ::= \"a\" root | \"\"", std::string(1'000'000, 'a')), "yes");
  EXPECT_EQ(
      Has("root ::= \"(\" root \")\" | \"\"", std::string(500'000, '(')),
      "error: grammar: a text needs more than 4096 places, 262144 calls or 67108864 bytes at once");
}

TEST(GrammarTest, RefusesWhatCannotBeRun) {
  EXPECT_EQ(Has("", ""), "error: grammar: rule 'root' is not defined");
  EXPECT_EQ(Has("root ::= other", ""), "error: grammar: rule 'other' is not defined");
  EXPECT_EQ(Has("root ::= \"a\"\nroot ::= \"b\"", ""),
            "error: grammar: line 2: rule 'root' is defined twice");
  EXPECT_EQ(Has("root ::= root \"a\" | \"b\"", ""),
            "error: grammar: rule 'root' begins with itself");
  EXPECT_EQ(Has("root ::= a\na ::= \"x\"* b\nb ::= a | \"y\"", ""),
            "error: grammar: rule 'a' begins with itself");
  EXPECT_EQ(Has("root ::= (\"a\"?)* \"b\"", "aab"), "yes");
  for (const absl::string_view wrong :
       {"root", "root ::= \"a", "root ::= [a", "root ::= [b-a]", "root ::= (\"a\"", "root ::= )",
        "root ::= \"\\q\"", "root ::= \"a\"{2,1}", "root ::= \"a\"{9999}", "root ::= []",
        "root ::= \"\\ud800\"", "root ::= \"a\xFF\"", "::= a", "root ::= \"a\n\""}) {
    EXPECT_TRUE(absl::StartsWith(Has(wrong, ""), "error: grammar: line 1")) << wrong;
  }
}

TEST(GrammarTest, BoundsWhatAGrammarBecomes) {
  EXPECT_EQ(Has("root ::= ((\"a\"{4096}){4096}){4096}", ""),
            "error: grammar: got more than 131072 states");
  EXPECT_EQ(Has(absl::StrCat("root ::= ", std::string(5000, '(')), ""),
            "error: grammar: line 1: nested more than 100 levels deep");
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&rules, "r", i, " ::= \"a\"\n");
  EXPECT_EQ(Has(rules, ""), "error: grammar: got 5001 rules, limit 4096");
  EXPECT_EQ(Has(std::string(300'000, ' '), ""), "error: grammar: got 300000 bytes, limit 262144");
}

TEST(GrammarTest, ChoosesAmongTexts) {
  const std::vector<std::string> texts = {"yes", "no", "not yet", "日本"};
  const auto grammar = Grammar::FromChoice(texts);
  ASSERT_TRUE(grammar.ok());
  for (const std::string& text : texts) {
    GrammarMatcher matcher(**grammar, NoTokens());
    EXPECT_TRUE(*matcher.Accept(text));
    EXPECT_TRUE(matcher.can_end());
  }
  GrammarMatcher matcher(**grammar, NoTokens());
  EXPECT_FALSE(*matcher.Accept("maybe"));
  EXPECT_TRUE(*matcher.Accept("no"));
  EXPECT_TRUE(matcher.can_end());
  EXPECT_FALSE(*matcher.Accept("pe"));
  EXPECT_TRUE(*matcher.Accept("t "));
  EXPECT_FALSE(matcher.can_end());
  EXPECT_FALSE(Grammar::FromChoice({}).ok());
  EXPECT_FALSE(Grammar::FromChoice(std::vector<std::string>{""}).ok());
}

// -- against brute force

// A random grammar of few rules, as text and as a tree that is searched in the plainest way.
class RandomGrammar {
 public:
  explicit RandomGrammar(uint32_t seed) : random_(seed) {
    for (int rule = 0; rule < 3; ++rule) bodies_.push_back(NewTree(3, rule));
  }

  std::string Gbnf() const {
    std::string text;
    for (size_t rule = 0; rule < bodies_.size(); ++rule) {
      absl::StrAppend(&text, Name(rule), " ::= ", Text(bodies_[rule]), "\n");
    }
    return text;
  }

  bool Has(const std::string& text) {
    ends_.clear();
    const std::set<size_t>& ends = Ends(bodies_[0], text, 0);
    return ends.contains(text.size());
  }

 private:
  struct Tree {
    char kind;  // 'l'iteral, 's'equence, 'c'hoice, 'r'epeat, 'n'ame
    std::string literal;
    std::vector<int> children;
    int least = 0, most = 0;
    size_t rule = 0;
  };

  static std::string Name(size_t rule) { return rule == 0 ? "root" : absl::StrCat("r", rule); }
  int Pick(int count) { return static_cast<int>(random_() % static_cast<uint32_t>(count)); }

  int Keep(Tree tree) {
    trees_.push_back(std::move(tree));
    return static_cast<int>(trees_.size()) - 1;
  }

  int NewTree(int depth, int rule) {
    const int kind = depth == 0 ? 0 : Pick(6);
    if (kind < 2) return Keep({.kind = 'l', .literal = std::string(1, "ab"[Pick(2)])});
    if (kind == 2) {
      // Behind a literal, so that no rule begins with itself.
      const int literal = Keep({.kind = 'l', .literal = std::string(1, "ab"[Pick(2)])});
      const int name = Keep({.kind = 'n', .rule = static_cast<size_t>(Pick(3))});
      return Keep({.kind = 's', .children = {literal, name}});
    }
    std::vector<int> children;
    for (int i = 1 + Pick(3); i > 0; --i) children.push_back(NewTree(depth - 1, rule));
    if (kind == 3) return Keep({.kind = 's', .children = children});
    if (kind == 4) return Keep({.kind = 'c', .children = children});
    const int least = Pick(3);
    return Keep({.kind = 'r',
                 .children = {children[0]},
                 .least = least,
                 .most = Pick(2) == 0 ? -1 : least + Pick(3)});
  }

  std::string Text(int at) const {
    const Tree& tree = trees_[at];
    if (tree.kind == 'l') return absl::StrCat("\"", tree.literal, "\"");
    if (tree.kind == 'n') return Name(tree.rule);
    std::string text = "(";
    for (size_t i = 0; i < tree.children.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : tree.kind == 'c' ? " | " : " ", Text(tree.children[i]));
    }
    absl::StrAppend(&text, ")");
    if (tree.kind != 'r') return text;
    absl::StrAppend(&text, "{", tree.least, ",");
    if (tree.most >= 0) absl::StrAppend(&text, tree.most);
    return absl::StrCat(text, "}");
  }

  // Where what `at` derives from `begin` can end.
  const std::set<size_t>& Ends(int at, const std::string& text, size_t begin) {
    const auto key = std::pair(at, begin);
    if (const auto known = ends_.find(key); known != ends_.end()) return known->second;
    const Tree& tree = trees_[at];
    std::set<size_t> ends;
    if (tree.kind == 'l') {
      if (text.compare(begin, 1, tree.literal) == 0) ends.insert(begin + 1);
    } else if (tree.kind == 'n') {
      ends = Ends(bodies_[tree.rule], text, begin);
    } else if (tree.kind == 'c') {
      for (const int child : tree.children) ends.merge(std::set(Ends(child, text, begin)));
    } else if (tree.kind == 's') {
      ends.insert(begin);
      for (const int child : tree.children) ends = After(ends, child, text);
    } else {
      std::set<size_t> open = {begin};
      for (int i = 0; i < tree.least; ++i) open = After(open, tree.children[0], text);
      ends = open;
      const int most = tree.most < 0 ? tree.least + static_cast<int>(text.size()) : tree.most;
      for (int i = tree.least; i < most; ++i) {
        open = After(open, tree.children[0], text);
        ends.insert(open.begin(), open.end());
      }
    }
    return ends_[key] = ends;
  }

  std::set<size_t> After(const std::set<size_t>& begins, int child, const std::string& text) {
    std::set<size_t> ends;
    for (const size_t begin : begins) ends.merge(std::set(Ends(child, text, begin)));
    return ends;
  }

  std::mt19937 random_;
  std::vector<Tree> trees_;
  std::vector<int> bodies_;
  std::map<std::pair<int, size_t>, std::set<size_t>> ends_;
};

std::vector<std::string> TextsOf(size_t length_max) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() == length_max) continue;
    for (const char c : {'a', 'b'}) texts.push_back(texts[i] + c);
  }
  return texts;
}

TEST(GrammarTest, HasTheTextsThatASearchFinds) {
  const std::vector<std::string> texts = TextsOf(7);
  int accepted = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomGrammar random(seed);
    const auto grammar = Grammar::FromGbnf(random.Gbnf());
    ASSERT_TRUE(grammar.ok()) << grammar.status() << "\n" << random.Gbnf();
    for (const std::string& text : texts) {
      GrammarMatcher matcher(**grammar, NoTokens());
      const bool has = *matcher.Accept(text) && matcher.can_end();
      ASSERT_EQ(has, random.Has(text)) << text << "\n" << random.Gbnf();
      accepted += has;
    }
  }
  EXPECT_GT(accepted, 1000);
}

TEST(GrammarTest, MasksTheTokensThatWouldNotBeAccepted) {
  std::mt19937 random(1);
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::vector<std::string> tokens = {"", "a", "b", "a"};
    while (tokens.size() < 130) {
      std::string token;
      for (uint32_t i = 1 + random() % 4; i > 0; --i) token += "abc"[random() % 3];
      tokens.push_back(token);
    }
    const TokenTrie trie(tokens);
    const auto grammar = Grammar::FromGbnf(RandomGrammar(seed).Gbnf());
    ASSERT_TRUE(grammar.ok());
    GrammarMatcher matcher(**grammar, trie);
    std::string text;
    for (int step = 0; step < 6; ++step) {
      const auto mask = matcher.Mask();
      ASSERT_TRUE(mask.ok());
      std::vector<std::string> allowed;
      for (size_t token = 0; token < tokens.size(); ++token) {
        GrammarMatcher alone(**grammar, trie);
        const bool fits = !tokens[token].empty() && *alone.Accept(text + tokens[token]);
        ASSERT_EQ(((*mask)[token / 64] >> (token % 64)) & 1, fits) << text << "|" << tokens[token];
        if (fits) allowed.push_back(tokens[token]);
      }
      if (allowed.empty()) break;
      const std::string& token = allowed[random() % allowed.size()];
      ASSERT_TRUE(*matcher.Accept(token));
      text += token;
    }
  }
}

}  // namespace
}  // namespace stampmill
