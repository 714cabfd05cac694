// A graph run by its lowerings under the nest interpreter, without a compiler.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/tensor.h"
#include "tests/onnx_node/attempts.h"

namespace stampmill {

// A FormExecutor: every node is inferred, lowered and run on inputs in the order of graph.inputs().
absl::StatusOr<std::vector<Tensor>> RunLowered(Graph graph, std::span<const Tensor> inputs,
                                               const Symbols& symbols, bool fold);

}  // namespace stampmill
