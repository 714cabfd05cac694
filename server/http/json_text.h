// Writing JSON text.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace stampmill {

// In quotes, escaped. Bytes that are no valid UTF-8 become U+FFFD, so that the text always parses.
void AppendJsonString(absl::string_view text, std::string& out);

// The shortest text that reads back as the same number; NaN, Infinity and -Infinity as bare words,
// as Python and Triton write them.
void AppendJsonNumber(double value, std::string& out);
void AppendJsonNumber(float value, std::string& out);

}  // namespace stampmill
