#include "server/grpc/grpc_infer.h"

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

absl::Status Invalid(absl::string_view message) { return absl::InvalidArgumentError(message); }

absl::StatusOr<uint64_t> UnsignedParameter(const inference::InferParameter& parameter,
                                           absl::string_view name) {
  if (parameter.parameter_choice_case() == inference::InferParameter::kUint64Param) {
    return parameter.uint64_param();
  }
  if (parameter.parameter_choice_case() == inference::InferParameter::kInt64Param &&
      parameter.int64_param() >= 0) {
    return static_cast<uint64_t>(parameter.int64_param());
  }
  return Invalid(
      absl::StrCat("invalid value type for '", name, "' parameter, expected int64_param."));
}

absl::StatusOr<std::optional<WireSharedMemory>> SharedMemoryOf(const Parameters& parameters,
                                                               absl::string_view tensor) {
  const auto region = parameters.find("shared_memory_region");
  if (region == parameters.end()) return std::nullopt;
  if (region->second.parameter_choice_case() != inference::InferParameter::kStringParam) {
    return Invalid(
        absl::StrCat("invalid value type for 'shared_memory_region' parameter for "
                     "tensor '",
                     tensor, "', expected string_param."));
  }
  WireSharedMemory memory{.region = region->second.string_param()};
  const auto size = parameters.find("shared_memory_byte_size");
  if (size == parameters.end()) {
    return Invalid(
        absl::StrCat("'shared_memory_byte_size' must be given with "
                     "'shared_memory_region' for tensor '",
                     tensor, "'"));
  }
  ASSIGN_OR_RETURN(memory.byte_size, UnsignedParameter(size->second, "shared_memory_byte_size"));
  if (const auto offset = parameters.find("shared_memory_offset"); offset != parameters.end()) {
    ASSIGN_OR_RETURN(memory.offset, UnsignedParameter(offset->second, "shared_memory_offset"));
  }
  return memory;
}

template <typename To, typename From>
absl::Status AppendAs(const From& values, absl::string_view input, std::string& out) {
  out.reserve(static_cast<size_t>(values.size()) * sizeof(To));
  for (const auto value : values) {
    if constexpr (std::is_integral_v<To> && !std::is_same_v<To, bool>) {
      if (!std::in_range<To>(value)) {
        return Invalid(absl::StrCat("typed contents of input '", input, "': got ", value,
                                    ", outside of its data-type"));
      }
    }
    const To element = static_cast<To>(value);
    char bytes[sizeof(To)];
    std::memcpy(bytes, &element, sizeof(To));
    out.append(bytes, sizeof(To));
  }
  return absl::OkStatus();
}

// Number of elements in whichever typed field is used.
int TypedCount(const inference::InferTensorContents& contents) {
  return contents.bool_contents_size() + contents.int_contents_size() +
         contents.int64_contents_size() + contents.uint_contents_size() +
         contents.uint64_contents_size() + contents.fp32_contents_size() +
         contents.fp64_contents_size() + contents.bytes_contents_size();
}

absl::Status DecodeContents(const inference::InferTensorContents& contents, DType dtype,
                            absl::string_view input, std::string& out) {
  int used = 0;
  absl::Status status;
  switch (dtype) {
    case DType::kBool:
      used = contents.bool_contents_size();
      status = AppendAs<bool>(contents.bool_contents(), input, out);
      break;
    case DType::kI8:
      used = contents.int_contents_size();
      status = AppendAs<int8_t>(contents.int_contents(), input, out);
      break;
    case DType::kI16:
      used = contents.int_contents_size();
      status = AppendAs<int16_t>(contents.int_contents(), input, out);
      break;
    case DType::kI32:
      used = contents.int_contents_size();
      status = AppendAs<int32_t>(contents.int_contents(), input, out);
      break;
    case DType::kI64:
      used = contents.int64_contents_size();
      status = AppendAs<int64_t>(contents.int64_contents(), input, out);
      break;
    case DType::kU8:
      used = contents.uint_contents_size();
      status = AppendAs<uint8_t>(contents.uint_contents(), input, out);
      break;
    case DType::kU16:
      used = contents.uint_contents_size();
      status = AppendAs<uint16_t>(contents.uint_contents(), input, out);
      break;
    case DType::kU32:
      used = contents.uint_contents_size();
      status = AppendAs<uint32_t>(contents.uint_contents(), input, out);
      break;
    case DType::kU64:
      used = contents.uint64_contents_size();
      status = AppendAs<uint64_t>(contents.uint64_contents(), input, out);
      break;
    case DType::kF32:
      used = contents.fp32_contents_size();
      status = AppendAs<float>(contents.fp32_contents(), input, out);
      break;
    case DType::kF64:
      used = contents.fp64_contents_size();
      status = AppendAs<double>(contents.fp64_contents(), input, out);
      break;
    default:
      return Invalid(absl::StrCat("typed contents cannot carry ", KServeName(dtype), " for input '",
                                  input, "': use raw_input_contents"));
  }
  if (used != TypedCount(contents)) {
    return Invalid(absl::StrCat("unexpected explicit tensor data for input tensor '", input,
                                "' of type '", KServeName(dtype), "'"));
  }
  return status;
}

absl::Status ParseParameters(const inference::ModelInferRequest& message, WireInference& wire) {
  for (const auto& [name, value] : message.parameters()) {
    if (name == "priority") {
      ASSIGN_OR_RETURN(wire.priority, UnsignedParameter(value, "priority"));
    } else if (name == "timeout") {
      ASSIGN_OR_RETURN(wire.timeout_us, UnsignedParameter(value, "timeout"));
    } else if (name == "sequence_id" || name == "sequence_start" || name == "sequence_end") {
      // As Triton where a model has no sequence batching: each request stands for itself.
    } else if (absl::StartsWith(name, "triton_") && name != "triton_enable_empty_final_response") {
      return Invalid(
          "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
          "specified.");
    }
  }
  return absl::OkStatus();
}

absl::Status ParseInputs(const inference::ModelInferRequest& message, WireInference& wire,
                         DecodedContents& decoded) {
  int raw = 0;  // inputs in shared memory have no entry
  decoded.tensors.reserve(static_cast<size_t>(message.inputs_size()));
  wire.inputs.reserve(static_cast<size_t>(message.inputs_size()));
  for (const auto& tensor : message.inputs()) {
    WireInput& input = wire.inputs.emplace_back();
    input.name = tensor.name();
    input.datatype = tensor.datatype();
    input.shape.assign(tensor.shape().begin(), tensor.shape().end());
    ASSIGN_OR_RETURN(input.shared_memory, SharedMemoryOf(tensor.parameters(), tensor.name()));
    const bool typed = tensor.has_contents() && TypedCount(tensor.contents()) > 0;
    if (input.shared_memory.has_value()) {
      if (!typed) continue;
      return Invalid(absl::StrCat("unexpected 'contents' for shared-memory input '", tensor.name(),
                                  "' for model '", message.model_name(), "'"));
    }
    if (typed && message.raw_input_contents_size() > 0) {
      return Invalid(
          absl::StrCat("contents field must not be specified when using raw_input_contents for '",
                       tensor.name(), "' for model '", message.model_name(), "'"));
    }
    if (typed) {
      const std::optional<DType> dtype = DTypeFromKServeName(tensor.datatype());
      if (!dtype.has_value()) continue;  // FillRequest says what is wrong with it
      decoded.tensors.emplace_back();
      RETURN_IF_ERROR(
          DecodeContents(tensor.contents(), *dtype, tensor.name(), decoded.tensors.back()));
      input.bytes = std::as_bytes(std::span(decoded.tensors.back()));
    } else if (raw < message.raw_input_contents_size()) {
      input.bytes = std::as_bytes(std::span(message.raw_input_contents(raw++)));
    } else {
      bool empty = false;
      for (int64_t dim : tensor.shape()) empty |= dim == 0;
      if (empty) continue;
      return Invalid(absl::StrCat("unable to find data for input tensor '", tensor.name(),
                                  "' for model '", message.model_name(), "' in request."));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseInference(const inference::ModelInferRequest& message, WireInference& wire,
                            DecodedContents& decoded) {
  wire.id = message.id();
  RETURN_IF_ERROR(ParseParameters(message, wire));
  RETURN_IF_ERROR(ParseInputs(message, wire, decoded));
  wire.outputs.reserve(static_cast<size_t>(message.outputs_size()));
  for (const auto& tensor : message.outputs()) {
    WireOutput& output = wire.outputs.emplace_back();
    output.name = tensor.name();
    if (const auto k = tensor.parameters().find("classification");
        k != tensor.parameters().end() && k->second.int64_param() != 0) {
      return absl::UnimplementedError(
          absl::StrCat("output '", tensor.name(), "': classification is not supported"));
    }
    ASSIGN_OR_RETURN(output.shared_memory, SharedMemoryOf(tensor.parameters(), tensor.name()));
  }
  return absl::OkStatus();
}

absl::Status CheckResponseSize(const Request& request) {
  // Room for names and shapes beside the tensors.
  constexpr uint64_t kBytesMax = (uint64_t{1} << 31) - (1 << 20);
  uint64_t bytes = 0;
  for (const OutputTensor& output : request.outputs) {
    if (!output.target.valid()) bytes += output.bytes.size();
  }
  if (bytes <= kBytesMax) return absl::OkStatus();
  return Invalid(absl::StrCat(RequestPrefix(request.id), "response of model '",
                              request.model->name(), "': got ", bytes, " bytes of outputs, limit ",
                              kBytesMax, " for one gRPC message; use shared memory"));
}

void DescribeResponse(const Request& request, inference::ModelInferResponse& response) {
  const ServedModel& model = *request.model;
  response.set_model_name(model.name());
  response.set_model_version(absl::StrCat(model.version()));
  response.set_id(request.id);
  for (const OutputTensor& output : request.outputs) {
    auto* tensor = response.add_outputs();
    tensor->set_name(model.model().outputs()[static_cast<size_t>(output.index)].name);
    const absl::string_view datatype = KServeName(output.dtype);
    tensor->set_datatype(datatype.data(), datatype.size());
    for (int64_t dim : output.shape.dims()) tensor->add_shape(dim);
  }
}

void FillResponse(const Request& request, inference::ModelInferResponse& response) {
  DescribeResponse(request, response);
  for (const OutputTensor& output : request.outputs) {
    if (output.target.valid()) {
      response.add_raw_output_contents();
    } else {
      response.add_raw_output_contents(output.bytes.data(), output.bytes.size());
    }
  }
}

}  // namespace stampmill
