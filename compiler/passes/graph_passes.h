// Passes over the graph, before lowering. Each leaves a graph that verifies and, unless it says
// otherwise, has shapes.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "graph/block_format.h"
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

struct BlockOptions {
  int64_t panel = 0;        // rows of a panel
  bool exact_rows = false;  // LowerOptions::exact_rows
  // Whether products with weights of a format take wide records (graph/row_records.h).
  std::function<bool(BlockFormat)> has_wide_rows;
};
// Block-quantised weights are brought into panels, which all their uses share, and products of them
// become products of blocks. The rows that they multiply are rounded once for all that need the
// same, unless they stay exact. To be run before shapes are inferred.
absl::Status FoldBlocks(Graph& graph, const BlockOptions& options);

// Nodes that compute the same from the same are one.
absl::Status MergeEqualNodes(Graph& graph);

}  // namespace stampmill
