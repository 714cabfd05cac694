#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace stampmill {
namespace {

using Ids = std::vector<int32_t>;

// A byte-level vocabulary of all bytes, then `words`, made by `merges` ("left right" each).
TokenizerSpec ByteLevelSpec(const std::vector<std::string>& words,
                            const std::vector<std::pair<std::string, std::string>>& merges) {
  TokenizerSpec spec;
  spec.byte_level = true;
  for (int byte = 0; byte < 256; ++byte) {
    // GPT-2's alphabet: printable bytes of Latin-1, the others from U+0100 on.
    static constexpr auto plain = [](int b) {
      return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    };
    int letter = byte;
    if (!plain(byte)) {
      letter = 0x100;
      for (int before = 0; before < byte; ++before) letter += !plain(before);
    }
    std::string text;
    if (letter < 0x80) {
      text += static_cast<char>(letter);
    } else {
      text += static_cast<char>(0xC0 | letter >> 6);
      text += static_cast<char>(0x80 | (letter & 0x3F));
    }
    spec.tokens.Add(text);
  }
  for (const std::string& word : words) spec.tokens.Add(word);
  for (const auto& [left, right] : merges) {
    spec.merges.Add(left);
    spec.merges.Add(right);
  }
  spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
  return spec;
}

std::unique_ptr<const Tokenizer> Make(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::Create(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

Ids Encode(const Tokenizer& tokenizer, absl::string_view text, EncodeOptions options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : Ids{};
}

TokenizerSpec SentencePieces(const std::vector<std::pair<std::string, float>>& pieces) {
  TokenizerSpec spec;
  spec.model = TokenizerModel::kScoredPairs;
  spec.byte_fallback = true;
  spec.decoding.marks_are_spaces = true;
  spec.tokens.Add("<unk>");
  spec.scores.push_back(0);
  spec.unknown = 0;
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    spec.tokens.Add(text);
    spec.scores.push_back(0);
  }
  for (const auto& [text, score] : pieces) {
    spec.tokens.Add(text);
    spec.scores.push_back(score);
  }
  spec.pre_tokenizers.push_back({.kind = PreTokenizer::Kind::kMarkSpaces, .content = "\u2581"});
  return spec;
}

TEST(TokenizerTest, MergesTheBestPairFirstAndTheLeftmostOfEquals) {
  const auto tokenizer =
      Make(ByteLevelSpec({"ab", "bc", "aa"}, {{"b", "c"}, {"a", "b"}, {"a", "a"}}));
  EXPECT_EQ(Encode(*tokenizer, "abc"), (Ids{'a', 257}));
  EXPECT_EQ(Encode(*tokenizer, "ab"), (Ids{256}));
  EXPECT_EQ(Encode(*tokenizer, "aaa"), (Ids{258, 'a'}));
}

TEST(TokenizerTest, AWordThatMergesDoNotReachIsATokenOnlyWhereWholeWordsAre) {
  TokenizerSpec spec = ByteLevelSpec({"ab", "abc"}, {{"a", "b"}});
  EXPECT_EQ(Encode(*Make(ByteLevelSpec({"ab", "abc"}, {{"a", "b"}})), "abc"), (Ids{256, 'c'}));
  spec.whole_words = true;
  EXPECT_EQ(Encode(*Make(std::move(spec)), "abc"), (Ids{257}));
}

TEST(TokenizerTest, MergesGoThroughTextsThatAreNoTokens) {
  const auto tokenizer = Make(ByteLevelSpec({"abc"}, {{"a", "b"}, {"ab", "c"}}));
  EXPECT_EQ(Encode(*tokenizer, "abc"), (Ids{256}));
  EXPECT_EQ(Encode(*tokenizer, "abd"), (Ids{'a', 'b', 'd'}));
}

TEST(TokenizerTest, FewAndManySymbolsMergeAlike) {
  // The heap against the search: the same stretch alone and inside of a long piece.
  const auto tokenizer = Make(
      ByteLevelSpec({"ab", "aba", "abab", "bb", "abb", "cc"},
                    {{"a", "b"}, {"ab", "ab"}, {"b", "b"}, {"ab", "b"}, {"ab", "a"}, {"c", "c"}}));
  uint32_t random = 12345;
  for (int i = 0; i < 200; ++i) {
    std::string text;
    Ids expected;
    for (int part = 0; part < 20; ++part) {
      std::string piece;
      for (int k = 0; k < 8; ++k) {
        random = random * 1664525 + 1013904223;
        piece += "abc"[random >> 24 & 1];
      }
      piece += "d";  // merges with nothing
      text += piece;
      const Ids ids = Encode(*tokenizer, piece);
      expected.insert(expected.end(), ids.begin(), ids.end());
    }
    ASSERT_EQ(Encode(*tokenizer, text), expected) << text;
  }
}

TEST(TokenizerTest, ScoresDecideAndBytesStandInForWhatIsNoToken) {
  const auto tokenizer =
      Make(SentencePieces({{"\u2581", -9}, {"a", -9}, {"b", -9}, {"ab", -1}, {"\u2581a", -2}}));
  EXPECT_EQ(Encode(*tokenizer, " ab"), (Ids{257, 260}));
  EXPECT_EQ(Encode(*tokenizer, " a"), (Ids{261}));
  EXPECT_EQ(Encode(*tokenizer, "\xC3\xA4\xFF"), (Ids{1 + 0xC3, 1 + 0xA4, 1 + 0xFF}));
  EXPECT_EQ(tokenizer->TokenBytes(261), " a");
  EXPECT_EQ(tokenizer->TokenBytes(1 + 0xC3), "\xC3");
}

TEST(TokenizerTest, PiecesThatCrossASpaceAreFoundAllTheSame) {
  const auto tokenizer = Make(SentencePieces(
      {{"\u2581", -9}, {"a", -9}, {"b", -9}, {"c", -9}, {"a\u2581", -3}, {"a\u2581b", -2}}));
  EXPECT_EQ(Encode(*tokenizer, "a b"), (Ids{262}));
  EXPECT_EQ(Encode(*tokenizer, "c b"), (Ids{260, 257, 259}));
}

TEST(TokenizerTest, UnigramTakesTheBestSumOfScores) {
  TokenizerSpec spec;
  spec.model = TokenizerModel::kUnigram;
  const std::pair<const char*, float> pieces[] = {{"<unk>", 0}, {"a", -2},  {"b", -2},
                                                  {"ab", -3},   {"bc", -1}, {"abc", -9}};
  for (const auto& [text, score] : pieces) {
    spec.tokens.Add(text);
    spec.scores.push_back(score);
  }
  spec.unknown = 0;
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(Encode(*tokenizer, "abc"), (Ids{1, 4}));
  EXPECT_EQ(Encode(*tokenizer, "ab"), (Ids{3}));
  EXPECT_EQ(Encode(*tokenizer, "axb"), (Ids{1, 0, 2}));
}

TEST(TokenizerTest, WordPieceTakesTheLongestAndGivesUpOnTheWholeWord) {
  TokenizerSpec spec;
  spec.model = TokenizerModel::kWordPiece;
  spec.continuation = "##";
  spec.word_characters_max = 10;
  for (const char* text : {"[UNK]", "un", "##aff", "##able", "unaff"}) spec.tokens.Add(text);
  spec.unknown = 0;
  spec.decoding.joins_words = true;
  spec.pre_tokenizers.push_back({.kind = PreTokenizer::Kind::kSplit,
                                 .pattern = "\\s+",
                                 .behavior = PreTokenizer::Behavior::kRemoved});
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(Encode(*tokenizer, "unaffable un unx"), (Ids{4, 3, 1, 0}));
  EXPECT_EQ(Encode(*tokenizer, "unablexxxxxxxx"), (Ids{0}));
  Detokenizer detokenizer(tokenizer.get(), {.special = true});
  EXPECT_EQ(detokenizer.Add(4) + detokenizer.Add(3) + detokenizer.Add(1), "unaffable un");
}

TEST(TokenizerTest, AddedTokensAreCutOutLongestFirst) {
  TokenizerSpec spec = ByteLevelSpec({"<a>", "<a><b>", "<s>"}, {});
  for (const int32_t id : {256, 257, 258}) {
    spec.kinds[id] = id == 258 ? TokenKind::kControl : TokenKind::kUserDefined;
    spec.added.push_back({.id = id, .special = id == 258});
  }
  spec.bos = 258;
  spec.prefix = {258};
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(Encode(*tokenizer, "x<a><b><a>y"), (Ids{'x', 257, 256, 'y'}));
  EXPECT_EQ(Encode(*tokenizer, "<s>"), (Ids{'<', 's', '>'}));
  EXPECT_EQ(Encode(*tokenizer, "<s>", {.parse_special = true}), (Ids{258}));
  EXPECT_EQ(Encode(*tokenizer, "x", {.add_special = true}), (Ids{258, 'x'}));
  EXPECT_TRUE(tokenizer->IsSpecial(258));
  EXPECT_FALSE(tokenizer->IsSpecial(257));
  EXPECT_EQ(tokenizer->Find("<a><b>"), 257);
  EXPECT_EQ(tokenizer->Find("<nothing>"), std::nullopt);
}

TEST(TokenizerTest, AddedTokensTakeSpacesAndKeepOutOfWordsWhereTheySaySo) {
  TokenizerSpec spec = ByteLevelSpec({"<l>", "<r>", "word"}, {});
  for (const int32_t id : {256, 257, 258}) spec.kinds[id] = TokenKind::kUserDefined;
  spec.added = {{.id = 256, .left_strip = true},
                {.id = 257, .right_strip = true},
                {.id = 258, .single_word = true}};
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(Encode(*tokenizer, "a  <l> b"), (Ids{'a', 256, ' ', 'b'}));
  EXPECT_EQ(Encode(*tokenizer, "a <r>\t b"), (Ids{'a', ' ', 257, 'b'}));
  EXPECT_EQ(Encode(*tokenizer, "word-swordw"), (Ids{258, '-', 's', 'w', 'o', 'r', 'd', 'w'}));
}

TEST(TokenizerTest, CharactersAreNeverSplitOverOutputs) {
  const auto tokenizer = Make(ByteLevelSpec({}, {}));
  const std::string text = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80z";
  Detokenizer detokenizer(tokenizer.get());
  std::string whole;
  for (const int32_t id : Encode(*tokenizer, text)) {
    const std::string part = detokenizer.Add(id);
    EXPECT_TRUE(part.empty() || (part[0] & 0xC0) != 0x80);
    whole += part;
  }
  EXPECT_EQ(whole + detokenizer.Finish(), text);
}

TEST(TokenizerTest, BytesThatNothingCanCompleteAreReplacedAtOnceAndOthersAtTheEnd) {
  const auto tokenizer = Make(ByteLevelSpec({}, {}));
  Detokenizer detokenizer(tokenizer.get());
  EXPECT_EQ(detokenizer.Add(0xE2), "");
  EXPECT_EQ(detokenizer.Add('a'), "\uFFFDa");
  EXPECT_EQ(detokenizer.Add(0xFF), "\uFFFD");
  EXPECT_EQ(detokenizer.Add(0xF0), "");
  EXPECT_EQ(detokenizer.Add(0x9F), "");
  EXPECT_EQ(detokenizer.Add(-1), "");
  EXPECT_EQ(detokenizer.Add(1 << 30), "");
  EXPECT_EQ(detokenizer.Finish(), "\uFFFD\uFFFD");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(TokenizerTest, TheFirstSpaceOfSentencePiecesIsLeftOutOnce) {
  TokenizerSpec spec = SentencePieces({{"\u2581a", -1}, {"a", -2}});
  spec.decoding.strips_first_space = true;
  const auto tokenizer = Make(std::move(spec));
  Detokenizer detokenizer(tokenizer.get());
  EXPECT_EQ(detokenizer.Add(257) + detokenizer.Add(257), "a a");
}

TEST(TokenizerTest, InvalidUtf8BecomesReplacementCharacters) {
  const auto tokenizer = Make(ByteLevelSpec({}, {}));
  EXPECT_EQ(Encode(*tokenizer, "a\xE2\x82"), (Ids{'a', 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD}));
}

TEST(TokenizerTest, AMegabyteOfOneLetterOrOfSpacesTakesSeconds) {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> merges;
  for (const std::string letter : {"a", "\u0120"}) {
    for (std::string word = letter; word.size() < 64; word += word) {
      words.push_back(word + word);
      merges.emplace_back(word, word);
    }
  }
  const auto tokenizer = Make(ByteLevelSpec(words, merges));
  const auto begin = std::chrono::steady_clock::now();
  for (const char letter : {'a', ' '}) {
    const Ids ids = Encode(*tokenizer, std::string(1 << 20, letter));
    EXPECT_LE(ids.size(), (1u << 20) / 32);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(TokenizerTest, ThreadsShareOneTokenizer) {
  const auto tokenizer = Make(ByteLevelSpec({"ab", "abc"}, {{"a", "b"}, {"ab", "c"}}));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        EXPECT_EQ(Encode(*tokenizer, "abcab"), (Ids{257, 256}));
        EXPECT_EQ(Encode(*tokenizer, "ab"), (Ids{256}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerTest, SpecsThatContradictThemselvesAreRefused) {
  const auto refused = [](TokenizerSpec spec) {
    return Tokenizer::Create(std::move(spec)).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({}));
  TokenizerSpec spec = ByteLevelSpec({}, {});
  spec.kinds.pop_back();
  EXPECT_TRUE(refused(std::move(spec)));
  spec = ByteLevelSpec({}, {});
  spec.prefix = {256};
  EXPECT_TRUE(refused(std::move(spec)));
  spec = ByteLevelSpec({}, {});
  spec.eos = -1;
  EXPECT_TRUE(refused(std::move(spec)));
  spec = ByteLevelSpec({}, {});
  spec.added = {{.id = 1 << 30}};
  EXPECT_TRUE(refused(std::move(spec)));
  spec = SentencePieces({});
  spec.scores.pop_back();
  EXPECT_TRUE(refused(std::move(spec)));
  spec = SentencePieces({});
  spec.scores[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refused(std::move(spec)));
  spec = ByteLevelSpec({}, {});
  spec.pre_tokenizers.resize(33);
  EXPECT_TRUE(refused(std::move(spec)));
  EXPECT_FALSE(
      Make(ByteLevelSpec({}, {}))->Encode(std::string(kEncodedBytesMax + 1, 'a'), {}).ok());
}

}  // namespace
}  // namespace stampmill
