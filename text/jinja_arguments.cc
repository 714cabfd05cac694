#include "text/jinja_arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "text/jinja_interpreter.h"

namespace stampmill {

BoundArguments::BoundArguments(JinjaInterpreter* in, absl::string_view what,
                               const Arguments& arguments, size_t required,
                               std::initializer_list<absl::string_view> names)
    : in_(*in), what_(what) {
  std::copy(names.begin(), names.end(), names_.begin());
  if (arguments.positional.size() > names.size()) {
    in_.Fail(absl::StrCat(what, " takes at most ", names.size(), " arguments, got ",
                          arguments.positional.size()));
    return;
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = arguments.positional[i];
    given_[i] = true;
  }
  for (const KeywordArgument& keyword : arguments.keyword) {
    const auto place = std::find(names.begin(), names.end(), keyword.name);
    const auto i = static_cast<size_t>(place - names.begin());
    if (place == names.end() || given_[i]) {
      in_.Fail(absl::StrCat(what, place == names.end() ? " takes no argument '" : " got twice '",
                            keyword.name, "'"));
      return;
    }
    values_[i] = keyword.value;
    given_[i] = true;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!given_[i]) {
      in_.Fail(absl::StrCat(what, " needs argument '", absl::StripPrefix(names_[i], "/"), "'"));
      return;
    }
  }
}

bool BoundArguments::Bool(size_t i, bool otherwise) const {
  return given_[i] ? IsTrue(values_[i]) : otherwise;
}

int64_t BoundArguments::Int(size_t i, int64_t otherwise) const {
  if (!given_[i]) return otherwise;
  if (values_[i].is_integral()) return values_[i].integral();
  in_.Fail(absl::StrCat(what_, ": argument '", absl::StripPrefix(names_[i], "/"),
                        "' must be an integer, got a ", TypeName(values_[i])));
  return otherwise;
}

absl::string_view BoundArguments::Text(size_t i, absl::string_view otherwise) const {
  if (!given_[i]) return otherwise;
  if (values_[i].is_string()) return values_[i].str();
  in_.Fail(absl::StrCat(what_, ": argument '", absl::StripPrefix(names_[i], "/"),
                        "' must be a string, got a ", TypeName(values_[i])));
  return otherwise;
}

}  // namespace stampmill
