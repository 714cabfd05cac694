// Elements of host tensors for plain-loop references: whole tensors read into and written from
// vectors of one of three arithmetic types, so that a reference is written once and stays plain.
// Floats are computed in double, u64 in uint64_t, other integers and bool in int64_t; integers
// wrap. Stateless, thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/dtype.h"
#include "graph/tensor.h"

namespace stampmill {

// T is double, int64_t or uint64_t.
template <typename T>
std::vector<T> ReadValues(const Tensor& tensor) {
  std::vector<T> values(static_cast<size_t>(tensor.element_count()));
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      values[i] = tensor.ValueAsDouble(static_cast<int64_t>(i));
    } else {
      values[i] = static_cast<T>(tensor.ValueAsInt64(static_cast<int64_t>(i)));
    }
  }
  return values;
}

// REQUIRES: as many values as the shape has elements.
template <typename T>
absl::StatusOr<Tensor> MakeTensor(DType dtype, std::vector<int64_t> shape,
                                  const std::vector<T>& values) {
  absl::StatusOr<Tensor> tensor = Tensor::Allocate(dtype, std::move(shape));
  if (!tensor.ok()) return tensor;
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      tensor->SetFromDouble(static_cast<int64_t>(i), values[i]);
    } else {
      tensor->SetFromInt64(static_cast<int64_t>(i), static_cast<int64_t>(values[i]));
    }
  }
  return tensor;
}

// Calls `compute` with a value of the arithmetic type that references use for `dtype`.
template <typename F>
auto WithArithmeticType(DType dtype, F&& compute) {
  if (IsFloat(dtype)) return compute(double{});
  if (dtype == DType::kU64) return compute(uint64_t{});
  return compute(int64_t{});
}

template <typename T>
T WrapAdd(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a + b;
  return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

template <typename T>
T WrapMul(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a * b;
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// The larger and the smaller; NaN if either is NaN.
template <typename T>
T NanMax(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  }
  return a < b ? b : a;
}

template <typename T>
T NanMin(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  }
  return b < a ? b : a;
}

// The least value of `dtype`: minus infinity for floats, 0 (false) for bool.
template <typename T>
T LowestOf(DType dtype) {
  if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
  if (!IsSignedInteger(dtype)) return T{0};
  return static_cast<T>(-(int64_t{1} << (8 * SizeBytes(dtype) - 2)) * 2);
}

template <typename T>
T HighestOf(DType dtype) {
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
  if (dtype == DType::kBool) return T{1};
  if (dtype == DType::kU64) return static_cast<T>(~uint64_t{0});
  const size_t bits = 8 * SizeBytes(dtype) - (IsSignedInteger(dtype) ? 1 : 0);
  return static_cast<T>((uint64_t{1} << bits) - 1);
}

}  // namespace stampmill
