#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "text/tokenizer.h"

namespace stampmill {
namespace {

using Ids = std::vector<int32_t>;

constexpr absl::string_view kWordPieces = R"({
  "added_tokens": [
    {"id": 0, "content": "[UNK]", "special": true},
    {"id": 1, "content": "[CLS]", "special": true},
    {"id": 2, "content": "[SEP]", "special": true}],
  "normalizer": {"type": "BertNormalizer", "lowercase": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}},
               {"SpecialToken": {"id": "[SEP]"}}],
    "special_tokens": {"[CLS]": {"ids": [1]}, "[SEP]": {"ids": [2]}}},
  "decoder": {"type": "WordPiece", "cleanup": true},
  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
    "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "hell": 3, "##o": 4, "world": 5, ".": 6,
              "\u4f60": 7}}})";

constexpr absl::string_view kBytePairs = R"({
  "added_tokens": [{"id": 5, "content": "<s>", "special": true}],
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": " ?\\p{L}+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated"},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u0120": 2, "ab": 3, "\u0120ab": 4},
            "merges": ["a b", ["\u0120", "ab"]]}})";

std::unique_ptr<const Tokenizer> Make(absl::string_view json) {
  auto spec = ParseTokenizerJson(json);
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return nullptr;
  auto tokenizer = Tokenizer::Create(*std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::string Decode(const Tokenizer& tokenizer, const Ids& ids) {
  Detokenizer detokenizer(&tokenizer);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Add(id);
  return text + detokenizer.Finish();
}

TEST(TokenizerJsonTest, WordPiecesOfBert) {
  const auto tokenizer = Make(kWordPieces);
  const auto ids = tokenizer->Encode("Hell\u00F3 world.\u4F60x", {.add_special = true});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, (Ids{1, 3, 4, 5, 6, 7, 0, 2}));
  EXPECT_EQ(Decode(*tokenizer, {1, 3, 4, 5, 6, 2}), "hello world.");
}

TEST(TokenizerJsonTest, BytePairsOfBytes) {
  const auto tokenizer = Make(kBytePairs);
  const auto ids = tokenizer->Encode("ab ab<s>b a", {.parse_special = true});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, (Ids{3, 4, 5, 1, 2, 0}));
  EXPECT_EQ(Decode(*tokenizer, *ids), "ab abb a");
}

TEST(TokenizerJsonTest, TheConfigurationBesideItNamesTheEnds) {
  auto spec = ParseTokenizerJson(kBytePairs);
  ASSERT_TRUE(spec.ok());
  ASSERT_TRUE(
      ParseTokenizerConfigJson(
          R"({"eos_token": "<s>", "bos_token": {"content": "ab"}, "pad_token": null})", &*spec)
          .ok());
  EXPECT_EQ(spec->eos, 5);
  EXPECT_EQ(spec->bos, 3);
  EXPECT_EQ(spec->padding, std::nullopt);
  for (const absl::string_view bad : {"", "[]", R"({"eos_token": "x"})", R"({"eos_token": 1})"}) {
    EXPECT_EQ(ParseTokenizerConfigJson(bad, &*spec).code(), absl::StatusCode::kInvalidArgument);
  }
}

// A file in which one stretch of text is another; the test fails where there is no such stretch.
std::string With(absl::string_view json, absl::string_view before, absl::string_view after) {
  const std::string changed = absl::StrReplaceAll(json, {{before, after}});
  EXPECT_NE(changed, json) << before;
  return changed;
}

TEST(TokenizerJsonTest, WhatIsNotKnownIsRefusedByName) {
  const std::pair<std::string, std::string> cases[] = {
      {With(kWordPieces, "\"type\": \"WordPiece\", \"unk", "\"type\": \"WordLevel\", \"unk"),
       "WordLevel"},
      {With(kWordPieces, "BertNormalizer", "MagicNormalizer"), "MagicNormalizer"},
      {With(kWordPieces, "BertPreTokenizer", "UnicodeScripts"), "UnicodeScripts"},
      {With(kWordPieces, "TemplateProcessing", "OtherProcessing"), "OtherProcessing"},
      {With(kWordPieces, "\"type\": \"WordPiece\", \"cleanup\"", "\"type\": \"CTC\", \"cleanup\""),
       "CTC"},
      {With(kBytePairs, "Isolated", "Shuffled"), "Shuffled"},
      {With(kBytePairs, "\"type\": \"BPE\"", "\"type\": \"BPE\", \"dropout\": 0.1"), "dropout"},
      {With(kWordPieces, "{\"type\": \"BertPreTokenizer\"}", "{\"type\": \"ByteLevel\"}"),
       "ByteLevel"},
  };
  for (const auto& [json, name] : cases) {
    const auto spec = ParseTokenizerJson(json);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kUnimplemented) << name << spec.status();
    EXPECT_NE(spec.status().message().find(name), absl::string_view::npos) << spec.status();
  }
  const auto spec = ParseTokenizerJson(With(kBytePairs, "\\\\s+(?!\\\\S)", "(a)\\\\1"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Tokenizer::Create(*spec).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(TokenizerJsonTest, WhatIsMalformedIsRefused) {
  const std::string cases[] = {
      "",
      "[]",
      "{}",
      std::string(100'000, '['),
      std::string(kBytePairs.substr(0, 300)),
      With(kBytePairs, "\"a\": 0", "\"a\": -1"),
      With(kBytePairs, "\"a\": 0", "\"a\": 4000000000"),
      With(kBytePairs, "\"a\": 0", "\"a\": 1"),
      With(kBytePairs, "\"a\": 0", "\"a\": \"x\""),
      With(kBytePairs, "\"a b\"", "\"a c\""),
      With(kBytePairs, "\"a b\"", "\"a b c\""),
      With(kBytePairs, "\"a b\"", "\"ab\""),
      With(kBytePairs, "\"a b\"", "17"),
      With(kBytePairs, "\"id\": 5", "\"id\": 1"),
      With(kBytePairs, "\"id\": 5", "\"id\": 10000000"),
      With(kWordPieces, "\"ids\": [1]", "\"ids\": [100]"),
      With(kWordPieces, "\"ids\": [1]", "\"ids\": 1"),
      With(kWordPieces, "\"unk_token\": \"[UNK]\"", "\"unk_token\": \"[NONE]\""),
      With(kWordPieces, "\"lowercase\": true", "\"lowercase\": 1"),
  };
  for (const std::string& json : cases) {
    const auto spec = ParseTokenizerJson(json);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument)
        << json.substr(0, 400) << spec.status();
  }
}

}  // namespace
}  // namespace stampmill
