#include "compiler/worker/worker_main.h"

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "compiler/limits.h"
#include "compiler/worker/protocol.h"

namespace stampmill {
namespace {

bool IsSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

absl::StatusOr<std::string> LibraryPath() {
  char program[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", program, sizeof(program));
  if (n <= 0) return absl::ErrnoToStatus(errno, "readlink /proc/self/exe");
  const std::string path(program, static_cast<size_t>(n));
  return absl::StrCat(path.substr(0, path.rfind('/') + 1), kCompilerLibraryName);
}

absl::StatusOr<CompileJobFunction> OpenCompiler() {
  ASSIGN_OR_RETURN(const std::string path, LibraryPath());
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    if (access(path.c_str(), F_OK) != 0) {
      return absl::UnavailableError(absl::StrCat(
          "compiler: ", path, " is missing: only models in the kernel cache can be served"));
    }
    return absl::UnavailableError(absl::StrCat("compiler: ", why));
  }
  void* symbol = dlsym(library, kCompileJobSymbol);
  if (symbol == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("compiler: ", path, " does not have the function ", kCompileJobSymbol));
  }
  return reinterpret_cast<CompileJobFunction>(symbol);
}

void SetLimits(int64_t memory_bytes) {
  const rlimit no_core = {.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // Private memory, not address space: LLVM and the model file are mapped beside it.
  const rlim_t bytes =
      static_cast<rlim_t>(memory_bytes > 0 ? memory_bytes : kWorkerMemoryBytesDefault);
  const rlimit memory = {.rlim_cur = bytes, .rlim_max = bytes};
  setrlimit(RLIMIT_DATA, &memory);
  // Should memory run out all the same, this process goes before the daemon.
  if (FILE* score = fopen("/proc/self/oom_score_adj", "w")) {
    fputs("1000", score);
    fclose(score);
  }
}

absl::StatusOr<int> RunJob(const FileDescriptor& socket) {
  ASSIGN_OR_RETURN(const std::optional<Frame> frame, ReceiveFrame(socket, /*wait=*/true));
  if (frame->kind != FrameKind::kRequest) {
    return absl::InvalidArgumentError("compile worker: the first frame is no request");
  }
  ASSIGN_OR_RETURN(const WorkerRequest request, WorkerRequest::Parse(AsBytes(frame->payload)));
  SetLimits(request.memory_limit_bytes);
  ASSIGN_OR_RETURN(const CompileJobFunction run, OpenCompiler());
  return run(socket.get(), frame->payload.data(), frame->payload.size());
}

}  // namespace

int RunCompileWorker() {
  // A parent that died before this line has closed its end of the socket; the read below sees it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!IsSocket(kWorkerSocket)) {
    fputs("stampmill: compile-worker: started by stampmill itself, not by hand\n", stderr);
    return 2;
  }
  const FileDescriptor socket(kWorkerSocket);
  const absl::StatusOr<int> done = RunJob(socket);
  if (done.ok()) return *done;
  const WorkerResult result = {.status = done.status()};
  return SendFrame(socket, FrameKind::kResult, result.Serialize(), -1).ok() ? 0 : 1;
}

}  // namespace stampmill
