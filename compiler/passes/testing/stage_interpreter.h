// Runs a stage graph with the reference interpreter of stages: what tests of passes compare before
// and after, and with the references of the operators.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/passes/stage_graph.h"
#include "graph/tensor.h"

namespace stampmill {

// `inputs` in the order of stages.inputs; their shapes give the symbols' values, and `symbols`
// those of others, by name. Results are in the order of stages.outputs.
absl::StatusOr<std::vector<Tensor>> InterpretStages(
    const StageGraph& stages, std::span<const Tensor> inputs,
    const std::map<std::string, int64_t>& symbols = {});

}  // namespace stampmill
