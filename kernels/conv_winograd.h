// Convolution by Winograd's minimal filtering: along an axis of stride 1, four outputs of a kernel
// of r take r + 3 products in place of 4 r. Inputs and sums are transformed by small nests around a
// batched contraction; the weights are when compiling.
//
// Of floats, and of bytes on targets that have no faster product of them than of pairs of 16 bits:
// sums are the same then, bit for bit.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/expr.h"
#include "graph/tensor.h"
#include "kernels/op.h"
#include "kernels/stage_builder.h"
#include "kernels/window.h"

namespace stampmill {

// A dense convolution, channels last.
struct WinogradConv {
  size_t x = 0;    // the input of the node: f32, u8 or i8
  Tensor weights;  // [M, C, kernel...]: f32, or integers, their zero points subtracted
  std::vector<WindowAxis> window;
  // Of bytes: the zero point of x in its own dtype; invalid: none.
  std::function<Expr(StageOperands&)> zero;
  // What becomes of a sum, f32 or i32, at an output channel.
  std::function<absl::StatusOr<Expr>(StageOperands&, const Expr& sum, const Expr& channel)> result;
};

// Whether it can be transformed and that pays; with LowerOptions::bf16_products it never does.
bool WinogradPays(const LowerContext& context, const WinogradConv& conv);
// REQUIRES: WinogradPays(context, conv).
absl::Status LowerWinograd(LowerContext& context, WinogradConv conv);

}  // namespace stampmill
