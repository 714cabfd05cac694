// Jinja's tokens, with the white space around tags already taken away.
//
// As an environment with trim_blocks and lstrip_blocks reads a template: the newline after a block
// or comment goes, so does white space between the start of a line and one; `-` takes all white
// space on its side and `+` keeps it. Newlines are \n afterwards, and one at the end is dropped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

enum class JinjaTokenKind : uint8_t {
  kText,
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct JinjaToken {
  JinjaTokenKind kind = JinjaTokenKind::kEnd;
  int line = 0;
  // Text as printed, a name, an operator's characters, a string's value.
  std::string text;
  int64_t integer = 0;
  double real = 0;
};

// INVALID_ARGUMENT with the line of what is wrong. The last token is kEnd.
absl::StatusOr<std::vector<JinjaToken>> JinjaTokens(absl::string_view source);

}  // namespace stampmill
