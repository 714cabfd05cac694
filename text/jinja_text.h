// What methods of str and the filters of the same names do, on plain texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stampmill {

enum class Side : uint8_t { kBoth, kLeft, kRight };

// str.strip, lstrip, rstrip: of white space, or of any of `characters`.
absl::string_view Strip(absl::string_view text, Side side,
                        std::optional<absl::string_view> characters);

// str.split and rsplit with no separator (runs of white space) or one that is not empty; at most
// `splits_max` splits, any number if it is negative.
std::vector<absl::string_view> Split(absl::string_view text,
                                     std::optional<absl::string_view> separator,
                                     int64_t splits_max);
std::vector<absl::string_view> SplitFromRight(absl::string_view text,
                                              std::optional<absl::string_view> separator,
                                              int64_t splits_max);

std::vector<absl::string_view> SplitLines(absl::string_view text, bool keep_ends);

// How often `part` occurs without overlap; once between any two characters when it is empty.
int64_t CountOccurrences(absl::string_view text, absl::string_view part);

// At most `times` occurrences of `from` replaced, all if it is negative. REQUIRES: there is room
// for the result, see ReplacedSize.
std::string Replaced(absl::string_view text, absl::string_view from, absl::string_view to,
                     int64_t times);

// The number of bytes that `width` characters centred (to one side) of `text` add to it.
int64_t PaddingLength(absl::string_view text, int64_t width);

// &, <, >, ' and " as entities.
std::string Escaped(absl::string_view text);

// The number that int(text, base) reads; nothing where it is a ValueError. `*overflows` is set for
// one beyond 64 bits.
std::optional<int64_t> ParseInt(absl::string_view text, int64_t base, bool* overflows);

// The number that float(text) reads.
std::optional<double> ParseFloat(absl::string_view text);

std::string ReversedCharacters(absl::string_view text);

}  // namespace stampmill
