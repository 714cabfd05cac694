// What can stand behind `is`.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "text/jinja_arguments.h"
#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/unicode_case.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

using TestFunction = bool (*)(JinjaInterpreter& in, const JinjaValue& value,
                              const JinjaValue& argument);

bool IsBoolean(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is(ValueKind::kBool);
}

bool IsCallable(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  switch (value.kind) {
    case ValueKind::kUndefined:
    case ValueKind::kFunction:
    case ValueKind::kMethod:
    case ValueKind::kMacro:
    case ValueKind::kLoop:
    case ValueKind::kJoiner:
      return true;
    default:
      return false;
  }
}

bool IsDefined(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return !value.is_undefined();
}

bool IsUndefined(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is_undefined();
}

bool IsDivisible(JinjaInterpreter& in, const JinjaValue& value, const JinjaValue& argument) {
  const JinjaValue rest = in.Binary(Operator::kModulo, value, argument);
  return !in.failed() && in.Equal(rest, JinjaValue::Int(0));
}

bool IsEven(JinjaInterpreter& in, const JinjaValue& value, const JinjaValue&) {
  return IsDivisible(in, value, JinjaValue::Int(2));
}

bool IsOdd(JinjaInterpreter& in, const JinjaValue& value, const JinjaValue&) {
  const JinjaValue rest = in.Binary(Operator::kModulo, value, JinjaValue::Int(2));
  return !in.failed() && in.Equal(rest, JinjaValue::Int(1));
}

bool IsEscaped(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is_string() && value.is_markup;
}

template <Operator kOperator>
bool Compares(JinjaInterpreter& in, const JinjaValue& value, const JinjaValue& argument) {
  return in.Compare(kOperator, value, argument);
}

bool IsFalse(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is(ValueKind::kBool) && !value.boolean;
}

bool IsTrueTest(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is(ValueKind::kBool) && value.boolean;
}

bool NamesFilter(JinjaInterpreter& in, const JinjaValue& value, const JinjaValue&) {
  if (!IsHashable(value)) in.Fail(absl::StrCat("a ", TypeName(value), " is no name"));
  return value.is_string() && FindFilter(value.str()) >= 0;
}

bool NamesTest(JinjaInterpreter& in, const JinjaValue& value, const JinjaValue&) {
  if (!IsHashable(value)) in.Fail(absl::StrCat("a ", TypeName(value), " is no name"));
  return value.is_string() && FindTest(value.str()) >= 0;
}

bool IsFloat(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is(ValueKind::kFloat);
}

bool IsInteger(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is(ValueKind::kInt) || value.is(ValueKind::kUnsigned);
}

bool IsNumber(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is_number() || value.is(ValueKind::kUnsigned);
}

bool IsIterable(JinjaInterpreter& in, const JinjaValue& value, const JinjaValue&) {
  return value.is(ValueKind::kIterator) || in.Length(value) >= 0;
}

bool IsSequence(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is_string() || value.is_sequence() || value.is(ValueKind::kDict) ||
         value.is(ValueKind::kRange) || value.is_undefined();
}

bool IsMapping(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is(ValueKind::kDict);
}

bool IsNone(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is_none();
}

bool IsString(JinjaInterpreter&, const JinjaValue& value, const JinjaValue&) {
  return value.is_string();
}

// The same object. Which equal numbers and texts are one object is Python's to choose; here all
// equal ones of one type are.
bool IsSame(JinjaInterpreter& in, const JinjaValue& value, const JinjaValue& argument) {
  if (value.kind != argument.kind) return false;
  if (value.is_sequence()) return value.items == argument.items && value.size == argument.size;
  if (value.is(ValueKind::kDict)) return value.dict == argument.dict;
  return in.Equal(value, argument);
}

// Whether there are letters with case, and all are of this one.
bool AllOfCase(JinjaInterpreter& in, const JinjaValue& value, uint32_t wanted) {
  const JinjaValue text = in.ToString(value);
  if (in.failed() || !in.ChargeWork(text.size)) return false;
  bool any = false;
  for (const char *at = text.text, *end = at + text.size; at < end;) {
    const Utf8Character next = DecodeUtf8(at, end);
    const uint32_t properties = CharacterProperties(next.code_point);
    if (properties & (kLowerCase | kUpperCase | kTitleCase) & ~wanted) return false;
    any = any || (properties & wanted) != 0;
    at += next.size_bytes;
  }
  return any;
}

bool IsLower(JinjaInterpreter& in, const JinjaValue& value, const JinjaValue&) {
  return AllOfCase(in, value, kLowerCase);
}

bool IsUpper(JinjaInterpreter& in, const JinjaValue& value, const JinjaValue&) {
  return AllOfCase(in, value, kUpperCase);
}

struct NamedTest {
  absl::string_view name;
  TestFunction function;
  absl::string_view parameter = {};
};

constexpr NamedTest kTests[] = {
    {"boolean", IsBoolean},
    {"callable", IsCallable},
    {"defined", IsDefined},
    {"divisibleby", IsDivisible, "num"},
    {"eq", Compares<Operator::kEqual>, "/other"},
    {"equalto", Compares<Operator::kEqual>, "/other"},
    {"==", Compares<Operator::kEqual>, "/other"},
    {"escaped", IsEscaped},
    {"even", IsEven},
    {"false", IsFalse},
    {"filter", NamesFilter},
    {"float", IsFloat},
    {"ge", Compares<Operator::kGreaterEqual>, "/other"},
    {">=", Compares<Operator::kGreaterEqual>, "/other"},
    {"greaterthan", Compares<Operator::kGreater>, "/other"},
    {"gt", Compares<Operator::kGreater>, "/other"},
    {">", Compares<Operator::kGreater>, "/other"},
    {"in", Compares<Operator::kIn>, "seq"},
    {"integer", IsInteger},
    {"iterable", IsIterable},
    {"le", Compares<Operator::kLessEqual>, "/other"},
    {"<=", Compares<Operator::kLessEqual>, "/other"},
    {"lessthan", Compares<Operator::kLess>, "/other"},
    {"lower", IsLower},
    {"lt", Compares<Operator::kLess>, "/other"},
    {"<", Compares<Operator::kLess>, "/other"},
    {"mapping", IsMapping},
    {"ne", Compares<Operator::kNotEqual>, "/other"},
    {"!=", Compares<Operator::kNotEqual>, "/other"},
    {"none", IsNone},
    {"number", IsNumber},
    {"odd", IsOdd},
    {"sameas", IsSame, "other"},
    {"sequence", IsSequence},
    {"string", IsString},
    {"test", NamesTest},
    {"true", IsTrueTest},
    {"undefined", IsUndefined},
    {"upper", IsUpper},
};

}  // namespace

int FindTest(absl::string_view name) {
  const auto at = std::find_if(std::begin(kTests), std::end(kTests),
                               [name](const NamedTest& test) { return test.name == name; });
  return at == std::end(kTests) ? -1 : static_cast<int>(at - std::begin(kTests));
}

bool CallTest(JinjaInterpreter& in, int index, const JinjaValue& value,
              const Arguments& arguments) {
  const NamedTest& test = kTests[index];
  if (!in.Charge(1)) return false;
  if (test.parameter.empty()) {
    const BoundArguments none(&in, test.name, arguments, 0, {});
    return !in.failed() && test.function(in, value, JinjaValue());
  }
  const BoundArguments bound(&in, test.name, arguments, 1, {test.parameter});
  return !in.failed() && test.function(in, value, bound[0]) && !in.failed();
}

}  // namespace stampmill
