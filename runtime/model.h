// Model: a compiled program with its weights on one device, immutable and shared by all requests in
// flight; replaced, never changed. Loading resolves every executable and entry and imports the
// weights: after it nothing is compiled, looked up or read from a file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/program/program.h"
#include "devices/artifact.h"
#include "devices/device.h"
#include "runtime/request.h"

namespace stampmill {

// What the kernel cache gives for one model. `weights` are mapped and kept by
// `owner`.
struct ModelImage {
  Program program;
  std::vector<Artifact> artifacts;  // in the order of program.artifacts
  std::span<const std::byte> weights;
  std::shared_ptr<const void> owner;
};

// An input or output as clients see it: -1 stands for a dim that a request chooses.
struct ModelTensor {
  std::string name;
  DType dtype = DType::kInvalid;
  std::vector<int64_t> dims;
};

// Immutable, thread-safe.
class Model {
 public:
  // `device` is borrowed and outlives the model. DATA_LOSS for a program that does not fit its
  // weights or artifacts, INVALID_ARGUMENT for artifacts that the device cannot run, UNIMPLEMENTED
  // for segments of another device kind.
  static absl::StatusOr<std::shared_ptr<const Model>> Load(ModelImage image, Device* device);

  const Program& program() const { return image_.program; }
  Device* device() const { return device_; }
  const std::vector<ModelTensor>& inputs() const { return inputs_; }
  const std::vector<ModelTensor>& outputs() const { return outputs_; }
  // Index by name, -1 when there is none.
  int32_t FindInput(absl::string_view name) const;
  int32_t FindOutput(absl::string_view name) const;
  // Requests may be put together along dim 0.
  bool batchable() const { return batch_place_ >= 0; }
  int32_t batch_place() const { return batch_place_; }  // its symbol's dim place; -1

  uint64_t weight_bytes() const { return image_.weights.size(); }
  BufferRef weights() const { return {weights_.address(), weights_.size_bytes()}; }

  // Resolved launches: executable and entry of every command (null for copies and fills).
  struct Launch {
    const Executable* executable = nullptr;
    int32_t entry = 0;
  };
  std::span<const Launch> launches() const { return launches_; }

  // Puts the dims of `inputs` (one for each model input, in the model's order; dim 0 of batchable
  // models is taken as it stands) into the program's symbols, values[0..symbols). INVALID_ARGUMENT
  // names the input and dim that does not fit: rank, fixed dims, symbols that must agree.
  absl::Status BindSymbols(std::span<const TensorShape* const> shapes,
                           std::span<int64_t> values) const;

  // Some elements of inputs are followed as symbols: a step must know the inputs' contents.
  bool HasValueSymbols() const { return !program().value_symbols.empty(); }
  // Puts them into the program's symbols; `contents` are the bytes of each input, without
  // alignment. INVALID_ARGUMENT names an element that no symbol can have or that is not there.
  absl::Status BindValues(std::span<const std::span<const std::byte>> contents,
                          std::span<int64_t> values) const;

  // INVALID_ARGUMENT when an element of this input is a position that an operator has not
  // (Program::IndexBound): names input, element, limits and operator. `bytes` need no alignment.
  absl::Status CheckIndices(int32_t input, std::span<const std::byte> bytes) const;

 private:
  Model() = default;
  absl::Status ResolveLaunches();

  ModelImage image_;
  Device* device_ = nullptr;
  Buffer weights_;
  std::vector<std::shared_ptr<const Executable>> executables_;
  std::vector<Launch> launches_;
  std::vector<ModelTensor> inputs_, outputs_;
  absl::flat_hash_map<std::string, int32_t> input_index_, output_index_;
  int32_t batch_place_ = -1;
};

}  // namespace stampmill
