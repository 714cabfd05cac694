// WorkerProcess: the client's end of a compile worker: started, fed with a request, listened to,
// and ended whatever happens.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "compiler/worker/protocol.h"

namespace stampmill {

// Owned by one thread, which must live as long (the worker dies with the thread that started it).
class WorkerProcess {
 public:
  struct Options {
    std::string program;  // "/proc/self/exe"
    int64_t time_limit_seconds = 0;
  };
  // Starts `program compile-worker` in a process group of its own, with the socket at kWorkerSocket
  // and standard error in a pipe.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(const Options& options);
  // Kills the worker if it still runs, and waits for its end.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Sends the request and hands every frame but the result to `frame`; an error from it ends the
  // job. INTERNAL when the worker ends without a result: how it ended, and the last lines that it
  // wrote to standard error. DEADLINE_EXCEEDED past the time limit.
  absl::StatusOr<WorkerResult> Run(const WorkerRequest& request,
                                   const std::function<absl::Status(Frame)>& frame);

 private:
  explicit WorkerProcess(const Options& options) : options_(options) {}
  absl::Status WaitForInput(int64_t deadline_nanos);
  void ReadWords();
  absl::Status HowItEnded();
  int Reap();

  const Options options_;
  pid_t pid_ = -1;
  int wait_status_ = 0;
  FileDescriptor socket_;
  FileDescriptor words_;  // the read end of its standard error
  std::string last_words_;
};

}  // namespace stampmill
