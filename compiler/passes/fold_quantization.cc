// Dequantised operands of products become products of integers. Runs before constants are folded:
// that would leave nothing of quantised weights but their values.
//
// f(DequantizeLinear(x), DequantizeLinear(w)) + bias, with f one of MatMul, Gemm and Conv, is
// scale_x * scale_w * f(x - zero_x, w - zero_w) + bias, where the scale of x is one number and that
// of w one number or one for each column or output channel. The product is MatMulInteger or
// ConvInteger; the rest is elementwise, and fusion makes it, and what follows up to a
// QuantizeLinear, the product's epilogue.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/passes/graph_passes.h"
#include "kernels/op.h"

namespace stampmill {
namespace {

// A quantised operand: (values - zero) * scale.
struct Quantised {
  ValueId values = kNoValue;
  ValueId scale = kNoValue;  // constant, f32
  ValueId zero = kNoValue;   // kNoValue: none
  int64_t axis = 0;          // of values, where there is more than one scale
  bool per_axis = false;
};

bool IsByte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

class QuantizationFolder {
 public:
  explicit QuantizationFolder(Graph& graph) : graph_(graph) {}

  absl::Status Run() {
    for (NodeId id : graph_.Order()) {
      if (graph_.node(id).removed || !graph_.node(id).domain.empty()) continue;
      const std::string op_type = graph_.node(id).op_type;
      if (op_type == "Conv") RETURN_IF_ERROR(FoldConv(id));
      if (op_type == "MatMul") RETURN_IF_ERROR(FoldMatMul(id));
      if (op_type == "Gemm") RETURN_IF_ERROR(FoldGemm(id));
    }
    graph_.RemoveDeadNodes();
    return graph_.SortTopologically();
  }

 private:
  const Node* Producer(ValueId id, absl::string_view op_type) const {
    if (id == kNoValue || graph_.value(id).producer < 0) return nullptr;
    const Node& node = graph_.node(graph_.value(id).producer);
    return node.domain.empty() && node.op_type == op_type ? &node : nullptr;
  }
  static ValueId InputOf(const Node& node, size_t i) {
    return i < node.inputs.size() ? node.inputs[i] : kNoValue;
  }
  const std::optional<Tensor>& Constant(ValueId id) const { return graph_.value(id).constant; }

  // Types are not inferred yet: a zero point tells them, or what quantised the values.
  DType TypeOf(ValueId values, ValueId zero) const {
    if (zero != kNoValue && graph_.value(zero).dtype != DType::kInvalid) {
      return graph_.value(zero).dtype;
    }
    if (graph_.value(values).dtype != DType::kInvalid) return graph_.value(values).dtype;
    const Node* quantize = Producer(values, "QuantizeLinear");
    if (quantize == nullptr || quantize->Has("output_dtype")) return DType::kInvalid;
    if (InputOf(*quantize, 2) == kNoValue) return DType::kU8;
    return graph_.value(quantize->inputs[2]).dtype;
  }

  // What `id` is the dequantised form of, when it is bytes with known scales; a Transpose between
  // moves to the bytes.
  absl::StatusOr<std::optional<Quantised>> Find(ValueId id) {
    if (const Node* transpose = Producer(id, "Transpose")) {
      ASSIGN_OR_RETURN(const std::vector<int64_t> perm, transpose->Ints("perm", {}));
      ASSIGN_OR_RETURN(std::optional<Quantised> inner, Find(transpose->inputs[0]));
      if (!inner.has_value() || perm.empty()) return std::optional<Quantised>();
      for (size_t i = 0; inner->per_axis && i < perm.size(); ++i) {
        if (perm[i] != inner->axis) continue;
        inner->axis = static_cast<int64_t>(i);
        break;
      }
      inner->values = graph_.Op("Transpose", "", {inner->values}, {{"perm", perm}});
      return inner;
    }
    const Node* node = Producer(id, "DequantizeLinear");
    if (node == nullptr) return std::optional<Quantised>();
    Quantised quantised{
        .values = node->inputs[0], .scale = node->inputs[1], .zero = InputOf(*node, 2)};
    ASSIGN_OR_RETURN(const int64_t block, node->Int("block_size", 0));
    ASSIGN_OR_RETURN(quantised.axis, node->Int("axis", 1));
    const std::optional<Tensor>& scale = Constant(quantised.scale);
    const bool known = scale.has_value() && scale->dtype() == DType::kF32 && scale->rank() <= 1;
    if (!known || block != 0 || node->Has("output_dtype") ||
        !IsByte(TypeOf(quantised.values, quantised.zero))) {
      return std::optional<Quantised>();
    }
    quantised.per_axis = scale->element_count() != 1;
    return std::optional<Quantised>(quantised);
  }

  // The weights of a product, if their scales go with dimension `axis`; their rank.
  absl::StatusOr<std::optional<Quantised>> FindWeights(ValueId id, bool last_axis, size_t* rank) {
    ASSIGN_OR_RETURN(std::optional<Quantised> w, Find(id));
    if (!w.has_value()) return w;
    const ValueId source = Producer(w->values, "Transpose") == nullptr
                               ? w->values
                               : graph_.node(graph_.value(w->values).producer).inputs[0];
    const std::optional<Tensor>& constant = Constant(source);
    *rank = constant.has_value() ? static_cast<size_t>(constant->rank()) : 0;
    if (!w->per_axis) return w;
    if (!constant.has_value()) return std::optional<Quantised>();
    const auto dims = static_cast<int64_t>(*rank);
    const int64_t axis = w->axis < 0 ? w->axis + dims : w->axis;
    if (axis != (last_axis ? dims - 1 : 0)) return std::optional<Quantised>();
    return w;
  }

  // A zero point as the integer operators take it: rank 0 or 1, with one element rank 0.
  absl::StatusOr<ValueId> ZeroOf(const Quantised& quantised) {
    if (quantised.zero == kNoValue) return kNoValue;
    const std::optional<Tensor> zero = Constant(quantised.zero);
    if (!zero.has_value()) return quantised.zero;
    bool none = true;
    for (int64_t i = 0; i < zero->element_count(); ++i) none &= zero->ValueAsInt64(i) == 0;
    if (none) return kNoValue;
    if (quantised.per_axis) return quantised.zero;
    ASSIGN_OR_RETURN(Tensor scalar, zero->Reshaped({}));
    return graph_.AddConstant("zero", std::move(scalar));
  }

  // scale_x * scale_w * factor, with `ones` axes of one element after that of the channels.
  absl::StatusOr<ValueId> ScaleOf(const Quantised& x, const Quantised& w, float factor,
                                  size_t ones) {
    const float x_scale = static_cast<float>(Constant(x.scale)->ValueAsDouble(0));
    const Tensor& w_scale = *Constant(w.scale);
    std::vector<int64_t> shape;
    if (w.per_axis) {
      shape.assign(ones + 1, 1);
      shape[0] = w_scale.element_count();
    }
    ASSIGN_OR_RETURN(Tensor scale, Tensor::Allocate(DType::kF32, std::move(shape)));
    for (int64_t i = 0; i < w_scale.element_count(); ++i) {
      const auto value = static_cast<float>(w_scale.ValueAsDouble(i));
      scale.SetFromDouble(i, x_scale * value * factor);
    }
    return graph_.AddConstant("scale", std::move(scale));
  }

  // The sums of integers as reals, scaled; then `bias`, if there is one. Takes the place of `id`.
  void Finish(NodeId id, ValueId sums, ValueId scale, ValueId bias) {
    const ValueId real =
        graph_.Op("Cast", "", {sums}, {{"to", static_cast<int64_t>(OnnxDataType(DType::kF32))}});
    ValueId y = graph_.Op("Mul", "", {real, scale});
    if (bias != kNoValue) y = graph_.Op("Add", "", {y, bias});
    const ValueId old = graph_.node(id).outputs[0];
    graph_.value(y).name = graph_.value(old).name;
    graph_.ReplaceUses(old, y);
    graph_.RemoveNode(id);
  }

  ValueId Integer(const Node& node, absl::string_view op_type, std::vector<ValueId> inputs,
                  absl::flat_hash_map<std::string, Attribute> attributes) {
    while (inputs.back() == kNoValue) inputs.pop_back();
    const NodeId id = graph_.AddNode({.op_type = std::string(op_type),
                                      .name = node.name,
                                      .opset = node.opset,
                                      .inputs = std::move(inputs),
                                      .attributes = std::move(attributes)},
                                     1);
    return graph_.node(id).outputs[0];
  }

  absl::Status FoldConv(NodeId id) {
    const Node node = graph_.node(id);
    if (node.inputs.size() < 2) return absl::OkStatus();
    size_t rank = 0;
    ASSIGN_OR_RETURN(const std::optional<Quantised> w, FindWeights(node.inputs[1], false, &rank));
    if (!w.has_value() || rank < 3) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::optional<Quantised> x, Find(node.inputs[0]));
    if (!x.has_value() || x->per_axis) return absl::OkStatus();
    const size_t spatial = rank - 2;
    ASSIGN_OR_RETURN(const ValueId scale, ScaleOf(*x, *w, 1, spatial));
    ASSIGN_OR_RETURN(const ValueId x_zero, ZeroOf(*x));
    ASSIGN_OR_RETURN(const ValueId w_zero, ZeroOf(*w));
    const ValueId sums =
        Integer(node, "ConvInteger", {x->values, w->values, x_zero, w_zero}, node.attributes);
    ValueId bias = InputOf(node, 2);
    if (bias != kNoValue) {
      std::vector<int64_t> axes;
      for (size_t i = 1; i <= spatial; ++i) axes.push_back(static_cast<int64_t>(i));
      const ValueId at =
          graph_.AddConstant("axes", Tensor::FromInt64({static_cast<int64_t>(axes.size())}, axes));
      bias = graph_.Op("Unsqueeze", "", {bias, at});
    }
    Finish(id, sums, scale, bias);
    return absl::OkStatus();
  }

  absl::Status FoldMatMul(NodeId id) {
    const Node node = graph_.node(id);
    if (node.inputs.size() != 2) return absl::OkStatus();
    return FoldProduct(id, node.inputs[0], node.inputs[1], 1, kNoValue);
  }

  absl::Status FoldProduct(NodeId id, ValueId a, ValueId b, float factor, ValueId bias) {
    const Node node = graph_.node(id);
    size_t rank = 0;
    ASSIGN_OR_RETURN(const std::optional<Quantised> w, FindWeights(b, true, &rank));
    // One scale a column needs columns.
    if (!w.has_value() || (w->per_axis && rank < 2)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::optional<Quantised> x, Find(a));
    if (!x.has_value() || x->per_axis) return absl::OkStatus();
    ASSIGN_OR_RETURN(const ValueId scale, ScaleOf(*x, *w, factor, 0));
    ASSIGN_OR_RETURN(const ValueId x_zero, ZeroOf(*x));
    ASSIGN_OR_RETURN(const ValueId w_zero, ZeroOf(*w));
    const ValueId sums = Integer(node, "MatMulInteger", {x->values, w->values, x_zero, w_zero}, {});
    Finish(id, sums, scale, bias);
    return absl::OkStatus();
  }

  absl::Status FoldGemm(NodeId id) {
    const Node node = graph_.node(id);
    if (node.inputs.size() < 2) return absl::OkStatus();
    ASSIGN_OR_RETURN(const float alpha, node.Float("alpha", 1));
    ASSIGN_OR_RETURN(const float beta, node.Float("beta", 1));
    const auto turned = [&](ValueId value, absl::string_view flag) -> absl::StatusOr<ValueId> {
      ASSIGN_OR_RETURN(const int64_t transposed, node.Int(flag, 0));
      if (transposed == 0) return value;
      return graph_.Op("Transpose", "", {value}, {{"perm", std::vector<int64_t>{1, 0}}});
    };
    if (Producer(node.inputs[0], "DequantizeLinear") == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const ValueId a, turned(node.inputs[0], "transA"));
    ASSIGN_OR_RETURN(const ValueId b, turned(node.inputs[1], "transB"));
    ValueId bias = beta == 0 ? kNoValue : InputOf(node, 2);
    if (bias != kNoValue && beta != 1) {
      const ValueId factor = graph_.AddConstant("beta", Tensor::Scalar(DType::kF32, beta));
      bias = graph_.Op("Mul", "", {bias, factor});
    }
    return FoldProduct(id, a, b, alpha, bias);
  }

  Graph& graph_;
};

}  // namespace

absl::Status FoldQuantization(Graph& graph) { return QuantizationFolder(graph).Run(); }

}  // namespace stampmill
