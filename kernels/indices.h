// Indices that a model computes: their range is not known, and must do no harm.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "graph/dim.h"
#include "graph/expr.h"
#include "kernels/op.h"

namespace stampmill {

// `index` from the front (negative ones count from the end), forced into [0, extent - 1]; 0 for an
// empty extent.
Expr ClampedIndex(const Expr& index, const DimExpr& extent);

// The same for references, where an index out of range is an error.
absl::StatusOr<int64_t> IndexOf(const ReferenceArguments& arguments, int64_t index, int64_t extent);

// InferContext::CheckIndices for tuples, in input 1, of positions on axes of these extents: where
// they are all the same.
void CheckTuples(InferContext& context, std::span<const DimExpr> extents);

// INVALID_ARGUMENT unless input `i` is i32 or i64.
absl::Status CheckIndexType(InferContext& context, size_t i);

}  // namespace stampmill
