// ServedModel: one version of one model as it is served: the immutable Model and its configuration,
// its queue on the device, its scheduler and its statistics. Made and destroyed by the repository;
// kept loaded by pins; its queue, scheduler and step belong to the engine thread.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/device.h"
#include "runtime/batch_binding.h"
#include "runtime/engine.h"
#include "runtime/memory_budget.h"
#include "runtime/model.h"
#include "runtime/model_config.h"
#include "runtime/model_step.h"
#include "runtime/request.h"
#include "runtime/scheduler.h"
#include "runtime/statistics.h"

namespace stampmill {

class ServedModel {
 public:
  struct Options {
    std::string name;
    int64_t version = 1;
    uint64_t load_number = 0;        // tells loads of one version apart in the memory plan
    Engine* engine = nullptr;        // borrowed, outlives it
    TensorPool* pool = nullptr;      // likewise; outputs come from it
    MemoryBudget* budget = nullptr;  // likewise; weights and workspace are reserved there; or null
  };
  // `config` is completed for the model. RESOURCE_EXHAUSTED with the plan when it does not fit.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Create(std::shared_ptr<const Model> model,
                                                             ModelConfig config,
                                                             const Options& options);
  // REQUIRES: no pins.
  ~ServedModel();

  // Immutable: any thread.
  const std::string& name() const { return options_.name; }
  int64_t version() const { return options_.version; }
  const Model& model() const { return *model_; }
  const ModelConfig& config() const { return config_; }
  Engine& engine() const { return *options_.engine; }
  // As clients see them: the configuration's dims, after the batch (-1) where there is one.
  const std::vector<ModelTensor>& inputs() const { return inputs_; }
  const std::vector<ModelTensor>& outputs() const { return outputs_; }
  ModelStatistics& statistics() { return statistics_; }
  const ModelStatistics& statistics() const { return statistics_; }

  // Checks a request against the model, on the caller's thread before Submit: every input once,
  // dtypes, shapes, byte counts, rows against max_batch_size; sorts inputs, fills in outputs, and
  // computes rows and signature. INVALID_ARGUMENT names the tensor, value and limit.
  absl::Status Prepare(Request& request) const;
  // Runs steps on zeros, so that code, weights and memory are touched before the first request: the
  // configuration's model_warmup, or one row where no other dim is open. Before it is served.
  absl::Status Warm();

  // Pins: any thread. The repository destroys the model once pins() is 0 and it gives out no more.
  ModelPin Pin() { return ModelPin(this, &pins_); }
  int32_t pins() const { return pins_.count(); }

 private:
  friend class Engine;
  // What config.pbtxt's `reshape` does to a tensor, both without the batch.
  struct Reshape {
    bool active = false;
    std::vector<int64_t> client, model;
  };

  ServedModel(std::shared_ptr<const Model> model, ModelConfig config, const Options& options);
  absl::Status DescribeTensors();
  std::string BudgetName() const;
  absl::Status ReserveMemory();
  absl::Status WarmOnce(std::vector<TensorShape> shapes);
  absl::Status PrepareInputs(Request& request) const;
  absl::Status PrepareInput(InputTensor& input, Request& request) const;
  absl::Status PrepareOutputs(Request& request) const;
  absl::Status ShapeError(const InputTensor& input) const;
  // Gives outputs the shapes that clients see.
  void ReshapeOutputs(Request& request) const;
  // The queue, made again after it failed.
  absl::Status EnsureQueue();

  const Options options_;
  const std::shared_ptr<const Model> model_;
  const ModelConfig config_;
  std::vector<ModelTensor> inputs_, outputs_;
  std::vector<Reshape> input_reshapes_, output_reshapes_;
  ModelStatistics statistics_;
  PinCount pins_;

  // The engine thread's.
  std::unique_ptr<Queue> queue_;
  Scheduler scheduler_;
  std::unique_ptr<ModelStep> step_;
  std::unique_ptr<BatchBinding> binding_;
  std::vector<Request*> running_;  // requests of the step in flight, in order
  uint64_t signal_ = 0;            // the queue's value when that step is over
  RequestTimes step_times_;
  int64_t pool_wait_end_nanos_ = 0;  // > 0: its next request waits for pool memory until then
  uint64_t pool_releases_seen_ = 0;  // before it last looked for some
  uint64_t pool_starved_at_ =
      std::numeric_limits<uint64_t>::max();  // releases when a wait was vain
  ModelPin engine_pin_;                      // held while the engine has work of this model
  ServedModel* next_active_ = nullptr;
};

}  // namespace stampmill
