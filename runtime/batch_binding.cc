// Row r of a batch is row r of every tensor: rows are contiguous, so a request is one range.
#include "runtime/batch_binding.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

BufferRef Ref(std::span<const std::byte> bytes) {
  return {reinterpret_cast<uint64_t>(bytes.data()), bytes.size()};
}

// Kernels may not write what they read: then the output takes a way round.
bool OverlapsInput(const Request& request, std::span<const std::byte> output) {
  for (const InputTensor& input : request.inputs) {
    if (input.bytes.data() < output.data() + output.size() &&
        output.data() < input.bytes.data() + input.bytes.size()) {
      return true;
    }
  }
  return false;
}

}  // namespace

BatchBinding::BatchBinding(const Model* model, ModelStep* step, TensorPool* pool)
    : model_(*model),
      step_(*step),
      pool_(*pool),
      shapes_(model->inputs().size()),
      contents_(model->inputs().size()),
      outputs_(model->outputs().size()) {
  for (const TensorShape& shape : shapes_) shape_pointers_.push_back(&shape);
}

absl::Status BatchBinding::Bind(std::span<Request* const> batch) {
  pool_is_full_ = false;
  RETURN_IF_ERROR(BeginStep(batch));
  DescribeOutputs(batch);
  const absl::Status placed = PlaceOutputs(batch);
  if (placed.ok()) {
    BindInputs(batch);
    HandOutOutputs(batch);
  }
  for (OutputPlace& place : outputs_) place = {};
  return placed;
}

absl::Status BatchBinding::BeginStep(std::span<Request* const> batch) {
  rows_ = 0;
  for (const Request* request : batch) rows_ += request->rows;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    shapes_[i] = batch.front()->inputs[i].shape;
    if (batch.size() > 1) shapes_[i].set(0, rows_);
  }
  // With contents that matter every request runs alone.
  for (size_t i = 0; i < shapes_.size(); ++i) contents_[i] = batch.front()->inputs[i].bytes;
  RETURN_IF_ERROR(step_.Begin(shape_pointers_, contents_));
  for (size_t i = 0; i < shapes_.size(); ++i) {
    uint64_t given = 0;
    for (const Request* request : batch) given += request->inputs[i].bytes.size();
    const uint64_t needed = step_.input_bytes(static_cast<int32_t>(i));
    if (given != needed) {
      return absl::InternalError(absl::StrCat("input '", model_.inputs()[i].name, "': got ", given,
                                              " bytes, the program reads ", needed));
    }
  }
  return absl::OkStatus();
}

void BatchBinding::DescribeOutputs(std::span<Request* const> batch) {
  for (Request* request : batch) {
    for (OutputTensor& output : request->outputs) {
      const auto o = static_cast<size_t>(output.index);
      const uint64_t whole_bytes = step_.output_bytes(output.index);
      uint64_t bytes = whole_bytes;
      output.dtype = model_.outputs()[o].dtype;
      output.shape = step_.output_shape(output.index);
      if (batch.size() > 1) {
        bytes = whole_bytes / static_cast<uint64_t>(rows_) * static_cast<uint64_t>(request->rows);
        output.shape.set(0, request->rows);
      }
      if (output.target.valid() && output.target.bytes().size() < bytes &&
          !step_.has_late_size(output.index) && request->status.ok()) {
        request->status =
            OutputTargetTooSmall(model_.outputs()[o].name, output.target.bytes().size(), bytes);
      }
      output.bytes = {static_cast<const std::byte*>(nullptr), bytes};  // the size, until placed
    }
    // What a failed request asked for is still written, but nowhere that lasts.
    if (!request->status.ok()) continue;
    for (const OutputTensor& output : request->outputs) {
      OutputPlace& place = outputs_[static_cast<size_t>(output.index)];
      if (!output.target.valid()) {
        place.wanted_in_pool = true;
      } else if (batch.size() == 1 && output.target.bytes().size() >= output.bytes.size()) {
        place.direct =
            !OverlapsInput(*request, output.target.bytes().subspan(0, output.bytes.size()));
      }
    }
  }
}

absl::Status BatchBinding::PlaceOutputs(std::span<Request* const> batch) {
  const bool alone = batch.size() == 1;
  uint64_t staging_bytes = 0;
  for (size_t i = 0; i < shapes_.size() && !alone; ++i) {
    staging_bytes += ModelStep::StagingBytes(step_.input_bytes(static_cast<int32_t>(i)));
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    OutputPlace& place = outputs_[o];
    const uint64_t bytes = step_.output_bytes(static_cast<int32_t>(o));
    if (place.wanted_in_pool) {
      absl::StatusOr<Lease> lease = pool_.Allocate(bytes);
      if (!lease.ok()) {
        pool_is_full_ = bytes <= pool_.size_bytes();
        return lease.status();
      }
      place.lease = *std::move(lease);
      place.whole = Ref(place.lease.bytes());
    } else if (!place.direct) {
      staging_bytes += ModelStep::StagingBytes(bytes);
    }
  }
  RETURN_IF_ERROR(step_.ReserveStaging(staging_bytes));
  for (OutputTensor& output : batch.front()->outputs) {
    OutputPlace& place = outputs_[static_cast<size_t>(output.index)];
    if (!place.direct) continue;
    output.lease = output.target.Slice(0, output.bytes.size());
    place.whole = Ref(output.lease.bytes());
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    OutputPlace& place = outputs_[o];
    if (!place.wanted_in_pool && !place.direct) {
      place.whole = step_.TakeStaging(step_.output_bytes(static_cast<int32_t>(o)));
    }
    step_.BindOutput(static_cast<int32_t>(o), place.whole);
  }
  return absl::OkStatus();
}

void BatchBinding::BindInputs(std::span<Request* const> batch) {
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (batch.size() == 1) {
      step_.BindInput(index, Ref(batch.front()->inputs[i].bytes));
      continue;
    }
    BufferRef whole = step_.TakeStaging(step_.input_bytes(index));
    step_.BindInput(index, whole);
    for (const Request* request : batch) {
      const BufferRef source = Ref(request->inputs[i].bytes);
      if (source.size_bytes > 0) step_.CopyBefore(source, {whole.address, source.size_bytes});
      whole.address += source.size_bytes;
    }
  }
}

void BatchBinding::HandOutOutputs(std::span<Request* const> batch) {
  int64_t row = 0;
  for (Request* request : batch) {
    for (OutputTensor& output : request->outputs) {
      if (!request->status.ok()) break;
      const OutputPlace& place = outputs_[static_cast<size_t>(output.index)];
      const uint64_t bytes = output.bytes.size();
      const uint64_t offset =
          place.whole.size_bytes / static_cast<uint64_t>(rows_) * static_cast<uint64_t>(row);
      if (!output.target.valid()) {
        output.lease = place.lease.Slice(offset, bytes);
      } else if (!place.direct && step_.has_late_size(output.index)) {
        output.lease = output.target.Slice(0, output.target.bytes().size());
        step_.CopyOutputAfter(output.index, place.whole, Ref(output.lease.bytes()));
      } else if (!place.direct) {
        output.lease = output.target.Slice(0, bytes);
        if (bytes > 0) {
          step_.CopyAfter({place.whole.address + offset, bytes}, Ref(output.lease.bytes()));
        }
      }
      output.bytes = output.lease.bytes();
    }
    row += request->rows;
  }
}

absl::Status BatchBinding::FinishOutputs(Request& request) {
  for (OutputTensor& output : request.outputs) {
    if (!step_.has_late_size(output.index)) continue;
    ASSIGN_OR_RETURN(const uint64_t bytes, step_.final_output_bytes(output.index));
    output.shape = step_.output_shape(output.index);
    output.lease = output.lease.Slice(0, bytes);
    output.bytes = output.lease.bytes();
  }
  return absl::OkStatus();
}

}  // namespace stampmill
