// Writes small ONNX models for tests, in memory, field by field: what a test needs to say of a
// model and no more.
//
//   const std::string bytes = MakeModel({.graph = {
//       .inputs = {{"x", DType::kF32, {"N", 4}}},
//       .nodes = {{.op_type = "Relu", .inputs = {"x"}, .outputs = {"y"}}},
//       .outputs = {"y"}}});
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "graph/dtype.h"
#include "graph/tensor.h"

namespace stampmill {

// The wire format itself, for models that no exporter would write.
class ProtoWriter {
 public:
  ProtoWriter& Int(int field, int64_t value);
  ProtoWriter& Float(int field, float value);
  ProtoWriter& Bytes(int field, absl::string_view bytes);  // strings and messages too
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

struct TestGraph;

using TestAttribute =
    std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                 std::vector<std::string>, Tensor, std::vector<TestGraph>>;  // one graph

struct TestNode {
  std::string op_type;
  std::vector<std::string> inputs;  // "": left out
  std::vector<std::string> outputs;
  std::map<std::string, TestAttribute> attributes = {};
  std::string name = {};
  std::string domain = {};
  // Within functions: attribute of the node, attribute of the call.
  std::map<std::string, std::string> references = {};
};

using TestDim = std::variant<int64_t, std::string>;  // "": neither name nor size

struct TestInput {
  std::string name;
  DType dtype = DType::kInvalid;  // kInvalid: the file says nothing of its type
  std::vector<TestDim> shape = {};
};

struct TestGraph {
  std::vector<TestInput> inputs = {};
  std::vector<TestNode> nodes = {};
  std::vector<std::pair<std::string, Tensor>> initializers = {};
  std::vector<std::string> outputs = {};
  std::string name = "test";
};

struct TestFunction {
  std::string domain, name;
  std::vector<std::string> inputs, outputs, attributes;
  std::vector<TestNode> nodes;
  int64_t opset = 17;
};

struct TestModel {
  TestGraph graph;
  int64_t opset = 17;                          // of the default domain
  std::map<std::string, int64_t> opsets = {};  // of others
  std::vector<TestFunction> functions = {};
  std::map<std::string, std::string> metadata = {};
};

std::string MakeModel(const TestModel& model);
std::string MakeGraph(const TestGraph& graph);  // a GraphProto
std::string MakeTensorProto(absl::string_view name, const Tensor& tensor);

// A tensor of any type from numbers; as many as the shape has elements (CHECK).
Tensor MakeTestTensor(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values);

}  // namespace stampmill
