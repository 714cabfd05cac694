#include "compiler/compile.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "compiler/compiler_abi.h"
#include "compiler/limits.h"
#include "compiler/worker/protocol.h"
#include "compiler/worker/worker_process.h"
#include "devices/host.h"

namespace stampmill {
namespace {

// Takes over what the worker could not write to the cache.
class ResultTaker {
 public:
  ResultTaker(const CompileRequest& request, KernelCache& cache)
      : request_(request), cache_(cache) {}

  absl::Status Take(Frame frame) {
    switch (frame.kind) {
      case FrameKind::kProgress: {
        ASSIGN_OR_RETURN(const std::string line, frame.Line());
        if (request_.progress) request_.progress(line);
        return absl::OkStatus();
      }
      case FrameKind::kRefused: {
        ASSIGN_OR_RETURN(const std::string line, frame.Line());
        cache_.CountRefused(line);
        return absl::OkStatus();
      }
      case FrameKind::kUnwritten: {
        ASSIGN_OR_RETURN(const std::string line, frame.Line());
        cache_.TellUnwritten(line);
        return absl::OkStatus();
      }
      case FrameKind::kObject: {
        ASSIGN_OR_RETURN(const Digest digest, frame.ObjectDigest());
        return cache_.Adopt(digest, std::move(frame.file));
      }
      case FrameKind::kModel: {
        ASSIGN_OR_RETURN(const uint64_t size, FileSize(frame.file));
        ASSIGN_OR_RETURN(const Mapping text,
                         Mapping::Map(frame.file, 0, size, Mapping::Access::kRead));
        ASSIGN_OR_RETURN(const ModelRecord record,
                         ModelRecord::Parse({reinterpret_cast<const char*>(text.bytes().data()),
                                             text.bytes().size()}));
        return cache_.PutModel(record);
      }
      default:
        return absl::InternalError("compile worker: a frame out of place");
    }
  }

 private:
  const CompileRequest& request_;
  KernelCache& cache_;
};

// A worker that takes all memory would take the daemon with it.
int64_t MemoryLimit() {
  return std::min(kWorkerMemoryBytesDefault,
                  UsableMemoryBytes() / 4 * kWorkerMemoryQuartersDefault);
}

WorkerRequest RequestFor(const CompileRequest& request, const KernelCache& cache) {
  return {.model_path = request.model_path,
          .target = request.target,
          .options = request.options,
          .threads = request.threads > 0 ? request.threads : UsableCpuCount(),
          .cache_directory = cache.directory(),
          .cache_is_default = cache.is_default(),
          .cache_writable = !cache.read_only(),
          .memory_limit_bytes =
              request.memory_limit_bytes > 0 ? request.memory_limit_bytes : MemoryLimit()};
}

absl::StatusOr<CompileStatistics> RunWorker(const CompileRequest& request,
                                            const WorkerRequest& worker_request,
                                            KernelCache& cache) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<WorkerProcess> worker,
      WorkerProcess::Start(
          {.program = request.worker_program.empty() ? "/proc/self/exe" : request.worker_program,
           .time_limit_seconds = request.time_limit_seconds > 0 ? request.time_limit_seconds
                                                                : kWorkerSecondsDefault}));
  ResultTaker taker(request, cache);
  ASSIGN_OR_RETURN(const WorkerResult result, worker->Run(worker_request, [&taker](Frame frame) {
    return taker.Take(std::move(frame));
  }));
  RETURN_IF_ERROR(result.status);
  return CompileStatistics{.kernels_compiled = result.kernels_compiled,
                           .kernels_reused = result.kernels_reused,
                           .seconds = static_cast<double>(result.milliseconds) / 1000};
}

absl::Status Open(const ModelSource& source, KernelCache& cache, const OpenCompiledModel& open) {
  ASSIGN_OR_RETURN(const ModelRecord record, cache.PeekModel(source));
  return open ? open(record) : absl::OkStatus();
}

// Whether Open says that the cache does not have the model, or damaged.
bool IsCompiledAgain(const absl::Status& opened) {
  return absl::IsNotFound(opened) || absl::IsDataLoss(opened);
}

}  // namespace

ModelSource SourceOf(const CompileRequest& request) {
  return {.path = request.model_path,
          .target = request.target,
          .options = request.options,
          .compiler_abi = CompilerAbi()};
}

absl::StatusOr<CompileStatistics> Compile(const CompileRequest& request, KernelCache& cache,
                                          const OpenCompiledModel& open) {
  const ModelSource source = SourceOf(request);
  CompileStatistics statistics;
  {
    ASSIGN_OR_RETURN(const KernelCache::Lock lock, cache.LockModel(source));
    absl::Status opened = Open(source, cache, open);
    if (!IsCompiledAgain(opened))
      return opened.ok() ? statistics : absl::StatusOr<CompileStatistics>(opened);
    WorkerRequest worker_request = RequestFor(request, cache);
    ASSIGN_OR_RETURN(statistics, RunWorker(request, worker_request, cache));
    opened = Open(source, cache, open);
    if (IsCompiledAgain(opened)) {
      LOG(WARNING) << request.model_path
                   << ": the cache does not keep what was compiled, compiling "
                   << "once more, into memory: " << opened.ToString();
      worker_request.cache_directory.clear();
      worker_request.cache_writable = false;
      ASSIGN_OR_RETURN(statistics, RunWorker(request, worker_request, cache));
      opened = Open(source, cache, open);
    }
    if (absl::IsNotFound(opened)) {
      return absl::InternalError(absl::StrCat("compile worker: says that ", request.model_path,
                                              " is compiled, but the cache does not have it"));
    }
    RETURN_IF_ERROR(opened);
  }
  // Only now: pruning waits for no compile, its own included.
  if (const absl::Status pruned = cache.PruneToLimit(); !pruned.ok()) {
    LOG(WARNING) << "cache: not pruned: " << pruned.ToString();
  } else if (!cache.HasModel(source)) {
    LOG(WARNING) << request.model_path << ": compiled for " << request.target
                 << ", but the cache does not keep it: larger than the cache may be, "
                 << cache.size_bytes_max() << " bytes; every start compiles it again";
  }
  return statistics;
}

}  // namespace stampmill
