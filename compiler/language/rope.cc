#include "compiler/language/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace stampmill {
namespace {

// The pair that turns `rotations` times within the original context (a real number of a pair).
double PairOfRotations(int64_t dims, double base, double context, double rotations) {
  return static_cast<double>(dims) * std::log(context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(base));
}

}  // namespace

absl::StatusOr<RopeFrequencies> FrequenciesOf(int64_t dims, double base,
                                              const RopeScaling& scaling) {
  const bool yarn = scaling.kind == RopeScaling::Kind::kYarn;
  if (dims <= 0 || dims % 2 != 0 || !(base > 1) || !std::isfinite(base) || !(scaling.factor > 0) ||
      !std::isfinite(scaling.factor) || (yarn && !(scaling.original_context > 0))) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary positions: dims ", dims, ", base ", base, ", factor ", scaling.factor,
                     ", original context ", scaling.original_context, ": out of range"));
  }
  const int64_t pairs = dims / 2;
  if (!scaling.divisors.empty() && static_cast<int64_t>(scaling.divisors.size()) != pairs) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary positions: got ", scaling.divisors.size(), " factors, want ", pairs));
  }
  double low = 0, high = 0;
  if (yarn) {
    low = std::max(
        0.0, std::floor(PairOfRotations(dims, base, scaling.original_context, scaling.beta_fast)));
    high = std::min(
        static_cast<double>(dims - 1),
        std::ceil(PairOfRotations(dims, base, scaling.original_context, scaling.beta_slow)));
  }
  RopeFrequencies frequencies;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const auto i = static_cast<double>(pair);
    double radians = std::pow(base, -2 * i / static_cast<double>(dims));
    if (!scaling.divisors.empty()) {
      const double divisor = scaling.divisors[static_cast<size_t>(pair)];
      if (!(divisor > 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("rotary positions: factor ", pair, ": got ", divisor));
      }
      radians /= divisor;
    }
    const double scaled = radians / scaling.factor;
    if (scaling.kind == RopeScaling::Kind::kLinear) radians = scaled;
    if (yarn) {
      // Pairs that turn often keep their frequency, those that turn slowly are scaled.
      const double ramp = std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
      radians = scaled * ramp + radians * (1 - ramp);
    }
    frequencies.radians.push_back(radians);
  }
  frequencies.magnitude = scaling.attention_factor;
  if (yarn && scaling.factor > 1) frequencies.magnitude *= 1 + 0.1 * std::log(scaling.factor);
  return frequencies;
}

}  // namespace stampmill
