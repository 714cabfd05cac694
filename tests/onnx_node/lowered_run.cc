#include "tests/onnx_node/lowered_run.h"

#include <algorithm>
#include <memory>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/passes/control_flow.h"
#include "compiler/passes/stage_graph.h"
#include "compiler/passes/testing/stage_interpreter.h"
#include "kernels/op.h"
#include "kernels/shape_rules.h"
#include "kernels/testing/stage_recorder.h"
#include "kernels/testing/stage_runner.h"

namespace stampmill {
namespace {

// What runs, or how much of it, is known on the way.
bool DependsOnData(const Graph& graph) {
  for (const NodeId id : graph.Order()) {
    if (CountsItsResult(graph.node(id))) return true;
    for (const auto& [name, attribute] : graph.node(id).attributes) {
      if (std::holds_alternative<std::shared_ptr<const Graph>>(attribute)) return true;
    }
  }
  return false;
}

// Lowered as one graph.
absl::StatusOr<std::vector<Tensor>> RunTogether(const Graph& graph, std::span<const Tensor> inputs,
                                                const Symbols& symbols) {
  ASSIGN_OR_RETURN(Graph resolved, ResolveControlFlow(graph));
  CollectBodyChecks(resolved);
  Symbols values = symbols;
  for (const ValueSymbol& symbol : resolved.value_symbols()) {
    const auto at = std::find(resolved.inputs().begin(), resolved.inputs().end(), symbol.input);
    const Tensor& tensor = inputs[static_cast<size_t>(at - resolved.inputs().begin())];
    values[symbol.name] = tensor.ValueAsInt64(symbol.element);
  }
  for (const DimCheck& check : resolved.checks()) {
    const absl::StatusOr<int64_t> holds = check.nonzero.Evaluate(ValuesOf(values));
    // One that depends on what a step sets is checked on the way.
    if (holds.ok() && *holds == 0) return absl::InvalidArgumentError(check.message);
  }
  ASSIGN_OR_RETURN(const StageGraph stages,
                   LowerGraph(resolved, {.panel = TestPanel, .target = TestTarget()}));
  return InterpretStages(stages, inputs, values);
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> RunLowered(Graph graph, std::span<const Tensor> inputs,
                                               const Symbols& symbols, bool fold) {
  if (DependsOnData(graph)) return RunTogether(graph, inputs, symbols);
  InferOptions options;
  options.fold_constants = fold;
  RETURN_IF_ERROR(InferShapes(graph, options));
  const DimExpr::SymbolValue symbol = ValuesOf(symbols);
  for (const DimCheck& check : graph.checks()) {
    ASSIGN_OR_RETURN(const int64_t holds, check.nonzero.Evaluate(symbol));
    if (holds == 0) return absl::InvalidArgumentError(check.message);
  }
  std::vector<Tensor> values(graph.value_count());
  for (size_t i = 0; i < inputs.size(); ++i) {
    values[static_cast<size_t>(graph.inputs()[i])] = inputs[i];
  }
  for (const NodeId id : graph.Order()) {
    ASSIGN_OR_RETURN(const OpDefinition* op, RequireOp(graph.node(id)));
    StageRecorder recorder(graph, id);
    RETURN_IF_ERROR(LowerNode(*op, recorder));
    RETURN_IF_ERROR(recorder.Run(values, symbol));
  }
  std::vector<Tensor> outputs;
  for (const ValueId id : graph.outputs()) {
    const Tensor& tensor = values[static_cast<size_t>(id)];
    const Value& value = graph.value(id);
    if (!tensor.valid() && !value.constant.has_value()) {
      return absl::InternalError(absl::StrCat("output '", value.name, "' is not written"));
    }
    outputs.push_back(tensor.valid() ? tensor : *value.constant);
  }
  return outputs;
}

}  // namespace stampmill
