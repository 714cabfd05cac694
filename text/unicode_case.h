// Letters and their cases as Python's str has them: what its methods answer for any character.
//
// The tables are made by asking Python (make_unicode_case.py), since templates are written against
// it. All texts are valid UTF-8; positions and lengths are those of characters, never of bytes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace stampmill {

// Bits of CharacterProperties, in the order of make_unicode_case.py.
enum CharacterProperty : uint32_t {
  kAlphabetic = 1 << 0,
  kDecimalDigit = 1 << 1,
  kDigit = 1 << 2,
  kNumeric = 1 << 3,
  kSpace = 1 << 4,
  kPrintable = 1 << 5,
  kLowerCase = 1 << 6,
  kUpperCase = 1 << 7,
  kTitleCase = 1 << 8,
  kCased = 1 << 9,
  kCaseIgnorable = 1 << 10,
  kAlphanumeric = kAlphabetic | kDecimalDigit | kDigit | kNumeric,
};

uint32_t CharacterProperties(char32_t character);

// str.upper, lower, casefold, capitalize, title and swapcase. REQUIRES: `text` is valid UTF-8.
std::string UpperCase(absl::string_view text);
std::string LowerCase(absl::string_view text);
std::string FoldCase(absl::string_view text);
std::string Capitalize(absl::string_view text);
std::string TitleCase(absl::string_view text);
std::string SwapCase(absl::string_view text);

}  // namespace stampmill
