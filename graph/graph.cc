#include "graph/graph.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace stampmill {
namespace {

template <typename T>
absl::StatusOr<T> GetAttribute(const Node& node, absl::string_view name, T otherwise) {
  const auto it = node.attributes.find(name);
  if (it == node.attributes.end()) return otherwise;
  if (const T* value = std::get_if<T>(&it->second)) return *value;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": attribute '", name, "' has the wrong type"));
}

// What a person needs to tell one attribute from another; long contents are cut.
std::string AttributeText(const Attribute& attribute) {
  struct Printer {
    std::string operator()(int64_t value) const { return absl::StrCat(value); }
    std::string operator()(float value) const { return absl::StrCat(value); }
    std::string operator()(const std::string& value) const {
      return absl::StrCat("'", value.substr(0, 40), "'");
    }
    std::string operator()(const Tensor& value) const {
      return absl::StrCat(Name(value.dtype()), "[", absl::StrJoin(value.shape(), ", "), "]");
    }
    std::string operator()(const std::vector<int64_t>& values) const {
      return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
    }
    std::string operator()(const std::vector<float>& values) const {
      return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
    }
    std::string operator()(const std::vector<std::string>& values) const {
      return absl::StrCat("['", absl::StrJoin(values, "', '"), "']");
    }
    std::string operator()(const std::shared_ptr<const Graph>& value) const {
      return absl::StrCat("graph of ", value->Order().size(), " nodes");
    }
  };
  return std::visit(Printer(), attribute);
}

}  // namespace

absl::StatusOr<int64_t> Node::Int(absl::string_view attribute, int64_t otherwise) const {
  return GetAttribute<int64_t>(*this, attribute, otherwise);
}

absl::StatusOr<float> Node::Float(absl::string_view attribute, float otherwise) const {
  return GetAttribute<float>(*this, attribute, otherwise);
}

absl::StatusOr<std::string> Node::String(absl::string_view attribute,
                                         absl::string_view otherwise) const {
  return GetAttribute<std::string>(*this, attribute, std::string(otherwise));
}

absl::StatusOr<std::vector<int64_t>> Node::Ints(absl::string_view attribute,
                                                std::vector<int64_t> otherwise) const {
  return GetAttribute<std::vector<int64_t>>(*this, attribute, std::move(otherwise));
}

absl::StatusOr<std::vector<float>> Node::Floats(absl::string_view attribute) const {
  return GetAttribute<std::vector<float>>(*this, attribute, {});
}

const Tensor* Node::FindTensor(absl::string_view attribute) const {
  const auto it = attributes.find(attribute);
  return it == attributes.end() ? nullptr : std::get_if<Tensor>(&it->second);
}

std::string Node::Describe() const {
  return absl::StrCat("node '", name, "' (", domain, domain.empty() ? "" : ":", op_type, ", opset ",
                      opset, ")");
}

ValueId Graph::AddValue(Value value) {
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::AddInput(absl::string_view name, DType dtype, Shape shape) {
  return AddInput({.name = std::string(name), .dtype = dtype, .shape = std::move(shape)});
}

ValueId Graph::AddInput(Value value) {
  inputs_.push_back(AddValue(std::move(value)));
  return inputs_.back();
}

ValueId Graph::AddConstant(absl::string_view name, Tensor tensor) {
  Shape shape(tensor.shape().begin(), tensor.shape().end());
  return AddValue({.name = std::string(name),
                   .dtype = tensor.dtype(),
                   .shape = std::move(shape),
                   .constant = std::move(tensor)});
}

NodeId Graph::AddNode(Node node, int output_count) {
  CHECK_GE(output_count, 0);
  node.outputs.clear();
  std::string stem = node.name.empty() ? absl::StrCat(node.op_type, "_", nodes_.size()) : node.name;
  for (int i = 0; i < output_count; ++i) {
    node.outputs.push_back(
        AddValue({.name = output_count == 1 ? stem : absl::StrCat(stem, ":", i)}));
  }
  return AddNode(std::move(node));
}

NodeId Graph::AddNode(Node node) {
  const NodeId id = static_cast<NodeId>(nodes_.size());
  const auto exists = [this](ValueId value) {
    return value >= 0 && static_cast<size_t>(value) < values_.size();
  };
  for (const ValueId input : node.inputs) CHECK(input == kNoValue || exists(input)) << input;
  for (const ValueId output : node.outputs) {
    if (output == kNoValue) continue;
    CHECK(exists(output)) << output;
    CHECK_EQ(value(output).producer, -1) << value(output).name;
    value(output).producer = id;
  }
  nodes_.push_back(std::move(node));
  order_.push_back(id);
  return id;
}

ValueId Graph::Op(absl::string_view op_type, absl::string_view domain, std::vector<ValueId> inputs,
                  absl::flat_hash_map<std::string, Attribute> attributes) {
  const auto opset = opsets.find(domain);
  const NodeId id =
      AddNode({.op_type = std::string(op_type),
               .domain = std::string(domain),
               .opset = opset == opsets.end() ? 0 : static_cast<int32_t>(opset->second),
               .inputs = std::move(inputs),
               .attributes = std::move(attributes)},
              1);
  return node(id).outputs[0];
}

void Graph::RemoveNode(NodeId id) {
  Node& removed = node(id);
  removed.removed = true;
  for (const ValueId output : removed.outputs) {
    if (output != kNoValue) value(output).producer = -1;
  }
  removed.inputs.clear();
  removed.outputs.clear();
  removed.attributes.clear();
}

void Graph::ReplaceUses(ValueId from, ValueId to) {
  for (Node& node : nodes_) std::replace(node.inputs.begin(), node.inputs.end(), from, to);
  std::replace(outputs_.begin(), outputs_.end(), from, to);
}

std::vector<NodeId> Graph::Order() const {
  std::vector<NodeId> order;
  order.reserve(order_.size());
  for (const NodeId id : order_) {
    if (!node(id).removed) order.push_back(id);
  }
  return order;
}

std::vector<int32_t> Graph::UseCounts() const {
  std::vector<int32_t> counts(values_.size(), 0);
  const auto count = [&counts](ValueId id) {
    if (id != kNoValue) ++counts[static_cast<size_t>(id)];
  };
  for (const Node& node : nodes_) {
    for (const ValueId input : node.inputs) count(input);
  }
  for (const ValueId output : outputs_) count(output);
  return counts;
}

int Graph::RemoveDeadNodes() {
  std::vector<int32_t> uses = UseCounts();
  int removed = 0;
  const std::vector<NodeId> order = Order();
  // Backwards: users come before what they use.
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& candidate = node(*it);
    const bool used = std::any_of(
        candidate.outputs.begin(), candidate.outputs.end(),
        [&uses](ValueId id) { return id != kNoValue && uses[static_cast<size_t>(id)] > 0; });
    if (used) continue;
    for (const ValueId input : candidate.inputs) {
      if (input != kNoValue) --uses[static_cast<size_t>(input)];
    }
    RemoveNode(*it);
    ++removed;
  }
  return removed;
}

absl::Status Graph::SortTopologically() {
  const std::vector<NodeId> before = Order();
  std::vector<int32_t> position(nodes_.size(), 0);
  std::vector<int32_t> waiting(nodes_.size(), 0);
  std::vector<std::vector<NodeId>> users(nodes_.size());
  const auto producer_of = [this](ValueId id) {
    return id == kNoValue ? NodeId{-1} : value(id).producer;
  };
  for (size_t i = 0; i < before.size(); ++i) {
    position[static_cast<size_t>(before[i])] = static_cast<int32_t>(i);
    for (const ValueId input : node(before[i]).inputs) {
      const NodeId producer = producer_of(input);
      if (producer < 0) continue;
      users[static_cast<size_t>(producer)].push_back(before[i]);
      ++waiting[static_cast<size_t>(before[i])];
    }
  }
  // Of the nodes that could come next, the one that came first before: a sorted graph stays as it
  // is.
  const auto later = [&position](NodeId a, NodeId b) {
    return position[static_cast<size_t>(a)] > position[static_cast<size_t>(b)];
  };
  std::priority_queue<NodeId, std::vector<NodeId>, decltype(later)> ready(later);
  for (const NodeId id : before) {
    if (waiting[static_cast<size_t>(id)] == 0) ready.push(id);
  }
  std::vector<NodeId> after;
  while (!ready.empty()) {
    const NodeId next = ready.top();
    ready.pop();
    after.push_back(next);
    for (const NodeId user : users[static_cast<size_t>(next)]) {
      if (--waiting[static_cast<size_t>(user)] == 0) ready.push(user);
    }
  }
  if (after.size() == before.size()) {
    order_ = std::move(after);
    return absl::OkStatus();
  }
  // Going from a node that waits to a producer that waits never ends: after as many steps as there
  // are nodes it runs on a cycle.
  NodeId at = *std::find_if(before.begin(), before.end(),
                            [&waiting](NodeId id) { return waiting[static_cast<size_t>(id)] > 0; });
  for (size_t step = 0; step < before.size(); ++step) {
    for (const ValueId input : node(at).inputs) {
      const NodeId producer = producer_of(input);
      if (producer >= 0 && waiting[static_cast<size_t>(producer)] > 0) {
        at = producer;
        break;
      }
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(node(at).Describe(), ": depends on its own output (a cycle)"));
}

absl::Status Graph::Verify() const {
  std::vector<bool> known(values_.size(), false);
  const auto exists = [this](ValueId id) {
    return id >= 0 && static_cast<size_t>(id) < values_.size();
  };
  for (size_t i = 0; i < values_.size(); ++i) known[i] = values_[i].constant.has_value();
  for (const ValueId input : inputs_) {
    if (!exists(input)) return absl::InternalError(absl::StrCat("graph input ", input));
    known[static_cast<size_t>(input)] = true;
  }
  for (const NodeId id : Order()) {
    const Node& user = node(id);
    for (const ValueId input : user.inputs) {
      if (input == kNoValue) continue;
      if (!exists(input) || !known[static_cast<size_t>(input)]) {
        return absl::InternalError(absl::StrCat(
            user.Describe(), ": value '", exists(input) ? value(input).name : absl::StrCat(input),
            "' is used before it is made"));
      }
    }
    for (const ValueId output : user.outputs) {
      if (output == kNoValue) continue;
      if (!exists(output) || value(output).producer != id) {
        return absl::InternalError(
            absl::StrCat(user.Describe(), ": output ", output, " is not its own"));
      }
      known[static_cast<size_t>(output)] = true;
    }
  }
  for (const ValueId output : outputs_) {
    if (!exists(output) || !known[static_cast<size_t>(output)]) {
      return absl::InternalError(absl::StrCat("graph output ", output, " is made by nobody"));
    }
  }
  if (!output_names_.empty() && output_names_.size() != outputs_.size()) {
    return absl::InternalError("graph outputs and their names differ in number");
  }
  return absl::OkStatus();
}

std::string Graph::ToString() const {
  const auto text_of = [this](ValueId id) -> std::string {
    if (id == kNoValue) return "-";
    const Value& v = value(id);
    return absl::StrCat("'", v.name, "' ", v.dtype == DType::kInvalid ? "?" : Name(v.dtype),
                        v.shape.has_value() ? stampmill::ToString(*v.shape) : "[?]",
                        v.constant.has_value() ? " constant" : "");
  };
  const auto list = [&text_of](std::span<const ValueId> ids) {
    return absl::StrJoin(ids, ", ",
                         [&](std::string* out, ValueId id) { out->append(text_of(id)); });
  };
  std::string text = absl::StrCat("graph '", name, "'\n  inputs ", list(inputs_), "\n");
  for (const NodeId id : Order()) {
    const Node& n = node(id);
    std::vector<std::string> attributes;
    for (const auto& [key, attribute] : n.attributes) {
      attributes.push_back(absl::StrCat(key, "=", AttributeText(attribute)));
    }
    std::sort(attributes.begin(), attributes.end());
    absl::StrAppend(&text, "  ", list(n.outputs), " = ", n.domain, n.domain.empty() ? "" : ":",
                    n.op_type, "(", list(n.inputs), ")");
    if (!attributes.empty()) {
      absl::StrAppend(&text, " {", absl::StrJoin(attributes, ", "), "}");
    }
    text += "\n";
  }
  absl::StrAppend(&text, "  outputs ", list(outputs_), "\n");
  return text;
}

}  // namespace stampmill
