#include "compiler/passes/testing/stage_interpreter.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/status_macros.h"
#include "graph/nest_interpreter.h"

namespace stampmill {
namespace {

class Run {
 public:
  explicit Run(const StageGraph& stages) : stages_(stages), values_(stages.values.size()) {}

  absl::Status Bind(std::span<const Tensor> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId id = stages_.inputs[i];
      const Shape& shape = stages_.value(id).shape;
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        if (shape[axis].kind() == DimExpr::Kind::kSymbol) {
          symbols_[std::string(shape[axis].symbol_name())] = inputs[i].shape()[axis];
        }
      }
      values_[static_cast<size_t>(id)] = inputs[i];
    }
    return absl::OkStatus();
  }

  absl::Status RunStage(const Stage& stage) {
    std::vector<Tensor> operands;
    for (ValueId id : stage.operands) {
      ASSIGN_OR_RETURN(Tensor operand, Read(id));
      operands.push_back(std::move(operand));
    }
    std::vector<Tensor> outputs;
    for (ValueId id : stage.outputs) {
      // A value that several stages write keeps what is there.
      std::optional<Tensor>& root = values_[static_cast<size_t>(stages_.Root(id))];
      ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Evaluate(stages_.value(id).shape));
      if (!root.has_value()) {
        ASSIGN_OR_RETURN(root, Tensor::Allocate(stages_.value(id).dtype, shape));
      }
      ASSIGN_OR_RETURN(Tensor view, root->Reshaped(shape));
      outputs.push_back(std::move(view));
    }
    return InterpretStage(stage.body, operands, outputs, Symbols());
  }

  absl::StatusOr<Tensor> Read(ValueId id) {
    const StageValue& own = stages_.value(id);
    if (own.constant.has_value()) return *own.constant;
    const ValueId root = stages_.Root(id);
    ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Evaluate(own.shape));
    if (stages_.value(root).constant.has_value()) {
      return stages_.value(root).constant->Reshaped(shape);
    }
    const std::optional<Tensor>& tensor = values_[static_cast<size_t>(root)];
    if (!tensor.has_value()) return absl::InternalError("a value is read before it is written");
    return tensor->Reshaped(shape);
  }

 private:
  DimExpr::SymbolValue Symbols() const {
    return [this](absl::string_view name) -> std::optional<int64_t> {
      const auto found = symbols_.find(std::string(name));
      if (found == symbols_.end()) return std::nullopt;
      return found->second;
    };
  }

  absl::StatusOr<std::vector<int64_t>> Evaluate(const Shape& shape) const {
    std::vector<int64_t> dims;
    for (const DimExpr& dim : shape) {
      ASSIGN_OR_RETURN(const int64_t value, dim.Evaluate(Symbols()));
      dims.push_back(value);
    }
    return dims;
  }

  const StageGraph& stages_;
  std::vector<std::optional<Tensor>> values_;
  absl::flat_hash_map<std::string, int64_t> symbols_;
};

}  // namespace

absl::StatusOr<std::vector<Tensor>> InterpretStages(const StageGraph& stages,
                                                    std::span<const Tensor> inputs) {
  Run run(stages);
  RETURN_IF_ERROR(run.Bind(inputs));
  for (const Stage& stage : stages.stages) RETURN_IF_ERROR(run.RunStage(stage));
  std::vector<Tensor> results;
  for (ValueId output : stages.outputs) {
    ASSIGN_OR_RETURN(Tensor result, run.Read(output));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace stampmill
