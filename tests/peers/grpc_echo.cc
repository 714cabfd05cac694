// The wire's own floor: KServe v2 over gRPC with a model "echo" (FP32 [16], IN to OUT) and nothing
// behind it; what serving costs beyond it is the daemon's. Usage: grpc_echo PORT. Prints
// "listening".
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "proto/grpc_service.grpc.pb.h"

namespace stampmill {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

Reactor* Done(Context* context) {
  Reactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

class Echo : public inference::GRPCInferenceService::CallbackService {
 public:
  Reactor* ServerLive(Context* context, const inference::ServerLiveRequest*,
                      inference::ServerLiveResponse* response) override {
    response->set_live(true);
    return Done(context);
  }
  Reactor* ServerReady(Context* context, const inference::ServerReadyRequest*,
                       inference::ServerReadyResponse* response) override {
    response->set_ready(true);
    return Done(context);
  }
  Reactor* ModelReady(Context* context, const inference::ModelReadyRequest*,
                      inference::ModelReadyResponse* response) override {
    response->set_ready(true);
    return Done(context);
  }
  Reactor* ServerMetadata(Context* context, const inference::ServerMetadataRequest*,
                          inference::ServerMetadataResponse* response) override {
    response->set_name("echo");
    response->set_version("1");
    response->add_extensions("statistics");
    return Done(context);
  }
  Reactor* ModelMetadata(Context* context, const inference::ModelMetadataRequest*,
                         inference::ModelMetadataResponse* response) override {
    response->set_name("echo");
    response->add_versions("1");
    response->set_platform("echo");
    const auto fill = [](const char* name, auto* tensor) {
      tensor->set_name(name);
      tensor->set_datatype("FP32");
      tensor->add_shape(16);
    };
    fill("IN", response->add_inputs());
    fill("OUT", response->add_outputs());
    return Done(context);
  }
  Reactor* ModelConfig(Context* context, const inference::ModelConfigRequest*,
                       inference::ModelConfigResponse* response) override {
    inference::ModelConfig* config = response->mutable_config();
    config->set_name("echo");
    config->set_platform("echo");
    const auto fill = [](const char* name, auto* tensor) {
      tensor->set_name(name);
      tensor->set_data_type(inference::TYPE_FP32);
      tensor->add_dims(16);
    };
    fill("IN", config->add_input());
    fill("OUT", config->add_output());
    return Done(context);
  }
  Reactor* ModelStatistics(Context* context, const inference::ModelStatisticsRequest*,
                           inference::ModelStatisticsResponse* response) override {
    const uint64_t count = requests_.load(std::memory_order_relaxed);
    inference::ModelStatistics* model = response->add_model_stats();
    model->set_name("echo");
    model->set_version("1");
    model->set_inference_count(count);
    model->set_execution_count(count);
    inference::InferStatistics* stats = model->mutable_inference_stats();
    for (inference::StatisticDuration* duration :
         {stats->mutable_success(), stats->mutable_queue(), stats->mutable_compute_input(),
          stats->mutable_compute_infer(), stats->mutable_compute_output()}) {
      duration->set_count(count);
    }
    return Done(context);
  }
  Reactor* ModelInfer(Context* context, const inference::ModelInferRequest* request,
                      inference::ModelInferResponse* response) override {
    response->set_model_name(request->model_name());
    response->set_model_version("1");
    response->set_id(request->id());
    auto* output = response->add_outputs();
    output->set_name("OUT");
    output->set_datatype("FP32");
    if (request->inputs_size() > 0) *output->mutable_shape() = request->inputs(0).shape();
    if (request->raw_input_contents_size() > 0) {
      response->add_raw_output_contents(request->raw_input_contents(0));
    }
    requests_.fetch_add(1, std::memory_order_relaxed);
    return Done(context);
  }

 private:
  std::atomic<uint64_t> requests_{0};
};

int Run(const char* port) {
  Echo service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(std::string("127.0.0.1:") + port, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::printf("listening\n");
  std::fflush(stdout);
  server->Wait();
  return 0;
}

}  // namespace
}  // namespace stampmill

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return stampmill::Run(argv[1]);
}
