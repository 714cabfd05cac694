// StageGraph: a model between lowering and the program: stages (graph/nest.h) over values. Fusion
// works here, on expressions, and knows no operators.
//
// Values are dense tensors with symbolic shapes. A value may be an alias: the bytes of another
// value under another shape. Several stages may write disjoint parts of one value (Concat). Stages
// are in an order that respects data flow. Owned by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/nest.h"
#include "kernels/op.h"

namespace stampmill {

struct StageValue {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape shape;
  std::optional<Tensor> constant;
  ValueId alias_of = kNoValue;  // same bytes as this value, which is itself no alias
};

struct Stage {
  StageBody body;
  std::vector<ValueId> operands;  // the value behind each operand of the body
  std::vector<ValueId> outputs;   // one, but for Library
  std::string label;              // "Conv+Relu": which operators it computes
  bool removed = false;
};

struct StageGraph {
  std::vector<StageValue> values;
  std::vector<Stage> stages;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<std::string> output_names;

  const StageValue& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  // The value whose bytes `id` has.
  ValueId Root(ValueId id) const {
    return value(id).alias_of == kNoValue ? id : value(id).alias_of;
  }
  bool IsGraphOutput(ValueId root) const;
  bool IsGraphInput(ValueId root) const;
  // Stages that are not removed and read or write `root` or an alias of it, in order.
  std::vector<int32_t> Readers(ValueId root) const;
  std::vector<int32_t> Writers(ValueId root) const;
  void DropRemoved();
  std::string ToString() const;
};

// Lowers every node with the first variant that applies. `graph` has shapes.
absl::StatusOr<StageGraph> LowerGraph(const Graph& graph, const LowerOptions& options);

// Removes stages whose results nobody reads.
void RemoveUnreadStages(StageGraph& stages);

// Every stage verifies, its operands and outputs agree with the values in dtype and shape, and a
// value is written before it is read.
absl::Status Verify(const StageGraph& stages);

}  // namespace stampmill
