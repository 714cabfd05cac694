#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/passes/graph_passes.h"
#include "kernels/op.h"

namespace stampmill {
namespace {

// The constant behind an input, null when it is none or not f32.
const Tensor* ConstantF32(const Graph& graph, const Node& node, size_t input) {
  if (input >= node.inputs.size() || node.inputs[input] == kNoValue) return nullptr;
  const Value& value = graph.value(node.inputs[input]);
  if (!value.constant.has_value() || value.constant->dtype() != DType::kF32) return nullptr;
  return &*value.constant;
}

struct Affine {
  std::vector<double> scale, shift;  // a channel each: y = x * scale + shift
};

// The per-channel affine map of a BatchNormalization; empty when it is not constant.
absl::StatusOr<Affine> AffineOf(const Graph& graph, const Node& node) {
  const Tensor* parts[4];
  for (size_t i = 0; i < 4; ++i) {
    parts[i] = ConstantF32(graph, node, i + 1);
    if (parts[i] == nullptr) return Affine{};
    if (parts[i]->element_count() != parts[0]->element_count()) return Affine{};
  }
  ASSIGN_OR_RETURN(const float epsilon, node.Float("epsilon", 1e-5f));
  Affine affine;
  for (int64_t c = 0; c < parts[0]->element_count(); ++c) {
    const double scale = parts[0]->ValueAsDouble(c), bias = parts[1]->ValueAsDouble(c);
    const double mean = parts[2]->ValueAsDouble(c), variance = parts[3]->ValueAsDouble(c);
    affine.scale.push_back(scale / std::sqrt(variance + epsilon));
    affine.shift.push_back(bias - mean * affine.scale.back());
  }
  return affine;
}

absl::Status FoldInto(Graph& graph, Node& conv, const Affine& affine) {
  const Tensor& weights = *graph.value(conv.inputs[1]).constant;
  const Tensor* bias = ConstantF32(graph, conv, 2);
  ASSIGN_OR_RETURN(Tensor scaled, Tensor::Allocate(DType::kF32, weights.shape()));
  const auto channels = static_cast<int64_t>(affine.scale.size());
  const int64_t per_channel = weights.element_count() / channels;
  ASSIGN_OR_RETURN(Tensor shifted, Tensor::Allocate(DType::kF32, {channels}));
  for (int64_t c = 0; c < channels; ++c) {
    const double scale = affine.scale[static_cast<size_t>(c)];
    for (int64_t i = c * per_channel; i < (c + 1) * per_channel; ++i) {
      scaled.SetFromDouble(i, weights.ValueAsDouble(i) * scale);
    }
    const double before = bias == nullptr ? 0 : bias->ValueAsDouble(c);
    shifted.SetFromDouble(c, before * scale + affine.shift[static_cast<size_t>(c)]);
  }
  const std::string name = conv.name;
  const ValueId weights_id = graph.AddConstant(absl::StrCat(name, "/weights"), std::move(scaled));
  const ValueId bias_id = graph.AddConstant(absl::StrCat(name, "/bias"), std::move(shifted));
  conv.inputs.resize(3, kNoValue);
  conv.inputs[1] = weights_id;
  conv.inputs[2] = bias_id;
  return absl::OkStatus();
}

}  // namespace

absl::Status FoldBatchNormalization(Graph& graph) {
  for (NodeId id : graph.Order()) {
    const Node& norm = graph.node(id);
    if (norm.op_type != "BatchNormalization" || !norm.domain.empty()) continue;
    const Value& x = graph.value(norm.inputs[0]);
    if (x.producer < 0 || graph.UseCounts()[static_cast<size_t>(norm.inputs[0])] != 1) continue;
    Node& conv = graph.node(x.producer);
    if (conv.op_type != "Conv" || !conv.domain.empty()) continue;
    if (ConstantF32(graph, conv, 1) == nullptr) continue;
    const bool has_bias = conv.inputs.size() > 2 && conv.inputs[2] != kNoValue;
    if (has_bias && ConstantF32(graph, conv, 2) == nullptr) continue;
    ASSIGN_OR_RETURN(const Affine affine, AffineOf(graph, norm));
    const int64_t channels = graph.value(conv.inputs[1]).constant->shape()[0];
    if (affine.scale.empty() || channels != static_cast<int64_t>(affine.scale.size())) continue;
    RETURN_IF_ERROR(FoldInto(graph, conv, affine));
    graph.ReplaceUses(norm.outputs[0], conv.outputs[0]);
    graph.RemoveNode(id);
  }
  return absl::OkStatus();
}

}  // namespace stampmill
