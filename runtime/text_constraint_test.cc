#include "runtime/text_constraint.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace stampmill {
namespace {

// Single characters, some words, a byte that no text begins with, and special tokens.
constexpr absl::string_view kTokens[] = {"a", "b", "c", "ab", "abc", "{", "}", "<call>", "<end>"};
constexpr int32_t kCall = 7, kEnd = 8;

std::unique_ptr<const Tokenizer> MakeTokenizer() {
  TokenizerSpec spec;
  for (const absl::string_view token : kTokens) spec.tokens.Add(token);
  spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
  spec.kinds[kCall] = spec.kinds[kEnd] = TokenKind::kControl;
  spec.ends_generation = {kEnd};
  auto tokenizer = Tokenizer::Create(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

class TextConstraintTest : public testing::Test {
 protected:
  TextConstraint Make(absl::string_view gbnf) {
    auto grammar = Grammar::FromGbnf(gbnf);
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    return TextConstraint(*std::move(grammar), &vocabulary_);
  }

  // The tokens of the mask.
  std::vector<int32_t> Allowed(const TextConstraint& constraint, std::vector<int32_t> ends = {kEnd},
                               int64_t words = 2) {
    std::vector<int32_t> masks = {-1};
    constraint.AppendMask(ends, words, masks);
    EXPECT_EQ(masks.size(), static_cast<size_t>(1 + words));
    EXPECT_EQ(masks[0], -1);
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < 32 * words; ++token) {
      if (static_cast<uint32_t>(masks[1 + token / 32]) >> (token % 32) & 1) {
        allowed.push_back(token);
      }
    }
    return allowed;
  }

  const std::unique_ptr<const Tokenizer> tokenizer_ = MakeTokenizer();
  const ConstraintVocabulary vocabulary_{tokenizer_.get()};
};

using Tokens = std::vector<int32_t>;

TEST_F(TextConstraintTest, AllowsWhatContinuesAndTheEndWhereItMayEnd) {
  TextConstraint constraint = Make("root ::= \"ab\" \"c\"*");
  ASSERT_TRUE(constraint.Begin().ok());
  EXPECT_EQ(Allowed(constraint), (Tokens{0, 3, 4}));
  ASSERT_TRUE(constraint.Take(3).ok());
  EXPECT_EQ(Allowed(constraint), (Tokens{2, kEnd}));
  EXPECT_EQ(Allowed(constraint, {}), (Tokens{2}));
  EXPECT_FALSE(constraint.complete());
}

TEST_F(TextConstraintTest, IsCompleteWhereNothingButTheEndFollows) {
  TextConstraint constraint = Make("root ::= \"abc\"");
  ASSERT_TRUE(constraint.Begin().ok());
  ASSERT_TRUE(constraint.Take(3).ok());
  EXPECT_FALSE(constraint.complete());
  ASSERT_TRUE(constraint.Take(2).ok());
  EXPECT_TRUE(constraint.complete());
}

TEST_F(TextConstraintTest, BeginsAgain) {
  TextConstraint constraint = Make("root ::= \"ab\"");
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(constraint.Begin().ok());
    EXPECT_EQ(Allowed(constraint), (Tokens{0, 3}));
    ASSERT_TRUE(constraint.Take(0).ok());
    EXPECT_EQ(Allowed(constraint), (Tokens{1}));
    constraint.Rest();
  }
}

TEST_F(TextConstraintTest, TellsWhenNoTokenContinues) {
  TextConstraint at_once = Make("root ::= \"x\"");
  EXPECT_EQ(at_once.Begin().code(), absl::StatusCode::kFailedPrecondition);
  TextConstraint later = Make("root ::= \"ax\" | \"bc\"");
  ASSERT_TRUE(later.Begin().ok());
  EXPECT_EQ(Allowed(later), (Tokens{0, 1}));
  const absl::Status stuck = later.Take(0);
  EXPECT_EQ(stuck.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(stuck.message().find("behind 1 tokens"), absl::string_view::npos) << stuck;
  ASSERT_TRUE(later.Begin().ok());
  EXPECT_FALSE(later.Take(2).ok());
}

TEST_F(TextConstraintTest, SpecialTokensComeOnlyWhereTheyAreAskedFor) {
  TextConstraint any = Make("root ::= .*");
  ASSERT_TRUE(any.Begin().ok());
  EXPECT_EQ(Allowed(any), (Tokens{0, 1, 2, 3, 4, 5, 6, kEnd}));
  EXPECT_EQ(vocabulary_.Spelling("<call>"), "\xFF<call>");
  EXPECT_EQ(vocabulary_.Spelling("<other>"), "<other>");
  EXPECT_EQ(vocabulary_.Spelling("ab"), "ab");
  auto grammar =
      Grammar::FromChoice(std::vector<std::string>{vocabulary_.Spelling("<call>") + "a"});
  TextConstraint asked(*std::move(grammar), &vocabulary_);
  ASSERT_TRUE(asked.Begin().ok());
  EXPECT_EQ(Allowed(asked), (Tokens{kCall}));
  ASSERT_TRUE(asked.Take(kCall).ok());
  EXPECT_EQ(Allowed(asked), (Tokens{0}));
}

TEST_F(TextConstraintTest, EndsWithBytesAreTheGrammarsToAllow) {
  TextConstraint constraint = Make("root ::= \"a\" \"b\"?");
  ASSERT_TRUE(constraint.Begin().ok());
  ASSERT_TRUE(constraint.Take(0).ok());
  EXPECT_EQ(Allowed(constraint, {2, kEnd}), (Tokens{1, kEnd}));
  // A model whose scores are fewer than the tokens.
  EXPECT_EQ(Allowed(constraint, {kEnd, 1000}, 1), (Tokens{1, kEnd}));
}

TEST_F(TextConstraintTest, WhatComesBeforeItIsFree) {
  TextConstraint constraint = Make("root ::= \"cab\"");
  Tokens all;
  for (int32_t token = 0; token < 64; ++token) {
    if (token != kEnd) all.push_back(token);
  }
  ASSERT_TRUE(constraint.Begin({.text = "ab{"}).ok());
  for (const int32_t token : {0, 0, 1, kCall, 2, 0}) {
    EXPECT_EQ(Allowed(constraint), all);
    ASSERT_TRUE(constraint.Take(token).ok());
  }
  ASSERT_TRUE(constraint.Take(1).ok());
  EXPECT_EQ(Allowed(constraint), all);
  ASSERT_TRUE(constraint.Take(5).ok());
  EXPECT_EQ(Allowed(constraint), (Tokens{2}));

  // The token that ends it may begin what follows; another way than allowed is an error.
  ASSERT_TRUE(constraint.Begin({.text = "ab"}).ok());
  ASSERT_TRUE(constraint.Take(4).ok());
  EXPECT_EQ(Allowed(constraint), (Tokens{0, 3}));
  ASSERT_TRUE(constraint.Begin({.text = "a"}).ok());
  EXPECT_FALSE(constraint.Take(3).ok());

  ASSERT_TRUE(constraint.Begin({.text = "<call>", .may_end = true}).ok());
  EXPECT_EQ(Allowed(constraint).size(), 64U);
  ASSERT_TRUE(constraint.Take(kCall).ok());
  EXPECT_EQ(Allowed(constraint), (Tokens{2}));
}

TEST_F(TextConstraintTest, BoundsWhatItTakesToTell) {
  // Each "a" begins another way to go on.
  std::string gbnf = "root ::= (";
  for (int i = 0; i < 60; ++i) gbnf += "([a-c]* \"a\" [a-c]{100}) | ";
  TextConstraint constraint = Make(gbnf + "\"b\")");
  absl::Status status = constraint.Begin();
  for (int i = 0; i < 200 && status.ok(); ++i) status = constraint.Take(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("more than"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace stampmill
