// Functions that every template sees.
#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/jinja_arguments.h"
#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"

namespace stampmill {
namespace {

// As Jinja's sandbox has it.
constexpr int64_t kRangeMax = 100000;

// Longest format of strftime_now, and what it may become: far more than any date.
constexpr size_t kTimeFormatBytesMax = 256;
constexpr size_t kTimeBytesMax = 4096;

constexpr std::pair<absl::string_view, Builtin> kBuiltins[] = {
    {"range", Builtin::kRange},
    {"dict", Builtin::kDict},
    {"namespace", Builtin::kNamespace},
    {"cycler", Builtin::kCycler},
    {"joiner", Builtin::kJoiner},
    {"raise_exception", Builtin::kRaiseException},
    {"strftime_now", Builtin::kStrftimeNow},
};

JinjaValue MakeRange(JinjaInterpreter& in, const Arguments& arguments) {
  const BoundArguments bound(&in, "range", arguments, 1, {"/start", "/stop", "/step"});
  for (const JinjaValue& value : arguments.positional) {
    if (value.is_undefined()) return in.FailOperands("range", value, value);
  }
  const bool has_start = bound.given(1);
  const int64_t start = has_start ? bound.Int(0, 0) : 0;
  const int64_t stop = has_start ? bound.Int(1, 0) : bound.Int(0, 0);
  const int64_t step = bound.Int(2, 1);
  if (in.failed()) return JinjaValue();
  if (step == 0) return in.Fail("range has step 0");
  const __int128 distance =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 by = step > 0 ? step : -static_cast<__int128>(step);
  const __int128 size = distance <= 0 ? 0 : (distance - 1) / by + 1;
  if (size > kRangeMax) return in.Fail(absl::StrCat("range has more than ", kRangeMax, " items"));
  JinjaValue result = JinjaValue::Of(ValueKind::kRange);
  result.range = in.New(
      JinjaRange{.start = start, .stop = stop, .step = step, .size = static_cast<int64_t>(size)});
  return result;
}

// dict(mapping or pairs, names...), as both dict and namespace take them.
JinjaValue MakeDict(JinjaInterpreter& in, const Arguments& arguments) {
  const JinjaValue result = in.NewDict();
  if (arguments.positional.size() > 1) {
    return in.Fail(
        absl::StrCat("dict takes at most 1 argument, got ", arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    JinjaValue pairs = arguments.positional[0];
    if (pairs.is(ValueKind::kDict)) pairs.kind = ValueKind::kItemsView;
    std::span<const JinjaValue> items;
    if (!in.Items(pairs, &items)) return JinjaValue();
    for (const JinjaValue& item : items) {
      std::span<const JinjaValue> pair;
      if (!in.Items(item, &pair)) return JinjaValue();
      if (pair.size() != 2) return in.Fail("dict needs pairs");
      in.Insert(result.dict, pair[0], pair[1]);
    }
  }
  for (const KeywordArgument& keyword : arguments.keyword) {
    if (in.failed()) return JinjaValue();
    in.Insert(result.dict, JinjaValue::String(keyword.name), keyword.value);
  }
  return result;
}

JinjaValue MakeCycler(JinjaInterpreter& in, const Arguments& arguments) {
  if (!arguments.keyword.empty()) return in.Fail("cycler takes no keywords");
  if (arguments.positional.empty()) return in.Fail("cycler needs at least one item");
  const JinjaValue items = in.NewList(arguments.positional);
  JinjaValue result = JinjaValue::Of(ValueKind::kCycler);
  result.cycler = in.New(Cycler{.items = items.items, .size = items.size});
  return result;
}

JinjaValue RaiseException(JinjaInterpreter& in, const Arguments& arguments) {
  const BoundArguments bound(&in, "raise_exception", arguments, 1, {"message"});
  std::string message;
  if (in.failed() || !in.AppendString(bound[0], &message)) return JinjaValue();
  return in.Fail(absl::StrCat("the template raised: ", message));
}

// The format with what a time without zone leaves empty left out, and microseconds as 0.
std::string WithoutZone(absl::string_view format) {
  std::string result;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      result += format[i];
      continue;
    }
    const char directive = format[++i];
    if (directive == 'z' || directive == 'Z') continue;
    if (directive == 'f') {
      result += "000000";
    } else {
      result += {'%', directive};
    }
  }
  return result;
}

JinjaValue StrftimeNow(JinjaInterpreter& in, const Arguments& arguments) {
  const BoundArguments bound(&in, "strftime_now", arguments, 1, {"format"});
  const absl::string_view format = bound.Text(0, "");
  if (in.failed()) return JinjaValue();
  if (format.size() > kTimeFormatBytesMax || format.find('\0') != absl::string_view::npos) {
    return in.Fail(absl::StrCat("strftime_now: format has ", format.size(),
                                " bytes or a NUL, limit ", kTimeFormatBytesMax));
  }
  const std::time_t seconds = in.options().now_unix_seconds;
  std::tm time = {};
  if (gmtime_r(&seconds, &time) == nullptr) return in.Fail("strftime_now: the time has no date");
  // A character at the end tells a time that is empty from one that does not fit.
  const std::string directives = WithoutZone(format) + ".";
  std::string text(kTimeBytesMax, '\0');
  const size_t size = std::strftime(text.data(), text.size(), directives.c_str(), &time);
  if (size == 0) return in.Fail(absl::StrCat("strftime_now: more than ", kTimeBytesMax, " bytes"));
  return in.NewString(absl::string_view(text).substr(0, size - 1));
}

}  // namespace

bool FindBuiltin(absl::string_view name, Builtin* builtin) {
  for (const auto& [known, found] : kBuiltins) {
    if (known == name) {
      *builtin = found;
      return true;
    }
  }
  return false;
}

JinjaValue CallBuiltin(JinjaInterpreter& in, Builtin builtin, const Arguments& arguments) {
  switch (builtin) {
    case Builtin::kRange:
      return MakeRange(in, arguments);
    case Builtin::kDict:
      return MakeDict(in, arguments);
    case Builtin::kNamespace: {
      JinjaValue result = MakeDict(in, arguments);
      if (!in.failed()) result.kind = ValueKind::kNamespace;
      return result;
    }
    case Builtin::kCycler:
      return MakeCycler(in, arguments);
    case Builtin::kJoiner: {
      const BoundArguments bound(&in, "joiner", arguments, 0, {"sep"});
      JinjaValue result = JinjaValue::Of(ValueKind::kJoiner);
      result.joiner =
          in.New(Joiner{.separator = bound.given(0) ? bound[0] : JinjaValue::String(", ")});
      return result;
    }
    case Builtin::kRaiseException:
      return RaiseException(in, arguments);
    case Builtin::kStrftimeNow:
      return StrftimeNow(in, arguments);
  }
  return JinjaValue();
}

}  // namespace stampmill
