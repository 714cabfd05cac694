// The passes as a whole: every graph here is run by the operators' references, by its stages as
// lowered and by its stages after fusion, and what fusion should achieve is counted.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "compiler/passes/fuse.h"
#include "compiler/passes/graph_passes.h"
#include "compiler/passes/stage_graph.h"
#include "compiler/passes/testing/stage_interpreter.h"
#include "graph/graph.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

int64_t PanelForTests(const DimExpr& n, DType, absl::string_view) {
  const std::optional<int64_t> columns = n.constant();
  return columns.has_value() && *columns < 8 ? 4 : 8;
}

using Inputs = std::vector<Tensor>;

// Runs `graph` (not inferred yet) all ways on `inputs`; returns the stages left after fusion.
StageGraph CheckFusion(Graph graph, const Inputs& inputs, bool channels_last = true) {
  Graph original = graph;
  EXPECT_TRUE(InferShapes(original, {}).ok()) << InferShapes(original, {}).message();
  const absl::StatusOr<std::vector<Tensor>> want = Interpret(original, inputs);
  EXPECT_TRUE(want.ok()) << want.status();
  EXPECT_TRUE(FoldQuantization(graph).ok());
  EXPECT_TRUE(InferShapes(graph, {}).ok());
  EXPECT_TRUE(MergeEqualNodes(graph).ok());
  EXPECT_TRUE(FoldBatchNormalization(graph).ok());
  if (channels_last) EXPECT_TRUE(UseChannelsLast(graph).ok());
  const absl::Status inferred = InferShapes(graph, {});
  EXPECT_TRUE(inferred.ok()) << inferred;
  absl::StatusOr<StageGraph> stages =
      LowerGraph(graph, {.panel = PanelForTests, .target = "cpu:x86-64"});
  EXPECT_TRUE(stages.ok()) << stages.status();
  if (!stages.ok()) return {};
  const auto check = [&](absl::string_view when) {
    const absl::StatusOr<std::vector<Tensor>> got = InterpretStages(*stages, inputs);
    EXPECT_TRUE(got.ok()) << when << ": " << got.status() << "\n" << stages->ToString();
    if (!got.ok() || !want.ok()) return;
    for (size_t i = 0; i < want->size(); ++i) {
      EXPECT_EQ(Difference((*got)[i], (*want)[i], {.relative = 1e-4, .absolute = 1e-5}), "")
          << when << ", output " << i << "\n"
          << stages->ToString();
    }
  };
  check("as lowered");
  FuseStages(*stages);
  const absl::Status verified = Verify(*stages);
  EXPECT_TRUE(verified.ok()) << verified;
  RemoveUnreadStages(*stages);
  check("after fusion");
  return *stages;
}

// A graph under construction with one f32 input of the given dims.
struct Sketch {
  Graph graph;
  ValueId x = kNoValue;
  explicit Sketch(Shape shape) { x = graph.AddInput("x", DType::kF32, std::move(shape)); }

  ValueId Op(const std::string& type, std::vector<ValueId> inputs,
             absl::flat_hash_map<std::string, Attribute> attributes = {}) {
    return graph.Op(type, "", std::move(inputs), std::move(attributes));
  }
  ValueId Constant(Tensor tensor) { return graph.AddConstant("c", std::move(tensor)); }
  ValueId Scalar(double value) { return Constant(Values(DType::kF32, {}, {value})); }
  ValueId Axes(const std::vector<int64_t>& axes) { return Constant(Ints(axes)); }
  Graph Done(std::vector<ValueId> outputs) {
    std::vector<std::string> names;
    for (size_t i = 0; i < outputs.size(); ++i) names.push_back("y" + std::to_string(i));
    graph.SetOutputs(std::move(outputs));
    graph.set_output_names(std::move(names));
    return std::move(graph);
  }
};

DimExpr N() { return DimExpr::Symbol("N"); }

TEST(PassesTest, AChainOfElementwiseOperatorsIsOneStage) {
  Sketch s({N(), 5});
  const ValueId y = s.Op(
      "Relu",
      {s.Op("Add", {s.Op("Mul", {s.x, s.Scalar(2)}), s.Constant(Random(DType::kF32, {5}, 1))})});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {3, 5}, 2)});
  EXPECT_EQ(stages.stages.size(), 1u) << stages.ToString();
}

TEST(PassesTest, AChainThatReadsEachValueTwiceDoesNotDouble) {
  Sketch s({N(), 5});
  ValueId y = s.x;
  for (int i = 0; i < 40; ++i) y = s.Op("Add", {y, y});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {3, 5}, 2)});
  ASSERT_EQ(stages.stages.size(), 1u) << stages.ToString();
  EXPECT_LT(std::get<Nest>(stages.stages[0].body).result.NodeCount(), 60);
}

TEST(PassesTest, AnEndlessChainIsSeveralStages) {
  Sketch s({N(), 5});
  ValueId y = s.x;
  for (int i = 0; i < 2500; ++i) y = s.Op("Sin", {y});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {3, 5}, 2)});
  EXPECT_GE(stages.stages.size(), 2u);
  EXPECT_LE(stages.stages.size(), 10u);
}

TEST(PassesTest, AnIntermediateThatIsAnOutputIsWritten) {
  Sketch s({N(), 5});
  const ValueId a = s.Op("Mul", {s.x, s.Scalar(2)});
  const ValueId b = s.Op("Exp", {a});
  CheckFusion(s.Done({a, b}), {Random(DType::kF32, {3, 5}, 2)});
}

TEST(PassesTest, BiasAndActivationJoinTheMatrixProduct) {
  Sketch s({N(), 3, 12});
  const ValueId product = s.Op("MatMul", {s.x, s.Constant(Random(DType::kF32, {12, 10}, 1))});
  const ValueId biased = s.Op("Add", {product, s.Constant(Random(DType::kF32, {10}, 2))});
  const ValueId gelu = s.Op(
      "Mul", {biased, s.Op("Add", {s.Op("Erf", {s.Op("Div", {biased, s.Scalar(std::sqrt(2))})}),
                                   s.Scalar(1)})});
  const ValueId y = s.Op("Mul", {gelu, s.Scalar(0.5)});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {2, 3, 12}, 3)});
  EXPECT_EQ(stages.stages.size(), 1u) << stages.ToString();
}

TEST(PassesTest, AConvolutionThatIsTransformedKeepsItsEpilogue) {
  Sketch s({N(), 32, 32, 28});
  const ValueId conv = s.Op("Conv",
                            {s.x, s.Constant(Random(DType::kF32, {32, 32, 3, 3}, 1, 0.1)),
                             s.Constant(Random(DType::kF32, {32}, 2))},
                            {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  const ValueId silu = s.Op("Mul", {conv, s.Op("Sigmoid", {conv})});
  const ValueId y = s.Op("Conv", {silu, s.Constant(Random(DType::kF32, {4, 32, 1, 1}, 3, 0.1))});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {1, 32, 32, 28}, 4, 1)});
  int64_t transformed = 0;
  for (const Stage& stage : stages.stages) {
    EXPECT_FALSE(stage.label.starts_with("Sigmoid")) << stages.ToString();
    const auto* product = std::get_if<Contraction>(&stage.body);
    if (product != nullptr) transformed += ElementCount(product->batch).IsConstant(36) ? 1 : 0;
  }
  EXPECT_EQ(transformed, 1) << stages.ToString();
}

TEST(PassesTest, AnEpilogueMayReadTheProductTwice) {
  Sketch s({1, 3, 12});
  const ValueId product = s.Op("MatMul", {s.x, s.Constant(Random(DType::kF32, {12, 10}, 1))});
  const ValueId y = s.Op("Mul", {product, s.Op("Sigmoid", {product})});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {1, 3, 12}, 3)});
  EXPECT_EQ(stages.stages.size(), 1u) << stages.ToString();
}

TEST(PassesTest, AWindowDoesNotRepeatAResize) {
  Sketch s({1, 4, 6, 6});
  const ValueId scaled = s.Op("Mul", {s.x, s.Scalar(2)});
  const ValueId up =
      s.Op("Resize", {scaled, kNoValue, s.Constant(Values(DType::kF32, {4}, {1, 1, 2, 2}))},
           {{"mode", std::string("nearest")},
            {"coordinate_transformation_mode", std::string("asymmetric")},
            {"nearest_mode", std::string("floor")}});
  const ValueId y = s.Op("Conv", {up, s.Constant(Random(DType::kF32, {4, 1, 3, 3}, 1))},
                         {{"group", int64_t{4}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {1, 4, 6, 6}, 3)});
  for (const Stage& stage : stages.stages) {
    const auto* nest = std::get_if<Nest>(&stage.body);
    if (nest == nullptr || nest->reductions.empty()) continue;
    EXPECT_EQ(stage.label.find("Resize"), std::string::npos) << stages.ToString();
  }
}

TEST(PassesTest, AResidualIsAddedWhereTheProductIsWritten) {
  Sketch s({N(), 3, 12});
  const ValueId product = s.Op("MatMul", {s.x, s.Constant(Random(DType::kF32, {12, 12}, 1))});
  const ValueId y =
      s.Op("Add", {s.x, s.Op("Add", {s.Constant(Random(DType::kF32, {12}, 2)), product})});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {2, 3, 12}, 3)});
  EXPECT_EQ(stages.stages.size(), 1u) << stages.ToString();
}

// The place that is read is loaded too, from another operand than those of the map that moves in.
TEST(PassesTest, AMapMovesToWhereAnIndexPoints) {
  for (const char* op : {"Gather", "GatherND"}) {
    Sketch s({3, 5});
    const ValueId at = s.graph.AddInput("at", DType::kI64, {3, 1});
    const ValueId scaled = s.Op("Mul", {s.x, s.Constant(Random(DType::kF32, {5}, 1))});
    const ValueId y = s.Op(op, {scaled, at});
    Tensor places = *Ints({2, 0, -1}).Reshaped({3, 1});
    const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {3, 5}, 3), places});
    EXPECT_EQ(stages.stages.size(), 1u) << stages.ToString();
  }
}

TEST(PassesTest, SoftmaxAsExportersSpellItIsOneNest) {
  Sketch s({N(), 7});
  const ValueId max = s.Op("ReduceMax", {s.x, s.Axes({1})}, {{"keepdims", int64_t{1}}});
  const ValueId e = s.Op("Exp", {s.Op("Sub", {s.x, max})});
  const ValueId sum = s.Op("ReduceSum", {e, s.Axes({1})}, {{"keepdims", int64_t{1}}});
  const StageGraph stages =
      CheckFusion(s.Done({s.Op("Div", {e, sum})}), {Random(DType::kF32, {4, 7}, 3)});
  EXPECT_LE(stages.stages.size(), 2u) << stages.ToString();
}

TEST(PassesTest, LayerNormalizationAsExportersSpellItIsOneNest) {
  Sketch s({N(), 6, 16});
  const ValueId mean = s.Op("ReduceMean", {s.x, s.Axes({-1})});
  const ValueId centred = s.Op("Sub", {s.x, mean});
  const ValueId variance = s.Op("ReduceMean", {s.Op("Pow", {centred, s.Scalar(2)}), s.Axes({-1})});
  const ValueId scale = s.Op("Sqrt", {s.Op("Add", {variance, s.Scalar(1e-5)})});
  const ValueId y =
      s.Op("Mul", {s.Op("Div", {centred, scale}), s.Constant(Random(DType::kF32, {16}, 1))});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {2, 6, 16}, 3)});
  EXPECT_EQ(stages.stages.size(), 1u) << stages.ToString();
}

TEST(PassesTest, ReductionsOverAnInnerAxisJoinAcrossRows) {
  Sketch s({N(), 6, 16});
  const ValueId mean = s.Op("ReduceMean", {s.x, s.Axes({1})});
  const ValueId y = s.Op("Sub", {s.x, mean});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {2, 6, 16}, 3)});
  EXPECT_EQ(stages.stages.size(), 1u) << stages.ToString();
}

TEST(PassesTest, HeadsAreSplitAndMergedWithoutCopies) {
  Sketch s({N(), DimExpr::Symbol("S"), 12});
  const auto project = [&](uint64_t seed) {
    const ValueId p =
        s.Op("Add", {s.Op("MatMul", {s.x, s.Constant(Random(DType::kF32, {12, 12}, seed))}),
                     s.Constant(Random(DType::kF32, {12}, seed + 9))});
    const ValueId split = s.Op("Reshape", {p, s.Constant(Ints({0, 0, 3, 4}))});
    return s.Op("Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  };
  const ValueId q = project(1), k = project(2), v = project(3);
  const ValueId scores = s.Op(
      "Div",
      {s.Op("MatMul", {q, s.Op("Transpose", {k}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}})}),
       s.Scalar(2)});
  const ValueId mixed = s.Op("MatMul", {s.Op("Softmax", {scores}), v});
  const ValueId merged =
      s.Op("Reshape", {s.Op("Transpose", {mixed}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}),
                       s.Constant(Ints({0, 0, 12}))});
  const ValueId y = s.Op("MatMul", {merged, s.Constant(Random(DType::kF32, {12, 12}, 5))});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {2, 5, 12}, 3)});
  // Three projections, two packings of b, two products, softmax, the last product.
  EXPECT_LE(stages.stages.size(), 9u) << stages.ToString();
}

TEST(PassesTest, ConvolutionBlocksKeepOneLayout) {
  Sketch s({N(), 4, 9, 9});
  const auto conv = [&](ValueId x, int64_t in, int64_t out, int64_t k, uint64_t seed) {
    const ValueId w = s.Constant(Random(DType::kF32, {out, in, k, k}, seed, 0.3));
    return s.Op("Conv", {x, w}, {{"pads", std::vector<int64_t>(4, k / 2)}});
  };
  ValueId y = conv(s.x, 4, 8, 3, 1);
  y = s.Op("BatchNormalization",
           {y, s.Constant(Random(DType::kF32, {8}, 2)), s.Constant(Random(DType::kF32, {8}, 3)),
            s.Constant(Random(DType::kF32, {8}, 4)),
            s.Constant(Values(DType::kF32, {8}, {1, 2, 3, 1, 2, 3, 1, 2}))});
  y = s.Op("Relu", {y});
  const ValueId skip = y;
  y = s.Op("HardSwish", {conv(y, 8, 8, 1, 5)});
  y = s.Op("Add", {conv(y, 8, 8, 3, 6), skip});
  const ValueId pooled = s.Op("GlobalAveragePool", {y});
  y = s.Op("Mul", {y, s.Op("Sigmoid", {conv(pooled, 8, 8, 1, 7)})});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {2, 4, 9, 9}, 3)});
  // Five convolutions, the pooling, the product with the gate; transposes at the two ends.
  EXPECT_LE(stages.stages.size(), 8u) << stages.ToString();
}

TEST(PassesTest, WindowsDoNotReadThroughATranspose) {
  Sketch s({N(), 6, 7, 9});
  const ValueId w = s.Constant(Random(DType::kF32, {6, 1, 3, 3}, 1, 0.3));
  const ValueId y =
      s.Op("Conv", {s.x, w}, {{"group", int64_t{6}}, {"pads", std::vector<int64_t>(4, 1)}});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {2, 6, 7, 9}, 3)});
  // Each element is read once by a transpose, not nine times by the windows it is in.
  EXPECT_EQ(stages.stages.size(), 3u) << stages.ToString();
}

int ContractionsOfBytes(const StageGraph& stages) {
  int count = 0;
  for (const Stage& stage : stages.stages) {
    const auto* contraction = std::get_if<Contraction>(&stage.body);
    count += contraction != nullptr && contraction->of_bytes() ? 1 : 0;
  }
  return count;
}

// Scales and zero points of a tensor as quantising tools write them.
struct Scheme {
  ValueId scale = kNoValue, zero = kNoValue;
};

Scheme MakeScheme(Sketch& s, DType dtype, double scale, double zero) {
  return {s.Scalar(scale), s.Constant(Values(dtype, {}, {zero}))};
}

ValueId Rounded(Sketch& s, ValueId x, const Scheme& scheme) {
  return s.Op("DequantizeLinear",
              {s.Op("QuantizeLinear", {x, scheme.scale, scheme.zero}), scheme.scale, scheme.zero});
}

TEST(PassesTest, AConvolutionBetweenRoundingsIsAProductOfBytes) {
  for (const DType dtype : {DType::kU8, DType::kI8}) {
    Sketch s({N(), 4, 7, 6});
    const double zero = dtype == DType::kU8 ? 117 : -9;
    const auto weights = [&](std::vector<int64_t> dims, uint64_t seed) {
      const int64_t channels = dims[0];
      std::vector<double> scales;
      for (int64_t i = 0; i < channels; ++i) scales.push_back(0.0137 * static_cast<double>(i + 1));
      return s.Op("DequantizeLinear",
                  {s.Constant(Random(DType::kI8, dims, seed, 127)),
                   s.Constant(Values(DType::kF32, {channels}, scales))},
                  {{"axis", int64_t{0}}});
    };
    const Scheme x_scheme = MakeScheme(s, dtype, 0.02, zero);
    const Scheme y_scheme = MakeScheme(s, dtype, 0.113, zero);
    const ValueId x = Rounded(s, s.x, x_scheme);
    const ValueId first =
        s.Op("Conv", {x, weights({4, 4, 3, 3}, 1), s.Constant(Random(DType::kF32, {4}, 2))},
             {{"pads", std::vector<int64_t>(4, 1)}});
    const ValueId skip = Rounded(s, s.Op("Relu", {first}), y_scheme);
    const ValueId second = Rounded(s, s.Op("Conv", {skip, weights({4, 4, 1, 1}, 3)}), y_scheme);
    const ValueId y = Rounded(s, s.Op("Relu", {s.Op("Add", {second, skip})}), y_scheme);
    const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {2, 4, 7, 6}, 3)});
    EXPECT_EQ(ContractionsOfBytes(stages), 2) << stages.ToString();
    // What comes between the products is part of them: the input and the output are left.
    EXPECT_LE(stages.stages.size(), 4u) << stages.ToString();
  }
}

TEST(PassesTest, RoundingInPassingStaysInReals) {
  for (const DType dtype : {DType::kU8, DType::kI8}) {
    Sketch s({N(), 5});
    const Scheme scheme = MakeScheme(s, dtype, 0.02, dtype == DType::kU8 ? 117 : -9);
    const Scheme other = {s.Scalar(0.0173), s.Constant(Values(dtype, {}, {3}))};
    // Values for one scheme, taken for those of another.
    const ValueId q = s.Op("QuantizeLinear", {Rounded(s, s.x, scheme), scheme.scale, scheme.zero});
    const ValueId y = s.Op("DequantizeLinear", {q, other.scale, other.zero});
    const StageGraph stages = CheckFusion(
        s.Done({y}),
        {Values(DType::kF32, {2, 5}, {0.013, -1, 1, 7, -7, 1e30, -1e30, INFINITY, -INFINITY, 0})});
    ASSERT_EQ(stages.stages.size(), 1u) << stages.ToString();
    std::get<Nest>(stages.stages[0].body).result.Visit([&](const Expr& e) {
      EXPECT_NE(e.dtype(), dtype) << stages.ToString();
    });
  }
}

// The first rounding of an input has to say what becomes of NaN; what comes after is clamped.
TEST(PassesTest, OnlyWhatMayBeNanIsAskedForIt) {
  Sketch s({N(), 5});
  const Scheme scheme = MakeScheme(s, DType::kI8, 0.02, 3);
  const ValueId scaled =
      s.Op("Mul", {Rounded(s, s.x, scheme), s.Constant(Values(DType::kF32, {5}, {1, 2, 3, 4, 5}))});
  const ValueId y = Rounded(s, s.Op("Relu", {scaled}), scheme);
  const StageGraph stages = CheckFusion(
      s.Done({y}), {Values(DType::kF32, {2, 5}, {0.013, -1, 1, 7, -7, NAN, -1, INFINITY, -2, 0})});
  ASSERT_EQ(stages.stages.size(), 1u) << stages.ToString();
  int asked = 0;
  std::get<Nest>(stages.stages[0].body).result.Visit([&](const Expr& e) {
    asked += e.op() == ExprOp::kEq ? 1 : 0;
    EXPECT_NE(e.op(), ExprOp::kMax) << stages.ToString();
  });
  EXPECT_EQ(asked, 1) << stages.ToString();
}

// A normalisation with a rounding after each of its operations: of every code of every channel the
// answer is that of the longer chain, where channels turn the sign, saturate on the way or end in
// one value.
TEST(PassesTest, AChainOfRoundingsIsAProductAndASumEach) {
  for (const bool bytes : {false, true}) {
    Sketch s({N(), 6});
    const Scheme first = MakeScheme(s, DType::kI8, 0.013, -9);
    const Scheme second = MakeScheme(s, DType::kI8, 0.0117, 21);
    const Scheme third = MakeScheme(s, DType::kU8, 0.0193, 40);
    const auto constant = [&](std::vector<double> values) {
      return s.Constant(Values(DType::kF32, {6}, values));
    };
    ValueId y = Rounded(s, s.x, first);
    y = Rounded(s, s.Op("Sub", {y, constant({0.31, -0.2, 0.05, 1.3, -1.7, 0})}), second);
    y = Rounded(s, s.Op("Mul", {y, constant({1.71, -0.83, 3.9, 0, 0.41, 1})}), first);
    y = s.Op("Add", {y, constant({0.7, -0.9, 0.11, 0.33, 2.1, 0})});
    y = s.Op("QuantizeLinear", {y, third.scale, third.zero});
    if (!bytes) y = s.Op("DequantizeLinear", {y, third.scale, third.zero});
    std::vector<double> x;
    for (int code = -132; code < 132; ++code) {
      for (int channel = 0; channel < 6; ++channel) x.push_back(0.013 * (code + 9));
    }
    for (const double special : {1e30, -1e30, HUGE_VAL, -HUGE_VAL}) x.insert(x.end(), 6, special);
    const int64_t rows = static_cast<int64_t>(x.size()) / 6;
    const StageGraph stages = CheckFusion(s.Done({y}), {Values(DType::kF32, {rows, 6}, x)});
    ASSERT_EQ(stages.stages.size(), 1u) << stages.ToString();
    int rounds = 0, clamps = 0, products = 0;
    std::get<Nest>(stages.stages[0].body).result.Visit([&](const Expr& e) {
      rounds += e.op() == ExprOp::kRound ? 1 : 0;
      clamps += e.op() == ExprOp::kGt || e.op() == ExprOp::kLt ? 1 : 0;
      products += e.op() == ExprOp::kMul ? 1 : 0;
    });
    EXPECT_EQ(rounds, 4) << stages.ToString();
    EXPECT_EQ(clamps, 4) << stages.ToString();
    EXPECT_EQ(products, bytes ? 4 : 5) << stages.ToString();
  }
}

// All pairs of codes of two tensors.
TEST(PassesTest, TheRoundedSumOfTwoCodesIsTwoProductsAndTwoSums) {
  for (const bool bytes : {false, true}) {
    Sketch s({N(), 256});
    const ValueId z = s.graph.AddInput("z", DType::kF32, {N(), 256});
    const Scheme first = MakeScheme(s, DType::kI8, 0.013, -9);
    const Scheme second = MakeScheme(s, DType::kU8, 0.0271, 33);
    const Scheme third = MakeScheme(s, DType::kI8, 0.0293, 17);
    ValueId y = s.Op("Add", {Rounded(s, s.x, first), Rounded(s, z, second)});
    y = s.Op("QuantizeLinear", {y, third.scale, third.zero});
    if (!bytes) y = s.Op("DequantizeLinear", {y, third.scale, third.zero});
    std::vector<double> xs, zs;
    for (int i = 0; i < 256; ++i) {
      for (int j = 0; j < 256; ++j) {
        xs.push_back(0.013 * (i - 128 + 9));
        zs.push_back(0.0271 * (j - 33));
      }
    }
    const StageGraph stages = CheckFusion(
        s.Done({y}), {Values(DType::kF32, {256, 256}, xs), Values(DType::kF32, {256, 256}, zs)});
    ASSERT_EQ(stages.stages.size(), 1u) << stages.ToString();
    int products = 0;
    std::get<Nest>(stages.stages[0].body).result.Visit([&](const Expr& e) {
      products += e.op() == ExprOp::kMul ? 1 : 0;
    });
    EXPECT_EQ(products, bytes ? 4 : 5) << stages.ToString();
  }
}

TEST(PassesTest, RoundingToTheSameCodesAgainIsNothing) {
  Sketch s({N(), 5});
  const Scheme scheme = MakeScheme(s, DType::kU8, 0.0173, 117);
  const ValueId y = Rounded(s, Rounded(s, s.x, scheme), scheme);
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {9, 5}, 1)});
  ASSERT_EQ(stages.stages.size(), 1u) << stages.ToString();
  int rounds = 0;
  std::get<Nest>(stages.stages[0].body).result.Visit([&](const Expr& e) {
    rounds += e.op() == ExprOp::kRound ? 1 : 0;
  });
  EXPECT_EQ(rounds, 1) << stages.ToString();
}

TEST(PassesTest, ProductsOfDequantisedMatricesAreProductsOfBytes) {
  Sketch s({N(), 5, 12});
  const Scheme scheme = MakeScheme(s, DType::kU8, 0.02, 100);
  const auto weights = [&](std::vector<int64_t> dims, int64_t axis, uint64_t seed) {
    return s.Op("DequantizeLinear",
                {s.Constant(Random(DType::kI8, dims, seed, 127)),
                 s.Constant(Values(DType::kF32, {8}, {.1, .2, .3, .4, .5, .6, .7, .8})),
                 s.Constant(Values(DType::kI8, {8}, {1, -2, 3, 0, 5, 6, 7, 8}))},
                {{"axis", axis}});
  };
  const ValueId x = Rounded(s, s.x, scheme);
  const ValueId plain = s.Op("MatMul", {x, weights({12, 8}, 1, 1)});
  const ValueId turned =
      s.Op("Transpose", {weights({8, 12}, 0, 2)}, {{"perm", std::vector<int64_t>{1, 0}}});
  const ValueId other = s.Op("MatMul", {x, turned});
  const ValueId rows = s.Op("Reshape", {x, s.Constant(Ints({-1, 12}))});
  const ValueId gemm = s.Op(
      "Gemm",
      {Rounded(s, rows, scheme), weights({8, 12}, 0, 3), s.Constant(Random(DType::kF32, {8}, 5))},
      {{"transB", int64_t{1}}, {"alpha", 0.5f}, {"beta", 2.0f}});
  const ValueId both = s.Op("MatMul", {x, s.Op("Transpose", {Rounded(s, s.x, scheme)},
                                               {{"perm", std::vector<int64_t>{0, 2, 1}}})});
  const StageGraph stages =
      CheckFusion(s.Done({plain, other, gemm, both}), {Random(DType::kF32, {2, 5, 12}, 3)});
  EXPECT_EQ(ContractionsOfBytes(stages), 4) << stages.ToString();
}

// A scale for each row of the weights does not come out of the sum; 16 bits are no bytes.
TEST(PassesTest, WhatCannotBeTakenOutOfTheSumStaysInReals) {
  Sketch s({N(), 3});
  const Scheme scheme = MakeScheme(s, DType::kU8, 0.02, 100);
  const Scheme wide = MakeScheme(s, DType::kI16, 0.001, 0);
  const ValueId w = s.Constant(Random(DType::kI8, {3, 4}, 1, 127));
  const ValueId scales = s.Constant(Values(DType::kF32, {3}, {.1, .2, .3}));
  const ValueId by_row = s.Op("DequantizeLinear", {w, scales}, {{"axis", int64_t{0}}});
  const ValueId whole = s.Op("DequantizeLinear", {w, s.Scalar(0.1)});
  const ValueId y = s.Op("MatMul", {Rounded(s, s.x, scheme), by_row});
  const ValueId z = s.Op("MatMul", {Rounded(s, s.x, wide), whole});
  const StageGraph stages = CheckFusion(s.Done({y, z}), {Random(DType::kF32, {4, 3}, 3)});
  EXPECT_EQ(ContractionsOfBytes(stages), 0) << stages.ToString();
}

TEST(PassesTest, DynamicQuantisationKeepsOneLayout) {
  Sketch s({N(), 4, 7, 6});
  const auto layer = [&](ValueId x, uint64_t seed) {
    const NodeId quantise = s.graph.AddNode({.op_type = "DynamicQuantizeLinear", .inputs = {x}}, 3);
    const std::vector<ValueId> q = s.graph.node(quantise).outputs;
    const ValueId w = s.Constant(Random(DType::kU8, {4, 4, 3, 3}, seed, 255));
    const ValueId sums =
        s.Op("ConvInteger", {q[0], w, q[2], s.Constant(Values(DType::kU8, {}, {90}))},
             {{"pads", std::vector<int64_t>(4, 1)}});
    const ValueId scale = s.Op("Mul", {q[1], s.Scalar(0.003)});
    return s.Op("Relu", {s.Op("Mul", {s.Op("Cast", {sums}, {{"to", int64_t{1}}}), scale})});
  };
  const StageGraph stages =
      CheckFusion(s.Done({layer(layer(s.x, 1), 2)}), {Random(DType::kF32, {2, 4, 7, 6}, 3)});
  EXPECT_EQ(ContractionsOfBytes(stages), 2) << stages.ToString();
  // Each layer: least, greatest, zero point, rounding, product; a transpose at either end.
  EXPECT_LE(stages.stages.size(), 12u) << stages.ToString();
}

TEST(PassesTest, ConcatenatedPartsAreWrittenInPlace) {
  Sketch s({N(), 6});
  const ValueId a = s.Op("MatMul", {s.x, s.Constant(Random(DType::kF32, {6, 5}, 1))});
  const ValueId b = s.Op("MatMul", {s.x, s.Constant(Random(DType::kF32, {6, 3}, 2))});
  const ValueId y = s.Op("Concat", {a, b}, {{"axis", int64_t{1}}});
  const StageGraph stages = CheckFusion(s.Done({y}), {Random(DType::kF32, {4, 6}, 3)});
  EXPECT_EQ(stages.stages.size(), 2u) << stages.ToString();
}

TEST(PassesTest, APaddedMapKeepsItsGuard) {
  Sketch s({N(), 4});
  const ValueId doubled = s.Op("Exp", {s.x});
  const ValueId y = s.Op("Pad", {doubled, s.Constant(Ints({0, 1, 0, 2})), s.Scalar(7)});
  CheckFusion(s.Done({y}), {Random(DType::kF32, {3, 4}, 3)});
}

TEST(PassesTest, AnOutputThatIsAnInputPassesThrough) {
  Sketch s({N(), 4});
  const ValueId y = s.Op("Reshape", {s.x, s.Constant(Ints({-1}))});
  CheckFusion(s.Done({y, s.x}), {Random(DType::kF32, {3, 4}, 3)});
}

// A weight of 96 rows as q4_1, of small numbers.
Tensor RandomBlocks(int64_t rows, int64_t blocks) {
  Tensor tensor = *Tensor::Allocate(DType::kU8, {rows, blocks * 20});
  std::span<uint8_t> bytes = tensor.mutable_values<uint8_t>();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool is_high = i % 20 == 1 || i % 20 == 3;
    bytes[i] = is_high ? 0x24 : static_cast<uint8_t>(i * 37 + i / 20 * 11);
  }
  return tensor;
}

// Embeddings and output layer that are one matrix, and products spelled both ways.
TEST(FuseTest, ProductsOfBlocksShareTheirWeights) {
  Graph graph;
  const ValueId ids = graph.AddInput("ids", DType::kI64, {DimExpr::Symbol("tokens")});
  const ValueId w = graph.AddConstant("w", RandomBlocks(96, 3));
  const ValueId bias = graph.AddConstant("bias", Random(DType::kF32, {96}, 2));
  const auto dequantized = [&] {
    return graph.Op("DequantizeBlocks", "stampmill", {w}, {{"format", std::string("q4_1")}});
  };
  const ValueId x = graph.Op("Gather", "", {dequantized(), ids});
  const ValueId y = graph.Op("Gemm", "", {x, dequantized(), bias}, {{"transB", int64_t{1}}});
  const ValueId z = graph.Op("Relu", "", {y});
  const ValueId turned =
      graph.Op("Transpose", "", {dequantized()}, {{"perm", std::vector<int64_t>{1, 0}}});
  graph.SetOutputs({graph.Op("MatMul", "", {z, turned})});
  graph.set_output_names({"logits"});

  const Inputs inputs = {Ints({0, 95, 17})};
  Graph original = graph;
  ASSERT_TRUE(InferShapes(original, {}).ok());
  const absl::StatusOr<std::vector<Tensor>> want = Interpret(original, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_TRUE(FoldBlocks(graph, {.panel = 8, .exact_rows = true}).ok());
  ASSERT_TRUE(MergeEqualNodes(graph).ok());
  graph.RemoveDeadNodes();
  ASSERT_TRUE(InferShapes(graph, {}).ok());
  absl::StatusOr<StageGraph> stages =
      LowerGraph(graph, {.panel = PanelForTests, .target = "cpu:x86-64", .exact_rows = true});
  ASSERT_TRUE(stages.ok()) << stages.status();
  FuseStages(*stages);
  RemoveUnreadStages(*stages);
  int products = 0, weights = 0, others = 0;
  for (const Stage& stage : stages->stages) {
    if (stage.removed) continue;
    const auto* product = std::get_if<Contraction>(&stage.body);
    (product != nullptr && product->blocks.has_value() ? products : others) += 1;
    // No stage makes all of the embeddings.
    if (product == nullptr) {
      EXPECT_FALSE(std::get<Nest>(stage.body).output.shape[0].is_constant()) << stages->ToString();
    }
  }
  for (const StageValue& value : stages->values) {
    weights += value.dtype == DType::kU8 && value.constant.has_value() &&
                       value.constant->rank() == 2 && value.constant->shape()[0] == 12
                   ? 1
                   : 0;
  }
  EXPECT_EQ(products, 2) << stages->ToString();
  EXPECT_EQ(others, 1) << stages->ToString();
  EXPECT_EQ(weights, 1) << stages->ToString();
  const absl::StatusOr<std::vector<Tensor>> got = InterpretStages(*stages, inputs);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(Difference((*got)[0], (*want)[0], {.relative = 1e-4, .absolute = 1e-4}), "");
}

}  // namespace
}  // namespace stampmill
