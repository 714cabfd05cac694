#include "compiler/passes/build_program.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/passes/batching.h"

namespace stampmill {
namespace {

// Packed weights begin on cache lines, so that vector loads of panels never split one.
constexpr uint64_t kWeightAlignment = 64;

std::vector<std::string> InputSymbols(const StageGraph& stages) {
  std::vector<std::string> symbols;
  for (ValueId input : stages.inputs) {
    for (const DimExpr& dim : stages.value(input).shape) {
      for (const std::string& symbol : dim.Symbols()) {
        if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end()) {
          symbols.push_back(symbol);
        }
      }
    }
  }
  return symbols;
}

class Builder {
 public:
  Builder(const StageGraph& stages, const PassOptions& options)
      : stages_(stages),
        options_(options),
        dims_(InputSymbols(stages)),
        buffers_(stages.values.size(), -1) {}

  absl::StatusOr<CompiledModel> Build(const Graph& graph) {
    RETURN_IF_ERROR(AddInterface());
    for (const Stage& stage : stages_.stages) RETURN_IF_ERROR(AddStage(stage));
    RETURN_IF_ERROR(AddOutputCopies());
    for (const DimCheck& check : graph.checks()) {
      ASSIGN_OR_RETURN(const int32_t place, Place(check.nonzero));
      program().checks.push_back({.place = place, .message = check.message});
    }
    AddIndexBounds(graph);
    Finish();
    RETURN_IF_ERROR(VerifyButCode());
    return std::move(model_);
  }

 private:
  Program& program() { return model_.program; }

  absl::StatusOr<int32_t> Place(const DimExpr& expr) {
    const int32_t place = dims_.Add(expr);
    if (place >= 0) return place;
    return absl::UnimplementedError(
        absl::StrCat("size ", expr.ToString(), ": depends on more than the inputs' shapes"));
  }

  absl::StatusOr<int32_t> AddBuffer(ProgramBuffer::Kind kind, const StageValue& value) {
    const DimExpr elements = ElementCount(value.shape);
    ASSIGN_OR_RETURN(const int32_t place,
                     Place(elements * static_cast<int64_t>(SizeBytes(value.dtype))));
    const auto index = static_cast<int32_t>(program().buffers.size());
    program().buffers.push_back(
        {.kind = kind, .size_place = place, .first_command = INT32_MAX, .last_command = -1});
    return index;
  }

  absl::StatusOr<ProgramTensor> Interface(const StageValue& value, const std::string& name,
                                          int32_t buffer) {
    ProgramTensor tensor{.name = name, .dtype = value.dtype, .dims = {}, .buffer = buffer};
    for (const DimExpr& dim : value.shape) {
      ProgramDim entry;
      if (dim.is_constant()) {
        entry.fixed = *dim.constant();
      } else {
        ASSIGN_OR_RETURN(entry.place, Place(dim));
      }
      tensor.dims.push_back(entry);
    }
    return tensor;
  }

  absl::Status AddInterface() {
    for (size_t i = 0; i < stages_.inputs.size(); ++i) {
      const ValueId id = stages_.inputs[i];
      const StageValue& value = stages_.value(id);
      ASSIGN_OR_RETURN(const int32_t buffer, AddBuffer(ProgramBuffer::Kind::kInput, value));
      program().buffers.back().index = static_cast<int32_t>(i);
      buffers_[static_cast<size_t>(id)] = buffer;
      ASSIGN_OR_RETURN(ProgramTensor tensor, Interface(value, value.name, buffer));
      program().inputs.push_back(std::move(tensor));
    }
    for (size_t i = 0; i < stages_.outputs.size(); ++i) {
      const StageValue& value = stages_.value(stages_.outputs[i]);
      const ValueId root = stages_.Root(stages_.outputs[i]);
      ASSIGN_OR_RETURN(const int32_t buffer, AddBuffer(ProgramBuffer::Kind::kOutput, value));
      program().buffers.back().index = static_cast<int32_t>(i);
      // The first output with these bytes is where they are computed; the others are copies of it.
      if (buffers_[static_cast<size_t>(root)] < 0 && !stages_.value(root).constant.has_value()) {
        buffers_[static_cast<size_t>(root)] = buffer;
      } else {
        copies_.push_back({root, buffer});
      }
      ASSIGN_OR_RETURN(ProgramTensor tensor, Interface(value, stages_.output_names[i], buffer));
      program().outputs.push_back(std::move(tensor));
    }
    return absl::OkStatus();
  }

  // The buffer that holds `id`, made when it is first asked for.
  absl::StatusOr<int32_t> BufferOf(ValueId id) {
    const ValueId root = stages_.Root(id);
    int32_t& buffer = buffers_[static_cast<size_t>(root)];
    if (buffer >= 0) return buffer;
    const StageValue& value = stages_.value(root);
    if (!value.constant.has_value()) {
      ASSIGN_OR_RETURN(buffer, AddBuffer(ProgramBuffer::Kind::kTemporary, value));
      return buffer;
    }
    buffer = static_cast<int32_t>(program().buffers.size());
    const uint64_t size = value.constant->bytes().size();
    program().buffers.push_back(
        {.kind = ProgramBuffer::Kind::kWeight, .weight_offset = weights_end_, .weight_size = size});
    model_.weights.push_back({.offset = weights_end_, .tensor = *value.constant});
    weights_end_ += (size + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
    return buffer;
  }

  void Touch(const ProgramCommand& command) {
    const auto number = static_cast<int32_t>(program().commands.size());
    for (int32_t index : command.buffers) {
      ProgramBuffer& buffer = program().buffers[static_cast<size_t>(index)];
      buffer.first_command = std::min(buffer.first_command, number);
      buffer.last_command = std::max(buffer.last_command, number);
    }
  }

  absl::Status AddStage(const Stage& stage) {
    const StageBody body = Simplify(stage.body);
    std::vector<DimExpr> parameters;
    std::string bytes = CanonicalBytes(body, &parameters);
    const LaunchPlan plan = PlanLaunch(body, options_.target);
    ProgramCommand command{.kind = ProgramCommand::Kind::kLaunch, .label = stage.label};
    for (ValueId id : stage.operands) {
      ASSIGN_OR_RETURN(const int32_t buffer, BufferOf(id));
      command.buffers.push_back(buffer);
    }
    for (ValueId id : stage.outputs) {
      ASSIGN_OR_RETURN(const int32_t buffer, BufferOf(id));
      command.buffers.push_back(buffer);
    }
    for (const DimExpr& parameter : parameters) {
      ASSIGN_OR_RETURN(const int32_t place, Place(parameter));
      command.dims.push_back(place);
    }
    ASSIGN_OR_RETURN(command.tasks_place, Place(plan.tasks));
    ASSIGN_OR_RETURN(command.scratch_place, Place(plan.scratch_bytes));
    ASSIGN_OR_RETURN(command.flops_place, Place(plan.flops));
    ASSIGN_OR_RETURN(command.bytes_place, Place(plan.bytes));
    const auto [found, added] =
        kernels_.try_emplace(bytes, static_cast<int32_t>(model_.kernels.size()));
    if (added) {
      // Named after what it computes, so that models that share a kernel agree on its name.
      const Digest digest = Sha256(std::as_bytes(std::span(bytes)));
      model_.kernels.push_back({.name = absl::StrCat("k", digest.ToHex().substr(0, 32)),
                                .body = body,
                                .canonical_bytes = std::move(bytes)});
    }
    command.artifact = found->second;
    command.entry = model_.kernels[static_cast<size_t>(found->second)].name;
    Touch(command);
    program().commands.push_back(std::move(command));
    return absl::OkStatus();
  }

  absl::Status AddOutputCopies() {
    for (const auto& [root, buffer] : copies_) {
      ASSIGN_OR_RETURN(const int32_t source, BufferOf(root));
      ProgramCommand command{
          .kind = ProgramCommand::Kind::kCopy, .buffers = {source, buffer}, .label = "output"};
      Touch(command);
      program().commands.push_back(std::move(command));
    }
    return absl::OkStatus();
  }

  void AddIndexBounds(const Graph& graph) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      for (const IndexBound& bound : graph.index_bounds()) {
        if (bound.input != graph.inputs()[i]) continue;
        program().index_bounds.push_back(
            {.input = static_cast<int32_t>(i), .limit = bound.limit, .reader = bound.reader});
      }
    }
  }

  // The program with a stand-in for each object that is yet to be made.
  absl::Status VerifyButCode() const {
    Program program = model_.program;
    program.artifacts.resize(model_.kernels.size());
    if (program.weights_size > 0) program.weights = Sha256({});
    return program.Verify();
  }

  void Finish() {
    Program& p = program();
    p.target = options_.target.ToString();
    p.symbols = dims_.symbols();
    p.dims.assign(dims_.instructions().begin(), dims_.instructions().end());
    p.weights_size = weights_end_;
    p.segments.push_back({.device_kind = std::string(options_.target.kind()),
                          .first_command = 0,
                          .command_count = static_cast<int32_t>(p.commands.size())});
    for (ProgramBuffer& buffer : p.buffers) {
      if (buffer.last_command < 0) buffer.first_command = buffer.last_command = 0;
    }
    BatchingProof proof = ProveBatching(stages_);
    p.batch_symbol = std::move(proof.symbol);
    p.batch_reason = std::move(proof.reason);
  }

  const StageGraph& stages_;
  const PassOptions& options_;
  DimTable dims_;
  std::vector<int32_t> buffers_;                       // of each root value; -1: none yet
  std::vector<std::pair<ValueId, int32_t>> copies_;    // root and output buffer
  absl::flat_hash_map<std::string, int32_t> kernels_;  // canonical bytes to index
  uint64_t weights_end_ = 0;
  CompiledModel model_;
};

}  // namespace

absl::StatusOr<CompiledModel> BuildProgram(const StageGraph& stages, const Graph& graph,
                                           const PassOptions& options) {
  return Builder(stages, options).Build(graph);
}

void PlaceKernels(CompiledModel& model, const std::vector<int32_t>& placement,
                  std::vector<Digest> artifacts, const Digest& weights) {
  for (ProgramCommand& command : model.program.commands) {
    if (command.kind != ProgramCommand::Kind::kLaunch) continue;
    command.artifact = placement[static_cast<size_t>(command.artifact)];
  }
  model.program.artifacts = std::move(artifacts);
  model.program.weights = weights;
}

}  // namespace stampmill
