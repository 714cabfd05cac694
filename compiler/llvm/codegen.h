// From stages (graph/nest.h) to machine code: an x86-64 shared object in an artifact. With the rest
// of this folder the only code that knows LLVM and lld.
//
// Each stage becomes one kernel of the ABI in devices/artifact.h. Its buffers are the stage's
// operands in order, then its outputs; its dims are those that CanonicalBytes numbers; its task
// count and scratch are PlanLaunch's. Outputs must not overlap operands. Errors of LLVM that it
// treats as fatal end the process: this runs in the compile worker.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "devices/target.h"
#include "graph/nest.h"

namespace stampmill {

struct KernelSource {
  std::string name;  // a C identifier, unique within the call
  StageBody body;    // Simplify-d; any dims
};

struct CodegenOptions {
  std::string* ir = nullptr;        // receives the module's text before optimisation
  std::string* assembly = nullptr;  // receives the assembly
};

// The artifact (Artifact::Serialize) that holds all of `kernels`. Equal input gives equal bytes.
// INTERNAL when a stage does not verify, UNIMPLEMENTED names what cannot be generated. Thread-safe:
// calls run side by side but for the linking.
absl::StatusOr<std::string> CompileKernels(std::span<const KernelSource> kernels,
                                           const Target& target, const CodegenOptions& options);

}  // namespace stampmill
