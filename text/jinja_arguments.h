// Arguments of what templates call, matched with names as Python matches them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "absl/strings/string_view.h"
#include "text/jinja_builtins.h"
#include "text/jinja_value.h"

namespace stampmill {

// One call's arguments by place. What was not given is undefined and given() is false.
class BoundArguments {
 public:
  static constexpr size_t kMax = 6;

  // `names` are the parameters, of which the first `required` must be given. Names that begin with
  // '/' take no keyword. On failure an error is left in `in`.
  BoundArguments(JinjaInterpreter* in, absl::string_view what, const Arguments& arguments,
                 size_t required, std::initializer_list<absl::string_view> names);

  const JinjaValue& operator[](size_t i) const { return values_[i]; }
  bool given(size_t i) const { return given_[i]; }

  // The argument where it is given; else `otherwise`. Errors name the argument.
  bool Bool(size_t i, bool otherwise) const;
  int64_t Int(size_t i, int64_t otherwise) const;
  // Text that is a string; valid for the rendering.
  absl::string_view Text(size_t i, absl::string_view otherwise) const;

 private:
  JinjaInterpreter& in_;
  absl::string_view what_;
  std::array<absl::string_view, kMax> names_;
  std::array<JinjaValue, kMax> values_;
  std::array<bool, kMax> given_ = {};
};

}  // namespace stampmill
