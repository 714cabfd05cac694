// Prepare runs on server threads, many at once: it reads only what is immutable.
#include "runtime/served_model.h"

#include <algorithm>
#include <utility>

#include "absl/container/fixed_array.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

std::string DimsText(std::span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims.begin(), dims.end(), ","), "]");
}

// `shape` seen through a reshape: the dims that `from` leaves open go to those that `to` leaves
// open, in order. REQUIRES: as many -1 in both, and shape fits `from` after `skip` dims.
TensorShape ApplyReshape(const TensorShape& shape, int32_t skip, std::span<const int64_t> from,
                         std::span<const int64_t> to) {
  TensorShape result;
  for (int32_t d = 0; d < skip; ++d) result.Append(shape[d]);
  size_t source = 0;
  for (const int64_t dim : to) {
    if (dim >= 0) {
      result.Append(dim);
      continue;
    }
    while (from[source] >= 0) ++source;
    result.Append(shape[skip + static_cast<int32_t>(source++)]);
  }
  return result;
}

}  // namespace

ServedModel::ServedModel(std::shared_ptr<const Model> model, ModelConfig config,
                         const Options& options)
    : options_(options),
      model_(std::move(model)),
      config_(std::move(config)),
      statistics_(static_cast<int32_t>(
          std::min<int64_t>(config_.batching().max_batch_size, kBatchSizesCountedMax))),
      pins_(&options.engine->unpinned_waker()),
      scheduler_(config_.batching(), options.engine->requests_max()) {}

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Create(std::shared_ptr<const Model> model,
                                                                 ModelConfig config,
                                                                 const Options& options) {
  auto served =
      std::unique_ptr<ServedModel>(new ServedModel(std::move(model), std::move(config), options));
  RETURN_IF_ERROR(served->DescribeTensors());
  RETURN_IF_ERROR(served->ReserveMemory());
  const size_t requests = served->scheduler_.requests_max();
  served->running_.reserve(requests);
  const size_t tensors = std::max(served->inputs_.size(), served->outputs_.size());
  ServedModel* const self = served.get();
  ASSIGN_OR_RETURN(
      served->step_,
      ModelStep::Create(served->model_.get(), requests * tensors, [self](uint64_t bytes) {
        MemoryBudget* const budget = self->options_.budget;
        if (budget == nullptr) return absl::OkStatus();
        return budget->Reserve(MemoryBudget::Kind::kWorkspace, self->BudgetName(), bytes);
      }));
  served->binding_ =
      std::make_unique<BatchBinding>(served->model_.get(), served->step_.get(), options.pool);
  RETURN_IF_ERROR(served->EnsureQueue());
  return served;
}

ServedModel::~ServedModel() {
  CHECK_EQ(pins(), 0);
  queue_.reset();  // waits for its work; then memory may go
  options_.pool->ForgetWaker(&options_.engine->waker());
  if (options_.budget != nullptr) {
    options_.budget->Release(MemoryBudget::Kind::kWeights, BudgetName());
    options_.budget->Release(MemoryBudget::Kind::kWorkspace, BudgetName());
  }
}

std::string ServedModel::BudgetName() const {
  return absl::StrCat(options_.name, ":", options_.version, "#", options_.load_number);
}

absl::Status ServedModel::ReserveMemory() {
  if (options_.budget == nullptr) return absl::OkStatus();
  return options_.budget->Reserve(MemoryBudget::Kind::kWeights, BudgetName(),
                                  model_->weight_bytes());
}

absl::Status ServedModel::EnsureQueue() {
  if (queue_ != nullptr && queue_->status().ok()) return absl::OkStatus();
  queue_.reset();
  ASSIGN_OR_RETURN(queue_, model_->device()->CreateQueue(&options_.engine->waker()));
  signal_ = 0;
  return absl::OkStatus();
}

absl::Status ServedModel::DescribeTensors() {
  const bool batched = config_.max_batch_size() > 0;
  const auto describe = [batched](const auto& configured, const std::vector<ModelTensor>& tensors,
                                  std::vector<ModelTensor>& described,
                                  std::vector<Reshape>& reshapes) {
    for (const ModelTensor& tensor : tensors) {
      ModelTensor seen{tensor.name, tensor.dtype, {}};
      Reshape reshape;
      if (batched) seen.dims.push_back(-1);
      for (const auto& entry : configured) {
        if (entry.name() != tensor.name) continue;
        seen.dims.insert(seen.dims.end(), entry.dims().begin(), entry.dims().end());
        if (!entry.has_reshape()) continue;
        reshape.active = true;
        reshape.client.assign(entry.dims().begin(), entry.dims().end());
        reshape.model.assign(entry.reshape().shape().begin(), entry.reshape().shape().end());
      }
      described.push_back(std::move(seen));
      reshapes.push_back(std::move(reshape));
    }
  };
  describe(config_.proto().input(), model_->inputs(), inputs_, input_reshapes_);
  describe(config_.proto().output(), model_->outputs(), outputs_, output_reshapes_);
  return absl::OkStatus();
}

// Requests.

absl::Status ServedModel::Prepare(Request& request) const {
  RETURN_IF_ERROR(PrepareInputs(request));
  RETURN_IF_ERROR(PrepareOutputs(request));
  absl::FixedArray<const TensorShape*, 16> shapes(request.inputs.size());
  for (size_t i = 0; i < shapes.size(); ++i) shapes[i] = &request.inputs[i].shape;
  absl::FixedArray<int64_t, 16> symbols(model_->program().symbols.size());
  return model_->BindSymbols({shapes.data(), shapes.size()}, {symbols.data(), symbols.size()});
}

absl::Status ServedModel::PrepareInputs(Request& request) const {
  std::vector<InputTensor>& inputs = request.inputs;
  for (const InputTensor& input : inputs) {
    if (input.index < 0 || static_cast<size_t>(input.index) >= inputs_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected inference input ", input.index, " for model '", name(), "'"));
    }
  }
  std::sort(inputs.begin(), inputs.end(),
            [](const InputTensor& a, const InputTensor& b) { return a.index < b.index; });
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i > 0 && inputs[i].index == inputs[i - 1].index) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", inputs_[static_cast<size_t>(inputs[i].index)].name,
                       "' appears more than once in the request for model '", name(), "'"));
    }
  }
  if (inputs.size() != inputs_.size()) {
    std::string missing;
    for (size_t i = 0, given = 0; i < inputs_.size(); ++i) {
      if (given < inputs.size() && static_cast<size_t>(inputs[given].index) == i) {
        ++given;
      } else {
        absl::StrAppend(&missing, missing.empty() ? "'" : ", '", inputs_[i].name, "'");
      }
    }
    return absl::InvalidArgumentError(absl::StrCat("expected ", inputs_.size(), " inputs but got ",
                                                   inputs.size(), " inputs for model '", name(),
                                                   "'; missing required input(s) [", missing, "]"));
  }
  request.rows = 1;
  size_t signature = 0;
  for (InputTensor& input : inputs) {
    RETURN_IF_ERROR(PrepareInput(input, request));
    for (int32_t d = 1; d < input.shape.rank(); ++d) {
      signature = absl::HashOf(signature, input.shape[d]);
    }
  }
  request.signature = signature;
  return absl::OkStatus();
}

absl::Status ServedModel::ShapeError(const InputTensor& input) const {
  const ModelTensor& expected = inputs_[static_cast<size_t>(input.index)];
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected shape for input '", expected.name, "' for model '", name(),
                   "'. Expected ", DimsText(expected.dims), ", got ", input.shape.ToString()));
}

absl::Status ServedModel::PrepareInput(InputTensor& input, Request& request) const {
  const auto index = static_cast<size_t>(input.index);
  const ModelTensor& expected = inputs_[index];
  if (input.dtype != expected.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "inference input '", expected.name, "' data-type is '", KServeName(input.dtype),
        "', but model '", name(), "' expects '", KServeName(expected.dtype), "'"));
  }
  TensorShape& shape = input.shape;
  if (static_cast<size_t>(shape.rank()) != expected.dims.size()) return ShapeError(input);
  for (int32_t d = 0; d < shape.rank(); ++d) {
    const int64_t dim = expected.dims[static_cast<size_t>(d)];
    if (dim >= 0 && dim != shape[d]) return ShapeError(input);
  }
  const int64_t max_batch_size = config_.max_batch_size();
  if (max_batch_size > 0) {
    if (shape[0] < 1 || shape[0] > max_batch_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "inference request batch-size must be ", shape[0] < 1 ? ">= 1" : "<= ",
          shape[0] < 1 ? "" : absl::StrCat(max_batch_size), " for '", name(), "', got ", shape[0]));
    }
    if (index > 0 && shape[0] != request.rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", expected.name, "' batch size does not match other inputs for '",
                       name(), "': got ", shape[0], ", want ", request.rows));
    }
    request.rows = shape[0];
  }
  const std::optional<int64_t> elements = shape.element_count();
  const auto element_bytes = static_cast<int64_t>(SizeBytes(expected.dtype));
  if (!elements.has_value() || *elements > kTensorBytesMax / element_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("input '", expected.name, "': shape ",
                                                   shape.ToString(), ": limit ", kTensorBytesMax,
                                                   " bytes"));
  }
  if (static_cast<uint64_t>(*elements * element_bytes) != input.bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input byte size mismatch for input '", expected.name, "' for model '", name(),
                     "'. Expected ", *elements * element_bytes, ", got ", input.bytes.size()));
  }
  RETURN_IF_ERROR(model_->CheckIndices(input.index, input.bytes));
  if (const Reshape& reshape = input_reshapes_[index]; reshape.active) {
    shape = ApplyReshape(shape, max_batch_size > 0 ? 1 : 0, reshape.client, reshape.model);
  }
  return absl::OkStatus();
}

absl::Status ServedModel::PrepareOutputs(Request& request) const {
  if (request.outputs.empty()) {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      request.outputs.emplace_back().index = static_cast<int32_t>(o);
    }
    return absl::OkStatus();
  }
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const int32_t index = request.outputs[i].index;
    if (index < 0 || static_cast<size_t>(index) >= outputs_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected inference output ", index, " for model '", name(), "'"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (request.outputs[j].index != index) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("output '", outputs_[static_cast<size_t>(index)].name,
                       "' appears more than once in the request for model '", name(), "'"));
    }
  }
  return absl::OkStatus();
}

void ServedModel::ReshapeOutputs(Request& request) const {
  const int32_t skip = config_.max_batch_size() > 0 ? 1 : 0;
  for (OutputTensor& output : request.outputs) {
    const Reshape& reshape = output_reshapes_[static_cast<size_t>(output.index)];
    if (!reshape.active) continue;
    output.shape = ApplyReshape(output.shape, skip, reshape.model, reshape.client);
  }
}

// Warming.

absl::Status ServedModel::Warm() {
  std::vector<TensorShape> one_row;
  bool fixed = true;
  for (const ModelTensor& input : model_->inputs()) {
    TensorShape shape;
    for (size_t d = 0; d < input.dims.size(); ++d) {
      const bool is_batch = d == 0 && model_->batchable();
      fixed = fixed && (is_batch || input.dims[d] >= 0);
      shape.Append(is_batch || input.dims[d] < 0 ? 1 : input.dims[d]);
    }
    one_row.push_back(shape);
  }
  if (config_.proto().model_warmup().empty()) {
    // Zeros may be no contents that the model takes.
    return fixed && !model_->HasValueSymbols() ? WarmOnce(std::move(one_row)) : absl::OkStatus();
  }
  for (const inference::ModelWarmup& sample : config_.proto().model_warmup()) {
    std::vector<TensorShape> shapes;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto given = sample.inputs().find(inputs_[i].name);
      if (given == sample.inputs().end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "model_warmup '", sample.name(), "': input '", inputs_[i].name, "' is missing"));
      }
      std::vector<int64_t> dims(given->second.dims().begin(), given->second.dims().end());
      if (config_.max_batch_size() > 0) {
        dims.insert(dims.begin(), std::max<int64_t>(1, sample.batch_size()));
      }
      ASSIGN_OR_RETURN(TensorShape shape, TensorShape::From(dims));
      if (const Reshape& reshape = input_reshapes_[i];
          reshape.active && dims.size() == inputs_[i].dims.size()) {
        shape = ApplyReshape(shape, config_.max_batch_size() > 0 ? 1 : 0, reshape.client,
                             reshape.model);
      }
      shapes.push_back(shape);
    }
    for (uint32_t n = 0; n < std::clamp(sample.count(), 1u, 100u); ++n) {
      RETURN_IF_ERROR(WarmOnce(shapes));
    }
  }
  return absl::OkStatus();
}

absl::Status ServedModel::WarmOnce(std::vector<TensorShape> shapes) {
  std::vector<const TensorShape*> pointers;
  for (const TensorShape& shape : shapes) pointers.push_back(&shape);
  int64_t elements = 0;
  for (const Program::ValueSymbol& symbol : model_->program().value_symbols) {
    elements = std::max(elements, symbol.element + 1);
  }
  const std::vector<int64_t> zeros(static_cast<size_t>(elements));
  const std::vector<std::span<const std::byte>> contents(inputs_.size(),
                                                         std::as_bytes(std::span(zeros)));
  RETURN_IF_ERROR(step_->Begin(pointers, contents));
  uint64_t staging_bytes = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    staging_bytes += ModelStep::StagingBytes(step_->input_bytes(static_cast<int32_t>(i)));
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    staging_bytes += ModelStep::StagingBytes(step_->output_bytes(static_cast<int32_t>(o)));
  }
  RETURN_IF_ERROR(step_->ReserveStaging(staging_bytes));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    const BufferRef zeros = step_->TakeStaging(step_->input_bytes(index));
    std::fill_n(reinterpret_cast<std::byte*>(zeros.address), zeros.size_bytes, std::byte{0});
    step_->BindInput(index, zeros);
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const auto index = static_cast<int32_t>(o);
    step_->BindOutput(index, step_->TakeStaging(step_->output_bytes(index)));
  }
  RETURN_IF_ERROR(step_->Run(*queue_, signal_));
  step_->ReleaseStaging();
  return absl::OkStatus();
}

}  // namespace stampmill
