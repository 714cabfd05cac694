#include "server/http/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"

namespace stampmill {
namespace {

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
