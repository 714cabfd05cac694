#include "kernels/testing/stage_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/testing/stage_runner.h"

namespace stampmill {
StageRecorder::StageRecorder(Graph& graph, NodeId node)
    : graph_(graph), node_(node), options_{.panel = TestPanel, .target = TestTarget()} {}

ValueId StageRecorder::NewValue(DType dtype, Shape shape, absl::string_view name) {
  Value value;
  value.name = std::string(name);
  value.dtype = dtype;
  value.shape = std::move(shape);
  return graph_.AddValue(std::move(value));
}

ValueId StageRecorder::NewConstant(Tensor tensor, absl::string_view name) {
  return graph_.AddConstant(name, std::move(tensor));
}

void StageRecorder::EmitNest(Nest nest, std::vector<ValueId> operands, ValueId output) {
  steps_.push_back({false, stages_.size()});
  stages_.push_back({std::move(nest), std::move(operands), {output}});
}

void StageRecorder::EmitContraction(Contraction contraction, std::vector<ValueId> operands,
                                    ValueId output) {
  steps_.push_back({false, stages_.size()});
  stages_.push_back({std::move(contraction), std::move(operands), {output}});
}

void StageRecorder::EmitLibrary(Library library, std::vector<ValueId> operands,
                                std::vector<ValueId> outputs) {
  steps_.push_back({false, stages_.size()});
  stages_.push_back({std::move(library), std::move(operands), std::move(outputs)});
}

void StageRecorder::EmitAlias(ValueId input, ValueId output) {
  steps_.push_back({true, aliases_.size()});
  aliases_.push_back({input, output});
}

absl::StatusOr<std::vector<int64_t>> StageRecorder::DimsOf(
    ValueId id, const DimExpr::SymbolValue& symbol) const {
  std::vector<int64_t> dims;
  for (const DimExpr& dim : *graph_.value(id).shape) {
    ASSIGN_OR_RETURN(const int64_t extent, dim.Evaluate(symbol));
    dims.push_back(extent);
  }
  return dims;
}

absl::StatusOr<Tensor> StageRecorder::ValueOf(ValueId id, const std::vector<Tensor>& values) const {
  const size_t place = static_cast<size_t>(id);
  if (place < values.size() && values[place].valid()) return values[place];
  if (graph_.value(id).constant.has_value()) return *graph_.value(id).constant;
  return absl::InternalError(
      absl::StrCat("value '", graph_.value(id).name, "' is read before it is written"));
}

absl::Status StageRecorder::RunStage(const Stage& stage, std::vector<Tensor>& values,
                                     const DimExpr::SymbolValue& symbol) const {
  RETURN_IF_ERROR(Verify(stage.body));
  std::vector<Tensor> operands;
  for (const ValueId id : stage.operands) {
    ASSIGN_OR_RETURN(Tensor operand, ValueOf(id, values));
    operands.push_back(std::move(operand));
  }
  std::vector<Tensor> outputs;
  for (const ValueId id : stage.outputs) {
    Tensor& output = values[static_cast<size_t>(id)];
    if (!output.valid()) {
      ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(id, symbol));
      ASSIGN_OR_RETURN(output, Tensor::Allocate(graph_.value(id).dtype, std::move(dims)));
      // What no stage writes must not pass for a zero.
      std::ranges::fill(output.mutable_bytes(), std::byte{0x55});
    }
    outputs.push_back(output);
  }
  return RunTestStage(stage.body, operands, outputs, symbol);
}

absl::Status StageRecorder::Run(std::vector<Tensor>& values,
                                const DimExpr::SymbolValue& symbol) const {
  values.resize(graph_.value_count());
  for (const Step& step : steps_) {
    if (!step.is_alias) {
      RETURN_IF_ERROR(RunStage(stages_[step.index], values, symbol));
      continue;
    }
    const Alias& alias = aliases_[step.index];
    ASSIGN_OR_RETURN(const Tensor input, ValueOf(alias.input, values));
    ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(alias.output, symbol));
    ASSIGN_OR_RETURN(values[static_cast<size_t>(alias.output)],
                     Tensor::View(graph_.value(alias.output).dtype, std::move(dims), input.bytes(),
                                  std::make_shared<Tensor>(input)));
  }
  return absl::OkStatus();
}

}  // namespace stampmill
