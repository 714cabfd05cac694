// The one exported function of libstampmill_compiler.so (worker_main.h has its contract).
#include <fcntl.h>
#include <sys/mman.h>

#include <exception>
#include <new>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "compiler/worker/compile_job.h"
#include "compiler/worker/protocol.h"

namespace stampmill {
namespace {

absl::StatusOr<FileDescriptor> SealedMemfd(absl::string_view text) {
  ASSIGN_OR_RETURN(FileDescriptor file, CreateMemfd("stampmill-record", 0));
  RETURN_IF_ERROR(WriteAll(file, AsBytes(text), "memfd"));
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
    return absl::ErrnoToStatus(errno, "seal memfd");
  }
  return file;
}

// What could not be written goes over as memfds.
absl::Status HandOver(const FileDescriptor& socket, const KernelCache& cache) {
  const KernelCache::InMemory all = cache.in_memory();
  for (const CacheObjectPtr& object : all.objects) {
    RETURN_IF_ERROR(SendFrame(socket, FrameKind::kObject, ObjectPayload(object->digest()),
                              object->file().get()));
  }
  for (const ModelRecord& record : all.models) {
    ASSIGN_OR_RETURN(const FileDescriptor file, SealedMemfd(record.Serialize()));
    RETURN_IF_ERROR(SendFrame(socket, FrameKind::kModel, "", file.get()));
  }
  return absl::OkStatus();
}

absl::StatusOr<CompileJobStatistics> Run(const FileDescriptor& socket,
                                         std::span<const std::byte> payload) {
  ASSIGN_OR_RETURN(const WorkerRequest request, WorkerRequest::Parse(payload));
  // A client that is gone is noticed when the result is sent.
  const auto send_line = [&socket](FrameKind kind) {
    return [&socket, kind](absl::string_view line) {
      SendFrame(socket, kind, LinePayload(line), -1).IgnoreError();
    };
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<KernelCache> cache,
                   KernelCache::Open({.directory = request.cache_directory,
                                      .is_default = request.cache_is_default,
                                      .writable = request.cache_writable,
                                      .refused = send_line(FrameKind::kRefused),
                                      .unwritten = send_line(FrameKind::kUnwritten)}));
  const CompileJob job = {.model_path = request.model_path,
                          .target = request.target,
                          .options = request.options,
                          .threads = request.threads,
                          .progress = send_line(FrameKind::kProgress)};
  ASSIGN_OR_RETURN(const CompileJobStatistics statistics, RunCompileJob(job, *cache));
  RETURN_IF_ERROR(HandOver(socket, *cache));
  return statistics;
}

}  // namespace
}  // namespace stampmill

extern "C" __attribute__((visibility("default"))) int stampmill_compile_job(
    int socket_fd, const char* request, unsigned long request_size) {
  using namespace stampmill;
  FileDescriptor socket(socket_fd);
  absl::StatusOr<CompileJobStatistics> done = absl::InternalError("compile worker: not run");
  try {
    done = Run(socket, AsBytes(absl::string_view(request, request_size)));
  } catch (const std::bad_alloc&) {
    done = absl::ResourceExhaustedError("compile worker: out of memory");
  } catch (const std::exception& error) {
    done = absl::InternalError(absl::StrCat("compile worker: ", error.what()));
  }
  WorkerResult result = {.status = done.status()};
  if (done.ok()) {
    result.kernels_compiled = done->kernels_compiled;
    result.kernels_reused = done->kernels_reused;
    result.milliseconds = done->milliseconds;
  }
  const bool sent = SendFrame(socket, FrameKind::kResult, result.Serialize(), -1).ok();
  socket.Release();  // the caller's
  return sent ? 0 : 1;
}
