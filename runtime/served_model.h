// ServedModel: one version of one model as it is served: the immutable Model and its configuration,
// its queue on the device, its scheduler and its statistics. Made and destroyed by the repository;
// kept loaded by pins; its queue, scheduler and step belong to the engine thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "devices/device.h"
#include "runtime/memory_budget.h"
#include "runtime/model.h"
#include "runtime/model_config.h"
#include "runtime/request.h"
#include "runtime/statistics.h"

namespace stampmill {

class Engine;
class ModelStep;
class Scheduler;

class ServedModel {
 public:
  struct Options {
    std::string name;
    int64_t version = 1;
    Engine* engine = nullptr;        // borrowed, outlives it
    TensorPool* pool = nullptr;      // likewise; outputs come from it
    MemoryBudget* budget = nullptr;  // likewise; weights and workspace are reserved there
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
  ModelStatistics& statistics() { return statistics_; }
  const ModelStatistics& statistics() const { return statistics_; }

  // Checks a request against the model, on the caller's thread before Submit: every input once,
  // dtypes, shapes, byte counts, rows against max_batch_size; sorts inputs, fills in outputs, and
  // computes rows and signature. INVALID_ARGUMENT names the tensor, value and limit.
  absl::Status Prepare(Request& request) const;

  // Pins: any thread. The repository destroys the model once pins() is 0 and it gives out no more.
  ModelPin Pin() { return ModelPin(this); }
  int32_t pins() const { return pins_.load(std::memory_order_acquire); }

 private:
  friend class Engine;
  friend class ModelPin;
  ServedModel(std::shared_ptr<const Model> model, ModelConfig config, const Options& options);

  const Options options_;
  const std::shared_ptr<const Model> model_;
  const ModelConfig config_;
  ModelStatistics statistics_;
  std::atomic<int32_t> pins_{0};
  Waker* unpinned_ = nullptr;  // the engine's; bumped when pins reach 0

  // The engine thread's.
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ModelStep> step_;
  ModelPin engine_pin_;  // held while the engine has work of this model
  ServedModel* next_active_ = nullptr;
};

}  // namespace stampmill
