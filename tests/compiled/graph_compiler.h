// Compiles graphs within a test and makes them ready to run: the passes, generated code, program
// and weights of the compile worker, without its process and without a model file.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "compiler/cache/kernel_cache.h"
#include "compiler/passes/compile_model.h"
#include "devices/device.h"
#include "graph/graph.h"
#include "runtime/local_runner.h"

namespace stampmill {

// Owned by one thread. Models with equal kernels share their code.
class GraphCompiler {
 public:
  explicit GraphCompiler(PassOptions options) : options_(std::move(options)) {}

  // `device` takes code of the options' target, and outlives the runner.
  absl::StatusOr<std::unique_ptr<LocalRunner>> Compile(Graph graph, Device* device);

  // Over all models so far.
  int64_t kernels_compiled() const { return kernels_compiled_; }
  int64_t kernels_reused() const { return kernels_reused_; }

 private:
  PassOptions options_;
  std::unique_ptr<KernelCache> cache_;
  int64_t kernels_compiled_ = 0;
  int64_t kernels_reused_ = 0;
};

}  // namespace stampmill
