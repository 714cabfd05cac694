#include "text/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "text/unicode_case.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNameStart(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; }

bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

// Newlines as \n, and without one at the end.
std::string NormalizedNewlines(absl::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      result.push_back('\n');
    } else {
      result.push_back(source[i]);
    }
  }
  if (absl::EndsWith(result, "\n")) result.pop_back();
  return result;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), text_(source_) {}

  absl::StatusOr<std::vector<JinjaToken>> Run() {
    while (at_ < text_.size()) RETURN_IF_ERROR(TextAndTag());
    Add(JinjaTokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::Status Fail(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
  }

  // A tag that begins at the very end of a template is let go.
  absl::Status FailUnlessAtEnd(absl::string_view what) const {
    return rest().empty() ? absl::OkStatus() : Fail(what);
  }

  absl::string_view rest() const { return text_.substr(at_); }
  bool At(absl::string_view what) const { return absl::StartsWith(rest(), what); }

  void Advance(size_t bytes) {
    line_ += static_cast<int>(std::count(text_.begin() + at_, text_.begin() + at_ + bytes, '\n'));
    at_ += bytes;
  }

  void Add(JinjaTokenKind kind, absl::string_view text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::string(text)});
  }

  // Bytes of white space at `at`.
  size_t SpaceLength(size_t at) const {
    const size_t begin = at;
    while (at < text_.size()) {
      const Utf8Character next = DecodeUtf8(text_.data() + at, text_.data() + text_.size());
      if (!(CharacterProperties(next.code_point) & kSpace)) break;
      at += next.size_bytes;
    }
    return at - begin;
  }

  static absl::string_view WithoutSpaceBehind(absl::string_view text) {
    size_t end = text.size();
    while (end > 0) {
      size_t begin = end - 1;
      while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
      const Utf8Character last = DecodeUtf8(text.data() + begin, text.data() + end);
      if (!(CharacterProperties(last.code_point) & kSpace)) break;
      end = begin;
    }
    return text.substr(0, end);
  }

  // What is printed of the text before a tag: `sign` stands at its beginning.
  absl::string_view TextBefore(absl::string_view text, char sign, bool is_print) const {
    if (sign == '-') return WithoutSpaceBehind(text);
    if (sign == '+' || is_print) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_begin = newline == absl::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting_) return text;
    if (!WithoutSpaceBehind(text.substr(line_begin)).empty()) return text;
    return text.substr(0, line_begin);
  }

  // Passes the end of a tag, with the white space that goes with it.
  void PassEnd(absl::string_view end, bool trims_newline) {
    if (At("-")) {
      Advance(1 + end.size());
      Advance(SpaceLength(at_));
    } else {
      const bool keeps = At("+");
      Advance((keeps ? 1 : 0) + end.size());
      if (!keeps && trims_newline && At("\n")) Advance(1);
    }
    line_starting_ = text_[at_ - 1] == '\n';
  }

  static char SignAt(absl::string_view text) {
    return !text.empty() && (text[0] == '-' || text[0] == '+') ? text[0] : ' ';
  }

  absl::Status TextAndTag() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == absl::string_view::npos || tag + 1 >= text_.size()) {
        Add(JinjaTokenKind::kText, rest());
        Advance(rest().size());
        return absl::OkStatus();
      }
      const char second = text_[tag + 1];
      if (second == '%' || second == '{' || second == '#') break;
    }
    const char type = text_[tag + 1];
    const char sign = SignAt(text_.substr(tag + 2));
    const absl::string_view printed = TextBefore(text_.substr(at_, tag - at_), sign, type == '{');
    if (!printed.empty()) Add(JinjaTokenKind::kText, printed);
    Advance(tag - at_);
    if (type == '%') {
      const size_t raw = RawBeginLength();
      if (raw != 0) return Raw(raw);
    }
    Advance(sign == ' ' ? 2 : 3);
    if (type == '#') return Comment();
    return Tag(type == '%');
  }

  absl::Status Comment() {
    const size_t end = text_.find("#}", at_);
    if (end == absl::string_view::npos) return FailUnlessAtEnd("missing end of comment tag");
    const bool has_sign = end > at_ && SignAt(text_.substr(end - 1)) != ' ';
    Advance(end - at_ - (has_sign ? 1 : 0));
    PassEnd("#}", true);
    return absl::OkStatus();
  }

  // Bytes of `{% raw %}` here up to its end, of which `-%}` takes white space with it; else 0.
  size_t RawBeginLength() const {
    size_t at = at_ + 2;
    if (SignAt(text_.substr(at)) != ' ') ++at;
    at += SpaceLength(at);
    if (!absl::StartsWith(text_.substr(at), "raw")) return 0;
    at += 3;
    at += SpaceLength(at);
    if (absl::StartsWith(text_.substr(at), "%}")) return at + 2 - at_;
    if (!absl::StartsWith(text_.substr(at), "-%}")) return 0;
    at += 3;
    return at + SpaceLength(at) - at_;
  }

  absl::Status Raw(size_t begin_bytes) {
    Advance(begin_bytes);
    line_starting_ = text_[at_ - 1] == '\n';
    for (size_t tag = text_.find("{%", at_); tag != absl::string_view::npos;
         tag = text_.find("{%", tag + 1)) {
      const char sign = SignAt(text_.substr(tag + 2));
      size_t end = tag + (sign == ' ' ? 2 : 3);
      end += SpaceLength(end);
      if (!absl::StartsWith(text_.substr(end), "endraw")) continue;
      end += 6;
      end += SpaceLength(end);
      const absl::string_view close = text_.substr(end);
      if (!absl::StartsWith(close, "%}") && !absl::StartsWith(close, "-%}") &&
          !absl::StartsWith(close, "+%}")) {
        continue;
      }
      const absl::string_view printed = TextBefore(text_.substr(at_, tag - at_), sign, false);
      if (!printed.empty()) Add(JinjaTokenKind::kText, printed);
      Advance(end - at_);
      PassEnd("%}", true);
      return absl::OkStatus();
    }
    return FailUnlessAtEnd("missing end of raw directive");
  }

  absl::Status Tag(bool is_block) {
    Add(is_block ? JinjaTokenKind::kBlockBegin : JinjaTokenKind::kPrintBegin, "");
    const absl::string_view end = is_block ? "%}" : "}}";
    std::string open;  // the closing bracket of each open one
    while (true) {
      Advance(SpaceLength(at_));
      if (at_ == text_.size()) return Fail("unexpected end of template");
      const bool is_signed = At("-") || (is_block && At("+"));
      if (open.empty() && absl::StartsWith(rest().substr(is_signed ? 1 : 0), end)) {
        Add(is_block ? JinjaTokenKind::kBlockEnd : JinjaTokenKind::kPrintEnd, "");
        PassEnd(end, is_block);
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(TokenInTag(&open));
    }
  }

  absl::Status TokenInTag(std::string* open) {
    const char c = text_[at_];
    if (IsDigit(c)) return Number();
    if (IsNameStart(c)) {
      size_t size = 1;
      while (size < rest().size() && IsNamePart(rest()[size])) ++size;
      Add(JinjaTokenKind::kName, rest().substr(0, size));
      Advance(size);
      return absl::OkStatus();
    }
    if (c == '\'' || c == '"') return QuotedString(c);
    for (const absl::string_view two : {"**", "//", "==", "!=", ">=", "<="}) {
      if (!At(two)) continue;
      Add(JinjaTokenKind::kOperator, two);
      Advance(2);
      return absl::OkStatus();
    }
    if (absl::string_view("+-/*%~[](){}><=.:|,;").find(c) == absl::string_view::npos) {
      return Fail(absl::StrCat(
          "unexpected character '",
          rest().substr(0, DecodeUtf8(rest().data(), text_.data() + text_.size()).size_bytes),
          "'"));
    }
    if (c == '(') open->push_back(')');
    if (c == '[') open->push_back(']');
    if (c == '{') open->push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (open->empty() || open->back() != c) {
        return Fail(absl::StrCat("unexpected '", rest().substr(0, 1), "'"));
      }
      open->pop_back();
    }
    Add(JinjaTokenKind::kOperator, rest().substr(0, 1));
    Advance(1);
    return absl::OkStatus();
  }

  // Digits at `at`, single underscores between them allowed; 0 if there are none.
  template <typename IsOne>
  size_t DigitsLength(size_t at, IsOne is_one) const {
    size_t size = 0;
    while (at + size < text_.size()) {
      const size_t next = at + size;
      if (is_one(text_[next])) {
        ++size;
      } else if (size > 0 && text_[next] == '_' && next + 1 < text_.size() &&
                 is_one(text_[next + 1])) {
        size += 2;
      } else {
        break;
      }
    }
    return size;
  }

  size_t FloatLength() const {
    const size_t whole = DigitsLength(at_, IsDigit);
    size_t at = at_ + whole;
    bool is_float = false;
    if (at < text_.size() && text_[at] == '.') {
      const size_t fraction = DigitsLength(at + 1, IsDigit);
      if (fraction > 0) {
        at += 1 + fraction;
        is_float = true;
      }
    }
    if (at < text_.size() && (text_[at] == 'e' || text_[at] == 'E')) {
      size_t exponent = at + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) {
        ++exponent;
      }
      const size_t digits = DigitsLength(exponent, IsDigit);
      if (digits > 0) {
        at = exponent + digits;
        is_float = true;
      }
    }
    return is_float ? at - at_ : 0;
  }

  absl::Status Number() {
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    const size_t float_size = after_dot ? 0 : FloatLength();
    if (float_size > 0) {
      std::string digits(rest().substr(0, float_size));
      std::erase(digits, '_');
      Add(JinjaTokenKind::kFloat, digits);
      tokens_.back().real = std::strtod(digits.c_str(), nullptr);
      Advance(float_size);
      return absl::OkStatus();
    }
    int base = 10;
    size_t prefix = 0;
    size_t size = 0;
    if (text_[at_] == '0') {
      const char letter = rest().size() > 1 ? absl::ascii_tolower(rest()[1]) : ' ';
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      const auto is_one = [base](char c) {
        if (base == 16) return absl::ascii_isxdigit(static_cast<unsigned char>(c)) != 0;
        return base != 10 && c >= '0' && c < '0' + base;
      };
      // An underscore may follow the prefix.
      prefix = base == 10 ? 0 : 2;
      if (prefix > 0 && rest().size() > 2 && rest()[2] == '_') ++prefix;
      if (prefix > 0) size = DigitsLength(at_ + prefix, is_one);
      if (size == 0) {
        base = 10;
        prefix = 0;
        size = DigitsLength(at_, [](char c) { return c == '0'; });
      }
    } else {
      size = DigitsLength(at_, IsDigit);
    }
    std::string digits(rest().substr(prefix, size));
    std::erase(digits, '_');
    int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value, base).ec !=
        std::errc()) {
      return Fail(absl::StrCat("integer ", digits, " is beyond 64 bits"));
    }
    Add(JinjaTokenKind::kInteger, digits);
    tokens_.back().integer = value;
    Advance(prefix + size);
    return absl::OkStatus();
  }

  absl::Status QuotedString(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return Fail("a string has no end");
    std::string value;
    RETURN_IF_ERROR(Unescape(text_.substr(at_ + 1, end - at_ - 1), &value));
    Add(JinjaTokenKind::kString, value);
    Advance(end + 1 - at_);
    return absl::OkStatus();
  }

  // What Python's unicode-escape makes of `text`.
  absl::Status Unescape(absl::string_view text, std::string* out) const {
    static constexpr absl::string_view kLetters = "ntrabfv\\'\"";
    static constexpr absl::string_view kValues = "\n\t\r\a\b\f\v\\'\"";
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '\\') {
        out->push_back(text[i++]);
        continue;
      }
      if (++i == text.size()) return Fail("a string ends within an escape");
      const char c = text[i];
      const size_t letter = kLetters.find(c);
      if (letter != absl::string_view::npos) {
        out->push_back(kValues[letter]);
        ++i;
      } else if (c == '\n') {
        ++i;
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        for (int n = 0; n < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++n, ++i) {
          code = code * 8 + static_cast<uint32_t>(text[i] - '0');
        }
        AppendUtf8(code, out);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t size = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const absl::string_view hex = text.substr(i + 1, size);
        uint32_t code = 0;
        const auto [stop, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
        if (hex.size() < size || error != std::errc() || stop != hex.data() + size) {
          return Fail(
              absl::StrCat("escape \\", text.substr(i, 1), " needs ", size, " hexadecimal digits"));
        }
        if (code > kCodePointMax || (code >= 0xD800 && code <= 0xDFFF)) {
          return Fail(absl::StrCat("escape \\", text.substr(i, 1), hex, " is no character"));
        }
        AppendUtf8(code, out);
        i += 1 + size;
      } else if (c == 'N') {
        return Fail("escapes with names of characters are not supported");
      } else {
        out->push_back('\\');
        AppendEscaped(text, &i, out);
      }
    }
    return absl::OkStatus();
  }

  // The character behind a backslash that escapes nothing. One beyond ASCII has been spelled out
  // before escapes are read, which shows only here.
  static void AppendEscaped(absl::string_view text, size_t* i, std::string* out) {
    const Utf8Character next = DecodeUtf8(text.data() + *i, text.data() + text.size());
    if (next.code_point < 0x80) {
      out->push_back(text[*i]);
    } else if (next.code_point < 0x100) {
      absl::StrAppend(out, "x", absl::Hex(next.code_point, absl::kZeroPad2));
    } else if (next.code_point < 0x10000) {
      absl::StrAppend(out, "u", absl::Hex(next.code_point, absl::kZeroPad4));
    } else {
      absl::StrAppend(out, "U", absl::Hex(next.code_point, absl::kZeroPad8));
    }
    *i += next.size_bytes;
  }

  const std::string source_;
  const absl::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  // Whether the last tag took the newline behind it.
  bool line_starting_ = true;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<JinjaToken>> JinjaTokens(absl::string_view source) {
  for (size_t at = 0; at < source.size();) {
    const Utf8Character next = DecodeUtf8(source.data() + at, source.data() + source.size());
    if (!next.valid) {
      return absl::InvalidArgumentError(absl::StrCat("template: byte ", at, " is not UTF-8"));
    }
    at += next.size_bytes;
  }
  return Lexer(NormalizedNewlines(source)).Run();
}

}  // namespace stampmill
