// Convolution by Winograd's minimal filtering: along an axis of stride 1, four outputs of a kernel
// of r take r + 3 products in place of 4 r. Inputs and sums are transformed by small nests around a
// batched contraction; the weights are when compiling.
#pragma once

#include "absl/status/status.h"
#include "kernels/op.h"

namespace stampmill {

// Whether the node is a dense f32 Conv, channels last, of constant weights, on which it pays; with
// LowerOptions::bf16_products on none.
bool WinogradPays(const LowerContext& context);
// REQUIRES: WinogradPays(context).
absl::Status LowerConvWinograd(LowerContext& context);

}  // namespace stampmill
