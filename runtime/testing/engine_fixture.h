// An engine over a CPU device with models served by hand, for tests of the engine.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/waker.h"
#include "devices/cpu/cpu_device.h"
#include "devices/device.h"
#include "runtime/engine.h"
#include "runtime/memory_budget.h"
#include "runtime/model.h"
#include "runtime/model_config.h"
#include "runtime/request.h"
#include "runtime/served_model.h"
#include "runtime/tensor_pool.h"
#include "runtime/testing/test_models.h"

namespace stampmill {

struct EngineFixtureOptions {
  int32_t slots = 64;
  int32_t threads = 2;
  uint64_t pool_bytes = uint64_t{4} << 20;
  Clock* clock = nullptr;    // null: RealClock()
  Device* device = nullptr;  // null: a CPU device of its own
  bool submitters_turn = false;
};

class EngineFixture {
 public:
  explicit EngineFixture(const EngineFixtureOptions& options = {}) : requests(options.slots) {
    auto made_pool =
        TensorPool::Create({.size_bytes = options.pool_bytes, .allow_client_shm = true});
    CHECK_OK(made_pool);
    pool = *std::move(made_pool);
    device = options.device;
    if (device == nullptr) {
      auto made_device = CreateCpuDevice({.threads = options.threads});
      CHECK_OK(made_device);
      own_device = *std::move(made_device);
      device = own_device.get();
    }
    auto made_engine =
        Engine::Create({.device = device,
                        .requests = &requests,
                        .reply_waker = &reply_waker,
                        .clock = options.clock == nullptr ? &RealClock() : options.clock,
                        .submitters_turn = options.submitters_turn});
    CHECK_OK(made_engine);
    engine = *std::move(made_engine);
  }

  absl::StatusOr<std::unique_ptr<ServedModel>> Serve(const AddModelOptions& options,
                                                     const std::string& config_text = "",
                                                     MemoryBudget* budget = nullptr) {
    auto image = MakeAddModel(options);
    if (!image.ok()) return image.status();
    return ServeImage(*std::move(image), config_text, budget);
  }
  absl::StatusOr<std::unique_ptr<ServedModel>> ServeImage(ModelImage image,
                                                          const std::string& config_text = "",
                                                          MemoryBudget* budget = nullptr) {
    auto config = ModelConfig::FromText(config_text, "config");
    if (!config.ok()) return config.status();
    if (absl::Status status = config->Complete("add", image.program); !status.ok()) return status;
    auto model = Model::Load(std::move(image), device);
    if (!model.ok()) return model.status();
    return ServedModel::Create(
        *std::move(model), *std::move(config),
        {.name = "add", .engine = engine.get(), .pool = pool.get(), .budget = budget});
  }

  // A request for all outputs whose input element i is values[i]; `values` outlives it.
  RequestHandle MakeRequest(ServedModel& model, const std::vector<int32_t>& values, int64_t rows) {
    auto acquired = requests.Acquire();
    CHECK_OK(acquired);
    RequestHandle request = *std::move(acquired);
    request->model = model.Pin();
    InputTensor& input = request->inputs.emplace_back();
    input.index = 0;
    input.dtype = DType::kI32;
    auto shape =
        TensorShape::From(std::vector<int64_t>{rows, static_cast<int64_t>(values.size()) / rows});
    CHECK_OK(shape);
    input.shape = *shape;
    input.bytes = std::as_bytes(std::span(values));
    return request;
  }

  // One for a model of MakeRepeatModel; `count`, one number, outlives it too.
  RequestHandle MakeRepeatRequest(ServedModel& model, const std::vector<int32_t>& values,
                                  const std::vector<int64_t>& count) {
    RequestHandle request = MakeRequest(model, values, static_cast<int64_t>(values.size()) / 4);
    InputTensor& input = request->inputs.emplace_back();
    input.index = 1;
    input.dtype = DType::kI64;
    input.shape.Append(1);
    input.bytes = std::as_bytes(std::span(count));
    return request;
  }

  // Turns by hand until a request is ready. For engines without a thread and CPU devices of their
  // own.
  RequestHandle TurnUntilReady() {
    for (;;) {
      const uint32_t seen = engine->waker().epoch();
      const bool did = engine->Turn();
      engine->CheckInvariants();
      if (RequestHandle ready = engine->PopReady()) return ready;
      if (!did) engine->waker().WaitUntil(seen, kNoDeadline);
    }
  }
  // Waits for the engine's thread.
  RequestHandle WaitForReady() {
    for (;;) {
      const uint32_t seen = reply_waker.epoch();
      if (RequestHandle ready = engine->PopReady()) return ready;
      reply_waker.WaitUntil(seen, kNoDeadline);
    }
  }

  static std::vector<int32_t> Values(const OutputTensor& output) {
    std::vector<int32_t> values(output.bytes.size() / sizeof(int32_t));
    if (!values.empty()) {
      std::memcpy(values.data(), output.bytes.data(), output.bytes.size());
    }
    return values;
  }

  RequestPool requests;
  Waker reply_waker;
  std::unique_ptr<TensorPool> pool;
  std::unique_ptr<Device> own_device;
  Device* device = nullptr;
  std::unique_ptr<Engine> engine;
};

}  // namespace stampmill
