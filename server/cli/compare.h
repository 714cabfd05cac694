// Compares results with those of the reference, output by output.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace stampmill {

struct OutputComparison {
  std::string name;
  bool agrees = false;
  std::string problem;     // another dtype or shape; a reference of NaN alone
  double error_max = 0;    // largest absolute difference; infinite where only one is NaN
  double magnitude = 0;    // largest finite magnitude in the reference
  double tolerance = 0;    // 1e-5 + relative * magnitude or what AllowForRounding says; 0: integers
  double sensitivity = 0;  // how far rounding errors move the reference; 0: not looked at
  int64_t differing = 0;   // elements beyond the tolerance
};

// One rule for every output: floats within the tolerance, with NaN equal to NaN and infinities
// equal to themselves; integers and bool equal. A reference of NaN alone agrees with nothing: it
// would hide whatever came before it. `relative` is kF32Tolerance, or kBf16Tolerance where products
// were rounded to bf16 by choice: eight bits an operand, over all layers of a model.
inline constexpr double kF32Tolerance = 1e-4;
inline constexpr double kBf16Tolerance = 3e-2;
OutputComparison CompareOutput(const std::string& name, const Tensor& actual,
                               const Tensor& expected, double relative = kF32Tolerance);

// Compares once more an output of floats that does not agree, where rounding errors of each
// operation move the reference itself (`noisy`: its results under such errors) by more than the
// tolerance: four times as much is then allowed, but never more than 1/32 of the magnitude.
void AllowForRounding(const Tensor& actual, const Tensor& expected, std::span<const Tensor> noisy,
                      OutputComparison& comparison);

}  // namespace stampmill
