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
  std::string problem;    // another dtype or shape
  double error_max = 0;   // largest absolute difference; infinite where only one is NaN
  double magnitude = 0;   // largest finite magnitude in the reference
  double tolerance = 0;   // 1e-5 + 1e-4 * magnitude; 0 for integers and bool
  int64_t differing = 0;  // elements beyond the tolerance
};

// One rule for every output: floats within the tolerance, with NaN equal to NaN and infinities
// equal to themselves; integers and bool equal.
OutputComparison CompareOutput(const std::string& name, const Tensor& actual,
                               const Tensor& expected);

}  // namespace stampmill
