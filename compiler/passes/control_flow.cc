// Graphs are built anew, node by node in order, so that all that is known about a condition is
// known when its node is met. A body is a graph under construction inside another; what it uses of
// that one becomes an input (a capture) when it is first used.
#include "compiler/passes/control_flow.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/passes/resolver.h"
#include "kernels/op.h"
#include "kernels/shape_rules.h"

namespace stampmill {
namespace {

// Nodes that are made, those of attempts that come to nothing included.
constexpr int64_t kNodesMax = int64_t{1} << 20;
constexpr int kDepthMax = 48;
// Elements of an input that may be followed as symbols.
constexpr int64_t kFollowedInputMax = 32;

}  // namespace

bool MentionsSymbol(const DimExpr& e, absl::string_view symbol) {
  const std::vector<std::string> symbols = e.Symbols();
  return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
}

const Graph* BodyOf(const Node& node, absl::string_view name) {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return nullptr;
  const auto* body = std::get_if<std::shared_ptr<const Graph>>(&found->second);
  return body == nullptr ? nullptr : body->get();
}

absl::Status NodeError(const Node& node, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": ", message));
}
absl::Status NodeUnsupported(const Node& node, absl::string_view message) {
  return absl::UnimplementedError(absl::StrCat(node.Describe(), ": ", message));
}

ValueId Resolver::Use(const Ref& ref, GraphScope& scope) {
  if (ref.id == kNoValue || ref.scope == &scope) return ref.id;
  const ValueId outer = Use(ref, *scope.outer);
  const auto found = scope.captured.find(outer);
  if (found != scope.captured.end()) return found->second;
  const Value& value = scope.outer->graph.value(outer);
  ValueId id = kNoValue;
  if (value.constant.has_value()) {
    id = scope.graph.AddConstant(value.name, *value.constant);
    InferConstant(scope.graph.value(id));
  } else {
    id = scope.graph.AddInput({.name = value.name,
                               .dtype = value.dtype,
                               .shape = value.shape,
                               .symbolic = value.symbolic});
    scope.captures.push_back(outer);
  }
  scope.captured.emplace(outer, id);
  return id;
}

Ref Resolver::Find(const Graph& source, ValueId id, Places& places, GraphScope& scope) {
  if (id == kNoValue) return {&scope, kNoValue};
  std::optional<Ref>& place = places[static_cast<size_t>(id)];
  if (place.has_value()) return *place;
  // What no node made and no input is is a constant.
  const Value& value = source.value(id);
  const ValueId made = scope.graph.AddConstant(value.name, *value.constant);
  InferConstant(scope.graph.value(made));
  place = Ref{&scope, made};
  return *place;
}

ValueId Resolver::AddOperator(Node node, Value output, GraphScope& scope) {
  node.outputs = {scope.graph.AddValue(std::move(output))};
  const ValueId id = node.outputs[0];
  scope.graph.AddNode(std::move(node));
  return id;
}

ValueId Resolver::AddDims(const DimExpr& dim, GraphScope& scope) {
  if (const std::optional<int64_t> constant = dim.constant(); constant.has_value()) {
    const ValueId id = scope.graph.AddConstant("dim", Tensor::Scalar(DType::kI64, *constant));
    InferConstant(scope.graph.value(id));
    return id;
  }
  const ValueId vector = AddShape({dim}, scope);
  scope.graph.value(vector).shape = Shape{};
  return vector;
}

ValueId Resolver::AddShape(const Shape& dims, GraphScope& scope) {
  Node node = {.op_type = "Dims", .domain = "stampmill", .name = Fresh("dim")};
  node.attributes["contents"] = ToString(dims);  // tells them apart
  std::set<std::string> symbols;
  for (const DimExpr& dim : dims) {
    for (std::string& symbol : dim.Symbols()) symbols.insert(std::move(symbol));
  }
  for (const std::string& symbol : symbols) {
    // What the host reads is there before what depends on it.
    const auto read = reads_.find(symbol);
    if (read != reads_.end()) node.inputs.push_back(Use(read->second, scope));
  }
  return AddOperator(std::move(node),
                     {.name = "dim",
                      .dtype = DType::kI64,
                      .shape = Shape{static_cast<int64_t>(dims.size())},
                      .symbolic = dims},
                     scope);
}

ValueId Resolver::AddRead(ValueId id, int64_t limit, GraphScope& scope) {
  const Value& value = scope.graph.value(id);
  const std::string symbol = Fresh(absl::StrCat("value of '", value.name, "'"));
  const DimExpr contents = limit == 1 ? Min(1, DimExpr::Symbol(symbol)) : DimExpr::Symbol(symbol);
  Node node = {.op_type = "Read", .domain = "stampmill", .name = value.name, .inputs = {id}};
  node.attributes["symbol"] = symbol;
  node.attributes["limit"] = limit;
  const ValueId read = AddOperator(std::move(node),
                                   {.name = value.name,
                                    .dtype = value.dtype,
                                    .shape = Shape{},
                                    .symbolic = std::vector<DimExpr>{contents}},
                                   scope);
  AddLate(symbol, read, scope);
  return read;
}

void Resolver::AddLate(absl::string_view symbol, ValueId id, GraphScope& scope) {
  late_.emplace_back(symbol);
  reads_[symbol] = Ref{&scope, id};
}

void Resolver::PassOut(size_t first, ValueId id, GraphScope& scope) {
  for (size_t i = first; i < late_.size(); ++i) reads_[late_[i]] = Ref{&scope, id};
}

bool Resolver::MentionsLate(const Shape& shape, size_t first) const {
  const auto begin = late_.begin() + static_cast<int64_t>(first);
  return std::ranges::any_of(shape, [&](const DimExpr& dim) {
    return std::ranges::any_of(dim.Symbols(), [&](const std::string& symbol) {
      return std::find(begin, late_.end(), symbol) != late_.end();
    });
  });
}

absl::StatusOr<DimExpr> Resolver::Scalar(const Node& node, ValueId id, int64_t limit,
                                         GraphScope& scope) {
  const Value& value = scope.graph.value(id);
  const bool fits = limit == 1 ? value.dtype == DType::kBool : IsInteger(value.dtype);
  if (!fits) {
    return NodeError(node, absl::StrCat("'", value.name, "': got type ", Name(value.dtype),
                                        ", want ", limit == 1 ? "bool" : "an integer"));
  }
  if (!ElementCount(*value.shape).IsConstant(1)) {
    return NodeError(node, absl::StrCat("'", value.name, "': got shape ", ToString(*value.shape),
                                        ", want one element"));
  }
  if (value.symbolic.has_value()) return (*value.symbolic)[0];
  return (*scope.graph.value(AddRead(id, limit, scope)).symbolic)[0];
}

Finished Resolver::Finish(GraphScope& scope, const std::vector<Ref>& outputs) {
  std::vector<ValueId> ids;
  for (const Ref& output : outputs) ids.push_back(Use(output, scope));
  scope.graph.SetOutputs(std::move(ids));
  scope.graph.RemoveDeadNodes();
  const std::vector<int32_t> uses = scope.graph.UseCounts();
  const std::span<const ValueId> inputs = scope.graph.inputs();
  const size_t own = inputs.size() - scope.captures.size();
  std::vector<ValueId> kept(inputs.begin(), inputs.begin() + static_cast<int64_t>(own));
  Finished finished;
  for (size_t i = 0; i < scope.captures.size(); ++i) {
    if (uses[static_cast<size_t>(inputs[own + i])] == 0) continue;
    kept.push_back(inputs[own + i]);
    finished.captures.push_back(scope.captures[i]);
  }
  scope.graph.SetInputs(std::move(kept));
  scope.graph.captures = static_cast<int32_t>(finished.captures.size());
  finished.graph = std::make_shared<const Graph>(std::move(scope.graph));
  return finished;
}

absl::Status Resolver::CopyNode(const Graph& source, const Node& node, Places& places,
                                GraphScope& scope) {
  Node copy = node;
  for (ValueId& input : copy.inputs) input = Use(Find(source, input, places, scope), scope);
  for (ValueId& output : copy.outputs) {
    if (output == kNoValue) continue;
    const Value& declared = source.value(output);
    const ValueId made = scope.graph.AddValue(
        {.name = declared.name, .dtype = declared.dtype, .shape = declared.shape});
    places[static_cast<size_t>(output)] = Ref{&scope, made};
    output = made;
  }
  if (CountsItsResult(copy)) {
    copy.attributes[kUniqueAttribute] = Fresh(absl::StrCat("'", node.name, "'"));
  }
  const NodeId id = scope.graph.AddNode(std::move(copy));
  RETURN_IF_ERROR(InferNode(scope.graph, id, {}));
  const Node& made = scope.graph.node(id);
  if (!CountsItsResult(made)) return absl::OkStatus();
  for (const ValueId output : made.outputs) {
    if (output == kNoValue) continue;
    for (const DimExpr& dim : *scope.graph.value(output).shape) {
      const std::string count(CountOf(made, "count").symbol_name());
      if (MentionsSymbol(dim, count)) AddLate(count, output, scope);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Ref>> Resolver::Build(const Graph& source, Places places,
                                                 size_t position, GraphScope& scope) {
  if (depth_ >= kDepthMax) {
    return absl::InvalidArgumentError(absl::StrCat("control flow: bodies deeper than ", kDepthMax));
  }
  ++depth_;
  absl::StatusOr<std::vector<Ref>> result = [&]() -> absl::StatusOr<std::vector<Ref>> {
    const std::vector<NodeId> order = source.Order();
    for (; position < order.size(); ++position) {
      const Node& node = source.node(order[position]);
      if (++nodes_ > kNodesMax) {
        return absl::InvalidArgumentError(
            absl::StrCat("control flow: becomes more than ", kNodesMax, " nodes"));
      }
      if (node.domain.empty() && node.op_type == "If") {
        ASSIGN_OR_RETURN(Outputs outputs, ResolveIf(source, node, places, position, scope));
        if (outputs.has_value()) return *std::move(outputs);
      } else if (node.domain.empty() && node.op_type == "Loop") {
        RETURN_IF_ERROR(ResolveLoop(source, node, places, scope));
      } else if (node.domain.empty() && node.op_type == "Scan") {
        RETURN_IF_ERROR(ResolveScan(source, node, places, scope));
      } else {
        RETURN_IF_ERROR(CopyNode(source, node, places, scope));
      }
    }
    std::vector<Ref> outputs;
    for (const ValueId id : source.outputs()) outputs.push_back(Find(source, id, places, scope));
    return outputs;
  }();
  --depth_;
  return result;
}

// If.

Places Resolver::BranchPlaces(const Graph& source, const Node& node, const Graph& body,
                              Places& places, GraphScope& scope) {
  Places inner(body.value_count());
  const size_t captures = body.inputs().size();
  for (size_t i = 0; i < captures; ++i) {
    const ValueId given = node.inputs[node.inputs.size() - captures + i];
    inner[static_cast<size_t>(body.inputs()[i])] = Find(source, given, places, scope);
  }
  return inner;
}

absl::Status Resolver::TakeBranch(const Graph& source, const Node& node, Places& places,
                                  GraphScope& scope, const Graph& body) {
  ASSIGN_OR_RETURN(const std::vector<Ref> results,
                   Build(body, BranchPlaces(source, node, body, places, scope), 0, scope));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) places[static_cast<size_t>(node.outputs[i])] = results[i];
  }
  return absl::OkStatus();
}

// Builds the branch in a scope of its own, and what follows the If at `rest` behind it.
void Resolver::BuildBranch(const Graph& source, const Node& node, Places& places, GraphScope& scope,
                           std::optional<size_t> rest, Branch& branch) {
  branch.scope = std::make_unique<GraphScope>();
  branch.scope->outer = &scope;
  branch.scope->graph.opsets = scope.graph.opsets;
  branch.results = Build(*branch.body, BranchPlaces(source, node, *branch.body, places, scope), 0,
                         *branch.scope);
  if (!branch.results.ok() || !rest.has_value()) return;
  Places with_results = places;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    with_results[static_cast<size_t>(node.outputs[i])] = (*branch.results)[i];
  }
  branch.results = Build(source, std::move(with_results), *rest, *branch.scope);
}

bool Resolver::Agree(Branch& a, Branch& b) {
  for (size_t i = 0; i < a.results->size(); ++i) {
    const Ref &x = (*a.results)[i], &y = (*b.results)[i];
    const Value &u = x.scope->graph.value(x.id), &v = y.scope->graph.value(y.id);
    if (u.dtype != v.dtype || u.shape->size() != v.shape->size()) return false;
  }
  return true;
}

absl::StatusOr<std::vector<Ref>> Resolver::MergeBranches(const Node& node, const DimExpr& condition,
                                                         Branch& then_branch, Branch& else_branch,
                                                         GraphScope& scope) {
  std::vector<Value> results;
  for (size_t i = 0; i < then_branch.results->size(); ++i) {
    const Ref &x = (*then_branch.results)[i], &y = (*else_branch.results)[i];
    const Value &u = x.scope->graph.value(x.id), &v = y.scope->graph.value(y.id);
    if (u.dtype != v.dtype) {
      return NodeError(
          node, absl::StrCat("result ", i, ": got types ", Name(u.dtype), " and ", Name(v.dtype)));
    }
    if (u.shape->size() != v.shape->size()) {
      return NodeUnsupported(node, absl::StrCat("result ", i, ": its rank depends on the request: ",
                                                ToString(*u.shape), " or ", ToString(*v.shape)));
    }
    Value result = {.name = u.name, .dtype = u.dtype, .shape = Shape{}};
    for (size_t d = 0; d < u.shape->size(); ++d) {
      result.shape->push_back(Choose(condition, (*u.shape)[d], (*v.shape)[d]));
    }
    if (u.symbolic.has_value() && v.symbolic.has_value() &&
        u.symbolic->size() == v.symbolic->size()) {
      result.symbolic.emplace();
      for (size_t e = 0; e < u.symbolic->size(); ++e) {
        result.symbolic->push_back(Choose(condition, (*u.symbolic)[e], (*v.symbolic)[e]));
      }
    }
    results.push_back(std::move(result));
  }
  Node merged = {.op_type = "If", .domain = "stampmill", .name = node.name};
  merged.inputs = {AddDims(condition, scope)};
  const Finished then_body = Finish(*then_branch.scope, *then_branch.results);
  const Finished else_body = Finish(*else_branch.scope, *else_branch.results);
  for (const Finished* body : {&then_body, &else_body}) {
    merged.inputs.insert(merged.inputs.end(), body->captures.begin(), body->captures.end());
  }
  merged.attributes["then_branch"] = then_body.graph;
  merged.attributes["else_branch"] = else_body.graph;
  std::vector<Ref> refs;
  for (Value& result : results) {
    refs.push_back({&scope, scope.graph.AddValue(std::move(result))});
    merged.outputs.push_back(refs.back().id);
  }
  scope.graph.AddNode(std::move(merged));
  return refs;
}

absl::StatusOr<Resolver::Outputs> Resolver::ResolveIf(const Graph& source, const Node& node,
                                                      Places& places, size_t position,
                                                      GraphScope& scope) {
  Branch branches[2];
  branches[0].body = BodyOf(node, "then_branch");
  branches[1].body = BodyOf(node, "else_branch");
  for (const Branch& branch : branches) {
    if (branch.body == nullptr || branch.body->outputs().size() != node.outputs.size() ||
        branch.body->inputs().size() != static_cast<size_t>(branch.body->captures) ||
        branch.body->inputs().size() + 1 != node.inputs.size()) {
      return NodeError(node, "a branch is missing, or its inputs or outputs do not fit");
    }
  }
  const ValueId given = Use(Find(source, node.inputs[0], places, scope), scope);
  ASSIGN_OR_RETURN(const DimExpr condition, Scalar(node, given, 1, scope));
  const bool always = condition.LowerBound().value_or(0) > 0;
  if (always || condition.UpperBound().value_or(1) <= 0) {
    RETURN_IF_ERROR(TakeBranch(source, node, places, scope, *branches[always ? 0 : 1].body));
    return std::nullopt;
  }
  const size_t first_late = late_.size();
  for (const std::optional<size_t> rest : {std::optional<size_t>(), std::optional(position + 1)}) {
    for (Branch& branch : branches) BuildBranch(source, node, places, scope, rest, branch);
    const bool fail[2] = {!branches[0].results.ok(), !branches[1].results.ok()};
    if (fail[0] && fail[1]) return branches[0].results.status();
    if (fail[0] || fail[1]) {
      const absl::Status status = branches[fail[0] ? 0 : 1].results.status();
      if (!absl::IsInvalidArgument(status)) return status;
      scope.graph.AddCheck({fail[0] ? 1 - condition : condition, std::string(status.message())});
      RETURN_IF_ERROR(TakeBranch(source, node, places, scope, *branches[fail[0] ? 1 : 0].body));
      return std::nullopt;
    }
    if (!rest.has_value() && !Agree(branches[0], branches[1])) continue;
    ASSIGN_OR_RETURN(std::vector<Ref> results,
                     MergeBranches(node, condition, branches[0], branches[1], scope));
    if (!results.empty()) PassOut(first_late, results[0].id, scope);
    if (rest.has_value()) return results;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) places[static_cast<size_t>(node.outputs[i])] = results[i];
    }
    break;
  }
  return std::nullopt;
}

// The graph.

namespace {

// Whether the elements of an input may be followed: few integers or bools, in a fixed number.
bool CanBeFollowed(const Value& value) {
  if (value.constant.has_value() || !value.shape.has_value() || !IsConstant(*value.shape)) {
    return false;
  }
  if (!IsInteger(value.dtype) && value.dtype != DType::kBool) return false;
  int64_t count = 1;
  for (const int64_t dim : ConstantShape(*value.shape)) {
    if (__builtin_mul_overflow(count, dim, &count)) return false;
  }
  return count <= kFollowedInputMax;
}

}  // namespace

absl::StatusOr<Graph> Resolver::Run(const Graph& source, const std::vector<bool>& followed) {
  GraphScope scope;
  Graph& graph = scope.graph;
  graph.name = source.name;
  graph.producer = source.producer;
  graph.ir_version = source.ir_version;
  graph.opsets = source.opsets;
  graph.metadata = source.metadata;
  graph.states = source.states;
  Places places(source.value_count());
  for (size_t i = 0; i < source.inputs().size(); ++i) {
    Value value = source.value(source.inputs()[i]);
    const ValueId id = graph.AddInput(value);
    places[static_cast<size_t>(source.inputs()[i])] = Ref{&scope, id};
    InferConstant(graph.value(id));
    if (!followed[i]) continue;
    std::vector<DimExpr> contents;
    const int64_t count = *ElementCount(*value.shape).constant();
    for (int64_t e = 0; e < count; ++e) {
      const std::string name = absl::StrCat("element ", e, " of '", value.name, "'");
      graph.AddValueSymbol({.name = name, .input = id, .element = e});
      contents.push_back(value.dtype == DType::kBool ? Min(1, DimExpr::Symbol(name))
                                                     : DimExpr::SignedSymbol(name));
    }
    graph.value(id).symbolic = std::move(contents);
  }
  ASSIGN_OR_RETURN(const std::vector<Ref> outputs, Build(source, std::move(places), 0, scope));
  std::vector<ValueId> ids;
  for (const Ref& output : outputs) ids.push_back(output.id);
  graph.SetOutputs(std::move(ids));
  graph.set_output_names(source.output_names());
  graph.RemoveDeadNodes();
  return std::move(graph);
}

namespace {

using Symbols = absl::flat_hash_set<std::string>;

void AddSymbols(const DimExpr& e, Symbols& symbols) {
  for (std::string& symbol : e.Symbols()) symbols.insert(std::move(symbol));
}

// Symbols that shapes and the course of control flow depend on.
void CollectNeeded(const Graph& graph, Symbols& symbols) {
  for (size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    for (const DimExpr& dim : value.shape.value_or(Shape{})) AddSymbols(dim, symbols);
  }
  for (const NodeId id : graph.Order()) {
    const Node& node = graph.node(id);
    if (node.domain == "stampmill" && node.op_type == "Dims") {
      for (const DimExpr& dim : *graph.value(node.outputs[0]).symbolic) AddSymbols(dim, symbols);
    }
    for (const auto& [name, attribute] : node.attributes) {
      const auto* body = std::get_if<std::shared_ptr<const Graph>>(&attribute);
      if (body != nullptr) CollectNeeded(**body, symbols);
    }
  }
}

}  // namespace

absl::StatusOr<Graph> ResolveControlFlow(const Graph& graph) {
  std::vector<bool> followed;
  for (const ValueId input : graph.inputs()) followed.push_back(CanBeFollowed(graph.value(input)));
  ASSIGN_OR_RETURN(Graph resolved, Resolver().Run(graph, followed));
  if (resolved.value_symbols().empty()) return resolved;
  Symbols needed;
  CollectNeeded(resolved, needed);
  std::vector<bool> kept(followed.size(), false);
  for (const ValueSymbol& symbol : resolved.value_symbols()) {
    const auto at = std::find(resolved.inputs().begin(), resolved.inputs().end(), symbol.input);
    if (needed.contains(symbol.name)) {
      kept[static_cast<size_t>(at - resolved.inputs().begin())] = true;
    }
  }
  if (kept == followed) return resolved;
  return Resolver().Run(graph, kept);
}

absl::Status ApplyToBodies(Graph& graph, GraphPass pass) {
  for (const NodeId id : graph.Order()) {
    for (auto& [name, attribute] : graph.node(id).attributes) {
      auto* body = std::get_if<std::shared_ptr<const Graph>>(&attribute);
      if (body == nullptr) continue;
      Graph changed = **body;
      RETURN_IF_ERROR(ApplyToBodies(changed, pass));
      *body = std::make_shared<const Graph>(std::move(changed));
    }
  }
  return pass(graph);
}

namespace {

// Adds the checks of a graph's bodies; `taken` is 0 or 1.
void AddBodyChecks(const Graph& graph, const DimExpr& taken, std::vector<DimCheck>& checks) {
  for (const NodeId id : graph.Order()) {
    const Node& node = graph.node(id);
    for (const auto& [name, attribute] : node.attributes) {
      const auto* body = std::get_if<std::shared_ptr<const Graph>>(&attribute);
      if (body == nullptr) continue;
      const std::optional<std::vector<DimExpr>>& first = graph.value(node.inputs[0]).symbolic;
      if (!first.has_value() || first->size() != 1) continue;
      DimExpr runs = Min(1, Max(0, (*first)[0]));
      if (name == "else_branch") runs = 1 - runs;
      const DimExpr both = Min(taken, runs);
      for (const DimCheck& check : (*body)->checks()) {
        checks.push_back({EitherOf(check.nonzero, IsNot(both)), check.message});
      }
      AddBodyChecks(**body, both, checks);
    }
  }
}

}  // namespace

void CollectBodyChecks(Graph& graph) {
  std::vector<DimCheck> checks;
  AddBodyChecks(graph, 1, checks);
  for (DimCheck& check : checks) graph.AddCheck(std::move(check));
}

}  // namespace stampmill
