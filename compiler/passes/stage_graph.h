// StageGraph: a model between lowering and the program: stages (graph/nest.h) over values. Fusion
// works here, on expressions, and knows no operators.
//
// Values are dense tensors with symbolic shapes. A value may be an alias: the bytes of another
// value under another shape; or a slice of one. Several stages may write disjoint parts of one
// value (Concat). Stages are in an order that respects data flow, and in a tree of regions: those
// of a branch run under a condition, those of a repeat several times. Owned by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
  // A part of another value's elements, row-major from `offset` on; that value is no alias and no
  // slice. A slice is a value of its own to whoever reads and writes it: it is read where it was
  // written in the same iteration of the repeats around, or before them.
  ValueId slice_of = kNoValue;
  DimExpr offset;
};

struct Stage {
  StageBody body;
  std::vector<ValueId> operands;  // the value behind each operand of the body
  std::vector<ValueId> outputs;   // one, but for Library
  std::string label;              // "Conv+Relu": which operators it computes
  int32_t region = -1;            // that it lies in; -1: none
  bool removed = false;
  // A stage without a body: the host waits for its one operand, of one element, which is the value
  // of this late symbol from here on.
  std::string reads;
};

// Stages that run under a condition or several times. Those of a repeat, with the regions in it,
// follow each other; a branch is only a condition, and several stretches of stages may be in it.
struct StageRegion {
  enum class Kind : uint8_t { kBranch, kRepeat };
  Kind kind = Kind::kBranch;
  int32_t parent = -1;    // an earlier region; -1: none
  DimExpr count;          // kBranch: they run if it is > 0; kRepeat: so many times at most
  std::string iteration;  // kRepeat: the late symbol that numbers the iterations, from 0
  DimExpr proceed = 1;    // kRepeat: the last iteration is the first that leaves this <= 0
  std::string trips;      // kRepeat: the late symbol that says how many there were; or empty
};

struct StageGraph {
  std::vector<StageValue> values;
  std::vector<Stage> stages;
  std::vector<StageRegion> regions;
  // What late symbols, those of iterations, trips and reads, are at most.
  absl::flat_hash_map<std::string, DimExpr> late_limits;
  std::vector<ValueId> inputs;
  int32_t states = 0;  // Graph::states
  std::vector<ValueId> outputs;
  std::vector<std::string> output_names;

  const StageValue& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  // The value whose bytes `id` has.
  ValueId Root(ValueId id) const {
    return value(id).alias_of == kNoValue ? id : value(id).alias_of;
  }
  // The value that owns the memory of `id`.
  ValueId Owner(ValueId id) const {
    const ValueId root = Root(id);
    return value(root).slice_of == kNoValue ? root : value(root).slice_of;
  }
  bool IsSlice(ValueId root) const { return value(root).slice_of != kNoValue; }
  // Stages in `region` run whenever those in `outer` do, but for conditions: `outer` is the same
  // or around it, with no repeat between them.
  bool RunsOnceWithin(int32_t region, int32_t outer) const;
  bool IsGraphOutput(ValueId root) const;
  bool IsState(ValueId root) const;
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

// Every stage verifies, its operands and outputs agree with the values in dtype and shape, a value
// is written before it is read, and the stages of a repeat follow each other.
absl::Status Verify(const StageGraph& stages);

}  // namespace stampmill
