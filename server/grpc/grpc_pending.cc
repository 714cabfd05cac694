#include "server/grpc/grpc_pending.h"

#include <string>
#include <vector>

#include "server/grpc/grpc_limits.h"

namespace stampmill {
namespace {

absl::Status ShuttingDown() { return absl::UnavailableError("server is shutting down"); }

// 60 s and the time that a slow line needs.
int64_t TimeToTake(uint64_t bytes) {
  const double seconds = static_cast<double>(bytes) / kGrpcAnswerBytesPerSecondMin;
  return kGrpcAnswerNanos + static_cast<int64_t>(seconds * 1e9);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

int64_t AnswersUnderWay::Begin(grpc_call* call, uint64_t bytes) {
  const int64_t due = clock_.NowNanos() + TimeToTake(bytes);
  const absl::MutexLock lock(&mutex_);
  due_.emplace(due, call);
  return due;
}

void AnswersUnderWay::End(grpc_call* call, int64_t due_nanos) {
  const absl::MutexLock lock(&mutex_);
  due_.erase({due_nanos, call});
}

void AnswersUnderWay::CancelOverdue() {
  const int64_t now = clock_.NowNanos();
  std::vector<grpc_call*> overdue;
  {
    const absl::MutexLock lock(&mutex_);
    while (!due_.empty() && due_.begin()->first <= now) {
      overdue.push_back(due_.begin()->second);
      grpc_call_ref(overdue.back());
      due_.erase(due_.begin());
    }
  }
  // Not under the lock: gRPC may end the calls right here.
  for (grpc_call* call : overdue) {
    cancelled_.fetch_add(1, std::memory_order_relaxed);
    grpc_call_cancel(call, nullptr);
    grpc_call_unref(call);
  }
}

uint64_t RepositoryCalls::Add(grpc::ServerUnaryReactor* reactor) {
  {
    const absl::MutexLock lock(&mutex_);
    if (!stopped_) {
      calls_.emplace(++last_, reactor);
      return last_;
    }
  }
  reactor->Finish(ToGrpcStatus(ShuttingDown()));
  return 0;
}

void RepositoryCalls::Finish(uint64_t call, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = nullptr;
  {
    const absl::MutexLock lock(&mutex_);
    const auto found = calls_.find(call);
    if (found == calls_.end()) return;
    reactor = found->second;
    calls_.erase(found);
  }
  reactor->Finish(ToGrpcStatus(status));
}

void RepositoryCalls::Stop() {
  std::unordered_map<uint64_t, grpc::ServerUnaryReactor*> calls;
  {
    const absl::MutexLock lock(&mutex_);
    stopped_ = true;
    calls.swap(calls_);
  }
  for (const auto& [call, reactor] : calls) reactor->Finish(ToGrpcStatus(ShuttingDown()));
}

}  // namespace stampmill
