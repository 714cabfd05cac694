#include "text/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include "text/regex.h"

namespace stampmill {
namespace {

GgufVocabulary Vocabulary(const std::string& model) {
  GgufVocabulary vocabulary;
  vocabulary.model = model;
  for (const char* text : {"<unk>", "<s>", "</s>", "a", "b", "ab", "<|im_end|>"}) {
    vocabulary.tokens.Add(text);
    vocabulary.scores.push_back(0);
  }
  vocabulary.token_type = {2, 3, 3, 1, 1, 1, 1};
  vocabulary.merges.Add("a b");
  return vocabulary;
}

TEST(GgufVocabularyTest, EveryPatternOfTheTableCompiles) {
  for (const absl::string_view name :
       {"default",     "llama-bpe", "dbrx",       "deepseek-llm", "deepseek-coder",
        "deepseek-v3", "falcon",    "smollm",     "gpt-2",        "roberta-bpe",
        "qwen2",       "qwen35",    "bloom",      "viking",       "tekken",
        "gpt-4o",      "chameleon", "bailingmoe", "seed-coder",   "grok-2"}) {
    const auto pre_tokenizer = GgufPreTokenizerNamed(name);
    ASSERT_TRUE(pre_tokenizer.ok()) << name;
    for (const absl::string_view pattern : pre_tokenizer->patterns) {
      const auto regex = Regex::Compile(pattern, RegexDialect::kEcmaScript);
      EXPECT_TRUE(regex.ok()) << name << ": " << regex.status();
    }
  }
}

TEST(GgufVocabularyTest, WhatIsNotKnownIsRefusedByName) {
  for (const absl::string_view name : {"made-up", "gpt", "gpt-2 phi-2", " "}) {
    const auto pre_tokenizer = GgufPreTokenizerNamed(name);
    EXPECT_EQ(pre_tokenizer.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(pre_tokenizer.status().message().find(name), absl::string_view::npos);
  }
  const auto spec = SpecOfGguf(Vocabulary("rwkv"));
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(spec.status().message().find("rwkv"), absl::string_view::npos);
}

TEST(GgufVocabularyTest, SentencePiecesBeginWithBosAndASpaceUnlessTheFileSaysOtherwise) {
  const auto usual = SpecOfGguf(Vocabulary("llama"));
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_EQ(usual->prefix, std::vector<int32_t>{1});
  EXPECT_TRUE(usual->suffix.empty());
  EXPECT_EQ(usual->pre_tokenizers[0].prepend, PreTokenizer::Prepend::kAnyway);
  GgufVocabulary vocabulary = Vocabulary("llama");
  vocabulary.add_bos_token = false;
  vocabulary.add_eos_token = true;
  vocabulary.add_space_prefix = false;
  const auto other = SpecOfGguf(std::move(vocabulary));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(other->prefix.empty());
  EXPECT_EQ(other->suffix, std::vector<int32_t>{2});
  EXPECT_EQ(other->pre_tokenizers[0].prepend, PreTokenizer::Prepend::kNever);
}

TEST(GgufVocabularyTest, TokensThatEndATurnAreKnownByTheirTextAndAreControlTokens) {
  GgufVocabulary vocabulary = Vocabulary("llama");
  vocabulary.eot_token_id = 4;
  const auto spec = SpecOfGguf(std::move(vocabulary));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->ends_generation, (std::vector<int32_t>{2, 6, 4}));
  EXPECT_EQ(spec->kinds[6], TokenKind::kControl);
}

TEST(GgufVocabularyTest, BertPutsTwoTokensAround) {
  GgufVocabulary vocabulary = Vocabulary("bert");
  vocabulary.cls_token_id = 1;
  vocabulary.seperator_token_id = 2;
  const auto spec = SpecOfGguf(std::move(vocabulary));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->prefix, std::vector<int32_t>{1});
  EXPECT_EQ(spec->suffix, std::vector<int32_t>{2});
}

TEST(GgufVocabularyTest, MalformedKeysAreRefused) {
  GgufVocabulary vocabulary = Vocabulary("gpt2");
  vocabulary.merges.Add("ab");
  EXPECT_EQ(SpecOfGguf(std::move(vocabulary)).status().code(), absl::StatusCode::kInvalidArgument);
  vocabulary = Vocabulary("llama");
  vocabulary.token_type[2] = 7;
  EXPECT_EQ(SpecOfGguf(std::move(vocabulary)).status().code(), absl::StatusCode::kInvalidArgument);
  vocabulary = Vocabulary("llama");
  vocabulary.token_type.push_back(1);
  EXPECT_EQ(SpecOfGguf(std::move(vocabulary)).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stampmill
