// Writes the seeds of onnx_fuzz: models that reach every message and every rule, small enough for a
// fuzzer to change. Run after adding one:
//
//   bazel run //compiler/onnx/testing:write_corpus -- $PWD/compiler/onnx/onnx_corpus
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "compiler/onnx/testing/model_writer.h"

namespace stampmill {
namespace {

using Ints = std::vector<int64_t>;

TestInput Input(const char* name) { return {name, DType::kF32, {"N", int64_t{4}}}; }

std::string OneNode(int64_t opset, TestNode node) {
  TestGraph graph = {.inputs = {Input("x"), Input("y"), Input("z")}};
  graph.outputs = {node.outputs[0]};
  graph.nodes = {std::move(node)};
  return MakeModel({.graph = graph, .opset = opset});
}

std::string Weights() {
  TestGraph graph = {.inputs = {Input("x")}, .outputs = {"y"}};
  graph.initializers = {{"w", MakeTestTensor(DType::kF32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
                        {"b", MakeTestTensor(DType::kBool, {2}, {1, 0})}};
  graph.nodes = {{.op_type = "MatMul", .inputs = {"x", "w"}, .outputs = {"m"}, .name = "mm"},
                 {.op_type = "Identity", .inputs = {"m"}, .outputs = {"i"}},
                 {.op_type = "Constant",
                  .outputs = {"c"},
                  .attributes = {{"value_floats", std::vector<float>{1, 2}}}},
                 {.op_type = "Where", .inputs = {"b", "i", "c"}, .outputs = {"y"}}};
  return MakeModel({.graph = graph, .metadata = {{"key", "value"}}});
}

std::string Bodies() {
  const TestGraph then_graph = {
      .nodes = {{.op_type = "Add", .inputs = {"x", "x"}, .outputs = {"t"}}}, .outputs = {"t"}};
  const TestGraph else_graph = {.outputs = {"x"}};
  TestGraph graph = {.inputs = {Input("x"), {"c", DType::kBool, {}}}, .outputs = {"y"}};
  graph.nodes = {{.op_type = "If",
                  .inputs = {"c"},
                  .outputs = {"y"},
                  .attributes = {{"then_branch", std::vector{then_graph}},
                                 {"else_branch", std::vector{else_graph}}}}};
  return MakeModel({.graph = graph});
}

std::string Functions() {
  TestGraph graph = {.inputs = {Input("x")}, .outputs = {"y"}};
  graph.nodes = {{.op_type = "F",
                  .inputs = {"x"},
                  .outputs = {"y"},
                  .attributes = {{"k", 2.0f}},
                  .domain = "f"}};
  return MakeModel(
      {.graph = graph,
       .opsets = {{"f", 1}},
       .functions = {
           {.domain = "f",
            .name = "F",
            .inputs = {"a"},
            .outputs = {"r"},
            .attributes = {"k"},
            .nodes = {
                {.op_type = "Constant", .outputs = {"c"}, .references = {{"value_float", "k"}}},
                {.op_type = "Mul", .inputs = {"a", "c"}, .outputs = {"r"}}}}}});
}

// Numbers in the typed fields instead of raw bytes.
std::string TypedData() {
  const std::string f32 =
      ProtoWriter().Int(1, 2).Int(2, 1).Float(4, 1).Float(4, 2).Bytes(8, "a").bytes();
  const std::string i32 = ProtoWriter().Int(1, 1).Int(2, 6).Int(5, -1).Bytes(8, "b").bytes();
  const std::string i64 = ProtoWriter().Int(2, 7).Int(7, 9).Bytes(8, "c").bytes();
  const std::string output = ProtoWriter().Bytes(1, "a").bytes();
  const std::string graph =
      ProtoWriter().Bytes(5, f32).Bytes(5, i32).Bytes(5, i64).Bytes(12, output).bytes();
  return ProtoWriter().Int(1, 8).Bytes(7, graph).Bytes(8, ProtoWriter().Int(2, 13).bytes()).bytes();
}

std::map<std::string, std::string> Seeds() {
  return {
      {"weights", Weights()},
      {"bodies", Bodies()},
      {"functions", Functions()},
      {"typed_data", TypedData()},
      {"clip", OneNode(9, {"Clip", {"x"}, {"o"}, {{"min", 0.0f}, {"max", 6.0f}}})},
      {"group_norm",
       OneNode(18, {"GroupNormalization", {"x", "y", "z"}, {"o"}, {{"num_groups", int64_t{2}}}})},
      {"pad", OneNode(10, {"Pad", {"x"}, {"o"}, {{"pads", Ints{0, 1, 0, 1}}, {"value", 1.0f}}})},
      {"slice", OneNode(9, {"Slice", {"x"}, {"o"}, {{"starts", Ints{0}}, {"ends", Ints{2}}}})},
      {"softmax", OneNode(9, {"Softmax", {"x"}, {"o"}, {{"axis", int64_t{0}}}})},
      {"split", OneNode(11, {"Split", {"x"}, {"o", "p"}, {{"split", Ints{1, 3}}}})},
      {"upsample", OneNode(7, {"Upsample", {"x"}, {"o"}, {{"scales", std::vector<float>{1, 2}}}})},
  };
}

}  // namespace
}  // namespace stampmill

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: write_corpus FOLDER\n");
    return 2;
  }
  for (const auto& [name, bytes] : stampmill::Seeds()) {
    CHECK_OK(
        stampmill::AtomicReplaceFile(absl::StrCat(argv[1], "/", name), stampmill::AsBytes(bytes)));
  }
  return 0;
}
