// Running totals and the first elements in order, which are skeletons.
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

OpCase Scan(const std::string& op, Tensor x, int64_t axis, int64_t exclusive, int64_t reverse) {
  return {.op_type = op,
          .inputs = {std::move(x), Ints({axis})},
          .attributes = {{"exclusive", exclusive}, {"reverse", reverse}},
          .constants = {1},
          .fixed_dims = false,  // one kernel for all of these shapes
          .own_symbols = true};
}

TEST(RunningTotals, AgreeWithReferenceForAllDirectionsAndAxes) {
  for (const std::string op : {"CumSum", "CumProd"}) {
    for (const int64_t axis : {0, 1, -1}) {
      for (const int64_t mode : {0, 1, 2, 3}) {
        ExpectLoweringMatchesReference(
            Scan(op, Random(DType::kF32, {3, 5, 130}, 1, 1.5), axis, mode % 2, mode / 2));
      }
    }
  }
}

TEST(RunningTotals, AgreeWithReferenceInEveryType) {
  for (const DType dtype : kAllTypes) {
    if (dtype == DType::kBool) continue;
    OpCase test = Scan("CumSum", Random(dtype, {4, 9}, 1, 20), 1, 0, 0);
    // Sums in narrow floats are rounded at every step.
    if (IsFloat(dtype)) test.tolerance = {.relative = 0.02, .absolute = 0.1};
    ExpectLoweringMatchesReference(test);
  }
}

TEST(RunningTotals, AgreeWithReferenceForFixedShapes) {
  OpCase test = Scan("CumSum", Random(DType::kF32, {3, 5, 70}, 1), 1, 0, 1);
  test.fixed_dims = true;
  ExpectLoweringMatchesReference(test);
}

TEST(RunningTotals, OfNothingAreNothing) {
  ExpectLoweringMatchesReference(Scan("CumSum", Random(DType::kF32, {0, 5}, 1), 0, 0, 0));
  ExpectLoweringMatchesReference(Scan("CumSum", Random(DType::kF32, {5, 0}, 1), 0, 0, 0));
}

OpCase TopK(Tensor x, int64_t k, int64_t axis, int64_t largest) {
  return {.op_type = "TopK",
          .inputs = {std::move(x), Ints({k})},
          .attributes = {{"axis", axis}, {"largest", largest}},
          .output_count = 2,
          .constants = {1},
          .fixed_dims = false};
}

TEST(TopK, AgreesWithReferenceForAllAxesAndCounts) {
  for (const int64_t axis : {0, 1, 2}) {
    for (const int64_t k : {0, 1, 3, 7}) {
      for (const int64_t largest : {0, 1}) {
        ExpectLoweringMatchesReference(
            TopK(Random(DType::kF32, {7, 9, 8}, 3, 2), k, axis, largest));
      }
    }
  }
}

TEST(TopK, AgreesWithReferenceInEveryType) {
  for (const DType dtype : kAllTypes) {
    if (dtype == DType::kBool) continue;
    for (const int64_t largest : {0, 1}) {
      // Few values, so that many are equal.
      ExpectLoweringMatchesReference(TopK(Random(dtype, {3, 100}, 5, 9), 60, 1, largest));
      ExpectLoweringMatchesReference(TopK(Random(dtype, {2, 100}, 5, 120), 100, 1, largest));
    }
  }
}

TEST(TopK, TakesNaNForTheGreatestAndZerosForEqual) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t largest : {0, 1}) {
    ExpectLoweringMatchesReference(
        TopK(Values(DType::kF32, {6}, {0.0, nan, -0.0, INFINITY, -INFINITY, nan}), 6, 0, largest));
  }
}

}  // namespace
}  // namespace stampmill
