// From stages to the program: kernels without duplicates, buffers, lifetimes, dims, packed weights.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/passes/compile_model.h"
#include "compiler/passes/stage_graph.h"

namespace stampmill {

// `graph` is what the stages were lowered from: its checks and index bounds are taken over.
// UNIMPLEMENTED when a size is known only from data.
absl::StatusOr<CompiledModel> BuildProgram(const StageGraph& stages, const Graph& graph,
                                           const PassOptions& options);

}  // namespace stampmill
