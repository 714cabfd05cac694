#include "compiler/passes/stage_graph.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compiler/passes/coordinates.h"

namespace stampmill {

bool StageGraph::IsGraphOutput(ValueId root) const {
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](ValueId output) { return Root(output) == root; });
}

bool StageGraph::IsGraphInput(ValueId root) const {
  return std::find(inputs.begin(), inputs.end(), root) != inputs.end();
}

std::vector<int32_t> StageGraph::Readers(ValueId root) const {
  std::vector<int32_t> readers;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    if (stage.removed) continue;
    if (std::any_of(stage.operands.begin(), stage.operands.end(),
                    [&](ValueId operand) { return Root(operand) == root; })) {
      readers.push_back(static_cast<int32_t>(i));
    }
  }
  return readers;
}

std::vector<int32_t> StageGraph::Writers(ValueId root) const {
  std::vector<int32_t> writers;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    if (stage.removed) continue;
    if (std::any_of(stage.outputs.begin(), stage.outputs.end(),
                    [&](ValueId output) { return Root(output) == root; })) {
      writers.push_back(static_cast<int32_t>(i));
    }
  }
  return writers;
}

void StageGraph::DropRemoved() {
  std::erase_if(stages, [](const Stage& stage) { return stage.removed; });
}

std::string StageGraph::ToString() const {
  const auto name = [&](ValueId id) {
    const StageValue& v = value(id);
    return absl::StrCat("%", id, ":", Name(v.dtype), stampmill::ToString(v.shape),
                        v.alias_of != kNoValue ? absl::StrCat("=%", v.alias_of) : "",
                        v.constant ? " const" : "");
  };
  std::string text;
  for (const Stage& stage : stages) {
    if (stage.removed) continue;
    std::vector<std::string> operands, results;
    for (ValueId id : stage.operands) operands.push_back(name(id));
    for (ValueId id : stage.outputs) results.push_back(name(id));
    absl::StrAppend(&text, absl::StrJoin(results, ", "), " <- ", stage.label, " (",
                    absl::StrJoin(operands, ", "), ")\n  ", stampmill::ToString(stage.body), "\n");
  }
  return text;
}

namespace {

class Lowering : public LowerContext {
 public:
  Lowering(const Graph& graph, const LowerOptions& options, StageGraph& stages)
      : graph_(graph), options_(options), stages_(stages) {}

  void set_node(const Node* node) { node_ = node; }
  const Node& node() const override { return *node_; }
  const Graph& graph() const override { return graph_; }
  const LowerOptions& options() const override { return options_; }

  ValueId NewValue(DType dtype, Shape shape, absl::string_view name) override {
    stages_.values.push_back(
        {.name = absl::StrCat(node_->name, "/", name), .dtype = dtype, .shape = std::move(shape)});
    return static_cast<ValueId>(stages_.values.size()) - 1;
  }
  ValueId NewConstant(Tensor tensor, absl::string_view name) override {
    const Shape shape(tensor.shape().begin(), tensor.shape().end());
    const ValueId id = NewValue(tensor.dtype(), shape, name);
    stages_.values.back().constant = std::move(tensor);
    return id;
  }
  void EmitNest(Nest nest, std::vector<ValueId> operands, ValueId output) override {
    Add(std::move(nest), std::move(operands), {output});
  }
  void EmitContraction(Contraction contraction, std::vector<ValueId> operands,
                       ValueId output) override {
    Add(std::move(contraction), std::move(operands), {output});
  }
  void EmitLibrary(Library library, std::vector<ValueId> operands,
                   std::vector<ValueId> outputs) override {
    Add(std::move(library), std::move(operands), std::move(outputs));
  }
  void EmitAlias(ValueId input, ValueId output) override {
    stages_.values[static_cast<size_t>(output)].alias_of = stages_.Root(input);
  }

 private:
  // Lowerings may spell the identity out; one form is kept.
  template <typename Body>
  static void DropIdentity(Body& body, const Shape& domain) {
    if (IsIdentity(body.output_coordinates) && body.output.shape == domain) {
      body.output_coordinates.clear();
    }
  }

  void Add(StageBody body, std::vector<ValueId> operands, std::vector<ValueId> outputs) {
    if (auto* nest = std::get_if<Nest>(&body)) DropIdentity(*nest, DomainOf(*nest));
    if (auto* product = std::get_if<Contraction>(&body)) DropIdentity(*product, DomainOf(*product));
    stages_.stages.push_back({.body = std::move(body),
                              .operands = std::move(operands),
                              .outputs = std::move(outputs),
                              .label = node_->op_type});
  }

  const Graph& graph_;
  const LowerOptions& options_;
  StageGraph& stages_;
  const Node* node_ = nullptr;
};

}  // namespace

absl::StatusOr<StageGraph> LowerGraph(const Graph& graph, const LowerOptions& options) {
  StageGraph stages;
  // Graph values keep their ids, so that lowerings can name them.
  for (size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    stages.values.push_back({.name = value.name,
                             .dtype = value.dtype,
                             .shape = value.shape.value_or(Shape{}),
                             .constant = value.constant});
  }
  stages.inputs.assign(graph.inputs().begin(), graph.inputs().end());
  stages.outputs.assign(graph.outputs().begin(), graph.outputs().end());
  stages.output_names = graph.output_names();
  Lowering context(graph, options, stages);
  for (NodeId id : graph.Order()) {
    const Node& node = graph.node(id);
    // A node whose every output became constant has nothing left to compute.
    const bool folded = std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
      return output == kNoValue || graph.value(output).constant.has_value();
    });
    if (folded) continue;
    const OpDefinition* op = FindOp(node.domain, node.op_type);
    if (op == nullptr) {
      return absl::UnimplementedError(absl::StrCat(node.Describe(), ": operator is not supported"));
    }
    context.set_node(&node);
    RETURN_IF_ERROR(LowerNode(*op, context));
  }
  RETURN_IF_ERROR(Verify(stages));
  return stages;
}

void RemoveUnreadStages(StageGraph& stages) {
  std::vector<bool> read(stages.values.size(), false);
  for (ValueId output : stages.outputs) read[static_cast<size_t>(stages.Root(output))] = true;
  for (size_t i = stages.stages.size(); i-- > 0;) {
    Stage& stage = stages.stages[i];
    if (stage.removed) continue;
    const bool needed = std::any_of(stage.outputs.begin(), stage.outputs.end(), [&](ValueId id) {
      return read[static_cast<size_t>(stages.Root(id))];
    });
    stage.removed = !needed;
    if (!needed) continue;
    for (ValueId id : stage.operands) read[static_cast<size_t>(stages.Root(id))] = true;
  }
  stages.DropRemoved();
}

namespace {

absl::Status CheckOperand(const Stage& stage, const StageGraph& stages, const Operand& operand,
                          ValueId id, absl::string_view what) {
  const StageValue& value = stages.value(id);
  if (operand.dtype == value.dtype && operand.shape == value.shape) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "stage ", stage.label, ": ", what, " is ", Name(operand.dtype), ToString(operand.shape),
      ", its value '", value.name, "' ", Name(value.dtype), ToString(value.shape)));
}

absl::Status CheckStage(const Stage& stage, const StageGraph& stages) {
  RETURN_IF_ERROR(Verify(stage.body));
  const std::vector<Operand>& operands = std::visit(
      [](const auto& body) -> const std::vector<Operand>& { return body.operands; }, stage.body);
  if (operands.size() != stage.operands.size()) {
    return absl::InternalError(absl::StrCat("stage ", stage.label, ": operand count"));
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    RETURN_IF_ERROR(
        CheckOperand(stage, stages, operands[i], stage.operands[i], absl::StrCat("operand ", i)));
  }
  std::vector<Operand> outputs;
  if (const auto* nest = std::get_if<Nest>(&stage.body)) outputs = {nest->output};
  if (const auto* contraction = std::get_if<Contraction>(&stage.body)) {
    outputs = {contraction->output};
  }
  if (const auto* library = std::get_if<Library>(&stage.body)) outputs = library->outputs;
  if (outputs.size() != stage.outputs.size()) {
    return absl::InternalError(absl::StrCat("stage ", stage.label, ": output count"));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    RETURN_IF_ERROR(
        CheckOperand(stage, stages, outputs[i], stage.outputs[i], absl::StrCat("output ", i)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const StageGraph& stages) {
  std::vector<bool> written(stages.values.size(), false);
  for (ValueId input : stages.inputs) written[static_cast<size_t>(input)] = true;
  for (size_t i = 0; i < stages.values.size(); ++i) {
    if (stages.values[i].constant.has_value()) written[i] = true;
  }
  const auto check_written = [&](ValueId id, absl::string_view user) -> absl::Status {
    // An alias of something written, or of a constant whose own copy under this shape is one too.
    if (written[static_cast<size_t>(stages.Root(id))] || written[static_cast<size_t>(id)]) {
      return absl::OkStatus();
    }
    return absl::InternalError(
        absl::StrCat(user, ": value '", stages.value(id).name, "' is read before it is written"));
  };
  for (const Stage& stage : stages.stages) {
    if (stage.removed) continue;
    RETURN_IF_ERROR(CheckStage(stage, stages));
    for (ValueId operand : stage.operands) {
      RETURN_IF_ERROR(check_written(operand, stage.label));
    }
    for (ValueId output : stage.outputs) written[static_cast<size_t>(stages.Root(output))] = true;
  }
  for (ValueId output : stages.outputs) RETURN_IF_ERROR(check_written(output, "output"));
  return absl::OkStatus();
}

}  // namespace stampmill
