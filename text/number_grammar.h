// Numbers of JSON between bounds, as pieces of grammars: decimal digits decide, no arithmetic.
#pragma once

#include <cstdint>
#include <optional>

#include "text/grammar_builder.h"

namespace stampmill {

// Bounds are at most this, either way.
inline constexpr int64_t kNumberBoundMax = 999'999'999'999'999;

struct NumberRange {
  std::optional<int64_t> least, most;            // inclusive
  bool above_least = false, below_most = false;  // exclusive instead; for integers too
};

// Integers, of at most 16 digits where there is no bound. Nothing where the range has none.
std::optional<GrammarBuilder::Piece> AddIntegers(const NumberRange& range, GrammarBuilder& builder);
// Numbers, with fractions and without exponents. Nothing where the range has none.
std::optional<GrammarBuilder::Piece> AddNumbers(const NumberRange& range, GrammarBuilder& builder);

}  // namespace stampmill
