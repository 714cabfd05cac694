// The filters by name: one function each, in two files by what they work on.
#pragma once

#include <span>

#include "absl/strings/string_view.h"
#include "text/jinja_builtins.h"
#include "text/jinja_value.h"

namespace stampmill {

using FilterFunction = JinjaValue (*)(JinjaInterpreter& in, const JinjaValue& value,
                                      const Arguments& arguments);

struct NamedFilter {
  absl::string_view name;
  FilterFunction function;
  // Whether text that `escape` made goes in like any other.
  bool takes_markup = false;
};

// Of texts, numbers and single values.
std::span<const NamedFilter> ValueFilters();

// Of lists and dicts.
std::span<const NamedFilter> SequenceFilters();

}  // namespace stampmill
