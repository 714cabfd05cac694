// UTF-8, one character at a time: what tokenizers and templates read texts with.
//
// Strict (RFC 3629): overlong forms, surrogates and numbers above U+10FFFF are no characters. A
// byte that begins no character stands for itself, so that a walk always advances and ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace stampmill {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr char32_t kCodePointMax = 0x10FFFF;

// A character at the front of a text, and how many bytes it takes.
struct Utf8Character {
  char32_t code_point;  // U+FFFD where `valid` is false
  uint32_t size_bytes;  // 1 where `valid` is false
  bool valid;
};

// As DecodeUtf8, of a first byte above 0x7F.
Utf8Character DecodeUtf8Sequence(const char* text, const char* end);

// The character that [text, end) begins with. REQUIRES: text < end.
inline Utf8Character DecodeUtf8(const char* text, const char* end) {
  const auto first = static_cast<unsigned char>(*text);
  if (first < 0x80) return {.code_point = first, .size_bytes = 1, .valid = true};
  return DecodeUtf8Sequence(text, end);
}

// Appends `code_point`; what is none (a surrogate, too large) as U+FFFD.
void AppendUtf8(char32_t code_point, std::string* out);

// `text` with U+FFFD for each byte that belongs to no character.
std::string ReplaceInvalidUtf8(absl::string_view text);

// How many bytes at the end of `text` begin a character that more bytes may complete: 0 to 3. Such
// a rest is not invalid yet.
size_t UnfinishedUtf8(absl::string_view text);

}  // namespace stampmill
