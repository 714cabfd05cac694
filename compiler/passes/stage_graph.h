// StageGraph: a model between lowering and the program: stages (graph/nest.h) over values. Fusion
// works here, on expressions, and knows no operators.
//
// Values are dense tensors with symbolic shapes. A value may be an alias: the bytes of another
// value under another shape. Several stages may write disjoint parts of one value (Concat). Stages
// are in an order that respects data flow. Owned by one thread.
#pragma once

#include <cstdint>
#include <optional>
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
  ValueId alias_of = kNoValue;  // same bytes as this value (itself no alias), row-major order kept
  int32_t input = -1;           // position in the program's inputs
};

struct Stage {
  StageBody body;
  std::vector<ValueId> operands;  // value behind each operand of the body
  std::vector<ValueId> outputs;   // one, but for Library
  std::string label;              // "Conv conv1+Relu": which operators it computes
  bool removed = false;
};

struct StageGraph {
  std::vector<StageValue> values;
  std::vector<Stage> stages;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<std::string> output_names;

  // The value whose bytes `value` has.
  ValueId Root(ValueId value) const;
};

// Lowers every node with the first variant that applies.
absl::StatusOr<StageGraph> LowerGraph(const Graph& graph, const LowerOptions& options);

// Inlines maps into their users, folds maps into the epilogues of contractions and reductions,
// merges reductions over the same rows (compiler/passes/fuse.cc says by what rules).
void FuseStages(StageGraph& stages);

}  // namespace stampmill
