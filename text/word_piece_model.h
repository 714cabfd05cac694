// WordPiece: the longest token that a word begins with, then the longest that goes on, to its end;
// a word for which that fails is one unknown token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace stampmill {

// Immutable, thread-safe.
class WordPieceModel {
 public:
  // Borrows the vocabulary.
  WordPieceModel(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  // Appends the ids of one word.
  void Encode(absl::string_view word, std::vector<int32_t>* ids) const;

 private:
  const Vocabulary& vocabulary_;
  const std::string word_prefix_, continuation_;
  const uint32_t characters_max_;
  const int32_t unknown_;
};

}  // namespace stampmill
