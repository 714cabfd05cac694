#include "server/cli/load_client.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <deque>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "graph/dtype.h"
#include "proto/grpc_service.grpc.pb.h"

namespace stampmill {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace json = boost::json;
using boost::system::error_code;

constexpr int64_t kInputBytesMax = int64_t{1} << 31;

using HttpAnswers = std::deque<LoadLoop::Answered>;

class HttpLoadClient final : public LoadClient {
 public:
  HttpLoadClient(LoadTarget target, asio::io_context& context, HttpAnswers& answers)
      : target_(std::move(target)), context_(context), answers_(answers) {}

  absl::Status Connect() {
    error_code error;
    asio::ip::tcp::resolver resolver(context_);
    const auto endpoints = resolver.resolve(target_.host, absl::StrCat(target_.port), error);
    if (!error) asio::connect(socket_, endpoints, error);
    if (error) return Failed("connect", error);
    socket_.set_option(asio::ip::tcp::no_delay(true), error);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<LoadInput>> DescribeInputs() override {
    http::request<http::string_body> request(http::verb::get, Path(""), 11);
    ASSIGN_OR_RETURN(const std::string body, Exchange(request));
    error_code error;
    const json::value root = json::parse(body, error);
    if (error || !root.is_object() || !root.get_object().contains("inputs")) {
      return absl::InternalError("the server's metadata is no JSON of a model");
    }
    std::vector<LoadInput> inputs;
    const json::value& list = root.get_object().at("inputs");
    if (!list.is_array()) return absl::InternalError("the server's metadata has no inputs");
    for (const json::value& value : list.get_array()) {
      const json::object* object = value.if_object();
      const json::value* name = object != nullptr ? object->if_contains("name") : nullptr;
      const json::value* type = object != nullptr ? object->if_contains("datatype") : nullptr;
      const json::value* shape = object != nullptr ? object->if_contains("shape") : nullptr;
      if (name == nullptr || !name->is_string() || type == nullptr || !type->is_string() ||
          shape == nullptr || !shape->is_array()) {
        return absl::InternalError("the server's metadata of an input is not as KServe has it");
      }
      LoadInput& input = inputs.emplace_back();
      input.name = std::string(name->get_string());
      input.datatype = std::string(type->get_string());
      for (const json::value& dim : shape->get_array()) {
        input.shape.push_back(dim.to_number<int64_t>(error));
      }
    }
    return inputs;
  }

  absl::Status Prepare(const std::vector<LoadInput>& inputs) override {
    json::array tensors;
    std::string blobs;
    for (const LoadInput& input : inputs) {
      tensors.push_back({{"name", input.name},
                         {"datatype", input.datatype},
                         {"shape", json::array(input.shape.begin(), input.shape.end())},
                         {"parameters", {{"binary_data_size", input.bytes.size()}}}});
      blobs += input.bytes;
    }
    const std::string head = json::serialize(
        json::value({{"inputs", tensors}, {"parameters", {{"binary_data_output", true}}}}));
    request_ = http::request<http::string_body>(http::verb::post, Path("/infer"), 11);
    request_.set("Inference-Header-Content-Length", absl::StrCat(head.size()));
    request_.set(http::field::content_type, "application/octet-stream");
    request_.set(http::field::host, target_.host);
    request_.body() = head + blobs;
    request_.prepare_payload();
    return absl::OkStatus();
  }

  void Begin() override {
    http::async_write(socket_, request_, [this](const error_code& error, size_t) {
      if (error) return End(Failed("write to", error));
      Receive();
    });
  }

 private:
  std::string Path(absl::string_view action) const {
    std::string path = absl::StrCat("/v2/models/", target_.model);
    if (!target_.version.empty()) absl::StrAppend(&path, "/versions/", target_.version);
    return absl::StrCat(path, action);
  }

  absl::Status Failed(absl::string_view what, const error_code& error) const {
    return absl::UnavailableError(
        absl::StrCat(what, " ", target_.host, ":", target_.port, ": ", error.message()));
  }

  absl::StatusOr<std::string> Exchange(http::request<http::string_body>& request) {
    request.set(http::field::host, target_.host);
    error_code error;
    http::write(socket_, request, error);
    if (error) return Failed("write to", error);
    Parser parser;
    parser.body_limit(kAnswerBytesMax);
    http::read(socket_, buffer_, parser, error);
    if (error) return Failed("read from", error);
    RETURN_IF_ERROR(Outcome(parser));
    return std::move(parser.get().body());
  }

  void Receive() {
    parser_.emplace();
    parser_->body_limit(kAnswerBytesMax);
    http::async_read(socket_, buffer_, *parser_, [this](const error_code& error, size_t) {
      End(error ? Failed("read from", error) : Outcome(*parser_));
    });
  }

  void End(absl::Status status) {
    answers_.push_back({.client = this, .status = std::move(status)});
  }

  using Parser = http::response_parser<http::string_body>;
  static constexpr uint64_t kAnswerBytesMax = uint64_t{1} << 32;

  static absl::Status Outcome(const Parser& parser) {
    const auto& answer = parser.get();
    if (answer.result_int() == 200) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("HTTP ", answer.result_int(), ": ", answer.body()));
  }

  const LoadTarget target_;
  asio::io_context& context_;
  HttpAnswers& answers_;
  asio::ip::tcp::socket socket_{context_};
  boost::beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  std::optional<Parser> parser_;
};

class HttpLoadLoop final : public LoadLoop {
 public:
  absl::StatusOr<std::unique_ptr<LoadClient>> Connect(const LoadTarget& target) override {
    auto client = std::make_unique<HttpLoadClient>(target, context_, answers_);
    RETURN_IF_ERROR(client->Connect());
    return client;
  }

  std::optional<Answered> Next(int64_t nanos) override {
    // RealClock is the steady clock.
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(nanos)};
    while (answers_.empty()) {
      if (context_.stopped()) context_.restart();
      if (context_.run_one_until(until) == 0) return std::nullopt;
    }
    Answered answered = std::move(answers_.front());
    answers_.pop_front();
    return answered;
  }

 private:
  asio::io_context context_{1};
  HttpAnswers answers_;
};

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

class GrpcLoadClient final : public LoadClient {
 public:
  GrpcLoadClient(LoadTarget target, grpc::CompletionQueue& queue)
      : target_(std::move(target)), queue_(queue), channel_(NewChannel(target_)) {}

  absl::StatusOr<std::vector<LoadInput>> DescribeInputs() override {
    grpc::ClientContext context;
    inference::ModelMetadataRequest request;
    request.set_name(target_.model);
    request.set_version(target_.version);
    inference::ModelMetadataResponse response;
    const auto stub = inference::GRPCInferenceService::NewStub(channel_);
    RETURN_IF_ERROR(FromGrpc(stub->ModelMetadata(&context, request, &response)));
    std::vector<LoadInput> inputs;
    for (const auto& tensor : response.inputs()) {
      inputs.push_back({.name = tensor.name(),
                        .datatype = tensor.datatype(),
                        .shape = {tensor.shape().begin(), tensor.shape().end()},
                        .bytes = ""});
    }
    return inputs;
  }

  absl::Status Prepare(const std::vector<LoadInput>& inputs) override {
    inference::ModelInferRequest request;
    request.set_model_name(target_.model);
    request.set_model_version(target_.version);
    for (const LoadInput& input : inputs) {
      auto* tensor = request.add_inputs();
      tensor->set_name(input.name);
      tensor->set_datatype(input.datatype);
      for (const int64_t dim : input.shape) tensor->add_shape(dim);
      request.add_raw_input_contents(input.bytes);
    }
    // Written once: what is measured is the server.
    bool owned = false;
    return FromGrpc(grpc::SerializationTraits<inference::ModelInferRequest>::Serialize(
        request, &request_, &owned));
  }

  void Begin() override {
    context_.emplace();
    call_ = stub_.PrepareUnaryCall(&*context_, kInferMethod, request_, &queue_);
    call_->StartCall();
    call_->Finish(&answer_, &status_, this);
  }

  // The outcome of the call that is over.
  absl::Status End() {
    call_.reset();
    answer_.Clear();
    return FromGrpc(status_);
  }

 private:
  // A connection of its own, as another process would have.
  static std::shared_ptr<grpc::Channel> NewChannel(const LoadTarget& target) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(absl::StrCat(target.host, ":", target.port),
                                     grpc::InsecureChannelCredentials(), arguments);
  }

  static constexpr char kInferMethod[] = "/inference.GRPCInferenceService/ModelInfer";

  const LoadTarget target_;
  grpc::CompletionQueue& queue_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_{channel_};
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  grpc::Status status_;
  std::optional<grpc::ClientContext> context_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call_;
};

class GrpcLoadLoop final : public LoadLoop {
 public:
  ~GrpcLoadLoop() override {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  absl::StatusOr<std::unique_ptr<LoadClient>> Connect(const LoadTarget& target) override {
    return std::make_unique<GrpcLoadClient>(target, queue_);
  }

  std::optional<Answered> Next(int64_t nanos) override {
    const int64_t left = nanos - RealClock().NowNanos();
    const gpr_timespec deadline =
        nanos == kNoDeadline
            ? gpr_inf_future(GPR_CLOCK_MONOTONIC)
            : gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left, GPR_TIMESPAN));
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) {
      return std::nullopt;
    }
    auto* const client = static_cast<GrpcLoadClient*>(tag);
    return Answered{.client = client, .status = client->End()};
  }

 private:
  grpc::CompletionQueue queue_;
};

}  // namespace

std::unique_ptr<LoadLoop> NewHttpLoadLoop() { return std::make_unique<HttpLoadLoop>(); }
std::unique_ptr<LoadLoop> NewGrpcLoadLoop() { return std::make_unique<GrpcLoadLoop>(); }

absl::Status ParseLoadUrl(absl::string_view url, LoadTarget& target) {
  absl::string_view rest = url;
  absl::ConsumePrefix(&rest, "http://");
  absl::ConsumePrefix(&rest, "grpc://");
  const size_t colon = rest.rfind(':');
  uint32_t port = 0;
  if (colon == rest.npos || colon == 0 || !absl::SimpleAtoi(rest.substr(colon + 1), &port) ||
      port == 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("url: got '", url, "', limit HOST:PORT"));
  }
  target.host = std::string(rest.substr(0, colon));
  target.port = static_cast<uint16_t>(port);
  return absl::OkStatus();
}

absl::Status FillInputs(const std::map<std::string, std::vector<int64_t>>& shapes, int64_t batch,
                        std::vector<LoadInput>& inputs) {
  for (LoadInput& input : inputs) {
    const auto given = shapes.find(input.name);
    if (given != shapes.end()) input.shape = given->second;
    const std::optional<DType> dtype = DTypeFromKServeName(input.datatype);
    if (!dtype.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", input.name, "': datatype ", input.datatype, " has no data here"));
    }
    auto size = static_cast<int64_t>(SizeBytes(*dtype));
    for (size_t i = 0; i < input.shape.size(); ++i) {
      if (input.shape[i] < 0) input.shape[i] = i == 0 ? batch : 1;
      if (__builtin_mul_overflow(size, input.shape[i], &size) || size > kInputBytesMax) {
        return absl::InvalidArgumentError(absl::StrCat(
            "input '", input.name, "': more bytes than the limit of ", kInputBytesMax));
      }
    }
    input.bytes.assign(static_cast<size_t>(size), '\0');
  }
  return absl::OkStatus();
}

}  // namespace stampmill
