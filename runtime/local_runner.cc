// Output memory is the caller's tensors; the step writes it in place.
#include "runtime/local_runner.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "runtime/model_step.h"
#include "runtime/request.h"

namespace stampmill {
namespace {

BufferRef Ref(std::span<const std::byte> bytes) {
  return {reinterpret_cast<uint64_t>(bytes.data()), bytes.size()};
}

}  // namespace

LocalRunner::LocalRunner() = default;

// The queue waits for its work, so it goes before what the work uses.
LocalRunner::~LocalRunner() { queue_.reset(); }

absl::StatusOr<std::unique_ptr<LocalRunner>> LocalRunner::Create(ModelImage image, Device* device) {
  auto runner = std::unique_ptr<LocalRunner>(new LocalRunner());
  ASSIGN_OR_RETURN(runner->model_, Model::Load(std::move(image), device));
  ASSIGN_OR_RETURN(runner->step_, ModelStep::Create(runner->model_.get(), 0, nullptr));
  ASSIGN_OR_RETURN(runner->queue_, device->CreateQueue(&runner->waker_));
  return runner;
}

absl::Status LocalRunner::Begin(std::span<const Tensor> inputs) {
  const std::vector<ModelTensor>& expected = model_->inputs();
  if (inputs.size() != expected.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs: got ", inputs.size(), ", want ", expected.size()));
  }
  shapes_.resize(inputs.size());
  shape_pointers_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype() != expected[i].dtype) {
      return absl::InvalidArgumentError(absl::StrCat("input '", expected[i].name, "': got ",
                                                     Name(inputs[i].dtype()), ", want ",
                                                     Name(expected[i].dtype)));
    }
    ASSIGN_OR_RETURN(shapes_[i], TensorShape::From(inputs[i].shape()));
    shape_pointers_[i] = &shapes_[i];
  }
  contents_.clear();
  for (const Tensor& input : inputs) contents_.push_back(input.bytes());
  RETURN_IF_ERROR(step_->Begin(shape_pointers_, contents_));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (inputs[i].bytes().size() != step_->input_bytes(index)) {
      return absl::InternalError(
          absl::StrCat("input '", expected[i].name, "': got ", inputs[i].bytes().size(),
                       " bytes, the program reads ", step_->input_bytes(index)));
    }
    RETURN_IF_ERROR(model_->CheckIndices(index, inputs[i].bytes()));
    step_->BindInput(index, Ref(inputs[i].bytes()));
  }
  return absl::OkStatus();
}

absl::Status LocalRunner::BindOutputs(std::span<const Tensor> outputs) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    const auto index = static_cast<int32_t>(o);
    if (step_->has_late_size(index)) {
      RETURN_IF_ERROR(BindLateOutput(index));
      continue;
    }
    if (outputs[o].bytes().size() != step_->output_bytes(index)) {
      return absl::InvalidArgumentError(absl::StrCat("output '", model_->outputs()[o].name,
                                                     "': got room for ", outputs[o].bytes().size(),
                                                     " bytes, limit ", step_->output_bytes(index)));
    }
    step_->BindOutput(index, Ref(outputs[o].bytes()));
  }
  return absl::OkStatus();
}

absl::Status LocalRunner::BindLateOutput(int32_t output) {
  late_.resize(model_->outputs().size());
  Tensor& room = late_[static_cast<size_t>(output)];
  const uint64_t bytes = step_->output_bytes(output);
  if (!room.valid() || room.bytes().size() != bytes) {
    ASSIGN_OR_RETURN(room, Tensor::Allocate(DType::kU8, {static_cast<int64_t>(bytes)}));
  }
  step_->BindOutput(output, Ref(room.bytes()));
  return absl::OkStatus();
}

absl::StatusOr<Tensor> LocalRunner::LateOutput(int32_t output) const {
  ASSIGN_OR_RETURN(const uint64_t bytes, step_->final_output_bytes(output));
  const TensorShape shape = step_->output_shape(output);
  const std::span<const int64_t> dims = shape.dims();
  ASSIGN_OR_RETURN(Tensor result,
                   Tensor::Allocate(model_->outputs()[static_cast<size_t>(output)].dtype,
                                    std::vector<int64_t>(dims.begin(), dims.end())));
  const std::byte* const from = late_[static_cast<size_t>(output)].bytes().data();
  if (bytes > 0) std::memcpy(result.mutable_bytes().data(), from, bytes);
  return result;
}

absl::StatusOr<std::vector<Tensor>> LocalRunner::MakeOutputs() {
  std::vector<Tensor> outputs;
  for (size_t o = 0; o < model_->outputs().size(); ++o) {
    if (step_->has_late_size(static_cast<int32_t>(o))) {
      outputs.emplace_back();
      continue;
    }
    const TensorShape shape = step_->output_shape(static_cast<int32_t>(o));
    const std::span<const int64_t> dims = shape.dims();
    ASSIGN_OR_RETURN(Tensor output,
                     Tensor::Allocate(model_->outputs()[o].dtype,
                                      std::vector<int64_t>(dims.begin(), dims.end())));
    outputs.push_back(std::move(output));
  }
  RETURN_IF_ERROR(BindOutputs(outputs));
  return outputs;
}

absl::StatusOr<std::vector<Tensor>> LocalRunner::Run(std::span<const Tensor> inputs) {
  RETURN_IF_ERROR(Begin(inputs));
  ASSIGN_OR_RETURN(std::vector<Tensor> outputs, MakeOutputs());
  RETURN_IF_ERROR(step_->Run(*queue_, signal_));
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o].valid()) continue;
    ASSIGN_OR_RETURN(outputs[o], LateOutput(static_cast<int32_t>(o)));
  }
  return outputs;
}

absl::Status LocalRunner::RunAgain(std::span<const Tensor> inputs,
                                   std::span<const Tensor> outputs) {
  if (outputs.size() != model_->outputs().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("outputs: got ", outputs.size(), ", want ", model_->outputs().size()));
  }
  RETURN_IF_ERROR(Begin(inputs));
  RETURN_IF_ERROR(BindOutputs(outputs));
  RETURN_IF_ERROR(step_->Run(*queue_, signal_));
  for (size_t o = 0; o < outputs.size(); ++o) {
    const auto index = static_cast<int32_t>(o);
    if (!step_->has_late_size(index)) continue;
    ASSIGN_OR_RETURN(const uint64_t bytes, step_->final_output_bytes(index));
    if (outputs[o].bytes().size() != bytes) {
      return absl::InvalidArgumentError(absl::StrCat("output '", model_->outputs()[o].name,
                                                     "': got room for ", outputs[o].bytes().size(),
                                                     " bytes, limit ", bytes));
    }
    std::byte* const to = const_cast<std::byte*>(outputs[o].bytes().data());
    if (bytes > 0) std::memcpy(to, late_[o].bytes().data(), bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> LocalRunner::Profile(std::span<const Tensor> inputs,
                                                          int repeats) {
  RETURN_IF_ERROR(Begin(inputs));
  ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, MakeOutputs());
  const size_t commands = model_->program().commands.size();
  std::vector<int64_t> least(commands, std::numeric_limits<int64_t>::max());
  std::vector<int64_t> spent(commands);  // in one run, all iterations of a repeat together
  Clock& clock = RealClock();
  int64_t begin = 0;
  for (int i = 0; i < std::max(1, repeats); ++i) {
    std::fill(spent.begin(), spent.end(), 0);
    RETURN_IF_ERROR(step_->SubmitEach(
        *queue_, signal_, [&](size_t) { begin = clock.NowNanos(); },
        [&](size_t command) { spent[command] += clock.NowNanos() - begin; }));
    for (size_t c = 0; c < commands; ++c) least[c] = std::min(least[c], spent[c]);
  }
  return least;
}

std::span<const int64_t> LocalRunner::dim_values() const { return step_->dim_values(); }

}  // namespace stampmill
