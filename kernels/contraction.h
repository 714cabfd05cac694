// From "a sum of products" to a Contraction stage: what MatMul, Gemm, Einsum and the convolutions
// have in common. The right-hand side is brought into panel layout here: at compile time when it is
// constant, by a nest of its own otherwise, into which fusion can pull whatever made it.
//
// Products of bytes take the one form that every target multiplies exactly, `a` of u8 by b of i8:
// what is of the other sign is moved by 128, and zero points, those moves included, are taken from
// the sums: sum (a - p)(b - q) = sum ab - p sum b - q (sum a - k p). Sums of b are constants where
// b is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dim.h"
#include "graph/dtype.h"
#include "graph/expr.h"
#include "graph/nest.h"
#include "kernels/op.h"
#include "kernels/stage_builder.h"

namespace stampmill {

// What one axis of the right-hand side is to the contraction.
struct ProductAxis {
  enum class Role { kBatch, kK, kN, kSingle };  // kSingle: an extent of 1 that is no axis
  Role role = Role::kSingle;
  size_t index = 0;  // which axis of batch, k or n
};

struct Product {
  // The contraction's extents; n may be made of several axes of b, flattened row-major in the
  // order of their indices.
  Shape batch;
  Shape m;  // one or more
  DimExpr n;
  Shape k;
  DType accumulator = DType::kF32;

  // Operands of `a`, `result` and the zero points.
  StageOperands operands;
  Expr a;  // over batch, m, k; of the accumulator's dtype, or u8 or i8, when it is a product of
           // bytes, or i16, with b in i16's range, of i16 that add up in i32

  // Of bytes: what is subtracted from `a` and from b, i32; invalid: nothing. `a_zero` is over batch
  // and m, `b_zero` over batch and n, both with the numbers of `result`. What is known of b's when
  // compiling is in b_constant already.
  Expr a_zero, b_zero;

  ValueId b = kNoValue;
  Operand b_operand;
  std::vector<ProductAxis> b_axes;   // one an axis of b
  std::optional<Tensor> b_constant;  // contents, when known; `b` may then be kNoValue

  Expr rows;    // of a batch, i64 of its coordinates; invalid: all of m. Not of bytes
  Expr result;  // from Accumulator(0) and the coordinates batch, m, n
  Operand output;
  std::vector<Expr> output_coordinates;  // over batch, m, n; empty: these, in order
};

// The dtype that products of `dtype` accumulate in, when a contraction can: f32 for f16, bf16 and
// f32, f64, i32 for integers of up to 32 bits.
std::optional<DType> ContractionAccumulator(DType dtype);

absl::Status EmitProduct(LowerContext& context, Product product, ValueId output);

// The same in two parts, for products that share their right-hand side: b, b_axes, batch, n, k and
// accumulator are equal. Not for bytes.
absl::StatusOr<ValueId> PackRight(LowerContext& context, const Product& product);
void EmitPackedProduct(LowerContext& context, Product product, ValueId packed, ValueId output);

}  // namespace stampmill
