// Server: owns the parts of the daemon, starts them in order, and drains and stops them in the
// reverse one.
//
//   cache, device, memory budget, tensor pool, request slots
//   engine, replies
//   repository
//   listening: HTTP, metrics, gRPC
//   loading of models
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/waker.h"
#include "runtime/engine.h"
#include "runtime/memory_budget.h"
#include "runtime/model_repository.h"
#include "runtime/placement.h"
#include "runtime/request.h"
#include "runtime/tensor_pool.h"
#include "server/byte_budget.h"
#include "server/grpc/grpc_service.h"
#include "server/http/cors.h"
#include "server/http/http_server.h"
#include "server/http/http_service.h"
#include "server/language_models.h"
#include "server/metrics.h"
#include "server/openai/openai_service.h"
#include "server/serving.h"

namespace stampmill {

// A file or folder of a language model.
struct LanguageModelPlace {
  std::string name;
  std::string path;
};

struct ServerOptions {
  // `engine`, `pool`, `budget` and `compile` are the server's to set.
  ModelRepositoryOptions repository;
  std::vector<LanguageModelPlace> language_models;
  LanguageModelOptions language;  // what all of them have in common; the rest is the server's
  DeviceFlags device;
  std::string cache_dir;  // empty: the user's own
  uint64_t cache_bytes_max = kCacheBytesDefault;
  std::string compile_options;           // CompileOptionsText's
  std::string language_compile_options;  // LanguageCompileOptionsText's
  bool require_warm_cache = false;
  std::string memory_budget = "90%";  // --device-memory-budget
  TensorPoolOptions pool;
  int32_t request_slots = 1024 + 256;
  uint64_t inflight_bytes_max = uint64_t{1} << 30;
  HttpServerOptions http;
  CorsPolicy cors;  // of the HTTP port
  uint16_t metrics_port = 0;
  GrpcServerOptions grpc;
};

// Owned by one thread.
class Server {
 public:
  // Everything but the models; it listens when this returns. INVALID_ARGUMENT for options that are
  // wrong, UNAVAILABLE for addresses that cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);
  // Stops at once what is left. REQUIRES: LoadModels has returned.
  ~Server();

  // Loads what is to be served from the start; blocks, called once, may be called on another
  // thread. The first failure; what else failed is in the log.
  absl::Status LoadModels();

  uint16_t http_port() const { return http_->port(); }
  uint16_t metrics_port() const { return metrics_http_->port(); }
  uint16_t grpc_port() const { return grpc_->port(); }
  const MemoryBudget& memory() const { return *memory_; }
  ModelRepository& repository() const { return *repository_; }

  // Not ready from now on, no new connections and inferences; those in flight have `grace_nanos` to
  // end, then they are cancelled. False: some would not end, and the object cannot be destroyed.
  bool Drain(int64_t grace_nanos);

 private:
  Server() = default;
  absl::Status StartRuntime(const ServerOptions& options);
  absl::Status StartRepository(const ServerOptions& options);
  absl::Status Listen(const ServerOptions& options);
  bool WaitUntilIdle(int64_t deadline_nanos) const;

  std::unique_ptr<KernelCache> cache_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<MemoryBudget> memory_;
  std::unique_ptr<TensorPool> pool_;
  std::unique_ptr<RequestPool> requests_;
  std::optional<ByteBudget> inflight_;
  Waker reply_waker_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Replies> replies_;
  std::unique_ptr<ModelRepository> repository_;
  std::unique_ptr<LanguageModels> language_models_;
  std::vector<LanguageModelPlace> language_places_;
  bool has_repository_ = false;
  std::unique_ptr<Serving> serving_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<HttpService> http_service_;
  std::unique_ptr<OpenAiService> openai_service_;
  std::unique_ptr<HttpServer> http_, metrics_http_;
  std::unique_ptr<GrpcServer> grpc_;
};

}  // namespace stampmill
