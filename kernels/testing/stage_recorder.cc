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
  steps_.push_back({.kind = Step::Kind::kStage, .index = stages_.size()});
  stages_.push_back({std::move(nest), std::move(operands), {output}});
}

void StageRecorder::EmitContraction(Contraction contraction, std::vector<ValueId> operands,
                                    ValueId output) {
  steps_.push_back({.kind = Step::Kind::kStage, .index = stages_.size()});
  stages_.push_back({std::move(contraction), std::move(operands), {output}});
}

void StageRecorder::EmitLibrary(Library library, std::vector<ValueId> operands,
                                std::vector<ValueId> outputs) {
  steps_.push_back({.kind = Step::Kind::kStage, .index = stages_.size()});
  stages_.push_back({std::move(library), std::move(operands), std::move(outputs)});
}

void StageRecorder::EmitAlias(ValueId input, ValueId output) {
  steps_.push_back({.kind = Step::Kind::kAlias, .index = aliases_.size()});
  aliases_.push_back({input, output});
}

ValueId StageRecorder::NewSlice(ValueId base, Shape shape, const DimExpr& offset,
                                absl::string_view name) {
  const ValueId id = NewValue(graph_.value(base).dtype, std::move(shape), name);
  slices_[id] = {base, offset};
  return id;
}

DimExpr StageRecorder::BeginRepeat(const DimExpr& trips) {
  const std::string symbol = absl::StrCat("step ", steps_.size());
  steps_.push_back({.kind = Step::Kind::kBegin, .count = trips, .symbol = symbol});
  return DimExpr::Symbol(symbol);
}

void StageRecorder::EndRepeat() { steps_.push_back({.kind = Step::Kind::kEnd}); }

void StageRecorder::EmitRead(ValueId scalar, absl::string_view symbol, const DimExpr& limit) {
  steps_.push_back(
      {.kind = Step::Kind::kRead, .count = limit, .symbol = std::string(symbol), .value = scalar});
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

absl::StatusOr<Tensor> StageRecorder::ValueOf(ValueId id, std::vector<Tensor>& values,
                                              const DimExpr::SymbolValue& symbol) const {
  if (slices_.contains(id)) return TargetOf(id, values, symbol);
  const size_t place = static_cast<size_t>(id);
  if (place < values.size() && values[place].valid()) return values[place];
  if (graph_.value(id).constant.has_value()) return *graph_.value(id).constant;
  return absl::InternalError(
      absl::StrCat("value '", graph_.value(id).name, "' is read before it is written"));
}

absl::StatusOr<Tensor> StageRecorder::TargetOf(ValueId id, std::vector<Tensor>& values,
                                               const DimExpr::SymbolValue& symbol) const {
  ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(id, symbol));
  const DType dtype = graph_.value(id).dtype;
  if (const auto slice = slices_.find(id); slice != slices_.end()) {
    ASSIGN_OR_RETURN(const Tensor base, TargetOf(slice->second.base, values, symbol));
    ASSIGN_OR_RETURN(const int64_t offset, slice->second.offset.Evaluate(symbol));
    ASSIGN_OR_RETURN(const int64_t bytes, TensorSizeBytes(dtype, dims));
    const auto begin = static_cast<size_t>(offset) * SizeBytes(dtype);
    if (offset < 0 || begin + static_cast<size_t>(bytes) > base.bytes().size()) {
      return absl::InternalError(
          absl::StrCat("slice '", graph_.value(id).name, "': offset ", offset));
    }
    return Tensor::View(dtype, std::move(dims),
                        base.bytes().subspan(begin, static_cast<size_t>(bytes)),
                        std::make_shared<Tensor>(base));
  }
  Tensor& tensor = values[static_cast<size_t>(id)];
  if (!tensor.valid()) {
    ASSIGN_OR_RETURN(tensor, Tensor::Allocate(dtype, std::move(dims)));
    // What no stage writes must not pass for a zero.
    std::ranges::fill(tensor.mutable_bytes(), std::byte{0x55});
  }
  return tensor;
}

// As the compiler does: dims by name, since it knows no request's.
absl::Status StageRecorder::CheckShapes(std::span<const Operand> operands,
                                        std::span<const ValueId> ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    const Value& value = graph_.value(ids[i]);
    if (operands[i].dtype == value.dtype && operands[i].shape == *value.shape) continue;
    return absl::InternalError(absl::StrCat("value '", value.name, "' is ", ToString(*value.shape),
                                            ", to a stage ", ToString(operands[i].shape)));
  }
  return absl::OkStatus();
}

absl::Status StageRecorder::RunStage(const Stage& stage, std::vector<Tensor>& values,
                                     const DimExpr::SymbolValue& symbol) const {
  RETURN_IF_ERROR(Verify(stage.body));
  const auto operands_of = [](const auto& body) { return std::span(body.operands); };
  RETURN_IF_ERROR(CheckShapes(std::visit(operands_of, stage.body), stage.operands));
  std::vector<Tensor> operands;
  for (const ValueId id : stage.operands) {
    ASSIGN_OR_RETURN(Tensor operand, ValueOf(id, values, symbol));
    operands.push_back(std::move(operand));
  }
  std::vector<Tensor> outputs;
  for (const ValueId id : stage.outputs) {
    ASSIGN_OR_RETURN(Tensor output, TargetOf(id, values, symbol));
    outputs.push_back(std::move(output));
  }
  return RunTestStage(stage.body, operands, outputs, symbol);
}

absl::Status StageRecorder::RunAlias(const Alias& alias, std::vector<Tensor>& values,
                                     const DimExpr::SymbolValue& symbol) const {
  ASSIGN_OR_RETURN(const Tensor input, ValueOf(alias.input, values, symbol));
  ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(alias.output, symbol));
  ASSIGN_OR_RETURN(values[static_cast<size_t>(alias.output)],
                   Tensor::View(graph_.value(alias.output).dtype, std::move(dims), input.bytes(),
                                std::make_shared<Tensor>(input)));
  return absl::OkStatus();
}

absl::StatusOr<size_t> StageRecorder::RunSteps(size_t first, std::vector<Tensor>& values,
                                               const DimExpr::SymbolValue& symbol,
                                               Read& read) const {
  for (size_t i = first; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    switch (step.kind) {
      case Step::Kind::kStage:
        RETURN_IF_ERROR(RunStage(stages_[step.index], values, symbol));
        break;
      case Step::Kind::kAlias:
        RETURN_IF_ERROR(RunAlias(aliases_[step.index], values, symbol));
        break;
      case Step::Kind::kEnd:
        return i;
      case Step::Kind::kRead: {
        ASSIGN_OR_RETURN(const Tensor scalar, ValueOf(step.value, values, symbol));
        ASSIGN_OR_RETURN(const int64_t limit, step.count.Evaluate(symbol));
        read[step.symbol] = std::clamp<int64_t>(scalar.ValueAsInt64(0), 0, limit);
        break;
      }
      case Step::Kind::kBegin: {
        ASSIGN_OR_RETURN(const int64_t count, step.count.Evaluate(symbol));
        size_t end = i + 1;
        for (int depth = 1; depth > 0; ++end) {
          depth += steps_[end].kind == Step::Kind::kBegin ? 1 : 0;
          depth -= steps_[end].kind == Step::Kind::kEnd ? 1 : 0;
        }
        for (int64_t trip = 0; trip < count; ++trip) {
          const auto inner = [&](absl::string_view name) -> std::optional<int64_t> {
            return name == step.symbol ? trip : symbol(name);
          };
          RETURN_IF_ERROR(RunSteps(i + 1, values, inner, read).status());
        }
        i = end - 1;
        break;
      }
    }
  }
  return steps_.size();
}

absl::Status StageRecorder::Run(std::vector<Tensor>& values,
                                const DimExpr::SymbolValue& symbol) const {
  values.resize(graph_.value_count());
  Read read;
  const auto known = [&](absl::string_view name) -> std::optional<int64_t> {
    const auto found = read.find(std::string(name));
    return found == read.end() ? symbol(name) : found->second;
  };
  return RunSteps(0, values, known, read).status();
}

}  // namespace stampmill
