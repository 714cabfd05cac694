#include "kernels/packing.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/nest.h"

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
// transposed weight matrix is read column by column. `copy` gets a source offset, row and column.
template <typename Copy>
void FillPanel(const std::vector<int64_t>& k, const std::vector<int64_t>& n, size_t n_begin,
               int64_t panel, const Copy& copy) {
  const size_t columns = std::min(static_cast<size_t>(panel), n.size() - n_begin);
  const bool along_k = k.size() > 1 && (columns < 2 || std::abs(k[1] - k[0]) <
                                                           std::abs(n[n_begin + 1] - n[n_begin]));
  if (along_k) {
    for (size_t j = 0; j < columns; ++j) {
      for (size_t i = 0; i < k.size(); ++i) copy(k[i] + n[n_begin + j], i, j);
    }
    return;
  }
  for (size_t i = 0; i < k.size(); ++i) {
    for (size_t j = 0; j < columns; ++j) copy(k[i] + n[n_begin + j], i, j);
  }
}

// [batch..., panels, rows, panel].
absl::StatusOr<Tensor> AllocatePanels(DType dtype, const PackPlan& plan, size_t columns,
                                      int64_t rows) {
  std::vector<int64_t> shape;
  for (const PackAxis& axis : plan.batch) shape.push_back(axis.extent);
  const int64_t panels = (static_cast<int64_t>(columns) + plan.panel - 1) / plan.panel;
  shape.insert(shape.end(), {panels, rows, plan.panel});
  return Tensor::Allocate(dtype, std::move(shape));
}

}  // namespace

absl::StatusOr<Tensor> PackPanels(const Tensor& source, const PackPlan& plan) {
  const std::vector<int64_t> batch = Offsets(plan.batch);
  const std::vector<int64_t> k = Offsets(plan.k);
  const std::vector<int64_t> n = Offsets(plan.n);
  ASSIGN_OR_RETURN(Tensor packed,
                   AllocatePanels(plan.dtype, plan, n.size(), static_cast<int64_t>(k.size())));

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
    const auto place = [&](size_t row, size_t column) {
      return target + (row * static_cast<size_t>(plan.panel) + column) * target_bytes;
    };
    for (size_t begin = 0; begin < n.size(); begin += static_cast<size_t>(plan.panel)) {
      if (source.dtype() == plan.dtype && target_bytes == 4) {
        FillPanel(k, n, begin, plan.panel, [&](int64_t offset, size_t row, size_t column) {
          std::memcpy(place(row, column), at(offset), 4);
        });
      } else if (IsFloat(plan.dtype)) {
        FillPanel(k, n, begin, plan.panel, [&](int64_t offset, size_t row, size_t column) {
          StoreFromDouble(plan.dtype, LoadAsDouble(source.dtype(), at(offset)), place(row, column));
        });
      } else {
        FillPanel(k, n, begin, plan.panel, [&](int64_t offset, size_t row, size_t column) {
          StoreFromInt64(plan.dtype, LoadAsInt64(source.dtype(), at(offset)), place(row, column));
        });
      }
      target += panel_bytes;
    }
  }
  return packed;
}

absl::StatusOr<Tensor> PackPairs(const Tensor& source, const PackPlan& plan) {
  const std::vector<int64_t> batch = Offsets(plan.batch);
  const std::vector<int64_t> k = Offsets(plan.k);
  const std::vector<int64_t> n = Offsets(plan.n);
  const int64_t steps = (static_cast<int64_t>(k.size()) + kPairGroup - 1) / kPairGroup;
  ASSIGN_OR_RETURN(Tensor packed, AllocatePanels(DType::kU32, plan, n.size(), steps));
  constexpr auto kGroup = static_cast<size_t>(kPairGroup);
  const auto panel = static_cast<size_t>(plan.panel);
  uint32_t* target = packed.mutable_values<uint32_t>().data();
  for (const int64_t batch_offset : batch) {
    for (size_t begin = 0; begin < n.size(); begin += panel) {
      FillPanel(k, n, begin, plan.panel, [&](int64_t offset, size_t row, size_t column) {
        std::byte number[sizeof(uint16_t)];
        if (IsFloat(plan.dtype)) {
          StoreFromDouble(plan.dtype, source.ValueAsDouble(batch_offset + offset), number);
        } else {
          StoreFromInt64(plan.dtype, source.ValueAsInt64(batch_offset + offset), number);
        }
        uint16_t bits;
        std::memcpy(&bits, number, sizeof(bits));
        target[row / kGroup * panel + column] |= uint32_t{bits} << (16 * (row % kGroup));
      });
      target += static_cast<size_t>(steps) * panel;
    }
  }
  return packed;
}

absl::StatusOr<PackedBytes> PackBytes(const Tensor& source, const PackPlan& plan) {
  const std::vector<int64_t> batch = Offsets(plan.batch);
  const std::vector<int64_t> k = Offsets(plan.k);
  const std::vector<int64_t> n = Offsets(plan.n);
  const int64_t columns = static_cast<int64_t>(n.size());
  const int64_t panels = (columns + plan.panel - 1) / plan.panel;
  const int64_t groups = (static_cast<int64_t>(k.size()) + kByteGroup - 1) / kByteGroup;
  std::vector<int64_t> shape, sums_shape;
  for (const PackAxis& axis : plan.batch) shape.push_back(axis.extent);
  sums_shape = shape;
  sums_shape.push_back(columns);
  shape.insert(shape.end(), {panels, groups, plan.panel, kByteGroup});
  PackedBytes packed;
  ASSIGN_OR_RETURN(packed.panels, Tensor::Allocate(DType::kI8, std::move(shape)));
  ASSIGN_OR_RETURN(packed.sums, Tensor::Allocate(DType::kI32, sums_shape));
  ASSIGN_OR_RETURN(Tensor shifts, Tensor::Allocate(DType::kI32, sums_shape));
  bool shifted = false;
  std::vector<int64_t> column(k.size());
  auto* target = reinterpret_cast<int8_t*>(packed.panels.mutable_bytes().data());
  for (size_t b = 0; b < batch.size(); ++b) {
    for (int64_t j = 0; j < columns; ++j) {
      int64_t least = 0, greatest = 0;
      for (size_t i = 0; i < k.size(); ++i) {
        column[i] = source.ValueAsInt64(batch[b] + k[i] + n[static_cast<size_t>(j)]);
        least = std::min(least, column[i]);
        greatest = std::max(greatest, column[i]);
      }
      const int64_t shift = greatest > INT8_MAX ? greatest - INT8_MAX
                            : least < INT8_MIN  ? least - INT8_MIN
                                                : 0;
      if (least - shift < INT8_MIN || greatest - shift > INT8_MAX) {
        return absl::InternalError(absl::StrCat("column ", j, " of a product of bytes goes from ",
                                                least, " to ", greatest));
      }
      const int64_t first =
          ((static_cast<int64_t>(b) * panels + j / plan.panel) * groups * plan.panel +
           j % plan.panel) *
          kByteGroup;
      int64_t sum = 0;
      for (size_t i = 0; i < k.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const int64_t value = column[i] - shift;
        target[first + at / kByteGroup * plan.panel * kByteGroup + at % kByteGroup] =
            static_cast<int8_t>(value);
        sum += value;
      }
      const int64_t place = static_cast<int64_t>(b) * columns + j;
      packed.sums.SetFromInt64(place, sum);
      shifts.SetFromInt64(place, shift);
      shifted = shifted || shift != 0;
    }
  }
  if (shifted) packed.shifts = std::move(shifts);
  return packed;
}

}  // namespace stampmill
