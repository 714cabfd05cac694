// The ONNX model file as data: what ModelProto holds, field by field, as views into the file's
// bytes. Nothing is interpreted here but the protobuf encoding: every length and nesting depth is
// checked, unknown fields are skipped. What the file means is the importer's affair.
//
// All string_views and spans point into the bytes that were read and live as long as they do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// Graphs within graphs (bodies of If, Loop, Scan).
inline constexpr int kOnnxGraphDepthMax = 32;

using OnnxStrings = std::vector<std::pair<absl::string_view, absl::string_view>>;

struct OnnxTensor {
  absl::string_view name;
  int32_t data_type = 0;  // TensorProto.DataType
  std::vector<int64_t> dims;
  std::optional<std::span<const std::byte>> raw;
  // Each *_data field in packed form, in pieces as they stand in the file.
  std::vector<std::span<const std::byte>> float_data, int32_data, int64_data, double_data,
      uint64_data;
  size_t string_count = 0;
  bool has_segment = false;
  bool is_external = false;
  OnnxStrings external;  // location, offset, length, ...
};

struct OnnxDim {
  std::optional<int64_t> value;
  absl::string_view param;  // empty when there is none
};

struct OnnxValueInfo {
  absl::string_view name;
  // What kind of value it is: "tensor", or "sequence", "map", "optional", "sparse tensor",
  // "opaque"; empty: not said.
  absl::string_view kind;
  int32_t elem_type = 0;
  std::optional<std::vector<OnnxDim>> shape;  // nullopt: rank not said
};

struct OnnxGraph;

struct OnnxAttribute {
  enum Type : int32_t {
    kUndefined = 0,
    kFloat = 1,
    kInt = 2,
    kString = 3,
    kTensor = 4,
    kGraph = 5,
    kFloats = 6,
    kInts = 7,
    kStrings = 8,
  };

  absl::string_view name;
  absl::string_view ref_name;  // within functions: the attribute of the call that it takes
  int32_t type = kUndefined;   // as in the file, or from the field that is there
  float f = 0;
  int64_t i = 0;
  absl::string_view s;  // any bytes
  std::optional<OnnxTensor> t;
  std::unique_ptr<OnnxGraph> g;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<absl::string_view> strings;
};

struct OnnxNode {
  absl::string_view name, op_type, domain, overload;
  std::vector<absl::string_view> inputs, outputs;
  std::vector<OnnxAttribute> attributes;
};

struct OnnxGraph {
  absl::string_view name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  size_t sparse_initializer_count = 0;
  std::vector<OnnxValueInfo> inputs, outputs, value_infos;
};

struct OnnxOpset {
  absl::string_view domain;
  int64_t version = 0;
};

struct OnnxFunction {
  absl::string_view name, domain, overload;
  std::vector<absl::string_view> inputs, outputs, attributes;
  std::vector<OnnxAttribute> attribute_defaults;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxOpset> opsets;
};

struct OnnxModel {
  int64_t ir_version = 0;
  absl::string_view producer_name, producer_version;
  std::vector<OnnxOpset> opsets;
  std::optional<OnnxGraph> graph;
  OnnxStrings metadata;
  std::vector<OnnxFunction> functions;
};

// INVALID_ARGUMENT says what is wrong, in which field and at which byte.
absl::StatusOr<OnnxModel> ReadOnnxModel(std::span<const std::byte> bytes);
// A TensorProto of its own: test data of the ONNX project.
absl::StatusOr<OnnxTensor> ReadOnnxTensor(std::span<const std::byte> bytes);

}  // namespace stampmill
