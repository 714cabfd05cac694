// Filters of texts, numbers and single values, and how filters are found.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "text/jinja_arguments.h"
#include "text/jinja_filter_table.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"
#include "text/unicode_case.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

// What filters of texts see of any value.
absl::string_view TextOf(JinjaInterpreter& in, const JinjaValue& value) {
  const JinjaValue text = in.ToString(value);
  if (in.failed() || !in.ChargeWork(text.size)) return "";
  return text.str();
}

JinjaValue Markup(JinjaInterpreter& in, absl::string_view text) {
  JinjaValue result = in.NewString(text);
  result.is_markup = !in.failed();
  return result;
}

JinjaValue Upper(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "upper", arguments, 0, {});
  return in.NewString(UpperCase(TextOf(in, value)));
}

JinjaValue Lower(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "lower", arguments, 0, {});
  return in.NewString(LowerCase(TextOf(in, value)));
}

JinjaValue CapitalizeFilter(JinjaInterpreter& in, const JinjaValue& value,
                            const Arguments& arguments) {
  const BoundArguments bound(&in, "capitalize", arguments, 0, {});
  return in.NewString(Capitalize(TextOf(in, value)));
}

// Words begin behind white space and opening brackets, and not, as for str.title, behind quotes.
JinjaValue Title(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "title", arguments, 0, {});
  const absl::string_view text = TextOf(in, value);
  const auto separates = [&](const char* at) {
    const char32_t c = DecodeUtf8(at, text.data() + text.size()).code_point;
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' ||
           (CharacterProperties(c) & kSpace) != 0;
  };
  std::string result;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const bool in_separator = separates(at);
    const char* const begin = at;
    const char* const second = at + DecodeUtf8(at, end).size_bytes;
    while (at < end && separates(at) == in_separator) at += DecodeUtf8(at, end).size_bytes;
    result += UpperCase(absl::string_view(begin, static_cast<size_t>(second - begin)));
    result += LowerCase(absl::string_view(second, static_cast<size_t>(at - second)));
  }
  return in.NewString(result);
}

JinjaValue Trim(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "trim", arguments, 0, {"chars"});
  const JinjaValue text = in.ToString(value);
  if (in.failed() || !in.ChargeScan(text.size)) return JinjaValue();
  if (!bound.given(0) || bound[0].is_none()) {
    return JinjaValue::String(Strip(text.str(), Side::kBoth, std::nullopt));
  }
  return JinjaValue::String(Strip(text.str(), Side::kBoth, bound.Text(0, "")));
}

JinjaValue Center(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "center", arguments, 0, {"width"});
  const absl::string_view text = TextOf(in, value);
  const int64_t width = bound.Int(0, 80);
  const int64_t padding = PaddingLength(text, width);
  if (in.failed() || !in.ChargeScan(static_cast<size_t>(padding))) return JinjaValue();
  const int64_t left = padding / 2 + (padding & width & 1);
  return in.NewString(absl::StrCat(std::string(static_cast<size_t>(left), ' '), text,
                                   std::string(static_cast<size_t>(padding - left), ' ')));
}

JinjaValue ReplaceFilter(JinjaInterpreter& in, const JinjaValue& value,
                         const Arguments& arguments) {
  const BoundArguments bound(&in, "replace", arguments, 2, {"old", "new", "count"});
  if (in.failed()) return JinjaValue();
  const absl::string_view text = TextOf(in, value);
  const absl::string_view from = TextOf(in, bound[0]);
  const absl::string_view to = TextOf(in, bound[1]);
  const int64_t times = bound[2].is_none() ? -1 : bound.Int(2, -1);
  if (in.failed()) return JinjaValue();
  const auto grown = static_cast<size_t>(CountOccurrences(text, from)) * to.size();
  if (!in.ChargeScan(grown)) return JinjaValue();
  return in.NewString(Replaced(text, from, to, times));
}

JinjaValue Indent(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "indent", arguments, 0, {"width", "first", "blank"});
  if (in.failed()) return JinjaValue();
  if (!value.is_string()) {
    return value.is_undefined() ? in.FailOperands("+", value, value)
                                : in.Fail("indent needs a string");
  }
  const bool by_text = bound[0].is_string();
  const int64_t width = by_text ? 0 : bound.Int(0, 4);
  if (!in.ChargeScan(static_cast<size_t>(std::max<int64_t>(0, width)))) return JinjaValue();
  const std::string indention =
      by_text ? std::string(bound[0].str())
              : std::string(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
  const bool blank = bound.Bool(2, false);
  if (!in.ChargeWork(value.size)) return JinjaValue();
  const std::string text = absl::StrCat(value.str(), "\n");
  std::string result = bound.Bool(1, false) ? indention : "";
  bool is_first = true;
  for (const absl::string_view line : SplitLines(text, /*keep_ends=*/false)) {
    if (!is_first) {
      result += '\n';
      if (!in.ChargeScan(indention.size())) return JinjaValue();
      if (blank || !line.empty()) result += indention;
    }
    is_first = false;
    result.append(line.data(), line.size());
  }
  return in.NewString(result);
}

JinjaValue Truncate(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "truncate", arguments, 0,
                             {"length", "killwords", "end", "leeway"});
  const int64_t length = bound.Int(0, 255);
  const absl::string_view end = bound.Text(2, "...");
  const int64_t leeway = bound[3].is_none() ? 5 : bound.Int(3, 5);
  if (in.failed()) return JinjaValue();
  const int64_t end_length = CountCharacters(end);
  if (length < end_length || leeway < 0) return in.Fail("truncate: length or leeway is too small");
  const int64_t size = in.Length(value);
  if (size >= 0 && size <= length + leeway) return value;
  if (!value.is_string()) return in.Fail("truncate needs a string");
  absl::string_view text = value.str().substr(0, CharacterOffset(value.str(), length - end_length));
  if (!bound.Bool(1, false)) text = SplitFromRight(text, " ", 1).front();
  return in.NewString(absl::StrCat(text, end));
}

JinjaValue WordCount(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "wordcount", arguments, 0, {});
  const absl::string_view text = TextOf(in, value);
  int64_t count = 0;
  bool in_word = false;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const Utf8Character next = DecodeUtf8(at, end);
    const bool is_word =
        next.code_point == '_' || (CharacterProperties(next.code_point) & kAlphanumeric) != 0;
    if (is_word && !in_word) ++count;
    in_word = is_word;
    at += next.size_bytes;
  }
  return JinjaValue::Int(count);
}

JinjaValue StringFilter(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "string", arguments, 0, {});
  return in.ToString(value);
}

JinjaValue Escape(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "escape", arguments, 0, {});
  if (in.failed() || value.is_markup) return value;
  return Markup(in, Escaped(TextOf(in, value)));
}

JinjaValue ForceEscape(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "forceescape", arguments, 0, {});
  return Markup(in, Escaped(TextOf(in, value)));
}

JinjaValue Safe(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "safe", arguments, 0, {});
  JinjaValue result = in.ToString(value);
  result.is_markup = result.is_string();
  return result;
}

std::string UrlQuoted(absl::string_view text, bool for_query) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (byte < 0x80 && (CharacterProperties(byte) & kAlphanumeric)) ||
                          c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (is_plain) {
      result += c;
    } else if (c == ' ' && for_query) {
      result += '+';
    } else {
      static constexpr char kDigits[] = "0123456789ABCDEF";
      result += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return result;
}

JinjaValue UrlEncode(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "urlencode", arguments, 0, {});
  const bool is_one = value.is_string() || in.Length(value) < 0;
  if (in.failed()) return JinjaValue();
  if (is_one && !value.is(ValueKind::kIterator)) {
    return in.NewString(UrlQuoted(TextOf(in, value), /*for_query=*/false));
  }
  JinjaValue pairs = value;
  if (value.is(ValueKind::kDict)) pairs.kind = ValueKind::kItemsView;
  std::span<const JinjaValue> items;
  if (!in.Items(pairs, &items)) return JinjaValue();
  std::string result;
  for (const JinjaValue& item : items) {
    std::span<const JinjaValue> pair;
    if (!in.Items(item, &pair)) return JinjaValue();
    if (pair.size() != 2) return in.Fail("urlencode needs pairs");
    absl::StrAppend(&result, result.empty() ? "" : "&", UrlQuoted(TextOf(in, pair[0]), true), "=",
                    UrlQuoted(TextOf(in, pair[1]), true));
  }
  return in.NewString(result);
}

JinjaValue Format(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const absl::string_view format = TextOf(in, value);
  if (arguments.keyword.empty()) {
    return FormatPercent(in, format, in.NewTuple(arguments.positional));
  }
  if (!arguments.positional.empty()) return in.Fail("format takes values or names, not both");
  const JinjaValue names = in.NewDict();
  for (const KeywordArgument& keyword : arguments.keyword) {
    if (in.failed()) return JinjaValue();
    in.Insert(names.dict, JinjaValue::String(keyword.name), keyword.value);
  }
  return FormatPercent(in, format, names);
}

// What json.dumps makes of its argument `indent`.
void SetIndent(JinjaInterpreter& in, const JinjaValue& indent, JsonStyle* style) {
  if (indent.is_none()) return;
  style->has_indent = true;
  style->item_separator = ",";
  if (indent.is_string()) {
    style->indent = std::string(indent.str());
  } else if (!indent.is_integral()) {
    in.Fail(absl::StrCat("tojson: argument 'indent' must be an integer, got a ", TypeName(indent)));
  } else {
    const int64_t width = std::max<int64_t>(0, indent.integral());
    if (in.ChargeScan(static_cast<size_t>(width))) style->indent.assign(width, ' ');
  }
}

JinjaValue ToJson(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "tojson", arguments, 0,
                             {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (in.failed()) return JinjaValue();
  JsonStyle style;
  style.ensure_ascii = bound.Bool(0, false);
  if (bound.given(1)) SetIndent(in, bound[1], &style);
  if (bound.given(2) && !bound[2].is_none()) {
    std::span<const JinjaValue> separators;
    if (!in.Items(bound[2], &separators)) return JinjaValue();
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      return in.Fail("tojson: argument 'separators' must be two strings");
    }
    style.item_separator = std::string(separators[0].str());
    style.key_separator = std::string(separators[1].str());
  }
  style.sort_keys = bound.Bool(3, false);
  std::string text;
  return !in.failed() && AppendJson(in, value, style, &text) ? in.NewString(text) : JinjaValue();
}

JinjaValue Abs(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "abs", arguments, 0, {});
  if (value.is(ValueKind::kFloat)) return JinjaValue::Float(std::abs(value.real));
  if (!value.is_integral()) return in.FailOperands("abs", value, value);
  if (value.integral() >= 0) return JinjaValue::Int(value.integral());
  return in.Binary(Operator::kSubtract, JinjaValue::Int(0), value);
}

// int(value) of a number; `otherwise` for what is none.
JinjaValue IntOfFloat(JinjaInterpreter& in, double value, const JinjaValue& otherwise) {
  if (std::isnan(value) || std::isinf(value)) return otherwise;
  if (!(std::abs(value) < 9223372036854775808.0)) return in.Fail("an integer is beyond 64 bits");
  return JinjaValue::Int(static_cast<int64_t>(value));
}

JinjaValue IntFilter(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "int", arguments, 0, {"default", "base"});
  const JinjaValue otherwise = bound.given(0) ? bound[0] : JinjaValue::Int(0);
  const int64_t base = bound.Int(1, 10);
  if (in.failed()) return JinjaValue();
  if (value.is_undefined()) return in.FailOperands("int", value, value);
  if (value.is_integral()) return JinjaValue::Int(value.integral());
  if (value.is(ValueKind::kFloat)) {
    if (std::isinf(value.real)) return in.Fail("an infinite number has no integer");
    return IntOfFloat(in, value.real, otherwise);
  }
  if (!value.is_string()) return otherwise;
  bool overflows = false;
  const std::optional<int64_t> number = ParseInt(value.str(), base, &overflows);
  if (overflows) return in.Fail("an integer is beyond 64 bits");
  if (number.has_value()) return JinjaValue::Int(*number);
  const std::optional<double> real = ParseFloat(value.str());
  return real.has_value() ? IntOfFloat(in, *real, otherwise) : otherwise;
}

JinjaValue FloatFilter(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "float", arguments, 0, {"default"});
  const JinjaValue otherwise = bound.given(0) ? bound[0] : JinjaValue::Float(0);
  if (value.is_undefined()) return in.FailOperands("float", value, value);
  if (value.is_number()) return JinjaValue::Float(value.number());
  if (!value.is_string()) return otherwise;
  const std::optional<double> real = ParseFloat(value.str());
  return real.has_value() ? JinjaValue::Float(*real) : otherwise;
}

// round(value, places) for places below 0: half to even, of a number that is exact.
int64_t RoundedInteger(int64_t value, int64_t places) {
  if (places < -18) return 0;
  int64_t unit = 1;
  for (; places < 0; ++places) unit *= 10;
  int64_t quotient = value / unit;
  int64_t rest = value % unit;
  if (rest < 0) {
    rest += unit;
    --quotient;
  }
  if (rest > unit - rest || (rest == unit - rest && quotient % 2 != 0)) ++quotient;
  return quotient * unit;
}

JinjaValue Round(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "round", arguments, 0, {"precision", "method"});
  const int64_t places = bound.Int(0, 0);
  const absl::string_view method = bound.Text(1, "common");
  if (in.failed()) return JinjaValue();
  if (method != "common" && method != "ceil" && method != "floor") {
    return in.Fail("round: method must be common, ceil or floor");
  }
  if (!value.is_number()) return in.FailOperands("round", value, value);
  if (places > 300 || places < -300) return in.Fail("round: precision is out of range");
  if (method != "common") {
    const JinjaValue scale =
        in.Binary(Operator::kPower, JinjaValue::Int(10), JinjaValue::Int(places));
    const JinjaValue scaled = in.Binary(Operator::kMultiply, value, scale);
    if (in.failed()) return JinjaValue();
    if (scaled.is_integral()) return in.Binary(Operator::kDivide, scaled, scale);
    const double whole = method == "ceil" ? std::ceil(scaled.real) : std::floor(scaled.real);
    if (!std::isfinite(whole)) return in.Fail("a number is out of range");
    // Whole numbers have no -0.
    return in.Binary(Operator::kDivide, JinjaValue::Float(whole + 0.0), scale);
  }
  if (value.is_integral()) {
    return JinjaValue::Int(places >= 0 ? value.integral()
                                       : RoundedInteger(value.integral(), places));
  }
  if (!std::isfinite(value.real)) return value;
  if (places < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-places));
    return JinjaValue::Float(std::nearbyint(value.real / unit) * unit);
  }
  std::array<char, 700> digits;
  std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(places), value.real);
  return JinjaValue::Float(std::strtod(digits.data(), nullptr));
}

JinjaValue Default(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "default", arguments, 0, {"default_value", "boolean"});
  const bool replaces = value.is_undefined() || (bound.Bool(1, false) && !IsTrue(value));
  if (!replaces) return value;
  return bound.given(0) ? bound[0] : JinjaValue::String("");
}

JinjaValue Attr(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "attr", arguments, 1, {"name"});
  const absl::string_view name = bound.Text(0, "");
  if (in.failed()) return JinjaValue();
  bool found = false;
  const JinjaValue attribute = in.PythonAttribute(value, name, &found);
  return found ? attribute : JinjaValue::Undefined(name);
}

JinjaValue Length(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "length", arguments, 0, {});
  const int64_t length = in.Length(value);
  if (length < 0) return in.Fail(absl::StrCat("a ", TypeName(value), " has no length"));
  return JinjaValue::Int(length);
}

constexpr NamedFilter kValueFilters[] = {
    {"abs", Abs},
    {"attr", Attr},
    {"capitalize", CapitalizeFilter},
    {"center", Center},
    {"count", Length, true},
    {"d", Default, true},
    {"default", Default, true},
    {"e", Escape, true},
    {"escape", Escape, true},
    {"float", FloatFilter},
    {"forceescape", ForceEscape, true},
    {"format", Format},
    {"indent", Indent},
    {"int", IntFilter},
    {"length", Length, true},
    {"lower", Lower},
    {"replace", ReplaceFilter, true},
    {"round", Round},
    {"safe", Safe, true},
    {"string", StringFilter, true},
    {"title", Title},
    {"tojson", ToJson, true},
    {"trim", Trim},
    {"truncate", Truncate},
    {"upper", Upper},
    {"urlencode", UrlEncode},
    {"wordcount", WordCount},
};

const NamedFilter& FilterAt(int index) {
  const std::span<const NamedFilter> values = ValueFilters();
  const auto i = static_cast<size_t>(index);
  return i < values.size() ? values[i] : SequenceFilters()[i - values.size()];
}

}  // namespace

std::span<const NamedFilter> ValueFilters() { return kValueFilters; }

int FindFilter(absl::string_view name) {
  const size_t count = ValueFilters().size() + SequenceFilters().size();
  for (int i = 0; static_cast<size_t>(i) < count; ++i) {
    if (FilterAt(i).name == name) return i;
  }
  return -1;
}

JinjaValue CallFilter(JinjaInterpreter& in, int index, const JinjaValue& value,
                      const Arguments& arguments) {
  const NamedFilter& filter = FilterAt(index);
  if (!in.Charge(1)) return JinjaValue();
  if (value.is_string() && value.is_markup && !filter.takes_markup) {
    return in.Fail(absl::StrCat(filter.name, " of escaped text is not supported"));
  }
  const JinjaValue result = filter.function(in, value, arguments);
  return in.failed() ? JinjaValue() : result;
}

}  // namespace stampmill
