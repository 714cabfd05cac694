// A tokenizer as plain data: what files of models say about it, whatever their format.
//
//   text -> added tokens cut out -> normalizers -> pre-tokenizers -> model -> ids -> prefix, suffix
//
// gguf_vocabulary.h and tokenizer_json.h fill it; Tokenizer::Create checks it. Ids index `tokens`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/regex_syntax.h"
#include "text/text_pool.h"
#include "text/unicode.h"

namespace stampmill {

enum class TokenizerModel : uint8_t {
  kBytePairs,    // merges by rank, of bytes or of characters
  kScoredPairs,  // SentencePiece's byte pairs: any two neighbours that are a token, best score
                 // first
  kUnigram,      // the path of tokens with the best sum of scores
  kWordPiece,    // the longest token first, word by word
};

enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

// A token that is found in texts before the model sees them.
struct AddedToken {
  int32_t id = 0;
  bool special = false;      // stands for itself only where the caller says so (parse_special)
  bool single_word = false;  // not inside of a word
  bool left_strip = false;   // takes the white space before it
  bool right_strip = false;  // and after it
  bool normalized = false;   // is looked for in what the normalizers made of the text
};

struct Normalizer {
  enum class Kind : uint8_t {
    kForm,  // of Unicode: `form`
    kLowerCase,
    kStripAccents,  // takes away nonspacing marks
    kCleanText,     // takes away control characters; white space becomes spaces
    kSpaceChinese,  // a space on both sides of each Chinese character
    kReplace,       // each match of `pattern` by `content`
    kPrepend,       // `content` before a text that is not empty
    kStripLeft,     // takes away white space at the ends
    kStripRight,
    kCharacterMap,  // SentencePiece's: `content` is its precompiled table
    kSingleSpaces,  // SentencePiece's: no spaces at the ends, one elsewhere
  };
  Kind kind;
  NormalForm form = NormalForm::kNfc;
  std::string pattern;  // a regular expression of Oniguruma's dialect
  std::string content;
};

struct PreTokenizer {
  enum class Kind : uint8_t {
    kSplit,         // by the matches of `pattern`
    kPrependSpace,  // a space before a piece that does not begin with one
    kMarkSpaces,    // spaces become `content`, which is also put before pieces: `prepend`
  };
  // What becomes of the matches; what is between them is a piece.
  enum class Behavior : uint8_t {
    kIsolated,
    kRemoved,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous,  // adjacent matches are one piece
  };
  enum class Prepend : uint8_t {
    kNever,
    kFirst,   // before the first piece of a text
    kAlways,  // before every piece that does not begin with it
    kAnyway,  // before every piece
  };
  Kind kind;
  std::string pattern;
  RegexDialect dialect = RegexDialect::kOniguruma;
  Behavior behavior = Behavior::kIsolated;
  bool inverted = false;  // matches and what is between them change places
  std::string content;
  Prepend prepend = Prepend::kNever;
  bool split = false;  // kMarkSpaces: a piece begins at each `content`
};

// How the texts of tokens become text again, beyond their bytes.
struct TokenDecoding {
  bool marks_are_spaces = false;    // U+2581 is a space
  bool strips_first_space = false;  // one space at the front of the whole text is left out
  bool joins_words = false;         // WordPiece: a space before what does not continue a word
  bool cleans_up = false;           // WordPiece: no space before punctuation and contractions
};

struct TokenizerSpec {
  TokenizerModel model = TokenizerModel::kBytePairs;
  TextPool tokens;
  std::vector<TokenKind> kinds;  // as many as tokens, or none: all are normal
  std::vector<double> scores;    // kScoredPairs, kUnigram: as many as tokens
  TextPool merges;               // kBytePairs: left and right of each, best first

  bool byte_level = false;           // normal tokens are written in GPT-2's alphabet of bytes
  bool byte_fallback = false;        // characters that are no token become tokens <0x00> to <0xFF>
  bool fuse_unknown = false;         // unknown characters in a row are one unknown token
  bool whole_words = false;          // kBytePairs: a piece that is a token needs no merges
  std::string word_prefix;           // kWordPiece: before the first token of a word
  std::string continuation;          // kWordPiece, kBytePairs: before the others
  std::string word_suffix;           // kBytePairs: after the last
  uint32_t word_characters_max = 0;  // kWordPiece: longer ones are unknown; 0: no limit
  bool emits_unknown = true;         // what is no token becomes `unknown`; else nothing

  std::vector<AddedToken> added;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  TokenDecoding decoding;
  std::vector<int32_t> prefix, suffix;  // with add_special

  std::optional<int32_t> bos, eos, unknown, padding, separator, mask;
  std::vector<int32_t> ends_generation;  // besides eos
};

}  // namespace stampmill
