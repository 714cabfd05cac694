// Stages of operator tests as compiled code: simplified, compiled for this machine, run on guarded
// buffers. Equal stages are compiled once.
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/status_macros.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/kernel_harness.h"
#include "devices/target.h"
#include "kernels/testing/stage_runner.h"

namespace stampmill {

absl::Status RunTestStage(const StageBody& body, std::span<const Tensor> operands,
                          std::span<Tensor> outputs, const DimExpr::SymbolValue& symbol) {
  static auto& compiled = *new absl::flat_hash_map<std::string, CompiledStage>;
  const StageBody simple = Simplify(body);
  RETURN_IF_ERROR(Verify(simple));
  std::vector<DimExpr> dims;
  const std::string key = CanonicalBytes(simple, &dims);
  auto found = compiled.find(key);
  if (found == compiled.end()) {
    ASSIGN_OR_RETURN(CompiledStage stage, CompiledStage::Compile(simple, Target::HostCpu()));
    found = compiled.emplace(key, std::move(stage)).first;
  }
  return found->second.WithBody(simple).Run(operands, outputs, symbol, {});
}

std::string TestTarget() { return Target::HostCpu().ToString(); }

int64_t TestPanel(const DimExpr& n, DType accumulator, absl::string_view) {
  return PanelWidth(n, accumulator, Target::HostCpu());
}

}  // namespace stampmill
