// The table at the end is the whole of it. Shapes are not known here: where a rank matters it is
// taken from a constant, or the operator is said in a form that needs none.
#include "compiler/onnx/microsoft.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

using Attributes = absl::flat_hash_map<std::string, Attribute>;

// A node on its way, and the operators that take its place.
class Rewrite {
 public:
  explicit Rewrite(NodeDraft& draft) : draft_(draft) {}

  const Node& node() const { return draft_.node; }
  ValueId In(size_t i) const { return i < node().inputs.size() ? node().inputs[i] : kNoValue; }
  size_t input_count() const { return node().inputs.size(); }
  absl::Status Require(size_t count) const {
    for (size_t i = 0; i < count; ++i) {
      if (In(i) != kNoValue) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(node().Describe(), ": input ", i, " is missing"));
    }
    return absl::OkStatus();
  }
  absl::Status Unsupported(absl::string_view what) const {
    return absl::UnimplementedError(
        absl::StrCat(node().Describe(), ": ", what, " is not supported"));
  }
  // Any other value of an integer attribute than this is refused.
  absl::Status Only(absl::string_view attribute, int64_t value) const {
    ASSIGN_OR_RETURN(const int64_t actual, node().Int(attribute, value));
    if (actual == value) return absl::OkStatus();
    return Unsupported(absl::StrCat(attribute, " = ", actual));
  }

  ValueId Op(absl::string_view type, std::vector<ValueId> inputs, Attributes attributes = {}) {
    while (!inputs.empty() && inputs.back() == kNoValue) inputs.pop_back();
    return draft_.graph.Op(type, "", std::move(inputs), std::move(attributes));
  }
  ValueId Scalar(double value) {
    return draft_.graph.AddConstant(absl::StrCat(node().name, "/scalar"),
                                    Tensor::Scalar(DType::kF32, value));
  }
  ValueId Axes(const std::vector<int64_t>& axes) {
    return draft_.graph.AddConstant(absl::StrCat(node().name, "/axes"),
                                    Tensor::FromInt64({static_cast<int64_t>(axes.size())}, axes));
  }
  // Inputs first, first + 1, first + 2 are values, scale, zero point.
  ValueId Dequantised(size_t first) {
    return Op("DequantizeLinear", {In(first), In(first + 1), In(first + 2)});
  }
  // Inputs first, first + 1 are scale and zero point.
  void FinishQuantised(ValueId real, size_t first) {
    Finish(Op("QuantizeLinear", {real, In(first), In(first + 1)}));
  }
  ValueId ToReal(ValueId value) {
    return Op("Cast", {value}, {{"to", static_cast<int64_t>(OnnxDataType(DType::kF32))}});
  }
  ValueId AddIfThere(ValueId value, size_t input) {
    return In(input) == kNoValue ? value : Op("Add", {value, In(input)});
  }
  void Finish(ValueId result) {
    std::vector<ValueId> results(draft_.output_names.size(), kNoValue);
    if (!results.empty()) results[0] = result;
    draft_.results = std::move(results);
  }
  void SetResult(size_t i, ValueId result) {
    if (i < draft_.results->size()) (*draft_.results)[i] = result;
  }
  // Whether the model names output `i`.
  bool Wants(size_t i) const {
    return i < draft_.output_names.size() && !draft_.output_names[i].empty();
  }
  NodeDraft& draft() { return draft_; }

  // The node's attributes that another operator shares.
  Attributes Shared(std::initializer_list<const char*> names) const {
    Attributes shared;
    for (const char* name : names) {
      const auto found = node().attributes.find(name);
      if (found != node().attributes.end()) shared.insert(*found);
    }
    return shared;
  }

 private:
  NodeDraft& draft_;
};

// --- Quantised forms ---

absl::Status QLinearBinary(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(2));
  for (const size_t scale : {1, 4, 6}) {
    if (r.In(scale) == kNoValue) return r.Require(scale + 1);
  }
  const std::string op = r.node().op_type.substr(std::string("QLinear").size());
  r.FinishQuantised(r.Op(op, {r.Dequantised(0), r.Dequantised(3)}), 6);
  return absl::OkStatus();
}

// x, scale, zero point; scale and zero point of y.
absl::Status RequireUnary(const Rewrite& r) {
  RETURN_IF_ERROR(r.Require(2));
  return r.In(3) == kNoValue ? r.Require(4) : absl::OkStatus();
}

absl::Status QLinearUnary(Rewrite& r) {
  RETURN_IF_ERROR(RequireUnary(r));
  const std::string op = r.node().op_type.substr(std::string("QLinear").size());
  r.FinishQuantised(r.Op(op, {r.Dequantised(0)}, r.Shared({"alpha"})), 3);
  return absl::OkStatus();
}

absl::Status QLinearPool(Rewrite& r) {
  RETURN_IF_ERROR(RequireUnary(r));
  RETURN_IF_ERROR(r.Only("channels_last", 0));
  const std::string op = r.node().op_type.substr(std::string("QLinear").size());
  r.FinishQuantised(r.Op(op, {r.Dequantised(0)},
                         r.Shared({"auto_pad", "ceil_mode", "count_include_pad", "kernel_shape",
                                   "pads", "strides"})),
                    3);
  return absl::OkStatus();
}

absl::Status QLinearReduceMean(Rewrite& r) {
  RETURN_IF_ERROR(RequireUnary(r));
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, r.node().Ints("axes", {}));
  r.FinishQuantised(r.Op("ReduceMean", {r.Dequantised(0), axes.empty() ? kNoValue : r.Axes(axes)},
                         r.Shared({"keepdims"})),
                    3);
  return absl::OkStatus();
}

absl::Status QLinearSoftmax(Rewrite& r) {
  RETURN_IF_ERROR(RequireUnary(r));
  // It names the opset whose Softmax it is.
  ASSIGN_OR_RETURN(const int64_t opset, r.node().Int("opset", 13));
  NodeDraft softmax{.graph = r.draft().graph,
                    .node = {.op_type = "Softmax",
                             .name = r.node().name,
                             .opset = static_cast<int32_t>(opset),
                             .inputs = {r.Dequantised(0)},
                             .attributes = r.Shared({"axis"})},
                    .output_names = {"y"},
                    .results = {}};
  RETURN_IF_ERROR(UpgradeNode(softmax));
  const ValueId y = softmax.results.has_value()
                        ? (*softmax.results)[0]
                        : r.Op("Softmax", softmax.node.inputs, softmax.node.attributes);
  r.FinishQuantised(y, 3);
  return absl::OkStatus();
}

absl::Status QLinearConcat(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(1));
  std::vector<ValueId> parts;
  for (size_t i = 2; i < r.input_count(); i += 3) {
    if (r.In(i) == kNoValue || r.In(i + 1) == kNoValue) return r.Require(i + 2);
    parts.push_back(r.Dequantised(i));
  }
  r.FinishQuantised(r.Op("Concat", std::move(parts), r.Shared({"axis"})), 0);
  return absl::OkStatus();
}

absl::Status QLinearWhere(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(3));
  for (const size_t needed : {4, 5, 7}) {
    if (r.In(needed) == kNoValue) return r.Require(needed + 1);
  }
  r.FinishQuantised(r.Op("Where", {r.In(0), r.Dequantised(1), r.Dequantised(4)}), 7);
  return absl::OkStatus();
}

absl::Status QGemm(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(2));
  if (r.In(3) == kNoValue || r.In(4) == kNoValue) return r.Require(5);
  ASSIGN_OR_RETURN(const float alpha, r.node().Float("alpha", 1));
  ASSIGN_OR_RETURN(const int64_t transpose_a, r.node().Int("transA", 0));
  ASSIGN_OR_RETURN(const int64_t transpose_b, r.node().Int("transB", 0));
  const Attributes turned = {{"perm", std::vector<int64_t>{1, 0}}};
  const ValueId a = transpose_a == 0 ? r.In(0) : r.Op("Transpose", {r.In(0)}, turned);
  const ValueId b = transpose_b == 0 ? r.In(3) : r.Op("Transpose", {r.In(3)}, turned);
  const ValueId sums = r.AddIfThere(r.Op("MatMulInteger", {a, b, r.In(2), r.In(5)}), 6);
  ValueId scale = r.Op("Mul", {r.In(1), r.In(4)});
  if (alpha != 1) scale = r.Op("Mul", {scale, r.Scalar(alpha)});
  const ValueId y = r.Op("Mul", {r.ToReal(sums), scale});
  if (r.In(7) == kNoValue) {
    r.Finish(y);
  } else {
    r.FinishQuantised(y, 7);
  }
  return absl::OkStatus();
}

absl::Status MatMulIntegerToFloat(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(4));
  const ValueId sums = r.Op("MatMulInteger", {r.In(0), r.In(1), r.In(4), r.In(5)});
  const ValueId scale = r.Op("Mul", {r.In(2), r.In(3)});
  r.Finish(r.AddIfThere(r.Op("Mul", {r.ToReal(sums), scale}), 6));
  return absl::OkStatus();
}

// The three outputs of DynamicQuantizeLinear.
std::vector<ValueId> QuantisedNow(Rewrite& r, ValueId x) {
  Graph& graph = r.draft().graph;
  const NodeId id =
      graph.AddNode({.op_type = "DynamicQuantizeLinear", .name = r.node().name, .inputs = {x}}, 3);
  return graph.node(id).outputs;
}

absl::Status DynamicQuantizeMatMul(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(3));
  const std::vector<ValueId> a = QuantisedNow(r, r.In(0));
  const ValueId sums = r.Op("MatMulInteger", {a[0], r.In(1), a[2], r.In(3)});
  const ValueId scale = r.Op("Mul", {a[1], r.In(2)});
  r.Finish(r.AddIfThere(r.Op("Mul", {r.ToReal(sums), scale}), 4));
  return absl::OkStatus();
}

absl::Status AsOnnx(Rewrite& r) {
  r.draft().node.domain.clear();
  r.draft().node.opset = kOnnxOpsetMax;
  return absl::OkStatus();
}

// Weights [directions, inputs, 4 * hidden] of bytes, one scale and zero point a direction or one
// for each of its columns, as LSTM's [directions, 4 * hidden, inputs] of reals.
absl::StatusOr<ValueId> LstmWeights(Rewrite& r, size_t weights, size_t scale, size_t zero) {
  const auto spread = [&](size_t input) -> absl::StatusOr<ValueId> {
    const Value& value = r.draft().graph.value(r.In(input));
    if (!value.shape.has_value() && !value.constant.has_value()) {
      return r.Unsupported(absl::StrCat("input ", input, " of unknown rank"));
    }
    const size_t rank =
        value.shape.has_value() ? value.shape->size() : static_cast<size_t>(value.constant->rank());
    if (rank != 1 && rank != 2)
      return r.Unsupported(absl::StrCat("input ", input, " of rank ", rank));
    return r.Op("Unsqueeze", {r.In(input), r.Axes(rank == 1 ? std::vector<int64_t>{1, 2}
                                                            : std::vector<int64_t>{1})});
  };
  ValueId real = r.ToReal(r.In(weights));
  if (r.In(zero) != kNoValue) {
    ASSIGN_OR_RETURN(const ValueId zeros, spread(zero));
    real = r.Op("Sub", {real, r.ToReal(zeros)});
  }
  ASSIGN_OR_RETURN(const ValueId scales, spread(scale));
  return r.Op("Transpose", {r.Op("Mul", {real, scales})},
              {{"perm", std::vector<int64_t>{0, 2, 1}}});
}

// Activations are not rounded to bytes on the way: closer to the real LSTM than the operator is.
absl::Status DynamicQuantizeLstm(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(3));
  if (r.In(8) == kNoValue || r.In(10) == kNoValue) {
    return absl::InvalidArgumentError(
        absl::StrCat(r.node().Describe(), ": inputs 8 and 10, the scales, are needed"));
  }
  ASSIGN_OR_RETURN(const ValueId w, LstmWeights(r, 1, 8, 9));
  ASSIGN_OR_RETURN(const ValueId recurrent, LstmWeights(r, 2, 10, 11));
  Node& node = r.draft().node;
  node.op_type = "LSTM";
  node.domain.clear();
  node.opset = kOnnxOpsetMax;
  node.inputs[1] = w;
  node.inputs[2] = recurrent;
  node.inputs.resize(8);
  return absl::OkStatus();
}

// --- Fused forms ---

absl::StatusOr<ValueId> Activated(Rewrite& r, ValueId x, const std::string& name,
                                  const std::vector<float>& parameters) {
  const auto parameter = [&](size_t i, float otherwise) {
    return i < parameters.size() ? parameters[i] : otherwise;
  };
  if (name.empty()) return x;
  if (name == "Relu" || name == "Tanh" || name == "Sigmoid" || name == "Softsign") {
    return r.Op(name, {x});
  }
  if (name == "LeakyRelu") return r.Op(name, {x}, {{"alpha", parameter(0, 0.01f)}});
  if (name == "Clip" && parameters.size() == 2) {
    return r.Op(name, {x, r.Scalar(parameters[0]), r.Scalar(parameters[1])});
  }
  if (name == "HardSigmoid") {
    return r.Op(name, {x}, {{"alpha", parameter(0, 0.2f)}, {"beta", parameter(1, 0.5f)}});
  }
  return r.Unsupported(absl::StrCat("activation '", name, "'"));
}

absl::Status FusedConv(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(2));
  ASSIGN_OR_RETURN(const std::string activation, r.node().String("activation", ""));
  ASSIGN_OR_RETURN(const std::vector<float> parameters, r.node().Floats("activation_params"));
  const ValueId sum = r.AddIfThere(
      r.Op("Conv", {r.In(0), r.In(1), r.In(2)},
           r.Shared({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"})),
      3);
  ASSIGN_OR_RETURN(const ValueId y, Activated(r, sum, activation, parameters));
  r.Finish(y);
  return absl::OkStatus();
}

absl::Status FusedGemm(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(2));
  ASSIGN_OR_RETURN(const std::string activation, r.node().String("activation", ""));
  std::vector<float> parameters;
  for (const char* name : {"activation_alpha", "activation_beta"}) {
    if (!r.node().Has(name)) break;
    ASSIGN_OR_RETURN(const float value, r.node().Float(name, 0));
    parameters.push_back(value);
  }
  const ValueId sum =
      r.Op("Gemm", {r.In(0), r.In(1), r.In(2)}, r.Shared({"alpha", "beta", "transA", "transB"}));
  ASSIGN_OR_RETURN(const ValueId y, Activated(r, sum, activation, parameters));
  r.Finish(y);
  return absl::OkStatus();
}

absl::Status FusedMatMul(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(2));
  RETURN_IF_ERROR(r.Only("transBatchA", 0));
  RETURN_IF_ERROR(r.Only("transBatchB", 0));
  ASSIGN_OR_RETURN(const int64_t transpose_a, r.node().Int("transA", 0));
  ASSIGN_OR_RETURN(const int64_t transpose_b, r.node().Int("transB", 0));
  ASSIGN_OR_RETURN(const float alpha, r.node().Float("alpha", 1));
  ValueId y = kNoValue;
  if (transpose_a == 0 && transpose_b == 0) {
    y = r.Op("MatMul", {r.In(0), r.In(1)});
  } else {
    const std::string equation = absl::StrCat(transpose_a == 0 ? "...ij" : "...ji", ",",
                                              transpose_b == 0 ? "...jk" : "...kj", "->...ik");
    y = r.Op("Einsum", {r.In(0), r.In(1)}, {{"equation", equation}});
  }
  r.Finish(alpha == 1 ? y : r.Op("Mul", {y, r.Scalar(alpha)}));
  return absl::OkStatus();
}

absl::Status Gelu(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(1));
  r.Finish(r.Op("Gelu", {r.AddIfThere(r.In(0), 1)}));
  return absl::OkStatus();
}

absl::Status FastGelu(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(1));
  r.Finish(r.Op("Gelu", {r.AddIfThere(r.In(0), 1)}, {{"approximate", std::string("tanh")}}));
  return absl::OkStatus();
}

absl::Status QuickGelu(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(1));
  ASSIGN_OR_RETURN(const float alpha, r.node().Float("alpha", 1.702f));
  const ValueId x = r.In(0);
  r.Finish(r.Op("Mul", {x, r.Op("Sigmoid", {r.Op("Mul", {x, r.Scalar(alpha)})})}));
  return absl::OkStatus();
}

// input, skip, gamma, beta, bias to the norm, mean, deviation and the sum itself.
absl::Status SkipLayerNormalization(Rewrite& r) {
  RETURN_IF_ERROR(r.Require(3));
  if (r.Wants(1) || r.Wants(2)) return r.Unsupported("an output for mean or deviation");
  const ValueId sum = r.AddIfThere(r.Op("Add", {r.In(0), r.In(1)}), 4);
  ASSIGN_OR_RETURN(const float epsilon, r.node().Float("epsilon", 1e-12f));
  r.Finish(r.Op("LayerNormalization", {sum, r.In(2), r.In(3)}, {{"epsilon", epsilon}}));
  r.SetResult(3, sum);
  return absl::OkStatus();
}

struct Rule {
  absl::string_view op_type;
  absl::Status (*apply)(Rewrite& rewrite);
};

constexpr Rule kRules[] = {
    {"BiasGelu", Gelu},
    {"DequantizeLinear", AsOnnx},
    {"DynamicQuantizeLSTM", DynamicQuantizeLstm},
    {"DynamicQuantizeMatMul", DynamicQuantizeMatMul},
    {"FastGelu", FastGelu},
    {"FusedConv", FusedConv},
    {"FusedGemm", FusedGemm},
    {"FusedMatMul", FusedMatMul},
    {"Gelu", Gelu},
    {"MatMulIntegerToFloat", MatMulIntegerToFloat},
    {"QGemm", QGemm},
    {"QLinearAdd", QLinearBinary},
    {"QLinearAveragePool", QLinearPool},
    {"QLinearConcat", QLinearConcat},
    {"QLinearGlobalAveragePool", QLinearPool},
    {"QLinearLeakyRelu", QLinearUnary},
    {"QLinearMul", QLinearBinary},
    {"QLinearReduceMean", QLinearReduceMean},
    {"QLinearSigmoid", QLinearUnary},
    {"QLinearSoftmax", QLinearSoftmax},
    {"QLinearWhere", QLinearWhere},
    {"QuantizeLinear", AsOnnx},
    {"QuickGelu", QuickGelu},
    {"SkipLayerNormalization", SkipLayerNormalization},
    {"TransposeMatMul", FusedMatMul},
};

}  // namespace

absl::Status RewriteMicrosoftNode(NodeDraft& draft) {
  for (const Rule& rule : kRules) {
    if (rule.op_type != draft.node.op_type) continue;
    Rewrite rewrite(draft);
    return rule.apply(rewrite);
  }
  return absl::OkStatus();
}

}  // namespace stampmill
