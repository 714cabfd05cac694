#include "compiler/worker/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "compiler/limits.h"

extern char** environ;

namespace stampmill {
namespace {

int64_t NowNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

absl::Status SpawnError(int error, absl::string_view program) {
  return absl::ErrnoToStatus(error, absl::StrCat("compile worker: start ", program));
}

// Descriptors at or below the numbers that the child's are moved to would be overwritten by the
// move: lift them out of the way.
absl::StatusOr<FileDescriptor> Lifted(FileDescriptor file) {
  const int lifted = fcntl(file.get(), F_DUPFD_CLOEXEC, kWorkerSocket + 1);
  if (lifted < 0) return absl::ErrnoToStatus(errno, "compile worker: dup");
  return FileDescriptor(lifted);
}

struct ChildEnds {
  FileDescriptor socket;
  FileDescriptor words;
};

absl::StatusOr<pid_t> Spawn(const std::string& program, const ChildEnds& ends) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup destroy_actions = [&actions] { posix_spawn_file_actions_destroy(&actions); };
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends.words.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends.words.get(), STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends.socket.get(), kWorkerSocket);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const absl::Cleanup destroy_attributes = [&attributes] { posix_spawnattr_destroy(&attributes); };
  // What the parent does with signals is not the worker's business; a group of its own keeps the
  // terminal's Ctrl-C from it, so that a daemon that drains is not told of a dead worker.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string name = "stampmill", command = "compile-worker";
  char* arguments[] = {name.data(), command.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, &attributes, arguments, environ);
  if (error != 0) return SpawnError(error, program);
  return pid;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const Options& options) {
  std::unique_ptr<WorkerProcess> worker(new WorkerProcess(options));
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return SpawnError(errno, options.program);
  }
  worker->socket_ = FileDescriptor(sockets[0]);
  ChildEnds ends{.socket = FileDescriptor(sockets[1]), .words = {}};
  int words[2];
  if (pipe2(words, O_CLOEXEC) != 0) return SpawnError(errno, options.program);
  worker->words_ = FileDescriptor(words[0]);
  ends.words = FileDescriptor(words[1]);
  if (fcntl(words[0], F_SETFL, O_NONBLOCK) != 0) return SpawnError(errno, options.program);
  ASSIGN_OR_RETURN(ends.socket, Lifted(std::move(ends.socket)));
  ASSIGN_OR_RETURN(ends.words, Lifted(std::move(ends.words)));
  ASSIGN_OR_RETURN(worker->pid_, Spawn(options.program, ends));
  return worker;
}

WorkerProcess::~WorkerProcess() { Reap(); }

int WorkerProcess::Reap() {
  if (pid_ < 0) return wait_status_;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return wait_status_;
}

void WorkerProcess::ReadWords() {
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(words_.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) words_.Close();
    if (n <= 0) return;
    last_words_.append(buffer, static_cast<size_t>(n));
    const size_t excess =
        last_words_.size() - std::min<size_t>(last_words_.size(), kLastWordsBytesMax);
    last_words_.erase(0, excess);
  }
}

absl::Status WorkerProcess::WaitForInput(int64_t deadline_nanos) {
  for (;;) {
    const int64_t left = deadline_nanos - NowNanos();
    if (left <= 0) {
      Reap();
      return absl::DeadlineExceededError(
          absl::StrCat("compile worker: time: limit ", options_.time_limit_seconds, " s"));
    }
    pollfd files[2] = {{.fd = socket_.get(), .events = POLLIN, .revents = 0},
                       {.fd = words_.get(), .events = POLLIN, .revents = 0}};
    const int64_t wait_ms = std::min<int64_t>(left / 1'000'000 + 1, 60'000);
    if (poll(files, 2, static_cast<int>(wait_ms)) < 0 && errno != EINTR) {
      return absl::ErrnoToStatus(errno, "compile worker: poll");
    }
    if (files[1].revents != 0) ReadWords();
    if (files[0].revents != 0) return absl::OkStatus();
  }
}

absl::Status WorkerProcess::HowItEnded() {
  // Its socket is closed: it is gone or about to go, and its standard error ends when it is. One
  // that only closed the socket is killed after a while.
  const int64_t deadline = NowNanos() + int64_t{2'000'000'000};
  while (words_.valid()) {
    const int64_t left_ms = (deadline - NowNanos()) / 1'000'000;
    if (left_ms <= 0) break;
    pollfd file = {.fd = words_.get(), .events = POLLIN, .revents = 0};
    if (poll(&file, 1, static_cast<int>(left_ms)) > 0) ReadWords();
  }
  const int status = Reap();
  std::string how = WIFSIGNALED(status) ? absl::StrCat("killed by signal ", WTERMSIG(status), " (",
                                                       strsignal(WTERMSIG(status)), ")")
                                        : absl::StrCat("exit status ", WEXITSTATUS(status));
  // One line for people, whatever the worker wrote.
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(last_words_, '\n', absl::SkipWhitespace())) {
    lines.emplace_back(absl::StripAsciiWhitespace(line));
  }
  constexpr size_t kLinesMax = 6;
  if (lines.size() > kLinesMax) lines.erase(lines.begin(), lines.end() - kLinesMax);
  const std::string words = lines.empty() ? "none" : absl::StrJoin(lines, " | ");
  return absl::InternalError(
      absl::StrCat("compile worker: ended without a result: ", how, "; its last words: ", words));
}

absl::StatusOr<WorkerResult> WorkerProcess::Run(const WorkerRequest& request,
                                                const std::function<absl::Status(Frame)>& frame) {
  const int64_t deadline = NowNanos() + options_.time_limit_seconds * 1'000'000'000;
  absl::Status sent = SendFrame(socket_, FrameKind::kRequest, request.Serialize(), -1);
  if (absl::IsUnavailable(sent)) return HowItEnded();
  RETURN_IF_ERROR(sent);
  for (;;) {
    RETURN_IF_ERROR(WaitForInput(deadline));
    absl::StatusOr<std::optional<Frame>> received = ReceiveFrame(socket_, /*wait=*/false);
    if (absl::IsUnavailable(received.status())) return HowItEnded();
    RETURN_IF_ERROR(received.status());
    if (!received->has_value()) continue;
    if ((*received)->kind != FrameKind::kResult) {
      RETURN_IF_ERROR(frame(**std::move(received)));
      continue;
    }
    const std::string& payload = (*received)->payload;
    return WorkerResult::Parse(std::as_bytes(std::span(payload)));
  }
}

}  // namespace stampmill
