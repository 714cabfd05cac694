#include "graph/tensor.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

constexpr int64_t kBytesMax = int64_t{1} << 62;
// A cache line, and the widest vector register of any target.
constexpr size_t kAlignment = 64;

template <typename T>
T LoadRaw(const std::byte* bytes) {
  T value;
  memcpy(&value, bytes, sizeof(T));
  return value;
}

template <typename T>
void StoreRaw(std::byte* bytes, T value) {
  memcpy(bytes, &value, sizeof(T));
}

template <typename T>
T SaturateTo(double value) {
  const int64_t wide = SaturatingInt64(value);
  if (wide < std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
  if (wide > static_cast<int64_t>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(wide);
}

}  // namespace

int64_t SaturatingInt64(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return std::numeric_limits<int64_t>::max();
  if (value < -0x1p63) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

uint64_t SaturatingUint64(double value) {
  if (std::isnan(value) || value < 0) return 0;
  if (value >= 0x1p64) return std::numeric_limits<uint64_t>::max();
  return static_cast<uint64_t>(value);
}

double LoadAsDouble(DType dtype, const std::byte* bytes) {
  switch (dtype) {
    case DType::kF16:
      return HalfToFloat(LoadRaw<uint16_t>(bytes));
    case DType::kBF16:
      return BFloat16ToFloat(LoadRaw<uint16_t>(bytes));
    case DType::kF32:
      return LoadRaw<float>(bytes);
    case DType::kF64:
      return LoadRaw<double>(bytes);
    case DType::kU64:
      return static_cast<double>(LoadRaw<uint64_t>(bytes));
    default:
      return static_cast<double>(LoadAsInt64(dtype, bytes));
  }
}

int64_t LoadAsInt64(DType dtype, const std::byte* bytes) {
  switch (dtype) {
    case DType::kBool:
      return LoadRaw<uint8_t>(bytes) != 0;
    case DType::kI8:
      return LoadRaw<int8_t>(bytes);
    case DType::kI16:
      return LoadRaw<int16_t>(bytes);
    case DType::kI32:
      return LoadRaw<int32_t>(bytes);
    case DType::kI64:
    case DType::kU64:
      return LoadRaw<int64_t>(bytes);
    case DType::kU8:
      return LoadRaw<uint8_t>(bytes);
    case DType::kU16:
      return LoadRaw<uint16_t>(bytes);
    case DType::kU32:
      return LoadRaw<uint32_t>(bytes);
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64:
      return SaturatingInt64(LoadAsDouble(dtype, bytes));
    case DType::kInvalid:
      break;
  }
  CHECK(false) << "load of dtype " << static_cast<int>(dtype);
  return 0;
}

void StoreFromDouble(DType dtype, double value, std::byte* bytes) {
  switch (dtype) {
    case DType::kBool:
      return StoreRaw<uint8_t>(bytes, value != 0);
    case DType::kI8:
      return StoreRaw(bytes, SaturateTo<int8_t>(value));
    case DType::kI16:
      return StoreRaw(bytes, SaturateTo<int16_t>(value));
    case DType::kI32:
      return StoreRaw(bytes, SaturateTo<int32_t>(value));
    case DType::kI64:
      return StoreRaw(bytes, SaturatingInt64(value));
    case DType::kU8:
      return StoreRaw(bytes, SaturateTo<uint8_t>(value));
    case DType::kU16:
      return StoreRaw(bytes, SaturateTo<uint16_t>(value));
    case DType::kU32:
      return StoreRaw(bytes, SaturateTo<uint32_t>(value));
    case DType::kU64:
      return StoreRaw(bytes, SaturatingUint64(value));
    case DType::kF16:
      return StoreRaw(bytes, DoubleToHalf(value));
    case DType::kBF16:
      return StoreRaw(bytes, DoubleToBFloat16(value));
    case DType::kF32:
      return StoreRaw(bytes, static_cast<float>(value));
    case DType::kF64:
      return StoreRaw(bytes, value);
    case DType::kInvalid:
      break;
  }
  CHECK(false) << "store of dtype " << static_cast<int>(dtype);
}

void StoreFromInt64(DType dtype, int64_t value, std::byte* bytes) {
  switch (dtype) {
    case DType::kBool:
      return StoreRaw<uint8_t>(bytes, value != 0);
    case DType::kI8:
    case DType::kU8:
      return StoreRaw(bytes, static_cast<uint8_t>(value));
    case DType::kI16:
    case DType::kU16:
      return StoreRaw(bytes, static_cast<uint16_t>(value));
    case DType::kI32:
    case DType::kU32:
      return StoreRaw(bytes, static_cast<uint32_t>(value));
    case DType::kI64:
    case DType::kU64:
      return StoreRaw(bytes, value);
    case DType::kF32:
      return StoreRaw(bytes, static_cast<float>(value));
    default:
      return StoreFromDouble(dtype, static_cast<double>(value), bytes);
  }
}

absl::StatusOr<int64_t> TensorElementCount(std::span<const int64_t> shape) {
  // A zero dim makes the tensor empty whatever the others are; they must fit all the same, so that
  // strides do.
  int64_t count = 1;
  bool empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape [", absl::StrJoin(shape, ", "), "]: negative dim ", dim));
    }
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(count, dim, &count) || count > kBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape [", absl::StrJoin(shape, ", "), "]: more than 2^62 elements"));
    }
  }
  return empty ? 0 : count;
}

absl::StatusOr<int64_t> TensorSizeBytes(DType dtype, std::span<const int64_t> shape) {
  ASSIGN_OR_RETURN(const int64_t count, TensorElementCount(shape));
  const int64_t size = static_cast<int64_t>(SizeBytes(dtype));
  if (size == 0) return absl::InvalidArgumentError("tensor of no dtype");
  if (count > kBytesMax / size) {
    return absl::InvalidArgumentError(absl::StrCat("shape [", absl::StrJoin(shape, ", "), "] of ",
                                                   Name(dtype), ": more than 2^62 bytes"));
  }
  return count * size;
}

absl::StatusOr<Tensor> Tensor::Allocate(DType dtype, std::vector<int64_t> shape) {
  ASSIGN_OR_RETURN(const int64_t size, TensorSizeBytes(dtype, shape));
  // calloc: the pages of a large tensor stay untouched until it is written.
  void* block = calloc(1, static_cast<size_t>(size) + kAlignment);
  if (block == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("tensor of ", size, " bytes: no memory"));
  }
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  const size_t offset = (kAlignment - address % kAlignment) % kAlignment;
  tensor.bytes_ = {static_cast<const std::byte*>(block) + offset, static_cast<size_t>(size)};
  tensor.owner_ = std::shared_ptr<const void>(block, free);
  return tensor;
}

absl::StatusOr<Tensor> Tensor::View(DType dtype, std::vector<int64_t> shape,
                                    std::span<const std::byte> bytes,
                                    std::shared_ptr<const void> owner) {
  ASSIGN_OR_RETURN(const int64_t size, TensorSizeBytes(dtype, shape));
  if (static_cast<uint64_t>(size) != bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor of ", Name(dtype), " and shape [",
                                                   absl::StrJoin(shape, ", "), "]: got ",
                                                   bytes.size(), " bytes, need ", size));
  }
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.bytes_ = bytes;
  tensor.owner_ = std::move(owner);
  return tensor;
}

Tensor Tensor::FromInt64(std::vector<int64_t> shape, std::span<const int64_t> values) {
  absl::StatusOr<Tensor> tensor = Allocate(DType::kI64, std::move(shape));
  CHECK_OK(tensor);
  CHECK_EQ(tensor->bytes().size(), values.size_bytes());
  if (!values.empty()) memcpy(tensor->mutable_bytes().data(), values.data(), values.size_bytes());
  return *std::move(tensor);
}

int64_t Tensor::element_count() const {
  return dtype_ == DType::kInvalid ? 0 : static_cast<int64_t>(bytes_.size() / SizeBytes(dtype_));
}

double Tensor::ValueAsDouble(int64_t index) const {
  return LoadAsDouble(dtype_, bytes_.data() + static_cast<size_t>(index) * SizeBytes(dtype_));
}

int64_t Tensor::ValueAsInt64(int64_t index) const {
  return LoadAsInt64(dtype_, bytes_.data() + static_cast<size_t>(index) * SizeBytes(dtype_));
}

void Tensor::SetFromDouble(int64_t index, double value) {
  StoreFromDouble(dtype_, value,
                  mutable_bytes().data() + static_cast<size_t>(index) * SizeBytes(dtype_));
}

void Tensor::SetFromInt64(int64_t index, int64_t value) {
  StoreFromInt64(dtype_, value,
                 mutable_bytes().data() + static_cast<size_t>(index) * SizeBytes(dtype_));
}

absl::StatusOr<Tensor> Tensor::Reshaped(std::vector<int64_t> shape) const {
  return View(dtype_, std::move(shape), bytes_, owner_);
}

}  // namespace stampmill
