#include "kernels/packing.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/status_macros.h"

namespace stampmill {
namespace {

// Source offset of each place of the flattened axes.
std::vector<int64_t> Offsets(const std::vector<PackAxis>& axes) {
  std::vector<int64_t> offsets = {0};
  for (const PackAxis& axis : axes) {
    std::vector<int64_t> finer;
    finer.reserve(offsets.size() * static_cast<size_t>(axis.extent));
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < axis.extent; ++i) finer.push_back(offset + i * axis.stride);
    }
    offsets = std::move(finer);
  }
  return offsets;
}

// One panel: rows k, columns n_begin.. of it. The source is read along its own memory order: a
// transposed weight matrix is read column by column.
template <typename Copy>
void FillPanel(const std::vector<int64_t>& k, const std::vector<int64_t>& n, size_t n_begin,
               int64_t panel, const Copy& copy) {
  const size_t columns = std::min(static_cast<size_t>(panel), n.size() - n_begin);
  const bool along_k = k.size() > 1 && (columns < 2 || std::abs(k[1] - k[0]) <
                                                           std::abs(n[n_begin + 1] - n[n_begin]));
  if (along_k) {
    for (size_t j = 0; j < columns; ++j) {
      for (size_t i = 0; i < k.size(); ++i) {
        copy(k[i] + n[n_begin + j], i * static_cast<size_t>(panel) + j);
      }
    }
    return;
  }
  for (size_t i = 0; i < k.size(); ++i) {
    for (size_t j = 0; j < columns; ++j) {
      copy(k[i] + n[n_begin + j], i * static_cast<size_t>(panel) + j);
    }
  }
}

}  // namespace

absl::StatusOr<Tensor> PackPanels(const Tensor& source, const PackPlan& plan) {
  const std::vector<int64_t> batch = Offsets(plan.batch);
  const std::vector<int64_t> k = Offsets(plan.k);
  const std::vector<int64_t> n = Offsets(plan.n);
  const int64_t panels = (static_cast<int64_t>(n.size()) + plan.panel - 1) / plan.panel;
  std::vector<int64_t> shape;
  for (const PackAxis& axis : plan.batch) shape.push_back(axis.extent);
  shape.insert(shape.end(), {panels, static_cast<int64_t>(k.size()), plan.panel});
  ASSIGN_OR_RETURN(Tensor packed, Tensor::Allocate(plan.dtype, std::move(shape)));

  const size_t source_bytes = SizeBytes(source.dtype());
  const size_t target_bytes = SizeBytes(plan.dtype);
  const size_t panel_bytes = k.size() * static_cast<size_t>(plan.panel) * target_bytes;
  std::byte* target = packed.mutable_bytes().data();
  for (const int64_t batch_offset : batch) {
    const std::byte* from =
        source.bytes().data() + batch_offset * static_cast<int64_t>(source_bytes);
    const auto at = [&](int64_t offset) {
      return from + offset * static_cast<int64_t>(source_bytes);
    };
    for (size_t begin = 0; begin < n.size(); begin += static_cast<size_t>(plan.panel)) {
      if (source.dtype() == plan.dtype && target_bytes == 4) {
        FillPanel(k, n, begin, plan.panel, [&](int64_t offset, size_t place) {
          std::memcpy(target + place * 4, at(offset), 4);
        });
      } else if (IsFloat(plan.dtype)) {
        FillPanel(k, n, begin, plan.panel, [&](int64_t offset, size_t place) {
          StoreFromDouble(plan.dtype, LoadAsDouble(source.dtype(), at(offset)),
                          target + place * target_bytes);
        });
      } else {
        FillPanel(k, n, begin, plan.panel, [&](int64_t offset, size_t place) {
          StoreFromInt64(plan.dtype, LoadAsInt64(source.dtype(), at(offset)),
                         target + place * target_bytes);
        });
      }
      target += panel_bytes;
    }
  }
  return packed;
}

}  // namespace stampmill
