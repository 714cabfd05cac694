#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "runtime/model_image.h"

namespace stampmill {
namespace {

// The metrics port has this one page.
void AnswerMetrics(Metrics& metrics, const HttpRequest& request, HttpReply reply) {
  HttpAnswer answer;
  answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
  if (request.path != "/metrics" && request.path != "/metrics/") {
    answer.status = 404;
    answer.content_type = "application/json";
    answer.body = R"({"error":"Not Found"})";
  } else if (request.method != "GET" && request.method != "HEAD") {
    answer.status = 405;
    answer.content_type = "application/json";
    answer.body = R"({"error":"Method Not Allowed"})";
  } else {
    answer.body = metrics.Text();
    answer.compressible = true;
  }
  reply.Send(std::move(answer));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  auto server = std::unique_ptr<Server>(new Server);
  RETURN_IF_ERROR(server->StartRuntime(options));
  RETURN_IF_ERROR(server->StartRepository(options));
  RETURN_IF_ERROR(server->Listen(options));
  return server;
}

absl::Status Server::StartRuntime(const ServerOptions& options) {
  ASSIGN_OR_RETURN(cache_, OpenKernelCache(options.cache_dir, options.cache_bytes_max));
  if (cache_->read_only()) {
    LOG(WARNING) << "kernel cache: nothing is kept on disk: " << cache_->read_only_reason();
  }
  ASSIGN_OR_RETURN(device_, OpenDevice(options.device));
  ASSIGN_OR_RETURN(
      const uint64_t budget_bytes,
      MemoryBudget::ParseFlag(options.memory_budget, MemoryBudget::AvailableHostBytes()));
  memory_ = std::make_unique<MemoryBudget>(device_->info().id, budget_bytes);
  RETURN_IF_ERROR(memory_->Reserve(MemoryBudget::Kind::kPool, "requests", options.pool.size_bytes));
  ASSIGN_OR_RETURN(pool_, TensorPool::Create(options.pool));
  requests_ = std::make_unique<RequestPool>(options.request_slots);
  inflight_.emplace(options.inflight_bytes_max);
  ASSIGN_OR_RETURN(engine_, Engine::Create({.device = device_.get(),
                                            .requests = requests_.get(),
                                            .reply_waker = &reply_waker_,
                                            .clock = &RealClock(),
                                            .pool = pool_.get(),
                                            .submitters_turn = true}));
  replies_ = std::make_unique<Replies>(*engine_, reply_waker_);
  engine_->Start();
  return absl::OkStatus();
}

absl::Status Server::StartRepository(const ServerOptions& options) {
  ASSIGN_OR_RETURN(const std::string target, TargetText(options.device));
  ModelRepositoryOptions repository = options.repository;
  repository.engine = engine_.get();
  repository.pool = pool_.get();
  repository.budget = memory_.get();
  repository.compile =
      [cache = cache_.get(), target, options = options.compile_options,
       require_warm_cache = options.require_warm_cache, threads = options.device.threads](
          const std::string& path, const std::function<void(absl::string_view)>& progress) {
        return FindOrCompileModel(path,
                                  {.target = target,
                                   .options = options,
                                   .compile_threads = threads,
                                   .require_warm_cache = require_warm_cache,
                                   .worker_program = "",
                                   .progress = progress},
                                  *cache);
      };
  ASSIGN_OR_RETURN(repository_, ModelRepository::Create(std::move(repository)));
  LanguageModelOptions language = options.language;
  language.image = {.target = target,
                    .options = options.language_compile_options,
                    .compile_threads = options.device.threads,
                    .require_warm_cache = options.require_warm_cache,
                    .worker_program = "",
                    .progress = nullptr};
  language.device = device_.get();
  language.cache = cache_.get();
  language_models_ = std::make_unique<LanguageModels>(std::move(language), memory_.get());
  has_repository_ = !options.repository.files.empty() || !options.repository.folders.empty();
  language_places_ = options.language_models;
  serving_ = std::make_unique<Serving>(Serving::Parts{.repository = repository_.get(),
                                                      .pool = pool_.get(),
                                                      .requests = requests_.get(),
                                                      .engine = engine_.get(),
                                                      .replies = replies_.get(),
                                                      .language = language_models_.get()});
  serving_->SetOthersReady(language_places_.empty());
  return absl::OkStatus();
}

absl::Status Server::Listen(const ServerOptions& options) {
  metrics_ = std::make_unique<Metrics>(
      MetricsSources{.serving = serving_.get(),
                     .language = language_models_.get(),
                     .memory = memory_.get(),
                     .inflight = &*inflight_,
                     .http = [this] { return http_ ? http_->counters() : HttpServerCounters(); },
                     .grpc = [this] { return grpc_ ? grpc_->counters() : ConnectionCounters(); },
                     .cache =
                         [this] {
                           const KernelCacheCounters counters = cache_->counters();
                           return CacheCounters{.hits = counters.hits,
                                                .misses = counters.misses,
                                                .corrupt_refused = counters.corrupt_refused,
                                                .write_failures = counters.write_failures};
                         }});
  http_service_ = std::make_unique<HttpService>(*serving_, [this] { return metrics_->Text(); });
  openai_service_ = std::make_unique<OpenAiService>(language_models_.get(),
                                                    [this] { return serving_->IsReady(); });
  ASSIGN_OR_RETURN(grpc_, GrpcServer::Start(options.grpc, *serving_, *inflight_));
  HttpServerOptions http = options.http;
  http.budget = &*inflight_;
  ASSIGN_OR_RETURN(http_, HttpServer::Start(http, [this, cors = options.cors](HttpRequest request,
                                                                              HttpReply reply) {
                     if (cors.Handle(request, reply)) return;
                     if (openai_service_->Handle(request, reply)) return;
                     http_service_->Handle(std::move(request), std::move(reply));
                   }));
  HttpServerOptions metrics = options.http;
  metrics.port = options.metrics_port;
  metrics.threads = 1;
  metrics.connections_max = 64;
  metrics.body_bytes_max = 0;
  ASSIGN_OR_RETURN(metrics_http_,
                   HttpServer::Start(metrics, [this](HttpRequest request, HttpReply reply) {
                     AnswerMetrics(*metrics_, request, std::move(reply));
                   }));
  return absl::OkStatus();
}

absl::Status Server::LoadModels() {
  absl::Status first;
  // What is left of the memory goes to the caches of those that are still to come, in equal shares;
  // models of the repository have one together.
  auto shares = static_cast<int32_t>(language_places_.size()) + (has_repository_ ? 1 : 0);
  for (const LanguageModelPlace& place : language_places_) {
    const absl::Status status = language_models_->Load(place.name, place.path, shares--);
    if (status.ok()) continue;
    LOG(ERROR) << "model '" << place.name << "': " << status.ToString();
    if (first.ok()) first = status;
  }
  if (first.ok()) serving_->SetOthersReady(true);
  const absl::Status rest = repository_->Start();
  return first.ok() ? rest : first;
}

bool Server::WaitUntilIdle(int64_t deadline_nanos) const {
  while (requests_->in_use() > 0 || language_models_->in_flight() > 0 ||
         http_->counters().connections > 0) {
    if (RealClock().NowNanos() >= deadline_nanos) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

bool Server::Drain(int64_t grace_nanos) {
  const int64_t deadline = RealClock().NowNanos() + grace_nanos;
  serving_->BeginShutdown();
  language_models_->BeginDrain();
  grpc_->ReadinessChanged();
  http_->BeginDrain();
  const bool idle = WaitUntilIdle(deadline);
  if (!idle) {
    LOG(WARNING) << "exit timeout: " << requests_->in_use() << " requests and "
                 << http_->counters().connections << " HTTP connections are cut off";
    // Which cancels their requests: only a step that runs goes on.
    http_->Stop();
  }
  grpc_->Stop(std::max<int64_t>(deadline - RealClock().NowNanos(), 0));
  http_->Stop();
  metrics_http_->Stop();
  constexpr int64_t kStepNanos = 500'000'000;
  return WaitUntilIdle(RealClock().NowNanos() + kStepNanos);
}

Server::~Server() {
  if (grpc_ != nullptr) grpc_->Stop(0);
  if (http_ != nullptr) http_->Stop();
  if (metrics_http_ != nullptr) metrics_http_->Stop();
  if (language_models_ != nullptr) language_models_->Stop();
  // Models go while their engine runs; then it, and last the thread that takes its answers.
  repository_.reset();
  if (engine_ != nullptr) engine_->Stop();
  replies_.reset();
}

}  // namespace stampmill
