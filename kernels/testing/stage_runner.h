// How the harness of operator tests runs a stage. Linked in, one of two: the nest interpreter
// (interpreted_stages.cc), or the code generator (compiler/llvm/compiled_stages.cc), so that every
// operator test is also a test of the code that is made from its stages.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "graph/dim.h"
#include "graph/dtype.h"
#include "graph/nest.h"
#include "graph/tensor.h"

namespace stampmill {

// Runs a stage that Verify accepts. `outputs` are allocated; what the stage does not write stays.
absl::Status RunTestStage(const StageBody& body, std::span<const Tensor> operands,
                          std::span<Tensor> outputs, const DimExpr::SymbolValue& symbol);

// The target that lowerings are made for, and its panel width.
std::string TestTarget();
int64_t TestPanel(const DimExpr& n, DType accumulator, absl::string_view target);

}  // namespace stampmill
