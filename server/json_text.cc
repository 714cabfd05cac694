#include "server/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stampmill {
namespace {

// Length of the valid UTF-8 sequence that `text` begins with, 0 when there is none (RFC 3629).
size_t Utf8Length(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  size_t length = 0;
  uint32_t low = 0x80, high = 0xBF;  // of the second byte
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

template <typename T>
void AppendNumber(T value, std::string& out) {
  if (std::isnan(value)) {
    out.append("NaN");
    return;
  }
  if (std::isinf(value)) {
    out.append(value < 0 ? "-Infinity" : "Infinity");
    return;
  }
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  CHECK(error == std::errc());
  const absl::string_view text(digits.data(), static_cast<size_t>(end - digits.data()));
  out.append(text.data(), text.size());
  if (text.find_first_of(".e") == absl::string_view::npos) out.append(".0");
}

}  // namespace

void AppendJsonString(absl::string_view text, std::string& out) {
  out.push_back('"');
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
      ++i;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppend(&out, "\\u", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad4));
      ++i;
    } else if (const size_t length = Utf8Length(text.substr(i)); length > 0) {
      out.append(text.data() + i, length);
      i += length;
    } else {
      out.append("\\ufffd");
      ++i;
    }
  }
  out.push_back('"');
}

void AppendJsonNumber(double value, std::string& out) { AppendNumber(value, out); }
void AppendJsonNumber(float value, std::string& out) { AppendNumber(value, out); }

}  // namespace stampmill
