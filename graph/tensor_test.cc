#include "graph/tensor.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(TensorTest, AllocationIsZeroedAlignedAndSized) {
  const Tensor tensor = *Tensor::Allocate(DType::kF32, {2, 3});
  EXPECT_EQ(tensor.element_count(), 6);
  EXPECT_EQ(tensor.bytes().size(), 24u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes().data()) % 64, 0u);
  for (const float value : tensor.values<float>()) EXPECT_EQ(value, 0.0f);
}

TEST(TensorTest, RefusesNegativeAndOverflowingShapes) {
  EXPECT_EQ(Tensor::Allocate(DType::kF32, {2, -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::Allocate(DType::kI8, {int64_t{1} << 40, int64_t{1} << 40}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::Allocate(DType::kF64, {int64_t{1} << 61}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::Allocate(DType::kF64, {int64_t{1} << 50}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Tensor::Allocate(DType::kF32, {0, int64_t{1} << 40, int64_t{1} << 40}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::Allocate(DType::kInvalid, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TensorTest, EmptyTensorHasNoElements) {
  const Tensor tensor = *Tensor::Allocate(DType::kI64, {4, 0, 7});
  EXPECT_EQ(tensor.element_count(), 0);
  EXPECT_TRUE(tensor.valid());
  EXPECT_FALSE(Tensor().valid());
}

TEST(TensorTest, ViewKeepsItsOwnerAliveAndChecksItsSize) {
  auto owner = std::make_shared<std::vector<std::byte>>(7);
  (*owner)[1] = std::byte{5};
  std::weak_ptr<std::vector<std::byte>> watch = owner;
  const std::span<const std::byte> bytes = std::span(*owner).subspan(1, 6);
  EXPECT_EQ(Tensor::View(DType::kI16, {4}, bytes, owner).status().code(),
            absl::StatusCode::kInvalidArgument);
  Tensor tensor = *Tensor::View(DType::kI16, {3}, bytes, std::move(owner));
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(tensor.ValueAsInt64(0), 5);  // at an odd address
  Tensor reshaped = *tensor.Reshaped({3, 1});
  EXPECT_EQ(tensor.Reshaped({2}).status().code(), absl::StatusCode::kInvalidArgument);
  tensor = Tensor();
  EXPECT_FALSE(watch.expired());
  reshaped = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(TensorTest, ScalarsOfEveryTypeReadBack) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(Tensor::Scalar(dtype, 1).ValueAsInt64(0), 1) << Name(dtype);
    EXPECT_EQ(Tensor::Scalar(dtype, 1.0f).ValueAsDouble(0), 1.0) << Name(dtype);
    EXPECT_EQ(Tensor::Scalar(dtype, true).ValueAsDouble(0), 1.0) << Name(dtype);
  }
  const std::vector<int64_t> values = {3, -4};
  EXPECT_EQ(Tensor::FromInt64({2}, values).ValueAsInt64(1), -4);
}

TEST(TensorTest, DoublesSaturateAndIntegersWrap) {
  EXPECT_EQ(Tensor::Scalar(DType::kI8, 300.7).ValueAsInt64(0), 127);
  EXPECT_EQ(Tensor::Scalar(DType::kI8, -3.9).ValueAsInt64(0), -3);
  EXPECT_EQ(Tensor::Scalar(DType::kU8, -3.9).ValueAsInt64(0), 0);
  EXPECT_EQ(Tensor::Scalar(DType::kI32, std::nan("")).ValueAsInt64(0), 0);
  EXPECT_EQ(Tensor::Scalar(DType::kU64, 1e30).ValueAsDouble(0), 0x1p64);
  EXPECT_EQ(Tensor::Scalar(DType::kI64, -1e30).ValueAsInt64(0),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Tensor::Scalar(DType::kU8, 257).ValueAsInt64(0), 1);
  EXPECT_EQ(Tensor::Scalar(DType::kI16, 32768).ValueAsInt64(0), -32768);
  EXPECT_EQ(Tensor::Scalar(DType::kBool, 256).ValueAsInt64(0), 1);
  EXPECT_EQ(Tensor::Scalar(DType::kF32, 1e30).ValueAsInt64(0), std::numeric_limits<int64_t>::max());
}

TEST(TensorTest, DoubleToHalfRoundsOnce) {
  // Just above the middle of 1 and the next half; f32 would round it to the middle, then to even.
  const double value = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(Tensor::Scalar(DType::kF16, value).ValueAsDouble(0), 1.0 + 0x1p-10);
}

}  // namespace
}  // namespace stampmill
