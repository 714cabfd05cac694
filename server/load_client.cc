#include "server/load_client.h"

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
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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

class HttpLoadClient final : public LoadClient {
 public:
  explicit HttpLoadClient(LoadTarget target) : target_(std::move(target)) {}

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
    request_.body() = head + blobs;
    request_.prepare_payload();
    return absl::OkStatus();
  }

  absl::Status Infer() override { return Exchange(request_).status(); }

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
    http::response_parser<http::string_body> parser;
    parser.body_limit(uint64_t{1} << 32);
    http::read(socket_, buffer_, parser, error);
    if (error) return Failed("read from", error);
    std::string body = std::move(parser.get().body());
    if (parser.get().result_int() == 200) return body;
    return absl::InternalError(absl::StrCat("HTTP ", parser.get().result_int(), ": ", body));
  }

  const LoadTarget target_;
  asio::io_context context_{1};
  asio::ip::tcp::socket socket_{context_};
  boost::beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
};

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

class GrpcLoadClient final : public LoadClient {
 public:
  explicit GrpcLoadClient(LoadTarget target) : target_(std::move(target)) {
    grpc::ChannelArguments arguments;
    // A connection of its own, as another process would have.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = inference::GRPCInferenceService::NewStub(
        grpc::CreateCustomChannel(absl::StrCat(target_.host, ":", target_.port),
                                  grpc::InsecureChannelCredentials(), arguments));
  }

  absl::StatusOr<std::vector<LoadInput>> DescribeInputs() override {
    grpc::ClientContext context;
    inference::ModelMetadataRequest request;
    request.set_name(target_.model);
    request.set_version(target_.version);
    inference::ModelMetadataResponse response;
    RETURN_IF_ERROR(FromGrpc(stub_->ModelMetadata(&context, request, &response)));
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
    request_.Clear();
    request_.set_model_name(target_.model);
    request_.set_model_version(target_.version);
    for (const LoadInput& input : inputs) {
      auto* tensor = request_.add_inputs();
      tensor->set_name(input.name);
      tensor->set_datatype(input.datatype);
      for (const int64_t dim : input.shape) tensor->add_shape(dim);
      request_.add_raw_input_contents(input.bytes);
    }
    return absl::OkStatus();
  }

  absl::Status Infer() override {
    grpc::ClientContext context;
    return FromGrpc(stub_->ModelInfer(&context, request_, &response_));
  }

 private:
  const LoadTarget target_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  inference::ModelInferRequest request_;
  inference::ModelInferResponse response_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadClient>> ConnectHttp(const LoadTarget& target) {
  auto client = std::make_unique<HttpLoadClient>(target);
  RETURN_IF_ERROR(client->Connect());
  return client;
}

absl::StatusOr<std::unique_ptr<LoadClient>> ConnectGrpc(const LoadTarget& target) {
  return std::make_unique<GrpcLoadClient>(target);
}

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
