#include "graph/dtype.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(DTypeTest, EveryNameFindsItsType) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(Name(dtype)), dtype);
    EXPECT_EQ(DTypeFromKServeName(KServeName(dtype)), dtype);
    EXPECT_EQ(DTypeFromOnnx(OnnxDataType(dtype)), dtype);
    EXPECT_GT(SizeBytes(dtype), 0u);
  }
}

TEST(DTypeTest, UnknownNamesAndNumbersFindNothing) {
  EXPECT_FALSE(DTypeFromName("invalid").has_value());
  EXPECT_FALSE(DTypeFromKServeName("BYTES").has_value());
  EXPECT_FALSE(DTypeFromOnnx(0).has_value());
  EXPECT_FALSE(DTypeFromOnnx(8).has_value());   // string
  EXPECT_FALSE(DTypeFromOnnx(17).has_value());  // float8
  EXPECT_EQ(SizeBytes(static_cast<DType>(200)), 0u);
}

TEST(DTypeTest, ClassesPartitionTheTypes) {
  EXPECT_TRUE(IsFloat(DType::kBF16));
  EXPECT_FALSE(IsFloat(DType::kI64));
  EXPECT_TRUE(IsInteger(DType::kU8) && IsUnsignedInteger(DType::kU8));
  EXPECT_TRUE(IsInteger(DType::kI8) && IsSignedInteger(DType::kI8));
  EXPECT_FALSE(IsInteger(DType::kBool) || IsFloat(DType::kBool));
}

TEST(DTypeTest, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      ASSERT_EQ(FloatToHalf(value), half) << bits;
    }
  }
}

TEST(DTypeTest, HalfRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = HalfToFloat(static_cast<uint16_t>(bits));
    const float high = HalfToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    const uint16_t even = static_cast<uint16_t>(bits + (bits & 1));
    ASSERT_EQ(FloatToHalf(middle), even) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, low)), bits);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, high)), bits + 1);
  }
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
}

TEST(DTypeTest, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(FloatToBFloat16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::nanf("")))));
  EXPECT_EQ(BFloat16ToFloat(0xc000), -2.0f);
}

}  // namespace
}  // namespace stampmill
