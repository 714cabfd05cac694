#include "graph/graph.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

Graph Chain() {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {DimExpr::Symbol("N"), 4});
  const ValueId y = graph.Op("Relu", "", {x});
  const ValueId z = graph.Op("Add", "", {y, x});
  graph.SetOutputs({z});
  return graph;
}

TEST(GraphTest, BuilderMakesAVerifiedGraph) {
  const Graph graph = Chain();
  EXPECT_TRUE(graph.Verify().ok());
  EXPECT_EQ(graph.Order().size(), 2u);
  EXPECT_EQ(graph.UseCounts(), (std::vector<int32_t>{2, 1, 1}));
  EXPECT_NE(graph.ToString().find("'x' f32[N, 4]"), std::string::npos) << graph.ToString();
}

TEST(GraphTest, ReplacingUsesAndRemovingDeadNodesGoTogether) {
  Graph graph = Chain();
  const ValueId z = graph.outputs()[0];
  const ValueId x = graph.inputs()[0];
  graph.ReplaceUses(z, x);
  EXPECT_EQ(graph.outputs()[0], x);
  EXPECT_EQ(graph.RemoveDeadNodes(), 2);
  EXPECT_EQ(graph.Order().size(), 0u);
  EXPECT_EQ(graph.value(z).producer, -1);
  EXPECT_TRUE(graph.Verify().ok());
}

TEST(GraphTest, ConstantsCarryTheirShape) {
  Graph graph;
  const ValueId c = graph.AddConstant("c", *Tensor::Allocate(DType::kI8, {2, 5}));
  EXPECT_EQ(*graph.value(c).shape, (Shape{2, 5}));
  EXPECT_EQ(graph.value(c).dtype, DType::kI8);
}

TEST(GraphTest, SortingPutsProducersFirstAndKeepsWhatWasSorted) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {1});
  const ValueId a = graph.AddValue({.name = "a"});
  const ValueId b = graph.AddValue({.name = "b"});
  graph.AddNode({.op_type = "Abs", .name = "second", .inputs = {a}, .outputs = {b}});
  graph.AddNode({.op_type = "Neg", .name = "first", .inputs = {x}, .outputs = {a}});
  graph.AddNode({.op_type = "Exp", .name = "third", .inputs = {x}, .outputs = {}});
  graph.SetOutputs({b});
  EXPECT_EQ(graph.Verify().code(), absl::StatusCode::kInternal);
  ASSERT_TRUE(graph.SortTopologically().ok());
  EXPECT_TRUE(graph.Verify().ok());
  EXPECT_EQ(graph.Order(), (std::vector<NodeId>{1, 0, 2}));
  ASSERT_TRUE(graph.SortTopologically().ok());
  EXPECT_EQ(graph.Order(), (std::vector<NodeId>{1, 0, 2}));
}

TEST(GraphTest, SortingNamesANodeOnACycle) {
  Graph graph;
  const ValueId a = graph.AddValue({.name = "a"});
  const ValueId b = graph.AddValue({.name = "b"});
  const ValueId c = graph.AddValue({.name = "c"});
  graph.AddNode({.op_type = "Abs", .name = "downstream", .inputs = {b}, .outputs = {c}});
  graph.AddNode({.op_type = "Abs", .name = "left", .inputs = {a}, .outputs = {b}});
  graph.AddNode({.op_type = "Abs", .name = "right", .inputs = {b}, .outputs = {a}});
  const absl::Status status = graph.SortTopologically();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().find("downstream"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("cycle"), absl::string_view::npos);
}

TEST(GraphTest, AttributesAreTypedAndDefaulted) {
  Node node = {.op_type = "Conv", .name = "n", .opset = 11};
  node.attributes["group"] = int64_t{4};
  node.attributes["pads"] = std::vector<int64_t>{1, 2};
  node.attributes["value"] = Tensor::Scalar(DType::kF32, 1.5f);
  EXPECT_EQ(*node.Int("group", 1), 4);
  EXPECT_EQ(*node.Int("absent", 1), 1);
  EXPECT_EQ(*node.Ints("pads", {}), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(node.Float("group", 0).status().message(),
            "node 'n' (Conv, opset 11): attribute 'group' has the wrong type");
  EXPECT_EQ(node.FindTensor("group"), nullptr);
  ASSERT_NE(node.FindTensor("value"), nullptr);
  EXPECT_TRUE(node.Has("pads"));
  EXPECT_TRUE(node.Floats("absent")->empty());
  EXPECT_EQ(*node.String("mode", "constant"), "constant");
}

}  // namespace
}  // namespace stampmill
