// The skeletons as machine code of this build and as bitcode. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "graph/dim.h"
#include "graph/nest.h"
#include "graph/tensor.h"

namespace stampmill {

// Runs one task; skeleton.h says of what.
using SkeletonFunction = void (*)(const int64_t* configuration, const int64_t* dims,
                                  void* const* buffers, void* scratch, int64_t task);
// Null when there is no such skeleton.
SkeletonFunction FindSkeleton(absl::string_view name);

// Runs all tasks of a stage, one after the other: the reference interpreter of Library stages.
// Tensors as for InterpretStage (graph/nest_interpreter.h). INTERNAL for a stage that does not fit.
absl::Status RunSkeleton(const Library& library, std::span<const Tensor> operands,
                         std::span<Tensor> outputs, const DimExpr::SymbolValue& symbols);

// LLVM modules for x86-64, in which each skeleton is a function "stampmill_skeleton_NAME" of the
// arguments above, to be specialised, inlined and retargeted by attributes.
std::span<const std::span<const std::byte>> SkeletonBitcode();

}  // namespace stampmill
