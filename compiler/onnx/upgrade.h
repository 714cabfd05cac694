// Operators of the default domain in older opsets, brought to the form of the newest one: what was
// an attribute becomes an input, what meant something else is said in today's terms. Everything
// behind the importer knows one form of each operator. Operators of com.microsoft are said in those
// of the default domain where they can be (microsoft.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"

namespace stampmill {

// Versions of the default domain that UpgradeNode knows.
inline constexpr int64_t kOnnxOpsetMin = 7;
inline constexpr int64_t kOnnxOpsetMax = 28;

// A node on its way into a graph.
struct NodeDraft {
  Graph& graph;
  Node node;                              // without outputs
  std::vector<std::string> output_names;  // "": left out
  // Values in place of outputs, where the upgrade made nodes itself; kNoValue for those that it has
  // not. Else `node` is to be added.
  std::optional<std::vector<ValueId>> results;
};

// UNIMPLEMENTED for forms that have no equal in the newest opset, INVALID_ARGUMENT for attributes
// that cannot be; both name the node. Other domains are left as they are.
absl::Status UpgradeNode(NodeDraft& draft);

}  // namespace stampmill
