// InferStream: one ModelStreamInfer call. Requests run side by side, at most kGrpcStreamRequestsMax
// of them, and are answered in their order. An error of a request is an answer like any other
// (`error_message`), unless the client asked for real ones with the metadata `triton_grpc_error`:
// then the first ends the stream.
#pragma once

#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/grpc_service.grpc.pb.h"
#include "server/grpc/grpc_calls.h"

namespace stampmill {

// Lives until gRPC is done with it and no request of it runs.
class InferStream final : public grpc::ServerBidiReactor<inference::ModelInferRequest,
                                                         inference::ModelStreamInferResponse>,
                          public std::enable_shared_from_this<InferStream> {
 public:
  // `calls` outlives it.
  static InferStream* Begin(InferenceCalls& calls, grpc::CallbackServerContext& context);

  InferStream(InferenceCalls& calls, grpc_call* call, bool real_errors, int64_t deadline_nanos)
      : calls_(calls), call_(call), real_errors_(real_errors), deadline_nanos_(deadline_nanos) {}

  // Reads no more; ends once what was read is answered.
  void Drain();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  class Call;
  // One request and its answer.
  struct Exchange {
    inference::ModelInferRequest message;
    GrpcInference inference;
    ByteBudget::Claim claim;
    size_t bytes = 0;     // of what it holds: its message, then its answer
    CancelTarget cancel;  // guarded by the stream's mutex
    bool answered = false;
    absl::Status error;
    inference::ModelStreamInferResponse response;
  };

  void Start(const std::shared_ptr<Exchange>& exchange);
  absl::Status TryStart(const std::shared_ptr<Exchange>& exchange);
  void Answer(Exchange& exchange, const absl::Status& status);
  void ReadNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the next answer that is ready, or ends the stream if nothing is left to do.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  InferenceCalls& calls_;
  grpc_call* const call_;
  const bool real_errors_;
  const int64_t deadline_nanos_;
  std::shared_ptr<InferStream> self_;  // until OnDone
  absl::Mutex mutex_;
  std::shared_ptr<Exchange> incoming_ ABSL_GUARDED_BY(mutex_);  // being read
  std::deque<std::shared_ptr<Exchange>> exchanges_ ABSL_GUARDED_BY(mutex_);
  size_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // sum over exchanges_
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_all_ ABSL_GUARDED_BY(mutex_) = false;  // the client has no more, or we want none
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t answer_due_nanos_ ABSL_GUARDED_BY(mutex_) = 0;  // while writing
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stampmill
