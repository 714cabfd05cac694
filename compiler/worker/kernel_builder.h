// Code for the kernels of one model: those that the cache has by their key are reused, the rest are
// generated in groups on several threads, each group one artifact.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/kernel_cache.h"
#include "compiler/passes/compile_model.h"
#include "devices/target.h"

namespace stampmill {

// Names a kernel for good: its code, the target and the compiler that generates it.
Digest KernelKey(absl::string_view canonical_bytes, const Target& target);
// The entry under which an artifact has the kernel: equal kernels of all models share it.
std::string KernelEntryName(const Digest& key);

struct BuiltKernels {
  std::vector<Digest> artifacts;   // each once
  std::vector<int32_t> placement;  // kernel i lies in artifacts[placement[i]] as KernelEntryName
  int64_t compiled = 0;
  int64_t reused = 0;
};

struct KernelBuildOptions {
  Target target;
  int32_t threads = 1;
  std::function<void(absl::string_view)> progress;  // one call at a time, from any thread
};

absl::StatusOr<BuiltKernels> BuildKernels(std::span<const KernelJob> kernels,
                                          const KernelBuildOptions& options, KernelCache& cache);

}  // namespace stampmill
