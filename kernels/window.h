// Sliding windows over the spatial axes of an activation, as convolutions and pools have them:
// attributes read, pads resolved, output extents, and where a tap of a window lies in the input.
// With fixed extents all results are fixed: references use the same numbers. Stateless.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/dim.h"
#include "graph/expr.h"
#include "graph/graph.h"
#include "kernels/op.h"

namespace stampmill {

struct WindowAxis {
  DimExpr input;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  DimExpr pad_begin = 0;
  DimExpr pad_end = 0;
  bool ceil_mode = false;
  DimExpr output;

  // Extent of the window with its gaps.
  int64_t span() const { return (kernel - 1) * dilation + 1; }
  // Whether taps can lie before the input's begin or past its end.
  bool crosses_begin() const { return !pad_begin.IsConstant(0); }
  bool crosses_end() const { return ceil_mode || !pad_end.IsConstant(0); }

  // Where tap `tap` of the window at `position` lies in the input.
  Expr Place(const Expr& position, const Expr& tap) const;
  // That it lies within; invalid when it always does.
  Expr Within(const Expr& place) const;
};

// A window's taps along all axes: places, and the condition that all are within (invalid: always).
struct WindowTap {
  std::vector<Expr> places;
  Expr within;
};
WindowTap TapAt(std::span<const WindowAxis> window, std::span<const Expr> positions,
                std::span<const Expr> taps);

// Reads kernel_shape (when `kernel` is empty: it is required then, else it must agree), strides,
// dilations, pads, auto_pad and ceil_mode. INVALID_ARGUMENT names node, attribute, value.
absl::StatusOr<std::vector<WindowAxis>> ReadWindow(const Node& node,
                                                   std::span<const DimExpr> input_space,
                                                   std::span<const int64_t> kernel);

// Extents, for shapes.
Shape WindowOutput(std::span<const WindowAxis> window);
Shape WindowKernel(std::span<const WindowAxis> window);
// Demands that every window fits into the padded input.
absl::Status CheckWindow(InferContext& context, std::span<const WindowAxis> window);

// For references. REQUIRES: fixed extents.
struct FixedTap {
  int64_t tap = 0;             // row-major index within the kernel
  std::vector<int64_t> place;  // spatial coordinates in the input
};
// The taps of the window at `position` that lie within the input, in row-major order.
std::vector<FixedTap> FixedTaps(std::span<const WindowAxis> window,
                                std::span<const int64_t> position);

// The ints of an attribute that has one for each spatial axis; `otherwise` for each when absent.
// INVALID_ARGUMENT for another count or a value below `least`.
absl::StatusOr<std::vector<int64_t>> SpatialInts(const Node& node, absl::string_view attribute,
                                                 size_t count, int64_t otherwise, int64_t least);

enum class AutoPad { kNotSet, kValid, kSameUpper, kSameLower };
absl::StatusOr<AutoPad> ReadAutoPad(const Node& node);

}  // namespace stampmill
