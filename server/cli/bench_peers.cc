#include "server/cli/bench_peers.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

namespace json = boost::json;

constexpr char kScript[] =
#include "server/cli/bench_peer_script.inc"
    ;

constexpr const char* kEngines[] = {"onnxruntime", "openvino"};

// What the process prints until it ends.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  const auto close_reader = absl::MakeCleanup([&] { close(ends[0]); });
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = -1;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) return absl::ErrnoToStatus(error, arguments[0]);
  std::string text;
  char buffer[1 << 16];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) != 0;) {
    if (got > 0) {
      text.append(buffer, static_cast<size_t>(got));
    } else if (errno != EINTR) {
      break;
    }
  }
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

absl::StatusOr<std::string> RunPython(const PeerRequest& request) {
  std::vector<std::string> arguments = {request.python,
                                        "-c",
                                        kScript,
                                        request.engine,
                                        request.model,
                                        absl::StrCat(request.threads),
                                        absl::StrCat(request.warmup),
                                        absl::StrCat(request.repeat)};
  for (const auto& [name, file] : request.files) {
    arguments.push_back(absl::StrCat(name, "=", file));
  }
  absl::StatusOr<std::string> output = OutputOf(arguments);
  if (output.ok()) return output;
  return absl::NotFoundError(absl::StrCat("--peer-python: ", output.status().message()));
}

absl::Status Unreadable(const PeerRequest& request) {
  return absl::FailedPreconditionError(
      absl::StrCat(request.engine, ": the process under ", request.python, " gave no result"));
}

}  // namespace

std::span<const char* const> PeerEngines() { return kEngines; }

absl::StatusOr<PeerMeasurement> MeasurePeer(const PeerRequest& request) {
  ASSIGN_OR_RETURN(const std::string text, RunPython(request));
  // Engines print lines of their own; the result is the last.
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = end == std::string::npos ? 0 : text.rfind('\n', end);
  boost::system::error_code error;
  const json::value value = json::parse(text.substr(begin == std::string::npos ? 0 : begin), error);
  const json::object* const object = error ? nullptr : value.if_object();
  if (object == nullptr) return Unreadable(request);
  if (const json::value* const failure = object->if_contains("error");
      failure != nullptr && failure->is_string()) {
    return absl::FailedPreconditionError(
        absl::StrCat(request.engine, ": ", std::string(failure->get_string())));
  }
  const json::value* const version = object->if_contains("version");
  const json::value* const opened = object->if_contains("open_seconds");
  const json::value* const samples = object->if_contains("nanos");
  if (version == nullptr || !version->is_string() || opened == nullptr || !opened->is_double() ||
      samples == nullptr || !samples->is_array()) {
    return Unreadable(request);
  }
  std::vector<int64_t> nanos;
  for (const json::value& sample : samples->get_array()) {
    if (!sample.is_int64()) return Unreadable(request);
    nanos.push_back(sample.get_int64());
  }
  return PeerMeasurement{.version = std::string(version->get_string()),
                         .open_seconds = opened->get_double(),
                         .latency = LatencyOf(nanos)};
}

}  // namespace stampmill
