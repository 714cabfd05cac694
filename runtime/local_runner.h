// LocalRunner: runs one compiled model synchronously on the calling thread's behalf, without server
// or engine: what `stampmill run` and `bench model` are made of.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/waker.h"
#include "devices/device.h"
#include "graph/tensor.h"
#include "runtime/model.h"
#include "runtime/request.h"

namespace stampmill {

class ModelStep;

// Owned by one thread.
class LocalRunner {
 public:
  // `device` is borrowed and outlives the runner.
  static absl::StatusOr<std::unique_ptr<LocalRunner>> Create(ModelImage image, Device* device);
  ~LocalRunner();

  const Model& model() const { return *model_; }

  // One inference. `inputs` are in the model's order; results likewise. INVALID_ARGUMENT for dtypes
  // and shapes that do not fit.
  absl::StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> inputs);

  // The same into outputs of an earlier Run with the same shapes, which it overwrites: no memory is
  // taken, for timing loops. REQUIRES: `outputs` came from Run with inputs of these shapes; and, of
  // a model with outputs whose sizes depend on data, these contents (INVALID_ARGUMENT).
  absl::Status RunAgain(std::span<const Tensor> inputs, std::span<const Tensor> outputs);

  // Time of each command of the program in nanoseconds, the least of `repeats` runs, by running
  // command by command. Index as program().commands.
  absl::StatusOr<std::vector<int64_t>> Profile(std::span<const Tensor> inputs, int repeats);
  // Values of the program's dim places in the last run.
  std::span<const int64_t> dim_values() const;

 private:
  LocalRunner();
  absl::Status Begin(std::span<const Tensor> inputs);
  absl::StatusOr<std::vector<Tensor>> MakeOutputs();
  absl::Status BindOutputs(std::span<const Tensor> outputs);
  // Outputs whose size is known only from data are written in memory of the runner's.
  absl::Status BindLateOutput(int32_t output);
  absl::StatusOr<Tensor> LateOutput(int32_t output) const;

  std::shared_ptr<const Model> model_;
  Waker waker_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<ModelStep> step_;
  uint64_t signal_ = 0;
  std::vector<TensorShape> shapes_;
  std::vector<const TensorShape*> shape_pointers_;
  std::vector<std::span<const std::byte>> contents_;
  std::vector<Tensor> late_;  // by output
};

}  // namespace stampmill
