#include "compiler/onnx/upgrade.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "compiler/onnx/importer.h"
#include "compiler/onnx/testing/model_writer.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

using Ints = std::vector<int64_t>;

// A model of one node on inputs x, y, z of rank 3, and its graph.
absl::StatusOr<ImportedModel> Import(int64_t opset, TestNode node, DType dtype = DType::kF32) {
  if (node.inputs.empty()) node.inputs = {"x"};
  if (node.outputs.empty()) node.outputs = {"out"};
  node.name = "n";
  TestModel model = {.graph = {.nodes = {node}, .outputs = {node.outputs[0]}}, .opset = opset};
  for (const char* name : {"x", "y", "z"}) {
    model.graph.inputs.push_back({name, dtype, {"N", int64_t{4}, int64_t{6}}});
  }
  const auto bytes = std::make_shared<std::string>(MakeModel(model));
  return ImportOnnxBytes(AsBytes(*bytes), bytes);
}

const Node& OnlyNode(const Graph& graph) {
  EXPECT_EQ(graph.Order().size(), 1u) << graph.ToString();
  return graph.node(graph.Order().back());
}

Ints Contents(const Graph& graph, ValueId value) {
  Ints contents;
  if (value == kNoValue || !graph.value(value).constant.has_value()) return {-999};
  const Tensor& tensor = *graph.value(value).constant;
  for (int64_t i = 0; i < tensor.element_count(); ++i) contents.push_back(tensor.ValueAsInt64(i));
  return contents;
}

TEST(UpgradeTest, AxesBecomeAnInput) {
  for (const char* op : {"Squeeze", "Unsqueeze", "ReduceSum", "ReduceMean", "ReduceLogSumExp"}) {
    const auto old = Import(12, {.op_type = op, .attributes = {{"axes", Ints{1, 2}}}});
    ASSERT_TRUE(old.ok()) << old.status();
    const Node& node = OnlyNode(old->graph);
    ASSERT_EQ(node.inputs.size(), 2u) << op;
    EXPECT_EQ(Contents(old->graph, node.inputs[1]), (Ints{1, 2})) << op;
    EXPECT_FALSE(node.Has("axes"));
    EXPECT_EQ(OnlyNode(Import(12, {.op_type = op})->graph).inputs.size(), 1u);
  }
  const auto mean = Import(17, {.op_type = "ReduceMean", .attributes = {{"axes", Ints{1}}}});
  EXPECT_EQ(OnlyNode(mean->graph).inputs.size(), 2u);
}

TEST(UpgradeTest, NewFormsStayAsTheyAre) {
  const auto sum = Import(13, {.op_type = "ReduceSum", .inputs = {"x", "y"}});
  EXPECT_EQ(OnlyNode(sum->graph).inputs.size(), 2u);
  const auto softmax = Import(13, {.op_type = "Softmax"});
  EXPECT_FALSE(OnlyNode(softmax->graph).Has("axis"));
}

TEST(UpgradeTest, ClipAndPadTakeValuesOfTheDataType) {
  const auto clip =
      Import(9, {.op_type = "Clip", .attributes = {{"min", 0.0f}, {"max", 6.0f}}}, DType::kF16);
  ASSERT_TRUE(clip.ok()) << clip.status();
  const Node& node = OnlyNode(clip->graph);
  ASSERT_EQ(node.inputs.size(), 3u);
  EXPECT_EQ(clip->graph.value(node.inputs[2]).dtype, DType::kF16);
  EXPECT_EQ(Contents(clip->graph, node.inputs[2]), Ints{6});
  const auto max_only = Import(9, {.op_type = "Clip", .attributes = {{"max", 6.0f}}});
  EXPECT_EQ(OnlyNode(max_only->graph).inputs[1], kNoValue);

  const auto pad = Import(
      10, {.op_type = "Pad", .attributes = {{"pads", Ints{0, 0, 1, 0, 0, 1}}, {"value", 2.0f}}},
      DType::kF64);
  const Node& padded = OnlyNode(pad->graph);
  EXPECT_EQ(Contents(pad->graph, padded.inputs[1]), (Ints{0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(pad->graph.value(padded.inputs[2]).dtype, DType::kF64);
}

TEST(UpgradeTest, SliceTopKAndSplitTakeInputs) {
  const auto slice =
      Import(9, {.op_type = "Slice", .attributes = {{"starts", Ints{1}}, {"ends", Ints{3}}}});
  EXPECT_EQ(OnlyNode(slice->graph).inputs.size(), 3u);
  const auto axes =
      Import(9, {.op_type = "Slice",
                 .attributes = {{"starts", Ints{1}}, {"ends", Ints{3}}, {"axes", Ints{2}}}});
  EXPECT_EQ(Contents(axes->graph, OnlyNode(axes->graph).inputs[3]), Ints{2});
  const auto top = Import(9, {.op_type = "TopK", .attributes = {{"k", int64_t{3}}}});
  EXPECT_EQ(Contents(top->graph, OnlyNode(top->graph).inputs[1]), Ints{3});

  const auto sizes = Import(
      11, {.op_type = "Split", .outputs = {"a", "b"}, .attributes = {{"split", Ints{1, 3}}}});
  EXPECT_EQ(Contents(sizes->graph, OnlyNode(sizes->graph).inputs[1]), (Ints{1, 3}));
  EXPECT_FALSE(OnlyNode(sizes->graph).Has("num_outputs"));
  const auto equal = Import(13, {.op_type = "Split", .outputs = {"a", "b"}});
  EXPECT_EQ(*OnlyNode(equal->graph).Int("num_outputs", 0), 2);
}

TEST(UpgradeTest, OldSoftmaxWorksOnAMatrix) {
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"}) {
    const auto model = Import(11, {.op_type = op});
    ASSERT_TRUE(model.ok()) << model.status();
    std::vector<std::string> ops;
    for (const NodeId id : model->graph.Order()) ops.push_back(model->graph.node(id).op_type);
    EXPECT_EQ(ops, (std::vector<std::string>{"Flatten", op, "Shape", "Reshape"}));
    EXPECT_EQ(model->graph.value(model->graph.outputs()[0]).name, "out");
    EXPECT_TRUE(model->graph.Verify().ok());
    for (const int64_t last : {-1, 2}) {
      const auto direct = Import(11, {.op_type = op, .attributes = {{"axis", last}}});
      EXPECT_EQ(*OnlyNode(direct->graph).Int("axis", 1), -1);
    }
  }
}

TEST(UpgradeTest, UpsampleBecomesResize) {
  const auto old = Import(7, {.op_type = "Upsample",
                              .attributes = {{"scales", std::vector<float>{1, 2, 2}},
                                             {"mode", std::string("linear")}}});
  ASSERT_TRUE(old.ok()) << old.status();
  const Node& node = OnlyNode(old->graph);
  EXPECT_EQ(node.op_type, "Resize");
  EXPECT_EQ(node.inputs[1], kNoValue);
  EXPECT_EQ(Contents(old->graph, node.inputs[2]), (Ints{1, 2, 2}));
  EXPECT_EQ(*node.String("coordinate_transformation_mode", ""), "asymmetric");
  const auto nine = Import(9, {.op_type = "Upsample", .inputs = {"x", "y"}});
  EXPECT_EQ(OnlyNode(nine->graph).inputs.size(), 3u);
  const auto ten = Import(10, {.op_type = "Resize", .inputs = {"x", "y"}});
  EXPECT_EQ(*OnlyNode(ten->graph).String("nearest_mode", ""), "floor");
  const auto eleven = Import(11, {.op_type = "Resize", .inputs = {"x", "y", "z"}});
  EXPECT_FALSE(OnlyNode(eleven->graph).Has("nearest_mode"));
}

TEST(UpgradeTest, OldDefaultsAndNamesAreSaid) {
  const auto roi = Import(10, {.op_type = "RoiAlign", .inputs = {"x", "y", "z"}});
  EXPECT_EQ(*OnlyNode(roi->graph).String("coordinate_transformation_mode", ""),
            "output_half_pixel");
  const auto grid = Import(16, {.op_type = "GridSample", .inputs = {"x", "y"}});
  EXPECT_EQ(*OnlyNode(grid->graph).String("mode", ""), "linear");
  const auto dft = Import(17, {.op_type = "DFT"});
  EXPECT_EQ(Contents(dft->graph, OnlyNode(dft->graph).inputs[2]), Ints{1});
  const auto scatter = Import(9, {.op_type = "Scatter", .inputs = {"x", "y", "z"}});
  EXPECT_EQ(OnlyNode(scatter->graph).op_type, "ScatterElements");
  const auto dropout = Import(7, {.op_type = "Dropout", .attributes = {{"ratio", 0.3f}}});
  EXPECT_FALSE(OnlyNode(dropout->graph).Has("ratio"));
  EXPECT_EQ(OnlyNode(dropout->graph).inputs.size(), 1u);
}

TEST(UpgradeTest, GroupNormalizationRepeatsScaleAndBias) {
  const auto old = Import(18, {.op_type = "GroupNormalization",
                               .inputs = {"x", "y", "z"},
                               .attributes = {{"num_groups", int64_t{2}}}});
  ASSERT_TRUE(old.ok()) << old.status();
  const Graph& graph = old->graph;
  const Node& node = graph.node(graph.Order().back());
  EXPECT_EQ(node.op_type, "GroupNormalization");
  EXPECT_EQ(graph.node(graph.value(node.inputs[1]).producer).op_type, "Reshape");
  EXPECT_TRUE(graph.Verify().ok());
  const auto current = Import(21, {.op_type = "GroupNormalization",
                                   .inputs = {"x", "y", "z"},
                                   .attributes = {{"num_groups", int64_t{2}}}});
  EXPECT_EQ(current->graph.Order().size(), 1u);
}

TEST(UpgradeTest, TrainingFormsAreRefusedOrCut) {
  const TestNode norm = {.op_type = "BatchNormalization",
                         .inputs = {"x", "y", "z", "y", "z"},
                         .outputs = {"out", "mean", "var"}};
  EXPECT_EQ(OnlyNode(Import(9, norm)->graph).outputs.size(), 1u);
  TestNode flat = norm;
  flat.attributes["spatial"] = int64_t{0};
  const absl::Status status = Import(7, flat).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "node 'n' (BatchNormalization, opset 7): spatial = 0 is not supported");
  EXPECT_EQ(Import(8, {.op_type = "Scan"}).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(UpgradeTest, AttributesOfTheWrongTypeAreRefused) {
  const absl::Status status =
      Import(12, {.op_type = "Squeeze", .attributes = {{"axes", 1.0f}}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "node 'n' (Squeeze, opset 12): attribute 'axes' has the wrong type");
}

}  // namespace
}  // namespace stampmill
