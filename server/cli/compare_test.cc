#include "server/cli/compare.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "graph/dtype.h"
#include "gtest/gtest.h"
#include "server/cli/model_inputs.h"

namespace stampmill {
namespace {

Tensor Floats(const std::vector<double>& values) {
  Tensor tensor = *Tensor::Allocate(DType::kF32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) {
    tensor.SetFromDouble(static_cast<int64_t>(i), values[i]);
  }
  return tensor;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(CompareTest, ToleranceFollowsTheLargestMagnitude) {
  const OutputComparison near = CompareOutput("y", Floats({100.005, 0.009}), Floats({100, 0}));
  EXPECT_TRUE(near.agrees);
  EXPECT_NEAR(near.tolerance, 0.01001, 1e-6);
  EXPECT_NEAR(near.error_max, 0.009, 1e-4);
  const OutputComparison far = CompareOutput("y", Floats({100.02, 0}), Floats({100, 0}));
  EXPECT_FALSE(far.agrees);
  EXPECT_EQ(far.differing, 1);
}

TEST(CompareTest, NanAndInfinityEqualThemselvesOnly) {
  EXPECT_TRUE(CompareOutput("y", Floats({kNan, kInfinity}), Floats({kNan, kInfinity})).agrees);
  EXPECT_FALSE(CompareOutput("y", Floats({kNan}), Floats({1})).agrees);
  EXPECT_FALSE(CompareOutput("y", Floats({1e30}), Floats({kInfinity})).agrees);
  EXPECT_FALSE(CompareOutput("y", Floats({-kInfinity}), Floats({kInfinity})).agrees);
}

TEST(CompareTest, AnIllConditionedOutputMayDifferByWhatRoundingDoesToTheReference) {
  const Tensor expected = Floats({1, 0.5}), actual = Floats({1.001, 0.5});
  const auto agrees = [&](const Tensor& got, const std::vector<Tensor>& noisy) {
    OutputComparison comparison = CompareOutput("y", got, expected);
    EXPECT_FALSE(comparison.agrees);
    AllowForRounding(got, expected, noisy, comparison);
    EXPECT_LE(comparison.tolerance, 1.0 / 32);
    return comparison.agrees;
  };
  EXPECT_TRUE(agrees(actual, {Floats({1, 0.4995})}));
  EXPECT_TRUE(agrees(actual, {Floats({1, 0.5}), Floats({0.9995, 0.5})}));
  EXPECT_FALSE(agrees(actual, {Floats({1, 0.4999})}));
  EXPECT_FALSE(agrees(actual, {}));
  EXPECT_FALSE(agrees(actual, {Floats({1})}));
  // However much the reference moves, it does not excuse everything.
  EXPECT_FALSE(agrees(Floats({1.1, 0.5}), {Floats({kNan, -70})}));
  EXPECT_FALSE(agrees(Floats({kNan, 0.5}), {Floats({kNan, 0.5})}));
}

TEST(CompareTest, IntegersMustBeEqual) {
  const Tensor a = Tensor::FromInt64({2}, std::vector<int64_t>{1, 1'000'000'000'000});
  const Tensor b = Tensor::FromInt64({2}, std::vector<int64_t>{1, 1'000'000'000'001});
  EXPECT_TRUE(CompareOutput("y", a, a).agrees);
  EXPECT_FALSE(CompareOutput("y", a, b).agrees);
}

TEST(CompareTest, OutputsWithoutANumberSayNothing) {
  const OutputComparison result = CompareOutput("y", Floats({kNan, kNan}), Floats({kNan, kNan}));
  EXPECT_FALSE(result.agrees);
  EXPECT_THAT(result.problem, ::testing::HasSubstr("NaN"));
  EXPECT_TRUE(CompareOutput("y", Floats({kNan, 1}), Floats({kNan, 1})).agrees);
  EXPECT_TRUE(CompareOutput("y", Floats({}), Floats({})).agrees);
}

TEST(CompareTest, AnotherTypeOrShapeIsNamed) {
  const OutputComparison result = CompareOutput("y", Floats({1}), Floats({1, 2}));
  EXPECT_FALSE(result.agrees);
  EXPECT_THAT(result.problem, ::testing::HasSubstr("got f32 1, want f32 2"));
}

TEST(ModelInputsTest, RandomValuesFollowFromTheSeed) {
  const Tensor a = *RandomTensor(DType::kF32, {100}, 7, 1);
  const Tensor b = *RandomTensor(DType::kF32, {100}, 7, 1);
  const Tensor c = *RandomTensor(DType::kF32, {100}, 8, 1);
  EXPECT_TRUE(CompareOutput("x", a, b).agrees);
  EXPECT_FALSE(CompareOutput("x", a, c).agrees);
  const Tensor ids = *RandomTensor(DType::kI64, {100}, 7, 9);
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_GE(ids.ValueAsInt64(i), 0);
    EXPECT_LE(ids.ValueAsInt64(i), 9);
  }
}

TEST(ModelInputsTest, ShapesAreRead) {
  EXPECT_EQ(*ParseShape("1x3x224"), (std::vector<int64_t>{1, 3, 224}));
  EXPECT_EQ(*ParseShape("1,3"), (std::vector<int64_t>{1, 3}));
  EXPECT_TRUE(ParseShape("")->empty());
  for (const char* text : {"x", "1x", "-1x2", "1x2.5", "99999999999999999999"}) {
    EXPECT_FALSE(ParseShape(text).ok()) << text;
  }
}

}  // namespace
}  // namespace stampmill
