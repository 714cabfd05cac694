#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

unsigned char ByteAt(absl::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// The character that ends at `at`, which is not 0.
Utf8Character CharacterBefore(absl::string_view text, size_t at) {
  size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && (ByteAt(text, begin) & 0xC0) == 0x80) --begin;
  const Utf8Character character = DecodeUtf8(text.data() + begin, text.data() + at);
  if (character.valid && begin + character.size_bytes == at) return character;
  return {.code_point = kReplacementCharacter, .size_bytes = 1, .valid = false};
}

bool IsWordCharacter(char32_t code_point) {
  static constexpr absl::string_view kNames[] = {"L", "M", "Nd", "Nl", "Pc"};
  CategorySet set = 0;
  for (const absl::string_view name : kNames) set |= CategoriesNamed(name);
  return HasCategory(code_point, set);
}

bool InsideOfWord(absl::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(CharacterBefore(text, begin).code_point)) return true;
  return end < text.size() &&
         IsWordCharacter(DecodeUtf8(text.data() + end, text.data() + text.size()).code_point);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<Entry> entries)
    : entries_(std::move(entries)), first_(257, 0) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.text.empty(); });
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.text != b.text ? a.text < b.text : a.token.id < b.token.id;
  });
  for (const Entry& entry : entries_) ++first_[ByteAt(entry.text, 0) + 1];
  for (int byte = 0; byte < 256; ++byte) first_[byte + 1] += first_[byte];
}

const AddedTokens::Entry* AddedTokens::LongestAt(absl::string_view text, size_t at,
                                                 bool special) const {
  const unsigned char byte = ByteAt(text, at);
  const Entry* low = entries_.data() + first_[byte];
  const Entry* high = entries_.data() + first_[byte + 1];
  const Entry* longest = nullptr;
  for (size_t depth = 1; low < high; ++depth) {
    // The entries that end here come first; of equal ones the last id counts.
    for (; low < high && low->text.size() == depth; ++low) {
      if (special || !low->token.special) longest = low;
    }
    if (at + depth >= text.size()) break;
    const unsigned char next = ByteAt(text, at + depth);
    if (low == high) break;
    if (ByteAt(low->text, depth) != next) {
      low = std::lower_bound(low, high, next, [depth](const Entry& entry, unsigned char value) {
        return ByteAt(entry.text, depth) < value;
      });
    }
    if (low < high && ByteAt((high - 1)->text, depth) != next) {
      high = std::upper_bound(low, high, next, [depth](unsigned char value, const Entry& entry) {
        return value < ByteAt(entry.text, depth);
      });
    }
  }
  return longest;
}

std::optional<AddedTokens::Match> AddedTokens::Find(absl::string_view text, size_t from,
                                                    bool special) const {
  for (size_t at = from; at < text.size(); ++at) {
    const unsigned char byte = ByteAt(text, at);
    if (first_[byte] == first_[byte + 1]) continue;
    const Entry* const entry = LongestAt(text, at, special);
    if (entry == nullptr) continue;
    Match match = {.begin = at, .end = at + entry->text.size(), .id = entry->token.id};
    if (entry->token.single_word && InsideOfWord(text, match.begin, match.end)) {
      at = match.end - 1;
      continue;
    }
    if (entry->token.left_strip) {
      while (match.begin > from) {
        const Utf8Character character = CharacterBefore(text, match.begin);
        if (!character.valid || !IsWhiteSpace(character.code_point)) break;
        match.begin -= character.size_bytes;
      }
    }
    if (entry->token.right_strip) {
      while (match.end < text.size()) {
        const Utf8Character character =
            DecodeUtf8(text.data() + match.end, text.data() + text.size());
        if (!character.valid || !IsWhiteSpace(character.code_point)) break;
        match.end += character.size_bytes;
      }
    }
    return match;
  }
  return std::nullopt;
}

}  // namespace stampmill
