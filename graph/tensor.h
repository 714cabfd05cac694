// Tensor: a dense row-major array in host memory with a constant shape: initialisers, folded
// constants, inputs and outputs of the reference interpreter. Shares its bytes when copied; bytes
// may belong to a mapping (a model file's weights) that the tensor keeps alive.
// Immutable once shared; a tensor that was just made with Allocate may be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/dtype.h"

namespace stampmill {

class Tensor {
 public:
  Tensor() = default;
  // Zero-filled. INVALID_ARGUMENT for a negative dim or a size past 2^62 bytes,
  // RESOURCE_EXHAUSTED when memory cannot be had.
  static absl::StatusOr<Tensor> Allocate(DType dtype, std::vector<int64_t> shape);
  // A view of `bytes`, kept alive by `owner`. INVALID_ARGUMENT when the byte count is not that of
  // the shape.
  static absl::StatusOr<Tensor> View(DType dtype, std::vector<int64_t> shape,
                                     std::span<const std::byte> bytes,
                                     std::shared_ptr<const void> owner);
  // Of rank 0; the value converts as by SetFromInt64 or SetFromDouble.
  template <typename T>
    requires std::is_arithmetic_v<T>
  static Tensor Scalar(DType dtype, T value);
  // kI64. REQUIRES: as many values as the shape has elements.
  static Tensor FromInt64(std::vector<int64_t> shape, std::span<const int64_t> values);

  bool valid() const { return dtype_ != DType::kInvalid; }
  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  int64_t element_count() const;  // 1 for a scalar
  std::span<const std::byte> bytes() const { return bytes_; }
  // Aligned for T unless the tensor is a view of a file: use bytes() and memcpy there.
  template <typename T>
  std::span<const T> values() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  // REQUIRES: made by Allocate and not yet shared.
  template <typename T>
  std::span<T> mutable_values() {
    return {reinterpret_cast<T*>(const_cast<std::byte*>(bytes_.data())), bytes_.size() / sizeof(T)};
  }
  std::span<std::byte> mutable_bytes() {
    return {const_cast<std::byte*>(bytes_.data()), bytes_.size()};
  }

  // Element `index` (row-major) converted; any dtype. REQUIRES: index in range.
  double ValueAsDouble(int64_t index) const;
  // Floats truncate toward zero, saturating, NaN is 0; u64 keeps its bits.
  int64_t ValueAsInt64(int64_t index) const;
  // REQUIRES: as for mutable_values(). A bool becomes `value != 0`.
  void SetFromDouble(int64_t index, double value);  // integers round toward zero, saturating
  void SetFromInt64(int64_t index, int64_t value);  // wraps to the width

  // The same bytes with another shape of the same element count.
  absl::StatusOr<Tensor> Reshaped(std::vector<int64_t> shape) const;

 private:
  DType dtype_ = DType::kInvalid;
  std::vector<int64_t> shape_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

// Elements of a tensor of this shape, its size in bytes. INVALID_ARGUMENT for a negative dim or a
// size past 2^62 bytes.
absl::StatusOr<int64_t> TensorElementCount(std::span<const int64_t> shape);
absl::StatusOr<int64_t> TensorSizeBytes(DType dtype, std::span<const int64_t> shape);

// One element at `bytes` (no alignment needed), converted as by the members above.
double LoadAsDouble(DType dtype, const std::byte* bytes);
int64_t LoadAsInt64(DType dtype, const std::byte* bytes);
void StoreFromDouble(DType dtype, double value, std::byte* bytes);
void StoreFromInt64(DType dtype, int64_t value, std::byte* bytes);
// Toward zero, saturating, NaN is 0.
int64_t SaturatingInt64(double value);
uint64_t SaturatingUint64(double value);

template <typename T>
  requires std::is_arithmetic_v<T>
Tensor Tensor::Scalar(DType dtype, T value) {
  Tensor tensor = *Allocate(dtype, {});
  if constexpr (std::is_floating_point_v<T>) {
    tensor.SetFromDouble(0, value);
  } else {
    tensor.SetFromInt64(0, static_cast<int64_t>(value));
  }
  return tensor;
}

}  // namespace stampmill
