// What the gRPC side has begun and others must finish: answers that clients take, and loads and
// unloads that the repository ends. Neither may hold the server for longer than is right.
#pragma once

#include <grpc/grpc.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"

namespace stampmill {

// An absl::Status as gRPC's: the codes are the same.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Answers that gRPC has and the client has not taken yet, each with the time at which it is given
// up: what is not taken keeps its outputs' memory. Thread-safe.
class AnswersUnderWay {
 public:
  // `clock` outlives it.
  explicit AnswersUnderWay(const Clock& clock) : clock_(clock) {}

  // Before `call`'s answer of `bytes` is handed to gRPC; one at a time for a call, which lives
  // until End. Returns what End takes.
  int64_t Begin(grpc_call* call, uint64_t bytes);
  // Once the answer is taken, or given up.
  void End(grpc_call* call, int64_t due_nanos);

  // Cancels the calls whose answers are overdue: each once. The caller holds no lock that a reactor
  // takes.
  void CancelOverdue();
  int64_t cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  const Clock& clock_;
  std::atomic<int64_t> cancelled_{0};
  absl::Mutex mutex_;
  std::set<std::pair<int64_t, grpc_call*>> due_ ABSL_GUARDED_BY(mutex_);
};

// Calls that wait for the repository. Each is finished once, by the repository or by Stop. Owned
// jointly with the callbacks that the repository has, which may come after the server is gone.
// Thread-safe.
class RepositoryCalls {
 public:
  // 0 when stopped already: then the call is finished.
  uint64_t Add(grpc::ServerUnaryReactor* reactor);
  void Finish(uint64_t call, const absl::Status& status);
  // Finishes what waits, and what comes, with UNAVAILABLE: the jobs go on unheard.
  void Stop();

 private:
  absl::Mutex mutex_;
  std::unordered_map<uint64_t, grpc::ServerUnaryReactor*> calls_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stampmill
