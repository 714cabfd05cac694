// What templates can call: filters, tests, functions, and methods of values.
//
// A filter is `value | name(arguments)`, a test `value is name(arguments)`; both are found by name
// when a template is parsed and called by index.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "absl/strings/string_view.h"
#include "text/jinja_value.h"

namespace stampmill {

class JinjaInterpreter;

struct KeywordArgument {
  absl::string_view name;
  JinjaValue value;
};

struct Arguments {
  std::span<const JinjaValue> positional;
  std::span<const KeywordArgument> keyword;
};

// Functions that every template sees, unless its context has a variable of the name.
enum class Builtin : uint8_t {
  kRange,
  kDict,
  kNamespace,
  kCycler,
  kJoiner,
  kRaiseException,
  kStrftimeNow,
};

// The function of this name; nothing for what is not there.
bool FindBuiltin(absl::string_view name, Builtin* builtin);

// Index of a filter or test; -1 if there is none.
int FindFilter(absl::string_view name);
int FindTest(absl::string_view name);

// All of these leave an error in the interpreter on failure, and then return any value.

// REQUIRES: `index` is from FindFilter or FindTest.
JinjaValue CallFilter(JinjaInterpreter& in, int index, const JinjaValue& value,
                      const Arguments& arguments);
bool CallTest(JinjaInterpreter& in, int index, const JinjaValue& value, const Arguments& arguments);

JinjaValue CallBuiltin(JinjaInterpreter& in, Builtin builtin, const Arguments& arguments);

// Whether values of this kind have a method of this name in Python; with `*changes` true if it
// changes the value, which templates may not.
bool HasMethod(const JinjaValue& self, absl::string_view name, bool* changes);

// REQUIRES: HasMethod.
JinjaValue CallMethod(JinjaInterpreter& in, const JinjaValue& self, absl::string_view name,
                      const Arguments& arguments);

// left % right for a string: what is printed of `right` in the places of `format`.
JinjaValue FormatPercent(JinjaInterpreter& in, absl::string_view format, const JinjaValue& right);

// str.format.
JinjaValue FormatBraces(JinjaInterpreter& in, absl::string_view format, const Arguments& arguments);

}  // namespace stampmill
