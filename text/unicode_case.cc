#include "text/unicode_case.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "text/utf8.h"

namespace stampmill {
namespace {

// Each stride-th character from first to last moves by delta.
struct CaseRule {
  uint32_t first;
  uint32_t last;
  uint32_t stride;
  int32_t delta;
};

// A character that becomes several; the rest of `to` is 0.
struct CaseExpansion {
  uint32_t character;
  uint32_t to[3];
};

#include "text/unicode_case_tables.inc"

struct CaseMapping {
  std::span<const CaseRule> rules;
  std::span<const CaseExpansion> expansions;
};

constexpr CaseMapping kLower = {kLowerRules, kLowerExpansions};
constexpr CaseMapping kUpper = {kUpperRules, kUpperExpansions};
constexpr CaseMapping kTitle = {kTitleRules, kTitleExpansions};
constexpr CaseMapping kFold = {kFoldRules, kFoldExpansions};

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

constexpr int kPropertyBits = 11;

constexpr uint32_t FindProperties(char32_t character) {
  const uint32_t key =
      (static_cast<uint32_t>(character) << kPropertyBits) | ((uint32_t{1} << kPropertyBits) - 1);
  const uint32_t* const run =
      std::upper_bound(std::begin(kPropertyRuns), std::end(kPropertyRuns), key) - 1;
  return *run & ((uint32_t{1} << kPropertyBits) - 1);
}

constexpr size_t kAsciiSize = 128;
constexpr std::array<uint16_t, kAsciiSize> kAsciiProperties = [] {
  std::array<uint16_t, kAsciiSize> table{};
  for (size_t c = 0; c < kAsciiSize; ++c) table[c] = static_cast<uint16_t>(FindProperties(c));
  return table;
}();

void AppendMapped(const CaseMapping& mapping, char32_t character, std::string* out) {
  const auto expansion =
      std::lower_bound(mapping.expansions.begin(), mapping.expansions.end(), character,
                       [](const CaseExpansion& row, char32_t c) { return row.character < c; });
  if (expansion != mapping.expansions.end() && expansion->character == character) {
    for (const uint32_t part : expansion->to) {
      if (part != 0) AppendUtf8(part, out);
    }
    return;
  }
  // Rules do not overlap except that two of stride 2 may interleave; both begin at or before.
  auto rule = std::upper_bound(mapping.rules.begin(), mapping.rules.end(), character,
                               [](char32_t c, const CaseRule& row) { return c < row.first; });
  for (int tries = 0; tries < 2 && rule != mapping.rules.begin(); ++tries) {
    --rule;
    if (character <= rule->last && (character - rule->first) % rule->stride == 0) {
      AppendUtf8(static_cast<char32_t>(static_cast<int64_t>(character) + rule->delta), out);
      return;
    }
  }
  AppendUtf8(character, out);
}

// Whether the capital sigma of `text` at byte `begin` ends a word: a cased character before it and
// none after, ignorable ones aside.
bool SigmaIsFinal(absl::string_view text, size_t begin) {
  size_t at = begin;
  bool cased_before = false;
  while (at > 0) {
    do {
      --at;
    } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    const uint32_t properties =
        CharacterProperties(DecodeUtf8(text.data() + at, text.data() + text.size()).code_point);
    if (properties & kCaseIgnorable) continue;
    cased_before = (properties & kCased) != 0;
    break;
  }
  if (!cased_before) return false;
  for (at = begin + 2; at < text.size();) {  // a sigma takes two bytes
    const Utf8Character next = DecodeUtf8(text.data() + at, text.data() + text.size());
    at += next.size_bytes;
    const uint32_t properties = CharacterProperties(next.code_point);
    if (properties & kCaseIgnorable) continue;
    return (properties & kCased) == 0;
  }
  return true;
}

// Calls f(character, byte offset) for each character.
template <typename F>
void ForEachCharacter(absl::string_view text, F f) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Character next = DecodeUtf8(text.data() + at, text.data() + text.size());
    f(next.code_point, at);
    at += next.size_bytes;
  }
}

void AppendLower(absl::string_view text, char32_t character, size_t at, std::string* out) {
  if (character == kCapitalSigma && SigmaIsFinal(text, at)) {
    AppendUtf8(kFinalSigma, out);
  } else {
    AppendMapped(kLower, character, out);
  }
}

std::string Mapped(const CaseMapping& mapping, absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEachCharacter(text, [&](char32_t c, size_t) { AppendMapped(mapping, c, &out); });
  return out;
}

}  // namespace

uint32_t CharacterProperties(char32_t character) {
  return character < kAsciiSize ? kAsciiProperties[character] : FindProperties(character);
}

std::string UpperCase(absl::string_view text) { return Mapped(kUpper, text); }

std::string FoldCase(absl::string_view text) { return Mapped(kFold, text); }

std::string LowerCase(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEachCharacter(text, [&](char32_t c, size_t at) { AppendLower(text, c, at, &out); });
  return out;
}

std::string Capitalize(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEachCharacter(text, [&](char32_t c, size_t at) {
    if (at == 0) {
      AppendMapped(kTitle, c, &out);
    } else {
      AppendLower(text, c, at, &out);
    }
  });
  return out;
}

std::string TitleCase(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool after_cased = false;
  ForEachCharacter(text, [&](char32_t c, size_t at) {
    if (after_cased) {
      AppendLower(text, c, at, &out);
    } else {
      AppendMapped(kTitle, c, &out);
    }
    after_cased = (CharacterProperties(c) & (kCased | kLowerCase | kUpperCase | kTitleCase)) != 0;
  });
  return out;
}

std::string SwapCase(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEachCharacter(text, [&](char32_t c, size_t at) {
    const uint32_t properties = CharacterProperties(c);
    if (properties & kUpperCase) {
      AppendLower(text, c, at, &out);
    } else if (properties & kLowerCase) {
      AppendMapped(kUpper, c, &out);
    } else {
      AppendUtf8(c, &out);
    }
  });
  return out;
}

}  // namespace stampmill
