#include "server/grpc/grpc_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/waker.h"
#include "server/grpc/grpc_calls.h"
#include "server/grpc/grpc_health.h"
#include "server/grpc/grpc_limits.h"

namespace stampmill {

struct GrpcServer::State {
  State(const Serving& serving, ByteBudget& budget, Clock& time)
      : clock(time), calls(serving, budget, time), health(serving) {}
  // Until nobody calls any more, or the deadline.
  void RefuseCalls(int64_t deadline_nanos) const;

  Clock& clock;
  InferenceCalls calls;
  HealthService health;
  ReflectionService reflection;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> handover;
  // Last: its thread uses the others.
  std::unique_ptr<GrpcAcceptor> acceptor;
};

namespace {

void SetLimits(const GrpcServerOptions& options, grpc::ServerBuilder& builder) {
  const auto bytes_max =
      static_cast<int>(std::clamp<int64_t>(options.message_bytes_max, 1, (int64_t{1} << 31) - 1));
  builder.SetMaxReceiveMessageSize(bytes_max);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kGrpcCallsPerConnectionMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kGrpcMetadataBytesMax);
  builder.AddChannelArgument(
      GRPC_ARG_MAX_CONNECTION_IDLE_MS,
      static_cast<int>(std::min<int64_t>(int64_t{options.idle_seconds} * 1000, 0x7fffffff)));
  // Counts each call for a debugging service that is not offered here.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
  // Clients such as Triton's may ping often while they have no calls.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

}  // namespace

GrpcServer::GrpcServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcServerOptions& options,
                                                              const Serving& serving,
                                                              ByteBudget& budget) {
  auto state = std::make_unique<State>(serving, budget, *options.clock);
  State* const raw = state.get();
  ASSIGN_OR_RETURN(
      state->acceptor,
      GrpcAcceptor::Listen(
          {.address = options.address,
           .port = options.port,
           .connections_max = options.connections_max,
           .accepted =
               [raw](int listener, int fd) {
                 grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
                 connection.listener_fd = listener;
                 connection.fd = fd;
                 raw->handover->HandleNewConnection(&connection);
               },
           .tick =
               [raw] {
                 raw->health.Update();
                 raw->calls.answers().CancelOverdue();
               }}));
  grpc::ServerBuilder builder;
  state->handover = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  SetLimits(options, builder);
  builder.RegisterService(&state->calls);
  builder.RegisterService(&state->health);
  builder.RegisterService(&state->reflection);
  state->server = builder.BuildAndStart();
  if (state->server == nullptr) {
    return absl::InternalError("gRPC: the server could not be started");
  }
  state->acceptor->Start();
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(state)));
}

GrpcServer::~GrpcServer() { Stop(0); }

uint16_t GrpcServer::port() const { return state_->acceptor->port(); }

ConnectionCounters GrpcServer::counters() const {
  ConnectionCounters counters = state_->acceptor->counters();
  counters.clients_too_slow = state_->calls.answers().cancelled();
  return counters;
}

void GrpcServer::State::RefuseCalls(int64_t deadline_nanos) const {
  Waker none;
  const int64_t start = clock.NowNanos();
  const int64_t end = std::min(deadline_nanos, start + kGrpcRefuseNanos);
  while (true) {
    const int64_t quiet = std::max(start, calls.last_refused_nanos()) + kGrpcQuietNanos;
    const int64_t until = std::min(end, quiet);
    if (clock.NowNanos() >= until) return;
    clock.WaitUntil(none, none.epoch(), until);
  }
}

void GrpcServer::ReadinessChanged() { state_->health.Update(); }

void GrpcServer::Stop(int64_t grace_nanos) {
  if (state_->server == nullptr) return;
  const int64_t deadline = state_->clock.NowNanos() + grace_nanos;
  state_->acceptor->Stop();
  state_->health.Stop();
  state_->calls.Stop();
  state_->RefuseCalls(deadline);
  state_->server->Shutdown(std::chrono::system_clock::now() +
                           std::chrono::nanoseconds(deadline - state_->clock.NowNanos()));
  state_->server->Wait();
  state_->server.reset();
}

}  // namespace stampmill
