#include "server/cli/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "graph/dtype.h"
#include "server/cli/model_inputs.h"

namespace stampmill {
namespace {

double Difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  return std::fabs(a - b);
}

void CountDiffering(const Tensor& actual, const Tensor& expected, OutputComparison& comparison) {
  comparison.error_max = 0;
  comparison.differing = 0;
  for (int64_t i = 0, n = expected.element_count(); i < n; ++i) {
    const double error = Difference(actual.ValueAsDouble(i), expected.ValueAsDouble(i));
    comparison.error_max = std::max(comparison.error_max, error);
    if (error > comparison.tolerance) ++comparison.differing;
  }
}

void CompareFloats(const Tensor& actual, const Tensor& expected, double relative,
                   OutputComparison& comparison) {
  for (int64_t i = 0, n = expected.element_count(); i < n; ++i) {
    const double value = std::fabs(expected.ValueAsDouble(i));
    if (std::isfinite(value)) comparison.magnitude = std::max(comparison.magnitude, value);
  }
  comparison.tolerance = 1e-5 + relative * comparison.magnitude;
  CountDiffering(actual, expected, comparison);
}

void CompareIntegers(const Tensor& actual, const Tensor& expected, OutputComparison& comparison) {
  for (int64_t i = 0, n = expected.element_count(); i < n; ++i) {
    const int64_t a = actual.ValueAsInt64(i), b = expected.ValueAsInt64(i);
    const double value = std::fabs(static_cast<double>(b));
    comparison.magnitude = std::max(comparison.magnitude, value);
    if (a == b) continue;
    ++comparison.differing;
    const double error = std::fabs(static_cast<double>(a) - static_cast<double>(b));
    comparison.error_max = std::max(comparison.error_max, error);
  }
}

bool IsAllNan(const Tensor& tensor) {
  if (!IsFloat(tensor.dtype()) || tensor.element_count() == 0) return false;
  for (int64_t i = 0, n = tensor.element_count(); i < n; ++i) {
    if (!std::isnan(tensor.ValueAsDouble(i))) return false;
  }
  return true;
}

}  // namespace

OutputComparison CompareOutput(const std::string& name, const Tensor& actual,
                               const Tensor& expected, double relative) {
  OutputComparison comparison{.name = name};
  if (actual.dtype() != expected.dtype() || actual.shape() != expected.shape()) {
    comparison.problem =
        absl::StrCat("got ", Name(actual.dtype()), " ", ShapeText(actual.shape()), ", want ",
                     Name(expected.dtype()), " ", ShapeText(expected.shape()));
    return comparison;
  }
  if (IsAllNan(expected)) {
    comparison.problem = "every element of the reference is NaN: nothing to compare with";
    return comparison;
  }
  if (IsFloat(expected.dtype())) {
    CompareFloats(actual, expected, relative, comparison);
  } else {
    CompareIntegers(actual, expected, comparison);
  }
  comparison.agrees = comparison.differing == 0;
  return comparison;
}

void AllowForRounding(const Tensor& actual, const Tensor& expected, std::span<const Tensor> noisy,
                      OutputComparison& comparison) {
  if (comparison.agrees || !comparison.problem.empty() || !IsFloat(expected.dtype())) return;
  for (const Tensor& tensor : noisy) {
    if (tensor.shape() != expected.shape()) continue;
    for (int64_t i = 0, n = expected.element_count(); i < n; ++i) {
      const double moved = Difference(tensor.ValueAsDouble(i), expected.ValueAsDouble(i));
      comparison.sensitivity = std::max(comparison.sensitivity, moved);
    }
  }
  const double allowed = std::min(4 * comparison.sensitivity, comparison.magnitude / 32);
  comparison.tolerance = std::max(comparison.tolerance, allowed);
  CountDiffering(actual, expected, comparison);
  comparison.agrees = comparison.differing == 0;
}

}  // namespace stampmill
