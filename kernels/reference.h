// What the plain-loop references share: element types as C++ types, loads that do not mind
// alignment, dispatch over dtypes, and one strided loop.
//
// References are the oracle of the lowerings: nothing here is used by a lowering.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/dtype.h"
#include "graph/tensor.h"
#include "kernels/op.h"

namespace stampmill {

// f16 and bf16 as C++ types: read as float, assigned from float with rounding.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  Half(float value) : bits(FloatToHalf(value)) {}       // NOLINT: as the built-in types convert
  operator float() const { return HalfToFloat(bits); }  // NOLINT
};
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  BFloat16(float value) : bits(FloatToBFloat16(value)) {}   // NOLINT
  operator float() const { return BFloat16ToFloat(bits); }  // NOLINT
};
// The storage of a bool element: one byte that holds 0 or 1.
struct Bool {
  uint8_t byte = 0;
  Bool() = default;
  Bool(bool value) : byte(value ? 1 : 0) {}    // NOLINT
  operator bool() const { return byte != 0; }  // NOLINT
};

template <typename T>
inline constexpr bool kIsSmallFloat = std::same_as<T, Half> || std::same_as<T, BFloat16>;
template <typename T>
inline constexpr bool kIsFloat = std::floating_point<T> || kIsSmallFloat<T>;
// The type that arithmetic on T is done in: float for f16 and bf16, else T.
template <typename T>
using Compute =
    std::conditional_t<kIsSmallFloat<T>, float, std::conditional_t<std::same_as<T, Bool>, bool, T>>;

template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::same_as<T, Bool>) return DType::kBool;
  if constexpr (std::same_as<T, int8_t>) return DType::kI8;
  if constexpr (std::same_as<T, int16_t>) return DType::kI16;
  if constexpr (std::same_as<T, int32_t>) return DType::kI32;
  if constexpr (std::same_as<T, int64_t>) return DType::kI64;
  if constexpr (std::same_as<T, uint8_t>) return DType::kU8;
  if constexpr (std::same_as<T, uint16_t>) return DType::kU16;
  if constexpr (std::same_as<T, uint32_t>) return DType::kU32;
  if constexpr (std::same_as<T, uint64_t>) return DType::kU64;
  if constexpr (std::same_as<T, Half>) return DType::kF16;
  if constexpr (std::same_as<T, BFloat16>) return DType::kBF16;
  if constexpr (std::same_as<T, float>) return DType::kF32;
  if constexpr (std::same_as<T, double>) return DType::kF64;
  return DType::kInvalid;
}

// Elements of a tensor for reading: its bytes may be a view of a file, so loads do not assume
// alignment. Borrows the tensor.
template <typename T>
class In {
 public:
  explicit In(const Tensor& tensor)
      : data_(tensor.bytes().data()),
        size_(static_cast<int64_t>(tensor.bytes().size() / sizeof(T))) {}
  T operator[](int64_t i) const {
    T value;
    std::memcpy(&value, data_ + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  int64_t size() const { return size_; }

 private:
  const std::byte* data_;
  int64_t size_;
};

// Calls `f.template operator()<T>()` for the element type. `f` returns a Status or StatusOr; a type
// outside of the group named gives INVALID_ARGUMENT.
template <typename F, typename T = float>
using DispatchResult = decltype(std::declval<F>().template operator()<T>());

inline absl::Status UnsupportedDType(DType dtype) {
  return absl::InvalidArgumentError(absl::StrCat("element type ",
                                                 dtype == DType::kInvalid ? "(none)" : Name(dtype),
                                                 " is not among those the operator takes"));
}

template <typename F>
DispatchResult<F> DispatchFloat(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF16:
      return f.template operator()<Half>();
    case DType::kBF16:
      return f.template operator()<BFloat16>();
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF64:
      return f.template operator()<double>();
    default:
      return UnsupportedDType(dtype);
  }
}

template <typename F>
DispatchResult<F, int64_t> DispatchInteger(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI8:
      return f.template operator()<int8_t>();
    case DType::kI16:
      return f.template operator()<int16_t>();
    case DType::kI32:
      return f.template operator()<int32_t>();
    case DType::kI64:
      return f.template operator()<int64_t>();
    case DType::kU8:
      return f.template operator()<uint8_t>();
    case DType::kU16:
      return f.template operator()<uint16_t>();
    case DType::kU32:
      return f.template operator()<uint32_t>();
    case DType::kU64:
      return f.template operator()<uint64_t>();
    default:
      return UnsupportedDType(dtype);
  }
}

template <typename F>
DispatchResult<F> DispatchNumeric(DType dtype, F&& f) {
  return IsFloat(dtype) ? DispatchFloat(dtype, f) : DispatchInteger(dtype, f);
}

template <typename F>
DispatchResult<F> DispatchAll(DType dtype, F&& f) {
  if (dtype == DType::kBool) return f.template operator()<Bool>();
  return DispatchNumeric(dtype, f);
}

// By element size alone, for operators that only move elements.
template <typename F>
DispatchResult<F, uint64_t> DispatchSize(DType dtype, F&& f) {
  switch (SizeBytes(dtype)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    default:
      return UnsupportedDType(dtype);
  }
}

using Dims = std::vector<int64_t>;

int64_t ProductOf(const Dims& dims);
Dims RowMajor(const Dims& dims);
// The shape that shapes broadcast to; INVALID_ARGUMENT when they do not.
absl::StatusOr<Dims> BroadcastDims(const std::vector<Dims>& shapes);
// Strides of a tensor of shape `from` seen as the broadcast shape `to`: 0 where it repeats.
Dims BroadcastStrides(const Dims& from, const Dims& to);
// -rank <= axis < rank, as a position; INVALID_ARGUMENT otherwise.
absl::StatusOr<int64_t> AxisOf(int64_t axis, int64_t rank);
// All elements of an integer tensor.
std::vector<int64_t> Int64Values(const Tensor& tensor);

// Moves `index` to the next one of `dims` in row-major order, and offsets[i] with it by strides[i].
// Out of line: every reference has such a loop in every type.
void AdvanceIndex(const Dims& dims, std::span<const Dims> strides, Dims& index,
                  std::span<int64_t> offsets);

// Calls f(offsets) for every index of `dims` in row-major order, offsets[i] being the sum of index
// times strides[i].
template <size_t N, typename F>
void ForEach(const Dims& dims, const std::array<Dims, N>& strides, F&& f) {
  std::array<int64_t, N> offset{};
  Dims index(dims.size(), 0);
  for (int64_t left = ProductOf(dims); left > 0; --left) {
    f(offset);
    AdvanceIndex(dims, strides, index, offset);
  }
}

// Calls f(index) for every index of `dims` in row-major order.
template <typename F>
void ForEachIndex(const Dims& dims, F&& f) {
  Dims index(dims.size(), 0);
  for (int64_t left = ProductOf(dims); left > 0; --left) {
    f(static_cast<const Dims&>(index));
    AdvanceIndex(dims, {}, index, {});
  }
}

// Offset of an index.
inline int64_t OffsetOf(const Dims& index, const Dims& strides) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
  return offset;
}

// A reference's result of one tensor.
inline std::vector<Tensor> One(Tensor tensor) {
  std::vector<Tensor> result;
  result.push_back(std::move(tensor));
  return result;
}

// An INVALID_ARGUMENT status that begins with the node's description.
absl::Status ReferenceError(const ReferenceArguments& arguments, absl::string_view message);

}  // namespace stampmill
