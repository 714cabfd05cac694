// The two standard services beside the inference service: grpc.health.v1.Health, which mirrors the
// daemon's readiness whatever service is named, and server reflection.
#pragma once

#include <memory>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/health.grpc.pb.h"
#include "proto/reflection.grpc.pb.h"
#include "server/serving.h"

namespace stampmill {

// Thread-safe; outlives the gRPC server that it is registered with.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  explicit HealthService(const Serving& serving) : serving_(serving) {}
  // Waits for the last watch. REQUIRES: the server has shut down.
  ~HealthService() override;

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

  // Tells watchers when readiness has changed.
  void Update();
  // Ends all watches.
  void Stop();

 private:
  class Watcher;
  const Serving& serving_;
  absl::Mutex mutex_;
  std::unordered_set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

// Describes the services of this program from their own descriptors.
class ReflectionService final
    : public grpc::reflection::v1alpha::ServerReflection::CallbackService {
 public:
  grpc::ServerBidiReactor<grpc::reflection::v1alpha::ServerReflectionRequest,
                          grpc::reflection::v1alpha::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;
};

}  // namespace stampmill
