// GrpcServer: inference.GRPCInferenceService (KServe v2 with Triton's extensions),
// grpc.health.v1.Health and server reflection, on gRPC's callback API. CUDA shared memory, tracing
// and log settings answer UNIMPLEMENTED. Connections are accepted by GrpcAcceptor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "server/byte_budget.h"
#include "server/grpc/grpc_acceptor.h"
#include "server/serving.h"

namespace stampmill {

struct GrpcServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0 picks a free one
  int64_t message_bytes_max = (int64_t{1} << 31) - 1;
  int32_t connections_max = 4096;
  int32_t idle_seconds = 300;  // a connection without calls is closed after this
  // Of what waits for clients; borrowed, outlives the server.
  Clock* clock = &RealClock();
};

class GrpcServer {
 public:
  // Listens. UNAVAILABLE names address and port when they cannot be bound. Borrows `serving` and
  // `budget`.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options,
                                                           const Serving& serving,
                                                           ByteBudget& budget);
  ~GrpcServer();  // Stop, with no time left to calls

  uint16_t port() const;
  ConnectionCounters counters() const;
  // Tells grpc.health.v1 watchers at once that readiness has changed; they are told anyway soon.
  void ReadinessChanged();
  // No new calls: for a moment they are still told so. Those in flight may end until the deadline,
  // then they are cancelled; loads and unloads are answered at once. Blocks.
  void Stop(int64_t grace_nanos);

 private:
  struct State;
  explicit GrpcServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stampmill
