// Methods of Python's types, as far as templates may call them.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "text/jinja_arguments.h"
#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"
#include "text/unicode_case.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

// A method of str on its text, which has been charged for.
using StringMethod = JinjaValue (*)(JinjaInterpreter& in, absl::string_view name,
                                    absl::string_view self, const Arguments& arguments);

JinjaValue Map(JinjaInterpreter& in, absl::string_view name, const Arguments& arguments,
               const std::string& result) {
  const BoundArguments none(&in, name, arguments, 0, {});
  return in.NewString(result);
}

JinjaValue UpperMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                       const Arguments& arguments) {
  return Map(in, name, arguments, UpperCase(self));
}

JinjaValue LowerMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                       const Arguments& arguments) {
  return Map(in, name, arguments, LowerCase(self));
}

JinjaValue FoldMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                      const Arguments& arguments) {
  return Map(in, name, arguments, FoldCase(self));
}

JinjaValue CapitalizeMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                            const Arguments& arguments) {
  return Map(in, name, arguments, Capitalize(self));
}

JinjaValue TitleMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                       const Arguments& arguments) {
  return Map(in, name, arguments, TitleCase(self));
}

JinjaValue SwapCaseMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                          const Arguments& arguments) {
  return Map(in, name, arguments, SwapCase(self));
}

JinjaValue StripMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                       const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 0, {"/chars"});
  const Side side = name == "strip" ? Side::kBoth : name == "lstrip" ? Side::kLeft : Side::kRight;
  if (!bound.given(0) || bound[0].is_none()) {
    return JinjaValue::String(Strip(self, side, std::nullopt));
  }
  return JinjaValue::String(Strip(self, side, bound.Text(0, "")));
}

JinjaValue ListOf(JinjaInterpreter& in, const std::vector<absl::string_view>& parts) {
  if (!in.Charge(static_cast<int64_t>(parts.size() / 16))) return JinjaValue();
  std::vector<JinjaValue> values;
  values.reserve(parts.size());
  for (const absl::string_view part : parts) values.push_back(JinjaValue::String(part));
  return in.NewList(values);
}

JinjaValue SplitMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                       const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 0, {"sep", "maxsplit"});
  std::optional<absl::string_view> separator;
  if (bound.given(0) && !bound[0].is_none()) separator = bound.Text(0, "");
  const int64_t splits_max = bound.Int(1, -1);
  if (in.failed()) return JinjaValue();
  if (separator.has_value() && separator->empty()) return in.Fail("the separator is empty");
  return ListOf(in, name == "split" ? Split(self, separator, splits_max)
                                    : SplitFromRight(self, separator, splits_max));
}

JinjaValue SplitLinesMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                            const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 0, {"keepends"});
  return ListOf(in, SplitLines(self, bound.Bool(0, false)));
}

// The part of `self` between characters start and end, given as arguments `i` and `i` + 1; false
// where start lies behind the end. `*offset` is the character where the part begins.
bool Part(JinjaInterpreter& in, const BoundArguments& bound, size_t i, absl::string_view self,
          absl::string_view* part, int64_t* offset) {
  *part = self;
  *offset = 0;
  if (!bound.given(i) && !bound.given(i + 1)) return true;
  const int64_t size = CountCharacters(self);
  const int64_t start = bound[i].is_none() ? 0 : bound.Int(i, 0);
  const int64_t stop = bound[i + 1].is_none() ? size : bound.Int(i + 1, size);
  if (in.failed()) return false;
  const auto clamp = [size](int64_t at) { return at >= 0 ? at : at < -size ? 0 : at + size; };
  *offset = clamp(start);
  const int64_t end = std::min(size, clamp(stop));
  if (*offset > end) return false;
  const size_t begin_byte = CharacterOffset(self, *offset);
  *part = self.substr(begin_byte, CharacterOffset(self.substr(begin_byte), end - *offset));
  return true;
}

JinjaValue StartsEndsWith(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                          const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 1, {"/prefix", "/start", "/end"});
  absl::string_view part;
  int64_t offset = 0;
  const bool exists = Part(in, bound, 1, self, &part, &offset);
  std::span<const JinjaValue> choices(&bound[0], 1);
  if (bound[0].is(ValueKind::kTuple)) choices = {bound[0].items, bound[0].size};
  bool found = false;
  for (const JinjaValue& choice : choices) {
    if (in.failed()) return JinjaValue();
    if (!choice.is_string()) return in.Fail(absl::StrCat(name, " needs a string or tuple of them"));
    found = found || (exists && (name == "startswith" ? absl::StartsWith(part, choice.str())
                                                      : absl::EndsWith(part, choice.str())));
  }
  return JinjaValue::Bool(found);
}

// find, rfind, index, rindex and count.
JinjaValue FindMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                      const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 1, {"/sub", "/start", "/end"});
  const absl::string_view wanted = bound.Text(0, "");
  absl::string_view part;
  int64_t offset = 0;
  const bool exists = Part(in, bound, 1, self, &part, &offset);
  if (in.failed()) return JinjaValue();
  if (name == "count") return JinjaValue::Int(exists ? CountOccurrences(part, wanted) : 0);
  const bool from_right = name[0] == 'r';
  const size_t at = !exists      ? absl::string_view::npos
                    : from_right ? part.rfind(wanted)
                                 : part.find(wanted);
  if (at != absl::string_view::npos) {
    return JinjaValue::Int(offset + CountCharacters(part.substr(0, at)));
  }
  if (absl::EndsWith(name, "index")) return in.Fail("substring not found");
  return JinjaValue::Int(-1);
}

JinjaValue ReplaceMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                         const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 2, {"/old", "/new", "/count"});
  const absl::string_view from = bound.Text(0, "");
  const absl::string_view to = bound.Text(1, "");
  const int64_t times = bound.Int(2, -1);
  if (in.failed()) return JinjaValue();
  const auto grown = static_cast<size_t>(CountOccurrences(self, from)) * to.size();
  if (!in.ChargeScan(grown)) return JinjaValue();
  return in.NewString(Replaced(self, from, to, times));
}

JinjaValue JoinMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                      const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 1, {"/iterable"});
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(bound[0], &items)) return JinjaValue();
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return in.Fail(absl::StrCat("join: item ", i, " is a ", TypeName(items[i])));
    }
    if (!in.ChargeScan(self.size() + items[i].size)) return JinjaValue();
    absl::StrAppend(&text, i > 0 ? self : "", items[i].str());
  }
  return in.NewString(text);
}

JinjaValue JustifyMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                         const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 1, {"/width", "/fillchar"});
  const int64_t width = bound.Int(0, 0);
  const absl::string_view fill = bound.Text(1, " ");
  if (in.failed()) return JinjaValue();
  if (CountCharacters(fill) != 1) return in.Fail(absl::StrCat(name, ": fill must be 1 character"));
  const int64_t padding = PaddingLength(self, width);
  if (!in.ChargeScan(static_cast<size_t>(padding))) return JinjaValue();
  const int64_t left = name == "ljust"   ? 0
                       : name == "rjust" ? padding
                                         : padding / 2 + (padding & width & 1);
  std::string text;
  for (int64_t i = 0; i < left; ++i) absl::StrAppend(&text, fill);
  absl::StrAppend(&text, self);
  for (int64_t i = left; i < padding; ++i) absl::StrAppend(&text, fill);
  return in.NewString(text);
}

JinjaValue ZeroFillMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                          const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 1, {"/width"});
  const int64_t padding = PaddingLength(self, bound.Int(0, 0));
  if (in.failed() || !in.ChargeScan(static_cast<size_t>(padding))) return JinjaValue();
  const bool has_sign = absl::StartsWith(self, "-") || absl::StartsWith(self, "+");
  return in.NewString(absl::StrCat(self.substr(0, has_sign ? 1 : 0),
                                   std::string(static_cast<size_t>(padding), '0'),
                                   self.substr(has_sign ? 1 : 0)));
}

JinjaValue PartitionMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                           const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 1, {"/sep"});
  const absl::string_view separator = bound.Text(0, " ");
  if (in.failed()) return JinjaValue();
  if (separator.empty()) return in.Fail("the separator is empty");
  const bool from_right = name == "rpartition";
  const size_t at = from_right ? self.rfind(separator) : self.find(separator);
  JinjaValue parts[3] = {JinjaValue::String(""), JinjaValue::String(""), JinjaValue::String("")};
  if (at == absl::string_view::npos) {
    parts[from_right ? 2 : 0] = JinjaValue::String(self);
  } else {
    parts[0] = JinjaValue::String(self.substr(0, at));
    parts[1] = JinjaValue::String(separator);
    parts[2] = JinjaValue::String(self.substr(at + separator.size()));
  }
  return in.NewTuple(parts);
}

JinjaValue RemoveMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                        const Arguments& arguments) {
  const BoundArguments bound(&in, name, arguments, 1, {"/affix"});
  const absl::string_view affix = bound.Text(0, "");
  if (name == "removeprefix" && absl::StartsWith(self, affix)) self.remove_prefix(affix.size());
  if (name == "removesuffix" && absl::EndsWith(self, affix)) self.remove_suffix(affix.size());
  return JinjaValue::String(self);
}

// isalpha and the like: of every character, and there must be one.
JinjaValue AllAre(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                  const Arguments& arguments) {
  static constexpr std::pair<absl::string_view, uint32_t> kWanted[] = {
      {"isalpha", kAlphabetic},    {"isalnum", kAlphanumeric}, {"isdecimal", kDecimalDigit},
      {"isdigit", kDigit},         {"isnumeric", kNumeric},    {"isspace", kSpace},
      {"isprintable", kPrintable},
  };
  const BoundArguments none(&in, name, arguments, 0, {});
  const auto* const wanted = std::find_if(std::begin(kWanted), std::end(kWanted),
                                          [name](const auto& row) { return row.first == name; });
  bool all = !self.empty() || name == "isprintable";
  for (const char *at = self.data(), *end = at + self.size(); all && at < end;) {
    const Utf8Character next = DecodeUtf8(at, end);
    all = (CharacterProperties(next.code_point) & wanted->second) != 0;
    at += next.size_bytes;
  }
  return JinjaValue::Bool(all);
}

JinjaValue IsAsciiMethod(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                         const Arguments& arguments) {
  const BoundArguments none(&in, name, arguments, 0, {});
  return JinjaValue::Bool(IsAscii(self));
}

JinjaValue CaseTest(JinjaInterpreter& in, absl::string_view name, absl::string_view self,
                    const Arguments& arguments) {
  const BoundArguments none(&in, name, arguments, 0, {});
  const int test = FindTest(name == "islower" ? "lower" : "upper");
  return JinjaValue::Bool(CallTest(in, test, JinjaValue::String(self), {}));
}

JinjaValue FormatMethod(JinjaInterpreter& in, absl::string_view, absl::string_view self,
                        const Arguments& arguments) {
  return FormatBraces(in, self, arguments);
}

struct NamedStringMethod {
  absl::string_view name;
  StringMethod method;  // null: Python has it, templates do not
};

constexpr NamedStringMethod kStringMethods[] = {
    {"capitalize", CapitalizeMethod},
    {"casefold", FoldMethod},
    {"center", JustifyMethod},
    {"count", FindMethod},
    {"encode", nullptr},
    {"endswith", StartsEndsWith},
    {"expandtabs", nullptr},
    {"find", FindMethod},
    {"format", FormatMethod},
    {"format_map", nullptr},
    {"index", FindMethod},
    {"isalnum", AllAre},
    {"isalpha", AllAre},
    {"isascii", IsAsciiMethod},
    {"isdecimal", AllAre},
    {"isdigit", AllAre},
    {"isidentifier", nullptr},
    {"islower", CaseTest},
    {"isnumeric", AllAre},
    {"isprintable", AllAre},
    {"isspace", AllAre},
    {"istitle", nullptr},
    {"isupper", CaseTest},
    {"join", JoinMethod},
    {"ljust", JustifyMethod},
    {"lower", LowerMethod},
    {"lstrip", StripMethod},
    {"maketrans", nullptr},
    {"partition", PartitionMethod},
    {"removeprefix", RemoveMethod},
    {"removesuffix", RemoveMethod},
    {"replace", ReplaceMethod},
    {"rfind", FindMethod},
    {"rindex", FindMethod},
    {"rjust", JustifyMethod},
    {"rpartition", PartitionMethod},
    {"rsplit", SplitMethod},
    {"rstrip", StripMethod},
    {"split", SplitMethod},
    {"splitlines", SplitLinesMethod},
    {"startswith", StartsEndsWith},
    {"strip", StripMethod},
    {"swapcase", SwapCaseMethod},
    {"title", TitleMethod},
    {"translate", nullptr},
    {"upper", UpperMethod},
    {"zfill", ZeroFillMethod},
};

const NamedStringMethod* FindStringMethod(absl::string_view name) {
  const auto* const at = std::lower_bound(
      std::begin(kStringMethods), std::end(kStringMethods), name,
      [](const NamedStringMethod& row, absl::string_view n) { return row.name < n; });
  return at != std::end(kStringMethods) && at->name == name ? at : nullptr;
}

bool IsOneOf(absl::string_view name, std::initializer_list<absl::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

JinjaValue CallDictMethod(JinjaInterpreter& in, const JinjaValue& self, absl::string_view name,
                          const Arguments& arguments) {
  if (name == "get") {
    const BoundArguments bound(&in, name, arguments, 1, {"/key", "/default"});
    if (in.failed()) return JinjaValue();
    if (!IsHashable(bound[0])) {
      return in.Fail(absl::StrCat("a ", TypeName(bound[0]), " cannot be a key"));
    }
    const DictEntry* const entry = self.dict->Find(bound[0]);
    if (entry != nullptr) return entry->value;
    return bound.given(1) ? bound[1] : JinjaValue::None();
  }
  const BoundArguments none(&in, name, arguments, 0, {});
  JinjaValue view = self;
  if (name == "keys") view.kind = ValueKind::kKeysView;
  if (name == "values") view.kind = ValueKind::kValuesView;
  if (name == "items") view.kind = ValueKind::kItemsView;
  // A copy is the dict itself: nothing can change either.
  if (view.is(ValueKind::kDict) && name != "copy") {
    return in.Fail(absl::StrCat("method '", name, "' of a dict is not supported"));
  }
  return view;
}

JinjaValue CallSequenceMethod(JinjaInterpreter& in, const JinjaValue& self, absl::string_view name,
                              const Arguments& arguments) {
  if (name == "copy") {
    const BoundArguments none(&in, name, arguments, 0, {});
    return self;
  }
  const BoundArguments bound(&in, name, arguments, 1, {"/value", "/start", "/stop"});
  if (bound.given(1)) {
    return in.Fail(absl::StrCat("method '", name,
                                "' with more than one argument is not "
                                "supported"));
  }
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(self, &items)) return JinjaValue();
  int64_t count = 0;
  for (size_t i = 0; i < items.size() && !in.failed(); ++i) {
    if (!in.Equal(items[i], bound[0])) continue;
    if (name == "index") return JinjaValue::Int(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") return in.Fail("index: the value is not there");
  return JinjaValue::Int(count);
}

}  // namespace

bool HasMethod(const JinjaValue& self, absl::string_view name, bool* changes) {
  *changes = false;
  switch (self.kind) {
    case ValueKind::kString:
      return FindStringMethod(name) != nullptr;
    case ValueKind::kList:
      *changes = IsOneOf(
          name, {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"});
      return *changes || IsOneOf(name, {"copy", "count", "index"});
    case ValueKind::kTuple:
    case ValueKind::kRange:
      return IsOneOf(name, {"count", "index"});
    case ValueKind::kDict:
      *changes = IsOneOf(name, {"clear", "pop", "popitem", "setdefault", "update"});
      return *changes || IsOneOf(name, {"copy", "fromkeys", "get", "items", "keys", "values"});
    case ValueKind::kBool:
    case ValueKind::kInt:
    case ValueKind::kUnsigned:
      return IsOneOf(name, {"as_integer_ratio", "bit_count", "bit_length", "conjugate",
                            "denominator", "from_bytes", "imag", "numerator", "real", "to_bytes"});
    case ValueKind::kFloat:
      return IsOneOf(
          name, {"as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"});
    case ValueKind::kKeysView:
    case ValueKind::kItemsView:
      return IsOneOf(name, {"isdisjoint", "mapping"});
    case ValueKind::kValuesView:
      return name == "mapping";
    case ValueKind::kCycler:
      return IsOneOf(name, {"next", "reset"});
    default:
      return false;
  }
}

JinjaValue CallMethod(JinjaInterpreter& in, const JinjaValue& self, absl::string_view name,
                      const Arguments& arguments) {
  if (self.is_string()) {
    const NamedStringMethod* const method = FindStringMethod(name);
    if (method != nullptr && method->method != nullptr) {
      if (self.is_markup) return in.Fail("methods of escaped text are not supported");
      if (!in.ChargeWork(self.size)) return JinjaValue();
      const JinjaValue result = method->method(in, name, self.str(), arguments);
      return in.failed() ? JinjaValue() : result;
    }
  } else if (self.is(ValueKind::kDict)) {
    return CallDictMethod(in, self, name, arguments);
  } else if (self.is_sequence() || self.is(ValueKind::kRange)) {
    return CallSequenceMethod(in, self, name, arguments);
  }
  return in.Fail(absl::StrCat("method '", name, "' of a ", TypeName(self), " is not supported"));
}

}  // namespace stampmill
