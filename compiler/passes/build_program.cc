#include "compiler/passes/build_program.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
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

using LateLimits = absl::flat_hash_map<std::string, DimExpr>;

// What an expression is at least and at most, without late symbols.
struct Range {
  DimExpr low, high;
};

bool IsNotNegative(const DimExpr& e) { return e.LowerBound().value_or(-1) >= 0; }

std::optional<Range> RangeOf(const DimExpr& e, const LateLimits& limits);

std::optional<Range> RangeOfProduct(std::span<const DimExpr> factors, const LateLimits& limits) {
  // A constant comes first; the others must be sizes, unless all are fixed.
  Range product = {1, 1};
  DimExpr constant = 1;
  for (const DimExpr& factor : factors) {
    if (factor.is_constant()) {
      constant = constant * factor;
      continue;
    }
    const std::optional<Range> next = RangeOf(factor, limits);
    if (!next.has_value()) return std::nullopt;
    const bool fixed = next->low == next->high && product.low == product.high;
    if (!fixed && !(IsNotNegative(next->low) && IsNotNegative(product.low))) return std::nullopt;
    product = {product.low * next->low, product.high * next->high};
  }
  if (IsNotNegative(constant)) return Range{constant * product.low, constant * product.high};
  return Range{constant * product.high, constant * product.low};
}

std::optional<Range> RangeOf(const DimExpr& e, const LateLimits& limits) {
  if (e.is_constant()) return Range{e, e};
  if (e.kind() == DimExpr::Kind::kSymbol) {
    const auto late = limits.find(std::string(e.symbol_name()));
    if (late == limits.end()) return Range{e, e};
    const std::optional<Range> limit = RangeOf(late->second, limits);
    if (!limit.has_value()) return std::nullopt;
    return Range{0, limit->high};
  }
  if (e.kind() == DimExpr::Kind::kMul) return RangeOfProduct(e.operands(), limits);
  std::optional<Range> result = RangeOf(e.operands()[0], limits);
  for (const DimExpr& operand : e.operands().subspan(1)) {
    const std::optional<Range> next = RangeOf(operand, limits);
    if (!result.has_value() || !next.has_value()) return std::nullopt;
    if (e.kind() == DimExpr::Kind::kAdd) {
      result = Range{result->low + next->low, result->high + next->high};
    } else if (e.kind() == DimExpr::Kind::kMin) {
      result = Range{Min(result->low, next->low), Min(result->high, next->high)};
    } else if (e.kind() == DimExpr::Kind::kMax) {
      result = Range{Max(result->low, next->low), Max(result->high, next->high)};
    } else if (!(next->low == next->high)) {
      // Whatever the divisor is, if it is one at all.
      const bool is_part = IsNotNegative(result->low) && IsNotNegative(next->low);
      if (!is_part || e.kind() != DimExpr::Kind::kFloorDiv) return std::nullopt;
      result = Range{0, result->high};
    } else if (e.kind() == DimExpr::Kind::kMod) {
      const DimExpr rest = Mod(result->low, next->low);
      result = result->low == result->high ? Range{rest, rest} : Range{0, next->high - 1};
    } else if (result->low == result->high || IsNotNegative(next->low)) {
      result = Range{FloorDiv(result->low, next->low), FloorDiv(result->high, next->high)};
    } else {
      return std::nullopt;
    }
  }
  return result;
}

// How many elements a value of the shape has at most. Dims are not negative.
std::optional<DimExpr> MostElements(const Shape& shape, const LateLimits& limits) {
  const std::optional<Range> all = RangeOf(ElementCount(shape), limits);
  if (all.has_value()) return all->high;
  DimExpr product = 1;
  for (const DimExpr& dim : shape) {
    const std::optional<Range> range = RangeOf(dim, limits);
    if (!range.has_value()) return std::nullopt;
    product = product * Max(0, range->high);
  }
  return product;
}

std::vector<std::string> InputSymbols(const StageGraph& stages, const Graph& graph) {
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
  for (const ValueSymbol& symbol : graph.value_symbols()) symbols.push_back(symbol.name);
  return symbols;
}

// The regions around a stage, outermost first.
std::vector<int32_t> RegionsAround(const StageGraph& stages, int32_t region) {
  std::vector<int32_t> around;
  for (; region >= 0; region = stages.regions[static_cast<size_t>(region)].parent) {
    around.insert(around.begin(), region);
  }
  return around;
}

// All symbols: those of requests, then the late ones that stages set.
std::vector<std::string> AllSymbols(const StageGraph& stages, const Graph& graph) {
  std::vector<std::string> symbols = InputSymbols(stages, graph);
  absl::flat_hash_set<int32_t> seen;
  for (const Stage& stage : stages.stages) {
    for (const int32_t r : RegionsAround(stages, stage.region)) {
      const StageRegion& region = stages.regions[static_cast<size_t>(r)];
      if (!seen.insert(r).second || region.kind == StageRegion::Kind::kBranch) continue;
      symbols.push_back(region.iteration);
      if (!region.trips.empty()) symbols.push_back(region.trips);
    }
    if (!stage.reads.empty()) symbols.push_back(stage.reads);
  }
  return symbols;
}

class Builder {
 public:
  Builder(const StageGraph& stages, const Graph& graph, const PassOptions& options)
      : stages_(stages),
        options_(options),
        dims_(AllSymbols(stages, graph)),
        buffers_(stages.values.size(), -1) {}

  absl::StatusOr<CompiledModel> Build(const Graph& graph) {
    RETURN_IF_ERROR(AddInterface());
    AddValueSymbols(graph);
    for (const Stage& stage : stages_.stages) {
      RETURN_IF_ERROR(EnterRegion(stage.region));
      RETURN_IF_ERROR(stage.reads.empty() ? AddStage(stage) : AddRead(stage));
    }
    RETURN_IF_ERROR(EnterRegion(-1));
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
    const std::optional<DimExpr> elements = MostElements(value.shape, stages_.late_limits);
    if (!elements.has_value()) {
      return absl::UnimplementedError(
          absl::StrCat("value '", value.name, "' of shape ", ToString(value.shape),
                       ": its size is known only from data, without a limit"));
    }
    ASSIGN_OR_RETURN(const int32_t place,
                     Place(*elements * static_cast<int64_t>(SizeBytes(value.dtype))));
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
      const bool is_own = !stages_.value(root).constant.has_value() && !stages_.IsSlice(root);
      if (is_own && buffers_[static_cast<size_t>(root)] < 0) {
        buffers_[static_cast<size_t>(root)] = buffer;
      } else {
        copies_.push_back({root, buffer});
      }
      ASSIGN_OR_RETURN(ProgramTensor tensor, Interface(value, stages_.output_names[i], buffer));
      program().outputs.push_back(std::move(tensor));
    }
    return absl::OkStatus();
  }

  void AddValueSymbols(const Graph& graph) {
    for (const ValueSymbol& symbol : graph.value_symbols()) {
      const auto place = dims_.Find(DimExpr::Symbol(symbol.name));
      const auto input = std::find(graph.inputs().begin(), graph.inputs().end(), symbol.input);
      program().value_symbols.push_back(
          {.symbol = *place,
           .input = static_cast<int32_t>(input - graph.inputs().begin()),
           .element = symbol.element});
    }
  }

  // Ends and begins regions, so that the next command lies in `region`.
  absl::Status EnterRegion(int32_t region) {
    const std::vector<int32_t> wanted = RegionsAround(stages_, region);
    size_t same = 0;
    while (same < open_.size() && same < wanted.size() && open_[same].first == wanted[same]) ++same;
    const auto next = static_cast<int32_t>(program().commands.size());
    for (size_t i = same; i < open_.size(); ++i) {
      ProgramRegion& ended = program().regions[open_[i].second];
      ended.command_count = next - ended.first_command;
    }
    open_.resize(same);
    for (size_t i = same; i < wanted.size(); ++i) {
      const StageRegion& from = stages_.regions[static_cast<size_t>(wanted[i])];
      ProgramRegion entered;
      entered.first_command = next;
      ASSIGN_OR_RETURN(entered.count_place, Place(from.count));
      if (from.kind == StageRegion::Kind::kRepeat) {
        entered.kind = ProgramRegion::Kind::kRepeat;
        ASSIGN_OR_RETURN(entered.iteration, Place(DimExpr::Symbol(from.iteration)));
        if (!from.proceed.is_constant()) {
          ASSIGN_OR_RETURN(entered.proceed_place, Place(from.proceed));
        }
        if (!from.trips.empty()) {
          ASSIGN_OR_RETURN(entered.trips, Place(DimExpr::Symbol(from.trips)));
        }
      }
      open_.emplace_back(wanted[i], program().regions.size());
      program().regions.push_back(entered);
    }
    return absl::OkStatus();
  }

  absl::Status AddRead(const Stage& stage) {
    const ValueId id = stage.operands[0];
    ProgramCommand command{.kind = ProgramCommand::Kind::kRead, .label = stage.label};
    RETURN_IF_ERROR(AddParameter(id, command));
    ASSIGN_OR_RETURN(command.symbol, Place(DimExpr::Symbol(stage.reads)));
    ASSIGN_OR_RETURN(command.limit_place, Place(stages_.late_limits.at(stage.reads)));
    command.dtype = stages_.value(id).dtype;
    Touch(command);
    program().commands.push_back(std::move(command));
    return absl::OkStatus();
  }

  // Appends the buffer of `id` and where in it the value begins.
  absl::Status AddParameter(ValueId id, ProgramCommand& command) {
    ASSIGN_OR_RETURN(const int32_t buffer, BufferOf(id));
    command.buffers.push_back(buffer);
    const StageValue& root = stages_.value(stages_.Root(id));
    int32_t place = -1;
    if (root.slice_of != kNoValue && !root.offset.IsConstant(0)) {
      ASSIGN_OR_RETURN(place, Place(root.offset * static_cast<int64_t>(SizeBytes(root.dtype))));
    }
    if (place >= 0 || !command.offsets.empty()) {
      command.offsets.resize(command.buffers.size() - 1, -1);
      command.offsets.push_back(place);
    }
    return absl::OkStatus();
  }

  // The buffer that holds `id`, made when it is first asked for.
  absl::StatusOr<int32_t> BufferOf(ValueId id) {
    const ValueId root = stages_.Owner(id);
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
    for (ValueId id : stage.operands) RETURN_IF_ERROR(AddParameter(id, command));
    for (ValueId id : stage.outputs) RETURN_IF_ERROR(AddParameter(id, command));
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
      ProgramCommand command{.kind = ProgramCommand::Kind::kCopy, .label = "output"};
      RETURN_IF_ERROR(AddParameter(root, command));
      command.buffers.push_back(buffer);
      if (!command.offsets.empty()) command.offsets.push_back(-1);
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
    p.states = stages_.states;
    p.dims.assign(dims_.instructions().begin(), dims_.instructions().end());
    p.weights_size = weights_end_;
    p.segments.push_back({.device_kind = std::string(options_.target.kind()),
                          .first_command = 0,
                          .command_count = static_cast<int32_t>(p.commands.size())});
    ExtendLifetimes();
    for (ProgramBuffer& buffer : p.buffers) {
      if (buffer.last_command < 0) buffer.first_command = buffer.last_command = 0;
    }
    BatchingProof proof = ProveBatching(stages_);
    p.batch_symbol = std::move(proof.symbol);
    p.batch_reason = std::move(proof.reason);
  }

  // What lives in a repeat and outside of it lives through all of its iterations.
  void ExtendLifetimes() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const ProgramRegion& region : program().regions) {
        if (region.kind == ProgramRegion::Kind::kBranch) continue;
        const int32_t first = region.first_command;
        const int32_t last = first + region.command_count - 1;
        for (ProgramBuffer& buffer : program().buffers) {
          const bool inside = buffer.first_command <= last && buffer.last_command >= first;
          const bool outside = buffer.first_command < first || buffer.last_command > last;
          const bool covers = buffer.first_command <= first && buffer.last_command >= last;
          if (!inside || !outside || covers) continue;
          buffer.first_command = std::min(buffer.first_command, first);
          buffer.last_command = std::max(buffer.last_command, last);
          changed = true;
        }
      }
    }
  }

  const StageGraph& stages_;
  const PassOptions& options_;
  DimTable dims_;
  std::vector<std::pair<int32_t, size_t>> open_;       // regions: of the stages, of the program
  std::vector<int32_t> buffers_;                       // of each root value; -1: none yet
  std::vector<std::pair<ValueId, int32_t>> copies_;    // root and output buffer
  absl::flat_hash_map<std::string, int32_t> kernels_;  // canonical bytes to index
  uint64_t weights_end_ = 0;
  CompiledModel model_;
};

}  // namespace

absl::StatusOr<CompiledModel> BuildProgram(const StageGraph& stages, const Graph& graph,
                                           const PassOptions& options) {
  return Builder(stages, graph, options).Build(graph);
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
