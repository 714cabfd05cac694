#include "server/http/http_service.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "server/answers.h"
#include "server/http/json_infer.h"
#include "server/http/json_text.h"
#include "server/http/proto_json.h"

namespace stampmill {

namespace json = boost::json;

namespace {

HttpAnswer Json(std::string body) {
  HttpAnswer answer;
  answer.body = std::move(body);
  answer.compressible = true;
  return answer;
}

HttpAnswer Error(int status, absl::string_view message) {
  HttpAnswer answer = Json(ErrorJson(message));
  answer.status = status;
  return answer;
}

HttpAnswer Error(const absl::Status& status) {
  HttpAnswer answer = Error(HttpStatus(status), status.message());
  if (answer.status == 503) answer.headers.emplace_back("Retry-After", "1");
  return answer;
}

template <typename Message>
HttpAnswer JsonOr(const absl::StatusOr<Message>& message, bool print_defaults = true) {
  if (!message.ok()) return Error(message.status());
  return Json(ProtoToJson(*message, {.print_defaults = print_defaults}));
}

HttpAnswer EmptyOr(const absl::Status& status) { return status.ok() ? Json("") : Error(status); }

// The body of a control request as an object; empty bodies are empty objects.
absl::StatusOr<json::object> ParseBody(const HttpRequest& request) {
  if (absl::StripAsciiWhitespace(request.body).empty()) return json::object();
  boost::system::error_code error;
  json::value value = json::parse(request.body, error);
  if (error || !value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("failed to parse the request JSON buffer: ",
                                                   error ? error.message() : "not an object"));
  }
  return std::move(value.get_object());
}

absl::StatusOr<uint64_t> UnsignedMember(const json::object& object, const char* name,
                                        bool required) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr && !required) return 0;
  if (value != nullptr && value->is_uint64()) return value->get_uint64();
  if (value != nullptr && value->is_int64() && value->get_int64() >= 0) {
    return static_cast<uint64_t>(value->get_int64());
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "Unable to parse '", name, "': ",
      value == nullptr ? "attempt to access non-existing object member"
                       : "attempt to access JSON non-unsigned-integer as unsigned-integer"));
}

absl::StatusOr<std::string> StringMember(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (value != nullptr && value->is_string()) return std::string(value->get_string());
  return absl::InvalidArgumentError(
      absl::StrCat("Unable to parse '", name, "': ",
                   value == nullptr ? "attempt to access non-existing object member"
                                    : "attempt to access JSON non-string as string"));
}

// An inference that came over HTTP.
class HttpInferCall : public InferCall {
 public:
  HttpInferCall(HttpRequest request, HttpReply reply)
      : request_(std::move(request)), reply_(std::move(reply)) {}

  const HttpRequest& request() const { return request_; }
  HttpReply& reply() { return reply_; }
  std::unique_ptr<JsonInference>& inference() { return inference_; }

  void Finish(RequestHandle request) override {
    const std::unique_ptr<HttpInferCall> self(this);
    if (!request->status.ok()) {
      reply_.Send(Error(request->status));
      return;
    }
    // Binary outputs are sent from where they lie: the answer keeps the slot until it is written.
    const std::shared_ptr<Request> owner(request.release(), request.get_deleter());
    if (!IsLong(*owner)) {
      reply_.Send(AnswerInference(*owner, *inference_, owner));
      return;
    }
    // Numbers become text at some 50 MB/s, and no other request is answered meanwhile.
    HttpReply reply = std::move(reply_);
    reply.SendLater([owner, inference = std::shared_ptr<JsonInference>(std::move(inference_))] {
      return AnswerInference(*owner, *inference, owner);
    });
  }

 private:
  static bool IsLong(const Request& request) {
    constexpr size_t kShortBytesMax = 16 << 10;
    size_t bytes = 0;
    for (const OutputTensor& output : request.outputs) {
      if (!output.target.valid()) bytes += output.bytes.size();
    }
    return bytes > kShortBytesMax;
  }

  const HttpRequest request_;  // its body is read in place
  HttpReply reply_;
  std::unique_ptr<JsonInference> inference_;
};

// One request's path, in pieces, and what it needs to be answered.
class Route {
 public:
  Route(const Serving& serving, const std::function<std::string()>& metrics, HttpRequest& request,
        HttpReply& reply)
      : serving_(serving), metrics_(metrics), request_(request), reply_(reply) {}

  void Answer() {
    if (request_.path == "/metrics" || request_.path == "/metrics/") return Metrics();
    std::vector<absl::string_view> pieces = absl::StrSplit(request_.path, '/');
    // "/v2/..." begins with an empty piece.
    if (pieces.size() < 2 || !pieces[0].empty() || pieces[1] != "v2") return NotFound();
    pieces.erase(pieces.begin(), pieces.begin() + 2);
    if (pieces.empty()) {
      return Get([&] { return Json(ProtoToJson(ServerMetadata(), {})); });
    }
    if (pieces[0] == "health" && pieces.size() == 2) return Health(pieces[1]);
    if (pieces[0] == "models") return Models(pieces);
    if (pieces[0] == "repository") return Repository(pieces);
    if (pieces[0] == "systemsharedmemory") return SharedMemory(pieces);
    if (pieces[0] == "cudasharedmemory") return Send(Error(CudaSharedMemoryUnsupported()));
    if (pieces[0] == "trace" && pieces.size() == 2) return Send(Error(TraceUnsupported()));
    if (pieces[0] == "logging" && pieces.size() == 1) return Send(Error(LoggingUnsupported()));
    NotFound();
  }

 private:
  void Send(HttpAnswer answer) { reply_.Send(std::move(answer)); }
  void NotFound() { Send(Error(404, "Not Found")); }
  void WrongMethod() { Send(Error(405, "Method Not Allowed")); }

  template <typename Answer>
  void Get(const Answer& answer) {
    if (request_.method != "GET") return WrongMethod();
    Send(answer());
  }
  template <typename Answer>
  void Post(const Answer& answer) {
    if (request_.method != "POST") return WrongMethod();
    Send(answer());
  }

  void Metrics() {
    if (request_.method != "GET" && request_.method != "HEAD") return WrongMethod();
    HttpAnswer answer = Json(metrics_());
    answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
    Send(std::move(answer));
  }

  void Health(absl::string_view what) {
    const bool live = what == "live";
    if (!live && what != "ready") return NotFound();
    Get([&] {
      const bool good = live || serving_.IsReady();
      // Triton's body is empty; the kserve client parses one and tritonclient looks at the status.
      HttpAnswer answer = Json(absl::StrCat("{\"", what, "\":", good ? "true" : "false", "}"));
      answer.status = good ? 200 : 400;
      return answer;
    });
  }

  // models[/stats], models/X[/versions/V][/ready|config|stats|infer]
  void Models(const std::vector<absl::string_view>& pieces) {
    if (pieces.size() == 2 && pieces[1] == "stats") {
      return Get([&] { return JsonOr(ModelStatisticsOf(serving_, "", "")); });
    }
    if (pieces.size() < 2 || pieces[1].empty()) return NotFound();
    const absl::StatusOr<std::string> name = PercentDecode(pieces[1]);
    if (!name.ok()) return Send(Error(name.status()));
    absl::string_view version, action;
    size_t next = 2;
    if (pieces.size() > 3 && pieces[2] == "versions") {
      version = pieces[3];
      next = 4;
      if (version.empty() || !std::all_of(version.begin(), version.end(), absl::ascii_isdigit)) {
        return NotFound();
      }
    }
    if (pieces.size() > next) action = pieces[next];
    if (pieces.size() > next + 1) {
      if (action == "trace" && pieces[next + 1] == "setting" && pieces.size() == next + 2) {
        return Send(Error(TraceUnsupported()));
      }
      return NotFound();
    }
    Model(*name, version, action);
  }

  void Model(const std::string& name, absl::string_view version, absl::string_view action) {
    if (action.empty()) {
      return Get([&] { return JsonOr(ModelMetadata(serving_, name, version)); });
    }
    if (action == "infer") return Infer(name, version);
    if (action == "ready") return Get([&] { return ModelReady(name, version); });
    if (action == "config") {
      return Get([&] {
        const auto response = ModelConfiguration(serving_, name, version);
        if (!response.ok()) return Error(response.status());
        return Json(ProtoToJson(response->config(), {}));
      });
    }
    if (action == "stats") {
      return Get([&] { return JsonOr(ModelStatisticsOf(serving_, name, version)); });
    }
    if (action == "generate" || action == "generate_stream") {
      return Send(Error(501, "the generate extension is not supported by this model"));
    }
    NotFound();
  }

  HttpAnswer ModelReady(const std::string& name, absl::string_view version) {
    const absl::StatusOr<bool> ready = IsModelReady(serving_, name, version);
    if (absl::IsInvalidArgument(ready.status())) return Error(ready.status());
    std::string body = "{\"name\":";
    AppendJsonString(name, body);
    const bool good = ready.ok() && *ready;
    absl::StrAppend(&body, ",\"ready\":", good ? "true" : "false", "}");
    HttpAnswer answer = Json(std::move(body));
    answer.status = good ? 200 : 400;
    return answer;
  }

  void Infer(const std::string& name, absl::string_view version) {
    if (request_.method != "POST") return WrongMethod();
    auto call = std::make_unique<HttpInferCall>(std::move(request_), std::move(reply_));
    HttpInferCall& http = *call;
    const absl::Status status = StartInference(name, version, call, http);
    // Not submitted: the call is still ours.
    if (!status.ok()) http.reply().Send(Error(status));
  }

  // On success the call belongs to the engine.
  absl::Status StartInference(const std::string& name, absl::string_view version,
                              std::unique_ptr<HttpInferCall>& call, HttpInferCall& http) {
    ASSIGN_OR_RETURN(RequestHandle request,
                     serving_.Begin(name, version, http.request().arrival_nanos));
    ASSIGN_OR_RETURN(const int64_t json_bytes, ParseHeaderLength(http.request()));
    ASSIGN_OR_RETURN(http.inference(),
                     JsonInference::Parse(http.request().body, json_bytes, *request->model));
    Engine& engine = request->model->engine();
    http.reply().OnAbandon([&engine, tag = request->tag()] { engine.Cancel(tag); });
    std::unique_ptr<InferCall> base = std::move(call);
    absl::Status status = serving_.Submit(http.inference()->wire(), request, base);
    if (!status.ok()) call.reset(static_cast<HttpInferCall*>(base.release()));
    return status;
  }

  // repository[/NAME]/index, repository[/NAME]/models/X/load|unload
  void Repository(std::vector<absl::string_view> pieces) {
    pieces.erase(pieces.begin());
    const bool named = !pieces.empty() && pieces[0] != "index" && pieces[0] != "models";
    if (named) pieces.erase(pieces.begin());
    if (pieces.size() == 1 && pieces[0] == "index") return Post([&] { return Index(); });
    if (pieces.size() != 3 || pieces[0] != "models") return NotFound();
    if (request_.method != "POST") return WrongMethod();
    if (named) return Send(Error(501, "'repository_name' specification is not supported"));
    const absl::StatusOr<std::string> name = PercentDecode(pieces[1]);
    if (!name.ok()) return Send(Error(name.status()));
    if (pieces[2] == "load") return Load(*name);
    if (pieces[2] == "unload") return Unload(*name);
    NotFound();
  }

  HttpAnswer Index() {
    const absl::StatusOr<json::object> body = ParseBody(request_);
    if (!body.ok()) return Error(body.status());
    bool ready_only = false;
    if (const json::value* ready = body->if_contains("ready")) {
      if (!ready->is_bool()) return Error(400, "Unable to parse 'ready': expected a bool");
      ready_only = ready->get_bool();
    }
    const inference::RepositoryIndexResponse index = RepositoryIndex(serving_, ready_only);
    std::string out = "[";
    for (int i = 0; i < index.models_size(); ++i) {
      if (i > 0) out.push_back(',');
      out.append(ProtoToJson(index.models(i), {.print_defaults = false}));
    }
    out.push_back(']');
    return Json(std::move(out));
  }

  absl::StatusOr<ModelLoadRequest> ParseLoad(const std::string& name) {
    ModelLoadRequest load{.name = name, .config_json = "", .files = {}};
    ASSIGN_OR_RETURN(const json::object body, ParseBody(request_));
    const json::value* parameters = body.if_contains("parameters");
    if (parameters == nullptr) return load;
    if (!parameters->is_object()) {
      return absl::InvalidArgumentError("Unable to parse 'parameters': expected an object");
    }
    for (const auto& [key, value] : parameters->get_object()) {
      const std::string parameter(key);
      if (!value.is_string()) {
        return absl::InvalidArgumentError(
            absl::StrCat("parameter '", parameter, "': expected a string"));
      }
      const absl::string_view text(value.get_string().data(), value.get_string().size());
      if (parameter == "config") {
        load.config_json = std::string(text);
      } else if (absl::StartsWith(parameter, "file:")) {
        std::string contents;
        if (!absl::Base64Unescape(text, &contents)) {
          return absl::InvalidArgumentError(
              absl::StrCat("parameter '", parameter, "': is no valid base64"));
        }
        load.files[parameter.substr(5)] = std::move(contents);
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("unrecognized load parameter '", parameter, "'"));
      }
    }
    return load;
  }

  void Load(const std::string& name) {
    absl::StatusOr<ModelLoadRequest> load = ParseLoad(name);
    if (!load.ok()) return Send(Error(load.status()));
    serving_.repository().Load(
        *std::move(load),
        [reply = std::move(reply_)](absl::Status status) mutable { reply.Send(EmptyOr(status)); });
  }

  void Unload(const std::string& name) {
    const absl::StatusOr<json::object> body = ParseBody(request_);
    if (!body.ok()) return Send(Error(body.status()));
    bool dependents = false;
    if (const json::value* parameters = body->if_contains("parameters");
        parameters != nullptr && parameters->is_object()) {
      const json::value* value = parameters->get_object().if_contains("unload_dependents");
      dependents = value != nullptr && value->is_bool() && value->get_bool();
    }
    serving_.repository().Unload(
        name, dependents,
        [reply = std::move(reply_)](absl::Status status) mutable { reply.Send(EmptyOr(status)); });
  }

  // systemsharedmemory[/region/NAME]/status|register|unregister
  void SharedMemory(const std::vector<absl::string_view>& pieces) {
    absl::StatusOr<std::string> region = std::string();
    if (pieces.size() == 4 && pieces[1] == "region") {
      region = PercentDecode(pieces[2]);
      if (!region.ok()) return Send(Error(region.status()));
    } else if (pieces.size() != 2) {
      return NotFound();
    }
    const absl::string_view action = pieces.back();
    if (action == "status") return Get([&] { return RegionStatus(*region); });
    if (action == "register" && !region->empty()) return Post([&] { return Register(*region); });
    if (action == "unregister") {
      return Post([&] {
        return EmptyOr(region->empty() ? serving_.pool().UnregisterAllClientRegions()
                                       : serving_.pool().UnregisterClientRegion(*region));
      });
    }
    NotFound();
  }

  HttpAnswer RegionStatus(const std::string& region) {
    const absl::StatusOr<std::vector<ClientRegionStatus>> regions =
        serving_.pool().ClientRegions(region);
    if (!regions.ok()) return Error(regions.status());
    std::string out = "[";
    for (const ClientRegionStatus& status : *regions) {
      if (out.size() > 1) out.push_back(',');
      out.append("{\"name\":");
      AppendJsonString(status.name, out);
      out.append(",\"key\":");
      AppendJsonString(status.key, out);
      absl::StrAppend(&out, ",\"offset\":", status.offset, ",\"byte_size\":", status.byte_size,
                      "}");
    }
    out.push_back(']');
    return Json(std::move(out));
  }

  HttpAnswer Register(const std::string& region) {
    return EmptyOr([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const json::object body, ParseBody(request_));
      ASSIGN_OR_RETURN(const std::string key, StringMember(body, "key"));
      ASSIGN_OR_RETURN(const uint64_t offset, UnsignedMember(body, "offset", false));
      ASSIGN_OR_RETURN(const uint64_t size, UnsignedMember(body, "byte_size", true));
      return serving_.pool().RegisterClientRegion(region, key, offset, size);
    }());
  }

  const Serving& serving_;
  const std::function<std::string()>& metrics_;
  HttpRequest& request_;
  HttpReply& reply_;
};

}  // namespace

absl::StatusOr<std::string> PercentDecode(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) ||
        !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      return absl::InvalidArgumentError(absl::StrCat("broken percent escape in '", text, "'"));
    }
    out.append(absl::HexStringToBytes(text.substr(i + 1, 2)));
    if (out.back() == '\0') return absl::InvalidArgumentError("a name holds a NUL byte");
    i += 2;
  }
  return out;
}

HttpService::HttpService(const Serving& serving, std::function<std::string()> metrics)
    : serving_(serving), metrics_(std::move(metrics)) {}

void HttpService::Handle(HttpRequest request, HttpReply reply) const {
  Route(serving_, metrics_, request, reply).Answer();
}

}  // namespace stampmill
