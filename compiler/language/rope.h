// Rotary positions (Su et al., "RoFormer", 2021) and what models do to reach beyond the lengths
// they were trained on: linear scaling, YaRN (Peng et al., 2023), Llama 3's factors and Phi 3's
// long and short ones, all of which come down to a frequency for each pair and one factor.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

struct RopeScaling {
  enum class Kind : uint8_t { kNone, kLinear, kYarn };
  Kind kind = Kind::kNone;
  double factor = 1;            // context after over context before
  double original_context = 0;  // kYarn
  double beta_fast = 32, beta_slow = 1;
  double attention_factor = 1;   // kYarn: on top of its own
  std::vector<double> divisors;  // of each pair's frequency; empty: none
};

struct RopeFrequencies {
  std::vector<double> radians;  // by pair: what one position turns it
  double magnitude = 1;         // of cosines and sines
};

// For `dims` (even, > 0) elements of a head. INVALID_ARGUMENT for as many divisors as do not fit,
// or numbers out of range.
absl::StatusOr<RopeFrequencies> FrequenciesOf(int64_t dims, double base,
                                              const RopeScaling& scaling);

}  // namespace stampmill
