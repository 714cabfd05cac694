#include "compiler/onnx/testing/model_writer.h"

#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace stampmill {
namespace {

std::string ValueInfo(const TestInput& input) {
  ProtoWriter info;
  info.Bytes(1, input.name);
  if (input.dtype == DType::kInvalid) return info.bytes();
  ProtoWriter shape;
  for (const TestDim& dim : input.shape) {
    ProtoWriter one;
    if (const int64_t* size = std::get_if<int64_t>(&dim)) {
      one.Int(1, *size);
    } else if (!std::get<std::string>(dim).empty()) {
      one.Bytes(2, std::get<std::string>(dim));
    }
    shape.Bytes(1, one.bytes());
  }
  ProtoWriter tensor;
  tensor.Int(1, OnnxDataType(input.dtype)).Bytes(2, shape.bytes());
  return info.Bytes(2, ProtoWriter().Bytes(1, tensor.bytes()).bytes()).bytes();
}

struct AttributeWriter {
  ProtoWriter& out;

  void operator()(int64_t value) const { out.Int(3, value).Int(20, 2); }
  void operator()(float value) const { out.Float(2, value).Int(20, 1); }
  void operator()(const std::string& value) const { out.Bytes(4, value).Int(20, 3); }
  void operator()(const std::vector<int64_t>& values) const {
    for (const int64_t value : values) out.Int(8, value);
    out.Int(20, 7);
  }
  void operator()(const std::vector<float>& values) const {
    for (const float value : values) out.Float(7, value);
    out.Int(20, 6);
  }
  void operator()(const std::vector<std::string>& values) const {
    for (const std::string& value : values) out.Bytes(9, value);
    out.Int(20, 8);
  }
  void operator()(const Tensor& value) const {
    out.Bytes(5, MakeTensorProto("", value)).Int(20, 4);
  }
  void operator()(const std::vector<TestGraph>& value) const {
    CHECK_EQ(value.size(), 1u);
    out.Bytes(6, MakeGraph(value[0])).Int(20, 5);
  }
};

std::string MakeNode(const TestNode& node) {
  ProtoWriter out;
  for (const std::string& input : node.inputs) out.Bytes(1, input);
  for (const std::string& output : node.outputs) out.Bytes(2, output);
  out.Bytes(3, node.name).Bytes(4, node.op_type);
  for (const auto& [name, value] : node.attributes) {
    ProtoWriter attribute;
    attribute.Bytes(1, name);
    std::visit(AttributeWriter{attribute}, value);
    out.Bytes(5, attribute.bytes());
  }
  for (const auto& [name, reference] : node.references) {
    out.Bytes(5, ProtoWriter().Bytes(1, name).Bytes(21, reference).bytes());
  }
  if (!node.domain.empty()) out.Bytes(7, node.domain);
  return out.bytes();
}

std::string MakeOpset(absl::string_view domain, int64_t version) {
  return ProtoWriter().Bytes(1, domain).Int(2, version).bytes();
}

std::string MakeFunction(const TestFunction& function) {
  ProtoWriter out;
  out.Bytes(1, function.name);
  for (const std::string& input : function.inputs) out.Bytes(4, input);
  for (const std::string& output : function.outputs) out.Bytes(5, output);
  for (const std::string& attribute : function.attributes) out.Bytes(6, attribute);
  for (const TestNode& node : function.nodes) out.Bytes(7, MakeNode(node));
  out.Bytes(9, MakeOpset("", function.opset));
  out.Bytes(9, MakeOpset(function.domain, 1));
  return out.Bytes(10, function.domain).bytes();
}

}  // namespace

ProtoWriter& ProtoWriter::Int(int field, int64_t value) {
  ByteWriter out(&bytes_);
  out.Varint(static_cast<uint64_t>(field) << 3);
  out.Varint(static_cast<uint64_t>(value));
  return *this;
}

ProtoWriter& ProtoWriter::Float(int field, float value) {
  ByteWriter out(&bytes_);
  out.Varint(static_cast<uint64_t>(field) << 3 | 5);
  out.F32(value);
  return *this;
}

ProtoWriter& ProtoWriter::Bytes(int field, absl::string_view bytes) {
  ByteWriter out(&bytes_);
  out.Varint(static_cast<uint64_t>(field) << 3 | 2);
  out.Varint(bytes.size());
  out.Bytes(AsBytes(bytes));
  return *this;
}

std::string MakeTensorProto(absl::string_view name, const Tensor& tensor) {
  ProtoWriter out;
  for (const int64_t dim : tensor.shape()) out.Int(1, dim);
  out.Int(2, OnnxDataType(tensor.dtype())).Bytes(8, name);
  return out.Bytes(9, AsText(tensor.bytes())).bytes();
}

std::string MakeGraph(const TestGraph& graph) {
  ProtoWriter out;
  for (const TestNode& node : graph.nodes) out.Bytes(1, MakeNode(node));
  out.Bytes(2, graph.name);
  for (const auto& [name, tensor] : graph.initializers) {
    out.Bytes(5, MakeTensorProto(name, tensor));
  }
  for (const TestInput& input : graph.inputs) out.Bytes(11, ValueInfo(input));
  for (const std::string& output : graph.outputs) out.Bytes(12, ValueInfo({.name = output}));
  return out.bytes();
}

std::string MakeModel(const TestModel& model) {
  ProtoWriter out;
  out.Int(1, 8).Bytes(2, "stampmill test").Bytes(3, "1");
  out.Bytes(7, MakeGraph(model.graph)).Bytes(8, MakeOpset("", model.opset));
  for (const auto& [domain, version] : model.opsets) out.Bytes(8, MakeOpset(domain, version));
  for (const auto& [key, value] : model.metadata) {
    out.Bytes(14, ProtoWriter().Bytes(1, key).Bytes(2, value).bytes());
  }
  for (const TestFunction& function : model.functions) out.Bytes(25, MakeFunction(function));
  return out.bytes();
}

Tensor MakeTestTensor(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
  absl::StatusOr<Tensor> tensor = Tensor::Allocate(dtype, std::move(shape));
  CHECK_OK(tensor);
  CHECK_EQ(tensor->element_count(), static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    tensor->SetFromDouble(static_cast<int64_t>(i), values[i]);
  }
  return *std::move(tensor);
}

}  // namespace stampmill
