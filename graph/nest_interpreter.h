// The reference interpreter of stages: plain loops in row-major order over expressions, with the
// exact meaning of every operation (graph/expr_op.h). It is what generated code is compared with,
// and what packs and folds weights at compile time.
//
// Every load and store is checked against the operand's shape: one outside it is INTERNAL and names
// the operand, for it is a lowering that is wrong. Stateless; thread-safe.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "graph/dim.h"
#include "graph/nest.h"
#include "graph/tensor.h"

namespace stampmill {

// Runs one stage. `operands[i]` is operand i of the stage and has its dtype and as many elements as
// its shape; so has `output`, which was made by Tensor::Allocate: what the stage does not write
// keeps its contents. INTERNAL for a stage that does not verify or whose tensors do not fit, and
// the errors of DimExpr::Evaluate.
absl::Status Interpret(const Nest& nest, std::span<const Tensor> operands, Tensor& output,
                       const DimExpr::SymbolValue& symbols);
absl::Status Interpret(const Contraction& contraction, std::span<const Tensor> operands,
                       Tensor& output, const DimExpr::SymbolValue& symbols);

// Either of them; UNIMPLEMENTED for Library stages, which have references of their own.
absl::Status InterpretStage(const StageBody& body, std::span<const Tensor> operands,
                            std::span<Tensor> outputs, const DimExpr::SymbolValue& symbols);

}  // namespace stampmill
