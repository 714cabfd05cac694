#include "server/openai/generate_request.h"

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/openai/errors.h"
#include "server/openai/fields.h"

namespace stampmill {

namespace json = boost::json;

namespace {

// Parameters that go to the completion as they are. The names are vLLM's.
constexpr absl::string_view kNumbers[] = {
    "max_tokens",       "min_tokens",        "temperature",        "top_p",   "top_k", "min_p",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "priority"};
constexpr absl::string_view kOthers[] = {"stop",
                                         "stop_token_ids",
                                         "seed",
                                         "logit_bias",
                                         "ignore_eos",
                                         "skip_special_tokens",
                                         "include_stop_str_in_output",
                                         "structured_outputs",
                                         "guided_json",
                                         "guided_regex",
                                         "guided_choice",
                                         "guided_grammar"};

class Reader {
 public:
  absl::Status Read(const json::object& object) {
    for (const auto& [key, value] : object) {
      const absl::string_view name(key.data(), key.size());
      if (name == "text_input") {
        RETURN_IF_ERROR(ReadText(value));
      } else if (name == "id") {
        if (!value.is_string()) return WrongKind("id", value, "a string");
        id_ = std::string(JsonText(value));
      } else if (name == "parameters") {
        if (!value.is_object()) return WrongKind("parameters", value, "an object");
        for (const auto& [inner, parameter] : value.get_object()) {
          RETURN_IF_ERROR(Parameter({inner.data(), inner.size()}, parameter, "parameters."));
        }
      } else {
        RETURN_IF_ERROR(Parameter(name, value, ""));
      }
    }
    if (!completion_.contains("prompt")) return FieldError("text_input", "missing");
    return absl::OkStatus();
  }

  json::object& completion() { return completion_; }
  const std::string& id() const { return id_; }
  std::optional<bool> stream() const { return stream_; }
  std::optional<bool> excludes_input() const { return excludes_input_; }

 private:
  static absl::Status WrongKind(absl::string_view path, const json::value& value,
                                absl::string_view wanted) {
    return FieldError(path, absl::StrCat("got ", JsonKind(value), ", expected ", wanted));
  }

  // A text, or the tensor of one.
  absl::Status ReadText(const json::value& value) {
    const json::array* list = value.if_array();
    const json::value& text = list != nullptr && list->size() == 1 ? list->front() : value;
    if (!text.is_string()) return WrongKind("text_input", value, "a string");
    completion_["prompt"] = text;
    return absl::OkStatus();
  }

  static absl::Status ReadBool(absl::string_view path, const json::value& value,
                               std::optional<bool>& out) {
    if (!value.is_bool()) return WrongKind(path, value, "a bool");
    out = value.get_bool();
    return absl::OkStatus();
  }

  absl::Status Parameter(absl::string_view name, const json::value& value, absl::string_view path) {
    const std::string full = absl::StrCat(path, name);
    if (name == "stream") return ReadBool(full, value, stream_);
    if (name == "exclude_input_in_output") return ReadBool(full, value, excludes_input_);
    if (name == "sampling_parameters") return SamplingParameters(full, value);
    return Sampling(name, value, path);
  }

  absl::Status SamplingParameters(const std::string& path, const json::value& value) {
    json::object parsed;
    if (value.is_string()) {
      ASSIGN_OR_RETURN(parsed, ParseJsonObject(JsonText(value)));
    } else if (value.is_object()) {
      parsed = value.get_object();
    } else {
      return WrongKind(path, value, "an object or the text of one");
    }
    for (const auto& [key, parameter] : parsed) {
      RETURN_IF_ERROR(Sampling({key.data(), key.size()}, parameter, absl::StrCat(path, ".")));
    }
    return absl::OkStatus();
  }

  absl::Status Sampling(absl::string_view name, const json::value& value, absl::string_view path) {
    const bool is_number = std::ranges::find(kNumbers, name) != std::end(kNumbers);
    if (!is_number && std::ranges::find(kOthers, name) == std::end(kOthers)) {
      return UnsupportedField(absl::StrCat(path, name), "is no parameter of language models here");
    }
    json::value& out = completion_[std::string(name)];
    out = value;
    if (is_number && value.is_string()) {
      // Triton's own examples write numbers as texts.
      boost::system::error_code error;
      json::value number = json::parse(value.get_string(), error);
      if (error || !number.is_number()) {
        return WrongKind(absl::StrCat(path, name), value, "a number");
      }
      out = std::move(number);
    }
    return absl::OkStatus();
  }

  json::object completion_;
  std::string id_;
  std::optional<bool> stream_, excludes_input_;
};

}  // namespace

absl::StatusOr<GenerateRequest> ParseGenerateRequest(absl::string_view body, bool events) {
  ASSIGN_OR_RETURN(const json::object object, ParseJsonObject(body));
  Reader reader;
  RETURN_IF_ERROR(reader.Read(object));
  if (!events && reader.stream().value_or(false)) {
    return FieldError("stream", "got true, expected false but with generate_stream");
  }
  const bool stream = events && reader.stream().value_or(true);
  const bool echo = !reader.excludes_input().value_or(stream);
  if (stream && echo) {
    return FieldError("exclude_input_in_output", "got false, expected true in a stream");
  }
  reader.completion()["stream"] = stream;
  reader.completion()["echo"] = echo;
  GenerateRequest request;
  request.id = reader.id();
  ASSIGN_OR_RETURN(request.completion,
                   ParseCompletionRequest(json::serialize(reader.completion())));
  return request;
}

}  // namespace stampmill
