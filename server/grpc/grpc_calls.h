// InferenceCalls: inference.GRPCInferenceService on gRPC's callback API: what each call does with
// the parts that it serves.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/grpc_service.grpc.pb.h"
#include "server/byte_budget.h"
#include "server/grpc/grpc_infer.h"
#include "server/grpc/grpc_pending.h"
#include "server/grpc/grpc_response.h"
#include "server/serving.h"

namespace stampmill {

// When a call ends at the latest, in the engine's clock; kNoDeadline for none.
int64_t EngineDeadline(const grpc::CallbackServerContext& context, const Clock& clock);

// How a running inference is cancelled: set before it is submitted.
struct CancelTarget {
  Engine* engine = nullptr;
  RequestTag tag;
};

// UNAVAILABLE: all requests together hold too much.
absl::Status InflightBytesExceeded(const ByteBudget& budget);

// What starting an inference takes and keeps.
struct GrpcInference {
  WireInference wire;
  DecodedContents decoded;
};

// What a unary call works with; kept from one call to the next, so that a small request allocates
// little.
struct UnaryScratch {
  inference::ModelInferRequest message;
  GrpcInference inference;
  ResponseWriter writer;
};

class InferStream;

// Thread-safe; outlives the gRPC server that it is registered with.
class InferenceCalls final
    : public inference::GRPCInferenceService::WithRawCallbackMethod_ModelInfer<
          inference::GRPCInferenceService::CallbackService> {
 public:
  // Borrows all. `clock` is that of what waits for clients.
  InferenceCalls(const Serving& serving, ByteBudget& budget, const Clock& clock)
      : serving_(serving), budget_(budget), clock_(clock), answers_(clock) {}
  // Waits for what gRPC\'s threads still hold. REQUIRES: the server has shut down.
  ~InferenceCalls() override;

  const Serving& serving() const { return serving_; }
  ByteBudget& budget() const { return budget_; }
  LentOutputs& lent() { return lent_; }
  AnswersUnderWay& answers() { return answers_; }
  // Of unary calls: each takes one when it begins and gives it back as its last act. Null: it was
  // large and is not kept.
  std::unique_ptr<UnaryScratch> TakeScratch();
  void GiveScratch(std::unique_ptr<UnaryScratch> scratch);

  // Ends streams once their requests are answered, and loads and unloads at once; refuses new ones.
  void Stop();
  // When the last inference or stream came that was refused because the server shuts down, by
  // the clock; 0: none did.
  int64_t last_refused_nanos() const { return last_refused_nanos_.load(std::memory_order_relaxed); }
  // Of streams: each registers itself while it lives. False: stopping.
  bool AddStream(InferStream* stream);
  void RemoveStream(InferStream* stream);

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  Unary* ServerLive(Context*, const inference::ServerLiveRequest*,
                    inference::ServerLiveResponse*) override;
  Unary* ServerReady(Context*, const inference::ServerReadyRequest*,
                     inference::ServerReadyResponse*) override;
  Unary* ModelReady(Context*, const inference::ModelReadyRequest*,
                    inference::ModelReadyResponse*) override;
  Unary* ServerMetadata(Context*, const inference::ServerMetadataRequest*,
                        inference::ServerMetadataResponse*) override;
  Unary* ModelMetadata(Context*, const inference::ModelMetadataRequest*,
                       inference::ModelMetadataResponse*) override;
  // Raw: the response is written in place (grpc_response.h).
  Unary* ModelInfer(Context*, const grpc::ByteBuffer*, grpc::ByteBuffer*) override;
  grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>*
  ModelStreamInfer(Context*) override;
  Unary* ModelConfig(Context*, const inference::ModelConfigRequest*,
                     inference::ModelConfigResponse*) override;
  Unary* ModelStatistics(Context*, const inference::ModelStatisticsRequest*,
                         inference::ModelStatisticsResponse*) override;
  Unary* RepositoryIndex(Context*, const inference::RepositoryIndexRequest*,
                         inference::RepositoryIndexResponse*) override;
  Unary* RepositoryModelLoad(Context*, const inference::RepositoryModelLoadRequest*,
                             inference::RepositoryModelLoadResponse*) override;
  Unary* RepositoryModelUnload(Context*, const inference::RepositoryModelUnloadRequest*,
                               inference::RepositoryModelUnloadResponse*) override;
  Unary* SystemSharedMemoryStatus(Context*, const inference::SystemSharedMemoryStatusRequest*,
                                  inference::SystemSharedMemoryStatusResponse*) override;
  Unary* SystemSharedMemoryRegister(Context*, const inference::SystemSharedMemoryRegisterRequest*,
                                    inference::SystemSharedMemoryRegisterResponse*) override;
  Unary* SystemSharedMemoryUnregister(Context*,
                                      const inference::SystemSharedMemoryUnregisterRequest*,
                                      inference::SystemSharedMemoryUnregisterResponse*) override;
  Unary* CudaSharedMemoryStatus(Context*, const inference::CudaSharedMemoryStatusRequest*,
                                inference::CudaSharedMemoryStatusResponse*) override;
  Unary* CudaSharedMemoryRegister(Context*, const inference::CudaSharedMemoryRegisterRequest*,
                                  inference::CudaSharedMemoryRegisterResponse*) override;
  Unary* CudaSharedMemoryUnregister(Context*, const inference::CudaSharedMemoryUnregisterRequest*,
                                    inference::CudaSharedMemoryUnregisterResponse*) override;
  Unary* TraceSetting(Context*, const inference::TraceSettingRequest*,
                      inference::TraceSettingResponse*) override;
  Unary* LogSettings(Context*, const inference::LogSettingsRequest*,
                     inference::LogSettingsResponse*) override;

 private:
  // For calls that come when the server shuts down.
  void NoteCall();
  // A call that the repository ends: its reactor, and what the repository is given; null when the
  // call has ended already.
  std::pair<Unary*, ModelRepository::Done> Pending(Context* context);

  const Serving& serving_;
  ByteBudget& budget_;
  const Clock& clock_;
  LentOutputs lent_;
  AnswersUnderWay answers_;
  const std::shared_ptr<RepositoryCalls> repository_calls_ = std::make_shared<RepositoryCalls>();
  std::atomic<int64_t> last_refused_nanos_{0};
  absl::Mutex scratch_mutex_;
  std::vector<std::unique_ptr<UnaryScratch>> scratch_ ABSL_GUARDED_BY(scratch_mutex_);
  int64_t scratch_taken_ ABSL_GUARDED_BY(scratch_mutex_) = 0;
  absl::Mutex mutex_;
  std::unordered_set<InferStream*> streams_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stampmill
