// Loading checks the program against what it came with before anything is bound to it: its tables
// by Program::Verify, its weights by size, its artifacts by count, its segments by device kind.
#include "runtime/model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/limits.h"
#include "graph/tensor.h"
#include "runtime/program_cursor.h"

namespace stampmill {
namespace {

ModelTensor Describe(const ProgramTensor& tensor) {
  ModelTensor result{tensor.name, tensor.dtype, {}};
  for (const ProgramDim& dim : tensor.dims) result.dims.push_back(dim.fixed >= 0 ? dim.fixed : -1);
  return result;
}

// Symbols of requests that no input sets could never get a value.
absl::Status CheckSymbolsAreBound(const Program& program) {
  std::vector<bool> bound(program.RequestSymbols(), false);
  for (const Program::ValueSymbol& symbol : program.value_symbols) {
    bound[static_cast<size_t>(symbol.symbol)] = true;
  }
  for (const ProgramTensor& input : program.inputs) {
    for (const ProgramDim& dim : input.dims) {
      if (dim.fixed >= 0) continue;
      if (dim.place < 0 || static_cast<size_t>(dim.place) >= bound.size()) {
        return absl::DataLossError(absl::StrCat("program: input '", input.name, "': dim place ",
                                                dim.place, ", limit ", bound.size(), " symbols"));
      }
      bound[static_cast<size_t>(dim.place)] = true;
    }
  }
  for (size_t i = 0; i < bound.size(); ++i) {
    if (!bound[i]) {
      return absl::DataLossError(
          absl::StrCat("program: symbol '", program.symbols[i], "' is in no input"));
    }
  }
  return absl::OkStatus();
}

// The dim place of the batch, -1 when the program does not batch.
absl::StatusOr<int32_t> FindBatchPlace(const Program& program) {
  if (program.batch_symbol.empty()) return -1;
  int32_t place = -1;
  for (size_t i = 0; i < program.symbols.size(); ++i) {
    if (program.symbols[i] == program.batch_symbol) place = static_cast<int32_t>(i);
  }
  for (const std::vector<ProgramTensor>* tensors : {&program.inputs, &program.outputs}) {
    for (const ProgramTensor& tensor : *tensors) {
      if (place < 0 || tensor.dims.empty() || tensor.dims[0].fixed >= 0 ||
          tensor.dims[0].place != place) {
        return absl::DataLossError(absl::StrCat("program: batch symbol '", program.batch_symbol,
                                                "' is not dim 0 of '", tensor.name, "'"));
      }
    }
  }
  return place;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(ModelImage image, Device* device) {
  auto model = std::shared_ptr<Model>(new Model());
  model->image_ = std::move(image);
  model->device_ = device;
  const Program& program = model->image_.program;
  RETURN_IF_ERROR(program.Verify());
  if (!device->info().host_memory) {
    return absl::UnimplementedError(
        absl::StrCat("device ", device->info().id, ": models on devices with memory of their own"));
  }
  if (program.weights_size != model->image_.weights.size()) {
    return absl::DataLossError(absl::StrCat("program: got ", model->image_.weights.size(),
                                            " bytes of weights, limit ", program.weights_size));
  }
  for (const ProgramSegment& segment : program.segments) {
    if (segment.device_kind != device->info().target.kind()) {
      return absl::UnimplementedError(absl::StrCat("program: a segment for device kind '",
                                                   segment.device_kind, "' on device ",
                                                   device->info().id));
    }
  }
  for (const std::vector<ProgramTensor>* tensors : {&program.inputs, &program.outputs}) {
    if (tensors->size() > static_cast<size_t>(kTensorsPerRequestMax)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "model: got ", tensors->size(), " inputs or outputs, limit ", kTensorsPerRequestMax));
    }
    for (const ProgramTensor& tensor : *tensors) {
      if (tensor.dims.size() > static_cast<size_t>(kTensorRankMax)) {
        return absl::ResourceExhaustedError(absl::StrCat("tensor '", tensor.name, "': got rank ",
                                                         tensor.dims.size(), ", limit ",
                                                         kTensorRankMax));
      }
    }
  }
  RETURN_IF_ERROR(CheckSymbolsAreBound(program));
  ASSIGN_OR_RETURN(model->batch_place_, FindBatchPlace(program));
  RETURN_IF_ERROR(model->ResolveLaunches());
  if (!model->image_.weights.empty()) {
    const std::span<const std::byte> weights = model->image_.weights;
    ASSIGN_OR_RETURN(model->weights_,
                     device->Import({const_cast<std::byte*>(weights.data()), weights.size()},
                                    /*writable=*/false));
  }
  for (const ProgramTensor& input : program.inputs) {
    model->input_index_[input.name] = static_cast<int32_t>(model->inputs_.size());
    model->inputs_.push_back(Describe(input));
  }
  for (const ProgramTensor& output : program.outputs) {
    model->output_index_[output.name] = static_cast<int32_t>(model->outputs_.size());
    model->outputs_.push_back(Describe(output));
  }
  return std::shared_ptr<const Model>(std::move(model));
}

absl::Status Model::ResolveLaunches() {
  const Program& program = image_.program;
  if (image_.artifacts.size() != program.artifacts.size()) {
    return absl::DataLossError(absl::StrCat("program: got ", image_.artifacts.size(),
                                            " artifacts, limit ", program.artifacts.size()));
  }
  for (const Artifact& artifact : image_.artifacts) {
    ASSIGN_OR_RETURN(std::shared_ptr<const Executable> executable, device_->Load(artifact));
    executables_.push_back(std::move(executable));
  }
  for (const ProgramCommand& command : program.commands) {
    Launch launch;
    if (command.kind == ProgramCommand::Kind::kLaunch) {
      if (command.buffers.size() > static_cast<size_t>(kLaunchBuffersMax) ||
          command.dims.size() > static_cast<size_t>(kLaunchDimsMax)) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "program: ", command.label, ": got ", command.buffers.size(), " buffers and ",
            command.dims.size(), " dims, limits ", kLaunchBuffersMax, " and ", kLaunchDimsMax));
      }
      launch.executable = executables_[static_cast<size_t>(command.artifact)].get();
      ASSIGN_OR_RETURN(launch.entry, launch.executable->FindEntry(command.entry));
    }
    launches_.push_back(launch);
  }
  return absl::OkStatus();
}

int32_t Model::FindInput(absl::string_view name) const {
  const auto found = input_index_.find(name);
  return found == input_index_.end() ? -1 : found->second;
}

int32_t Model::FindOutput(absl::string_view name) const {
  const auto found = output_index_.find(name);
  return found == output_index_.end() ? -1 : found->second;
}

absl::Status Model::BindSymbols(std::span<const TensorShape* const> shapes,
                                std::span<int64_t> values) const {
  const Program& program = image_.program;
  std::fill(values.begin(), values.begin() + static_cast<ptrdiff_t>(program.RequestSymbols()), -1);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const TensorShape& shape = *shapes[i];
    const ProgramTensor& input = program.inputs[i];
    if (static_cast<size_t>(shape.rank()) != input.dims.size()) {
      return absl::InvalidArgumentError(absl::StrCat("input '", input.name, "': shape ",
                                                     shape.ToString(), ": got rank ", shape.rank(),
                                                     ", want ", input.dims.size()));
    }
    for (int32_t d = 0; d < shape.rank(); ++d) {
      const ProgramDim& dim = input.dims[static_cast<size_t>(d)];
      if (dim.fixed >= 0) {
        if (dim.fixed == shape[d]) continue;
        return absl::InvalidArgumentError(absl::StrCat("input '", input.name, "': shape ",
                                                       shape.ToString(), ": dim ", d, ": got ",
                                                       shape[d], ", want ", dim.fixed));
      }
      int64_t& value = values[static_cast<size_t>(dim.place)];
      if (value >= 0 && value != shape[d]) {
        return absl::InvalidArgumentError(
            absl::StrCat("input '", input.name, "': shape ", shape.ToString(), ": dim ", d, " ('",
                         program.symbols[static_cast<size_t>(dim.place)], "'): got ", shape[d],
                         ", want ", value, ", which another dim of that name has"));
      }
      value = shape[d];
    }
  }
  return absl::OkStatus();
}

absl::Status Model::BindValues(std::span<const std::span<const std::byte>> contents,
                               std::span<int64_t> values) const {
  for (const Program::ValueSymbol& symbol : program().value_symbols) {
    const auto input = static_cast<size_t>(symbol.input);
    const ModelTensor& tensor = inputs_[input];
    const size_t size = SizeBytes(tensor.dtype);
    const size_t count = input < contents.size() ? contents[input].size() / size : 0;
    if (static_cast<size_t>(symbol.element) >= count) {
      return absl::InvalidArgumentError(absl::StrCat("input '", tensor.name, "': element ",
                                                     symbol.element, ": limit ", count,
                                                     " elements, and it must be known"));
    }
    const int64_t value = LoadAsInt64(
        tensor.dtype, contents[input].data() + static_cast<size_t>(symbol.element) * size);
    // Of what u64 holds, the upper half comes out negative.
    if (value == kBadDim || (tensor.dtype == DType::kU64 && value < 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", tensor.name, "': element ", symbol.element,
                       ": a count or choice that does not fit into 63 bits"));
    }
    values[static_cast<size_t>(symbol.symbol)] = tensor.dtype == DType::kBool ? value != 0 : value;
  }
  return absl::OkStatus();
}

namespace {

// The first element outside of [-limit, limit - 1]; -1: none.
template <typename T>
int64_t FindOutside(std::span<const std::byte> bytes, int64_t limit) {
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(T));
  // Nearly always all are inside: a pass without branches first.
  bool inside = true;
  const auto is_inside = [&](int64_t i) {
    T value;
    std::memcpy(&value, bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return value >= -limit && value < limit;
  };
  for (int64_t i = 0; i < count; ++i) inside &= is_inside(i);
  if (inside) return -1;
  int64_t first = 0;
  while (first < count && is_inside(first)) ++first;
  return first;
}

}  // namespace

absl::Status Model::CheckIndices(int32_t input, std::span<const std::byte> bytes) const {
  for (const Program::IndexBound& bound : program().index_bounds) {
    if (bound.input != input) continue;
    const ModelTensor& tensor = inputs_[static_cast<size_t>(input)];
    const bool wide = tensor.dtype == DType::kI64;
    const int64_t outside =
        wide ? FindOutside<int64_t>(bytes, bound.limit) : FindOutside<int32_t>(bytes, bound.limit);
    if (outside < 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "input '", tensor.name, "': element ", outside, ": got ",
        LoadAsInt64(tensor.dtype, bytes.data() + static_cast<size_t>(outside) * (wide ? 8 : 4)),
        ", limits ", -bound.limit, " and ", bound.limit - 1, " (indices of ", bound.reader, ")"));
  }
  return absl::OkStatus();
}

}  // namespace stampmill
