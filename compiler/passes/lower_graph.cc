// From operators to stages. Values of the graph and of all bodies in it are numbered together
// first, so that lowerings can name those of a body as they name others; what a body captures is
// the outer value itself.
//
// A branch's results are copied to where the If's are, under the branch's condition; fusion makes
// the copy part of what computed them. What a Repeat carries lies in two places that take turns:
// iteration t reads place t mod 2 and writes the other, so that nothing is copied from one to the
// next. Elements of scanned tensors are slices.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/passes/coordinates.h"
#include "compiler/passes/stage_graph.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// Nodes and bodies of a graph, values numbered in the one flat graph.
struct FlatBody;
struct FlatNode {
  Node node;
  std::vector<FlatBody> bodies;  // stampmill:If: then, else; stampmill:Repeat: the body
};
struct FlatBody {
  std::vector<FlatNode> nodes;
  std::vector<ValueId> inputs, outputs;
};

const Graph* BodyOf(const Node& node, absl::string_view attribute) {
  const auto found = node.attributes.find(attribute);
  if (found == node.attributes.end()) return nullptr;
  const auto* body = std::get_if<std::shared_ptr<const Graph>>(&found->second);
  return body == nullptr ? nullptr : body->get();
}

bool IsControl(const Node& node, absl::string_view op) {
  return node.domain == "stampmill" && node.op_type == op;
}

// The bodies of a node, in a fixed order, with the node's inputs that are their captures.
struct BodyUse {
  const Graph* body;
  size_t first_capture;  // among the node's inputs
};
std::vector<BodyUse> BodiesOf(const Node& node) {
  std::vector<BodyUse> uses;
  size_t end = node.inputs.size();
  if (IsControl(node, "If")) {
    const Graph* then_branch = BodyOf(node, "then_branch");
    const Graph* else_branch = BodyOf(node, "else_branch");
    end -= static_cast<size_t>(else_branch->captures);
    uses.push_back({then_branch, end - static_cast<size_t>(then_branch->captures)});
    uses.push_back({else_branch, end});
  } else if (IsControl(node, "Repeat")) {
    const Graph* body = BodyOf(node, "body");
    uses.push_back({body, end - static_cast<size_t>(body->captures)});
  }
  return uses;
}

// Appends `graph` to `flat`; `given` are the flat values of its last inputs.
FlatBody Flatten(const Graph& graph, std::span<const ValueId> given, Graph& flat) {
  std::vector<ValueId> ids(graph.value_count(), kNoValue);
  const size_t own_inputs = graph.inputs().size() - given.size();
  for (size_t i = 0; i < given.size(); ++i) {
    ids[static_cast<size_t>(graph.inputs()[own_inputs + i])] = given[i];
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] != kNoValue) continue;
    Value value = graph.value(static_cast<ValueId>(i));
    value.producer = -1;
    ids[i] = flat.AddValue(std::move(value));
  }
  const auto renumber = [&](std::span<const ValueId> list) {
    std::vector<ValueId> result;
    for (const ValueId id : list) {
      result.push_back(id == kNoValue ? kNoValue : ids[static_cast<size_t>(id)]);
    }
    return result;
  };
  FlatBody body = {
      .nodes = {}, .inputs = renumber(graph.inputs()), .outputs = renumber(graph.outputs())};
  for (const NodeId id : graph.Order()) {
    FlatNode node = {.node = graph.node(id), .bodies = {}};
    node.node.inputs = renumber(node.node.inputs);
    node.node.outputs = renumber(node.node.outputs);
    for (const BodyUse& use : BodiesOf(node.node)) {
      const std::span<const ValueId> inputs = node.node.inputs;
      node.bodies.push_back(Flatten(
          *use.body, inputs.subspan(use.first_capture, static_cast<size_t>(use.body->captures)),
          flat));
    }
    body.nodes.push_back(std::move(node));
  }
  return body;
}

class Lowering : public LowerContext {
 public:
  Lowering(const Graph& graph, const LowerOptions& options, StageGraph& stages)
      : graph_(graph), options_(options), stages_(stages) {}

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
    Of(output).alias_of = stages_.Root(input);
  }
  ValueId NewSlice(ValueId base, Shape shape, const DimExpr& offset,
                   absl::string_view name) override {
    const ValueId id = NewValue(Of(base).dtype, std::move(shape), name);
    MakeSlice(id, base, offset);
    return id;
  }
  DimExpr BeginRepeat(const DimExpr& trips) override {
    const std::string iteration =
        absl::StrCat("step ", stages_.regions.size(), " of '", node_->name, "'");
    stages_.late_limits[iteration] = Max(0, trips - 1);
    OpenRegion({.kind = StageRegion::Kind::kRepeat, .count = trips, .iteration = iteration});
    return DimExpr::Symbol(iteration);
  }
  void EndRepeat() override { CloseRegion(); }
  void EmitRead(ValueId scalar, absl::string_view symbol, const DimExpr& limit) override {
    stages_.late_limits[symbol] = limit;
    stages_.stages.push_back({.body = Library(),
                              .operands = {scalar},
                              .label = node_->op_type,
                              .region = region_,
                              .reads = std::string(symbol)});
  }

  absl::Status LowerBody(const FlatBody& body) {
    for (const FlatNode& node : body.nodes) RETURN_IF_ERROR(LowerOne(node));
    return absl::OkStatus();
  }

 private:
  StageValue& Of(ValueId id) { return stages_.values[static_cast<size_t>(id)]; }

  void OpenRegion(StageRegion region) {
    region.parent = region_;
    region_ = static_cast<int32_t>(stages_.regions.size());
    stages_.regions.push_back(std::move(region));
  }
  void CloseRegion() { region_ = stages_.regions[static_cast<size_t>(region_)].parent; }

  void MakeSlice(ValueId id, ValueId base, const DimExpr& offset) {
    const StageValue& root = stages_.value(stages_.Root(base));
    Of(id).slice_of = stages_.Owner(base);
    Of(id).offset = root.slice_of == kNoValue ? offset : root.offset + offset;
  }

  absl::Status LowerOne(const FlatNode& flat) {
    const Node& node = flat.node;
    // A node whose every output became constant has nothing left to compute.
    const bool folded = std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
      return output == kNoValue || graph_.value(output).constant.has_value();
    });
    if (folded) return absl::OkStatus();
    node_ = &node;
    if (IsControl(node, "If")) return LowerIf(flat);
    if (IsControl(node, "Repeat")) return LowerRepeat(flat);
    if (IsControl(node, "Read")) return LowerRead();
    const OpDefinition* op = FindOp(node.domain, node.op_type);
    if (op == nullptr) {
      return absl::UnimplementedError(absl::StrCat(node.Describe(), ": operator is not supported"));
    }
    return LowerNode(*op, *this);
  }

  absl::StatusOr<DimExpr> Known(ValueId id) const {
    const Value& value = graph_.value(id);
    if (value.symbolic.has_value() && value.symbolic->size() == 1) return (*value.symbolic)[0];
    return absl::InternalError(
        absl::StrCat(node_->Describe(), ": contents of '", value.name, "' are not known"));
  }

  // Copies `from` to `to`, of equally many elements.
  void Copy(ValueId from, ValueId to, absl::string_view label) {
    const Shape shape = Of(from).shape;
    ValueId target = to;
    if (!(Of(to).shape == shape)) {
      target = NewValue(Of(from).dtype, shape, "result");
      Of(target).alias_of = stages_.Root(to);
    }
    StageOperands operands;
    const int32_t source = operands.Add(from, Of(from).dtype, shape);
    Nest nest{.kept = shape};
    nest.result = operands.Load(source, Coords(0, shape.size()));
    nest.output = {.dtype = Of(from).dtype, .shape = shape};
    nest.operands = operands.TakeOperands();
    Add(std::move(nest), operands.TakeValues(), {target});
    stages_.stages.back().label = std::string(label);
  }

  absl::Status LowerRead() {
    const Node& node = *node_;
    ASSIGN_OR_RETURN(const std::string symbol, node.String("symbol", ""));
    ASSIGN_OR_RETURN(const int64_t limit, node.Int("limit", 0));
    EmitRead(node.inputs[0], symbol, limit);
    StageOperands operands;
    EmitMap(*this, std::move(operands), Expr::Dim(DimExpr::Symbol(symbol)));
    return absl::OkStatus();
  }

  absl::Status LowerIf(const FlatNode& flat) {
    const Node& node = flat.node;
    ASSIGN_OR_RETURN(const DimExpr condition, Known(node.inputs[0]));
    for (size_t b = 0; b < flat.bodies.size(); ++b) {
      const FlatBody& body = flat.bodies[b];
      OpenRegion({.count = b == 0 ? condition : 1 - condition});
      RETURN_IF_ERROR(LowerBody(body));
      node_ = &node;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] != kNoValue) Copy(body.outputs[i], node.outputs[i], "If");
      }
      CloseRegion();
    }
    return absl::OkStatus();
  }

  absl::Status LowerRepeat(const FlatNode& flat);
  std::vector<ValueId> MakePlaces(const Node& node, size_t carried);
  std::vector<ValueId> MakeRows(const Node& node, size_t carried, const DimExpr& count,
                                bool may_be_fewer);

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
                              .label = node_->op_type,
                              .region = region_});
  }

  const Graph& graph_;
  const LowerOptions& options_;
  StageGraph& stages_;
  const Node* node_ = nullptr;
  int32_t region_ = -1;
};

// Two places for each carried value, the first with what it begins as.
std::vector<ValueId> Lowering::MakePlaces(const Node& node, size_t carried) {
  std::vector<ValueId> places;
  for (size_t i = 0; i < carried; ++i) {
    const ValueId first = node.inputs[1 + i];
    Shape both = Of(first).shape;
    both.insert(both.begin(), 2);
    places.push_back(NewValue(Of(first).dtype, std::move(both), "carried"));
    Copy(first, NewSlice(places[i], Of(first).shape, 0, "carried"), "Repeat");
  }
  return places;
}

// Where each iteration's results become rows: the node's output, or, when there may be fewer than
// `count`, a value of which that is the beginning.
std::vector<ValueId> Lowering::MakeRows(const Node& node, size_t carried, const DimExpr& count,
                                        bool may_be_fewer) {
  std::vector<ValueId> rows;
  for (size_t i = carried; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    rows.push_back(output);
    if (output == kNoValue || !may_be_fewer) continue;
    Shape whole = Of(output).shape;
    whole[0] = count;
    rows.back() = NewValue(Of(output).dtype, std::move(whole), "rows");
    MakeSlice(output, rows.back(), 0);
  }
  return rows;
}

absl::Status Lowering::LowerRepeat(const FlatNode& flat) {
  const Node& node = flat.node;
  const FlatBody& body = flat.bodies[0];
  ASSIGN_OR_RETURN(const int64_t carried, node.Int("carried", 0));
  ASSIGN_OR_RETURN(const int64_t scanned, node.Int("scanned", 0));
  ASSIGN_OR_RETURN(const std::vector<int64_t> reversed_in, node.Ints("reversed_inputs", {}));
  ASSIGN_OR_RETURN(const std::vector<int64_t> reversed_out, node.Ints("reversed_outputs", {}));
  ASSIGN_OR_RETURN(const std::string iteration, node.String("iteration", ""));
  ASSIGN_OR_RETURN(const std::string trips_name, node.String("trips", ""));
  ASSIGN_OR_RETURN(const DimExpr count, Known(node.inputs[0]));
  const DimExpr step = DimExpr::Symbol(iteration);
  const DimExpr trips = trips_name.empty() ? count : DimExpr::Symbol(trips_name);
  stages_.late_limits[iteration] = Max(0, count - 1);
  if (!trips_name.empty()) stages_.late_limits[trips_name] = count;

  const auto carried_count = static_cast<size_t>(carried);
  const std::vector<ValueId> places = MakePlaces(node, carried_count);
  const std::vector<ValueId> rows = MakeRows(node, carried_count, count, !trips_name.empty());
  OpenRegion({.kind = StageRegion::Kind::kRepeat,
              .count = count,
              .iteration = iteration,
              .trips = trips_name});
  const int32_t region = region_;
  {
    Nest nest;
    nest.result = Expr::Dim(step);
    nest.output = {.dtype = DType::kI64, .shape = {}};
    Add(std::move(nest), {}, {body.inputs[0]});
  }
  for (size_t i = 0; i < carried_count; ++i) {
    const ValueId input = body.inputs[1 + i];
    MakeSlice(input, places[i], Mod(step, 2) * ElementCount(Of(input).shape));
  }
  for (size_t i = 0; i < static_cast<size_t>(scanned); ++i) {
    const ValueId input = body.inputs[1 + carried_count + i];
    const DimExpr row = reversed_in[i] != 0 ? count - 1 - step : step;
    MakeSlice(input, node.inputs[1 + carried_count + i], row * ElementCount(Of(input).shape));
  }
  RETURN_IF_ERROR(LowerBody(body));
  node_ = &node;
  const size_t first_output = body.outputs.size() - node.outputs.size();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId result = body.outputs[first_output + i];
    const DimExpr size = ElementCount(Of(result).shape);
    const size_t r = i - carried_count;  // of rows
    ValueId base = i < carried_count ? places[i] : rows[r];
    if (base == kNoValue) continue;
    DimExpr at = Mod(step + 1, 2);
    if (i >= carried_count) at = reversed_out[r] != 0 ? count - 1 - step : step;
    Copy(result, NewSlice(base, Of(result).shape, at * size, "result"), "Repeat");
  }
  if (first_output == 1) {
    ASSIGN_OR_RETURN(stages_.regions[static_cast<size_t>(region)].proceed, Known(body.outputs[0]));
  }
  CloseRegion();
  for (size_t i = 0; i < carried_count; ++i) {
    const ValueId output = node.outputs[i];
    if (output == kNoValue) continue;
    MakeSlice(output, places[i], Mod(trips, 2) * ElementCount(Of(output).shape));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StageGraph> LowerGraph(const Graph& graph, const LowerOptions& options) {
  Graph flat;
  const FlatBody body = Flatten(graph, {}, flat);
  StageGraph stages;
  // Values of the flat graph keep their ids, so that lowerings can name them.
  for (size_t i = 0; i < flat.value_count(); ++i) {
    const Value& value = flat.value(static_cast<ValueId>(i));
    stages.values.push_back({.name = value.name,
                             .dtype = value.dtype,
                             .shape = value.shape.value_or(Shape{}),
                             .constant = value.constant});
  }
  stages.inputs = body.inputs;
  stages.states = graph.states;
  stages.outputs = body.outputs;
  stages.output_names = graph.output_names();
  Lowering context(flat, options, stages);
  RETURN_IF_ERROR(context.LowerBody(body));
  RETURN_IF_ERROR(Verify(stages));
  return stages;
}

}  // namespace stampmill
