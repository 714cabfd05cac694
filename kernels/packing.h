// Packs constant right-hand sides of contractions into panel layout (graph/nest.h) at compile time:
// [batch..., ceil(n / panel), k, panel], zero-filled past n, converted to the accumulator's type.
// Stateless, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/dtype.h"
#include "graph/tensor.h"

namespace stampmill {

// An axis of the source: how many elements, and how many elements apart.
struct PackAxis {
  int64_t extent = 1;
  int64_t stride = 0;
};

struct PackPlan {
  // Axes that the batch, k and n of the contraction run over, each flattened row-major. A stride of
  // 0 repeats.
  std::vector<PackAxis> batch;
  std::vector<PackAxis> k;
  std::vector<PackAxis> n;
  int64_t panel = 0;
  DType dtype = DType::kInvalid;  // of the result
};

// REQUIRES: the axes stay within `source`, panel > 0. RESOURCE_EXHAUSTED without memory.
absl::StatusOr<Tensor> PackPanels(const Tensor& source, const PackPlan& plan);

// The same in panels of pairs: [batch..., ceil(n / panel), ceil(k / 2), panel] of u32, zero-filled
// past n and k, each two neighbours along k as numbers of `plan.dtype`, kBF16 or kI16
// (graph/nest.h).
absl::StatusOr<Tensor> PackPairs(const Tensor& source, const PackPlan& plan);

// Panels of bytes: [batch..., ceil(n / panel), ceil(k / 4), panel, 4] of i8, zero-filled past n and
// k (graph/nest.h).
struct PackedBytes {
  Tensor panels;
  // The sum over k of each column of `panels`, i32[batch..., n], n flat.
  Tensor sums;
  // What has been subtracted from each column to bring it into i8, shaped alike; nullopt: nothing.
  std::optional<Tensor> shifts;
};

// REQUIRES: as above, plan.dtype is i8. INTERNAL when the elements of a column lie
// further apart than a byte holds.
absl::StatusOr<PackedBytes> PackBytes(const Tensor& source, const PackPlan& plan);

}  // namespace stampmill
