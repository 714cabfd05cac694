// What operators of com.microsoft become; that they compute the same is tested beside onnxruntime
// (tests/conversions).
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

using Names = std::vector<std::string>;

// A model of one node on inputs a, b, c, ... of rank 1.
absl::StatusOr<ImportedModel> Import(TestNode node) {
  if (node.outputs.empty()) node.outputs = {"out"};
  node.name = "n";
  node.domain = "com.microsoft";
  TestModel model = {.graph = {.nodes = {node}, .outputs = {node.outputs[0]}},
                     .opset = 17,
                     .opsets = {{"com.microsoft", 1}}};
  for (const std::string& name : node.inputs) {
    if (!name.empty()) model.graph.inputs.push_back({name, DType::kF32, {int64_t{4}}});
  }
  const auto bytes = std::make_shared<std::string>(MakeModel(model));
  return ImportOnnxBytes(AsBytes(*bytes), bytes);
}

Names OpsOf(TestNode node) {
  const auto model = Import(std::move(node));
  EXPECT_TRUE(model.ok()) << model.status();
  Names ops;
  if (!model.ok()) return ops;
  EXPECT_TRUE(model->graph.Verify().ok());
  EXPECT_EQ(model->graph.value(model->graph.outputs()[0]).name, "out");
  for (const NodeId id : model->graph.Order()) {
    EXPECT_EQ(model->graph.node(id).domain, "");
    ops.push_back(model->graph.node(id).op_type);
  }
  return ops;
}

absl::StatusCode Refusal(TestNode node) { return Import(std::move(node)).status().code(); }

TEST(MicrosoftTest, QuantisedFormsAreComputedInRealsBetweenRoundings) {
  const Names inputs = {"a", "b", "c", "d", "e", "f", "g", "h"};
  const Names five(inputs.begin(), inputs.begin() + 5);
  EXPECT_EQ(OpsOf({.op_type = "QLinearAdd", .inputs = inputs}),
            (Names{"DequantizeLinear", "DequantizeLinear", "Add", "QuantizeLinear"}));
  EXPECT_EQ(OpsOf({.op_type = "QLinearGlobalAveragePool", .inputs = five}),
            (Names{"DequantizeLinear", "GlobalAveragePool", "QuantizeLinear"}));
  EXPECT_EQ(
      OpsOf({.op_type = "QLinearSoftmax",
             .inputs = five,
             .attributes = {{"opset", int64_t{12}}, {"axis", int64_t{0}}}}),
      (Names{"DequantizeLinear", "Flatten", "Softmax", "Shape", "Reshape", "QuantizeLinear"}));
  EXPECT_EQ(
      OpsOf({.op_type = "QLinearConcat", .inputs = inputs, .attributes = {{"axis", int64_t{0}}}}),
      (Names{"DequantizeLinear", "DequantizeLinear", "Concat", "QuantizeLinear"}));
}

TEST(MicrosoftTest, ProductsOfBytesStayProductsOfBytes) {
  EXPECT_EQ(OpsOf({.op_type = "DynamicQuantizeMatMul", .inputs = {"a", "b", "c", "", "e"}}),
            (Names{"DynamicQuantizeLinear", "MatMulInteger", "Mul", "Cast", "Mul", "Add"}));
  EXPECT_EQ(OpsOf({.op_type = "QGemm",
                   .inputs = {"a", "b", "c", "d", "e", "f", "g"},
                   .attributes = {{"transB", int64_t{1}}}}),
            (Names{"Transpose", "MatMulInteger", "Add", "Mul", "Cast", "Mul"}));
}

TEST(MicrosoftTest, FusedFormsAreTheirParts) {
  EXPECT_EQ(OpsOf({.op_type = "FusedConv",
                   .inputs = {"a", "b"},
                   .attributes = {{"activation", std::string("Relu")}}}),
            (Names{"Conv", "Relu"}));
  EXPECT_EQ(OpsOf({.op_type = "FusedMatMul",
                   .inputs = {"a", "b"},
                   .attributes = {{"transB", int64_t{1}}, {"alpha", 0.5f}}}),
            (Names{"Einsum", "Mul"}));
  EXPECT_EQ(OpsOf({.op_type = "SkipLayerNormalization", .inputs = {"a", "b", "c"}}),
            (Names{"Add", "LayerNormalization"}));
}

TEST(MicrosoftTest, WhatCannotBeSaidIsRefused) {
  EXPECT_EQ(Refusal({.op_type = "QLinearAdd", .inputs = {"a", "b", "c", "d"}}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal({.op_type = "DynamicQuantizeLSTM", .inputs = {"a", "b", "c"}}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal({.op_type = "FusedConv",
                     .inputs = {"a", "b"},
                     .attributes = {{"activation", std::string("Mystery")}}}),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Refusal({.op_type = "FusedMatMul",
                     .inputs = {"a", "b"},
                     .attributes = {{"transBatchA", int64_t{1}}}}),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Refusal({.op_type = "QLinearAveragePool",
                     .inputs = {"a", "b", "c", "d", "e"},
                     .attributes = {{"channels_last", int64_t{1}}}}),
            absl::StatusCode::kUnimplemented);
  // An output that the rewriting does not make.
  EXPECT_EQ(Refusal({.op_type = "Gelu", .inputs = {"a"}, .outputs = {"out", "more"}}),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Refusal({.op_type = "SkipLayerNormalization",
                     .inputs = {"a", "b", "c"},
                     .outputs = {"out", "mean"}}),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace stampmill
