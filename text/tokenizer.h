// Texts to the ids of a model's tokens and back.
//
//   ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(std::move(spec)));
//   ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
//                    tokenizer->Encode(text, {.add_special = true, .parse_special = false}));
//   Detokenizer detokenizer(tokenizer.get());
//   for (const int32_t id : ids) out += detokenizer.Add(id);
//   out += detokenizer.Finish();
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/added_tokens.h"
#include "text/normalization.h"
#include "text/pair_model.h"
#include "text/pre_tokenization.h"
#include "text/tokenizer_spec.h"
#include "text/unigram_model.h"
#include "text/vocabulary.h"
#include "text/word_piece_model.h"

namespace stampmill {

// A text is held several times while it is encoded: more than any model's context takes.
inline constexpr size_t kEncodedBytesMax = size_t{16} << 20;
inline constexpr size_t kVocabularyTokensMax = size_t{1} << 24;

struct EncodeOptions {
  bool add_special = false;    // put the model's prefix and suffix (such as bos) around the text
  bool parse_special = false;  // let the texts of special tokens stand for them
};

// Immutable, thread-safe.
class Tokenizer {
 public:
  // INVALID_ARGUMENT: counts that differ, an id that is no token, a number that is not finite, a
  // pattern that is malformed or too large. UNIMPLEMENTED: a pattern beyond regex_syntax.h.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(TokenizerSpec spec);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Bytes that are no UTF-8 become SentencePiece's tokens of bytes, for other models U+FFFD each.
  // INVALID_ARGUMENT: more than kEncodedBytesMax. RESOURCE_EXHAUSTED: see PreTokenization::Split.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, EncodeOptions options) const;

  // What a token adds to a text, spaces as spaces; empty for an id that is none. For WordPiece the
  // spaces between words are the Detokenizer's.
  absl::string_view TokenBytes(int32_t id) const;
  // As the vocabulary writes it.
  absl::string_view TokenText(int32_t id) const;

  int32_t vocabulary_size() const { return vocabulary_.size(); }
  bool IsToken(int32_t id) const { return id >= 0 && id < vocabulary_size(); }
  // Control and unknown tokens and those that were added as special: no part of an answer's text.
  bool IsSpecial(int32_t id) const { return IsToken(id) && special_[id]; }
  bool IsControl(int32_t id) const { return KindOf(id) == TokenKind::kControl; }
  // Whether a generation ends with it.
  bool EndsGeneration(int32_t id) const { return IsToken(id) && ends_generation_[id]; }
  TokenKind KindOf(int32_t id) const {
    return IsToken(id) && !kinds_.empty() ? kinds_[id] : TokenKind::kNormal;
  }
  // The id of the token that is written so, if there is one.
  std::optional<int32_t> Find(absl::string_view token_text) const;

  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  std::optional<int32_t> unknown() const { return unknown_; }
  std::optional<int32_t> padding() const { return padding_; }
  const std::vector<int32_t>& prefix() const { return prefix_; }
  const std::vector<int32_t>& suffix() const { return suffix_; }
  const TokenDecoding& decoding() const { return decoding_; }
  // WordPiece: what begins a token that continues a word.
  absl::string_view continuation() const { return continuation_; }

 private:
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  static absl::Status Check(const TokenizerSpec& spec);
  absl::Status TakeAddedTokens(const std::vector<AddedToken>& added);
  void WriteOutputs(const TokenizerSpec& spec);
  absl::Status EncodePart(absl::string_view text, bool first, EncodeOptions options,
                          std::vector<int32_t>* ids) const;
  absl::Status EncodePlain(absl::string_view text, bool first, std::vector<int32_t>* ids) const;

  const Vocabulary vocabulary_;
  std::vector<TokenKind> kinds_;
  std::vector<bool> special_, ends_generation_;
  std::optional<TextPool> outputs_;    // of tokens, where they differ from the vocabulary's texts
  std::optional<TextPool> raw_texts_;  // byte-level: as written, for added tokens and TokenText
  TextPool normalized_texts_;          // what normalized_added_ looks for
  AddedTokens added_, normalized_added_;
  std::optional<Normalization> normalization_;
  std::optional<PreTokenization> pre_tokenization_;
  std::unique_ptr<const PairModel> pairs_;
  std::unique_ptr<const UnigramModel> unigram_;
  std::unique_ptr<const WordPieceModel> word_pieces_;
  bool keeps_invalid_ = false;  // bytes that are no UTF-8 reach the model
  TokenDecoding decoding_;
  std::string continuation_;
  std::vector<int32_t> prefix_, suffix_;
  std::optional<int32_t> bos_, eos_, unknown_, padding_;
};

// Puts texts together from tokens as they come. What it returns is always whole characters; bytes
// that begin one wait for the next token. Owned by one thread.
class Detokenizer {
 public:
  struct Options {
    bool special = false;  // the texts of special tokens too
  };

  // Borrows the tokenizer.
  explicit Detokenizer(const Tokenizer* tokenizer) : Detokenizer(tokenizer, Options()) {}
  Detokenizer(const Tokenizer* tokenizer, Options options)
      : tokenizer_(tokenizer), options_(options) {}

  // What is certain now; bytes that are no UTF-8 whatever follows are U+FFFD. An id that is no
  // token adds nothing.
  std::string Add(int32_t id);
  // What still waits, U+FFFD for each byte of an unfinished character.
  std::string Finish();

 private:
  const Tokenizer* const tokenizer_;
  const Options options_;
  bool begun_ = false;
  std::string waiting_;
};

}  // namespace stampmill
