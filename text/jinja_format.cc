// Python's two ways to format: 'text' % values and 'text'.format(values).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

// Widths and precisions beyond this are refused: nobody's prompt needs them.
constexpr int64_t kFieldMax = 10000;

// One conversion: %(name)flags width .precision letter.
struct Conversion {
  bool left = false;
  bool zero = false;
  bool plus = false;
  bool space = false;
  bool alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char letter = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(JinjaInterpreter* in, absl::string_view format, const JinjaValue& right)
      : in_(*in), rest_(format), right_(right) {
    is_mapping_ = right.is(ValueKind::kDict);
    if (right.is(ValueKind::kTuple)) {
      values_ = {right.items, right.size};
    } else {
      values_ = {&right_, 1};
    }
  }

  JinjaValue Run() {
    while (!rest_.empty() && !in_.failed()) {
      const size_t percent = std::min(rest_.find('%'), rest_.size());
      absl::StrAppend(&out_, rest_.substr(0, percent));
      rest_.remove_prefix(percent);
      if (!rest_.empty()) One();
    }
    if (in_.failed()) return JinjaValue();
    const bool all_used = next_ >= values_.size() || is_mapping_ || used_names_ ||
                          (!right_.is(ValueKind::kTuple) && right_.is(ValueKind::kList));
    if (!all_used) return in_.Fail("not all values are used by the format");
    return in_.NewString(out_);
  }

 private:
  char Take() {
    if (rest_.empty()) {
      in_.Fail("a format ends within a conversion");
      return 0;
    }
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  JinjaValue NextValue() {
    if (next_ < values_.size()) return values_[next_++];
    return in_.Fail("a format has more conversions than values");
  }

  JinjaValue NamedValue() {
    const size_t end = rest_.find(')');
    if (end == absl::string_view::npos) return in_.Fail("a format ends within a name");
    const absl::string_view name = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    if (!is_mapping_) return in_.Fail("a format with names needs a dict");
    used_names_ = true;
    const DictEntry* const entry = right_.dict->Find(name);
    return entry != nullptr ? entry->value
                            : in_.Fail(absl::StrCat("a format names '", name,
                                                    "', which is not "
                                                    "there"));
  }

  int64_t Number() {
    int64_t number = 0;
    if (!rest_.empty() && rest_.front() == '*') {
      rest_.remove_prefix(1);
      const JinjaValue value = NextValue();
      if (!value.is_integral()) {
        in_.Fail("* in a format needs an integer");
        return 0;
      }
      number = value.integral();
    }
    while (!rest_.empty() && absl::ascii_isdigit(static_cast<unsigned char>(rest_.front())) &&
           number <= kFieldMax) {
      number = number * 10 + (Take() - '0');
    }
    if (number > kFieldMax || number < -kFieldMax) {
      in_.Fail(absl::StrCat("a field of a format is wider than ", kFieldMax));
    }
    return number;
  }

  void One() {
    Take();  // %
    Conversion c;
    bool has_name = false;
    JinjaValue value;
    if (!rest_.empty() && rest_.front() == '(') {
      Take();
      has_name = true;
      value = NamedValue();
    }
    for (bool more = true; more && !rest_.empty();) {
      switch (rest_.front()) {
        case '-':
          c.left = true;
          break;
        case '0':
          c.zero = true;
          break;
        case '+':
          c.plus = true;
          break;
        case ' ':
          c.space = true;
          break;
        case '#':
          c.alternate = true;
          break;
        default:
          more = false;
      }
      if (more) Take();
    }
    c.width = Number();
    if (c.width < 0) {
      c.left = true;
      c.width = -c.width;
    }
    if (!rest_.empty() && rest_.front() == '.') {
      Take();
      c.precision = std::max<int64_t>(0, Number());
    }
    while (!rest_.empty() &&
           (rest_.front() == 'l' || rest_.front() == 'h' || rest_.front() == 'L')) {
      Take();
    }
    c.letter = Take();
    if (in_.failed()) return;
    if (c.letter == '%') {
      out_ += '%';
      return;
    }
    if (!has_name) value = NextValue();
    if (!in_.failed() && in_.ChargeScan(static_cast<size_t>(c.width))) Convert(c, value);
  }

  void Convert(const Conversion& c, const JinjaValue& value) {
    std::string text;
    switch (c.letter) {
      case 's':
      case 'r':
        if (!(c.letter == 's' ? in_.AppendString(value, &text) : in_.AppendRepr(value, &text))) {
          return;
        }
        if (c.precision >= 0) {
          const int64_t kept = std::min(c.precision, CountCharacters(text));
          text.resize(CharacterOffset(text, kept));
        }
        return Pad(c, text, 0);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return ConvertInteger(c, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return ConvertFloat(c, value);
      case 'c':
        if (value.is_integral() && value.integral() >= 0 && value.integral() <= kCodePointMax) {
          AppendUtf8(static_cast<char32_t>(value.integral()), &text);
        } else if (value.is_string() && CountCharacters(value.str()) == 1) {
          text = std::string(value.str());
        } else {
          in_.Fail("%c needs a character");
          return;
        }
        return Pad(c, text, 0);
      default:
        in_.Fail(absl::StrCat("conversion %", std::string(1, c.letter), " is not supported"));
    }
  }

  void ConvertInteger(const Conversion& c, const JinjaValue& value) {
    int64_t number = 0;
    const bool is_decimal = c.letter == 'd' || c.letter == 'i' || c.letter == 'u';
    if (value.is_integral()) {
      number = value.integral();
    } else if (is_decimal && value.is(ValueKind::kFloat) && std::abs(value.real) < 0x1p63) {
      number = static_cast<int64_t>(value.real);
    } else {
      if (value.is_undefined()) {
        in_.FailOperands("%", value, value);
      } else {
        in_.Fail(absl::StrCat("%", std::string(1, c.letter), " needs a number, got a ",
                              TypeName(value)));
      }
      return;
    }
    const uint64_t magnitude =
        number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    std::array<char, 32> digits;
    const char* const format = c.letter == 'x'   ? "%lx"
                               : c.letter == 'X' ? "%lX"
                               : c.letter == 'o' ? "%lo"
                                                 : "%lu";
    std::snprintf(digits.data(), digits.size(), format, magnitude);
    std::string body = digits.data();
    if (c.precision > static_cast<int64_t>(body.size())) {
      body.insert(0, static_cast<size_t>(c.precision) - body.size(), '0');
    }
    std::string sign = SignOf(c, number < 0);
    if (c.alternate && !is_decimal) absl::StrAppend(&sign, "0", std::string(1, c.letter));
    Pad(c, sign + body, sign.size());
  }

  void ConvertFloat(const Conversion& c, const JinjaValue& value) {
    if (!value.is_number()) {
      if (value.is_undefined()) {
        in_.FailOperands("%", value, value);
      } else {
        in_.Fail(absl::StrCat("%", std::string(1, c.letter), " needs a number, got a ",
                              TypeName(value)));
      }
      return;
    }
    const double number = value.number();
    const int precision = static_cast<int>(c.precision < 0 ? 6 : c.precision);
    const std::string format =
        absl::StrCat("%", c.alternate ? "#" : "", ".*", std::string(1, c.letter));
    std::string body(static_cast<size_t>(precision) + 400, '\0');
    const int size =
        std::snprintf(body.data(), body.size(), format.c_str(), precision, std::abs(number));
    body.resize(static_cast<size_t>(size));
    const std::string sign = SignOf(c, std::signbit(number) && !std::isnan(number));
    Pad(c, sign + body, sign.size());
  }

  static std::string SignOf(const Conversion& c, bool negative) {
    return negative ? "-" : c.plus ? "+" : c.space ? " " : "";
  }

  // Numbers have a sign of `sign_size` bytes, behind which zeros go; for texts zeros mean nothing.
  void Pad(const Conversion& c, const std::string& text, size_t sign_size) {
    const int64_t padding = PaddingLength(text, c.width);
    const std::string spaces(static_cast<size_t>(padding), ' ');
    const bool is_text = c.letter == 's' || c.letter == 'r' || c.letter == 'c';
    if (c.left) {
      absl::StrAppend(&out_, text, spaces);
    } else if (c.zero && !is_text) {
      absl::StrAppend(&out_, text.substr(0, sign_size),
                      std::string(static_cast<size_t>(padding), '0'), text.substr(sign_size));
    } else {
      absl::StrAppend(&out_, spaces, text);
    }
  }

  JinjaInterpreter& in_;
  absl::string_view rest_;
  const JinjaValue right_;
  bool is_mapping_ = false;
  bool used_names_ = false;
  std::span<const JinjaValue> values_;
  size_t next_ = 0;
  std::string out_;
};

// {}, {0}, {name}, with .attributes and [items]; no conversions and no widths.
class BraceFormatter {
 public:
  BraceFormatter(JinjaInterpreter* in, absl::string_view format, const Arguments& arguments)
      : in_(*in), rest_(format), arguments_(arguments) {}

  JinjaValue Run() {
    while (!rest_.empty() && !in_.failed()) {
      const size_t brace = std::min(rest_.find_first_of("{}"), rest_.size());
      absl::StrAppend(&out_, rest_.substr(0, brace));
      rest_.remove_prefix(brace);
      if (rest_.empty()) break;
      const bool doubled = rest_.size() > 1 && rest_[1] == rest_[0];
      if (doubled) {
        out_ += rest_[0];
        rest_.remove_prefix(2);
      } else if (rest_[0] == '}') {
        in_.Fail("a format has a single '}'");
      } else {
        Field();
      }
    }
    return in_.failed() ? JinjaValue() : in_.NewString(out_);
  }

 private:
  void Field() {
    const size_t end = rest_.find('}');
    if (end == absl::string_view::npos) {
      in_.Fail("a format ends within a field");
      return;
    }
    absl::string_view field = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    if (field.find_first_of("{!:") != absl::string_view::npos) {
      in_.Fail(absl::StrCat("field {", field, "} of a format is not supported"));
      return;
    }
    const absl::string_view name = field.substr(0, field.find_first_of(".["));
    field.remove_prefix(name.size());
    JinjaValue value = Argument(name);
    while (!field.empty() && !in_.failed()) {
      if (field[0] == '.') {
        const absl::string_view part = field.substr(1, field.find_first_of(".[", 1) - 1);
        field.remove_prefix(1 + part.size());
        value = in_.GetAttribute(value, part);
      } else {
        const size_t close = field.find(']');
        if (field[0] != '[' || close == absl::string_view::npos) {
          in_.Fail("a format has a field that does not end");
          return;
        }
        const absl::string_view key = field.substr(1, close - 1);
        bool overflows = false;
        const bool is_index = !key.empty() && absl::ascii_isdigit(key[0]);
        const std::optional<int64_t> index =
            is_index ? ParseInt(key, 10, &overflows) : std::nullopt;
        field.remove_prefix(close + 1);
        value =
            in_.GetItem(value, index.has_value() ? JinjaValue::Int(*index) : in_.NewString(key));
      }
    }
    if (!in_.failed()) in_.AppendString(value, &out_);
  }

  JinjaValue Argument(absl::string_view name) {
    bool overflows = false;
    const std::optional<int64_t> given = ParseInt(name, 10, &overflows);
    if (name.empty() || given.has_value()) {
      if ((name.empty() ? next_ : 0) < 0 || (!name.empty() && next_ > 0)) {
        return in_.Fail("a format mixes numbered and plain fields");
      }
      const int64_t index = name.empty() ? next_++ : *given;
      if (!name.empty()) next_ = -1;
      if (index < 0 || index >= static_cast<int64_t>(arguments_.positional.size())) {
        return in_.Fail("a format has more fields than values");
      }
      return arguments_.positional[static_cast<size_t>(index)];
    }
    for (const KeywordArgument& keyword : arguments_.keyword) {
      if (keyword.name == name) return keyword.value;
    }
    return in_.Fail(absl::StrCat("a format names '", name, "', which is not there"));
  }

  JinjaInterpreter& in_;
  absl::string_view rest_;
  const Arguments& arguments_;
  int64_t next_ = 0;  // -1 once fields are numbered
  std::string out_;
};

}  // namespace

JinjaValue FormatPercent(JinjaInterpreter& in, absl::string_view format, const JinjaValue& right) {
  if (in.failed() || !in.ChargeScan(format.size())) return JinjaValue();
  return PercentFormatter(&in, format, right).Run();
}

JinjaValue FormatBraces(JinjaInterpreter& in, absl::string_view format,
                        const Arguments& arguments) {
  if (in.failed() || !in.ChargeScan(format.size())) return JinjaValue();
  return BraceFormatter(&in, format, arguments).Run();
}

}  // namespace stampmill
