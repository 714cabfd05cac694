// Jinja's grammar: from a template's text to its JinjaProgram.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/jinja_ast.h"

namespace stampmill {

// Most levels of a template within each other, and the most of operators applied in a row: what
// the interpreter's stack has room for.
inline constexpr int kJinjaHeightMax = 160;

// Longest template: twenty times the longest that models come with.
inline constexpr size_t kJinjaSourceBytesMax = size_t{1} << 20;

// INVALID_ARGUMENT with the line of what is wrong; UNIMPLEMENTED with the name of a tag that is
// not supported. Filters and tests that do not exist are refused except under a condition, where
// they fail when reached.
absl::StatusOr<std::unique_ptr<const JinjaProgram>> ParseJinja(absl::string_view source);

}  // namespace stampmill
