// Control flow: every graph here is run by the references of If, Loop and Scan, and by its stages
// once resolved, lowered and fused.
#include "compiler/passes/control_flow.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/batching.h"
#include "compiler/passes/fuse.h"
#include "compiler/passes/stage_graph.h"
#include "compiler/passes/testing/stage_interpreter.h"
#include "graph/graph.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

using Inputs = std::vector<Tensor>;
using Attributes = absl::flat_hash_map<std::string, Attribute>;

int64_t PanelForTests(const DimExpr&, DType, absl::string_view) { return 8; }

DimExpr N() { return DimExpr::Symbol("N"); }
DimExpr T() { return DimExpr::Symbol("T"); }

// A graph under construction; bodies are given what they capture as their last inputs.
struct Sketch {
  Graph graph;

  ValueId Input(const std::string& name, DType dtype, Shape shape) {
    return graph.AddInput(name, dtype, std::move(shape));
  }
  // Of a body: shapes come from the node it belongs to.
  ValueId Input(const std::string& name) { return graph.AddInput(Value{.name = name}); }
  ValueId Op(const std::string& type, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return graph.Op(type, "", std::move(inputs), std::move(attributes));
  }
  std::vector<ValueId> Ops(const std::string& type, std::vector<ValueId> inputs, int outputs,
                           Attributes attributes) {
    const NodeId id = graph.AddNode(
        {.op_type = type, .name = type, .inputs = std::move(inputs), .attributes = attributes},
        outputs);
    return graph.node(id).outputs;
  }
  ValueId Constant(Tensor tensor) { return graph.AddConstant("c", std::move(tensor)); }
  ValueId Number(double value) { return Constant(Values(DType::kF32, {}, {value})); }
  ValueId Int(int64_t value) { return Constant(Tensor::FromInt64({}, std::vector{value})); }
  ValueId Axes(const std::vector<int64_t>& axes) { return Constant(Ints(axes)); }
  // Dim `d` of `x`, a scalar.
  ValueId DimOf(ValueId x, int64_t d) { return Op("Gather", {Op("Shape", {x}), Int(d)}); }

  Graph Done(std::vector<ValueId> outputs) {
    std::vector<std::string> names;
    for (size_t i = 0; i < outputs.size(); ++i) names.push_back("y" + std::to_string(i));
    graph.SetOutputs(std::move(outputs));
    graph.set_output_names(std::move(names));
    return std::move(graph);
  }
  std::shared_ptr<const Graph> Body(std::vector<ValueId> outputs, int32_t captures) {
    graph.captures = captures;
    return std::make_shared<const Graph>(Done(std::move(outputs)));
  }
};

// Resolves and lowers `graph`, with all stages or fused ones.
absl::StatusOr<StageGraph> Stages(const Graph& resolved, bool fuse) {
  absl::StatusOr<StageGraph> stages =
      LowerGraph(resolved, {.panel = PanelForTests, .target = "cpu:x86-64"});
  if (!stages.ok() || !fuse) return stages;
  FuseStages(*stages);
  const absl::Status verified = Verify(*stages);
  if (!verified.ok()) return verified;
  RemoveUnreadStages(*stages);
  return stages;
}

// Runs it both ways on each of the inputs; gives the fused stages.
StageGraph Check(const Graph& graph, const std::vector<Inputs>& runs) {
  const absl::StatusOr<Graph> resolved = ResolveControlFlow(graph);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  if (!resolved.ok()) return {};
  EXPECT_TRUE(resolved->Verify().ok()) << resolved->Verify();
  for (const bool fuse : {false, true}) {
    const absl::StatusOr<StageGraph> stages = Stages(*resolved, fuse);
    EXPECT_TRUE(stages.ok()) << stages.status();
    if (!stages.ok()) return {};
    for (const Inputs& inputs : runs) {
      std::map<std::string, int64_t> symbols;
      for (const ValueSymbol& symbol : resolved->value_symbols()) {
        for (size_t i = 0; i < inputs.size(); ++i) {
          if (resolved->inputs()[i] != symbol.input) continue;
          symbols[symbol.name] = inputs[i].ValueAsInt64(symbol.element);
        }
      }
      const absl::StatusOr<std::vector<Tensor>> want = Interpret(graph, inputs);
      const absl::StatusOr<std::vector<Tensor>> got = InterpretStages(*stages, inputs, symbols);
      EXPECT_TRUE(want.ok()) << want.status();
      EXPECT_TRUE(got.ok()) << got.status() << "\n" << stages->ToString();
      if (!want.ok() || !got.ok()) continue;
      for (size_t i = 0; i < want->size(); ++i) {
        EXPECT_EQ((*got)[i].shape(), (*want)[i].shape());
        EXPECT_EQ(Difference((*got)[i], (*want)[i], {.relative = 1e-4, .absolute = 1e-5}), "")
            << "output " << i << "\n"
            << stages->ToString();
      }
    }
    if (fuse) return *stages;
  }
  return {};
}

Tensor X(std::vector<int64_t> shape, uint64_t seed = 1) {
  return Random(DType::kF32, std::move(shape), seed);
}

// then: x * 2; else: x with itself behind it, twice the rows.
ValueId DoubleOrRepeat(Sketch& s, ValueId condition, ValueId x) {
  Sketch then_branch, else_branch;
  const ValueId a = then_branch.Input("x"), b = else_branch.Input("x");
  const Attributes bodies = {
      {"then_branch", then_branch.Body({then_branch.Op("Mul", {a, then_branch.Number(2)})}, 1)},
      {"else_branch",
       else_branch.Body({else_branch.Op("Concat", {b, b}, {{"axis", int64_t{0}}})}, 1)}};
  return s.Op("If", {condition, x}, bodies);
}

TEST(IfTest, AFixedConditionLeavesOneBranchAndNoCondition) {
  for (const int value : {0, 1}) {
    Sketch s;
    const ValueId x = s.Input("x", DType::kF32, {N(), 3});
    const ValueId y = DoubleOrRepeat(s, s.Constant(Tensor::Scalar(DType::kBool, value)), x);
    const StageGraph stages = Check(s.Done({s.Op("Neg", {y})}), {{X({2, 3})}});
    EXPECT_TRUE(stages.regions.empty());
    EXPECT_EQ(stages.stages.size(), value == 1 ? 1u : 3u) << stages.ToString();
  }
}

TEST(IfTest, AConditionOnDimsChoosesPerRequest) {
  Sketch s;
  const ValueId x = s.Input("x", DType::kF32, {N(), 3});
  const ValueId y = DoubleOrRepeat(s, s.Op("Less", {s.DimOf(x, 0), s.Int(3)}), x);
  const StageGraph stages =
      Check(s.Done({s.Op("Exp", {y})}), {{X({2, 3})}, {X({3, 3})}, {X({5, 3})}});
  EXPECT_EQ(stages.regions.size(), 2u);
}

TEST(IfTest, AConditionOnAnInputsContentsChoosesPerRequest) {
  Sketch s;
  const ValueId x = s.Input("x", DType::kF32, {N(), 3});
  const ValueId rate = s.Input("rate", DType::kI64, {});
  const ValueId other = s.Input("other", DType::kI64, {2});
  const ValueId y = DoubleOrRepeat(s, s.Op("Equal", {rate, s.Int(-16)}), x);
  const Graph graph =
      s.Done({s.Op("Add", {y, s.Op("Cast", {s.Op("ReduceSum", {other}, {{"keepdims", int64_t{0}}})},
                                   {{"to", int64_t{1}}})})});
  const auto number = [](int64_t v) { return Tensor::FromInt64({}, std::vector{v}); };
  Check(graph, {{X({2, 3}), number(-16), Ints({1, 2})}, {X({2, 3}), number(16), Ints({3, 4})}});
  const absl::StatusOr<Graph> resolved = ResolveControlFlow(graph);
  ASSERT_TRUE(resolved.ok());
  ASSERT_EQ(resolved->value_symbols().size(), 1u);  // of `rate`: nothing depends on the other
  EXPECT_EQ(resolved->value_symbols()[0].input, resolved->inputs()[1]);
}

TEST(IfTest, AConditionOnDataIsReadByTheHost) {
  Sketch s;
  const ValueId x = s.Input("x", DType::kF32, {N(), 3});
  const ValueId most = s.Op("ReduceMax", {x}, {{"keepdims", int64_t{0}}});
  const ValueId y = DoubleOrRepeat(s, s.Op("Less", {most, s.Number(10)}), x);
  const Graph graph = s.Done({s.Op("ReduceSum", {y, s.Axes({0})}, {{"keepdims", int64_t{0}}})});
  const StageGraph stages = Check(graph, {{X({2, 3})}, {Values(DType::kF32, {1, 3}, {1, 20, 3})}});
  int reads = 0;
  for (const Stage& stage : stages.stages) reads += stage.reads.empty() ? 0 : 1;
  EXPECT_EQ(reads, 1);
}

// x[:, 0] where the last axis has one element, else x.
ValueId SqueezeOrNot(Sketch& s, ValueId x) {
  Sketch then_branch, else_branch;
  const ValueId a = then_branch.Input("x"), b = else_branch.Input("x");
  const Attributes bodies = {
      {"then_branch",
       then_branch.Body({then_branch.Op("Squeeze", {a, then_branch.Axes({-1})})}, 1)},
      {"else_branch", else_branch.Body({b}, 1)}};
  return s.Op("If", {s.Op("Equal", {s.DimOf(x, 1), s.Int(1)}), x}, bodies);
}

TEST(IfTest, WhereRanksDifferWhatFollowsIsInBothBranches) {
  Sketch s;
  const ValueId x = s.Input("x", DType::kF32, {N(), T()});
  const ValueId y = SqueezeOrNot(s, x);
  const ValueId rank = s.Op("Cast", {s.Op("Size", {s.Op("Shape", {y})})}, {{"to", int64_t{1}}});
  const Graph graph =
      s.Done({s.Op("Mul", {s.Op("ReduceSum", {y}, {{"keepdims", int64_t{0}}}), rank})});
  Check(graph, {{X({4, 1})}, {X({4, 3})}});
}

TEST(IfTest, ARankThatDependsOnTheRequestIsRefused) {
  Sketch s;
  const ValueId x = s.Input("x", DType::kF32, {N(), T()});
  const absl::Status status = ResolveControlFlow(s.Done({SqueezeOrNot(s, x)})).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_NE(status.message().find("rank depends on the request"), absl::string_view::npos);
}

TEST(IfTest, ABranchThatIsNeverRightRefusesItsRequests) {
  Sketch s;
  const ValueId x = s.Input("x", DType::kF32, {N(), T()});
  // A vector of 3 is added: to [N] it is possible, to [N, T] with T != 1 too; the product with a
  // [3, 2] matrix takes a matrix on the left only for rank 1 of 3 elements.
  const ValueId y = SqueezeOrNot(s, x);
  const ValueId z = s.Op("Transpose", {y}, {{"perm", std::vector<int64_t>{0}}});
  const absl::StatusOr<Graph> resolved = ResolveControlFlow(s.Done({z}));
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_TRUE(
      LowerGraph(*resolved, {.panel = PanelForTests, .target = "cpu:x86-64"})->regions.empty());
  const auto holds = [&](int64_t t) {
    bool all = true;
    for (const DimCheck& check : resolved->checks()) {
      const auto value = check.nonzero.Evaluate(
          [&](absl::string_view name) { return std::optional<int64_t>(name == "T" ? t : 4); });
      all = all && value.ok() && *value != 0;
    }
    return all;
  };
  EXPECT_TRUE(holds(1));
  EXPECT_FALSE(holds(2));
}

// Adds row i of x in iteration i; gives sums, the last of them, and a counter that runs along.
Graph RunningSum(Sketch s, ValueId x, ValueId trips, ValueId condition, double stop_above) {
  Sketch body;
  const ValueId i = body.Input("i"), go = body.Input("go"), sum = body.Input("sum");
  const ValueId count = body.Input("count"), rows = body.Input("x");
  const ValueId next = body.Op("Add", {sum, body.Op("Gather", {rows, count})});
  const ValueId more = body.Op("Add", {count, body.Int(1)});
  ValueId goes_on = go;
  if (stop_above > 0) {
    const ValueId most = body.Op("ReduceMax", {body.Op("Abs", {next})}, {{"keepdims", int64_t{0}}});
    goes_on = body.Op("Less", {most, body.Number(stop_above)});
  }
  const ValueId step = body.Op("Cast", {i}, {{"to", int64_t{1}}});
  const std::vector<ValueId> results = s.Ops(
      "Loop", {trips, condition, s.Constant(Values(DType::kF32, {3}, {0, 0, 0})), s.Int(0), x}, 4,
      {{"body", body.Body({goes_on, next, more, next, body.Op("Mul", {next, step})}, 1)}});
  if (stop_above > 0) {
    // Rows in a number that only data tells are summed up.
    const ValueId total = s.Op("ReduceSum", {results[2], s.Axes({0})}, {{"keepdims", int64_t{0}}});
    return s.Done({results[0], results[1], total});
  }
  return s.Done(results);
}

TEST(LoopTest, RunsAsOftenAsADimSays) {
  Sketch s;
  const ValueId x = s.Input("x", DType::kF32, {T(), 3});
  const ValueId trips = s.DimOf(x, 0);
  const StageGraph stages = Check(RunningSum(std::move(s), x, trips, kNoValue, 0),
                                  {{X({4, 3})}, {X({1, 3})}, {X({7, 3})}});
  ASSERT_EQ(stages.regions.size(), 1u);
  EXPECT_TRUE(stages.regions[0].proceed.IsConstant(1));
  EXPECT_TRUE(stages.regions[0].trips.empty());
}

TEST(LoopTest, RunsAsOftenAsAnInputSays) {
  Sketch s;
  const ValueId x = s.Input("x", DType::kF32, {T(), 3});
  const ValueId trips = s.Input("trips", DType::kI64, {});
  const ValueId begin = s.Input("begin", DType::kBool, {});
  const auto number = [](int64_t v) { return Tensor::FromInt64({}, std::vector{v}); };
  const Tensor yes = Tensor::Scalar(DType::kBool, 1), no = Tensor::Scalar(DType::kBool, 0);
  Check(RunningSum(std::move(s), x, trips, begin, 0),
        {{X({4, 3}), number(3), yes}, {X({4, 3}), number(3), no}, {X({4, 3}), number(0), yes}});
}

TEST(LoopTest, GoesOnWhileDataSaysSo) {
  Sketch s;
  const ValueId x = s.Input("x", DType::kF32, {T(), 3});
  const ValueId trips = s.DimOf(x, 0);
  const StageGraph stages = Check(RunningSum(std::move(s), x, trips, kNoValue, 5),
                                  {{X({9, 3}, 2)}, {X({9, 3}, 3)}, {X({2, 3}, 4)}});
  ASSERT_EQ(stages.regions.size(), 1u);
  EXPECT_FALSE(stages.regions[0].trips.empty());
}

TEST(LoopTest, AConditionOnTheCounterAloneNeedsNoHost) {
  Sketch s, body;
  const ValueId x = s.Input("x", DType::kF32, {T(), 3});
  const ValueId i = body.Input("i");
  body.Input("go");
  const ValueId sum = body.Input("sum"), trips = body.Input("trips");
  // As exporters write `while i + 1 < trips`, in floats.
  const auto as_float = [&](ValueId v) { return body.Op("Cast", {v}, {{"to", int64_t{1}}}); };
  const ValueId goes_on =
      body.Op("Less", {as_float(body.Op("Add", {i, body.Int(1)})), as_float(trips)});
  const ValueId next = body.Op("Add", {sum, body.Number(1)});
  const ValueId length = s.DimOf(x, 0);
  const std::vector<ValueId> results =
      s.Ops("Loop", {length, s.Op("Less", {s.Int(0), length}), x, length}, 1,
            {{"body", body.Body({goes_on, next}, 1)}});
  const StageGraph stages = Check(s.Done(results), {{X({4, 3})}, {X({1, 3})}});
  ASSERT_EQ(stages.regions.size(), 1u);
  EXPECT_TRUE(stages.regions[0].proceed.IsConstant(1));
}

TEST(LoopTest, WhatItCarriesUnchangedIsNotCarried) {
  Sketch s, body;
  const ValueId x = s.Input("x", DType::kF32, {T(), 4});
  body.Input("i");
  const ValueId go = body.Input("go"), state = body.Input("state"), weights = body.Input("w");
  const ValueId next = body.Op("Tanh", {body.Op("MatMul", {state, weights})});
  const std::vector<ValueId> results =
      s.Ops("Loop", {s.DimOf(x, 0), kNoValue, x, s.Constant(Random(DType::kF32, {4, 4}, 3, 0.5))},
            2, {{"body", body.Body({go, next, weights}, 0)}});
  const StageGraph stages = Check(s.Done({results[0]}), {{X({3, 4})}});
  // The weights are packed when compiling: the product, and what begins and ends the state.
  EXPECT_LE(stages.stages.size(), 4u) << stages.ToString();
}

TEST(LoopTest, ACounterThatIsAddedToInFloatsIsFollowed) {
  Sketch s, body;
  const ValueId x = s.Input("x", DType::kF32, {T(), 3});
  body.Input("i");
  const ValueId go = body.Input("go"), sum = body.Input("sum"), count = body.Input("count");
  const ValueId rows = body.Input("rows");
  const ValueId more = body.Op(
      "Cast", {body.Op("Add", {body.Op("Cast", {count}, {{"to", int64_t{1}}}), body.Number(1)})},
      {{"to", int64_t{7}}});
  const auto vector = [&](ValueId v) { return body.Op("Reshape", {v, body.Axes({1})}); };
  const ValueId row = body.Op("Slice", {rows, vector(count), vector(more), body.Axes({0})});
  const ValueId next = body.Op(
      "Add", {sum, body.Op("ReduceSum", {row, body.Axes({0})}, {{"keepdims", int64_t{0}}})});
  const std::vector<ValueId> results =
      s.Ops("Loop",
            {s.DimOf(x, 0), kNoValue, s.Constant(Values(DType::kF32, {3}, {0, 0, 0})), s.Int(0), x},
            2, {{"body", body.Body({go, next, more}, 1)}});
  Check(s.Done(results), {{X({4, 3})}, {X({1, 3})}});
}

TEST(LoopTest, OneElementKeepsTheRankThatItBeginsWith) {
  Sketch s, body;
  const ValueId x = s.Input("x", DType::kF32, {T(), 3});
  body.Input("i");
  const ValueId go = body.Input("go"), total = body.Input("total");
  const ValueId one = body.Constant(Values(DType::kF32, {1}, {1}));
  const std::vector<ValueId> results =
      s.Ops("Loop", {s.DimOf(x, 0), kNoValue, s.Number(0)}, 1,
            {{"body", body.Body({go, body.Op("Add", {total, one})}, 0)}});
  Check(s.Done({s.Op("Reshape", {results[0], s.Axes({1})})}), {{X({4, 3})}, {X({1, 3})}});
}

TEST(LoopTest, AStartThatNoIterationReadsHasAnyShape) {
  Sketch s, body;
  const ValueId x = s.Input("x", DType::kF32, {T(), 3});
  const ValueId i = body.Input("i");
  const ValueId go = body.Input("go");
  body.Input("last");
  const ValueId rows = body.Input("rows");
  const ValueId next = body.Op("Mul", {rows, body.Op("Cast", {i}, {{"to", int64_t{1}}})});
  const auto graph = [&](ValueId trips) {
    return s.Ops("Loop", {trips, kNoValue, s.Number(7), x}, 1,
                 {{"body", body.Body({go, next}, 1)}});
  };
  Check(s.Done(graph(s.Op("Add", {s.DimOf(x, 0), s.Int(1)}))), {{X({4, 3})}, {X({1, 3})}});
}

TEST(LoopTest, AShapeThatChangesBetweenIterationsIsRefused) {
  Sketch s, body;
  const ValueId x = s.Input("x", DType::kF32, {4, 3});
  body.Input("i");
  const ValueId go = body.Input("go"), all = body.Input("all");
  const ValueId grown = body.Op("Concat", {all, all}, {{"axis", int64_t{0}}});
  const std::vector<ValueId> results =
      s.Ops("Loop", {s.Int(3), kNoValue, x}, 1, {{"body", body.Body({go, grown}, 0)}});
  const absl::Status status = ResolveControlFlow(s.Done(results)).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_NE(status.message().find("carried 'all': its shape changes"), absl::string_view::npos);
}

TEST(LoopTest, LoopsAndBranchesLieWithinEachOther) {
  Sketch s, outer, inner, then_branch, else_branch;
  const ValueId x = s.Input("x", DType::kF32, {T(), 3});
  // inner: v += 1, as often as the outer counter; then an If on that counter.
  const ValueId i = outer.Input("i"), go = outer.Input("go"), v = outer.Input("v");
  inner.Input("j");
  const ValueId inner_go = inner.Input("go"), w = inner.Input("w");
  const std::vector<ValueId> counted =
      outer.Ops("Loop", {i, kNoValue, v}, 1,
                {{"body", inner.Body({inner_go, inner.Op("Add", {w, inner.Number(1)})}, 0)}});
  const ValueId a = then_branch.Input("v"), b = else_branch.Input("v");
  const ValueId chosen = outer.Op(
      "If", {outer.Op("Less", {i, outer.Int(2)}), counted[0]},
      {{"then_branch", then_branch.Body({then_branch.Op("Mul", {a, then_branch.Number(2)})}, 1)},
       {"else_branch", else_branch.Body({else_branch.Op("Neg", {b})}, 1)}});
  const std::vector<ValueId> results = s.Ops("Loop", {s.DimOf(x, 0), kNoValue, x}, 2,
                                             {{"body", outer.Body({go, chosen, counted[0]}, 0)}});
  Check(s.Done(results), {{X({1, 3})}, {X({4, 3})}, {X({5, 3})}});
}

TEST(ScanTest, TakesRowsForwardAndBackwardAlongAnyAxis) {
  Sketch s, body;
  const ValueId a = s.Input("a", DType::kF32, {T(), 3}), b = s.Input("b", DType::kF32, {3, T()});
  const ValueId start = s.Input("start", DType::kF32, {3});
  const ValueId sum = body.Input("sum"), p = body.Input("p"), q = body.Input("q");
  const ValueId next =
      body.Op("Add", {body.Op("Mul", {sum, body.Number(0.5)}), body.Op("Mul", {p, q})});
  const std::vector<ValueId> results =
      s.Ops("Scan", {start, a, b}, 3,
            {{"body", body.Body({next, next, body.Op("Neg", {next})}, 0)},
             {"num_scan_inputs", int64_t{2}},
             {"scan_input_axes", std::vector<int64_t>{0, 1}},
             {"scan_input_directions", std::vector<int64_t>{0, 1}},
             {"scan_output_axes", std::vector<int64_t>{0, -1}},
             {"scan_output_directions", std::vector<int64_t>{1, 0}}});
  Check(s.Done(results), {{X({4, 3}), X({3, 4}, 2), X({3}, 3)}, {X({1, 3}), X({3, 1}), X({3})}});
}

TEST(BatchingTest, ALoopOverTimeKeepsRequestsApart) {
  Sketch s, body;
  const ValueId x = s.Input("x", DType::kF32, {N(), T(), 4});
  const ValueId steps = s.Op("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
  const ValueId i = body.Input("i"), go = body.Input("go"), state = body.Input("state");
  const ValueId rows = body.Input("steps");
  const ValueId product =
      body.Op("MatMul", {state, body.Constant(Random(DType::kF32, {4, 4}, 3, 0.5))});
  const ValueId next = body.Op("Tanh", {body.Op("Add", {body.Op("Gather", {rows, i}), product})});
  const ValueId zeros = s.Op(
      "Expand",
      {s.Number(0), s.Op("Concat", {s.Op("Unsqueeze", {s.DimOf(x, 0), s.Axes({0})}), s.Axes({4})},
                         {{"axis", int64_t{0}}})});
  const std::vector<ValueId> results = s.Ops("Loop", {s.DimOf(x, 1), kNoValue, zeros, steps}, 2,
                                             {{"body", body.Body({go, next, next}, 1)}});
  const ValueId all = s.Op("Transpose", {results[1]}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
  const StageGraph stages = Check(s.Done({results[0], all}), {{X({2, 5, 4})}, {X({1, 1, 4})}});
  const BatchingProof proof = ProveBatching(stages);
  EXPECT_EQ(proof.symbol, "N") << proof.reason << "\n" << stages.ToString();
}

TEST(BatchingTest, WhatDependsOnTheNumberOfRowsOrTheirPlacesIsNotBatched) {
  const auto symbol = [](Graph graph) {
    const absl::StatusOr<Graph> resolved = ResolveControlFlow(graph);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    return ProveBatching(*Stages(*resolved, true)).symbol;
  };
  {
    Sketch s;
    const ValueId x = s.Input("x", DType::kF32, {N(), 3});
    EXPECT_EQ(symbol(s.Done({s.Op("Exp", {x})})), "N");
  }
  {
    Sketch s;
    const ValueId x = s.Input("x", DType::kF32, {N(), 3});
    const ValueId places = s.Op("Range", {s.Int(0), s.DimOf(x, 0), s.Int(1)});
    const ValueId numbers = s.Op("Cast", {places}, {{"to", int64_t{1}}});
    EXPECT_EQ(symbol(s.Done({s.Op("Add", {x, s.Op("Unsqueeze", {numbers, s.Axes({1})})})})), "");
  }
  {
    Sketch s, body;
    const ValueId x = s.Input("x", DType::kF32, {N(), 3});
    body.Input("i");
    const ValueId go = body.Input("go"), v = body.Input("v");
    const std::vector<ValueId> results =
        s.Ops("Loop", {s.DimOf(x, 0), kNoValue, x}, 1,
              {{"body", body.Body({go, body.Op("Add", {v, body.Number(1)})}, 0)}});
    EXPECT_EQ(symbol(s.Done(results)), "");
  }
}

// Where and how often x > 0, [2, count].
ValueId Positive(Sketch& g, ValueId x) {
  return g.Op("NonZero", {g.Op("Greater", {x, g.Number(0)})});
}

TEST(CountedTest, WhatFollowsRunsOverTheCount) {
  Sketch g;
  const ValueId x = g.Input("x", DType::kF32, {N(), 3});
  const ValueId places = g.Op("Transpose", {Positive(g, x)});
  const ValueId found = g.Op("Exp", {g.Op("GatherND", {x, places})});
  const ValueId all = g.Op("ReduceSum", {found});
  // A shape that the count decides: as many rows as were found.
  const ValueId count = g.DimOf(places, 0);
  const ValueId shape = g.Op("Concat", {g.Op("Unsqueeze", {count, g.Axes({0})}), g.Axes({2})},
                             {{"axis", int64_t{0}}});
  const ValueId rows = g.Op("Expand", {g.Op("Unsqueeze", {found, g.Axes({1})}), shape});
  Check(g.Done({found, all, count, g.Op("Mul", {rows, g.Number(2)})}),
        {{X({4, 3})}, {X({1, 3}, 2)}, {X({0, 3})}, {Values(DType::kF32, {1, 3}, {-1, -2, 0})}});
}

TEST(CountedTest, OneCountInEachBranch) {
  Sketch g;
  const ValueId x = g.Input("x", DType::kF32, {N(), 3});
  const ValueId take = g.Input("take", DType::kBool, {});
  Sketch yes;
  const ValueId a = yes.Input("x");
  const ValueId found = yes.Op("Transpose", {Positive(yes, a)});
  Sketch no;
  const ValueId b = no.Input("x");
  const ValueId one = no.Op("Cast", {no.Op("Slice", {b, no.Axes({0}), no.Axes({2}), no.Axes({1})})},
                            {{"to", int64_t{7}}});
  const std::vector<ValueId> y =
      g.Ops("If", {take, x}, 1,
            {{"then_branch", yes.Body({found}, 1)}, {"else_branch", no.Body({one}, 1)}});
  // Of no use but for its size.
  const ValueId rows = g.Op("Expand", {g.Number(1), g.Op("Shape", {y[0]})});
  const Tensor held = Values(DType::kBool, {}, {1}), fails = Values(DType::kBool, {}, {0});
  const Graph graph = g.Done({rows});
  Check(graph, {{X({4, 3}), held}, {X({4, 3}), fails}, {X({0, 3}), held}, {X({0, 3}), fails}});
}

TEST(CountedTest, ALoopRunsAsOftenAsWasFound) {
  Sketch g;
  const ValueId x = g.Input("x", DType::kF32, {N(), 3});
  Sketch body;
  body.Input("i");
  const ValueId goes_on = body.Input("cond");
  const ValueId sum = body.Input("sum");
  const ValueId next = body.Op("Add", {sum, body.Number(1.5)});
  const std::vector<ValueId> y = g.Ops("Loop", {g.DimOf(Positive(g, x), 1), kNoValue, g.Number(1)},
                                       1, {{"body", body.Body({goes_on, next}, 0)}});
  Check(g.Done({y[0]}), {{X({4, 3})}, {X({0, 3})}});
}

TEST(CountedTest, ACountInEveryIteration) {
  Sketch g;
  const ValueId x = g.Input("x", DType::kF32, {N(), 3});
  Sketch body;
  body.Input("i");
  const ValueId goes_on = body.Input("cond");
  const ValueId carried = body.Input("carried");
  const ValueId found =
      body.Op("GatherND", {carried, body.Op("Transpose", {Positive(body, carried)})});
  const ValueId sum = body.Op("ReduceSum", {found}, {{"keepdims", int64_t{0}}});
  const ValueId next = body.Op("Sub", {carried, body.Number(0.5)});
  const std::vector<ValueId> y =
      g.Ops("Loop", {g.Int(4), kNoValue, x}, 2, {{"body", body.Body({goes_on, next, sum}, 0)}});
  Check(g.Done({y[0], y[1]}), {{X({4, 3})}, {X({0, 3})}});
}

TEST(CountedTest, RowsOfDifferentLengthsAreUnimplemented) {
  Sketch g;
  const ValueId x = g.Input("x", DType::kF32, {N(), 3});
  Sketch body;
  body.Input("i");
  const ValueId goes_on = body.Input("cond");
  const ValueId carried = body.Input("carried");
  const std::vector<ValueId> y = g.Ops(
      "Loop", {g.Int(4), kNoValue, x}, 2,
      {{"body", body.Body({goes_on, body.Op("Neg", {carried}), Positive(body, carried)}, 0)}});
  const absl::StatusOr<Graph> resolved = ResolveControlFlow(g.Done({y[1]}));
  ASSERT_TRUE(absl::IsUnimplemented(resolved.status())) << resolved.status();
  EXPECT_NE(resolved.status().ToString().find("changes between iterations"), std::string::npos);
}

TEST(CountedTest, RowsThatAreCountedTogetherAreNotBatched) {
  Sketch g;
  const ValueId x = g.Input("x", DType::kF32, {N(), 3});
  const ValueId count = g.Op("Cast", {g.DimOf(Positive(g, x), 1)}, {{"to", int64_t{1}}});
  const StageGraph stages = Check(g.Done({g.Op("Add", {x, count})}), {{X({4, 3})}, {X({1, 3})}});
  const BatchingProof proof = ProveBatching(stages);
  EXPECT_EQ(proof.symbol, "");
  EXPECT_NE(proof.reason.find("mixes rows"), std::string::npos) << proof.reason;
}

}  // namespace
}  // namespace stampmill
