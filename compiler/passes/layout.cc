// Channels-last layout. Convolution and pooling run along channels, which are then neighbours in
// memory for any spatial size; a 1x1 convolution is a plain matrix product. Between such operators
// the tensors stay in that layout: transposes are moved down until they cancel or meet something
// that needs the model's own order.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/passes/graph_passes.h"
#include "kernels/op.h"

namespace stampmill {
namespace {

using Permutation = std::vector<int64_t>;

Permutation ToLast(int64_t rank) {  // NCHW to NHWC: 0, 2, 3, 1
  Permutation perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  return perm;
}

Permutation ToFirst(int64_t rank) {  // NHWC to NCHW: 0, 3, 1, 2
  Permutation perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin() + 1, perm.end() - 1, perm.end());
  return perm;
}

class Layout {
 public:
  explicit Layout(Graph& graph) : graph_(graph) {}

  absl::Status Run() {
    for (NodeId id : graph_.Order()) RETURN_IF_ERROR(Visit(id));
    graph_.RemoveDeadNodes();
    return graph_.SortTopologically();
  }

 private:
  // Nodes are visited in data flow order, so that an input's transpose, if it has one, is settled.
  absl::Status Visit(NodeId id) {
    if (graph_.node(id).removed) return absl::OkStatus();
    if (HasChannelsLastForm(id)) return Convert(id);
    if (graph_.node(id).op_type == "Transpose" && graph_.node(id).domain.empty()) {
      return CancelTranspose(id);
    }
    const OpDefinition* op = FindOp(graph_.node(id).domain, graph_.node(id).op_type);
    if (graph_.node(id).op_type == "DynamicQuantizeLinear") return SinkThroughDynamic(id);
    if (op == nullptr || graph_.node(id).outputs.size() != 1) return absl::OkStatus();
    if (IsElementwise(*op) || QuantisesAlike(id)) return SinkThroughElementwise(id);
    if (graph_.node(id).op_type == "Concat" && graph_.node(id).domain.empty()) {
      return SinkThroughConcat(id);
    }
    return absl::OkStatus();
  }

  // Quantises or dequantises the whole tensor by one scale: the layout makes no difference.
  bool QuantisesAlike(NodeId id) const {
    const Node& node = graph_.node(id);
    if (!node.domain.empty() ||
        (node.op_type != "QuantizeLinear" && node.op_type != "DequantizeLinear")) {
      return false;
    }
    return ElementCount(*graph_.value(node.inputs[1]).shape).IsConstant(1);
  }

  int64_t Rank(ValueId id) const { return static_cast<int64_t>(graph_.value(id).shape->size()); }

  bool HasChannelsLastForm(NodeId id) const {
    const Node& node = graph_.node(id);
    if (!node.domain.empty() || FindOp("stampmill", node.op_type) == nullptr) return false;
    if (node.inputs.empty() || node.outputs.size() != 1) return false;
    if (Rank(node.inputs[0]) < 3) return false;
    // Weights are packed when compiling; others stay as they came.
    return node.inputs.size() < 2 || node.inputs[1] == kNoValue ||
           graph_.value(node.inputs[1]).constant.has_value();
  }

  // `value` under `perm`; the source of the inverse transpose when it is one.
  ValueId Transposed(ValueId value, const Permutation& perm) {
    const Value& v = graph_.value(value);
    if (v.producer >= 0) {
      const Node& producer = graph_.node(v.producer);
      if (producer.op_type == "Transpose" && producer.domain.empty()) {
        const auto inner = producer.Ints("perm", {});
        if (inner.ok() && IsInverse(*inner, perm)) return producer.inputs[0];
      }
    }
    const auto key = std::make_pair(value, perm);
    const auto found = transposed_.find(key);
    if (found != transposed_.end()) return found->second;
    const ValueId result = graph_.Op("Transpose", "", {value}, {{"perm", perm}});
    Value& r = graph_.value(result);
    r.dtype = graph_.value(value).dtype;
    Shape shape;
    for (int64_t axis : perm)
      shape.push_back((*graph_.value(value).shape)[static_cast<size_t>(axis)]);
    r.shape = std::move(shape);
    transposed_.emplace(key, result);
    return result;
  }

  static bool IsInverse(const Permutation& a, const Permutation& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < b.size(); ++i) {
      if (a[static_cast<size_t>(b[i])] != static_cast<int64_t>(i)) return false;
    }
    return true;
  }

  // Replaces node `id` by `op` on `inputs`, whose output is in channels-last order.
  absl::Status ReplaceByLast(NodeId id, const std::string& domain, std::vector<ValueId> inputs,
                             absl::flat_hash_map<std::string, Attribute> attributes) {
    const Node old = graph_.node(id);
    Node node{.op_type = old.op_type,
              .domain = domain,
              .name = old.name,
              .opset = old.opset,
              .inputs = std::move(inputs),
              .attributes = std::move(attributes)};
    const NodeId last = graph_.AddNode(std::move(node), 1);
    const ValueId y = old.outputs[0];
    const int64_t rank = Rank(y);
    const ValueId result = graph_.node(last).outputs[0];
    Value& value = graph_.value(result);
    value.dtype = graph_.value(y).dtype;
    Shape shape;
    for (int64_t axis : ToLast(rank))
      shape.push_back((*graph_.value(y).shape)[static_cast<size_t>(axis)]);
    value.shape = std::move(shape);
    graph_.ReplaceUses(y, Transposed(result, ToFirst(rank)));
    graph_.RemoveNode(id);
    return absl::OkStatus();
  }

  absl::Status Convert(NodeId id) {
    const Node node = graph_.node(id);
    std::vector<ValueId> inputs = node.inputs;
    inputs[0] = Transposed(inputs[0], ToLast(Rank(inputs[0])));
    return ReplaceByLast(id, "stampmill", std::move(inputs), node.attributes);
  }

  absl::Status CancelTranspose(NodeId id) {
    const Node& node = graph_.node(id);
    ASSIGN_OR_RETURN(const Permutation perm, node.Ints("perm", {}));
    const ValueId x = node.inputs[0];
    const Value& value = graph_.value(x);
    if (value.producer < 0) return absl::OkStatus();
    const Node& producer = graph_.node(value.producer);
    if (producer.op_type != "Transpose" || !producer.domain.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Permutation inner, producer.Ints("perm", {}));
    if (!IsInverse(inner, perm)) return absl::OkStatus();
    const ValueId source = producer.inputs[0];
    graph_.ReplaceUses(node.outputs[0], source);
    graph_.RemoveNode(id);
    return absl::OkStatus();
  }

  // Whether `value` is a channels-last tensor put back into the model's order.
  bool IsFromLast(ValueId id) const {
    const Value& value = graph_.value(id);
    if (value.producer < 0) return false;
    const Node& producer = graph_.node(value.producer);
    if (producer.op_type != "Transpose" || !producer.domain.empty()) return false;
    const auto perm = producer.Ints("perm", {});
    return perm.ok() && perm->size() >= 3 && *perm == ToFirst(static_cast<int64_t>(perm->size()));
  }

  // An operand of an elementwise operator of `rank` in channels-last order, with leading axes of 1
  // added where broadcasting would add them; nullopt when it would need more than a transpose.
  absl::StatusOr<std::optional<ValueId>> ElementwiseOperand(ValueId id, int64_t rank) {
    const Value value = graph_.value(id);
    if (Rank(id) == rank) {
      if (!value.constant.has_value()) return Transposed(id, ToLast(rank));
    } else if (Rank(id) != 0 && !value.constant.has_value()) {
      return std::nullopt;
    }
    if (!value.constant.has_value() || value.constant->element_count() == 1) return id;
    std::vector<int64_t> shape = value.constant->shape();
    shape.insert(shape.begin(), static_cast<size_t>(rank) - shape.size(), 1);
    ASSIGN_OR_RETURN(const Tensor padded, value.constant->Reshaped(shape));
    ASSIGN_OR_RETURN(Tensor transposed, TransposeTensor(padded, ToLast(rank)));
    return graph_.AddConstant(absl::StrCat(value.name, "/last"), std::move(transposed));
  }

  static absl::StatusOr<Tensor> TransposeTensor(const Tensor& tensor, const Permutation& perm) {
    const OpDefinition* op = FindOp("", "Transpose");
    Node node{.op_type = "Transpose", .attributes = {{"perm", perm}}};
    const std::vector<Tensor> inputs = {tensor};
    ASSIGN_OR_RETURN(std::vector<Tensor> result, op->reference({.node = node, .inputs = inputs}));
    return std::move(result[0]);
  }

  absl::Status SinkThroughElementwise(NodeId id) {
    const Node node = graph_.node(id);
    const int64_t rank = Rank(node.outputs[0]);
    bool any = false;
    for (ValueId input : node.inputs) any |= input != kNoValue && IsFromLast(input);
    if (!any || rank < 3) return absl::OkStatus();
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) {
      if (input == kNoValue) {
        inputs.push_back(kNoValue);
        continue;
      }
      ASSIGN_OR_RETURN(const std::optional<ValueId> operand, ElementwiseOperand(input, rank));
      if (!operand.has_value()) return absl::OkStatus();
      inputs.push_back(*operand);
    }
    return ReplaceByLast(id, node.domain, std::move(inputs), node.attributes);
  }

  // The range of a tensor is that of its transpose.
  absl::Status SinkThroughDynamic(NodeId id) {
    const Node node = graph_.node(id);
    if (!IsFromLast(node.inputs[0])) return absl::OkStatus();
    const int64_t rank = Rank(node.inputs[0]);
    Node last_node = node;
    last_node.inputs[0] = Transposed(node.inputs[0], ToLast(rank));
    last_node.outputs.clear();
    const NodeId last = graph_.AddNode(std::move(last_node), static_cast<int>(node.outputs.size()));
    const std::vector<ValueId> results = graph_.node(last).outputs;
    for (size_t i = 0; i < results.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      Value& result = graph_.value(results[i]);
      result.dtype = graph_.value(node.outputs[i]).dtype;
      result.shape = graph_.value(node.outputs[i]).shape;
    }
    graph_.value(results[0]).shape = graph_.value(graph_.node(last).inputs[0]).shape;
    for (size_t i = 0; i < results.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      graph_.ReplaceUses(node.outputs[i],
                         i == 0 ? Transposed(results[0], ToFirst(rank)) : results[i]);
    }
    graph_.RemoveNode(id);
    return absl::OkStatus();
  }

  absl::Status SinkThroughConcat(NodeId id) {
    const Node node = graph_.node(id);
    const int64_t rank = Rank(node.outputs[0]);
    if (rank < 3) return absl::OkStatus();
    for (ValueId input : node.inputs) {
      if (!IsFromLast(input)) return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(int64_t axis, node.Int("axis", 0));
    if (axis < 0) axis += rank;
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(Transposed(input, ToLast(rank)));
    absl::flat_hash_map<std::string, Attribute> attributes = node.attributes;
    attributes["axis"] = ToFirst(rank)[static_cast<size_t>(axis)];
    return ReplaceByLast(id, node.domain, std::move(inputs), std::move(attributes));
  }

  Graph& graph_;
  absl::flat_hash_map<std::pair<ValueId, Permutation>, ValueId> transposed_;
};

}  // namespace

absl::Status UseChannelsLast(Graph& graph) { return Layout(graph).Run(); }

}  // namespace stampmill
