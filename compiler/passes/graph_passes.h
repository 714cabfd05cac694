// Passes over the graph, before lowering. Each leaves a graph that verifies and, unless it says
// otherwise, has shapes.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "graph/graph.h"

namespace stampmill {

// BatchNormalization with constant statistics over the output of a Conv that nothing else reads
// becomes part of the Conv's weights and bias.
absl::Status FoldBatchNormalization(Graph& graph);

// Operators that have a channels-last form (domain "stampmill") take it, between transposes; these
// are then moved down through whatever works on any layout and cancel where two meet, so that
// activations keep one layout from the first convolution to the last.
absl::Status UseChannelsLast(Graph& graph);

// MatMul, Gemm and Conv of dequantised operands become products of the integers themselves, scaled
// afterwards. To be run before shapes are inferred, which folds dequantised weights.
absl::Status FoldQuantization(Graph& graph);

// Block-quantised weights are brought into panels of `panel` rows, which all their uses share, and
// products of them become products of blocks. To be run before shapes are inferred.
absl::Status FoldBlocks(Graph& graph, int64_t panel);

// Nodes that compute the same from the same are one.
absl::Status MergeEqualNodes(Graph& graph);

}  // namespace stampmill
