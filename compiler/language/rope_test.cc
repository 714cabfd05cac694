#include "compiler/language/rope.h"

#include <cmath>
#include <numbers>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(Rope, FrequenciesFallFromOneToTheBase) {
  const auto plain = FrequenciesOf(4, 10000, {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_EQ(plain->radians.size(), 2u);
  EXPECT_DOUBLE_EQ(plain->radians[0], 1);
  EXPECT_DOUBLE_EQ(plain->radians[1], 0.01);
  EXPECT_EQ(plain->magnitude, 1);
}

TEST(Rope, LinearScalingAndDivisors) {
  const auto linear = FrequenciesOf(4, 10000, {.kind = RopeScaling::Kind::kLinear, .factor = 4});
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_DOUBLE_EQ(linear->radians[0], 0.25);
  EXPECT_DOUBLE_EQ(linear->radians[1], 0.0025);
  const auto divided = FrequenciesOf(4, 10000, {.divisors = {1, 8}});
  ASSERT_TRUE(divided.ok()) << divided.status();
  EXPECT_DOUBLE_EQ(divided->radians[0], 1);
  EXPECT_DOUBLE_EQ(divided->radians[1], 0.00125);
}

TEST(Rope, YarnKeepsFastPairsAndStretchesSlowOnes) {
  const RopeScaling scaling = {
      .kind = RopeScaling::Kind::kYarn, .factor = 4, .original_context = 2048};
  const auto yarn = FrequenciesOf(64, 10000, scaling);
  const auto plain = FrequenciesOf(64, 10000, {});
  ASSERT_TRUE(yarn.ok()) << yarn.status();
  // A pair turns b times within 2048 positions where 64 ln(2048 / (2 pi b)) / (2 ln 10000) is its
  // number: 8.08 for b = 32, 20.1 for b = 1. Up to 8 nothing changes, from 21 on all does.
  for (size_t pair = 0; pair < 32; ++pair) {
    const double ratio = yarn->radians[pair] / plain->radians[pair];
    const double ramp = std::min(1.0, std::max(0.0, (static_cast<double>(pair) - 8) / 13));
    EXPECT_NEAR(ratio, ramp / 4 + 1 - ramp, 1e-12) << pair;
  }
  EXPECT_NEAR(yarn->magnitude, 1 + 0.1 * std::log(4), 1e-12);
}

TEST(Rope, WhatCannotBeIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(FrequenciesOf(3, 10000, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(FrequenciesOf(0, 10000, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(FrequenciesOf(4, 1, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(FrequenciesOf(4, NAN, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(FrequenciesOf(4, 10000, {.factor = 0}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(FrequenciesOf(4, 10000, {.divisors = {1}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(FrequenciesOf(4, 10000, {.divisors = {1, 0}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      FrequenciesOf(4, 10000, {.kind = RopeScaling::Kind::kYarn}).status()));
}

}  // namespace
}  // namespace stampmill
