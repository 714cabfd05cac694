#include "compiler/onnx/importer.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "compiler/onnx/testing/model_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

absl::StatusOr<ImportedModel> ImportBytes(std::string bytes) {
  const auto owner = std::make_shared<std::string>(std::move(bytes));
  return ImportOnnxBytes(AsBytes(*owner), owner);
}

absl::StatusOr<ImportedModel> Import(const TestModel& model) {
  return ImportBytes(MakeModel(model));
}

TestInput Input(const char* name) { return {name, DType::kF32, {"N", int64_t{4}}}; }

TestGraph ReluGraph() {
  return {.inputs = {Input("x")},
          .nodes = {{.op_type = "Relu", .inputs = {"x"}, .outputs = {"y"}}},
          .outputs = {"y"}};
}

std::vector<std::string> Ops(const Graph& graph) {
  std::vector<std::string> ops;
  for (const NodeId id : graph.Order()) ops.push_back(graph.node(id).op_type);
  return ops;
}

// The message of the refusal that this model must get.
std::string Refused(const TestModel& model) {
  const absl::Status status = Import(model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ImporterTest, KeepsInterfaceAndFacts) {
  TestModel model = {.graph = ReluGraph(), .opsets = {{"com.microsoft", 1}}};
  model.metadata["character"] = "a\nb";
  const auto imported = Import(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  const Graph& graph = imported->graph;
  EXPECT_EQ(graph.name, "test");
  EXPECT_EQ(graph.producer, "stampmill test 1");
  EXPECT_EQ(graph.ir_version, 8);
  EXPECT_EQ(graph.opsets.at(""), 17);
  EXPECT_EQ(graph.opsets.at("com.microsoft"), 1);
  EXPECT_EQ(graph.metadata[0].second, "a\nb");
  EXPECT_EQ(graph.output_names(), (std::vector<std::string>{"y"}));
  const Value& x = graph.value(graph.inputs()[0]);
  EXPECT_EQ(x.name, "x");
  EXPECT_EQ(x.dtype, DType::kF32);
  EXPECT_EQ(ToString(*x.shape), "[N, 4]");
  EXPECT_EQ(graph.node(graph.Order()[0]).opset, 17);
  EXPECT_TRUE(graph.Verify().ok());
}

TEST(ImporterTest, DimsWithTheSameNameAreTheSameSymbol) {
  TestGraph graph = ReluGraph();
  graph.inputs = {{"x", DType::kF32, {"N", "", int64_t{-1}, "?", int64_t{0}}},
                  {"z", DType::kF32, {"?", "N", "?"}},
                  {"w", DType::kF32, {"x.1"}}};
  const auto imported = Import({.graph = graph});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto shape = [&](size_t i) {
    return ToString(*imported->graph.value(imported->graph.inputs()[i]).shape);
  };
  EXPECT_EQ(shape(0), "[N, x.1', x.2, x.3, 0]");
  EXPECT_EQ(shape(1), "[z.0, N, z.2]");
  EXPECT_EQ(shape(2), "[x.1]");
}

TEST(ImporterTest, InitialisersAreViewsAndHideInputsOfTheirName) {
  TestGraph graph = ReluGraph();
  graph.inputs.push_back(Input("w"));
  graph.nodes[0] = {.op_type = "Add", .inputs = {"x", "w"}, .outputs = {"y"}};
  graph.initializers = {{"w", MakeTestTensor(DType::kF32, {1, 4}, {1, 2, 3, 4})}};
  const auto owner = std::make_shared<std::string>(MakeModel({.graph = graph}));
  const auto imported = ImportOnnxBytes(AsBytes(*owner), owner);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->graph.inputs().size(), 1u);
  const Node& node = imported->graph.node(0);
  const Tensor& w = *imported->graph.value(node.inputs[1]).constant;
  EXPECT_EQ(w.ValueAsDouble(3), 4);
  const char* data = reinterpret_cast<const char*>(w.bytes().data());
  EXPECT_TRUE(data > owner->data() && data < owner->data() + owner->size());
}

TEST(ImporterTest, ConstantsOfEveryFormAndIdentitiesVanish) {
  TestGraph graph = ReluGraph();
  const auto constant = [](const char* attribute, TestAttribute value, const char* name) {
    return TestNode{
        .op_type = "Constant", .outputs = {name}, .attributes = {{attribute, std::move(value)}}};
  };
  graph.nodes = {constant("value", MakeTestTensor(DType::kI8, {2}, {5, 6}), "a"),
                 constant("value_int", int64_t{7}, "b"),
                 constant("value_ints", std::vector<int64_t>{8, 9}, "c"),
                 constant("value_float", 1.5f, "d"),
                 constant("value_floats", std::vector<float>{2.5f}, "e"),
                 {.op_type = "Identity", .inputs = {"x"}, .outputs = {"x2"}},
                 {.op_type = "Identity", .inputs = {"c"}, .outputs = {"c2"}},
                 {.op_type = "Stack",
                  .inputs = {"a", "b", "c2", "d", "e", "x2", "", "x"},
                  .outputs = {"y", "", "z"}},
                 {.op_type = "Identity", .inputs = {"x2"}, .outputs = {"same"}}};
  graph.outputs = {"y", "same"};
  const auto imported = Import({.graph = graph});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(Ops(imported->graph), (std::vector<std::string>{"Stack"}));
  const Node& node = imported->graph.node(0);
  const auto contents = [&](size_t i) { return *imported->graph.value(node.inputs[i]).constant; };
  EXPECT_EQ(contents(0).dtype(), DType::kI8);
  EXPECT_EQ(contents(1).ValueAsInt64(0), 7);
  EXPECT_EQ(contents(1).rank(), 0);
  EXPECT_EQ(contents(2).ValueAsInt64(1), 9);
  EXPECT_EQ(contents(3).ValueAsDouble(0), 1.5);
  EXPECT_EQ(contents(4).shape(), (std::vector<int64_t>{1}));
  EXPECT_EQ(node.inputs[5], imported->graph.inputs()[0]);
  EXPECT_EQ(node.inputs[6], kNoValue);
  EXPECT_EQ(node.outputs[1], kNoValue);
  EXPECT_EQ(imported->graph.outputs()[1], imported->graph.inputs()[0]);
}

TEST(ImporterTest, NodesInAnyOrderAreSorted) {
  TestGraph graph = ReluGraph();
  graph.nodes = {{.op_type = "Exp", .inputs = {"h"}, .outputs = {"y"}},
                 {.op_type = "Relu", .inputs = {"x"}, .outputs = {"h"}}};
  const auto imported = Import({.graph = graph});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(Ops(imported->graph), (std::vector<std::string>{"Relu", "Exp"}));
}

TEST(ImporterTest, BodiesTakeWhatTheyCaptureAsInputs) {
  const TestGraph then_graph = {
      .nodes = {{.op_type = "Add", .inputs = {"h", "w"}, .outputs = {"t"}}}, .outputs = {"t"}};
  // Captures x two levels up, and h directly as its result.
  const TestGraph inner = {.nodes = {{.op_type = "Mul", .inputs = {"x", "h"}, .outputs = {"i"}}},
                           .outputs = {"i"}};
  const TestGraph else_graph = {
      .nodes = {{.op_type = "If",
                 .inputs = {"c"},
                 .outputs = {"e"},
                 .attributes = {{"then_branch", std::vector{inner}},
                                {"else_branch", std::vector{TestGraph{.outputs = {"h"}}}}}}},
      .outputs = {"e"}};
  TestGraph graph = ReluGraph();
  graph.inputs.push_back({"c", DType::kBool, {}});
  graph.initializers = {{"w", MakeTestTensor(DType::kF32, {4}, {1, 2, 3, 4})}};
  graph.nodes = {{.op_type = "If",
                  .inputs = {"c"},
                  .outputs = {"y"},
                  .attributes = {{"then_branch", std::vector{then_graph}},
                                 {"else_branch", std::vector{else_graph}}}},
                 {.op_type = "Relu", .inputs = {"x"}, .outputs = {"h"}}};
  const auto imported = Import({.graph = graph});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const Graph& outer = imported->graph;
  EXPECT_EQ(Ops(outer), (std::vector<std::string>{"Relu", "If"}));
  const Node& node = outer.node(outer.Order()[1]);
  const auto body_of = [](const Node& n, const char* name) {
    return std::get<std::shared_ptr<const Graph>>(n.attributes.at(name));
  };
  const auto then_body = body_of(node, "then_branch");
  const auto else_body = body_of(node, "else_branch");
  ASSERT_EQ(node.inputs.size(), 4u);  // c; h, c, x in some order
  EXPECT_EQ(then_body->captures, 3);
  EXPECT_EQ(else_body->captures, 3);
  ASSERT_EQ(then_body->inputs().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const std::string& name = outer.value(node.inputs[i + 1]).name;
    EXPECT_EQ(then_body->value(then_body->inputs()[i]).name, name);
    EXPECT_EQ(else_body->value(else_body->inputs()[i]).name, name);
  }
  EXPECT_TRUE(then_body->value(then_body->node(0).inputs[1]).constant.has_value());
  EXPECT_TRUE(then_body->Verify().ok());
  EXPECT_TRUE(else_body->Verify().ok());
  const auto nested = body_of(else_body->node(0), "else_branch");
  EXPECT_EQ(nested->Order().size(), 0u);
  EXPECT_EQ(nested->value(nested->outputs()[0]).name, "h");
}

TEST(ImporterTest, AConstantWhoseAttributeHasAnotherTypeIsRefused) {
  for (const auto& [attribute, value] : std::vector<std::pair<const char*, TestAttribute>>{
           {"value", int64_t{1}},
           {"value_float", int64_t{1}},
           {"value_int", 1.5f},
           {"value_ints", int64_t{1}},
           {"value_floats", std::vector<int64_t>{1}}}) {
    TestGraph graph = ReluGraph();
    graph.nodes = {{.op_type = "Constant", .outputs = {"c"}, .attributes = {{attribute, value}}},
                   {.op_type = "Add", .inputs = {"x", "c"}, .outputs = {"y"}}};
    const auto imported = Import({.graph = graph});
    EXPECT_EQ(imported.status().code(), absl::StatusCode::kInvalidArgument) << attribute;
    EXPECT_THAT(imported.status().message(),
                testing::HasSubstr(absl::StrCat("attribute '", attribute, "': got type")));
  }
}

TEST(ImporterTest, FunctionsAreReplacedByWhatIsInThem) {
  const TestFunction scale = {
      .domain = "local",
      .name = "Scale",
      .inputs = {"a", "b"},
      .outputs = {"r"},
      .attributes = {"by"},
      .nodes = {{.op_type = "Constant", .outputs = {"k"}, .references = {{"value_float", "by"}}},
                {.op_type = "Mul", .inputs = {"a", "k"}, .outputs = {"r"}}}};
  const TestFunction twice = {
      .domain = "local",
      .name = "Twice",
      .inputs = {"a"},
      .outputs = {"r"},
      .attributes = {"factor"},
      .nodes = {{.op_type = "Scale",
                 .inputs = {"a"},
                 .outputs = {"h"},
                 .domain = "local",
                 .references = {{"by", "factor"}}},
                {.op_type = "Add", .inputs = {"h", "h"}, .outputs = {"r"}}}};
  TestGraph graph = ReluGraph();
  graph.nodes = {{.op_type = "Twice",
                  .inputs = {"x"},
                  .outputs = {"h"},
                  .attributes = {{"factor", 3.0f}},
                  .domain = "local"},
                 {.op_type = "Twice",
                  .inputs = {"h"},
                  .outputs = {"y"},
                  .attributes = {{"factor", 5.0f}},
                  .domain = "local"}};
  const auto imported =
      Import({.graph = graph, .opsets = {{"local", 1}}, .functions = {scale, twice}});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(Ops(imported->graph), (std::vector<std::string>{"Mul", "Add", "Mul", "Add"}));
  const Node& second = imported->graph.node(2);
  EXPECT_EQ(imported->graph.value(second.inputs[1]).constant->ValueAsDouble(0), 5);
}

TEST(ImporterTest, FunctionsThatCallThemselvesAreRefused) {
  const TestFunction loop = {
      .domain = "local",
      .name = "F",
      .inputs = {"a"},
      .outputs = {"r"},
      .nodes = {{.op_type = "F", .inputs = {"a"}, .outputs = {"r"}, .domain = "local"}}};
  TestGraph graph = ReluGraph();
  graph.nodes[0] = {.op_type = "F", .inputs = {"x"}, .outputs = {"y"}, .domain = "local"};
  Refused({.graph = graph, .opsets = {{"local", 1}}, .functions = {loop}});
  // Each calls the one before it twice: 2^31 nodes in all.
  TestModel bomb = {.graph = graph, .opsets = {{"local", 1}}};
  bomb.graph.nodes[0].op_type = "F31";
  bomb.functions.push_back({.domain = "local",
                            .name = "F0",
                            .inputs = {"a"},
                            .outputs = {"r"},
                            .nodes = {{.op_type = "Relu", .inputs = {"a"}, .outputs = {"r"}}}});
  for (int i = 1; i < 32; ++i) {
    const std::string inner = absl::StrCat("F", i - 1);
    bomb.functions.push_back(
        {.domain = "local",
         .name = absl::StrCat("F", i),
         .inputs = {"a"},
         .outputs = {"r"},
         .nodes = {{.op_type = inner, .inputs = {"a"}, .outputs = {"h"}, .domain = "local"},
                   {.op_type = inner, .inputs = {"h"}, .outputs = {"r"}, .domain = "local"}}});
  }
  Refused(bomb);
}

TEST(ImporterTest, WrongNamesAreRefusedWithTheNode) {
  TestGraph graph = ReluGraph();
  graph.nodes[0].inputs = {"absent"};
  EXPECT_EQ(Refused({.graph = graph}),
            "node 0 '' (Relu): value 'absent' is made by no node and is no input or initialiser");
  graph = ReluGraph();
  graph.nodes[0].outputs = {"x"};
  Refused({.graph = graph});
  graph = ReluGraph();
  graph.nodes.push_back(graph.nodes[0]);
  EXPECT_EQ(Refused({.graph = graph}), "node 1 '' (Relu): output 'y' is made a second time");
  graph = ReluGraph();
  graph.outputs = {"absent"};
  Refused({.graph = graph});
  graph.outputs = {"y", "y"};
  Refused({.graph = graph});
  graph.outputs = {};
  Refused({.graph = graph});
  graph = ReluGraph();
  graph.inputs.push_back(Input("x"));
  Refused({.graph = graph});
  graph = ReluGraph();
  graph.initializers = {{"w", MakeTestTensor(DType::kI8, {}, {1})},
                        {"w", MakeTestTensor(DType::kI8, {}, {1})}};
  Refused({.graph = graph});
  graph = ReluGraph();
  graph.nodes = {{.op_type = "Relu", .inputs = {"b"}, .outputs = {"a"}},
                 {.op_type = "Relu", .inputs = {"a"}, .outputs = {"b"}},
                 {.op_type = "Relu", .inputs = {"b"}, .outputs = {"y"}}};
  const std::string cycle = Refused({.graph = graph});
  EXPECT_NE(cycle.find("(a cycle)"), std::string::npos) << cycle;
}

TEST(ImporterTest, WrongDimsAreRefused) {
  TestGraph graph = ReluGraph();
  graph.inputs[0].shape = {int64_t{-7}};
  EXPECT_EQ(Refused({.graph = graph}), "input 'x': dim 0 is -7");
  graph.inputs[0].shape = std::vector<TestDim>(33, int64_t{1});
  Refused({.graph = graph});
  graph.inputs[0].shape = {std::string(300, 'n')};
  Refused({.graph = graph});
}

TEST(ImporterTest, WhatIsNotSupportedIsNamed) {
  for (const int64_t opset : {6, 29}) {
    const absl::Status status = Import({.graph = ReluGraph(), .opset = opset}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(status.message(), absl::StrCat("opset ", opset, " of ai.onnx: limit 7 to 28"));
  }
  TestGraph graph = ReluGraph();
  graph.inputs[0].dtype = DType::kInvalid;
  EXPECT_EQ(Refused({.graph = graph}), "input 'x': no type");

  const auto with_type = [](const std::string& type) {
    const std::string input = ProtoWriter().Bytes(1, "x").Bytes(2, type).bytes();
    const std::string proto = ProtoWriter().Bytes(11, input).bytes();
    const std::string opset = ProtoWriter().Int(2, 17).bytes();
    return ImportBytes(ProtoWriter().Bytes(7, proto).Bytes(8, opset).bytes()).status();
  };
  EXPECT_EQ(with_type(ProtoWriter().Bytes(4, "").bytes()).message(),
            "input 'x': a sequence is not supported");
  const std::string text = ProtoWriter().Int(1, 8).bytes();
  EXPECT_EQ(with_type(ProtoWriter().Bytes(1, text).bytes()).message(),
            "input 'x': element type string is not supported");
  const std::string rankless = ProtoWriter().Int(1, 1).bytes();
  EXPECT_EQ(with_type(ProtoWriter().Bytes(1, rankless).bytes()).message(),
            "input 'x': a tensor of unknown rank is not supported");
}

TEST(ImporterTest, OutputsThatAreNoTensorsAreNamed) {
  const auto with_output = [](const std::string& type) {
    // A map from i64 to floats, as classifiers give one for each row.
    const std::string relu = ProtoWriter().Bytes(1, "x").Bytes(2, "y").Bytes(4, "Relu").bytes();
    const std::string dim = ProtoWriter().Bytes(1, ProtoWriter().Int(1, 4).bytes()).bytes();
    const std::string tensor = ProtoWriter().Int(1, 1).Bytes(2, dim).bytes();
    const std::string given = ProtoWriter().Bytes(1, tensor).bytes();
    const std::string graph = ProtoWriter()
                                  .Bytes(1, relu)
                                  .Bytes(11, ProtoWriter().Bytes(1, "x").Bytes(2, given).bytes())
                                  .Bytes(12, ProtoWriter().Bytes(1, "y").Bytes(2, type).bytes())
                                  .bytes();
    const std::string opset = ProtoWriter().Int(2, 17).bytes();
    return ImportBytes(ProtoWriter().Bytes(7, graph).Bytes(8, opset).bytes()).status();
  };
  const std::string number = ProtoWriter().Bytes(1, ProtoWriter().Int(1, 1).bytes()).bytes();
  const std::string map =
      ProtoWriter().Bytes(5, ProtoWriter().Int(1, 7).Bytes(2, number).bytes()).bytes();
  const std::string maps = ProtoWriter().Bytes(4, ProtoWriter().Bytes(1, map).bytes()).bytes();
  EXPECT_TRUE(with_output(number).ok()) << with_output(number);
  for (const auto& [type, kind] : {std::pair(maps, "sequence"), {map, "map"}}) {
    const absl::Status status = with_output(type);
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_EQ(status.message(), absl::StrCat("output 'y': a ", kind, " is not supported"));
  }
}

TEST(ImporterTest, GraphsNestedTooDeepAreRefused) {
  std::string graph = ProtoWriter().bytes();
  for (int i = 0; i < 40; ++i) {
    const std::string attribute = ProtoWriter().Bytes(1, "body").Bytes(6, graph).bytes();
    graph = ProtoWriter().Bytes(1, ProtoWriter().Bytes(5, attribute).bytes()).bytes();
  }
  const absl::Status status = ImportBytes(ProtoWriter().Bytes(7, graph).bytes()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("nested deeper than 32"), absl::string_view::npos) << status;
}

TEST(ImporterTest, UnknownFieldsAreSkipped) {
  std::string bytes = MakeModel({.graph = ReluGraph()});
  bytes += ProtoWriter().Int(1000, 5).Bytes(2000, "future").Float(3000, 1).bytes();
  EXPECT_TRUE(ImportBytes(bytes).ok());
}

TEST(ImporterTest, TruncatedAndDamagedFilesAreRefusedOrSound) {
  TestGraph graph = ReluGraph();
  graph.initializers = {{"w", MakeTestTensor(DType::kI8, {3}, {1, 2, 3})}};
  graph.nodes.push_back({.op_type = "If",
                         .inputs = {"x"},
                         .outputs = {"z"},
                         .attributes = {{"then_branch", std::vector{ReluGraph()}}}});
  const std::string bytes = MakeModel({.graph = graph, .metadata = {{"a", "b"}}});
  ASSERT_TRUE(ImportBytes(bytes).ok());
  const auto allowed = [](const absl::StatusOr<ImportedModel>& model) {
    if (model.ok()) return model->graph.Verify().ok();
    return absl::IsInvalidArgument(model.status()) || absl::IsUnimplemented(model.status());
  };
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(allowed(ImportBytes(bytes.substr(0, size)))) << size;
  }
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = bytes;
    for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    EXPECT_TRUE(allowed(ImportBytes(damaged))) << i;
  }
  const auto message = [](const std::string& file) {
    return std::string(ImportBytes(file).status().message());
  };
  EXPECT_NE(message("").find("not an ONNX model"), std::string::npos);
  EXPECT_NE(message("#!/bin/sh\necho not a model\n").find("not an ONNX model"), std::string::npos);
  EXPECT_NE(message(bytes.substr(0, bytes.size() - 9)).find("cut short"), std::string::npos);
}

TEST(ImporterTest, FilesAreMappedAndExternalFilesListed) {
  const char* base = getenv("TEST_TMPDIR");
  std::string folder = absl::StrCat(base == nullptr ? "/tmp" : base, "/importer.XXXXXX");
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(AtomicReplaceFile(absl::StrCat(folder, "/w.bin"), AsBytes("12345678")).ok());
  const std::string location = ProtoWriter().Bytes(1, "location").Bytes(2, "w.bin").bytes();
  const std::string tensor =
      ProtoWriter().Int(1, 8).Int(2, 3).Bytes(8, "w").Bytes(13, location).Int(14, 1).bytes();
  const std::string graph =
      ProtoWriter().Bytes(5, tensor).Bytes(12, ProtoWriter().Bytes(1, "w").bytes()).bytes();
  const std::string opset = ProtoWriter().Int(2, 17).bytes();
  const std::string model = ProtoWriter().Bytes(7, graph).Bytes(8, opset).bytes();
  const std::string path = absl::StrCat(folder, "/model.onnx");
  ASSERT_TRUE(AtomicReplaceFile(path, AsBytes(model)).ok());
  const auto imported = ImportOnnx(path);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->external_files, (std::vector<std::string>{"w.bin"}));
  EXPECT_EQ(imported->graph.value(imported->graph.outputs()[0]).constant->ValueAsInt64(0), '1');
  EXPECT_EQ(ImportOnnx(absl::StrCat(folder, "/absent.onnx")).status().code(),
            absl::StatusCode::kNotFound);
}

// A file of which only the ends are written; the weights between are a hole.
TEST(ImporterTest, FilesAndTensorsPastTwoGibibytesAreRead) {
  constexpr uint64_t kSize = (uint64_t{1} << 31) + 4096;
  const auto length = [](int field, uint64_t size) {
    std::string head;
    ByteWriter out(&head);
    out.Varint(static_cast<uint64_t>(field) << 3 | 2);
    out.Varint(size);
    return head;
  };
  const std::string tensor = ProtoWriter().Int(1, kSize).Int(2, 2).Bytes(8, "w").bytes();
  const std::string raw = length(9, kSize);
  const uint64_t tensor_size = tensor.size() + raw.size() + kSize;
  const std::string initializer = length(5, tensor_size);
  const std::string output = ProtoWriter().Bytes(12, ProtoWriter().Bytes(1, "w").bytes()).bytes();
  const std::string head = absl::StrCat(length(7, initializer.size() + tensor_size + output.size()),
                                        initializer, tensor, raw);
  const std::string tail =
      output + ProtoWriter().Bytes(8, ProtoWriter().Int(2, 17).bytes()).bytes();
  const absl::StatusOr<FileDescriptor> fd = CreateMemfd("model", head.size() + kSize + tail.size());
  ASSERT_TRUE(fd.ok()) << fd.status();
  const auto write_at = [&fd](const std::string& bytes, uint64_t offset) {
    return pwrite(fd->get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(bytes.size());
  };
  ASSERT_TRUE(write_at(head, 0) && write_at(tail, head.size() + kSize));
  const auto imported = ImportOnnx(absl::StrCat("/proc/self/fd/", fd->get()));
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->graph.value(imported->graph.outputs()[0]).constant->bytes().size(), kSize);
}

}  // namespace
}  // namespace stampmill
