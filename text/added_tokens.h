// Finds the added tokens of a tokenizer in a text, before its model sees what is between them.
//
// The texts are sorted; a walk narrows the range of those that go on like the input, character by
// character, so nothing is built but the order. The leftmost token is taken, the longest of those
// that begin there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "text/tokenizer_spec.h"

namespace stampmill {

// Immutable, thread-safe.
class AddedTokens {
 public:
  struct Match {
    size_t begin;
    size_t end;  // with the white space that the token takes
    int32_t id;
  };

  // A text and the token that it stands for. Texts are borrowed.
  struct Entry {
    absl::string_view text;
    AddedToken token;
  };

  AddedTokens() : first_(257, 0) {}
  // Empty texts match nothing.
  explicit AddedTokens(std::vector<Entry> entries);

  bool empty() const { return entries_.empty(); }

  // The first match in `text` at or after `from`; tokens that are special only with `special`.
  std::optional<Match> Find(absl::string_view text, size_t from, bool special) const;

 private:
  const Entry* LongestAt(absl::string_view text, size_t at, bool special) const;

  std::vector<Entry> entries_;   // by text
  std::vector<uint32_t> first_;  // by first byte: where its entries begin
};

}  // namespace stampmill
