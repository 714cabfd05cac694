#include <bit>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/passes/graph_passes.h"

namespace stampmill {
namespace {

// The attributes as text, in order of name; nullopt when one is a tensor or a graph, which are
// compared by nobody.
std::optional<std::string> AttributeText(const Node& node) {
  std::map<std::string, std::string> sorted;
  for (const auto& [name, attribute] : node.attributes) {
    std::string text;
    if (const auto* i = std::get_if<int64_t>(&attribute)) {
      text = absl::StrCat("i", *i);
    } else if (const auto* f = std::get_if<float>(&attribute)) {
      text = absl::StrCat("f", std::bit_cast<uint32_t>(*f));
    } else if (const auto* s = std::get_if<std::string>(&attribute)) {
      text = absl::StrCat("s", *s);
    } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&attribute)) {
      for (int64_t v : *ints) absl::StrAppend(&text, "l", v);
    } else {
      return std::nullopt;
    }
    sorted.emplace(name, std::move(text));
  }
  std::string text;
  for (const auto& [name, value] : sorted) {
    absl::StrAppend(&text, name.size(), ":", name, value.size(), ":", value);
  }
  return text;
}

}  // namespace

absl::Status MergeEqualNodes(Graph& graph) {
  using Key = std::tuple<std::string, std::string, std::vector<ValueId>, std::string>;
  std::map<Key, NodeId> known;
  for (NodeId id : graph.Order()) {
    const Node& node = graph.node(id);
    const std::optional<std::string> attributes = AttributeText(node);
    if (!attributes.has_value()) continue;
    const auto [found, added] =
        known.try_emplace(Key(node.op_type, node.domain, node.inputs, *attributes), id);
    if (added) continue;
    const Node& first = graph.node(found->second);
    if (first.outputs.size() != node.outputs.size()) continue;
    bool same_outputs = true;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      same_outputs &= (node.outputs[i] == kNoValue) == (first.outputs[i] == kNoValue);
    }
    if (!same_outputs) continue;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) graph.ReplaceUses(node.outputs[i], first.outputs[i]);
    }
    graph.RemoveNode(id);
  }
  return absl::OkStatus();
}

}  // namespace stampmill
