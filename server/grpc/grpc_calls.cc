#include "server/grpc/grpc_calls.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/answers.h"
#include "server/grpc/grpc_stream.h"

namespace stampmill {
namespace {

using Context = grpc::CallbackServerContext;

grpc::ServerUnaryReactor* Finished(Context* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// An answer made at once.
template <typename Message>
grpc::ServerUnaryReactor* Answered(Context* context, absl::StatusOr<Message> message,
                                   Message* response) {
  if (message.ok()) *response = *std::move(message);
  return Finished(context, message.status());
}

absl::Status RefuseRepositoryName(const std::string& name) {
  if (name.empty()) return absl::OkStatus();
  return absl::UnimplementedError("'repository_name' specification is not supported");
}

absl::StatusOr<ModelLoadRequest> ParseLoad(const inference::RepositoryModelLoadRequest& request) {
  RETURN_IF_ERROR(RefuseRepositoryName(request.repository_name()));
  ModelLoadRequest load{.name = request.model_name(), .config_json = "", .files = {}};
  for (const auto& [name, value] : request.parameters()) {
    const auto choice = value.parameter_choice_case();
    const bool is_file = absl::StartsWith(name, "file:");
    if (name != "config" && !is_file) {
      return absl::InvalidArgumentError(absl::StrCat("unrecognized load parameter '", name, "'"));
    }
    if (is_file ? choice != inference::ModelRepositoryParameter::kBytesParam
                : choice != inference::ModelRepositoryParameter::kStringParam) {
      return absl::InvalidArgumentError(
          absl::StrCat("invalid value type for load parameter '", name, "', expected ",
                       is_file ? "bytes_param" : "string_param", "."));
    }
    if (is_file) {
      load.files[name.substr(5)] = value.bytes_param();
    } else {
      load.config_json = value.string_param();
    }
  }
  return load;
}

// A unary inference. Deletes itself when gRPC is done with it, which is after Finish.
class UnaryInferCall final : public InferCall, public grpc::ServerUnaryReactor {
 public:
  UnaryInferCall(InferenceCalls& calls, grpc_call* call, grpc::ByteBuffer& response)
      : calls_(calls), call_(call), response_(response), scratch_(calls.TakeScratch()) {}
  ~UnaryInferCall() override {
    if (claim_.bytes() > kScratchMessageBytesMax) scratch_ = nullptr;
    claim_ = {};
    calls_.GiveScratch(std::move(scratch_));
  }

  // Takes `self`: from here on its Finish or gRPC deletes it.
  void Start(const grpc::ByteBuffer& request, int64_t deadline_nanos,
             std::unique_ptr<UnaryInferCall> self) {
    std::unique_ptr<InferCall> call = std::move(self);
    const absl::Status status = TryStart(request, deadline_nanos, call);
    // Not submitted: the call is still ours, until it is finished.
    if (!status.ok()) {
      call.release();
      grpc::ServerUnaryReactor::Finish(ToGrpcStatus(status));
    }
  }

  void Finish(RequestHandle request) override {
    absl::Status status = request->status;
    if (status.ok()) status = scratch_->writer.Write(*request, calls_.lent(), response_);
    // The slot is free before the client hears of the end.
    request.reset();
    if (status.ok()) answer_due_nanos_ = calls_.answers().Begin(call_, response_.Length());
    grpc::ServerUnaryReactor::Finish(ToGrpcStatus(status));
  }

  void OnCancel() override {
    if (cancel_.engine != nullptr) cancel_.engine->Cancel(cancel_.tag);
  }
  void OnDone() override {
    if (answer_due_nanos_.has_value()) calls_.answers().End(call_, *answer_due_nanos_);
    delete this;
  }
  // Neither of the two above blocks or calls back: gRPC runs them where it is, as it does those of
  // its own reactors, and wakes no other thread for them. (This hook of gRPC 1.51 is meant for
  // reactions as simple as that, but is not part of its API.)
  bool InternalInlineable() override { return true; }

 private:
  static constexpr uint64_t kScratchMessageBytesMax = 64 << 10;

  absl::Status TryStart(const grpc::ByteBuffer& request_bytes, int64_t deadline_nanos,
                        std::unique_ptr<InferCall>& call) {
    const int64_t arrival = RealClock().NowNanos();
    if (!calls_.budget().Grow(claim_, request_bytes.Length())) {
      return InflightBytesExceeded(calls_.budget());
    }
    inference::ModelInferRequest& message = scratch_->message;
    grpc::ByteBuffer buffer(request_bytes);  // shares the slices
    grpc::ProtoBufferReader reader(&buffer);
    if (!reader.status().ok() || !message.ParseFromZeroCopyStream(&reader)) {
      return absl::InvalidArgumentError("the message is no inference.ModelInferRequest");
    }
    const Serving& serving = calls_.serving();
    ASSIGN_OR_RETURN(RequestHandle request,
                     serving.Begin(message.model_name(), message.model_version(), arrival));
    request->deadline_nanos = deadline_nanos;
    GrpcInference& inference = scratch_->inference;
    inference = {};
    RETURN_IF_ERROR(ParseInference(message, inference.wire, inference.decoded));
    cancel_ = {.engine = &request->model->engine(), .tag = request->tag()};
    return serving.Submit(inference.wire, request, call);
  }

  InferenceCalls& calls_;
  grpc_call* const call_;
  grpc::ByteBuffer& response_;
  std::unique_ptr<UnaryScratch> scratch_;
  CancelTarget cancel_;
  ByteBudget::Claim claim_;
  std::optional<int64_t> answer_due_nanos_;  // once there is an answer
};

}  // namespace

int64_t EngineDeadline(const Context& context, const Clock& clock) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return kNoDeadline;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
      deadline - std::chrono::system_clock::now());
  const int64_t now = clock.NowNanos();
  return left.count() >= kNoDeadline - now ? kNoDeadline : now + left.count();
}

absl::Status InflightBytesExceeded(const ByteBudget& budget) {
  return absl::UnavailableError(absl::StrCat("requests in flight: got more than the limit of ",
                                             budget.bytes_max(),
                                             " bytes together (--max-inflight-bytes)"));
}

void InferenceCalls::Stop() {
  repository_calls_->Stop();
  const absl::MutexLock lock(&mutex_);
  stopping_ = true;
  for (InferStream* stream : streams_) stream->Drain();
}

void InferenceCalls::NoteCall() {
  if (!serving_.shutting_down()) return;
  last_refused_nanos_.store(clock_.NowNanos(), std::memory_order_relaxed);
}

bool InferenceCalls::AddStream(InferStream* stream) {
  const absl::MutexLock lock(&mutex_);
  streams_.insert(stream);
  return !stopping_;
}

void InferenceCalls::RemoveStream(InferStream* stream) {
  const absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
}

grpc::ServerUnaryReactor* InferenceCalls::ServerLive(Context* context,
                                                     const inference::ServerLiveRequest*,
                                                     inference::ServerLiveResponse* response) {
  response->set_live(true);
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceCalls::ServerReady(Context* context,
                                                      const inference::ServerReadyRequest*,
                                                      inference::ServerReadyResponse* response) {
  response->set_ready(serving_.IsReady());
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceCalls::ModelReady(Context* context,
                                                     const inference::ModelReadyRequest* request,
                                                     inference::ModelReadyResponse* response) {
  const absl::StatusOr<bool> ready = IsModelReady(serving_, request->name(), request->version());
  if (absl::IsInvalidArgument(ready.status())) return Finished(context, ready.status());
  response->set_ready(ready.ok() && *ready);
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceCalls::ServerMetadata(
    Context* context, const inference::ServerMetadataRequest*,
    inference::ServerMetadataResponse* response) {
  *response = stampmill::ServerMetadata();
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceCalls::ModelMetadata(
    Context* context, const inference::ModelMetadataRequest* request,
    inference::ModelMetadataResponse* response) {
  return Answered(context, stampmill::ModelMetadata(serving_, request->name(), request->version()),
                  response);
}

grpc::ServerUnaryReactor* InferenceCalls::ModelInfer(Context* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  NoteCall();
  auto call = std::make_unique<UnaryInferCall>(*this, context->c_call(), *response);
  UnaryInferCall* const reactor = call.get();
  reactor->Start(*request, EngineDeadline(*context, serving_.engine().clock()), std::move(call));
  return reactor;
}

InferenceCalls::~InferenceCalls() {
  lent_.WaitUntilReturned();
  {
    const absl::MutexLock lock(&scratch_mutex_);
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(scratch_mutex_) {
      return scratch_taken_ == 0;
    };
    scratch_mutex_.Await(absl::Condition(&none));
  }
  const absl::MutexLock lock(&mutex_);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return streams_.empty(); };
  mutex_.Await(absl::Condition(&none));
}

std::unique_ptr<UnaryScratch> InferenceCalls::TakeScratch() {
  {
    const absl::MutexLock lock(&scratch_mutex_);
    ++scratch_taken_;
    if (!scratch_.empty()) {
      std::unique_ptr<UnaryScratch> scratch = std::move(scratch_.back());
      scratch_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<UnaryScratch>();
}

void InferenceCalls::GiveScratch(std::unique_ptr<UnaryScratch> scratch) {
  // More than this at once is a rare load.
  constexpr size_t kKept = 64;
  const absl::MutexLock lock(&scratch_mutex_);
  --scratch_taken_;
  if (scratch != nullptr && scratch_.size() < kKept) scratch_.push_back(std::move(scratch));
}

grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>*
InferenceCalls::ModelStreamInfer(Context* context) {
  NoteCall();
  return InferStream::Begin(*this, *context);
}

grpc::ServerUnaryReactor* InferenceCalls::ModelConfig(Context* context,
                                                      const inference::ModelConfigRequest* request,
                                                      inference::ModelConfigResponse* response) {
  return Answered(context, ModelConfiguration(serving_, request->name(), request->version()),
                  response);
}

grpc::ServerUnaryReactor* InferenceCalls::ModelStatistics(
    Context* context, const inference::ModelStatisticsRequest* request,
    inference::ModelStatisticsResponse* response) {
  return Answered(context, ModelStatisticsOf(serving_, request->name(), request->version()),
                  response);
}

grpc::ServerUnaryReactor* InferenceCalls::RepositoryIndex(
    Context* context, const inference::RepositoryIndexRequest* request,
    inference::RepositoryIndexResponse* response) {
  const absl::Status status = RefuseRepositoryName(request->repository_name());
  if (status.ok()) *response = stampmill::RepositoryIndex(serving_, request->ready());
  return Finished(context, status);
}

std::pair<grpc::ServerUnaryReactor*, ModelRepository::Done> InferenceCalls::Pending(
    Context* context) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const uint64_t call = repository_calls_->Add(reactor);
  if (call == 0) return {reactor, nullptr};
  return {reactor, [calls = repository_calls_, call](const absl::Status& status) {
            calls->Finish(call, status);
          }};
}

grpc::ServerUnaryReactor* InferenceCalls::RepositoryModelLoad(
    Context* context, const inference::RepositoryModelLoadRequest* request,
    inference::RepositoryModelLoadResponse*) {
  absl::StatusOr<ModelLoadRequest> load = ParseLoad(*request);
  if (!load.ok()) return Finished(context, load.status());
  auto [reactor, done] = Pending(context);
  if (done) serving_.repository().Load(*std::move(load), std::move(done));
  return reactor;
}

grpc::ServerUnaryReactor* InferenceCalls::RepositoryModelUnload(
    Context* context, const inference::RepositoryModelUnloadRequest* request,
    inference::RepositoryModelUnloadResponse*) {
  const absl::Status status = RefuseRepositoryName(request->repository_name());
  if (!status.ok()) return Finished(context, status);
  const auto dependents = request->parameters().find("unload_dependents");
  const bool unload_dependents =
      dependents != request->parameters().end() && dependents->second.bool_param();
  auto [reactor, done] = Pending(context);
  if (done) {
    serving_.repository().Unload(request->model_name(), unload_dependents, std::move(done));
  }
  return reactor;
}

grpc::ServerUnaryReactor* InferenceCalls::SystemSharedMemoryStatus(
    Context* context, const inference::SystemSharedMemoryStatusRequest* request,
    inference::SystemSharedMemoryStatusResponse* response) {
  return Answered(context, SharedMemoryStatus(serving_, request->name()), response);
}

grpc::ServerUnaryReactor* InferenceCalls::SystemSharedMemoryRegister(
    Context* context, const inference::SystemSharedMemoryRegisterRequest* request,
    inference::SystemSharedMemoryRegisterResponse*) {
  return Finished(context,
                  serving_.pool().RegisterClientRegion(request->name(), request->key(),
                                                       request->offset(), request->byte_size()));
}

grpc::ServerUnaryReactor* InferenceCalls::SystemSharedMemoryUnregister(
    Context* context, const inference::SystemSharedMemoryUnregisterRequest* request,
    inference::SystemSharedMemoryUnregisterResponse*) {
  return Finished(context, request->name().empty()
                               ? serving_.pool().UnregisterAllClientRegions()
                               : serving_.pool().UnregisterClientRegion(request->name()));
}

grpc::ServerUnaryReactor* InferenceCalls::CudaSharedMemoryStatus(
    Context* context, const inference::CudaSharedMemoryStatusRequest*,
    inference::CudaSharedMemoryStatusResponse*) {
  return Finished(context, CudaSharedMemoryUnsupported());
}

grpc::ServerUnaryReactor* InferenceCalls::CudaSharedMemoryRegister(
    Context* context, const inference::CudaSharedMemoryRegisterRequest*,
    inference::CudaSharedMemoryRegisterResponse*) {
  return Finished(context, CudaSharedMemoryUnsupported());
}

grpc::ServerUnaryReactor* InferenceCalls::CudaSharedMemoryUnregister(
    Context* context, const inference::CudaSharedMemoryUnregisterRequest*,
    inference::CudaSharedMemoryUnregisterResponse*) {
  return Finished(context, CudaSharedMemoryUnsupported());
}

grpc::ServerUnaryReactor* InferenceCalls::TraceSetting(Context* context,
                                                       const inference::TraceSettingRequest*,
                                                       inference::TraceSettingResponse*) {
  return Finished(context, TraceUnsupported());
}

grpc::ServerUnaryReactor* InferenceCalls::LogSettings(Context* context,
                                                      const inference::LogSettingsRequest*,
                                                      inference::LogSettingsResponse*) {
  return Finished(context, LoggingUnsupported());
}

}  // namespace stampmill
