#include "compiler/passes/testing/stage_interpreter.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "graph/nest_interpreter.h"
#include "kernels/skeletons/skeletons.h"

namespace stampmill {
namespace {

class Run {
 public:
  Run(const StageGraph& stages, std::map<std::string, int64_t> symbols)
      : stages_(stages), values_(stages.values.size()), symbols_(std::move(symbols)) {}

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

  // The stages from `first` to `last`, which all lie in the first `depth` regions around them.
  absl::Status RunStages(size_t first, size_t last, size_t depth) {
    while (first < last) {
      const std::vector<int32_t> around = Around(stages_.stages[first].region);
      if (around.size() == depth) {
        RETURN_IF_ERROR(RunStage(stages_.stages[first++]));
        continue;
      }
      size_t end = first + 1;
      while (end < last && IsIn(stages_.stages[end].region, around[depth])) ++end;
      RETURN_IF_ERROR(
          RunRegion(stages_.regions[static_cast<size_t>(around[depth])], first, end, depth + 1));
      first = end;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Tensor> Read(ValueId id) {
    const StageValue& own = stages_.value(id);
    if (own.constant.has_value()) return *own.constant;
    const ValueId root = stages_.Root(id);
    ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Evaluate(own.shape));
    if (stages_.value(root).constant.has_value()) {
      return stages_.value(root).constant->Reshaped(shape);
    }
    if (!stages_.value(stages_.Owner(id)).constant.has_value() &&
        !values_[static_cast<size_t>(stages_.Owner(id))].has_value()) {
      // Rows of a repeat that made none.
      const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
      if (is_empty) return Tensor::Allocate(own.dtype, shape);
      return absl::InternalError("a value is read before it is written");
    }
    return View(id);
  }

 private:
  std::vector<int32_t> Around(int32_t region) const {
    std::vector<int32_t> around;
    for (; region >= 0; region = stages_.regions[static_cast<size_t>(region)].parent) {
      around.insert(around.begin(), region);
    }
    return around;
  }
  bool IsIn(int32_t region, int32_t outer) const {
    const std::vector<int32_t> around = Around(region);
    return std::find(around.begin(), around.end(), outer) != around.end();
  }

  absl::Status RunRegion(const StageRegion& region, size_t first, size_t end, size_t depth) {
    ASSIGN_OR_RETURN(int64_t count, region.count.Evaluate(Symbols()));
    const bool repeats = region.kind == StageRegion::Kind::kRepeat;
    if (!repeats) count = std::min<int64_t>(count, 1);
    int64_t trips = 0;
    while (trips < count) {
      if (repeats) symbols_[region.iteration] = trips;
      RETURN_IF_ERROR(RunStages(first, end, depth));
      ++trips;
      if (!repeats) continue;
      ASSIGN_OR_RETURN(const int64_t proceed, region.proceed.Evaluate(Symbols()));
      if (proceed <= 0) break;
    }
    if (!region.trips.empty()) symbols_[region.trips] = trips;
    // What is left out reads nothing.
    for (size_t i = first; i < end && trips == 0; ++i) {
      if (!stages_.stages[i].reads.empty()) symbols_[stages_.stages[i].reads] = 0;
    }
    return absl::OkStatus();
  }

  absl::Status RunStage(const Stage& stage) {
    std::vector<Tensor> operands;
    for (ValueId id : stage.operands) {
      ASSIGN_OR_RETURN(Tensor operand, Read(id));
      operands.push_back(std::move(operand));
    }
    if (!stage.reads.empty()) {
      ASSIGN_OR_RETURN(const int64_t limit,
                       stages_.late_limits.at(stage.reads).Evaluate(Symbols()));
      symbols_[stage.reads] = std::clamp<int64_t>(operands[0].ValueAsInt64(0), 0, limit);
      return absl::OkStatus();
    }
    std::vector<Tensor> outputs;
    for (ValueId id : stage.outputs) {
      // A value that several stages write keeps what is there.
      const ValueId owner = stages_.Owner(id);
      std::optional<Tensor>& memory = values_[static_cast<size_t>(owner)];
      if (!memory.has_value()) {
        ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Evaluate(stages_.value(owner).shape));
        ASSIGN_OR_RETURN(memory, Tensor::Allocate(stages_.value(owner).dtype, shape));
      }
      ASSIGN_OR_RETURN(Tensor view, View(id));
      outputs.push_back(std::move(view));
    }
    if (const Library* library = std::get_if<Library>(&stage.body)) {
      return RunSkeleton(*library, operands, outputs, Symbols());
    }
    return InterpretStage(stage.body, operands, outputs, Symbols());
  }

  // The part of its owner's memory that a value is.
  absl::StatusOr<Tensor> View(ValueId id) const {
    const StageValue& value = stages_.value(id);
    const StageValue& root = stages_.value(stages_.Root(id));
    const StageValue& owner = stages_.value(stages_.Owner(id));
    const Tensor& memory = owner.constant.has_value()
                               ? *owner.constant
                               : *values_[static_cast<size_t>(stages_.Owner(id))];
    ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Evaluate(value.shape));
    ASSIGN_OR_RETURN(const int64_t offset, root.offset.Evaluate(Symbols()));
    ASSIGN_OR_RETURN(const int64_t bytes, TensorSizeBytes(value.dtype, shape));
    const size_t begin = static_cast<size_t>(offset) * SizeBytes(value.dtype);
    if (offset < 0 || begin + static_cast<size_t>(bytes) > memory.bytes().size()) {
      return absl::InternalError("a slice goes beyond its value");
    }
    return Tensor::View(value.dtype, shape,
                        memory.bytes().subspan(begin, static_cast<size_t>(bytes)),
                        std::make_shared<Tensor>(memory));
  }

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
  std::map<std::string, int64_t> symbols_;
};

}  // namespace

absl::StatusOr<std::vector<Tensor>> InterpretStages(const StageGraph& stages,
                                                    std::span<const Tensor> inputs,
                                                    const std::map<std::string, int64_t>& symbols) {
  Run run(stages, symbols);
  RETURN_IF_ERROR(run.Bind(inputs));
  RETURN_IF_ERROR(run.RunStages(0, stages.stages.size(), 0));
  std::vector<Tensor> results;
  for (ValueId output : stages.outputs) {
    ASSIGN_OR_RETURN(Tensor result, run.Read(output));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace stampmill
