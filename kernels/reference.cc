// Shapes and indices of the references.
#include "kernels/reference.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace stampmill {

int64_t ProductOf(const Dims& dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

Dims RowMajor(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

void AdvanceIndex(const Dims& dims, std::span<const Dims> strides, Dims& index,
                  std::span<int64_t> offsets) {
  for (size_t d = dims.size(); d-- > 0;) {
    for (size_t i = 0; i < strides.size(); ++i) offsets[i] += strides[i][d];
    if (++index[d] < dims[d]) return;
    for (size_t i = 0; i < strides.size(); ++i) offsets[i] -= strides[i][d] * dims[d];
    index[d] = 0;
  }
}

absl::StatusOr<Dims> BroadcastDims(const std::vector<Dims>& shapes) {
  size_t rank = 0;
  for (const Dims& shape : shapes) rank = std::max(rank, shape.size());
  Dims result(rank, 1);
  for (const Dims& shape : shapes) {
    for (size_t d = 0; d < shape.size(); ++d) {
      int64_t& dim = result[rank - shape.size() + d];
      if (dim == 1) {
        dim = shape[d];
      } else if (shape[d] != 1 && shape[d] != dim) {
        return absl::InvalidArgumentError(absl::StrCat("shape [", absl::StrJoin(shape, ", "),
                                                       "] does not broadcast to [",
                                                       absl::StrJoin(result, ", "), "]"));
      }
    }
  }
  return result;
}

Dims BroadcastStrides(const Dims& from, const Dims& to) {
  const Dims own = RowMajor(from);
  Dims strides(to.size(), 0);
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1) strides[to.size() - from.size() + d] = own[d];
  }
  return strides;
}

absl::StatusOr<int64_t> AxisOf(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("axis: got ", axis, ", limits ", -rank, " and ", rank - 1));
  }
  return axis < 0 ? axis + rank : axis;
}

std::vector<int64_t> Int64Values(const Tensor& tensor) {
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(tensor.element_count()));
  for (int64_t i = 0; i < tensor.element_count(); ++i) values.push_back(tensor.ValueAsInt64(i));
  return values;
}

absl::Status ReferenceError(const ReferenceArguments& arguments, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(arguments.node.Describe(), ": ", message));
}

}  // namespace stampmill
