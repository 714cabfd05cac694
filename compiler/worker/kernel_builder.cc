#include "compiler/worker/kernel_builder.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <numeric>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "compiler/compiler_abi.h"
#include "compiler/limits.h"
#include "compiler/llvm/codegen.h"

namespace stampmill {
namespace {

class Builder {
 public:
  Builder(std::span<const KernelJob> kernels, const KernelBuildOptions& options, KernelCache& cache)
      : kernels_(kernels), options_(options), cache_(cache) {
    for (const KernelJob& kernel : kernels) {
      keys_.push_back(KernelKey(kernel.canonical_bytes, options.target));
    }
    built_.placement.assign(kernels.size(), -1);
  }

  absl::StatusOr<BuiltKernels> Build() {
    const std::vector<size_t> missing = Reuse();
    const std::vector<std::vector<size_t>> groups = Groups(missing);
    to_compile_ = static_cast<int64_t>(missing.size());
    std::atomic<size_t> next{0};
    const auto work = [this, &groups, &next] {
      for (size_t i = next++; i < groups.size(); i = next++) {
        if (!CompileGroup(groups[i])) return;
      }
    };
    const size_t threads =
        std::min<size_t>(static_cast<size_t>(std::max(options_.threads, 1)), groups.size());
    std::vector<std::thread> helpers;
    for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    if (threads > 0) work();
    for (std::thread& helper : helpers) helper.join();
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(status_);
    return std::move(built_);
  }

 private:
  // Places what the cache has; returns the rest. The artifact is read whole: a corrupt one is
  // compiled anew now and not found wanting at the model's load.
  std::vector<size_t> Reuse() {
    absl::MutexLock lock(&mutex_);
    std::vector<size_t> missing;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const absl::StatusOr<KernelRecord> record = cache_.FindKernel(keys_[i]);
      if (record.ok() && record->entry == KernelEntryName(keys_[i]) &&
          cache_.Get(record->artifact).ok()) {
        Place(i, record->artifact);
        ++built_.reused;
      } else {
        missing.push_back(i);
      }
    }
    return missing;
  }

  // Large kernels are dealt out first, so that the groups take about as long as each other. The
  // grouping does not depend on the number of threads: the same model gives the same artifacts.
  std::vector<std::vector<size_t>> Groups(std::vector<size_t> kernels) const {
    std::sort(kernels.begin(), kernels.end(), [this](size_t a, size_t b) {
      return std::pair(kernels_[b].canonical_bytes.size(), a) <
             std::pair(kernels_[a].canonical_bytes.size(), b);
    });
    constexpr size_t kMax = kKernelsPerArtifactMax;
    std::vector<std::vector<size_t>> groups((kernels.size() + kMax - 1) / kMax);
    for (size_t i = 0; i < kernels.size(); ++i) groups[i % groups.size()].push_back(kernels[i]);
    return groups;
  }

  // False when this or another group failed.
  bool CompileGroup(const std::vector<size_t>& group) {
    {
      absl::MutexLock lock(&mutex_);
      if (!status_.ok()) return false;
    }
    absl::Status status = TryCompileGroup(group);
    absl::MutexLock lock(&mutex_);
    if (!status.ok() && status_.ok()) status_ = std::move(status);
    return status_.ok();
  }

  absl::Status TryCompileGroup(const std::vector<size_t>& group) {
    std::vector<KernelSource> sources;
    for (const size_t i : group) {
      sources.push_back({.name = KernelEntryName(keys_[i]), .body = kernels_[i].body});
    }
    std::string artifact;
    try {
      ASSIGN_OR_RETURN(artifact, CompileKernels(sources, options_.target, CodegenOptions{}));
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("compile worker: out of memory while generating code");
    }
    ASSIGN_OR_RETURN(const Digest digest, cache_.Put(AsBytes(artifact)));
    for (const size_t i : group) {
      RETURN_IF_ERROR(
          cache_.PutKernel(keys_[i], {.artifact = digest, .entry = KernelEntryName(keys_[i])}));
    }
    absl::MutexLock lock(&mutex_);
    for (const size_t i : group) Place(i, digest);
    built_.compiled += static_cast<int64_t>(group.size());
    if (options_.progress) {
      options_.progress(
          absl::StrCat("compiled ", built_.compiled, " of ", to_compile_, " kernels"));
    }
    return absl::OkStatus();
  }

  void Place(size_t kernel, const Digest& artifact) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto [place, is_new] =
        artifact_index_.emplace(artifact, static_cast<int32_t>(built_.artifacts.size()));
    if (is_new) built_.artifacts.push_back(artifact);
    built_.placement[kernel] = place->second;
  }

  const std::span<const KernelJob> kernels_;
  const KernelBuildOptions& options_;
  KernelCache& cache_;
  std::vector<Digest> keys_;
  int64_t to_compile_ = 0;

  absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  BuiltKernels built_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, int32_t> artifact_index_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

Digest KernelKey(absl::string_view canonical_bytes, const Target& target) {
  Sha256Stream hash;
  hash.Update(absl::StrCat("stampmill kernel key 1\n", target.ToString(), "\n",
                           CompilerAbi().ToHex(), "\n"));
  hash.Update(canonical_bytes);
  return hash.Finish();
}

std::string KernelEntryName(const Digest& key) {
  // 96 bits tell the kernels of one artifact apart.
  return absl::StrCat("k_", key.ToHex().substr(0, 24));
}

absl::StatusOr<BuiltKernels> BuildKernels(std::span<const KernelJob> kernels,
                                          const KernelBuildOptions& options, KernelCache& cache) {
  return Builder(kernels, options, cache).Build();
}

}  // namespace stampmill
