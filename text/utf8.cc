#include "text/utf8.h"

#include <algorithm>

namespace stampmill {
namespace {

// What a first byte promises: how many bytes, and the range of the second, which is where overlong
// forms, surrogates and numbers that are too large show.
struct Promise {
  uint32_t size_bytes;  // 0: begins no character
  unsigned char low;
  unsigned char high;
};

Promise PromiseOf(unsigned char first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xC2) return {0, 0, 0};
  if (first < 0xE0) return {2, 0x80, 0xBF};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3, 0x80, 0xBF};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first < 0xF4) return {4, 0x80, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Character DecodeUtf8Sequence(const char* text, const char* end) {
  constexpr Utf8Character kInvalid = {kReplacementCharacter, 1, false};
  const auto byte = [&](uint32_t i) { return static_cast<unsigned char>(text[i]); };
  const Promise promise = PromiseOf(byte(0));
  if (promise.size_bytes == 0 || static_cast<size_t>(end - text) < promise.size_bytes) {
    return kInvalid;
  }
  if (promise.size_bytes == 1) return {byte(0), 1, true};
  if (byte(1) < promise.low || byte(1) > promise.high) return kInvalid;
  char32_t code_point = (byte(0) & (0x7F >> promise.size_bytes)) << 6 | (byte(1) & 0x3F);
  for (uint32_t i = 2; i < promise.size_bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return kInvalid;
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  return {code_point, promise.size_bytes, true};
}

void AppendUtf8(char32_t code_point, std::string* out) {
  if (code_point > kCodePointMax || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
    code_point = kReplacementCharacter;
  }
  const auto push = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | code_point >> 18);
    push(0x80 | (code_point >> 12 & 0x3F));
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

std::string ReplaceInvalidUtf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const Utf8Character character = DecodeUtf8(at, end);
    if (character.valid) {
      out.append(at, character.size_bytes);
    } else {
      AppendUtf8(kReplacementCharacter, &out);
    }
    at += character.size_bytes;
  }
  return out;
}

size_t UnfinishedUtf8(absl::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const absl::string_view rest = text.substr(text.size() - back);
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(rest[i]); };
    if ((byte(0) & 0xC0) == 0x80) continue;
    const Promise promise = PromiseOf(byte(0));
    if (promise.size_bytes <= back) return 0;
    if (back > 1 && (byte(1) < promise.low || byte(1) > promise.high)) return 0;
    return back;
  }
  return 0;
}

}  // namespace stampmill
