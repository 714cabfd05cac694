#include "runtime/reference_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/import.h"
#include "compiler/passes/compile_model.h"
#include "compiler/passes/control_flow.h"
#include "compiler/passes/pass_options.h"
#include "compiler/program/program.h"
#include "graph/dim.h"
#include "kernels/op.h"

namespace stampmill {
namespace {

InspectedTensor DescribeTensor(const Value& value, const std::string& name) {
  InspectedTensor tensor{.name = name,
                         .dtype = value.dtype == DType::kInvalid ? std::string("unknown")
                                                                 : std::string(Name(value.dtype)),
                         .shape = {}};
  if (!value.shape.has_value()) {
    tensor.shape = {"?"};
    return tensor;
  }
  for (const DimExpr& dim : *value.shape) tensor.shape.push_back(dim.ToString());
  return tensor;
}

std::vector<InspectedOperator> DescribeOperators(const Graph& graph) {
  std::map<std::pair<std::string, std::string>, int64_t> counts;
  for (const NodeId id : graph.Order()) {
    ++counts[{graph.node(id).domain, graph.node(id).op_type}];
  }
  std::vector<InspectedOperator> operators;
  for (const auto& [name, count] : counts) {
    InspectedOperator op{.domain = name.first, .op_type = name.second, .count = count};
    op.supported = FindOp(op.domain, op.op_type) != nullptr;
    if (!op.supported) op.reason = "unknown operator";
    operators.push_back(std::move(op));
  }
  return operators;
}

// The arena of one request whose every open dim is 1; -1 when a size cannot be computed.
int64_t WorkspaceBytes(const Program& program) {
  std::vector<int64_t> dims(program.dims.size(), 1);
  if (EvaluateDims(program.dims, program.symbols.size(), dims) >= 0) return -1;
  std::vector<int64_t> sizes(program.buffers.size(), 0), offsets(program.buffers.size(), 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int32_t place = program.buffers[i].size_place;
    if (place >= 0) sizes[i] = dims[static_cast<size_t>(place)];
  }
  MemoryPlanScratch scratch;
  return PlanMemory(program, sizes, offsets, scratch);
}

void DescribeCompiled(const Graph& graph, const PassOptions& options, ModelInspection& inspection) {
  const absl::StatusOr<CompiledModel> compiled = CompileModel(graph, options);
  if (!compiled.ok()) {
    inspection.problem = std::string(compiled.status().message());
    return;
  }
  const Program& program = compiled->program;
  inspection.kernels = static_cast<int64_t>(compiled->kernels.size());
  inspection.launches = std::count_if(
      program.commands.begin(), program.commands.end(),
      [](const auto& command) { return command.kind == ProgramCommand::Kind::kLaunch; });
  inspection.weight_bytes = program.weights_size;
  inspection.workspace_bytes = WorkspaceBytes(program);
  inspection.batch_symbol = program.batch_symbol;
  inspection.batch_reason = program.batch_reason;
}

}  // namespace

absl::StatusOr<ReferenceModel> ReferenceModel::Open(const std::string& path) {
  ASSIGN_OR_RETURN(ImportedModel imported, ImportModel(path));
  ReferenceModel model;
  model.graph_ = std::move(imported.graph);
  model.external_files_ = std::move(imported.external_files);
  return model;
}

absl::StatusOr<std::vector<Tensor>> ReferenceModel::Run(const std::map<std::string, Tensor>& inputs,
                                                        const InterpretOptions& options) const {
  std::vector<Tensor> ordered;
  for (const ValueId id : graph_.inputs()) {
    const std::string& name = graph_.value(id).name;
    const auto found = inputs.find(name);
    if (found == inputs.end()) {
      return absl::InvalidArgumentError(absl::StrCat("input '", name, "': missing"));
    }
    ordered.push_back(found->second);
  }
  return Interpret(graph_, ordered, options);
}

absl::StatusOr<ModelInspection> InspectModel(const std::string& path, absl::string_view target,
                                             absl::string_view options) {
  ASSIGN_OR_RETURN(const PassOptions parsed, ParsePassOptions(target, options));
  ASSIGN_OR_RETURN(const ReferenceModel model, ReferenceModel::Open(path));
  const Graph& graph = model.graph();
  ModelInspection inspection{.name = graph.name, .producer = graph.producer};
  inspection.ir_version = graph.ir_version;
  inspection.opsets = {graph.opsets.begin(), graph.opsets.end()};
  inspection.operators = DescribeOperators(graph);
  inspection.external_files = model.external_files();
  for (size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (!value.constant.has_value() || value.producer >= 0) continue;
    inspection.parameters += value.constant->element_count();
    inspection.parameter_bytes += value.constant->bytes().size();
  }
  for (const ValueId id : graph.inputs()) {
    inspection.inputs.push_back(DescribeTensor(graph.value(id), graph.value(id).name));
  }
  // Shapes of outputs are inferred; where that fails, DescribeCompiled says why.
  const Graph inferred = ResolveControlFlow(graph).value_or(graph);
  for (size_t i = 0; i < inferred.outputs().size(); ++i) {
    inspection.outputs.push_back(
        DescribeTensor(inferred.value(inferred.outputs()[i]), inferred.output_names()[i]));
  }
  DescribeCompiled(graph, parsed, inspection);
  return inspection;
}

}  // namespace stampmill
