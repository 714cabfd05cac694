#include "server/grpc/grpc_service.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "gtest/gtest.h"
#include "proto/grpc_service.grpc.pb.h"
#include "proto/health.grpc.pb.h"
#include "proto/reflection.grpc.pb.h"
#include "server/grpc/grpc_limits.h"
#include "server/testing/serving_fixture.h"

namespace stampmill {
namespace {

using inference::GRPCInferenceService;
using inference::ModelInferRequest;
using inference::ModelInferResponse;

std::string Ints(std::vector<int32_t> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
}

ModelInferRequest AddRequest(const std::string& id = "", const std::string& model = "add") {
  ModelInferRequest request;
  request.set_model_name(model);
  request.set_id(id);
  auto* input = request.add_inputs();
  input->set_name("IN");
  input->set_datatype("INT32");
  input->add_shape(1);
  input->add_shape(4);
  request.add_raw_input_contents(Ints({1, 2, 3, 4}));
  return request;
}

class GrpcServiceTest : public testing::Test {
 protected:
  GrpcServiceTest() : budget_(64 << 20) { StartServer({}); }
  ~GrpcServiceTest() override { server_.reset(); }

  void StartServer(const GrpcServerOptions& options) {
    server_.reset();
    auto made = GrpcServer::Start(options, *fixture_.serving, budget_);
    CHECK_OK(made);
    server_ = *std::move(made);
    stub_ = GRPCInferenceService::NewStub(Connect());
  }
  // A connection of its own.
  std::shared_ptr<grpc::Channel> Connect(grpc::ChannelArguments arguments = {}) {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server_->port()),
                                     grpc::InsecureChannelCredentials(), arguments);
  }
  grpc::Status Infer(const ModelInferRequest& request, ModelInferResponse* response = nullptr) {
    grpc::ClientContext context;
    ModelInferResponse dropped;
    return stub_->ModelInfer(&context, request, response == nullptr ? &dropped : response);
  }

  // A connection whose client takes 64 KiB of what it does not read.
  std::shared_ptr<grpc::Channel> ConnectNarrowly() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
    return Connect(arguments);
  }
  grpc::Status Load(const std::string& model) {
    grpc::ClientContext context;
    inference::RepositoryModelLoadRequest request;
    request.set_model_name(model);
    inference::RepositoryModelLoadResponse response;
    return stub_->RepositoryModelLoad(&context, request, &response);
  }
  // Loads the model "wide"; a request to it whose answer is all that a stream may hold.
  ModelInferRequest WideRequest() {
    constexpr int64_t kRows = int64_t{kGrpcStreamBytesMax} / 16;
    fixture_.AddModelFile("wide", "1");
    const std::string config = absl::StrCat("max_batch_size: ", kRows);
    CHECK_OK(AtomicReplaceFile(absl::StrCat(fixture_.folder, "/wide/config.pbtxt"),
                               std::as_bytes(std::span(config))));
    CHECK(Load("wide").ok());
    ModelInferRequest request = AddRequest("large", "wide");
    request.mutable_inputs(0)->set_shape(0, kRows);
    request.set_raw_input_contents(0, std::string(kGrpcStreamBytesMax, '\0'));
    return request;
  }
  // Until the server has looked at its connections and calls once more.
  void AwaitSweep() {
    const int64_t connections = server_->counters().connections;
    {
      auto other = GRPCInferenceService::NewStub(Connect());
      grpc::ClientContext context;
      inference::ServerLiveResponse live;
      CHECK(other->ServerLive(&context, {}, &live).ok());
    }
    // It sees the end of a connection after the sweep of its beginning.
    while (server_->counters().connections > connections) std::this_thread::yield();
  }
  uint64_t Answered(const std::string& model) {
    grpc::ClientContext context;
    inference::ModelStatisticsRequest request;
    request.set_name(model);
    inference::ModelStatisticsResponse response;
    CHECK(stub_->ModelStatistics(&context, request, &response).ok());
    return response.model_stats(0).inference_stats().success().count();
  }

  ServingFixture fixture_;
  SimulatedClock clock_;
  ByteBudget budget_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<GRPCInferenceService::Stub> stub_;
};

#define EXPECT_GRPC(status, code, text)                                                         \
  do {                                                                                          \
    const grpc::Status got = (status);                                                          \
    EXPECT_EQ(got.error_code(), grpc::StatusCode::code) << got.error_message();                 \
    EXPECT_TRUE(absl::StrContains(got.error_message(), text)) << "got " << got.error_message(); \
  } while (false)

TEST_F(GrpcServiceTest, TellsOfTheServerAndItsModels) {
  grpc::ClientContext contexts[6];
  inference::ServerLiveResponse live;
  EXPECT_TRUE(stub_->ServerLive(&contexts[0], {}, &live).ok());
  EXPECT_TRUE(live.live());
  inference::ServerReadyResponse ready;
  EXPECT_TRUE(stub_->ServerReady(&contexts[1], {}, &ready).ok());
  EXPECT_TRUE(ready.ready());
  inference::ModelMetadataRequest metadata_request;
  metadata_request.set_name("add");
  inference::ModelMetadataResponse metadata;
  EXPECT_TRUE(stub_->ModelMetadata(&contexts[2], metadata_request, &metadata).ok());
  EXPECT_EQ(metadata.inputs(0).datatype(), "INT32");
  metadata_request.set_name("none");
  EXPECT_GRPC(stub_->ModelMetadata(&contexts[3], metadata_request, &metadata), NOT_FOUND,
              "Request for unknown model: 'none' is not found");
  inference::ModelReadyRequest model_ready_request;
  model_ready_request.set_name("none");
  inference::ModelReadyResponse model_ready;
  EXPECT_TRUE(stub_->ModelReady(&contexts[4], model_ready_request, &model_ready).ok());
  EXPECT_FALSE(model_ready.ready());
  inference::ServerMetadataResponse server;
  EXPECT_TRUE(stub_->ServerMetadata(&contexts[5], {}, &server).ok());
  EXPECT_EQ(server.name(), "stampmill");
}

TEST_F(GrpcServiceTest, InfersFromRawAndTypedContents) {
  ModelInferResponse response;
  const grpc::Status status = Infer(AddRequest("7"), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.id(), "7");
  EXPECT_EQ(response.model_name(), "add");
  EXPECT_EQ(response.model_version(), "1");
  EXPECT_EQ(response.outputs(0).name(), "OUT");
  EXPECT_EQ(response.outputs(0).shape(1), 4);
  EXPECT_EQ(response.raw_output_contents(0), Ints({3, 4, 5, 6}));
  ModelInferRequest typed = AddRequest();
  typed.clear_raw_input_contents();
  for (int i = 0; i < 4; ++i) typed.mutable_inputs(0)->mutable_contents()->add_int_contents(i);
  ASSERT_TRUE(Infer(typed, &response).ok());
  EXPECT_EQ(response.raw_output_contents(0), Ints({2, 3, 4, 5}));
}

TEST_F(GrpcServiceTest, ASequenceMeansNothingToAModelWithoutSequenceBatching) {
  ModelInferRequest request = AddRequest();
  (*request.mutable_parameters())["sequence_id"].set_int64_param(5);
  (*request.mutable_parameters())["sequence_start"].set_bool_param(true);
  ModelInferResponse response;
  const grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.raw_output_contents(0), Ints({3, 4, 5, 6}));
}

TEST_F(GrpcServiceTest, RefusesFaultyRequests) {
  EXPECT_GRPC(Infer(AddRequest("", "none")), NOT_FOUND, "Request for unknown model");
  ModelInferRequest request = AddRequest();
  request.set_model_version("x");
  EXPECT_GRPC(Infer(request), INVALID_ARGUMENT, "specified version string 'x'");
  request = AddRequest();
  request.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  EXPECT_GRPC(Infer(request), INVALID_ARGUMENT,
              "contents field must not be specified when using raw_input_contents for 'IN'");
  request = AddRequest();
  request.clear_raw_input_contents();
  EXPECT_GRPC(Infer(request), INVALID_ARGUMENT, "unable to find data for input tensor 'IN'");
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  EXPECT_GRPC(Infer(request), INVALID_ARGUMENT, "unexpected explicit tensor data");
  request = AddRequest();
  (*request.mutable_parameters())["timeout"].set_string_param("1");
  EXPECT_GRPC(Infer(request), INVALID_ARGUMENT,
              "invalid value type for 'timeout' parameter, expected int64_param.");
  request = AddRequest();
  request.mutable_inputs(0)->set_shape(1, int64_t{1} << 62);
  EXPECT_GRPC(Infer(request), INVALID_ARGUMENT, "");
  request = AddRequest();
  request.set_raw_input_contents(0, "123");
  EXPECT_GRPC(Infer(request), INVALID_ARGUMENT, "input byte size mismatch for input 'IN'");
  request = AddRequest();
  request.add_raw_input_contents("stray");  // ignored, as Triton does
  EXPECT_TRUE(Infer(request).ok());
  request = AddRequest();
  request.add_raw_input_contents(std::string(65 << 20, 'x'));
  EXPECT_GRPC(Infer(request), UNAVAILABLE, "--max-inflight-bytes");
  EXPECT_EQ(budget_.used_bytes(), 0u);
}

TEST_F(GrpcServiceTest, AnswersStreamsInOrder) {
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  // More than are taken at once.
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i) {
      stream->Write(AddRequest(absl::StrCat(i), i % 10 == 3 ? "none" : "add"));
    }
    stream->WritesDone();
  });
  for (int i = 0; i < 200; ++i) {
    inference::ModelStreamInferResponse response;
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.infer_response().id(), absl::StrCat(i));
    EXPECT_TRUE(response.infer_response().parameters().at("triton_final_response").bool_param());
    EXPECT_EQ(!response.error_message().empty(), i % 10 == 3);
  }
  inference::ModelStreamInferResponse response;
  EXPECT_FALSE(stream->Read(&response));
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcServiceTest, ReadsNoMoreOfAStreamWhoseAnswersAreNotRead) {
  stub_ = GRPCInferenceService::NewStub(ConnectNarrowly());
  const ModelInferRequest large = WideRequest();
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(large));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(stream->Write(AddRequest(absl::StrCat(i))));
  while (Answered("wide") == 0) std::this_thread::yield();
  // Calls of the same connection: what was written before them has come.
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Answered("add"), 0u);
  EXPECT_LE(budget_.used_bytes(), kGrpcStreamBytesMax + 1024);

  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.infer_response().id(), "large");
  EXPECT_EQ(response.infer_response().raw_output_contents(0).size(), kGrpcStreamBytesMax);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.infer_response().id(), absl::StrCat(i));
  }
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcServiceTest, GivesUpAnswersThatAreNotTaken) {
  StartServer({.clock = &clock_});
  const ModelInferRequest large = WideRequest();
  const uint64_t pool_bytes = fixture_.engine.pool->used_bytes();
  // A call whose client never reads.
  const std::string message = large.SerializeAsString();
  const grpc::Slice slice(message);
  grpc::GenericStub generic(ConnectNarrowly());
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  auto call = generic.PrepareCall(&context, "/inference.GRPCInferenceService/ModelInfer", &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  ASSERT_TRUE(wait());
  call->WritesDone(nullptr);
  ASSERT_TRUE(wait());
  while (Answered("wide") == 0) std::this_thread::yield();
  // 60 s, and 4 for its 1 MiB.
  clock_.Advance(63'000'000'000);
  AwaitSweep();
  EXPECT_EQ(server_->counters().clients_too_slow, 0);
  EXPECT_GE(fixture_.engine.pool->used_bytes(), pool_bytes + kGrpcStreamBytesMax);
  clock_.Advance(2'000'000'000);
  while (fixture_.engine.pool->used_bytes() > pool_bytes) std::this_thread::yield();
  EXPECT_EQ(server_->counters().clients_too_slow, 1);
  EXPECT_TRUE(Infer(AddRequest()).ok());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  EXPECT_FALSE(wait());
  grpc::Status status;
  call->Finish(&status, nullptr);
  ASSERT_TRUE(wait());
  EXPECT_GRPC(status, CANCELLED, "");
}

TEST_F(GrpcServiceTest, GivesUpStreamsWhoseAnswersAreNotTaken) {
  StartServer({.clock = &clock_});
  const ModelInferRequest large = WideRequest();
  auto narrow = GRPCInferenceService::NewStub(ConnectNarrowly());
  grpc::ClientContext context;
  auto stream = narrow->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(large));
  while (Answered("wide") == 0) std::this_thread::yield();
  while (server_->counters().clients_too_slow == 0) {
    clock_.Advance(70'000'000'000);  // the write may begin after the first
    std::this_thread::yield();
  }
  while (budget_.used_bytes() > 0) std::this_thread::yield();
  EXPECT_EQ(server_->counters().clients_too_slow, 1);
  inference::ModelStreamInferResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_GRPC(stream->Finish(), CANCELLED, "");
}

TEST_F(GrpcServiceTest, EndsStreamsWithRealErrorsWhenAsked) {
  grpc::ClientContext context;
  context.AddMetadata("triton_grpc_error", "true");
  auto stream = stub_->ModelStreamInfer(&context);
  stream->Write(AddRequest("1"));
  stream->Write(AddRequest("2", "none"));
  inference::ModelStreamInferResponse response;
  EXPECT_TRUE(stream->Read(&response));
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_GRPC(stream->Finish(), NOT_FOUND, "none");
}

TEST_F(GrpcServiceTest, SurvivesClientsThatLeave) {
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    auto stream = stub_->ModelStreamInfer(&context);
    for (int j = 0; j < 10; ++j) stream->Write(AddRequest());
    context.TryCancel();
    stream->Finish();
    grpc::ClientContext late;
    late.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(200 * i));
    ModelInferResponse response;
    stub_->ModelInfer(&late, AddRequest(), &response);
  }
  EXPECT_TRUE(Infer(AddRequest()).ok());
}

TEST_F(GrpcServiceTest, LoadsAndUnloadsModels) {
  fixture_.AddModelFile("later", "5");
  const auto load = [&](const std::string& name, const std::string& repository = "") {
    grpc::ClientContext context;
    inference::RepositoryModelLoadRequest request;
    request.set_model_name(name);
    request.set_repository_name(repository);
    inference::RepositoryModelLoadResponse response;
    return stub_->RepositoryModelLoad(&context, request, &response);
  };
  EXPECT_TRUE(load("later").ok());
  EXPECT_TRUE(Infer(AddRequest("", "later")).ok());
  EXPECT_GRPC(load("bad"), INVALID_ARGUMENT, "cannot compile");
  EXPECT_FALSE(load("none").ok());
  EXPECT_GRPC(load("later", "r"), UNIMPLEMENTED, "repository_name");
  grpc::ClientContext contexts[2];
  inference::RepositoryIndexResponse index;
  EXPECT_TRUE(stub_->RepositoryIndex(&contexts[0], {}, &index).ok());
  EXPECT_EQ(index.models_size(), 3);
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("later");
  inference::RepositoryModelUnloadResponse unloaded;
  EXPECT_TRUE(stub_->RepositoryModelUnload(&contexts[1], unload, &unloaded).ok());
  EXPECT_FALSE(Infer(AddRequest("", "later")).ok());
}

TEST_F(GrpcServiceTest, RefusesWhatIsNotOffered) {
  grpc::ClientContext contexts[3];
  inference::TraceSettingResponse trace;
  EXPECT_GRPC(stub_->TraceSetting(&contexts[0], {}, &trace), UNIMPLEMENTED, "trac");
  inference::LogSettingsResponse log;
  EXPECT_GRPC(stub_->LogSettings(&contexts[1], {}, &log), UNIMPLEMENTED, "logging");
  inference::CudaSharedMemoryStatusResponse cuda;
  EXPECT_GRPC(stub_->CudaSharedMemoryStatus(&contexts[2], {}, &cuda), UNIMPLEMENTED, "CUDA");
}

TEST_F(GrpcServiceTest, HealthMirrorsReadiness) {
  auto health = grpc::health::v1::Health::NewStub(Connect());
  grpc::ClientContext context, watch_context, late_context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("whatever");
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(health->Check(&context, request, &response).ok());
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  auto watch = health->Watch(&watch_context, request);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  fixture_.serving->BeginShutdown();
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  ASSERT_TRUE(health->Check(&late_context, request, &response).ok());
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_GRPC(Infer(AddRequest()), UNAVAILABLE, "Server exiting");
  server_->Stop(0);
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_GRPC(watch->Finish(), UNAVAILABLE, "Server exiting");
}

TEST_F(GrpcServiceTest, ReflectsItsServices) {
  using grpc::reflection::v1alpha::ServerReflectionRequest;
  using grpc::reflection::v1alpha::ServerReflectionResponse;
  auto reflection = grpc::reflection::v1alpha::ServerReflection::NewStub(Connect());
  grpc::ClientContext context;
  auto stream = reflection->ServerReflectionInfo(&context);
  ServerReflectionRequest request;
  ServerReflectionResponse response;
  request.set_list_services("*");
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_EQ(response.list_services_response().service_size(), 3);
  request.set_file_containing_symbol("inference.GRPCInferenceService");
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_EQ(response.file_descriptor_response().file_descriptor_proto_size(), 2);
  request.set_file_by_filename("no such file");
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_EQ(response.error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcServiceTest, RefusesMessagesBeyondTheLimit) {
  StartServer({.message_bytes_max = 1 << 20});
  ModelInferRequest request = AddRequest();
  request.add_raw_input_contents(std::string(2 << 20, 'x'));
  EXPECT_GRPC(Infer(request), RESOURCE_EXHAUSTED, "");
  EXPECT_TRUE(Infer(AddRequest()).ok());
}

TEST_F(GrpcServiceTest, BoundsConnections) {
  StartServer({.connections_max = 1});
  ASSERT_TRUE(Infer(AddRequest()).ok());
  EXPECT_EQ(server_->counters().connections, 1);
  auto second = GRPCInferenceService::NewStub(Connect());
  {
    grpc::ClientContext context;
    inference::ServerLiveResponse live;
    EXPECT_FALSE(second->ServerLive(&context, {}, &live).ok());
  }
  EXPECT_GE(server_->counters().connections_refused, 1);
  stub_ = nullptr;
  // Once the first is closed there is room again.
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  inference::ServerLiveResponse live;
  EXPECT_TRUE(second->ServerLive(&context, {}, &live).ok());
}

TEST_F(GrpcServiceTest, RecoversFromHavingNoDescriptors) {
  ASSERT_TRUE(Infer(AddRequest()).ok());
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  auto second = GRPCInferenceService::NewStub(Connect());
  const int probe = dup(0);
  close(probe);
  rlimit low = limit;
  low.rlim_cur = static_cast<rlim_t>(probe) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  {
    grpc::ClientContext context;
    inference::ServerLiveResponse live;
    EXPECT_FALSE(second->ServerLive(&context, {}, &live).ok());
  }
  EXPECT_TRUE(Infer(AddRequest()).ok());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  inference::ServerLiveResponse live;
  EXPECT_TRUE(second->ServerLive(&context, {}, &live).ok());
}

TEST_F(GrpcServiceTest, StopsWithStreamsOpen) {
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Write(AddRequest()) && stream->Read(&response));
  server_->Stop(60'000'000'000);  // ends at once: nothing is left to answer
  EXPECT_FALSE(stream->Read(&response));
  stream->Finish();
}

TEST_F(GrpcServiceTest, StopsWhileModelsAreBeingLoaded) {
  fixture_.AddModelFile("endless", "wait");
  std::thread client([&] { EXPECT_GRPC(Load("endless"), UNAVAILABLE, "shutting down"); });
  while (!fixture_.repository->IsBusy()) std::this_thread::yield();
  server_->Stop(int64_t{3600} * 1'000'000'000);
  client.join();
  server_.reset();
  EXPECT_TRUE(fixture_.repository->IsBusy());
  fixture_.compile_waiting.Notify();
  while (fixture_.repository->IsBusy()) std::this_thread::yield();
}

TEST_F(GrpcServiceTest, TellsCallsThatComeWhileItStops) {
  StartServer({.clock = &clock_});
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Write(AddRequest()) && stream->Read(&response));
  fixture_.serving->BeginShutdown();
  std::atomic<bool> stopped = false;
  std::thread stopper([&] {
    server_->Stop(60'000'000'000);
    stopped = true;
  });
  EXPECT_FALSE(stream->Read(&response));  // it stops
  EXPECT_GRPC(Infer(AddRequest()), UNAVAILABLE, "Server exiting");
  {
    grpc::ClientContext late;
    auto refused = stub_->ModelStreamInfer(&late);
    EXPECT_FALSE(refused->Read(&response));
    EXPECT_GRPC(refused->Finish(), UNAVAILABLE, "Server exiting");
  }
  EXPECT_FALSE(stopped);
  while (!stopped) clock_.Advance(kGrpcQuietNanos);
  stopper.join();
  stream->Finish();
}

TEST_F(GrpcServiceTest, RefusesAnAddressThatIsTaken) {
  const auto again = GrpcServer::Start({.port = server_->port()}, *fixture_.serving, budget_);
  EXPECT_TRUE(absl::IsUnavailable(again.status()));
  const auto wrong = GrpcServer::Start({.address = "nowhere"}, *fixture_.serving, budget_);
  EXPECT_TRUE(absl::IsInvalidArgument(wrong.status()));
}

}  // namespace
}  // namespace stampmill
