// From a model file to a ModelImage: the kernel cache's answer, or a compile and then the cache's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/kernel_cache.h"
#include "compiler/cache/model_record.h"
#include "compiler/compile.h"
#include "runtime/model.h"

namespace stampmill {

// Opens what `record` names: program, artifacts, weights, all verified. DATA_LOSS when the cache's
// objects are damaged or missing, so that the model must be compiled again.
absl::StatusOr<ModelImage> OpenModelImage(const ModelRecord& record, KernelCache& cache);

struct ModelImageOptions {
  std::string target;   // devices/target.h's text
  std::string options;  // of the compiler, canonical; empty: the defaults
  int32_t compile_threads = 0;
  bool require_warm_cache = false;                  // a needed compile is FAILED_PRECONDITION
  std::string worker_program;                       // see compiler/compile.h
  std::function<void(absl::string_view)> progress;  // lines for people
};

// The compiled form of the model file at `path`. What the cache has and what it cannot give because
// it is damaged or old is compiled once and kept there. Errors name the file or the model's fault.
absl::StatusOr<ModelImage> FindOrCompileModel(const std::string& path,
                                              const ModelImageOptions& options, KernelCache& cache);

// Only compiles, unless the cache has it (statistics are then 0): ahead-of-time compilation.
absl::StatusOr<CompileStatistics> EnsureCompiled(const std::string& path,
                                                 const ModelImageOptions& options,
                                                 KernelCache& cache);

}  // namespace stampmill
