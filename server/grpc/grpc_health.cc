#include "server/grpc/grpc_health.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <string>
#include <utility>

namespace stampmill {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

namespace {

HealthCheckResponse::ServingStatus StatusOf(const Serving& serving) {
  return serving.IsReady() ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

constexpr const char* kServices[] = {"grpc.health.v1.Health",
                                     "grpc.reflection.v1alpha.ServerReflection",
                                     "inference.GRPCInferenceService"};

void AddFile(const google::protobuf::FileDescriptor& file, std::set<std::string>& done,
             grpc::reflection::v1alpha::FileDescriptorResponse* out) {
  if (!done.insert(file.name()).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  proto.SerializeToString(out->add_file_descriptor_proto());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), done, out);
}

// One question of the reflection protocol.
void Reflect(const ServerReflectionRequest& request, ServerReflectionResponse* response) {
  response->set_valid_host(request.host());
  *response->mutable_original_request() = request;
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  const google::protobuf::FileDescriptor* file = nullptr;
  const auto fail = [&](grpc::StatusCode code, const std::string& message) {
    response->mutable_error_response()->set_error_code(code);
    response->mutable_error_response()->set_error_message(message);
  };
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const char* name : kServices) {
        response->mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case ServerReflectionRequest::kFileByFilename:
      file = pool->FindFileByName(request.file_by_filename());
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      file = pool->FindFileContainingSymbol(request.file_containing_symbol());
      break;
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      if (pool->FindMessageTypeByName(request.all_extension_numbers_of_type()) != nullptr) {
        // The schemas are proto3: no message has extensions.
        response->mutable_all_extension_numbers_response()->set_base_type_name(
            request.all_extension_numbers_of_type());
        return;
      }
      break;
    case ServerReflectionRequest::kFileContainingExtension:
      break;
    default:
      return fail(grpc::StatusCode::INVALID_ARGUMENT, "reflection: the request asks nothing");
  }
  if (file == nullptr) return fail(grpc::StatusCode::NOT_FOUND, "reflection: not found");
  std::set<std::string> done;
  AddFile(*file, done, response->mutable_file_descriptor_response());
}

// One question at a time; deletes itself.
class ReflectionStream final
    : public grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse> {
 public:
  ReflectionStream() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    response_.Clear();
    Reflect(request_, &response_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      StartRead(&request_);
    } else {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client left"));
    }
  }
  void OnDone() override { delete this; }

 private:
  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
};

}  // namespace

// One Watch call. Writes at most one answer at a time and, when the state changed meanwhile, the
// newest. Its fields are guarded by the service's mutex.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  explicit Watcher(HealthService& service) : service_(service) {}

  // With the service's mutex held.
  void Tell(HealthCheckResponse::ServingStatus status) {
    if (finished_ || writing_ || (told_ && response_.status() == status)) return;
    response_.set_status(status);
    told_ = writing_ = true;
    StartWrite(&response_);
  }
  void End(const grpc::Status& status) {
    if (finished_) return;
    finished_ = true;
    Finish(status);
  }

  void OnWriteDone(bool ok) override {
    const absl::MutexLock lock(&service_.mutex_);
    writing_ = false;
    if (!ok) End(grpc::Status(grpc::StatusCode::CANCELLED, "the client left"));
  }
  void OnCancel() override {
    const absl::MutexLock lock(&service_.mutex_);
    End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by the client"));
  }
  void OnDone() override {
    {
      const absl::MutexLock lock(&service_.mutex_);
      service_.watchers_.erase(this);
    }
    delete this;
  }

 private:
  HealthService& service_;
  HealthCheckResponse response_;
  bool told_ = false;
  bool writing_ = false;
  bool finished_ = false;
};

HealthService::~HealthService() {
  const absl::MutexLock lock(&mutex_);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return watchers_.empty(); };
  mutex_.Await(absl::Condition(&none));
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest*,
                                               HealthCheckResponse* response) {
  response->set_status(StatusOf(serving_));
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(grpc::CallbackServerContext*,
                                                                    const HealthCheckRequest*) {
  auto* const watcher = new Watcher(*this);
  const absl::MutexLock lock(&mutex_);
  watchers_.insert(watcher);
  if (stopping_) {
    watcher->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "Server exiting"));
  } else {
    watcher->Tell(StatusOf(serving_));
  }
  return watcher;
}

void HealthService::Update() {
  const absl::MutexLock lock(&mutex_);
  if (watchers_.empty()) return;
  const HealthCheckResponse::ServingStatus status = StatusOf(serving_);
  for (Watcher* watcher : watchers_) watcher->Tell(status);
}

void HealthService::Stop() {
  const absl::MutexLock lock(&mutex_);
  stopping_ = true;
  for (Watcher* watcher : watchers_) {
    watcher->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "Server exiting"));
  }
}

grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>*
ReflectionService::ServerReflectionInfo(grpc::CallbackServerContext*) {
  return new ReflectionStream;
}

}  // namespace stampmill
