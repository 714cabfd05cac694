// One function a message: a loop over its fields with a switch on the numbers of onnx.proto.
// Repeated scalar fields may come packed or not, singular fields more than once (the last counts),
// as protobuf has it.
#include "compiler/onnx/reader.h"

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "compiler/onnx/wire_reader.h"

namespace stampmill {
namespace {

using Type = WireReader::Type;

void AppendInts(WireReader& in, std::vector<int64_t>& values) {
  const bool whole = ForEachVarint(in.Packed(Type::kVarint), [&values](uint64_t value) {
    values.push_back(static_cast<int64_t>(value));
    return true;
  });
  if (!whole) in.Fail(absl::StrCat("field ", in.field(), ": damaged varint"));
}

void AppendFloats(WireReader& in, std::vector<float>& values) {
  const std::span<const std::byte> packed = in.Packed(Type::kFixed32);
  if (packed.size() % sizeof(float) != 0) {
    in.Fail(absl::StrCat("field ", in.field(), ": ", packed.size(), " bytes of floats"));
    return;
  }
  const size_t old_size = values.size();
  values.resize(old_size + packed.size() / sizeof(float));
  if (!packed.empty()) memcpy(values.data() + old_size, packed.data(), packed.size());
}

absl::Status ReadStringPair(WireReader in, OnnxStrings& pairs) {
  std::pair<absl::string_view, absl::string_view> pair;
  while (in.Next()) {
    if (in.field() == 1) pair.first = AsText(in.Bytes());
    if (in.field() == 2) pair.second = AsText(in.Bytes());
  }
  pairs.push_back(pair);
  return in.status();
}

absl::Status ReadTensor(WireReader in, OnnxTensor& tensor) {
  while (in.Next()) {
    switch (in.field()) {
      case 1:
        AppendInts(in, tensor.dims);
        break;
      case 2:
        tensor.data_type = static_cast<int32_t>(in.Int());
        break;
      case 3:
        tensor.has_segment = true;
        break;
      case 4:
        tensor.float_data.push_back(in.Packed(Type::kFixed32));
        break;
      case 5:
        tensor.int32_data.push_back(in.Packed(Type::kVarint));
        break;
      case 6:
        ++tensor.string_count;
        break;
      case 7:
        tensor.int64_data.push_back(in.Packed(Type::kVarint));
        break;
      case 8:
        tensor.name = in.Text();
        break;
      case 9:
        tensor.raw = in.Bytes();
        break;
      case 10:
        tensor.double_data.push_back(in.Packed(Type::kFixed64));
        break;
      case 11:
        tensor.uint64_data.push_back(in.Packed(Type::kVarint));
        break;
      case 13:
        in.Adopt(ReadStringPair(WireReader(in, "external_data"), tensor.external));
        break;
      case 14:
        tensor.is_external = in.Int() == 1;
        break;
      default:
        break;
    }
  }
  return in.status();
}

absl::Status ReadDim(WireReader in, OnnxDim& dim) {
  while (in.Next()) {
    if (in.field() == 1) dim = {.value = in.Int(), .param = {}};
    if (in.field() == 2) dim = {.value = std::nullopt, .param = in.Text()};
  }
  return in.status();
}

absl::Status ReadShape(WireReader in, std::vector<OnnxDim>& shape) {
  while (in.Next()) {
    if (in.field() != 1) continue;
    OnnxDim dim;
    in.Adopt(ReadDim(WireReader(in, "dim", static_cast<int64_t>(shape.size())), dim));
    shape.push_back(dim);
  }
  return in.status();
}

absl::Status ReadTensorType(WireReader in, OnnxValueInfo& info) {
  while (in.Next()) {
    if (in.field() == 1) info.elem_type = static_cast<int32_t>(in.Int());
    if (in.field() == 2) {
      info.shape.emplace();
      in.Adopt(ReadShape(WireReader(in, "shape"), *info.shape));
    }
  }
  return in.status();
}

absl::Status ReadTypeProto(WireReader in, OnnxValueInfo& info) {
  while (in.Next()) {
    switch (in.field()) {
      case 1:
        info.kind = "tensor";
        in.Adopt(ReadTensorType(WireReader(in, "tensor_type"), info));
        break;
      case 4:
        info.kind = "sequence";
        break;
      case 5:
        info.kind = "map";
        break;
      case 7:
        info.kind = "opaque";
        break;
      case 8:
        info.kind = "sparse tensor";
        break;
      case 9:
        info.kind = "optional";
        break;
      default:
        break;
    }
  }
  return in.status();
}

absl::Status ReadValueInfo(WireReader in, OnnxValueInfo& info) {
  while (in.Next()) {
    if (in.field() == 1) info.name = in.Text();
    if (in.field() == 2) in.Adopt(ReadTypeProto(WireReader(in, "type"), info));
  }
  return in.status();
}

absl::Status ReadGraph(WireReader in, int depth, OnnxGraph& graph);

// For files older than the `type` field.
int32_t TypeOfFields(const OnnxAttribute& attribute, int32_t scalar) {
  if (attribute.t.has_value()) return OnnxAttribute::kTensor;
  if (attribute.g != nullptr) return OnnxAttribute::kGraph;
  if (!attribute.ints.empty()) return OnnxAttribute::kInts;
  if (!attribute.floats.empty()) return OnnxAttribute::kFloats;
  if (!attribute.strings.empty()) return OnnxAttribute::kStrings;
  return scalar;
}

absl::Status ReadAttribute(WireReader in, int depth, OnnxAttribute& attribute) {
  int32_t scalar = OnnxAttribute::kUndefined;
  while (in.Next()) {
    switch (in.field()) {
      case 1:
        attribute.name = in.Text();
        break;
      case 2:
        attribute.f = in.Float();
        scalar = OnnxAttribute::kFloat;
        break;
      case 3:
        attribute.i = in.Int();
        scalar = OnnxAttribute::kInt;
        break;
      case 4:
        attribute.s = AsText(in.Bytes());
        scalar = OnnxAttribute::kString;
        break;
      case 5:
        in.Adopt(ReadTensor(WireReader(in, "t"), attribute.t.emplace()));
        break;
      case 6:
        attribute.g = std::make_unique<OnnxGraph>();
        in.Adopt(ReadGraph(WireReader(in, "g"), depth + 1, *attribute.g));
        break;
      case 7:
        AppendFloats(in, attribute.floats);
        break;
      case 8:
        AppendInts(in, attribute.ints);
        break;
      case 9:
        attribute.strings.push_back(AsText(in.Bytes()));
        break;
      case 20:
        attribute.type = static_cast<int32_t>(in.Int());
        break;
      case 21:
        attribute.ref_name = in.Text();
        break;
      default:
        break;
    }
  }
  if (attribute.type == OnnxAttribute::kUndefined) attribute.type = TypeOfFields(attribute, scalar);
  return in.status();
}

absl::Status ReadNode(WireReader in, int depth, OnnxNode& node) {
  while (in.Next()) {
    switch (in.field()) {
      case 1:
        node.inputs.push_back(in.Text());
        break;
      case 2:
        node.outputs.push_back(in.Text());
        break;
      case 3:
        node.name = in.Text();
        break;
      case 4:
        node.op_type = in.Text();
        break;
      case 5: {
        const int64_t index = static_cast<int64_t>(node.attributes.size());
        in.Adopt(ReadAttribute(WireReader(in, "attribute", index), depth,
                               node.attributes.emplace_back()));
        break;
      }
      case 7:
        node.domain = in.Text();
        break;
      case 8:
        node.overload = in.Text();
        break;
      default:
        break;
    }
  }
  return in.status();
}

// The next message of a repeated field.
template <typename Message, typename Read>
void Append(WireReader& in, absl::string_view name, std::vector<Message>& messages, Read read) {
  const int64_t index = static_cast<int64_t>(messages.size());
  in.Adopt(read(WireReader(in, name, index), messages.emplace_back()));
}

auto NodeReaderAt(int depth) {
  return [depth](WireReader in, OnnxNode& node) { return ReadNode(in, depth, node); };
}

absl::Status ReadGraph(WireReader in, int depth, OnnxGraph& graph) {
  if (depth > kOnnxGraphDepthMax) {
    in.Fail(absl::StrCat("graphs nested deeper than ", kOnnxGraphDepthMax));
    return in.status();
  }
  while (in.Next()) {
    switch (in.field()) {
      case 1:
        Append(in, "node", graph.nodes, NodeReaderAt(depth));
        break;
      case 2:
        graph.name = in.Text();
        break;
      case 5:
        Append(in, "initializer", graph.initializers, ReadTensor);
        break;
      case 11:
        Append(in, "input", graph.inputs, ReadValueInfo);
        break;
      case 12:
        Append(in, "output", graph.outputs, ReadValueInfo);
        break;
      case 13:
        Append(in, "value_info", graph.value_infos, ReadValueInfo);
        break;
      case 15:
        ++graph.sparse_initializer_count;
        break;
      default:
        break;
    }
  }
  return in.status();
}

absl::Status ReadOpset(WireReader in, OnnxOpset& opset) {
  while (in.Next()) {
    if (in.field() == 1) opset.domain = in.Text();
    if (in.field() == 2) opset.version = in.Int();
  }
  return in.status();
}

absl::Status ReadFunction(WireReader in, OnnxFunction& function) {
  const auto read_attribute = [](WireReader from, OnnxAttribute& attribute) {
    return ReadAttribute(from, 0, attribute);
  };
  while (in.Next()) {
    switch (in.field()) {
      case 1:
        function.name = in.Text();
        break;
      case 4:
        function.inputs.push_back(in.Text());
        break;
      case 5:
        function.outputs.push_back(in.Text());
        break;
      case 6:
        function.attributes.push_back(in.Text());
        break;
      case 7:
        Append(in, "node", function.nodes, NodeReaderAt(0));
        break;
      case 9:
        Append(in, "opset_import", function.opsets, ReadOpset);
        break;
      case 10:
        function.domain = in.Text();
        break;
      case 11:
        Append(in, "attribute_proto", function.attribute_defaults, read_attribute);
        break;
      case 13:
        function.overload = in.Text();
        break;
      default:
        break;
    }
  }
  return in.status();
}

absl::Status ReadModel(WireReader in, OnnxModel& model) {
  while (in.Next()) {
    switch (in.field()) {
      case 1:
        model.ir_version = in.Int();
        break;
      case 2:
        model.producer_name = in.Text();
        break;
      case 3:
        model.producer_version = in.Text();
        break;
      case 7:
        if (model.graph.has_value()) in.Fail("a second graph");
        in.Adopt(ReadGraph(WireReader(in, "graph"), 0, model.graph.emplace()));
        break;
      case 8:
        Append(in, "opset_import", model.opsets, ReadOpset);
        break;
      case 14:
        in.Adopt(ReadStringPair(WireReader(in, "metadata_props"), model.metadata));
        break;
      case 25:
        Append(in, "functions", model.functions, ReadFunction);
        break;
      default:
        break;
    }
  }
  return in.status();
}

}  // namespace

absl::StatusOr<OnnxModel> ReadOnnxModel(std::span<const std::byte> bytes) {
  OnnxModel model;
  const absl::Status status = ReadModel(WireReader(bytes, "model"), model);
  if (status.ok()) return model;
  // Whoever writes a model begins with its version.
  if (model.ir_version != 0 || model.graph.has_value()) return status;
  return absl::Status(status.code(), absl::StrCat("not an ONNX model: ", status.message()));
}

absl::StatusOr<OnnxTensor> ReadOnnxTensor(std::span<const std::byte> bytes) {
  OnnxTensor tensor;
  RETURN_IF_ERROR(ReadTensor(WireReader(bytes, "tensor"), tensor));
  return tensor;
}

}  // namespace stampmill
