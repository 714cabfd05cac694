#include "kernels/window.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// Far above any model's, far below what makes extents overflow.
constexpr int64_t kWindowNumberMax = int64_t{1} << 24;

void PadForSame(WindowAxis& axis, bool upper) {
  axis.output = CeilDiv(axis.input, axis.stride);
  const DimExpr total = Max(0, (axis.output - 1) * axis.stride + axis.span() - axis.input);
  const DimExpr less = FloorDiv(total, 2);
  axis.pad_begin = upper ? less : total - less;
  axis.pad_end = upper ? total - less : less;
  axis.ceil_mode = false;
}

void SizeFromPads(WindowAxis& axis) {
  const DimExpr padded = axis.input + axis.pad_begin + axis.pad_end;
  if (!axis.ceil_mode) {
    axis.output = FloorDiv(padded - axis.span(), axis.stride) + 1;
    return;
  }
  // A window that would begin past the input, in the padding at its end, is left out.
  axis.output = Min(CeilDiv(padded - axis.span(), axis.stride) + 1,
                    CeilDiv(axis.input + axis.pad_begin, axis.stride));
}

absl::StatusOr<std::vector<int64_t>> KernelShape(const Node& node, size_t count,
                                                 std::span<const int64_t> kernel) {
  std::vector<int64_t> shape(kernel.begin(), kernel.end());
  if (shape.empty() || node.Has("kernel_shape")) {
    ASSIGN_OR_RETURN(shape, SpatialInts(node, "kernel_shape", count, 0, 1));
  }
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > kWindowNumberMax) {
      return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": kernel extent: got ",
                                                     extent, ", limits 1 and ", kWindowNumberMax));
    }
  }
  for (size_t i = 0; i < kernel.size(); ++i) {
    if (kernel[i] == shape[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": kernel_shape: got [",
                                                   absl::StrJoin(shape, ", "), "], weights have [",
                                                   absl::StrJoin(kernel, ", "), "]"));
  }
  return shape;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> SpatialInts(const Node& node, absl::string_view attribute,
                                                 size_t count, int64_t otherwise, int64_t least) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ints,
                   node.Ints(attribute, std::vector<int64_t>(count, otherwise)));
  if (ints.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": ", attribute, ": got ",
                                                   ints.size(), " values, want ", count));
  }
  for (const int64_t value : ints) {
    if (value >= least && value <= kWindowNumberMax) continue;
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": ", attribute, ": got ",
                                                   value, ", limits ", least, " and ",
                                                   kWindowNumberMax));
  }
  return ints;
}

absl::StatusOr<AutoPad> ReadAutoPad(const Node& node) {
  ASSIGN_OR_RETURN(const std::string text, node.String("auto_pad", "NOTSET"));
  if (text == "NOTSET" || text.empty()) return AutoPad::kNotSet;
  if (text == "VALID") return AutoPad::kValid;
  if (text == "SAME_UPPER") return AutoPad::kSameUpper;
  if (text == "SAME_LOWER") return AutoPad::kSameLower;
  return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": auto_pad: got '", text, "'"));
}

absl::StatusOr<std::vector<WindowAxis>> ReadWindow(const Node& node,
                                                   std::span<const DimExpr> input_space,
                                                   std::span<const int64_t> kernel) {
  const size_t count = input_space.size();
  ASSIGN_OR_RETURN(const std::vector<int64_t> shape, KernelShape(node, count, kernel));
  ASSIGN_OR_RETURN(const std::vector<int64_t> strides, SpatialInts(node, "strides", count, 1, 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> dilations,
                   SpatialInts(node, "dilations", count, 1, 1));
  // Negative pads crop; their sum is bounded by the check that a window fits.
  ASSIGN_OR_RETURN(const std::vector<int64_t> pads,
                   SpatialInts(node, "pads", 2 * count, 0, -kWindowNumberMax));
  ASSIGN_OR_RETURN(const AutoPad auto_pad, ReadAutoPad(node));
  ASSIGN_OR_RETURN(const int64_t ceil_mode, node.Int("ceil_mode", 0));
  std::vector<WindowAxis> window(count);
  for (size_t i = 0; i < count; ++i) {
    WindowAxis& axis = window[i];
    axis.input = input_space[i];
    axis.kernel = shape[i];
    axis.stride = strides[i];
    axis.dilation = dilations[i];
    axis.ceil_mode = ceil_mode != 0;
    if (auto_pad == AutoPad::kSameUpper || auto_pad == AutoPad::kSameLower) {
      PadForSame(axis, auto_pad == AutoPad::kSameUpper);
      continue;
    }
    if (auto_pad == AutoPad::kNotSet) {
      axis.pad_begin = pads[i];
      axis.pad_end = pads[count + i];
    }
    SizeFromPads(axis);
  }
  return window;
}

absl::Status CheckWindow(InferContext& context, std::span<const WindowAxis> window) {
  for (const WindowAxis& axis : window) {
    const DimExpr padded = axis.input + axis.pad_begin + axis.pad_end;
    RETURN_IF_ERROR(
        context.Check(IsNot(IsLess(padded, axis.span())),
                      absl::StrCat("a window of ", axis.span(),
                                   " must fit into the padded input of ", padded.ToString())));
  }
  return absl::OkStatus();
}

Expr WindowAxis::Place(const Expr& position, const Expr& tap) const {
  Expr place = position * Int(stride) + tap * Int(dilation);
  if (!pad_begin.IsConstant(0)) place = place - Extent(pad_begin);
  return place;
}

Expr WindowAxis::Within(const Expr& place) const {
  Expr within;
  if (crosses_begin()) within = And(within, LessEqual(Int(0), place));
  if (crosses_end()) within = And(within, Less(place, Extent(input)));
  return within;
}

WindowTap TapAt(std::span<const WindowAxis> window, std::span<const Expr> positions,
                std::span<const Expr> taps) {
  WindowTap tap;
  for (size_t i = 0; i < window.size(); ++i) {
    tap.places.push_back(window[i].Place(positions[i], taps[i]));
    tap.within = And(tap.within, window[i].Within(tap.places.back()));
  }
  return tap;
}

Shape WindowOutput(std::span<const WindowAxis> window) {
  Shape shape;
  for (const WindowAxis& axis : window) shape.push_back(axis.output);
  return shape;
}

Shape WindowKernel(std::span<const WindowAxis> window) {
  Shape shape;
  for (const WindowAxis& axis : window) shape.push_back(axis.kernel);
  return shape;
}

std::vector<FixedTap> FixedTaps(std::span<const WindowAxis> window,
                                std::span<const int64_t> position) {
  std::vector<FixedTap> taps;
  int64_t index = 0;
  ForEachIndex(ConstantShape(WindowKernel(window)), [&](const Dims& tap) {
    FixedTap fixed{.tap = index++, .place = {}};
    bool within = true;
    for (size_t i = 0; i < window.size(); ++i) {
      const WindowAxis& axis = window[i];
      const int64_t place =
          position[i] * axis.stride + tap[i] * axis.dilation - *axis.pad_begin.constant();
      within = within && place >= 0 && place < *axis.input.constant();
      fixed.place.push_back(place);
    }
    if (within) taps.push_back(std::move(fixed));
  });
  return taps;
}

}  // namespace stampmill
