// Byte pair encoding, of both kinds: by a list of merges, and SentencePiece's, where any two
// neighbours merge that are a token together. Symbols are bytes (GPT-2) or characters.
//
// Most words are one token. Whether the merges lead from a token's text to that token is found out
// when it is first met and kept, two bits a token: then such a word costs one look-up.
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/pair_merging.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace stampmill {

// Thread-safe.
class PairModel {
 public:
  // Borrows the vocabulary, whose texts are bytes already where the spec says `byte_level`.
  // Merges may lead through texts that are no tokens. INVALID_ARGUMENT: a score that is not finite.
  static absl::StatusOr<std::unique_ptr<const PairModel>> Create(const TokenizerSpec& spec,
                                                                 const Vocabulary& vocabulary);

  // Appends the ids of one piece.
  void Encode(absl::string_view piece, std::vector<int32_t>* ids) const;

 private:
  struct MergeEntry {
    uint64_t key = kNoPair;  // left id, right id
    uint32_t rank = 0;
    int32_t id = 0;
  };
  static constexpr uint64_t kNoPair = UINT64_MAX;
  enum Reach : uint8_t { kUnknown, kReached, kNotReached };

  explicit PairModel(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  absl::Status ReadMerges(const TokenizerSpec& spec);
  void FindBorders();
  void FindBytes();

  PairMerge MergeOf(int32_t left, int32_t right) const;
  PairMerge ScoredMergeOf(absl::string_view piece, const Symbol& left, const Symbol& right) const;
  void EncodeWord(absl::string_view word, std::vector<int32_t>* ids, bool* after_unknown) const;
  void Symbols(absl::string_view word, std::vector<Symbol>* symbols) const;
  void AddCharacter(absl::string_view word, uint32_t begin, uint32_t size,
                    std::vector<Symbol>* symbols) const;
  void Merge(absl::string_view word, std::vector<Symbol>* symbols) const;
  void Emit(absl::string_view word, const Symbol& symbol, std::vector<int32_t>* ids,
            bool* after_unknown) const;
  void EmitUnknown(std::vector<int32_t>* ids, bool* after_unknown) const;

  const Vocabulary& vocabulary_;
  bool scored_ = false, byte_level_ = false, byte_fallback_ = false, fuse_unknown_ = false;
  bool whole_words_ = false;
  std::string continuation_, word_suffix_;
  int32_t unknown_ = Vocabulary::kNone;
  std::vector<uint32_t> priorities_;  // scored: by id
  std::vector<MergeEntry> merges_;    // a table of hashes
  uint64_t merges_mask_ = 0;
  // Texts that merges make and that are no tokens: their ids follow the vocabulary's.
  std::unique_ptr<Vocabulary> between_;
  int32_t byte_ids_[256];
  // Bytes after which U+2581 is inside of some token: elsewhere a word begins with it, and no merge
  // reaches across.
  std::bitset<256> joins_mark_;
  mutable std::unique_ptr<std::atomic<uint8_t>[]> reach_;  // a Reach by id
};

}  // namespace stampmill
