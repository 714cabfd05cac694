#include "server/wire.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

absl::Status FillInput(const WireInput& wire, const ServedModel& model, absl::string_view id,
                       TensorPool& pool, InputTensor& input) {
  input.index = model.model().FindInput(wire.name);
  if (input.index < 0) {
    return absl::InvalidArgumentError(absl::StrCat(RequestPrefix(id),
                                                   "unexpected inference input '", wire.name,
                                                   "' for model '", model.name(), "'"));
  }
  const std::optional<DType> dtype = DTypeFromKServeName(wire.datatype);
  if (!dtype.has_value()) {
    if (wire.datatype == "BYTES") {
      return absl::InvalidArgumentError(absl::StrCat(
          RequestPrefix(id), "inference input '", wire.name, "' data-type is 'BYTES', but model '",
          model.name(), "' expects '",
          KServeName(model.model().inputs()[static_cast<size_t>(input.index)].dtype), "'"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("invalid datatype for input ", wire.name, ": got '", wire.datatype, "'"));
  }
  input.dtype = *dtype;
  absl::StatusOr<TensorShape> shape = TensorShape::From(wire.shape);
  if (!shape.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(RequestPrefix(id), "input '", wire.name, "': ", shape.status().message()));
  }
  input.shape = *shape;
  if (!wire.shared_memory.has_value()) {
    input.bytes = wire.bytes;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(input.lease,
                   pool.ClaimClientRegion(wire.shared_memory->region, wire.shared_memory->offset,
                                          wire.shared_memory->byte_size));
  input.bytes = input.lease.bytes();
  return absl::OkStatus();
}

absl::Status FillOutput(const WireOutput& wire, const ServedModel& model, absl::string_view id,
                        TensorPool& pool, OutputTensor& output) {
  output.index = model.model().FindOutput(wire.name);
  if (output.index < 0) {
    return absl::InvalidArgumentError(absl::StrCat(RequestPrefix(id),
                                                   "unexpected inference output '", wire.name,
                                                   "' for model '", model.name(), "'"));
  }
  if (wire.shared_memory.has_value()) {
    ASSIGN_OR_RETURN(output.target,
                     pool.ClaimClientRegion(wire.shared_memory->region, wire.shared_memory->offset,
                                            wire.shared_memory->byte_size));
  }
  return absl::OkStatus();
}

}  // namespace

std::string RequestPrefix(absl::string_view id) {
  return absl::StrCat("[request id: ", id.empty() ? "<id_unknown>" : id, "] ");
}

absl::StatusOr<int64_t> ParseVersion(absl::string_view version) {
  if (version.empty()) return 0;
  int64_t value = 0;
  if (absl::SimpleAtoi(version, &value) && value > 0) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("failed to get model version from specified version string '", version,
                   "', version should be an integral value > 0"));
}

absl::Status FillRequest(const WireInference& wire, TensorPool& pool, Request& request) {
  const ServedModel& model = *request.model;
  request.id.assign(wire.id.data(), wire.id.size());
  request.priority = wire.priority;
  request.timeout_us = wire.timeout_us;
  const auto too_many = [&](size_t count, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(RequestPrefix(wire.id), what, ": got ", count,
                                                   ", limit ", kTensorsPerRequestMax));
  };
  if (wire.inputs.size() > kTensorsPerRequestMax) return too_many(wire.inputs.size(), "inputs");
  if (wire.outputs.size() > kTensorsPerRequestMax) return too_many(wire.outputs.size(), "outputs");
  request.inputs.resize(wire.inputs.size());
  for (size_t i = 0; i < wire.inputs.size(); ++i) {
    RETURN_IF_ERROR(FillInput(wire.inputs[i], model, wire.id, pool, request.inputs[i]));
    for (size_t j = 0; j < i; ++j) {
      if (request.inputs[j].index != request.inputs[i].index) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          RequestPrefix(wire.id), "input '", wire.inputs[i].name, "' already exists in request"));
    }
  }
  // A duplicate output is merged, as in Triton: the first one's place counts.
  request.outputs.clear();
  for (const WireOutput& output : wire.outputs) {
    OutputTensor tensor;
    RETURN_IF_ERROR(FillOutput(output, model, wire.id, pool, tensor));
    const bool known = std::any_of(request.outputs.begin(), request.outputs.end(),
                                   [&](const OutputTensor& o) { return o.index == tensor.index; });
    if (!known) request.outputs.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status CheckJsonDatatype(DType dtype, absl::string_view input) {
  if (dtype != DType::kF16 && dtype != DType::kBF16) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "receiving ", KServeName(dtype),
      " data via JSON is not supported. Please use the binary data format for input ", input));
}

}  // namespace stampmill
