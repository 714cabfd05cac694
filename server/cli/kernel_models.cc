#include "server/cli/kernel_models.h"

#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/check.h"

namespace stampmill {
namespace {

// Protobuf's wire format, as much of it as these models need.
class ProtoWriter {
 public:
  void Int(uint32_t field, uint64_t value) {
    writer_.Varint(uint64_t{field} << 3);
    writer_.Varint(value);
  }
  void Bytes(uint32_t field, absl::string_view bytes) {
    writer_.Varint(uint64_t{field} << 3 | 2);
    writer_.Varint(bytes.size());
    writer_.Bytes(AsBytes(bytes));
  }
  std::string Finish() { return std::move(bytes_); }

 private:
  std::string bytes_;
  ByteWriter writer_{&bytes_};
};

std::string ValueInfo(const KernelModelTensor& tensor) {
  ProtoWriter shape;
  for (const int64_t size : tensor.shape) {
    ProtoWriter dim;
    dim.Int(1, static_cast<uint64_t>(size));
    shape.Bytes(1, dim.Finish());
  }
  ProtoWriter tensor_type;
  tensor_type.Int(1, static_cast<uint64_t>(OnnxDataType(tensor.dtype)));
  tensor_type.Bytes(2, shape.Finish());
  ProtoWriter type;
  type.Bytes(1, tensor_type.Finish());
  ProtoWriter info;
  info.Bytes(1, tensor.name);
  info.Bytes(2, type.Finish());
  return info.Finish();
}

std::string Initializer(const KernelModelTensor& tensor, std::mt19937_64& random) {
  ProtoWriter out;
  size_t count = 1;
  for (const int64_t size : tensor.shape) {
    out.Int(1, static_cast<uint64_t>(size));
    count *= static_cast<size_t>(size);
  }
  out.Int(2, static_cast<uint64_t>(OnnxDataType(tensor.dtype)));
  out.Bytes(8, tensor.name);
  if (tensor.dtype == DType::kU8) {  // blocks; no f16 in them is infinite
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() & 0x3f);
    out.Bytes(9, bytes);
    return out.Finish();
  }
  CHECK(tensor.dtype == DType::kF32);
  std::string raw(count * sizeof(float), '\0');
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(random() >> 40) * 0x1p-23f - 1;
    memcpy(raw.data() + i * sizeof(float), &value, sizeof(float));
  }
  out.Bytes(9, raw);
  return out.Finish();
}

// "name=i:5" (an integer), "name=is:1,2" (integers) or "name=s:text".
std::string Attribute(absl::string_view text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::pair<std::string, std::string> value =
      absl::StrSplit(parts.second, absl::MaxSplits(':', 1));
  constexpr uint64_t kInt = 2, kInts = 7;
  ProtoWriter out;
  out.Bytes(1, parts.first);
  if (value.first == "s") {
    constexpr uint64_t kString = 3;
    out.Bytes(4, value.second);
    out.Int(20, kString);
    return out.Finish();
  }
  for (const absl::string_view number : absl::StrSplit(value.second, ',')) {
    int64_t integer = 0;
    CHECK(absl::SimpleAtoi(number, &integer));
    out.Int(value.first == "i" ? 3 : 8, static_cast<uint64_t>(integer));
  }
  out.Int(20, value.first == "i" ? kInt : kInts);
  return out.Finish();
}

std::string Node(absl::string_view op_type, const std::vector<std::string>& inputs,
                 absl::string_view output, const std::vector<std::string>& attributes,
                 absl::string_view domain = "") {
  ProtoWriter node;
  for (const std::string& input : inputs) node.Bytes(1, input);
  node.Bytes(2, output);
  node.Bytes(4, op_type);
  for (const std::string& attribute : attributes) node.Bytes(5, Attribute(attribute));
  if (!domain.empty()) node.Bytes(7, domain);
  return node.Finish();
}

KernelModelTensor F32(std::string name, std::vector<int64_t> shape) {
  return {.name = std::move(name), .dtype = DType::kF32, .shape = std::move(shape)};
}

KernelModel MatMul(int64_t m, int64_t n, int64_t k) {
  const double a = static_cast<double>(m), b = static_cast<double>(n), c = static_cast<double>(k);
  return {.name = absl::StrCat("matmul ", m, "x", n, "x", k),
          .op_type = "MatMul",
          .inputs = {F32("x", {m, k})},
          .weights = {F32("w", {k, n})},
          .flops = 2 * a * b * c,
          .bytes = 4 * (a * c + c * b + a * b)};
}

// x[m, k] by the rows of w[n, k].
KernelModel BlockMatMul(BlockFormat format, int64_t m, int64_t n, int64_t k) {
  const BlockFacts& facts = FactsOf(format);
  const int64_t row_bytes = k / facts.elements * facts.bytes;
  const double products = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return {.name = absl::StrCat("blocks ", facts.name, " ", m, "x", n, "x", k),
          .op_type = "Gemm",
          .inputs = {F32("x", {m, k})},
          .weights = {{.name = "w", .dtype = DType::kU8, .shape = {n, row_bytes}}},
          .attributes = {"transB=i:1"},
          .blocks = format,
          .flops = m == 1 ? 0 : 2 * products,
          .bytes = static_cast<double>(n * row_bytes)};
}

// Layers of language models: one sequence, many, a prompt.
void AddBlockModels(std::vector<KernelModel>& models) {
  struct Size {
    BlockFormat format;
    int64_t n, k;
  };
  constexpr Size kSizes[] = {
      {BlockFormat::kQ4_1, 576, 576},   {BlockFormat::kQ4_1, 1536, 576},
      {BlockFormat::kQ8_0, 49152, 576}, {BlockFormat::kQ4_0, 4096, 4096},
      {BlockFormat::kQ4_1, 4096, 4096}, {BlockFormat::kQ5_0, 4096, 4096},
      {BlockFormat::kQ8_0, 4096, 4096}, {BlockFormat::kQ4_K, 4096, 4096},
      {BlockFormat::kQ6_K, 4096, 4096}, {BlockFormat::kIQ4_NL, 4096, 4096},
  };
  for (const Size& size : kSizes) {
    for (const int64_t m : {1, 16, 512}) {
      models.push_back(BlockMatMul(size.format, m, size.n, size.k));
    }
  }
  // Beyond the caches.
  models.push_back(BlockMatMul(BlockFormat::kQ4_1, 1, 65536, 4096));
}

struct ConvSize {
  int64_t inputs = 1, outputs = 1;  // channels
  int64_t height = 1, width = 1;    // of input and output
  int64_t kernel = 1, groups = 1;
};

KernelModel Conv(const ConvSize& size) {
  const double pixels = static_cast<double>(size.height * size.width);
  const double in = static_cast<double>(size.inputs), out = static_cast<double>(size.outputs);
  const double taps = static_cast<double>(size.kernel * size.kernel * size.inputs / size.groups);
  const int64_t pad = size.kernel / 2;
  const std::string channels = size.inputs == size.outputs
                                   ? absl::StrCat(size.inputs)
                                   : absl::StrCat(size.inputs, "-", size.outputs);
  return {
      .name = absl::StrCat(size.groups == 1 ? "conv " : "depthwise ", size.kernel, "x", size.kernel,
                           " ", channels, "x", size.height, "x", size.width),
      .op_type = "Conv",
      .inputs = {F32("x", {1, size.height, size.width, size.inputs})},
      .weights = {F32("w", {size.outputs, size.inputs / size.groups, size.kernel, size.kernel})},
      .attributes = {absl::StrCat("kernel_shape=is:", size.kernel, ",", size.kernel),
                     absl::StrCat("pads=is:", pad, ",", pad, ",", pad, ",", pad),
                     absl::StrCat("group=i:", size.groups)},
      .channels_last = true,
      .flops = 2 * pixels * out * taps,
      .bytes = 4 * (pixels * (in + out) + out * taps)};
}

// Of residual nets and of the text nets: bottlenecks, expansions, depthwise windows.
constexpr ConvSize kConvSizes[] = {
    {64, 64, 56, 56, 3},        {64, 64, 28, 28, 3},      {128, 128, 14, 14, 3},
    {96, 24, 80, 120, 3},       {128, 128, 28, 28, 1},    {256, 64, 56, 56, 1},
    {128, 512, 28, 28, 1},      {48, 96, 80, 120, 1},     {192, 384, 6, 80, 1},
    {128, 128, 56, 56, 3, 128}, {48, 48, 80, 120, 3, 48}, {192, 192, 6, 80, 3, 192},
    {384, 384, 3, 80, 3, 384},  {96, 96, 80, 120, 7, 96},
};

KernelModel Rows(const char* op_type, int64_t rows, int64_t columns) {
  const double elements = static_cast<double>(rows * columns);
  return {.name = absl::StrCat(op_type, " ", rows, "x", columns),
          .op_type = op_type,
          .inputs = {F32("x", {rows, columns})},
          .bytes = 8 * elements};
}

}  // namespace

std::vector<KernelModel> AllKernelModels() {
  std::vector<KernelModel> models;
  for (const int64_t n : {512, 768, 1024, 1536, 2048}) models.push_back(MatMul(n, n, n));
  models.push_back(MatMul(1, 1024, 1024));
  models.push_back(MatMul(8, 1024, 1024));
  models.push_back(MatMul(128, 384, 1536));
  AddBlockModels(models);
  for (const ConvSize& size : kConvSizes) models.push_back(Conv(size));
  // Beyond the caches: memory is what they are held against.
  models.push_back(Rows("Softmax", 32768, 1024));
  models.push_back(Rows("Relu", 8192, 4096));
  models.push_back(Rows("Erf", 8192, 4096));
  models.push_back(Rows("Tanh", 8192, 4096));
  KernelModel sum = Rows("ReduceSum", 8192, 4096);
  sum.attributes = {"keepdims=i:0"};
  sum.bytes /= 2;
  models.push_back(sum);
  KernelModel norm = Rows("LayerNormalization", 32768, 1024);
  norm.weights = {F32("scale", {1024}), F32("bias", {1024})};
  models.push_back(norm);
  KernelModel transpose = Rows("Transpose", 4096, 4096);
  transpose.attributes = {"perm=is:1,0"};
  models.push_back(transpose);
  return models;
}

std::string SerializeKernelModel(const KernelModel& model, uint64_t seed) {
  std::mt19937_64 random(seed);
  ProtoWriter graph;
  std::vector<std::string> names;
  for (const KernelModelTensor& tensor : model.inputs) names.push_back(tensor.name);
  for (const KernelModelTensor& tensor : model.weights) names.push_back(tensor.name);
  if (model.blocks.has_value()) {
    graph.Bytes(1, Node("DequantizeBlocks", {names[1]}, "rows",
                        {absl::StrCat("format=s:", Name(*model.blocks))}, "stampmill"));
    names[1] = "rows";
  }
  if (model.channels_last) {
    graph.Bytes(1, Node("Transpose", {names[0]}, "x_first", {"perm=is:0,3,1,2"}));
    names[0] = "x_first";
    graph.Bytes(1, Node(model.op_type, names, "y_first", model.attributes));
    graph.Bytes(1, Node("Transpose", {"y_first"}, "y", {"perm=is:0,2,3,1"}));
  } else {
    graph.Bytes(1, Node(model.op_type, names, "y", model.attributes));
  }
  graph.Bytes(2, "kernel");
  for (const KernelModelTensor& tensor : model.weights) {
    graph.Bytes(5, Initializer(tensor, random));
  }
  for (const KernelModelTensor& tensor : model.inputs) graph.Bytes(11, ValueInfo(tensor));
  // Its type alone: the shape is inferred.
  ProtoWriter tensor_type, type, output;
  tensor_type.Int(1, static_cast<uint64_t>(OnnxDataType(model.dtype)));
  type.Bytes(1, tensor_type.Finish());
  output.Bytes(1, "y");
  output.Bytes(2, type.Finish());
  graph.Bytes(12, output.Finish());
  ProtoWriter opset, file;
  opset.Int(2, 17);
  file.Int(1, 8);
  file.Bytes(7, graph.Finish());
  file.Bytes(8, opset.Finish());
  if (model.blocks.has_value()) {
    ProtoWriter own;
    own.Bytes(1, "stampmill");
    own.Int(2, 1);
    file.Bytes(8, own.Finish());
  }
  return file.Finish();
}

}  // namespace stampmill
