// The Compile() seam: the one way from a model file to a compiled model, for serve, run and compile
// alike. Chosen at run time: the client of the compile worker where
// libstampmill_compiler.so stands beside the program, none else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/kernel_cache.h"

namespace stampmill {

struct CompileRequest {
  std::string model_path;
  std::string target;              // devices/target.h's text
  std::string options;             // compiler/worker/compile_job.h; empty: the defaults
  int32_t threads = 0;             // code generation threads; 0: as many as the process may use
  int64_t memory_limit_bytes = 0;  // of the worker; 0: limits.h's default
  int64_t time_limit_seconds = 0;  // likewise
  // The program that is started with the argument `compile-worker`; empty: this one.
  std::string worker_program;
  // Called on the calling thread with lines such as "compiling 12 of 40 kernels".
  std::function<void(absl::string_view)> progress;
};

struct CompileStatistics {
  int64_t kernels_compiled = 0;
  int64_t kernels_reused = 0;
  double seconds = 0;  // 0 when another thread or process had compiled it meanwhile
};

// What the cache knows the compiled form of a request by.
ModelSource SourceOf(const CompileRequest& request);

// What is done with a compiled model before it can be pruned, by this process or another.
using OpenCompiledModel = std::function<absl::Status(const ModelRecord&)>;

// Compiles the model unless the cache has it: takes the cache's lock for it, so that threads and
// processes that want the same model wait for the first, and runs a compile worker to the end. When
// the cache cannot be written the objects come back as memfds that `cache` holds for this process
// only.
//
// `open`, if any, is called with the record of the model while the lock is held; what it takes out
// of the cache it keeps. DATA_LOSS from it has the model compiled again, what the cache then does
// not keep is compiled once more, into memory; its other errors are returned. Afterwards the cache
// is pruned to its limit: a model that does not fit is there no more, which is told.
// UNAVAILABLE names the library when there is none; INVALID_ARGUMENT and UNIMPLEMENTED are the
// model's; DEADLINE_EXCEEDED past the time limit; INTERNAL when the worker died, with its last
// words.
absl::StatusOr<CompileStatistics> Compile(const CompileRequest& request, KernelCache& cache,
                                          const OpenCompiledModel& open = nullptr);

}  // namespace stampmill
