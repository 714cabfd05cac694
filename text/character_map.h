// SentencePiece's precompiled table of replacements, `precompiled_charsmap`: which short texts
// become which. The bytes are from a model's file and are checked as they are read.
//
//   offset  size  what
//   0       4     size of the trie in bytes, little endian, a multiple of 4
//   4       n     the trie: units of 32 bits of a double array (bits 0-7 the label, 8: the unit has
//                 a value, 9: the offset counts 256 units, 10-31 the offset; a value has bit 31)
//   4 + n         texts, each with a zero at its end; values are offsets from here
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// Immutable, thread-safe.
class CharacterMap {
 public:
  // INVALID_ARGUMENT: sizes that the bytes do not have.
  static absl::StatusOr<std::unique_ptr<const CharacterMap>> Create(absl::string_view bytes);

  // At each place the longest text that the table has is replaced; bytes that are no UTF-8 become
  // U+FFFD.
  std::string Apply(absl::string_view text) const;

 private:
  struct Found {
    size_t size_bytes = 0;  // 0: nothing
    uint32_t value = 0;
  };
  Found LongestAt(absl::string_view text) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace stampmill
