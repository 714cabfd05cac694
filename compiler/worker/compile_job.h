// What a compile worker does, as a function: import, passes, code generation on N threads, and the
// results into the cache. Links LLVM; tests of the compiler call it directly.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/hash.h"
#include "compiler/cache/kernel_cache.h"
#include "compiler/passes/compile_model.h"
#include "graph/graph.h"

namespace stampmill {

struct CompileJob {
  std::string model_path;
  std::string target;   // devices/target.h's text
  std::string options;  // ParsePassOptions
  int32_t threads = 1;
  // From one thread at a time, in order.
  std::function<void(absl::string_view)> progress;
};

struct BuildOptions {
  PassOptions passes;
  int32_t threads = 1;
  std::function<void(absl::string_view)> progress;  // as CompileJob's
};

// A model whose program, artifacts and weights are in the cache.
struct BuiltModel {
  Digest program;
  std::vector<Digest> objects;  // what the program needs: artifacts, then weights where it has any
  int64_t kernels_compiled = 0;
  int64_t kernels_reused = 0;
};

// From a graph as imported to objects in `cache`; no record is made. Errors are CompileModel's and
// CompileKernels'.
absl::StatusOr<BuiltModel> BuildModel(Graph graph, const BuildOptions& options, KernelCache& cache);

struct CompileJobStatistics {
  int64_t kernels_compiled = 0;
  int64_t kernels_reused = 0;
  int64_t milliseconds = 0;
};

// `cache` has the objects and the model's record afterwards.
absl::StatusOr<CompileJobStatistics> RunCompileJob(const CompileJob& job, KernelCache& cache);

}  // namespace stampmill
