#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace stampmill {
namespace {

constexpr char32_t kLetters = 0x144;  // the alphabet ends before it
constexpr int16_t kNoByte = -1;

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<int16_t, kLetters> MakeByteOf() {
  std::array<int16_t, kLetters> table{};
  for (int16_t& byte : table) byte = kNoByte;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) table[StandsForItself(byte) ? byte : next++] = byte;
  return table;
}

constexpr std::array<int16_t, kLetters> kByteOf = MakeByteOf();

}  // namespace

bool DecodeByteAlphabet(absl::string_view text, std::string* bytes) {
  bytes->clear();
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const Utf8Character character = DecodeUtf8(at, end);
    if (!character.valid || character.code_point >= kLetters) return false;
    const int16_t byte = kByteOf[character.code_point];
    if (byte == kNoByte) return false;
    bytes->push_back(static_cast<char>(byte));
    at += character.size_bytes;
  }
  return true;
}

std::string EncodeByteAlphabet(absl::string_view bytes) {
  std::array<char32_t, 256> letter_of{};
  for (char32_t letter = 0; letter < kLetters; ++letter) {
    if (kByteOf[letter] != kNoByte) letter_of[kByteOf[letter]] = letter;
  }
  std::string text;
  for (const char byte : bytes) AppendUtf8(letter_of[static_cast<unsigned char>(byte)], &text);
  return text;
}

}  // namespace stampmill
