#include "text/jinja_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "text/jinja_value.h"
#include "text/unicode_case.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

bool IsSpace(absl::string_view character) {
  const char* const begin = character.data();
  return (CharacterProperties(DecodeUtf8(begin, begin + character.size()).code_point) & kSpace) !=
         0;
}

// The character at the front or the back of a text that is not empty.
absl::string_view Front(absl::string_view text) {
  return text.substr(0, DecodeUtf8(text.data(), text.data() + text.size()).size_bytes);
}

absl::string_view Back(absl::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

// Bytes of the end of a line at the front of `text`; 0 if there is none.
size_t LineEndLength(absl::string_view text) {
  const char32_t c = DecodeUtf8(text.data(), text.data() + text.size()).code_point;
  switch (c) {
    case '\r':
      return text.size() > 1 && text[1] == '\n' ? 2 : 1;
    case '\n':
    case '\v':
    case '\f':
    case 0x1C:
    case 0x1D:
    case 0x1E:
      return 1;
    case 0x85:
      return 2;
    case 0x2028:
    case 0x2029:
      return 3;
    default:
      return 0;
  }
}

std::vector<absl::string_view> SplitSpace(absl::string_view text, int64_t splits_max) {
  std::vector<absl::string_view> parts;
  text = Strip(text, Side::kLeft, std::nullopt);
  while (!text.empty()) {
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) == splits_max) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !IsSpace(Front(text.substr(end)))) {
      end += Front(text.substr(end)).size();
    }
    parts.push_back(text.substr(0, end));
    text = Strip(text.substr(end), Side::kLeft, std::nullopt);
  }
  return parts;
}

std::vector<absl::string_view> SplitSpaceFromRight(absl::string_view text, int64_t splits_max) {
  std::vector<absl::string_view> parts;
  text = Strip(text, Side::kRight, std::nullopt);
  while (!text.empty()) {
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) == splits_max) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0 && !IsSpace(Back(text.substr(0, begin)))) {
      begin -= Back(text.substr(0, begin)).size();
    }
    parts.push_back(text.substr(begin));
    text = Strip(text.substr(0, begin), Side::kRight, std::nullopt);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// Without underscores between digits; nothing where they stand elsewhere.
std::optional<std::string> WithoutUnderscores(absl::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result.push_back(text[i]);
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < text.size() && absl::ascii_isalnum(static_cast<unsigned char>(text[at]));
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return result;
}

}  // namespace

absl::string_view Strip(absl::string_view text, Side side,
                        std::optional<absl::string_view> characters) {
  const auto strips = [&](absl::string_view character) {
    return characters.has_value() ? absl::StrContains(*characters, character) : IsSpace(character);
  };
  if (side != Side::kRight) {
    while (!text.empty() && strips(Front(text))) text.remove_prefix(Front(text).size());
  }
  if (side != Side::kLeft) {
    while (!text.empty() && strips(Back(text))) text.remove_suffix(Back(text).size());
  }
  return text;
}

std::vector<absl::string_view> Split(absl::string_view text,
                                     std::optional<absl::string_view> separator,
                                     int64_t splits_max) {
  if (!separator.has_value()) return SplitSpace(text, splits_max);
  std::vector<absl::string_view> parts;
  while (splits_max < 0 || static_cast<int64_t>(parts.size()) < splits_max) {
    const size_t at = text.find(*separator);
    if (at == absl::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator->size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<absl::string_view> SplitFromRight(absl::string_view text,
                                              std::optional<absl::string_view> separator,
                                              int64_t splits_max) {
  if (!separator.has_value()) return SplitSpaceFromRight(text, splits_max);
  std::vector<absl::string_view> parts;
  while (splits_max < 0 || static_cast<int64_t>(parts.size()) < splits_max) {
    const size_t at = text.rfind(*separator);
    if (at == absl::string_view::npos) break;
    parts.push_back(text.substr(at + separator->size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<absl::string_view> SplitLines(absl::string_view text, bool keep_ends) {
  std::vector<absl::string_view> lines;
  while (!text.empty()) {
    size_t end = 0;
    size_t line_end = 0;
    while (end < text.size() && (line_end = LineEndLength(text.substr(end))) == 0) {
      end += Front(text.substr(end)).size();
    }
    lines.push_back(text.substr(0, keep_ends ? end + line_end : end));
    text.remove_prefix(end + line_end);
  }
  return lines;
}

int64_t CountOccurrences(absl::string_view text, absl::string_view part) {
  if (part.empty()) return CountCharacters(text) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != absl::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

std::string Replaced(absl::string_view text, absl::string_view from, absl::string_view to,
                     int64_t times) {
  std::string result;
  if (from.empty()) {
    for (; times != 0 && !text.empty(); --times) {
      const absl::string_view character = Front(text);
      absl::StrAppend(&result, to, character);
      text.remove_prefix(character.size());
    }
    absl::StrAppend(&result, times != 0 ? to : "", text);
    return result;
  }
  for (; times != 0; --times) {
    const size_t at = text.find(from);
    if (at == absl::string_view::npos) break;
    absl::StrAppend(&result, text.substr(0, at), to);
    text.remove_prefix(at + from.size());
  }
  absl::StrAppend(&result, text);
  return result;
}

int64_t PaddingLength(absl::string_view text, int64_t width) {
  return std::max<int64_t>(0, width - CountCharacters(text));
}

std::string Escaped(absl::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      case '"':
        result += "&#34;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::optional<int64_t> ParseInt(absl::string_view text, int64_t base, bool* overflows) {
  text = Strip(text, Side::kBoth, std::nullopt);
  const bool negative = absl::StartsWith(text, "-");
  if (negative || absl::StartsWith(text, "+")) text.remove_prefix(1);
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  if (text.size() > 1 && text[0] == '0') {
    const char letter = absl::ascii_tolower(static_cast<unsigned char>(text[1]));
    const int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix != 0 && (base == 0 || base == prefix)) {
      base = prefix;
      text.remove_prefix(2);
      if (absl::StartsWith(text, "_")) text.remove_prefix(1);
    } else if (base == 0 && text.find_first_not_of("0_") != absl::string_view::npos) {
      return std::nullopt;
    }
  }
  if (base == 0) base = 10;
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits.has_value() || digits->empty() || digits->front() == '-') return std::nullopt;
  const std::string number = (negative ? "-" : "") + *digits;
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), value, static_cast<int>(base));
  if (end != number.data() + number.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    *overflows = true;
    return std::nullopt;
  }
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<double> ParseFloat(absl::string_view text) {
  text = Strip(text, Side::kBoth, std::nullopt);
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits.has_value() || digits->empty()) return std::nullopt;
  absl::string_view number = *digits;
  const bool negative = number[0] == '-';
  if (negative || number[0] == '+') number.remove_prefix(1);
  if (number.empty()) return std::nullopt;
  for (const absl::string_view word : {"inf", "infinity"}) {
    if (absl::EqualsIgnoreCase(number, word)) return negative ? -HUGE_VAL : HUGE_VAL;
  }
  if (absl::EqualsIgnoreCase(number, "nan")) return std::nan("");
  // strtod also reads hexadecimal numbers and names.
  if (number.find_first_not_of("0123456789.eE+-") != absl::string_view::npos) return std::nullopt;
  if (number[0] == '-' || number[0] == '+') return std::nullopt;
  const std::string copy(number);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size()) return std::nullopt;
  return negative ? -value : value;
}

std::string ReversedCharacters(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const absl::string_view character = Back(text);
    result.append(character.data(), character.size());
    text.remove_suffix(character.size());
  }
  return result;
}

}  // namespace stampmill
