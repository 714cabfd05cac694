#include "server/serve.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "server/answers.h"
#include "server/cli/command_line.h"
#include "server/server.h"

namespace stampmill {
namespace {

struct ServeFlags {
  ServerOptions server;
  CompileFlags compile;
  std::vector<std::string> models;
  std::string control_mode = "none";
  uint32_t http_port = 8000;
  uint32_t grpc_port = 8001;
  uint32_t metrics_port = 8002;
  std::string address = "127.0.0.1";
  std::string port_file;
  int32_t max_queued_requests = 1024;
  int32_t max_sequences = 256;
  int64_t exit_timeout_secs = 30;
  bool exit_on_error = false;
  std::string http_max_input_size = "64MiB";
  std::string grpc_max_message_size;
  std::string max_inflight_bytes = "1GiB";
  std::string pool_size = "256MiB";
  std::string cache_max_size = "16GiB";
  std::string served_model_name, chat_template;
  std::string allowed_origins;
};

void AddModelOptions(CLI::App& app, ServeFlags& flags) {
  ModelRepositoryOptions& repository = flags.server.repository;
  app.add_option("MODEL", flags.models, "model files, also as NAME=PATH")->take_all();
  // One value for each time that a repeatable flag is given: what follows may be a MODEL.
  app.add_option("--model-repository", repository.folders, "folder in Triton's layout; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--model-control-mode", flags.control_mode, "how models come and go")
      ->check(CLI::IsMember({"none", "poll", "explicit"}))
      ->capture_default_str();
  app.add_option("--load-model", repository.load_models,
                 "model to load at start in explicit mode, '*' for all; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--repository-poll-secs", repository.poll_seconds, "interval of poll mode")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app.add_option("--model-load-thread-count", repository.load_threads, "models loaded at once")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--strict-readiness", repository.strict_readiness,
               "a model that failed makes the daemon not ready (default: true)");
  app.add_flag("--exit-on-error", flags.exit_on_error, "exit when a model fails at start");
}

void AddLanguageOptions(CLI::App& app, ServeFlags& flags) {
  LanguageModelOptions& language = flags.server.language;
  app.add_option("--max-model-len", language.context_tokens,
                 "context of language models in tokens (default: the model's)")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--speculative-tokens", language.drafts_max,
                 "tokens of a step that are guessed from the text so far, at most; the text is the "
                 "same")
      ->check(CLI::Range(0, 32))
      ->capture_default_str();
  app.add_option("--max-batch-tokens", language.step_tokens_max, "tokens of one step at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--served-model-name", flags.served_model_name,
                 "what the language model is called");
  app.add_option("--chat-template", flags.chat_template,
                 "a file, or the template itself, in place of the model's");
}

void AddNetworkOptions(CLI::App& app, ServeFlags& flags) {
  const CLI::Range port(0, 65535);
  app.add_option("--address", flags.address, "address that all ports bind to")
      ->capture_default_str();
  app.add_option("--http-port", flags.http_port, "0 picks a free one")
      ->check(port)
      ->capture_default_str();
  app.add_option("--grpc-port", flags.grpc_port, "0 picks a free one")
      ->check(port)
      ->capture_default_str();
  app.add_option("--metrics-port", flags.metrics_port, "0 picks a free one")
      ->check(port)
      ->capture_default_str();
  app.add_option("--port-file", flags.port_file, "file that gets the ports, as JSON");
  app.add_option("--allowed-origins", flags.allowed_origins,
                 "origins whose web pages may use the HTTP port, comma-separated, or *");
  app.add_option("--http-thread-count", flags.server.http.threads, "threads of the HTTP side")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--http-max-input-size", flags.http_max_input_size, "bytes of one body")
      ->capture_default_str();
  app.add_option("--grpc-max-message-size", flags.grpc_max_message_size,
                 "bytes of one message (default: 2 GiB - 1)");
  app.add_option("--max-inflight-bytes", flags.max_inflight_bytes, "bytes of all requests together")
      ->capture_default_str();
  app.add_option("--max-connections", flags.server.http.connections_max,
                 "connections of each protocol")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--idle-timeout-secs", flags.server.http.idle_seconds,
                 "a connection without requests is closed after this")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--exit-timeout-secs", flags.exit_timeout_secs, "drain time after SIGTERM")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
}

void AddEngineOptions(CLI::App& app, ServeFlags& flags) {
  ServerOptions& server = flags.server;
  app.add_option("--devices,--device", server.device.device, "where models run")
      ->capture_default_str();
  app.add_option("--cpu-isa", server.device.cpu_isa,
                 "class of CPU code, e.g. x86-64-v3 (default: the host's)");
  app.add_option("--threads", server.device.threads,
                 "threads of the CPU device (default: what the process may use)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--cache-dir", server.cache_dir, "kernel cache (default: the user's own)");
  app.add_option("--cache-max-size", flags.cache_max_size, "size that the kernel cache is kept to")
      ->capture_default_str();
  app.add_flag("--require-warm-cache", server.require_warm_cache,
               "fail at start instead of compiling");
  AddActivationPrecision(app, flags.compile.activation_precision);
  app.add_option("--compile-options", flags.compile.options, "for bisecting");
  app.add_option("--device-memory-budget", server.memory_budget,
                 "memory for models and requests, bytes or per cent")
      ->capture_default_str();
  app.add_option("--max-queued-requests", flags.max_queued_requests,
                 "beyond it requests are refused at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-sequences", flags.max_sequences, "requests that run at once")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--pinned-memory-pool-byte-size", flags.pool_size, "size of the tensor pool")
      ->capture_default_str();
  app.add_flag("--allow-client-shm", server.pool.allow_client_shm,
               "clients may register shared memory");
}

// NAME=PATH, or a path; a file whose own name holds '=' is taken as it is.
ModelRepositoryOptions::File ParseModel(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || access(text.c_str(), F_OK) == 0) {
    return {.name = "", .path = text};
  }
  return {.name = text.substr(0, equals), .path = text.substr(equals + 1)};
}

// GGUF files and folders of Hugging Face's layout hold language models.
bool IsLanguageModel(const std::string& path) {
  if (absl::EndsWith(path, ".gguf")) return true;
  return access(absl::StrCat(path, "/config.json").c_str(), F_OK) == 0;
}

absl::Status TakeModels(ServeFlags& flags) {
  ServerOptions& server = flags.server;
  for (const std::string& text : flags.models) {
    ModelRepositoryOptions::File file = ParseModel(text);
    if (!IsLanguageModel(file.path)) {
      server.repository.files.push_back(std::move(file));
      continue;
    }
    std::string name = file.name;
    if (name.empty()) {
      absl::string_view stem = absl::StripSuffix(file.path, "/");
      stem = stem.substr(stem.rfind('/') == absl::string_view::npos ? 0 : stem.rfind('/') + 1);
      name = std::string(absl::StripSuffix(stem, ".gguf"));
    }
    server.language_models.push_back({.name = std::move(name), .path = std::move(file.path)});
  }
  if (server.repository.files.empty() && server.repository.folders.empty() &&
      server.language_models.empty()) {
    return absl::InvalidArgumentError("serve: got no MODEL and no --model-repository");
  }
  if (!flags.served_model_name.empty()) {
    if (server.language_models.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--served-model-name: got ", server.language_models.size(), " language models, want 1"));
    }
    server.language_models[0].name = flags.served_model_name;
  }
  server.language.chat_template = flags.chat_template;
  if (access(flags.chat_template.c_str(), F_OK) == 0) {
    ASSIGN_OR_RETURN(server.language.chat_template, ReadFile(flags.chat_template, 1 << 20));
  }
  return absl::OkStatus();
}

// The rest of the options, from the words of the flags.
absl::Status Complete(ServeFlags& flags) {
  ServerOptions& server = flags.server;
  ASSIGN_OR_RETURN(server.compile_options, CompileOptionsText(flags.compile));
  ASSIGN_OR_RETURN(server.language_compile_options, LanguageCompileOptionsText(flags.compile));
  RETURN_IF_ERROR(TakeModels(flags));
  server.repository.control_mode = flags.control_mode == "poll"       ? ModelControlMode::kPoll
                                   : flags.control_mode == "explicit" ? ModelControlMode::kExplicit
                                                                      : ModelControlMode::kNone;
  if (!server.repository.load_models.empty() && flags.control_mode != "explicit") {
    return absl::InvalidArgumentError("--load-model: needs --model-control-mode=explicit");
  }
  ASSIGN_OR_RETURN(server.http.body_bytes_max,
                   ParseSize("--http-max-input-size", flags.http_max_input_size));
  if (!flags.grpc_max_message_size.empty()) {
    ASSIGN_OR_RETURN(const uint64_t size,
                     ParseSize("--grpc-max-message-size", flags.grpc_max_message_size));
    if (size > static_cast<uint64_t>(server.grpc.message_bytes_max)) {
      return absl::InvalidArgumentError(absl::StrCat("--grpc-max-message-size: got ", size,
                                                     ", limit ", server.grpc.message_bytes_max));
    }
    server.grpc.message_bytes_max = static_cast<int64_t>(size);
  }
  ASSIGN_OR_RETURN(server.inflight_bytes_max,
                   ParseSize("--max-inflight-bytes", flags.max_inflight_bytes));
  ASSIGN_OR_RETURN(server.pool.size_bytes,
                   ParseSize("--pinned-memory-pool-byte-size", flags.pool_size));
  ASSIGN_OR_RETURN(server.cache_bytes_max, ParseSize("--cache-max-size", flags.cache_max_size));
  server.request_slots = flags.max_queued_requests + flags.max_sequences;
  server.language.sequences_max = flags.max_sequences;
  server.language.waiting_max = flags.max_queued_requests;
  if (!flags.allowed_origins.empty()) {
    ASSIGN_OR_RETURN(server.cors, CorsPolicy::Parse(flags.allowed_origins));
  }
  server.http.address = server.grpc.address = flags.address;
  server.http.port = static_cast<uint16_t>(flags.http_port);
  server.grpc.port = static_cast<uint16_t>(flags.grpc_port);
  server.metrics_port = static_cast<uint16_t>(flags.metrics_port);
  server.grpc.connections_max = server.http.connections_max;
  server.grpc.idle_seconds = server.http.idle_seconds;
  return absl::OkStatus();
}

// As many descriptors as the process may have.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1 << 20);
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status WritePortFile(const std::string& path, const Server& server) {
  if (path.empty()) return absl::OkStatus();
  const std::string text =
      absl::StrCat("{\"http_port\": ", server.http_port(), ", \"grpc_port\": ", server.grpc_port(),
                   ", \"metrics_port\": ", server.metrics_port(), "}\n");
  return AtomicReplaceFile(path, std::as_bytes(std::span(text)));
}

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// The loading of models on a thread of its own, while the main one waits for signals.
class Loader {
 public:
  // On failure of what must not fail the process is told to end.
  Loader(Server& server, bool exit_on_error) {
    thread_ = std::thread([this, &server, exit_on_error] {
      const int64_t start = RealClock().NowNanos();
      const absl::Status status = server.LoadModels();
      Report(server, status, RealClock().NowNanos() - start);
      failed_.store(!status.ok() && exit_on_error);
      done_.store(true);
      if (failed_.load()) kill(getpid(), SIGTERM);
    });
  }
  ~Loader() { thread_.join(); }

  bool failed() const { return failed_.load(); }
  bool done() const { return done_.load(); }

 private:
  static void Report(Server& server, const absl::Status& status, int64_t nanos) {
    if (!status.ok()) {
      LOG(ERROR) << "loading failed: " << absl::string_view(status.message());
    }
    const bool is_ready = status.ok() && server.repository().IsReady();
    LOG(INFO) << (is_ready ? "ready" : "not ready") << " after loading for " << nanos / 1'000'000
              << " ms";
  }

  std::atomic<bool> failed_{false}, done_{false};
  std::thread thread_;
};

int Serve(ServeFlags& flags) {
  // Before any thread is made, so that all of them leave the signals to this one.
  const sigset_t signals = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(flags.server);
  if (!server.ok()) {
    return Fail(FromFlags(server.status()));
  }
  if (absl::Status status = WritePortFile(flags.port_file, **server); !status.ok()) {
    return Fail(status);
  }
  LOG(INFO) << "stampmill " << kServerVersion << " listens on " << flags.address << ": HTTP "
            << (*server)->http_port() << ", gRPC " << (*server)->grpc_port() << ", metrics "
            << (*server)->metrics_port();
  auto loader =
      std::make_unique<Loader>(**server, flags.exit_on_error || flags.server.require_warm_cache);
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  // A second signal ends the process at once, as if this one had never been taken.
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  const bool failed = loader->failed();
  if (!failed) {
    LOG(INFO) << (signal_number == SIGINT ? "SIGINT" : "SIGTERM") << ": draining for at most "
              << flags.exit_timeout_secs << " s";
  }
  const bool idle = (*server)->Drain(flags.exit_timeout_secs * 1'000'000'000);
  if (!idle || !loader->done() || (*server)->repository().IsBusy()) {
    // A step that does not end, or a model that is still being compiled: the system cleans up.
    LOG(WARNING) << "exiting while work goes on";
    _exit(failed ? kExitFailed : kExitDone);
  }
  loader.reset();
  server->reset();
  LOG(INFO) << "stopped";
  return failed ? kExitFailed : kExitDone;
}

}  // namespace

int RunServe(int argc, char** argv) {
  ServeFlags flags;
  CommandLine line("serve", "serves models over HTTP and gRPC");
  AddModelOptions(line.app(), flags);
  AddLanguageOptions(line.app(), flags);
  AddNetworkOptions(line.app(), flags);
  AddEngineOptions(line.app(), flags);
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  if (const absl::Status status = Complete(flags); !status.ok()) {
    return FailUsage(absl::string_view(status.message()));
  }
  return Serve(flags);
}

}  // namespace stampmill
