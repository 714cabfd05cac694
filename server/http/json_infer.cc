#include "server/http/json_infer.h"

#include <algorithm>
#include <array>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "server/http/json_text.h"

namespace stampmill {

namespace json = boost::json;

namespace {

// Nesting of a request; Triton's own bound.
constexpr size_t kJsonDepthMax = 100;

absl::string_view View(const json::string& text) { return {text.data(), text.size()}; }

absl::Status Invalid(absl::string_view message) { return absl::InvalidArgumentError(message); }

// JSON has no NaN and no infinities, yet clients in Python write them as bare words. They become
// strings here, which the numbers' reader takes.
std::string QuoteNonFinite(absl::string_view text) {
  std::string out;
  out.reserve(text.size() + 64);
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out.push_back(c);
      if (c == '\\' && i + 1 < text.size()) {
        out.push_back(text[++i]);
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    in_string = c == '"';
    absl::string_view word;
    for (absl::string_view candidate : {"NaN", "Infinity", "-Infinity"}) {
      if (absl::StartsWith(text.substr(i), candidate)) word = candidate;
    }
    if (word.empty()) {
      out.push_back(c);
    } else {
      absl::StrAppend(&out, "\"", word, "\"");
      i += word.size() - 1;
    }
  }
  return out;
}

bool MayHaveNonFinite(absl::string_view text) {
  return absl::StrContains(text, "NaN") || absl::StrContains(text, "Infinity");
}

// Parameters of a request, an input or an output.
struct Parameters {
  std::optional<uint64_t> binary_data_size;
  std::optional<std::string> region;
  uint64_t offset = 0;
  std::optional<uint64_t> byte_size;
  std::optional<bool> binary_data;
  bool classification = false;
};

absl::StatusOr<uint64_t> Unsigned(const json::value& value, absl::string_view field) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<uint64_t>(value.get_int64());
  return Invalid(
      absl::StrCat("Unable to parse '", field,
                   "': attempt to access JSON non-unsigned-integer as unsigned-integer"));
}

absl::StatusOr<absl::string_view> Text(const json::value& value, absl::string_view field) {
  if (value.is_string()) return View(value.get_string());
  return Invalid(
      absl::StrCat("Unable to parse '", field, "': attempt to access JSON non-string as string"));
}

absl::StatusOr<bool> Boolean(const json::value& value, absl::string_view field) {
  if (value.is_bool()) return value.get_bool();
  return Invalid(
      absl::StrCat("Unable to parse '", field, "': attempt to access JSON non-boolean as boolean"));
}

absl::StatusOr<Parameters> ParseTensorParameters(const json::object& object) {
  Parameters parameters;
  const json::value* all = object.if_contains("parameters");
  if (all == nullptr) return parameters;
  if (!all->is_object()) {
    return Invalid("Unable to parse 'parameters': attempt to access JSON non-object as object");
  }
  for (const auto& [key, value] : all->get_object()) {
    if (key == "binary_data_size") {
      ASSIGN_OR_RETURN(parameters.binary_data_size, Unsigned(value, "binary_data_size"));
    } else if (key == "shared_memory_region") {
      ASSIGN_OR_RETURN(const absl::string_view region, Text(value, "shared_memory_region"));
      parameters.region = std::string(region);
    } else if (key == "shared_memory_offset") {
      ASSIGN_OR_RETURN(parameters.offset, Unsigned(value, "shared_memory_offset"));
    } else if (key == "shared_memory_byte_size") {
      ASSIGN_OR_RETURN(parameters.byte_size, Unsigned(value, "shared_memory_byte_size"));
    } else if (key == "binary_data") {
      ASSIGN_OR_RETURN(parameters.binary_data, Boolean(value, "binary_data"));
    } else if (key == "classification") {
      parameters.classification = true;
    }
  }
  if (parameters.region.has_value() && !parameters.byte_size.has_value()) {
    return Invalid("'shared_memory_byte_size' must be given with 'shared_memory_region'");
  }
  return parameters;
}

absl::StatusOr<const json::value*> Member(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (value != nullptr) return value;
  return Invalid(absl::StrCat("Unable to parse '", name,
                              "': attempt to access non-existing object member '", name, "'"));
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const json::object& object) {
  ASSIGN_OR_RETURN(const json::value* value, Member(object, "shape"));
  if (!value->is_array()) {
    return Invalid("Unable to parse 'shape': attempt to access JSON non-array as array");
  }
  std::vector<int64_t> shape;
  for (const json::value& dim : value->get_array()) {
    ASSIGN_OR_RETURN(const uint64_t size, Unsigned(dim, "shape"));
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Invalid(absl::StrCat("Unable to parse 'shape': got ", size, ", limit 2^63 - 1"));
    }
    shape.push_back(static_cast<int64_t>(size));
  }
  return shape;
}

// Appends JSON elements to tensor bytes.
class ElementWriter {
 public:
  ElementWriter(DType dtype, size_t elements, std::string& out)
      : dtype_(dtype), elements_(elements), out_(out) {}

  // Arrays may nest in any way; only the count of elements matters, as in Triton.
  absl::Status AppendAll(const json::value& data) {
    if (!data.is_array()) {
      return Invalid("Unable to parse 'data': attempt to access JSON non-array as array");
    }
    RETURN_IF_ERROR(AppendArray(data.get_array()));
    if (count_ == elements_) return absl::OkStatus();
    return WrongCount();
  }

 private:
  // Depth is bounded by the parser.
  absl::Status AppendArray(const json::array& array) {
    for (const json::value& value : array) {
      if (value.is_array()) {
        RETURN_IF_ERROR(AppendArray(value.get_array()));
      } else {
        if (++count_ > elements_) return WrongCount();
        RETURN_IF_ERROR(Append(value));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status WrongCount() {
    return Invalid("Unable to parse 'data': Shape does not match true shape of 'data' field");
  }

  template <typename T>
  void Put(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
  }

  template <typename T>
  absl::Status PutInteger(const json::value& value) {
    if (value.is_int64()) {
      const int64_t v = value.get_int64();
      if (std::in_range<T>(v)) {
        Put(static_cast<T>(v));
        return absl::OkStatus();
      }
    } else if (value.is_uint64()) {
      const uint64_t v = value.get_uint64();
      if (std::in_range<T>(v)) {
        Put(static_cast<T>(v));
        return absl::OkStatus();
      }
    } else {
      return Invalid("Unable to parse 'data': attempt to access JSON non-integer as integer");
    }
    return Invalid(
        absl::StrCat("Unable to parse 'data': got a number outside of ", KServeName(dtype_)));
  }

  absl::StatusOr<double> Number(const json::value& value) {
    if (value.is_double()) return value.get_double();
    if (value.is_int64()) return static_cast<double>(value.get_int64());
    if (value.is_uint64()) return static_cast<double>(value.get_uint64());
    if (value.is_string()) {
      const absl::string_view word = View(value.get_string());
      if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
      if (word == "Infinity") return std::numeric_limits<double>::infinity();
      if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
    }
    return Invalid("Unable to parse 'data': attempt to access JSON non-number as double");
  }

  absl::Status Append(const json::value& value) {
    switch (dtype_) {
      case DType::kBool: {
        if (value.is_bool()) {
          Put(static_cast<uint8_t>(value.get_bool()));
          return absl::OkStatus();
        }
        if (value.is_int64() && (value.get_int64() == 0 || value.get_int64() == 1)) {
          Put(static_cast<uint8_t>(value.get_int64()));
          return absl::OkStatus();
        }
        return Invalid("Unable to parse 'data': attempt to access JSON non-boolean as boolean");
      }
      case DType::kI8:
        return PutInteger<int8_t>(value);
      case DType::kI16:
        return PutInteger<int16_t>(value);
      case DType::kI32:
        return PutInteger<int32_t>(value);
      case DType::kI64:
        return PutInteger<int64_t>(value);
      case DType::kU8:
        return PutInteger<uint8_t>(value);
      case DType::kU16:
        return PutInteger<uint16_t>(value);
      case DType::kU32:
        return PutInteger<uint32_t>(value);
      case DType::kU64:
        return PutInteger<uint64_t>(value);
      case DType::kF32: {
        ASSIGN_OR_RETURN(const double number, Number(value));
        Put(static_cast<float>(number));
        return absl::OkStatus();
      }
      case DType::kF64: {
        ASSIGN_OR_RETURN(const double number, Number(value));
        Put(number);
        return absl::OkStatus();
      }
      default:
        return absl::InternalError("JSON data of a type that was refused before");
    }
  }

  const DType dtype_;
  const size_t elements_;
  std::string& out_;
  size_t count_ = 0;
};

absl::Status CheckSources(bool data, bool binary, bool region) {
  if (data + binary + region == 1) return absl::OkStatus();
  std::string set;
  if (data) absl::StrAppend(&set, " 'data'");
  if (binary) absl::StrAppend(&set, " 'binary_data_size'");
  if (region) absl::StrAppend(&set, " 'shared_memory_region'");
  return Invalid(
      absl::StrCat("Input must set only one of the following fields: 'data', 'binary_data_size' in "
                   "'parameters', 'shared_memory_region' in 'parameters'. But ",
                   set.empty() ? "no field is set" : absl::StrCat("set", set)));
}

}  // namespace

struct JsonInference::Document {
  // The first of it serves small requests without an allocation.
  alignas(16) unsigned char first[4096];
  json::monotonic_resource memory{first, sizeof(first)};
  std::string quoted;  // the text, when non-finite numbers had to be rewritten
  json::value root = json::value(json::storage_ptr(&memory));
};

JsonInference::JsonInference() : document_(std::make_unique<Document>()) {}
JsonInference::~JsonInference() = default;

absl::StatusOr<std::unique_ptr<JsonInference>> JsonInference::Parse(absl::string_view body,
                                                                    int64_t json_bytes,
                                                                    const ServedModel& model) {
  std::unique_ptr<JsonInference> inference(new JsonInference());
  if (json_bytes == 0) {
    RETURN_IF_ERROR(inference->ParseRaw(body, model));
    return inference;
  }
  const size_t split = json_bytes < 0 ? body.size() : static_cast<size_t>(json_bytes);
  RETURN_IF_ERROR(inference->ParseJson(body.substr(0, split), body.substr(split), model));
  return inference;
}

namespace {

// State of one ParseJson: where in the binary part the next input's bytes begin.
struct InputParser {
  absl::string_view binary;
  const ServedModel& model;
  std::vector<std::string>& decoded;

  absl::Status Parse(const json::value& value, WireInput& input) {
    if (!value.is_object()) {
      return Invalid("Unable to parse 'inputs': attempt to access JSON non-object as object");
    }
    const json::object& object = value.get_object();
    ASSIGN_OR_RETURN(const json::value* name, Member(object, "name"));
    ASSIGN_OR_RETURN(input.name, Text(*name, "name"));
    ASSIGN_OR_RETURN(input.shape, ParseShape(object));
    ASSIGN_OR_RETURN(const json::value* datatype, Member(object, "datatype"));
    ASSIGN_OR_RETURN(input.datatype, Text(*datatype, "datatype"));
    ASSIGN_OR_RETURN(const Parameters parameters, ParseTensorParameters(object));
    const json::value* data = object.if_contains("data");
    RETURN_IF_ERROR(CheckSources(data != nullptr, parameters.binary_data_size.has_value(),
                                 parameters.region.has_value()));
    if (data != nullptr) return ParseData(*data, input);
    if (parameters.region.has_value()) {
      const json::value& region = object.at("parameters").at("shared_memory_region");
      input.shared_memory = WireSharedMemory{.region = View(region.get_string()),
                                             .offset = parameters.offset,
                                             .byte_size = *parameters.byte_size};
      return absl::OkStatus();
    }
    const uint64_t size = *parameters.binary_data_size;
    if (size > binary.size()) {
      return Invalid(absl::StrCat("unexpected size for input '", input.name, "', expecting ",
                                  size - binary.size(), " additional bytes for model '",
                                  model.name(), "'"));
    }
    input.bytes = std::as_bytes(std::span(binary.data(), static_cast<size_t>(size)));
    binary.remove_prefix(static_cast<size_t>(size));
    return absl::OkStatus();
  }

  absl::Status ParseData(const json::value& data, WireInput& input) {
    const std::optional<DType> dtype = DTypeFromKServeName(input.datatype);
    if (!dtype.has_value()) {
      // FillRequest says what is wrong with it.
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(CheckJsonDatatype(*dtype, input.name));
    absl::StatusOr<TensorShape> shape = TensorShape::From(input.shape);
    if (!shape.ok()) return shape.status();
    const std::optional<int64_t> elements = shape->element_count();
    // More elements than the text has characters cannot be there: do not believe the shape.
    if (!elements.has_value()) {
      return Invalid("Unable to parse 'data': Shape does not match true shape of 'data' field");
    }
    decoded.emplace_back();
    ElementWriter writer(*dtype, static_cast<size_t>(*elements), decoded.back());
    RETURN_IF_ERROR(writer.AppendAll(data));
    input.bytes = std::as_bytes(std::span(decoded.back()));
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status JsonInference::ParseJson(absl::string_view text, absl::string_view binary,
                                      const ServedModel& model) {
  if (MayHaveNonFinite(text)) {
    document_->quoted = QuoteNonFinite(text);
    text = document_->quoted;
  }
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  boost::system::error_code error;
  document_->root =
      json::parse(json::string_view(text.data(), text.size()), error, &document_->memory, options);
  if (error) {
    return Invalid(absl::StrCat("failed to parse the request JSON buffer: ", error.message()));
  }
  if (!document_->root.is_object()) {
    return Invalid("failed to parse the request JSON buffer: not an object");
  }
  const json::object& root = document_->root.get_object();
  if (const json::value* id = root.if_contains("id")) {
    ASSIGN_OR_RETURN(wire_.id, Text(*id, "id"));
  }
  if (const json::value* parameters = root.if_contains("parameters")) {
    RETURN_IF_ERROR(ParseParameters(*parameters));
  }
  ASSIGN_OR_RETURN(const json::value* inputs, Member(root, "inputs"));
  RETURN_IF_ERROR(ParseInputs(*inputs, binary, model));
  const json::value* outputs = root.if_contains("outputs");
  return outputs == nullptr ? absl::OkStatus() : ParseOutputs(*outputs);
}

absl::Status JsonInference::ParseParameters(const json::value& parameters) {
  if (!parameters.is_object()) {
    return Invalid("Unable to parse 'parameters': attempt to access JSON non-object as object");
  }
  for (const auto& [key, value] : parameters.get_object()) {
    const absl::string_view name(key.data(), key.size());
    if (name == "priority") {
      ASSIGN_OR_RETURN(wire_.priority, Unsigned(value, "priority"));
    } else if (name == "timeout") {
      ASSIGN_OR_RETURN(wire_.timeout_us, Unsigned(value, "timeout"));
    } else if (name == "binary_data_output") {
      ASSIGN_OR_RETURN(binary_default_, Boolean(value, "binary_data_output"));
    } else if (name == "sequence_id" || name == "sequence_start" || name == "sequence_end") {
      // As Triton where a model has no sequence batching: each request stands for itself.
    } else if (absl::StartsWith(name, "triton_")) {
      return Invalid(
          "parameter keys starting with 'triton_' are reserved for Triton usage and should not "
          "be specified.");
    } else if (value.is_array() || value.is_object()) {
      return Invalid(absl::StrCat("parameter '", name,
                                  "': got an array or object, expected a number, string or bool"));
    }
  }
  return absl::OkStatus();
}

absl::Status JsonInference::ParseInputs(const json::value& inputs, absl::string_view binary,
                                        const ServedModel& model) {
  if (!inputs.is_array()) {
    return Invalid("Unable to parse 'inputs': attempt to access JSON non-array as array");
  }
  InputParser parser{.binary = binary, .model = model, .decoded = decoded_};
  if (inputs.get_array().size() > kTensorsPerRequestMax) {
    return Invalid(
        absl::StrCat("inputs: got ", inputs.get_array().size(), ", limit ", kTensorsPerRequestMax));
  }
  decoded_.reserve(inputs.get_array().size());  // views into it must stay
  for (const json::value& value : inputs.get_array()) {
    wire_.inputs.emplace_back();
    RETURN_IF_ERROR(parser.Parse(value, wire_.inputs.back()));
  }
  if (parser.binary.empty()) return absl::OkStatus();
  return Invalid(absl::StrCat("unexpected additional input data for model '", model.name(), "'"));
}

absl::Status JsonInference::ParseOutputs(const json::value& outputs) {
  if (!outputs.is_array()) {
    return Invalid("Unable to parse 'outputs': attempt to access JSON non-array as array");
  }
  for (const json::value& value : outputs.get_array()) {
    if (!value.is_object()) {
      return Invalid("Unable to parse 'outputs': attempt to access JSON non-object as object");
    }
    const json::object& object = value.get_object();
    WireOutput output;
    ASSIGN_OR_RETURN(const json::value* name, Member(object, "name"));
    ASSIGN_OR_RETURN(output.name, Text(*name, "name"));
    ASSIGN_OR_RETURN(const Parameters parameters, ParseTensorParameters(object));
    if (parameters.classification) {
      return absl::UnimplementedError(
          absl::StrCat("output '", output.name, "': classification is not supported"));
    }
    OutputForm form{.binary = parameters.binary_data.value_or(binary_default_)};
    if (parameters.region.has_value()) {
      if (parameters.binary_data.value_or(false)) {
        return Invalid("Output can't set both 'shared_memory_region' and 'binary_data'");
      }
      const json::value& region = object.at("parameters").at("shared_memory_region");
      output.shared_memory = WireSharedMemory{.region = View(region.get_string()),
                                              .offset = parameters.offset,
                                              .byte_size = *parameters.byte_size};
      form = {.binary = false, .shared_memory = true};
    }
    forms_.emplace_back(std::string(output.name), form);
    wire_.outputs.push_back(std::move(output));
  }
  return absl::OkStatus();
}

absl::Status JsonInference::ParseRaw(absl::string_view body, const ServedModel& model) {
  binary_default_ = true;
  const std::vector<ModelTensor>& inputs = model.inputs();
  if (inputs.size() != 1) {
    return Invalid(absl::StrCat("a raw binary request needs a model with one input: model '",
                                model.name(), "' has ", inputs.size()));
  }
  const ModelTensor& tensor = inputs[0];
  WireInput input;
  input.name = tensor.name;
  input.datatype = KServeName(tensor.dtype);
  // One dim may be left to the size of the data; the batch is 1.
  int64_t known = static_cast<int64_t>(SizeBytes(tensor.dtype));
  int open = -1;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    int64_t dim = tensor.dims[i];
    if (i == 0 && model.model().batchable()) dim = 1;
    if (dim < 0) {
      if (open >= 0) {
        return Invalid(absl::StrCat("The shape of the raw input '", tensor.name,
                                    "' can not be deduced because there are more than one "
                                    "variable-sized dimension"));
      }
      open = static_cast<int>(i);
    } else if (__builtin_mul_overflow(known, dim, &known)) {
      return Invalid(absl::StrCat("input '", tensor.name, "': its size passes 2^63 bytes"));
    }
    input.shape.push_back(dim);
  }
  if (open >= 0) {
    const auto size = static_cast<int64_t>(body.size());
    input.shape[static_cast<size_t>(open)] = known == 0 ? 0 : size / known;
  }
  input.bytes = std::as_bytes(std::span(body.data(), body.size()));
  wire_.inputs.push_back(std::move(input));
  return absl::OkStatus();
}

OutputForm JsonInference::FormOf(absl::string_view output) const {
  for (const auto& [name, form] : forms_) {
    if (name == output) return form;
  }
  return {.binary = binary_default_};
}

absl::StatusOr<int64_t> ParseHeaderLength(const HttpRequest& request) {
  const absl::string_view text = request.Header("inference-header-content-length");
  if (!request.HasHeader("inference-header-content-length")) return -1;
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0 ||
      value > static_cast<int64_t>(request.body.size())) {
    return Invalid(absl::StrCat("inference header size should be in range (0, ",
                                request.body.size(), "), got: ", text));
  }
  return value;
}

std::string ErrorJson(absl::string_view message) {
  std::string out = "{\"error\":";
  AppendJsonString(message, out);
  out.push_back('}');
  return out;
}

int HttpStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
      return 503;
    default:
      return 500;
  }
}

namespace {

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
void AppendNumber(T value, std::string& out) {
  if constexpr (std::is_floating_point_v<T>) {
    AppendJsonNumber(value, out);
  } else {
    std::array<char, 24> digits;
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    CHECK(error == std::errc());
    out.append(digits.data(), end);
  }
}

template <typename T>
void AppendNumbers(std::span<const std::byte> bytes, std::string& out) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    if (at != 0) out.push_back(',');
    AppendNumber(Load<T>(bytes.data() + at), out);
  }
}

void AppendData(DType dtype, std::span<const std::byte> bytes, std::string& out) {
  switch (dtype) {
    case DType::kBool:
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (i != 0) out.push_back(',');
        out.append(bytes[i] != std::byte{0} ? "true" : "false");
      }
      return;
    case DType::kI8:
      return AppendNumbers<int8_t>(bytes, out);
    case DType::kI16:
      return AppendNumbers<int16_t>(bytes, out);
    case DType::kI32:
      return AppendNumbers<int32_t>(bytes, out);
    case DType::kI64:
      return AppendNumbers<int64_t>(bytes, out);
    case DType::kU8:
      return AppendNumbers<uint8_t>(bytes, out);
    case DType::kU16:
      return AppendNumbers<uint16_t>(bytes, out);
    case DType::kU32:
      return AppendNumbers<uint32_t>(bytes, out);
    case DType::kU64:
      return AppendNumbers<uint64_t>(bytes, out);
    case DType::kF32:
      return AppendNumbers<float>(bytes, out);
    case DType::kF64:
      return AppendNumbers<double>(bytes, out);
    default:
      CHECK(false) << "f16 and bf16 are sent as binary";
  }
}

// Types without a JSON form are sent as binary whatever was asked, as Triton does.
bool MustBeBinary(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

}  // namespace

HttpAnswer AnswerInference(const Request& request, const JsonInference& inference,
                           const std::shared_ptr<const void>& owner) {
  HttpAnswer answer;
  answer.compressible = true;
  std::string& out = answer.body;
  out.reserve(256);
  out.push_back('{');
  if (!request.id.empty()) {
    out.append("\"id\":");
    AppendJsonString(request.id, out);
    out.push_back(',');
  }
  out.append("\"model_name\":");
  AppendJsonString(request.model->name(), out);
  absl::StrAppend(&out, ",\"model_version\":\"", request.model->version(), "\",\"outputs\":[");
  bool first = true;
  for (const OutputTensor& output : request.outputs) {
    const std::string& name =
        request.model->model().outputs()[static_cast<size_t>(output.index)].name;
    const OutputForm form = inference.FormOf(name);
    if (!first) out.push_back(',');
    first = false;
    out.append("{\"name\":");
    AppendJsonString(name, out);
    absl::StrAppend(&out, ",\"datatype\":\"", KServeName(output.dtype),
                    "\",\"shape\":", output.shape.ToString());
    if (form.shared_memory) {
      // The client knows where its data is.
    } else if (form.binary || MustBeBinary(output.dtype)) {
      absl::StrAppend(&out, ",\"parameters\":{\"binary_data_size\":", output.bytes.size(), "}");
      if (!output.bytes.empty()) answer.slices.push_back({.bytes = output.bytes, .owner = owner});
    } else {
      out.append(",\"data\":[");
      AppendData(output.dtype, output.bytes, out);
      out.push_back(']');
    }
    out.push_back('}');
  }
  out.append("]}");
  if (!answer.slices.empty()) {
    answer.content_type = "application/octet-stream";
    answer.headers.emplace_back("Inference-Header-Content-Length", absl::StrCat(out.size()));
  }
  return answer;
}

}  // namespace stampmill
