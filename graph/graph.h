// The graph: a model between importer and lowering. Nodes are operators in the form of the newest
// opset they are known in, values carry dtype, symbolic shape and, where known, constant contents
// or contents as DimExprs (integer tensors that only feed shapes are followed symbolically).
//
// Nodes are kept in topological order. Owned by one thread at a time. ValueIds are dense and never
// reused; a removed node's outputs have no producer and no use.
//
// Bodies of If, Loop and Scan are graphs of their own, in attributes. What a body uses of the graph
// around it is an explicit input: the last `captures` inputs of the body, given by as many last
// inputs of the node, in the same order for each body of a node. Constants of the outer graph are
// repeated in the body instead (tensors share their bytes).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/dim.h"
#include "graph/dtype.h"
#include "graph/tensor.h"

namespace stampmill {

class Graph;

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an optional input or output that is left out

using Attribute =
    std::variant<int64_t, float, std::string, Tensor, std::vector<int64_t>, std::vector<float>,
                 std::vector<std::string>, std::shared_ptr<const Graph>>;

struct Value {
  std::string name;
  DType dtype = DType::kInvalid;   // kInvalid until inferred
  std::optional<Shape> shape;      // nullopt until inferred
  std::optional<Tensor> constant;  // contents, when known at compile time
  // Contents of a tensor of rank <= 1 (or a few elements) as expressions, row-major, where they are
  // whole numbers; set whenever `constant` is set for such a tensor of integers or bools too.
  std::optional<std::vector<DimExpr>> symbolic;
  NodeId producer = -1;  // -1: graph input, constant, or removed
};

struct Node {
  std::string op_type;  // "Conv"
  std::string domain;   // "" is ai.onnx; "com.microsoft"; "stampmill" for our own
  std::string name;     // of the model file, for messages
  int32_t opset = 0;    // version of the domain that the model declared
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  absl::flat_hash_map<std::string, Attribute> attributes;
  bool removed = false;

  // Typed access; the default when absent, INVALID_ARGUMENT naming node and attribute for another
  // type. The Find forms return null when absent or of another type.
  absl::StatusOr<int64_t> Int(absl::string_view attribute, int64_t otherwise) const;
  absl::StatusOr<float> Float(absl::string_view attribute, float otherwise) const;
  absl::StatusOr<std::string> String(absl::string_view attribute,
                                     absl::string_view otherwise) const;
  absl::StatusOr<std::vector<int64_t>> Ints(absl::string_view attribute,
                                            std::vector<int64_t> otherwise) const;
  absl::StatusOr<std::vector<float>> Floats(absl::string_view attribute) const;  // absent: empty
  const Tensor* FindTensor(absl::string_view attribute) const;
  bool Has(absl::string_view attribute) const { return attributes.contains(attribute); }

  // "node 'n12' (Conv, opset 15)": the start of every message about it.
  std::string Describe() const;
};

// A condition on the dims of a request: `nonzero` must not evaluate to 0 (Program::Check).
struct DimCheck {
  DimExpr nonzero;
  std::string message;
};

// What an operator demands of an integer input of the model whose elements it reads at: each in
// [-limit, limit - 1] (Program::IndexBound).
struct IndexBound {
  ValueId input = kNoValue;
  int64_t limit = 0;
  std::string reader;  // who demands it
};

// A symbol that stands for one element of an integer or bool input of the model: the request's
// bytes give its value, beside the symbols that its shapes give.
struct ValueSymbol {
  std::string name;
  ValueId input = kNoValue;
  int64_t element = 0;  // row-major
};

class Graph {
 public:
  ValueId AddValue(Value value);
  ValueId AddInput(absl::string_view name, DType dtype, Shape shape);
  // For inputs of bodies, whose shapes are inferred from the node they belong to.
  ValueId AddInput(Value value);
  ValueId AddConstant(absl::string_view name, Tensor tensor);
  // Appends a node with `output_count` new values; they are named after the node unless names are
  // given. Inputs must exist (CHECK: callers are builders and passes; the importer checks first).
  NodeId AddNode(Node node, int output_count);
  // The same for outputs that are there already, in node.outputs: values without a producer, or
  // kNoValue (CHECK).
  NodeId AddNode(Node node);
  // One-output shorthand for builders and passes.
  ValueId Op(absl::string_view op_type, absl::string_view domain, std::vector<ValueId> inputs,
             absl::flat_hash_map<std::string, Attribute> attributes = {});
  void SetOutputs(std::vector<ValueId> outputs) { outputs_ = std::move(outputs); }
  // In place of those added. What is no longer one must have no use.
  void SetInputs(std::vector<ValueId> inputs) { inputs_ = std::move(inputs); }
  void RemoveNode(NodeId node);
  // Every use of `from`, graph outputs included, becomes `to`.
  void ReplaceUses(ValueId from, ValueId to);

  std::span<const ValueId> inputs() const { return inputs_; }
  std::span<const ValueId> outputs() const { return outputs_; }
  // Names of the outputs as the model file has them, parallel to outputs().
  const std::vector<std::string>& output_names() const { return output_names_; }
  void set_output_names(std::vector<std::string> names) { output_names_ = std::move(names); }

  Value& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  size_t value_count() const { return values_.size(); }
  size_t node_count() const { return nodes_.size(); }
  // Ids of the nodes that are not removed, in topological order.
  std::vector<NodeId> Order() const;
  // Number of uses of each value by nodes and graph outputs.
  std::vector<int32_t> UseCounts() const;

  // Conditions under which the inferred shapes are right for a request, each once.
  void AddCheck(DimCheck check);
  std::span<const DimCheck> checks() const { return checks_; }
  // One for each input: the tightest.
  void AddIndexBound(IndexBound bound);
  std::span<const IndexBound> index_bounds() const { return index_bounds_; }

  // Which elements of inputs are followed as symbols.
  void AddValueSymbol(ValueSymbol symbol) { value_symbols_.push_back(std::move(symbol)); }
  std::span<const ValueSymbol> value_symbols() const { return value_symbols_; }

  // Removes nodes whose outputs nobody uses. Returns how many.
  int RemoveDeadNodes();
  // Sorts nodes topologically; INVALID_ARGUMENT names a node on a cycle.
  absl::Status SortTopologically();
  // Every value used is a graph input, a constant or the output of an earlier node; produced once.
  // INTERNAL: a pass has a defect.
  absl::Status Verify() const;
  std::string ToString() const;

  // How many of the last inputs stand for values of the graph around this body.
  int32_t captures = 0;
  // How many of the last inputs are state (a cache of keys and values): memory that outlives a run,
  // which operators that name it write in place. What such an operator gives is the same state
  // after it; a state has one writer in a run, and nobody reads it as it was before. Not in bodies.
  int32_t states = 0;

  // File-level facts the importer keeps for `inspect` and metadata.
  std::string name;
  std::string producer;  // name and version
  int64_t ir_version = 0;
  absl::flat_hash_map<std::string, int64_t> opsets;           // declared version by domain
  std::vector<std::pair<std::string, std::string>> metadata;  // as in the file

 private:
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<NodeId> order_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> outputs_;
  std::vector<std::string> output_names_;
  std::vector<DimCheck> checks_;
  std::vector<IndexBound> index_bounds_;
  std::vector<ValueSymbol> value_symbols_;
};

inline void Graph::AddCheck(DimCheck check) {
  for (const DimCheck& known : checks_) {
    if (known.nonzero == check.nonzero) return;
  }
  checks_.push_back(std::move(check));
}

inline void Graph::AddIndexBound(IndexBound bound) {
  for (IndexBound& known : index_bounds_) {
    if (known.input != bound.input) continue;
    if (bound.limit < known.limit) known = std::move(bound);
    return;
  }
  index_bounds_.push_back(std::move(bound));
}

}  // namespace stampmill
