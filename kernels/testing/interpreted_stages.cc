// Stages of operator tests under the nest interpreter.
#include "graph/nest_interpreter.h"
#include "kernels/skeletons/skeletons.h"
#include "kernels/testing/stage_runner.h"

namespace stampmill {

absl::Status RunTestStage(const StageBody& body, std::span<const Tensor> operands,
                          std::span<Tensor> outputs, const DimExpr::SymbolValue& symbol) {
  if (const Library* library = std::get_if<Library>(&body)) {
    return RunSkeleton(*library, operands, outputs, symbol);
  }
  return InterpretStage(body, operands, outputs, symbol);
}

std::string TestTarget() { return "cpu:x86-64"; }

// Small, so that small tests have whole and partial panels.
int64_t TestPanel(const DimExpr&, DType, absl::string_view) { return 4; }

}  // namespace stampmill
