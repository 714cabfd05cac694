// Shape inference over graphs: contents of integers followed to dims of the request, folding,
// checks on requests, and errors that name what is wrong; and the interpreter's own errors.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

using ::testing::HasSubstr;

const DimExpr kN = DimExpr::Symbol("N");
const DimExpr kS = DimExpr::Symbol("S");

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Builds graphs of the tests. One-output operators of ai.onnx.
class InferTest : public testing::Test {
 protected:
  ValueId Op(const char* type, std::vector<ValueId> inputs,
             absl::flat_hash_map<std::string, Attribute> attributes = {}) {
    return graph_.Op(type, "", std::move(inputs), std::move(attributes));
  }
  ValueId Const(const std::vector<int64_t>& values) {
    return graph_.AddConstant("c", Ints(values));
  }
  ValueId ConstScalar(int64_t value) {
    return graph_.AddConstant("c", Tensor::FromInt64({}, std::vector<int64_t>{value}));
  }
  // shape(x)[axis] as a tensor of one element.
  ValueId DimOf(ValueId x, int64_t axis) {
    return Op("Unsqueeze", {Op("Gather", {Op("Shape", {x}), ConstScalar(axis)}), Const({0})});
  }
  absl::Status Infer(ValueId output, bool fold = true) {
    graph_.SetOutputs({output});
    InferOptions options;
    options.fold_constants = fold;
    return InferShapes(graph_, options);
  }
  std::string ShapeOf(ValueId id) { return ToString(*graph_.value(id).shape); }

  Graph graph_;
};

TEST_F(InferTest, ReshapeToAComputedShapeGivesDimsOfTheRequest) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, kS, 384});
  const ValueId shape =
      Op("Concat", {DimOf(x, 0), DimOf(x, 1), Const({12}), Const({-1})}, {{"axis", int64_t{0}}});
  const ValueId heads = Op("Reshape", {x, shape});
  const ValueId back = Op("Reshape", {Op("Transpose", {heads}), Const({-1})});
  ASSERT_TRUE(Infer(back).ok());
  EXPECT_EQ(ShapeOf(heads), "[N, S, 12, 32]");
  EXPECT_EQ(graph_.value(back).shape->at(0), kN * kS * 384);
  EXPECT_TRUE(graph_.checks().empty());
}

TEST_F(InferTest, ExpandWithMinusOneMeaningKeepIsDecidedWhenCompiling) {
  // What PyTorch writes for x.expand(-1, S): where(wanted == -1, ones, wanted).
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, 1});
  const ValueId ids = graph_.AddInput("ids", DType::kI64, {kN, kS});
  const ValueId wanted = Op("Concat", {Const({-1}), DimOf(ids, 1)}, {{"axis", int64_t{0}}});
  const ValueId ones =
      Op("ConstantOfShape", {Op("Shape", {wanted})}, {{"value", Attribute(Ints({1}))}});
  const ValueId is_keep = Op("Equal", {wanted, Op("Mul", {ones, Const({-1})})});
  const ValueId y = Op("Expand", {x, Op("Where", {is_keep, ones, wanted})});
  ASSERT_TRUE(Infer(y).ok());
  EXPECT_EQ(ShapeOf(y), "[N, S]");
}

TEST_F(InferTest, ArithmeticOnDimsIsFollowed) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, kS});
  const ValueId n = DimOf(x, 0);
  const ValueId s = DimOf(x, 1);
  const ValueId half = Op("Div", {Op("Add", {s, Const({1})}), Const({2})});
  const ValueId most = Op("Max", {Op("Sub", {s, Const({3})}), Const({0})});
  const ValueId dims =
      Op("Concat", {n, half, Op("Mod", {s, Const({4})}), most}, {{"axis", int64_t{0}}});
  const ValueId y =
      Op("ConstantOfShape",
         {Op("Cast", {Op("Cast", {dims}, {{"to", int64_t{6}}})}, {{"to", int64_t{7}}})});
  ASSERT_TRUE(Infer(y).ok());
  const Shape& shape = *graph_.value(y).shape;
  EXPECT_EQ(shape[0], kN);
  EXPECT_EQ(shape[1], FloorDiv(kS + 1, 2));
  EXPECT_EQ(shape[2], Mod(kS, 4));
  EXPECT_EQ(shape[3], Max(kS - 3, 0));
}

TEST_F(InferTest, PositionTableSlicedToTheSequenceBroadcastsAsTheSequence) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, kS, 8});
  const ValueId table = graph_.AddConstant("table", Random(DType::kF32, {1, 512, 8}, 1));
  const ValueId rows = Op("Slice", {table, Const({0}), DimOf(x, 1), Const({1})});
  const ValueId y = Op("Add", {x, rows});
  ASSERT_TRUE(Infer(y).ok());
  EXPECT_EQ(ShapeOf(y), "[N, S, 8]");
  ASSERT_EQ(graph_.checks().size(), 1u);  // S <= 512
}

TEST_F(InferTest, RangeOverADimHasThatManyElements) {
  const ValueId x = graph_.AddInput("x", DType::kI64, {kN, kS});
  const ValueId s = Op("Squeeze", {DimOf(x, 1), Const({0})});
  const ValueId y = Op("Range", {ConstScalar(0), s, ConstScalar(1)});
  ASSERT_TRUE(Infer(y).ok());
  EXPECT_EQ(ShapeOf(y), "[S]");
}

TEST_F(InferTest, RangeOfFloatsOverADimHasThatManyElements) {
  const ValueId x = graph_.AddInput("x", DType::kI64, {kN, kS});
  const ValueId s = Op("Squeeze", {DimOf(x, 1), Const({0})});
  const ValueId limit = Op("Cast", {s}, {{"to", int64_t{1}}});
  const auto number = [&](float value) {
    return graph_.AddConstant("number", Values(DType::kF32, {}, {value}));
  };
  const ValueId y = Op("Range", {number(0), limit, number(2)});
  ASSERT_TRUE(Infer(y).ok());
  EXPECT_EQ(graph_.value(y).shape->at(0), CeilDiv(kS, 2));
  EXPECT_EQ(graph_.value(y).dtype, DType::kF32);
}

TEST_F(InferTest, RangeOfFloatsFromAHalfToADimIsNotFollowed) {
  const ValueId x = graph_.AddInput("x", DType::kI64, {kN, kS});
  const ValueId s = Op("Squeeze", {DimOf(x, 1), Const({0})});
  const ValueId half = graph_.AddConstant("half", Values(DType::kF32, {}, {0.5}));
  const ValueId one = graph_.AddConstant("one", Values(DType::kF32, {}, {1}));
  const absl::Status status =
      Infer(Op("Range", {half, Op("Cast", {s}, {{"to", int64_t{1}}}), one}));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
}

TEST_F(InferTest, WholeFloatsOfDimsAreFollowedUnlessTheyAreDivided) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, kS});
  const ValueId s = Op("Cast", {DimOf(x, 1)}, {{"to", int64_t{1}}});
  const ValueId two = graph_.AddConstant("two", Values(DType::kF32, {1}, {2}));
  const auto zeros = [&](ValueId length) {
    return Op("ConstantOfShape", {Op("Cast", {length}, {{"to", int64_t{7}}})});
  };
  const ValueId y = zeros(Op("Add", {Op("Mul", {s, two}), two}));
  ASSERT_TRUE(Infer(y).ok());
  EXPECT_EQ(graph_.value(y).shape->at(0), kS * 2 + 2);
  const absl::Status status = Infer(zeros(Op("Div", {s, two})));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
}

TEST_F(InferTest, ReductionsOfDimsAreFollowed) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, kS});
  const ValueId dims = Op("Concat", {DimOf(x, 0), DimOf(x, 1), Const({7})}, {{"axis", int64_t{0}}});
  const auto total = [&](const char* op) {
    return Op("ConstantOfShape", {Op("Reshape", {Op(op, {dims}), Const({1})})});
  };
  const ValueId least = total("ReduceMin"), sum = total("ReduceSum"), product = total("ReduceProd");
  ASSERT_TRUE(Infer(Op("Concat", {least, sum, product}, {{"axis", int64_t{0}}})).ok());
  EXPECT_EQ(graph_.value(least).shape->at(0), Min(Min(kN, kS), 7));
  EXPECT_EQ(graph_.value(sum).shape->at(0), kN + kS + 7);
  EXPECT_EQ(graph_.value(product).shape->at(0), kN * kS * 7);
  EXPECT_EQ(Infer(total("ReduceMean")).code(), absl::StatusCode::kUnimplemented);
}

TEST_F(InferTest, SqueezeWithoutAxesLeavesWhatRequestsChoose) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, 1, kS});
  const ValueId y = Op("Squeeze", {x});
  ASSERT_TRUE(Infer(y).ok());
  EXPECT_EQ(ShapeOf(y), "[N, S]");
}

TEST_F(InferTest, SqueezeWithoutAxesDropsWhatMustBeOne) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, 1, kS});
  const ValueId one_batch = Op("Squeeze", {x, Const({0})});  // demands N == 1
  const ValueId y = Op("Squeeze", {x});
  ASSERT_TRUE(Infer(Op("Add", {one_batch, y})).ok());
  EXPECT_EQ(ShapeOf(y), "[S]");
}

TEST_F(InferTest, SizeAndPartsOfShapes) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, 3, kS});
  const ValueId part = Op("Shape", {x}, {{"start", int64_t{-2}}});
  const ValueId all =
      Op("Concat", {Op("Reshape", {Op("Size", {x}), Const({1})}), part}, {{"axis", int64_t{0}}});
  const ValueId y = Op("Expand", {graph_.AddConstant("one", Values(DType::kF32, {}, {1})), all});
  ASSERT_TRUE(Infer(y).ok());
  EXPECT_EQ(graph_.value(y).shape->at(0), kN * kS * 3);
  EXPECT_EQ(graph_.value(y).shape->at(1), DimExpr(3));
}

TEST_F(InferTest, FoldsConstantsAndDropsWhatTheyWereMadeOf) {
  const ValueId weights = graph_.AddConstant("w", Random(DType::kI8, {4, 3}, 1));
  const ValueId wide = Op("Cast", {weights}, {{"to", int64_t{1}}});
  const ValueId scaled =
      Op("Mul", {wide, graph_.AddConstant("scale", Values(DType::kF32, {3}, {1, 2, 3}))});
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, 3});
  const ValueId y = Op("Sub", {x, Op("Slice", {scaled, Const({0}), Const({1}), Const({0})})});
  ASSERT_TRUE(Infer(y).ok());
  EXPECT_EQ(graph_.Order().size(), 1u);
  EXPECT_FALSE(graph_.value(weights).constant.has_value());
  EXPECT_FALSE(graph_.value(scaled).constant.has_value());
  const auto result =
      Interpret(graph_, std::vector<Tensor>{Values(DType::kF32, {1, 3}, {0, 0, 0})});
  ASSERT_TRUE(result.ok()) << result.status();
}

TEST_F(InferTest, AFixedShapeFoldsToAConstant) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {2, 3});
  const ValueId y = Op("Mul", {Op("Shape", {x}), Const({10})});
  ASSERT_TRUE(Infer(y).ok());
  EXPECT_TRUE(graph_.Order().empty());
  ASSERT_TRUE(graph_.value(y).constant.has_value());
  EXPECT_EQ(Difference(*graph_.value(y).constant, Ints({20, 30}), {}), "");
}

TEST_F(InferTest, DoesNotFoldPastTheLimit) {
  const ValueId y = Op("ConstantOfShape", {Const({1 << 20, 1 << 20})});
  ASSERT_TRUE(Infer(y).ok());
  EXPECT_EQ(graph_.Order().size(), 1u);
}

TEST_F(InferTest, ReshapeThatFitsOnlySomeRequestsLeavesACheck) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN, kS});
  const ValueId y = Op("Reshape", {x, Const({-1, 6})});
  ASSERT_TRUE(Infer(y).ok());
  ASSERT_EQ(graph_.checks().size(), 1u);
  const auto holds = [&](int64_t n, int64_t s) {
    return *graph_.checks()[0].nonzero.Evaluate(
               [&](absl::string_view name) -> std::optional<int64_t> {
                 return name == "N" ? n : s;
               }) != 0;
  };
  EXPECT_TRUE(holds(2, 3));
  EXPECT_FALSE(holds(5, 5));
}

TEST_F(InferTest, ReshapeThatNeverFitsIsRefused) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {4});
  const absl::Status status = Infer(Op("Reshape", {x, Const({3})}));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST_F(InferTest, ContentsThatOnlyTheRequestKnowsAreUnimplementedAndNamed) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN});
  const ValueId shape = graph_.AddInput("wanted", DType::kI64, {2});
  const absl::Status status = Infer(Op("Reshape", {x, shape}));
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("Reshape"));
  EXPECT_THAT(Message(status), HasSubstr("input 1 ('wanted')"));
}

TEST_F(InferTest, AnUnknownOperatorIsNamedWithDomainAndOpset) {
  Node node;
  node.op_type = "Frobnicate";
  node.domain = "com.example";
  node.name = "n7";
  node.opset = 3;
  graph_.AddNode(std::move(node), 1);
  const absl::Status status = InferShapes(graph_, InferOptions());
  EXPECT_TRUE(absl::IsUnimplemented(status));
  for (const char* part : {"Frobnicate", "com.example", "n7", "3"}) {
    EXPECT_THAT(Message(status), HasSubstr(part));
  }
}

TEST_F(InferTest, WrongNumbersOfInputsAreRefused) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {kN});
  EXPECT_TRUE(absl::IsInvalidArgument(Infer(Op("Add", {x}))));
  EXPECT_TRUE(absl::IsInvalidArgument(Infer(Op("Relu", {x, x}))));
}

TEST_F(InferTest, HugeShapesAreErrorsNotCrashes) {
  const int64_t huge = int64_t{1} << 62;
  const ValueId y = Op("ConstantOfShape", {Const({huge, huge, huge})});
  (void)Infer(y);
  const auto result = Interpret(graph_, {});
  EXPECT_FALSE(result.ok());
}

// Large extents beside one of 0: no elements, and sizes that overflow as soon as they grow.
TEST_F(InferTest, MovingEmptyTensorsOfHugeExtentsEndsInAResultOrAnError) {
  const int64_t huge = int64_t{1} << 61;
  const auto empty = Tensor::Allocate(DType::kF32, {1 << 30, 0, 1 << 30});
  ASSERT_TRUE(empty.ok()) << empty.status();
  const std::vector<std::pair<const char*, std::vector<Tensor>>> cases = {
      {"Tile", {*empty, Ints({huge, 1, huge})}},
      {"Pad", {*empty, Ints({huge, 0, huge, huge, 0, huge})}},
      {"Slice", {*empty, Ints({1}), Ints({huge}), Ints({0}), Ints({1})}},
      {"Slice", {*empty, Ints({-1}), Ints({-huge}), Ints({0}), Ints({-1})}},
      {"Expand", {*empty, Ints({huge, 1, huge})}},
      {"Reshape", {*empty, Ints({huge, huge, 0})}},
      {"Reshape", {*empty, Ints({huge, huge, huge, -1})}},
      {"Transpose", {*empty}},
      {"Flatten", {*empty}},
      {"CenterCropPad", {*empty, Ints({huge, huge, huge})}},
      {"Gather", {*empty, Ints({0, 1})}},
      {"Range", {Ints({0}), Ints({huge}), Ints({1})}},
  };
  for (const auto& [type, inputs] : cases) {
    Graph graph;
    std::vector<ValueId> values;
    for (const Tensor& input : inputs) values.push_back(graph.AddConstant("c", input));
    graph.SetOutputs({graph.Op(type, "", values)});
    const absl::Status status = InferShapes(graph, InferOptions());
    if (!status.ok()) continue;
    (void)Interpret(graph, {});
  }
}

TEST(Interpret, RefusesOtherInputsThanTheModelDeclares) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {DimExpr::Symbol("N"), 3});
  graph.SetOutputs({graph.Op("Relu", "", {x})});
  EXPECT_TRUE(absl::IsInvalidArgument(Interpret(graph, {}).status()));
  const auto run = [&](Tensor tensor) { return Interpret(graph, std::vector<Tensor>{tensor}); };
  EXPECT_TRUE(run(Random(DType::kF32, {2, 3}, 1)).ok());
  EXPECT_THAT(Message(run(Random(DType::kF64, {2, 3}, 1)).status()), HasSubstr("input 'x'"));
  EXPECT_THAT(Message(run(Random(DType::kF32, {2, 4}, 1)).status()), HasSubstr("[2, 4]"));
}

TEST_F(InferTest, InterpretRefusesTensorsThatDoNotFitTogether) {
  const ValueId a = graph_.AddInput("a", DType::kF32, {2, kN});
  const ValueId b = graph_.AddInput("b", DType::kF32, {kS, 3});
  ASSERT_TRUE(Infer(Op("MatMul", {a, b})).ok());
  const auto run = [&](int64_t n, int64_t s) {
    return Interpret(graph_, std::vector<Tensor>{Random(DType::kF32, {2, n}, 1),
                                                 Random(DType::kF32, {s, 3}, 2)})
        .status();
  };
  EXPECT_TRUE(run(4, 4).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(run(4, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(run(2, 4)));
}

TEST(OpTable, NamesEachOperatorOnce) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const OpDefinition* op : AllOps()) {
    names.emplace_back(std::string(op->domain), std::string(op->name));
    EXPECT_NE(op->infer, nullptr) << op->name;
    // What passes make of control flow is never interpreted.
    const bool is_resolved =
        op->domain == "stampmill" &&
        (op->name == "If" || op->name == "Repeat" || op->name == "Read" || op->name == "Dims");
    EXPECT_EQ(op->reference == nullptr, is_resolved) << op->name;
    EXPECT_EQ(FindOp(op->domain, op->name), op);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_EQ(FindOp("", "NoSuchOperator"), nullptr);
  EXPECT_NE(FindOp("ai.onnx", "Add"), nullptr);
}

TEST_F(InferTest, IndicesThatAreInputsOfTheModelAreBounded) {
  const ValueId table = graph_.AddConstant("table", Random(DType::kF32, {30, 4}, 1));
  const ValueId small = graph_.AddConstant("small", Random(DType::kF32, {5, 4}, 1));
  const ValueId square = graph_.AddConstant("square", Random(DType::kF32, {9, 9}, 1));
  const ValueId open = graph_.AddInput("open", DType::kF32, {kN, 4});
  const ValueId ids = graph_.AddInput("ids", DType::kI32, {kN});
  const ValueId wide = graph_.AddInput("wide", DType::kI64, {kN});
  const ValueId pairs = graph_.AddInput("pairs", DType::kI64, {kN, 2});
  const ValueId free = graph_.AddInput("free", DType::kI64, {kN});
  const ValueId same = Op("Unsqueeze", {Op("Cast", {ids}, {{"to", int64_t{7}}}), Const({0})});
  const ValueId places = graph_.AddInput("places", DType::kI64, {3});
  const ValueId updates = graph_.AddInput("updates", DType::kF32, {3});
  const ValueId row = graph_.AddConstant("row", Random(DType::kF32, {6}, 1));
  graph_.SetOutputs({Op("ScatterElements", {row, places, updates}), Op("Gather", {table, same}),
                     Op("Gather", {small, ids}), Op("Gather", {table, ids}),
                     // Not the input's own elements, or no fixed extent.
                     Op("Gather", {table, Op("Cast", {wide}, {{"to", int64_t{6}}})}),
                     Op("Gather", {table, Op("Add", {free, Const({1})})}),
                     Op("Gather", {open, free}), Op("GatherND", {square, pairs})});
  ASSERT_TRUE(InferShapes(graph_, {}).ok());
  ASSERT_EQ(graph_.index_bounds().size(), 3u);
  const auto limit = [&](ValueId input) {
    for (const IndexBound& bound : graph_.index_bounds()) {
      if (bound.input == input) return bound.limit;
    }
    return int64_t{0};
  };
  EXPECT_EQ(limit(ids), 5);  // the tightest
  EXPECT_EQ(limit(pairs), 9);
  EXPECT_EQ(limit(places), 6);
  EXPECT_THAT(graph_.index_bounds()[1].reader, HasSubstr("(Gather"));
}

TEST_F(InferTest, RoundingNoiseMovesWhatIsComputedAndNothingElse) {
  const ValueId x = graph_.AddInput("x", DType::kF32, {4});
  const ValueId one = graph_.AddConstant("one", Values(DType::kF32, {1}, {1}));
  const ValueId sum = Op("Add", {x, one});
  // Nearly all of the sum cancels: what is left is noise.
  const ValueId rest = Op("Sub", {Op("Sub", {sum, x}), one});
  const ValueId whole = Op("Cast", {x}, {{"to", int64_t{7}}});
  graph_.SetOutputs({sum, rest, whole, x});
  ASSERT_TRUE(InferShapes(graph_, {}).ok());
  const std::vector<Tensor> inputs = {Values(DType::kF32, {4}, {0.5, 3, 0.25, -1.5})};
  const auto exact = Interpret(graph_, inputs);
  const auto noisy = Interpret(graph_, inputs, {.rounding_noise = true, .seed = 1});
  ASSERT_TRUE(exact.ok() && noisy.ok());
  const auto value = [](const Tensor& tensor, int64_t i) { return tensor.ValueAsDouble(i); };
  bool moved = false;
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(value((*exact)[1], i), 0);
    EXPECT_NEAR(value((*noisy)[0], i), value((*exact)[0], i), 4 * 0x1p-18);
    EXPECT_EQ(value((*noisy)[2], i), value((*exact)[2], i));
    EXPECT_EQ(value((*noisy)[3], i), value((*exact)[3], i));
    moved |= value((*noisy)[1], i) != 0;
  }
  EXPECT_TRUE(moved);
  EXPECT_EQ(value((*noisy)[0], 1), 4) << "a whole number";
  const auto again = Interpret(graph_, inputs, {.rounding_noise = true, .seed = 1});
  EXPECT_EQ(value((*again)[1], 0), value((*noisy)[1], 0));
}

}  // namespace
}  // namespace stampmill
