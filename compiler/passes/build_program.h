// From stages to the program: kernels without duplicates, buffers, lifetimes, dims, packed weights.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/passes/compile_model.h"
#include "compiler/passes/stage_graph.h"

namespace stampmill {

// UNIMPLEMENTED when a size is known only from data.
absl::StatusOr<CompiledModel> BuildProgram(const StageGraph& stages,
                                           std::span<const DimCheck> checks,
                                           const PassOptions& options);

}  // namespace stampmill
