// Resolving Loop and Scan (control_flow.h).
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/passes/resolver.h"
#include "kernels/op.h"
#include "kernels/shape_rules.h"

namespace stampmill {
namespace {

constexpr size_t kFollowedCarriedMax = 8;  // elements of what a loop carries
// Iterations of a loop over constants that are run at once.
constexpr int64_t kFoldedTripsMax = 4096;

bool MentionsAny(const Shape& shape, absl::string_view symbol) {
  return std::any_of(shape.begin(), shape.end(),
                     [&](const DimExpr& dim) { return MentionsSymbol(dim, symbol); });
}

}  // namespace

// Runs a loop whose inputs are all constant; true when that made its outputs constants.
absl::StatusOr<bool> Resolver::FoldRepeat(const Graph& source, const Node& node, Places& places,
                                          GraphScope& scope, int64_t trips) {
  if (trips > kFoldedTripsMax) return false;
  std::vector<Tensor> inputs;
  for (const ValueId input : node.inputs) {
    const Ref ref = Find(source, input, places, scope);
    if (ref.id == kNoValue) {
      inputs.emplace_back();
      continue;
    }
    const Value& value = ref.scope->graph.value(ref.id);
    if (!value.constant.has_value()) return false;
    inputs.push_back(*value.constant);
  }
  ASSIGN_OR_RETURN(const OpDefinition* op, RequireOp(node));
  ASSIGN_OR_RETURN(std::vector<Tensor> outputs, op->reference({node, inputs}));
  if (outputs.size() < node.outputs.size()) return NodeError(node, "fewer results than outputs");
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    const ValueId id =
        scope.graph.AddConstant(source.value(node.outputs[i]).name, std::move(outputs[i]));
    InferConstant(scope.graph.value(id));
    places[static_cast<size_t>(node.outputs[i])] = Ref{&scope, id};
  }
  return true;
}

// Builds the body. A probe gives what is carried and may be followed symbols of its own.
absl::StatusOr<std::vector<Ref>> Resolver::BuildRepeatBody(Repeat& repeat, GraphScope& body,
                                                           bool probe) {
  Places places = repeat.places;
  const auto bind = [&](ValueId source_input, Value value) {
    const ValueId id = body.graph.AddInput(std::move(value));
    places[static_cast<size_t>(source_input)] = Ref{&body, id};
  };
  const DimExpr step = DimExpr::Symbol(repeat.iteration);
  Value iteration = {.name = "iteration",
                     .dtype = DType::kI64,
                     .shape = Shape{},
                     .symbolic = std::vector<DimExpr>{step}};
  if (repeat.source_iteration == kNoValue) {
    body.graph.AddInput(std::move(iteration));
  } else {
    bind(repeat.source_iteration, std::move(iteration));
  }
  for (size_t i = 0; i < repeat.carried.size(); ++i) {
    const Carried& carried = repeat.carried[i];
    const Value& start = body.outer->graph.value(carried.start.id);
    Value value = {.name = repeat.source->value(carried.source_input).name,
                   .dtype = start.dtype,
                   .shape = start.shape};
    if (probe && carried.start_contents.has_value()) {
      value.symbolic.emplace();
      for (size_t e = 0; e < carried.start_contents->size(); ++e) {
        value.symbolic->push_back(DimExpr::SignedSymbol(absl::StrCat("carried ", i, ".", e)));
      }
    } else if (carried.step_contents.has_value()) {
      value.symbolic.emplace();
      for (size_t e = 0; e < carried.start_contents->size(); ++e) {
        value.symbolic->push_back((*carried.start_contents)[e] +
                                  step * (*carried.step_contents)[e]);
      }
    }
    bind(carried.source_input, std::move(value));
  }
  for (const Scanned& scanned : repeat.scanned) {
    const Value& whole = body.outer->graph.value(scanned.id);
    bind(scanned.source_input, {.name = repeat.source->value(scanned.source_input).name,
                                .dtype = whole.dtype,
                                .shape = Shape(whole.shape->begin() + 1, whole.shape->end())});
  }
  return Build(*repeat.source, std::move(places), 0, body);
}

// What grows by a fixed step: whose result differs from what the probe gave it by nothing that the
// loop changes.
void Resolver::FindSteps(const Repeat& repeat, GraphScope& body, const std::vector<Ref>& outputs,
                         std::vector<Carried>& carried) const {
  absl::flat_hash_set<std::string> changing = {repeat.iteration};
  for (size_t i = 0; i < carried.size(); ++i) {
    if (!carried[i].start_contents.has_value()) continue;
    for (size_t e = 0; e < carried[i].start_contents->size(); ++e) {
      changing.insert(absl::StrCat("carried ", i, ".", e));
    }
  }
  for (size_t i = 0; i < carried.size(); ++i) {
    if (!carried[i].start_contents.has_value()) continue;
    const auto at = std::find(repeat.source->outputs().begin(), repeat.source->outputs().end(),
                              carried[i].source_output);
    const Ref& ref = outputs[static_cast<size_t>(at - repeat.source->outputs().begin())];
    const Value& result = ref.scope->graph.value(ref.id);
    if (ref.scope != &body || !result.symbolic.has_value() ||
        result.symbolic->size() != carried[i].start_contents->size()) {
      continue;
    }
    std::vector<DimExpr> steps;
    bool fixed = true;
    for (size_t e = 0; e < result.symbolic->size(); ++e) {
      steps.push_back((*result.symbolic)[e] -
                      DimExpr::SignedSymbol(absl::StrCat("carried ", i, ".", e)));
      for (const std::string& symbol : steps.back().Symbols()) {
        fixed = fixed && !changing.contains(symbol);
      }
    }
    if (fixed) carried[i].step_contents = std::move(steps);
  }
}

absl::Status Resolver::StartUnread(const Repeat& repeat, Carried& carried, const Ref& result,
                                   GraphScope& scope) {
  const Value& end = result.scope->graph.value(result.id);
  if (*scope.graph.value(carried.start.id).shape == *end.shape) return absl::OkStatus();
  if (repeat.count.LowerBound().value_or(0) < 1 || MentionsAny(*end.shape, repeat.iteration)) {
    return absl::OkStatus();
  }
  const auto reads = [&](std::span<const ValueId> ids) {
    return std::find(ids.begin(), ids.end(), carried.source_input) != ids.end();
  };
  if (reads(repeat.source->outputs())) return absl::OkStatus();
  for (const NodeId id : repeat.source->Order()) {
    if (reads(repeat.source->node(id).inputs)) return absl::OkStatus();
  }
  Node node = {
      .op_type = "ConstantOfShape", .name = end.name, .inputs = {AddShape(*end.shape, scope)}};
  ASSIGN_OR_RETURN(node.attributes["value"], Tensor::Allocate(end.dtype, {1}));
  const NodeId made = scope.graph.AddNode(std::move(node), 1);
  RETURN_IF_ERROR(InferNode(scope.graph, made, {}));
  carried.start = Ref{&scope, scope.graph.node(made).outputs[0]};
  carried.start_contents.reset();
  return absl::OkStatus();
}

// One element keeps the rank that it begins with: exporters whose scalars are of one dim mix both.
absl::StatusOr<Ref> Resolver::InStartShape(const Carried& carried, Ref result, GraphScope& body) {
  const Shape& start = *carried.start.scope->graph.value(carried.start.id).shape;
  const Shape& shape = *result.scope->graph.value(result.id).shape;
  if (start.size() == shape.size()) return result;
  if (!ElementCount(start).IsConstant(1) || !ElementCount(shape).IsConstant(1)) return result;
  const std::vector<int64_t> ones(start.size(), 1);
  const ValueId wanted =
      body.graph.AddConstant("rank", Tensor::FromInt64({static_cast<int64_t>(ones.size())}, ones));
  InferConstant(body.graph.value(wanted));
  Node node = {.op_type = "Reshape",
               .name = result.scope->graph.value(result.id).name,
               .inputs = {Use(result, body), wanted}};
  const NodeId made = body.graph.AddNode(std::move(node), 1);
  RETURN_IF_ERROR(InferNode(body.graph, made, {}));
  return Ref{&body, body.graph.node(made).outputs[0]};
}

absl::Status Resolver::CheckCarried(const Node& node, const Repeat& repeat, const Carried& carried,
                                    const Value& start, const Value& result,
                                    GraphScope& scope) const {
  const std::string& name = repeat.source->value(carried.source_input).name;
  if (start.dtype != result.dtype) {
    return NodeError(node, absl::StrCat("carried '", name, "': begins as ", Name(start.dtype),
                                        " and becomes ", Name(result.dtype)));
  }
  const auto changes = [&] {
    return NodeUnsupported(
        node, absl::StrCat("carried '", name, "': its shape changes between iterations, from ",
                           ToString(*start.shape), " to ", ToString(*result.shape)));
  };
  if (start.shape->size() != result.shape->size() || MentionsAny(*result.shape, repeat.iteration)) {
    return changes();
  }
  for (size_t d = 0; d < start.shape->size(); ++d) {
    const DimExpr &a = (*start.shape)[d], &b = (*result.shape)[d];
    const std::optional<bool> equal = KnownEqual(a, b);
    if (equal.has_value() && !*equal) return changes();
    if (equal.has_value()) continue;
    scope.graph.AddCheck(
        {EitherOf(IsEqual(a, b), IsNot(Min(1, repeat.count))),
         absl::StrCat(node.Describe(), ": carried '", name, "': dim ", d,
                      " changes between iterations, from ", a.ToString(), " to ", b.ToString())});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Ref>> Resolver::Proceed(const Node& node, Repeat& repeat,
                                                     Ref condition, GraphScope& body) {
  const ValueId id = Use(condition, body);
  ASSIGN_OR_RETURN(DimExpr goes_on, Scalar(node, id, 1, body));
  if (goes_on.UpperBound().value_or(1) <= 0) {
    repeat.count = Min(1, repeat.count);
    return std::nullopt;
  }
  // It matters after all iterations but the last: in those numbered count - 2 - left.
  const DimExpr left = DimExpr::Symbol(Fresh("left"));
  const DimExpr before_last = goes_on.Substitute({{repeat.iteration, repeat.count - 2 - left}});
  if (goes_on.LowerBound().value_or(0) > 0 || before_last.LowerBound().value_or(0) > 0) {
    return std::nullopt;
  }
  return Ref{&body, AddDims(goes_on, body)};
}

absl::Status Resolver::ProbeSteps(Repeat& repeat, GraphScope& scope) {
  const bool follows = std::any_of(repeat.carried.begin(), repeat.carried.end(),
                                   [](const auto& c) { return c.start_contents.has_value(); });
  if (!follows) return absl::OkStatus();
  GraphScope probe;
  probe.outer = &scope;
  probe.graph.opsets = scope.graph.opsets;
  ASSIGN_OR_RETURN(const std::vector<Ref> outputs, BuildRepeatBody(repeat, probe, true));
  FindSteps(repeat, probe, outputs, repeat.carried);
  return absl::OkStatus();
}

Node Resolver::RepeatNode(const Node& node, const Repeat& repeat, GraphScope& scope) {
  Node made = {.op_type = "Repeat", .domain = "stampmill", .name = node.name};
  made.attributes["iteration"] = repeat.iteration;
  made.attributes["carried"] = static_cast<int64_t>(repeat.carried.size());
  made.attributes["scanned"] = static_cast<int64_t>(repeat.scanned.size());
  made.attributes["reversed_outputs"] = repeat.reversed_results;
  std::vector<int64_t> reversed;
  for (const Scanned& scanned : repeat.scanned) reversed.push_back(scanned.reversed ? 1 : 0);
  made.attributes["reversed_inputs"] = std::move(reversed);
  made.inputs = {AddDims(repeat.count, scope)};
  for (const Carried& carried : repeat.carried) made.inputs.push_back(carried.start.id);
  for (const Scanned& scanned : repeat.scanned) made.inputs.push_back(scanned.id);
  return made;
}

absl::StatusOr<Value> Resolver::CarriedResult(const Node& node, const Repeat& repeat,
                                              const Carried& carried, const Ref& next,
                                              const DimExpr& trips, GraphScope& scope) {
  const Value start = scope.graph.value(carried.start.id);
  const Value result = next.scope->graph.value(next.id);
  RETURN_IF_ERROR(CheckCarried(node, repeat, carried, start, result, scope));
  Value value = {.name = result.name, .dtype = start.dtype, .shape = start.shape};
  if (!carried.step_contents.has_value()) return value;
  value.symbolic.emplace();
  for (size_t e = 0; e < carried.step_contents->size(); ++e) {
    value.symbolic->push_back((*carried.start_contents)[e] + trips * (*carried.step_contents)[e]);
  }
  return value;
}

absl::StatusOr<Value> Resolver::RowsResult(const Node& node, const Repeat& repeat, const Ref& row,
                                           const DimExpr& trips, size_t first_late) const {
  const Value& one = row.scope->graph.value(row.id);
  if (MentionsAny(*one.shape, repeat.iteration) || MentionsLate(*one.shape, first_late)) {
    return NodeUnsupported(node, absl::StrCat("result '", one.name, "': its shape ",
                                              ToString(*one.shape), " changes between iterations"));
  }
  if (repeat.count.IsConstant(kUnlimited)) {
    return NodeUnsupported(node, absl::StrCat("result '", one.name,
                                              "': rows of a loop without a greatest number of "
                                              "iterations"));
  }
  Value value = {.name = one.name, .dtype = one.dtype, .shape = *one.shape};
  value.shape->insert(value.shape->begin(), trips);
  return value;
}

absl::StatusOr<Resolver::RepeatResult> Resolver::BuildRepeat(const Node& node, Repeat& repeat,
                                                             GraphScope& scope) {
  RETURN_IF_ERROR(ProbeSteps(repeat, scope));
  GraphScope body;
  body.outer = &scope;
  body.graph.opsets = scope.graph.opsets;
  const size_t first_late = late_.size();
  ASSIGN_OR_RETURN(const std::vector<Ref> outputs, BuildRepeatBody(repeat, body, false));
  const auto output = [&](ValueId id) {
    const auto at = std::find(repeat.source->outputs().begin(), repeat.source->outputs().end(), id);
    return outputs[static_cast<size_t>(at - repeat.source->outputs().begin())];
  };
  std::vector<Ref> results;
  if (repeat.source_proceed != kNoValue) {
    ASSIGN_OR_RETURN(const std::optional<Ref> proceed,
                     Proceed(node, repeat, output(repeat.source_proceed), body));
    if (proceed.has_value()) results.push_back(*proceed);
  }
  for (Carried& carried : repeat.carried) {
    RETURN_IF_ERROR(StartUnread(repeat, carried, output(carried.source_output), scope));
  }
  Node made = RepeatNode(node, repeat, scope);
  DimExpr trips = repeat.count;
  if (!results.empty()) {
    const std::string symbol = Fresh(absl::StrCat("trips of '", node.name, "'"));
    made.attributes["trips"] = symbol;
    trips = DimExpr::Symbol(symbol);
  }
  RepeatResult result;
  const auto add = [&](Value value) {
    made.outputs.push_back(scope.graph.AddValue(std::move(value)));
    return Ref{&scope, made.outputs.back()};
  };
  for (const Carried& carried : repeat.carried) {
    ASSIGN_OR_RETURN(const Ref next, InStartShape(carried, output(carried.source_output), body));
    results.push_back(next);
    ASSIGN_OR_RETURN(Value value,
                     CarriedResult(node, repeat, carried, results.back(), trips, scope));
    result.carried.push_back(add(std::move(value)));
  }
  for (const ValueId id : repeat.source_results) {
    results.push_back(output(id));
    ASSIGN_OR_RETURN(Value value, RowsResult(node, repeat, results.back(), trips, first_late));
    result.rows.push_back(add(std::move(value)));
  }
  const Finished finished = Finish(body, results);
  made.inputs.insert(made.inputs.end(), finished.captures.begin(), finished.captures.end());
  made.attributes["body"] = finished.graph;
  if (made.Has("trips") && !made.outputs.empty()) {
    AddLate(trips.symbol_name(), made.outputs[0], scope);
  }
  scope.graph.AddNode(std::move(made));
  return result;
}

absl::StatusOr<DimExpr> Resolver::LoopCount(const Graph& source, const Node& node, size_t own,
                                            Places& places, GraphScope& scope) {
  DimExpr count = kUnlimited;
  if (own > 0 && node.inputs[0] != kNoValue) {
    const ValueId id = Use(Find(source, node.inputs[0], places, scope), scope);
    ASSIGN_OR_RETURN(count, Scalar(node, id, kUnlimited, scope));
    count = Max(0, count);
  }
  if (own > 1 && node.inputs[1] != kNoValue) {
    const ValueId id = Use(Find(source, node.inputs[1], places, scope), scope);
    ASSIGN_OR_RETURN(const DimExpr begins, Scalar(node, id, 1, scope));
    // A loop that begins when it has an iteration to make says nothing new.
    if (!(begins == Min(1, count))) count = Choose(begins, count, 0);
  }
  return count;
}

// Binds what a Loop carries; gives the values that it does not change, which need not be carried.
absl::StatusOr<std::vector<std::optional<Ref>>> Resolver::BindCarried(
    const Graph& source, const Node& node, Places& places, Repeat& repeat, size_t carried,
    GraphScope& scope) {
  const std::span<const ValueId> inputs = repeat.source->inputs();
  const std::span<const ValueId> outputs = repeat.source->outputs();
  std::vector<std::optional<Ref>> unchanged(carried);
  for (size_t i = 0; i < carried; ++i) {
    const Ref start = Find(source, node.inputs[2 + i], places, scope);
    if (start.id == kNoValue) return NodeError(node, absl::StrCat("input ", 2 + i, " is missing"));
    if (outputs[1 + i] == inputs[2 + i]) {
      unchanged[i] = start;
      repeat.places[static_cast<size_t>(inputs[2 + i])] = start;
      continue;
    }
    Carried value = {.start = Ref{&scope, Use(start, scope)},
                     .source_input = inputs[2 + i],
                     .source_output = outputs[1 + i]};
    const Value& first = scope.graph.value(value.start.id);
    if (first.symbolic.has_value() && first.symbolic->size() <= kFollowedCarriedMax) {
      value.start_contents = first.symbolic;
    }
    repeat.carried.push_back(std::move(value));
  }
  return unchanged;
}

absl::Status Resolver::ResolveLoop(const Graph& source, const Node& node, Places& places,
                                   GraphScope& scope) {
  Repeat repeat;
  repeat.source = BodyOf(node, "body");
  if (repeat.source == nullptr) return NodeError(node, "no graph 'body'");
  const auto captures = static_cast<size_t>(repeat.source->captures);
  const std::span<const ValueId> inputs = repeat.source->inputs();
  const std::span<const ValueId> outputs = repeat.source->outputs();
  const size_t own = node.inputs.size() - captures;
  const size_t carried = own > 2 ? own - 2 : 0;
  if (inputs.size() != 2 + carried + captures || outputs.size() < 1 + carried ||
      node.outputs.size() > outputs.size() - 1) {
    return NodeError(node, absl::StrCat("body: got ", inputs.size() - captures, " inputs and ",
                                        outputs.size(), " outputs for ", carried,
                                        " carried values and ", node.outputs.size(), " outputs"));
  }
  ASSIGN_OR_RETURN(repeat.count, LoopCount(source, node, own, places, scope));
  if (const std::optional<int64_t> trips = repeat.count.constant(); trips.has_value()) {
    ASSIGN_OR_RETURN(const bool folded, FoldRepeat(source, node, places, scope, *trips));
    if (folded) return absl::OkStatus();
  }
  repeat.iteration = Fresh(absl::StrCat("step of '", node.name, "'"));
  repeat.source_iteration = inputs[0];
  repeat.source_proceed = outputs[0];
  repeat.places.resize(repeat.source->value_count());
  const auto bind = [&](ValueId inner, Ref ref) {
    repeat.places[static_cast<size_t>(inner)] = ref;
  };
  for (size_t i = 0; i < captures; ++i) {
    bind(inputs[2 + carried + i], Find(source, node.inputs[own + i], places, scope));
  }
  // An iteration begins only when the condition holds.
  const ValueId holds = scope.graph.AddConstant("condition", Tensor::Scalar(DType::kBool, 1));
  InferConstant(scope.graph.value(holds));
  bind(inputs[1], Ref{&scope, holds});
  ASSIGN_OR_RETURN(const std::vector<std::optional<Ref>> unchanged,
                   BindCarried(source, node, places, repeat, carried, scope));
  const size_t results = outputs.size() - 1 - carried;
  for (size_t i = 0; i < results; ++i) repeat.source_results.push_back(outputs[1 + carried + i]);
  repeat.reversed_results.assign(results, 0);
  ASSIGN_OR_RETURN(const RepeatResult result, BuildRepeat(node, repeat, scope));
  size_t next = 0;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Ref ref;
    if (i >= carried) {
      ref = result.rows[i - carried];
    } else if (unchanged[i].has_value()) {
      ref = *unchanged[i];
    } else {
      ref = result.carried[next++];
    }
    if (node.outputs[i] != kNoValue) places[static_cast<size_t>(node.outputs[i])] = ref;
  }
  return absl::OkStatus();
}

// `id` with axis `from` moved to `to`.
ValueId Resolver::MoveAxis(ValueId id, size_t from, size_t to, GraphScope& scope,
                           absl::Status& status) {
  if (from == to) return id;
  std::vector<int64_t> order;
  for (size_t d = 0; d < scope.graph.value(id).shape->size(); ++d) {
    order.push_back(static_cast<int64_t>(d));
  }
  order.erase(order.begin() + static_cast<int64_t>(from));
  order.insert(order.begin() + static_cast<int64_t>(to), static_cast<int64_t>(from));
  Node node = {.op_type = "Transpose", .name = scope.graph.value(id).name, .inputs = {id}};
  node.attributes["perm"] = std::move(order);
  const NodeId made = scope.graph.AddNode(std::move(node), 1);
  const ValueId result = scope.graph.node(made).outputs[0];
  status.Update(InferNode(scope.graph, made, {}));
  return result;
}

// All scanned tensors have as many rows as the first.
absl::Status Resolver::CheckLength(const Node& node, Repeat& repeat, GraphScope& scope) const {
  const DimExpr length = (*scope.graph.value(repeat.scanned.back().id).shape)[0];
  if (repeat.scanned.size() == 1) repeat.count = length;
  const std::optional<bool> equal = KnownEqual(repeat.count, length);
  if (equal.has_value() && *equal) return absl::OkStatus();
  if (equal.has_value()) {
    return NodeError(node, absl::StrCat("scanned tensors: got lengths ", repeat.count.ToString(),
                                        " and ", length.ToString()));
  }
  scope.graph.AddCheck({IsEqual(repeat.count, length),
                        absl::StrCat(node.Describe(), ": scanned tensors differ in length")});
  return absl::OkStatus();
}

namespace {

// An attribute of Scan with an entry for each tensor; zeros when it is left out.
absl::StatusOr<std::vector<int64_t>> ScanList(const Node& node, const char* name, size_t size) {
  ASSIGN_OR_RETURN(std::vector<int64_t> values, node.Ints(name, std::vector<int64_t>(size, 0)));
  if (values.size() == size) return values;
  return NodeError(node, absl::StrCat(name, ": got ", values.size(), " entries, limit ", size));
}

absl::StatusOr<size_t> ScanAxis(const Node& node, int64_t axis, size_t rank) {
  const auto limit = static_cast<int64_t>(rank);
  if (axis >= -limit && axis < limit) return static_cast<size_t>(axis < 0 ? axis + limit : axis);
  return NodeError(node, absl::StrCat("scan axes: got ", axis, ", rank is ", rank));
}

}  // namespace

absl::Status Resolver::ResolveScan(const Graph& source, const Node& node, Places& places,
                                   GraphScope& scope) {
  Repeat repeat;
  repeat.source = BodyOf(node, "body");
  if (repeat.source == nullptr) return NodeError(node, "no graph 'body'");
  const auto captures = static_cast<size_t>(repeat.source->captures);
  const std::span<const ValueId> inputs = repeat.source->inputs();
  const std::span<const ValueId> outputs = repeat.source->outputs();
  const size_t own = node.inputs.size() - captures;
  ASSIGN_OR_RETURN(const int64_t given, node.Int("num_scan_inputs", 0));
  if (given < 1 || static_cast<size_t>(given) > own) {
    return NodeError(node, absl::StrCat("num_scan_inputs: got ", given, ", limits 1 and ", own));
  }
  const auto scanned = static_cast<size_t>(given);
  const size_t carried = own - scanned;
  if (inputs.size() != own + captures || outputs.size() < carried ||
      node.outputs.size() > outputs.size()) {
    return NodeError(node, "body: its inputs or outputs do not fit");
  }
  const size_t results = outputs.size() - carried;
  const auto list = [&](const char* name, size_t size) { return ScanList(node, name, size); };
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, list("scan_input_axes", scanned));
  ASSIGN_OR_RETURN(const std::vector<int64_t> directions, list("scan_input_directions", scanned));
  ASSIGN_OR_RETURN(const std::vector<int64_t> out_axes, list("scan_output_axes", results));
  ASSIGN_OR_RETURN(repeat.reversed_results, list("scan_output_directions", results));
  repeat.iteration = Fresh(absl::StrCat("step of '", node.name, "'"));
  repeat.places.resize(repeat.source->value_count());
  for (size_t i = 0; i < captures; ++i) {
    repeat.places[static_cast<size_t>(inputs[own + i])] =
        Find(source, node.inputs[own + i], places, scope);
  }
  for (size_t i = 0; i < own; ++i) {
    const ValueId id = Use(Find(source, node.inputs[i], places, scope), scope);
    if (id == kNoValue) return NodeError(node, absl::StrCat("input ", i, " is missing"));
    if (i < carried) {
      repeat.carried.push_back(
          {.start = Ref{&scope, id}, .source_input = inputs[i], .source_output = outputs[i]});
      continue;
    }
    const size_t s = i - carried;
    ASSIGN_OR_RETURN(const size_t axis,
                     ScanAxis(node, axes[s], scope.graph.value(id).shape->size()));
    absl::Status moved;
    repeat.scanned.push_back({.id = MoveAxis(id, axis, 0, scope, moved),
                              .reversed = directions[s] != 0,
                              .source_input = inputs[i]});
    RETURN_IF_ERROR(moved);
    RETURN_IF_ERROR(CheckLength(node, repeat, scope));
  }
  for (size_t i = 0; i < results; ++i) repeat.source_results.push_back(outputs[carried + i]);
  ASSIGN_OR_RETURN(const RepeatResult result, BuildRepeat(node, repeat, scope));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Ref ref = i < carried ? result.carried[i] : result.rows[i - carried];
    if (i >= carried) {
      ASSIGN_OR_RETURN(const size_t axis, ScanAxis(node, out_axes[i - carried],
                                                   scope.graph.value(ref.id).shape->size()));
      absl::Status moved;
      ref.id = MoveAxis(ref.id, 0, axis, scope, moved);
      RETURN_IF_ERROR(moved);
    }
    if (node.outputs[i] != kNoValue) places[static_cast<size_t>(node.outputs[i])] = ref;
  }
  return absl::OkStatus();
}

}  // namespace stampmill
