// From a graph to everything of a compiled model but machine code: the passes, in their order.
// Links no LLVM: `inspect` uses it too.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/passes/pass_options.h"
#include "compiler/program/program.h"
#include "graph/graph.h"
#include "graph/nest.h"
#include "graph/tensor.h"

namespace stampmill {

// One kernel to generate. Two launches that need the same code share one.
struct KernelJob {
  std::string name;  // unique within the model, a C identifier
  StageBody body;    // simplified; what the code generator takes
  std::string
      canonical_bytes;  // of body: with target and compiler ABI it is the kernel's cache key
};

struct WeightRange {
  uint64_t offset = 0;  // in the packed weights file; multiple of 64
  Tensor tensor;
};

struct CompiledModel {
  // Complete but for code: ProgramCommand::artifact is an index into `kernels` and `entry` is that
  // kernel's name; program.artifacts and program.weights are empty.
  Program program;
  std::vector<KernelJob> kernels;
  std::vector<WeightRange> weights;  // ascending, not overlapping; gaps are zero
};

// `graph` as imported: shapes are inferred here. UNIMPLEMENTED and INVALID_ARGUMENT are the
// model's, INTERNAL is ours; each names the node.
absl::StatusOr<CompiledModel> CompileModel(Graph graph, const PassOptions& options);

// Replaces kernel indices by artifact indices: kernel i lies in artifacts[placement[i]] under its
// name.
void PlaceKernels(CompiledModel& model, const std::vector<int32_t>& placement,
                  std::vector<Digest> artifacts, const Digest& weights);

}  // namespace stampmill
