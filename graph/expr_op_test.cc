#include "graph/expr_op.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

template <typename T>
T Apply(ExprOp op, DType dtype, T a, T b = T()) {
  uint64_t x = 0, y = 0;
  memcpy(&x, &a, sizeof(T));
  memcpy(&y, &b, sizeof(T));
  const ScalarFunction function = FindScalarFunction(op, dtype, dtype);
  EXPECT_NE(function, nullptr) << Name(op) << " " << Name(dtype);
  const uint64_t bits = function(x, y);
  T result;
  memcpy(&result, &bits, sizeof(T));
  EXPECT_TRUE(sizeof(T) == 8 || bits >> (sizeof(T) * 8) == 0) << "bits past the width";
  return result;
}

int32_t Int(ExprOp op, int32_t a, int32_t b = 0) { return Apply(op, DType::kI32, a, b); }
float Float(ExprOp op, float a, float b = 0) { return Apply(op, DType::kF32, a, b); }

constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ExprOpTest, IntegerDivisionNeverTraps) {
  EXPECT_EQ(Int(ExprOp::kDiv, -7, 2), -3);
  EXPECT_EQ(Int(ExprOp::kFloorDiv, -7, 2), -4);
  EXPECT_EQ(Int(ExprOp::kRemainder, -7, 2), -1);
  EXPECT_EQ(Int(ExprOp::kFloorMod, -7, 2), 1);
  EXPECT_EQ(Int(ExprOp::kFloorMod, 7, -2), -1);
  for (const ExprOp op : {ExprOp::kDiv, ExprOp::kFloorDiv, ExprOp::kRemainder, ExprOp::kFloorMod}) {
    EXPECT_EQ(Int(op, 5, 0), 0);
  }
  EXPECT_EQ(Int(ExprOp::kDiv, kMin, -1), kMin);
  EXPECT_EQ(Int(ExprOp::kFloorDiv, kMin, -1), kMin);
  EXPECT_EQ(Int(ExprOp::kRemainder, kMin, -1), 0);
  EXPECT_EQ(Apply<uint8_t>(ExprOp::kFloorDiv, DType::kU8, 255, 2), 127);
  EXPECT_EQ(Apply<int8_t>(ExprOp::kDiv, DType::kI8, -128, -1), -128);
}

TEST(ExprOpTest, IntegersWrap) {
  EXPECT_EQ(Int(ExprOp::kAdd, std::numeric_limits<int32_t>::max(), 1), kMin);
  EXPECT_EQ(Int(ExprOp::kNeg, kMin), kMin);
  EXPECT_EQ(Int(ExprOp::kAbs, kMin), kMin);
  EXPECT_EQ(Apply<uint16_t>(ExprOp::kMul, DType::kU16, 65535, 65535), 1);
  EXPECT_EQ(Apply<uint8_t>(ExprOp::kNot, DType::kU8, 0x0f), 0xf0);
  EXPECT_EQ(Int(ExprOp::kPow, 3, 4), 81);
  EXPECT_EQ(Int(ExprOp::kPow, -2, 3), -8);
  EXPECT_EQ(Int(ExprOp::kPow, -1, -3), -1);
  EXPECT_EQ(Int(ExprOp::kPow, 5, -1), 0);
}

TEST(ExprOpTest, ShiftsPastTheWidthAreDefined) {
  EXPECT_EQ(Int(ExprOp::kShiftLeft, 1, 31), kMin);
  EXPECT_EQ(Int(ExprOp::kShiftLeft, 1, 32), 0);
  EXPECT_EQ(Int(ExprOp::kShiftRight, -8, 1), -4);
  EXPECT_EQ(Int(ExprOp::kShiftRight, -8, 40), -1);
  EXPECT_EQ(Int(ExprOp::kShiftLeft, 1, -1), 0);
  EXPECT_EQ(Apply<uint32_t>(ExprOp::kShiftRight, DType::kU32, 0x80000000u, 31), 1u);
  EXPECT_EQ(Apply<uint32_t>(ExprOp::kShiftRight, DType::kU32, 0x80000000u, 32), 0u);
}

TEST(ExprOpTest, FloatsFollowIeee) {
  EXPECT_TRUE(std::isnan(Float(ExprOp::kMin, kNan, 1)));
  EXPECT_TRUE(std::isnan(Float(ExprOp::kMax, 1, kNan)));
  EXPECT_EQ(Float(ExprOp::kDiv, 1, 0), kInf);
  EXPECT_EQ(Float(ExprOp::kRound, 2.5f), 2.0f);
  EXPECT_EQ(Float(ExprOp::kRound, -3.5f), -4.0f);
  EXPECT_EQ(Float(ExprOp::kRemainder, -7, 2), -1);
  EXPECT_EQ(Float(ExprOp::kFloorMod, -7, 2), 1);
  EXPECT_EQ(Float(ExprOp::kFloorMod, 7, -2), -1);
  EXPECT_EQ(Float(ExprOp::kErf, 0), 0);
  EXPECT_EQ(Float(ExprOp::kExp, 1), static_cast<float>(std::exp(1.0)));
  const ScalarFunction less = FindScalarFunction(ExprOp::kLt, DType::kF32, DType::kBool);
  EXPECT_EQ(less(std::bit_cast<uint32_t>(kNan), std::bit_cast<uint32_t>(1.0f)), 0u);
  const ScalarFunction unequal = FindScalarFunction(ExprOp::kNe, DType::kF32, DType::kBool);
  EXPECT_EQ(unequal(std::bit_cast<uint32_t>(kNan), std::bit_cast<uint32_t>(kNan)), 1u);
}

TEST(ExprOpTest, HalfRoundsAfterEachOperation) {
  const uint16_t one = FloatToHalf(1.0f);
  const uint16_t small = FloatToHalf(0x1p-11f);
  EXPECT_EQ(Apply<uint16_t>(ExprOp::kAdd, DType::kF16, one, small), one);
  EXPECT_EQ(
      Apply<uint16_t>(ExprOp::kMul, DType::kBF16, FloatToBFloat16(3.0f), FloatToBFloat16(0.5f)),
      FloatToBFloat16(1.5f));
}

uint64_t Cast(DType from, DType to, uint64_t bits) {
  return FindScalarFunction(ExprOp::kCast, from, to)(bits, 0);
}

TEST(ExprOpTest, CastsSaturateFromFloatsAndWrapFromIntegers) {
  const auto from_float = [](DType to, float value) {
    return Cast(DType::kF32, to, std::bit_cast<uint32_t>(value));
  };
  EXPECT_EQ(from_float(DType::kU8, 300.0f), 255u);
  EXPECT_EQ(from_float(DType::kU8, -0.5f), 0u);
  EXPECT_EQ(from_float(DType::kI8, -1000.0f), 0x80u);
  EXPECT_EQ(from_float(DType::kI8, -1.9f), 0xffu);
  EXPECT_EQ(from_float(DType::kI32, kNan), 0u);
  EXPECT_EQ(from_float(DType::kI32, 3e9f), 0x7fffffffu);
  EXPECT_EQ(from_float(DType::kI64, 1e30f), 0x7fffffffffffffffu);
  EXPECT_EQ(from_float(DType::kU64, kInf), ~uint64_t{0});
  EXPECT_EQ(from_float(DType::kBool, kNan), 1u);
  EXPECT_EQ(from_float(DType::kBool, -0.0f), 0u);
  EXPECT_EQ(Cast(DType::kI32, DType::kU8, 257), 1u);
  EXPECT_EQ(Cast(DType::kI8, DType::kI64, 0xff), ~uint64_t{0});
  EXPECT_EQ(Cast(DType::kU64, DType::kF32, ~uint64_t{0}), std::bit_cast<uint32_t>(0x1p64f));
  EXPECT_EQ(Cast(DType::kBool, DType::kF32, 1), std::bit_cast<uint32_t>(1.0f));
}

TEST(ExprOpTest, EveryCastExistsAndUndefinedTypesDoNot) {
  for (int from = 0; from < kDTypeCount; ++from) {
    for (int to = 0; to < kDTypeCount; ++to) {
      EXPECT_EQ(FindScalarFunction(ExprOp::kCast, static_cast<DType>(from),
                                   static_cast<DType>(to)) != nullptr,
                from != 0 && to != 0);
    }
  }
  EXPECT_EQ(FindScalarFunction(ExprOp::kAdd, DType::kBool, DType::kBool), nullptr);
  EXPECT_EQ(FindScalarFunction(ExprOp::kBitAnd, DType::kF32, DType::kF32), nullptr);
  EXPECT_EQ(FindScalarFunction(ExprOp::kExp, DType::kI32, DType::kI32), nullptr);
  EXPECT_EQ(FindScalarFunction(ExprOp::kEq, DType::kI32, DType::kI32), nullptr);
  EXPECT_EQ(FindScalarFunction(ExprOp::kBitCast, DType::kI8, DType::kBool), nullptr);
  EXPECT_EQ(FindScalarFunction(ExprOp::kBitCast, DType::kF32, DType::kI64), nullptr);
  EXPECT_NE(FindScalarFunction(ExprOp::kBitCast, DType::kF32, DType::kU32), nullptr);
  EXPECT_EQ(FindScalarFunction(static_cast<ExprOp>(250), DType::kI32, DType::kI32), nullptr);
  EXPECT_FALSE(IsExprOp(7));
  EXPECT_TRUE(IsExprOp(96));
}

}  // namespace
}  // namespace stampmill
