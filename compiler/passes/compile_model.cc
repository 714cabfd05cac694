#include "compiler/passes/compile_model.h"

#include <utility>

#include "base/status_macros.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/passes/build_program.h"
#include "compiler/passes/control_flow.h"
#include "compiler/passes/fuse.h"
#include "compiler/passes/graph_passes.h"
#include "compiler/passes/stage_graph.h"
#include "kernels/op.h"

namespace stampmill {
namespace {

int64_t Panel(const DimExpr& n, DType dtype, absl::string_view target) {
  const absl::StatusOr<Target> parsed = Target::Parse(target);
  return PanelWidth(n, dtype, parsed.value_or(Target()));
}

}  // namespace

absl::StatusOr<CompiledModel> CompileModel(Graph graph, const PassOptions& options) {
  const BlockOptions block_options = {
      .panel = PanelWidth(1, DType::kF32, options.target),  // as many rows as a vector has lanes
      .exact_rows = options.exact_rows,
      .has_wide_rows = [&](BlockFormat format) { return HasWideRows(format, options.target); }};
  RETURN_IF_ERROR(ApplyToBodies(graph, FoldQuantization));
  RETURN_IF_ERROR(
      ApplyToBodies(graph, [&](Graph& part) { return FoldBlocks(part, block_options); }));
  ASSIGN_OR_RETURN(graph, ResolveControlFlow(graph));
  RETURN_IF_ERROR(ApplyToBodies(graph, MergeEqualNodes));
  RETURN_IF_ERROR(ApplyToBodies(graph, FoldBatchNormalization));
  if (options.channels_last) RETURN_IF_ERROR(ApplyToBodies(graph, UseChannelsLast));
  // Again: passes have made nodes, and what they made of constants is folded here.
  RETURN_IF_ERROR(ApplyToBodies(graph, [](Graph& part) -> absl::Status {
    part.RemoveDeadNodes();
    RETURN_IF_ERROR(InferShapes(part, {}));
    return part.Verify();
  }));
  CollectBodyChecks(graph);
  ASSIGN_OR_RETURN(StageGraph stages,
                   LowerGraph(graph, {.panel = Panel,
                                      .target = options.target.ToString(),
                                      .bf16_products = options.bf16_products,
                                      .exact_rows = options.exact_rows,
                                      .has_byte_products = options.target.has_vnni()}));
  if (options.fuse) {
    FuseStages(stages);
    RETURN_IF_ERROR(Verify(stages));
  }
  RemoveUnreadStages(stages);
  ASSIGN_OR_RETURN(CompiledModel model, BuildProgram(stages, graph, options));
  model.program.model_name = graph.name;
  return model;
}

}  // namespace stampmill
