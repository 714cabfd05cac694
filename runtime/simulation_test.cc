// The engine on a simulated clock over a device whose steps end when the simulation says so and
// fail by plan. One seed is one history: random arrivals, cancels, deadlines, delays and failures.
// Every request ends exactly once, with its own result or an error it may have; what the engine and
// the pool count agrees after every turn; nobody starves.
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/clock.h"
#include "devices/cpu/cpu_device.h"
#include "devices/testing/faulty_device.h"
#include "gtest/gtest.h"
#include "runtime/served_model.h"
#include "runtime/testing/engine_fixture.h"

namespace stampmill {
namespace {

constexpr int64_t kMicros = 1000;

struct SimulationOptions {
  uint32_t seed = 0;
  std::string config;
  bool faults = true;
  int events = 2000;
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options)
      : options_(options),
        random_(options.seed),
        device_(MakeDevice(), &plan_),
        fixture_({.slots = 40, .pool_bytes = 20000, .clock = &clock_, .device = &device_}) {
    for (int m = 0; m < 2; ++m) {
      auto model =
          fixture_.Serve({.columns = -1, .addend = m + 1, .second_output = m == 1}, options.config);
      CHECK_OK(model);
      models_.push_back(*std::move(model));
    }
  }

  // The order of ends and their codes.
  std::vector<std::pair<int, absl::StatusCode>> Run() {
    for (int event = 0; event < options_.events; ++event) {
      switch (Below(8)) {
        case 0:
        case 1:
        case 2:
          Arrive();
          break;
        case 3:
          Cancel();
          break;
        case 4:
          clock_.Advance(static_cast<int64_t>(Below(60)) * kMicros);
          break;
        case 5:
          plan_.HoldCompletions();
          break;
        case 6:
          plan_.ReleaseCompletions();
          break;
        case 7:
          PlanFault();
          break;
      }
      Turn();
    }
    plan_.ReleaseCompletions();
    while (fixture_.engine->in_flight() > 0) {
      // Without new arrivals time alone brings every request to its end.
      if (!Turn()) clock_.AdvanceTo(fixture_.engine->NextDeadline());
    }
    for (const auto& [id, sent] : sent_) EXPECT_EQ(sent.ends, 1) << "request " << id;
    EXPECT_EQ(fixture_.requests.in_use(), 0);
    EXPECT_EQ(fixture_.pool->used_bytes(), 0u);
    for (const auto& model : models_) {
      EXPECT_EQ(model->pins(), 0);
      EXPECT_EQ(model->statistics().Snapshot().pending_count, 0u);
    }
    return ends_;
  }

  uint64_t CountOf(absl::StatusCode code) const {
    uint64_t count = 0;
    for (const auto& [id, end] : ends_) count += end == code;
    return count;
  }
  uint64_t batches_of_several() const {
    uint64_t count = 0;
    for (const auto& model : models_) {
      for (const BatchStatistics& b : model->statistics().Snapshot().batches) {
        if (b.batch_size > 1) count += b.compute_infer.count;
      }
    }
    return count;
  }

 private:
  struct Sent {
    std::vector<int32_t> input;
    size_t model = 0;
    RequestTag tag;
    bool may_be_cancelled = false;
    uint64_t steps_before = 0;
    int64_t ahead = 0;
    int ends = 0;
  };

  static std::unique_ptr<Device> MakeDevice() {
    auto device = CreateCpuDevice({.threads = 1});
    CHECK_OK(device);
    return *std::move(device);
  }
  uint32_t Below(uint32_t bound) { return random_() % bound; }
  uint64_t StepsOf(size_t model) const {
    return models_[model]->statistics().Snapshot().execution_count;
  }

  void Arrive() {
    if (fixture_.requests.in_use() == fixture_.requests.capacity()) {
      EXPECT_TRUE(absl::IsUnavailable(fixture_.requests.Acquire().status()));
      return;
    }
    const int id = static_cast<int>(sent_.size());
    Sent& sent = sent_[id];
    sent.model = Below(2);
    const auto rows = static_cast<int64_t>(1 + Below(3));
    const auto columns = static_cast<int64_t>(1 + Below(3));
    for (int64_t i = 0; i < rows * columns; ++i) {
      sent.input.push_back(id * 1000 + static_cast<int32_t>(i));
    }
    RequestHandle request = fixture_.MakeRequest(*models_[sent.model], sent.input, rows);
    request->id = std::to_string(id);
    request->priority = Below(3);
    if (Below(4) == 0) request->timeout_us = 1 + Below(100);
    if (Below(4) == 0) {
      request->deadline_nanos = clock_.NowNanos() + static_cast<int64_t>(Below(100)) * kMicros;
    }
    sent.tag = request->tag();
    sent.steps_before = StepsOf(sent.model);
    sent.ahead = fixture_.engine->in_flight();
    CHECK_OK(fixture_.engine->Submit(request));
  }

  void Cancel() {
    if (sent_.empty()) return;
    // Also requests that ended long ago.
    Sent& sent = sent_[static_cast<int>(Below(static_cast<uint32_t>(sent_.size())))];
    sent.may_be_cancelled = true;
    fixture_.engine->Cancel(sent.tag);
  }

  void PlanFault() {
    if (!options_.faults || Below(4) != 0) return;
    const auto operation = static_cast<FaultyOperation>(Below(kFaultyOperations));
    plan_.FailNth(operation, 1 + Below(3), absl::InternalError("planned fault"));
  }

  bool Turn() {
    const bool did = fixture_.engine->Turn();
    fixture_.engine->CheckInvariants();
    if (++turns_ % 64 == 0) fixture_.pool->CheckInvariants();  // walks all its records
    while (const RequestHandle ready = fixture_.engine->PopReady()) End(*ready);
    return did;
  }

  void End(const Request& request) {
    const int id = std::stoi(request.id);
    Sent& sent = sent_[id];
    ++sent.ends;
    ends_.emplace_back(id, request.status.code());
    switch (request.status.code()) {
      case absl::StatusCode::kOk:
        CheckResult(sent, request);
        break;
      case absl::StatusCode::kCancelled:
        EXPECT_TRUE(sent.may_be_cancelled);
        break;
      case absl::StatusCode::kDeadlineExceeded:
        EXPECT_LE(request.deadline_nanos, clock_.NowNanos());
        break;
      case absl::StatusCode::kUnavailable:
        EXPECT_TRUE(request.status.message() == "Request timeout expired" ||
                    request.status.message() == "Exceeds maximum queue size")
            << request.status;
        break;
      case absl::StatusCode::kResourceExhausted:
        break;  // the pool is small
      default:
        EXPECT_TRUE(options_.faults) << request.status;
        EXPECT_EQ(request.status.code(), absl::StatusCode::kInternal) << request.status;
    }
  }

  void CheckResult(const Sent& sent, const Request& request) {
    const auto addend = static_cast<int32_t>(sent.model) + 1;
    for (const OutputTensor& output : request.outputs) {
      std::vector<int32_t> expected = sent.input;
      for (int32_t& value : expected) value += output.index == 0 ? 2 * addend : addend;
      EXPECT_EQ(EngineFixture::Values(output), expected);
      EXPECT_EQ(output.shape, request.inputs[0].shape);
    }
    // Each step takes at least the first in order, so a request waits for no more steps than there
    // were requests before it (with one priority level and no delayed ones). The turn that ends its
    // step may begin and end another before the test sees it.
    if (options_.config.find("priority") == std::string::npos) {
      EXPECT_LE(StepsOf(sent.model) - sent.steps_before, static_cast<uint64_t>(sent.ahead) + 2);
    }
  }

  const SimulationOptions options_;
  std::mt19937 random_;
  SimulatedClock clock_{kMicros};
  FaultPlan plan_;
  FaultyDevice device_;
  EngineFixture fixture_;
  std::vector<std::unique_ptr<ServedModel>> models_;
  std::map<int, Sent> sent_;
  int turns_ = 0;
  std::vector<std::pair<int, absl::StatusCode>> ends_;
};

const char* const kConfigs[] = {
    "",
    "max_batch_size: 0",
    "max_batch_size: 4 dynamic_batching { preferred_batch_size: [2, 4] "
    "max_queue_delay_microseconds: 50 }",
    "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 20 "
    "preserve_ordering: true default_queue_policy { max_queue_size: 5 } }",
    "max_batch_size: 8 dynamic_batching { priority_levels: 2 default_priority_level: 1 "
    "default_queue_policy { default_timeout_microseconds: 80 allow_timeout_override: true "
    "timeout_action: DELAY } }",
};

TEST(SimulationTest, EveryRequestEndsExactlyOnceWithItsOwnResult) {
  uint64_t good = 0, cancelled = 0, late = 0, failed = 0, together = 0;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation simulation({.seed = seed, .config = kConfigs[seed % std::size(kConfigs)]});
    simulation.Run();
    good += simulation.CountOf(absl::StatusCode::kOk);
    cancelled += simulation.CountOf(absl::StatusCode::kCancelled);
    late += simulation.CountOf(absl::StatusCode::kDeadlineExceeded);
    failed += simulation.CountOf(absl::StatusCode::kInternal);
    together += simulation.batches_of_several();
    if (HasFailure()) break;
  }
  // The histories hold all that they are made for.
  EXPECT_GT(good, 10000u);
  EXPECT_GT(cancelled, 100u);
  EXPECT_GT(late, 100u);
  EXPECT_GT(failed, 100u);
  EXPECT_GT(together, 1000u);
}

TEST(SimulationTest, WithoutFaultsNothingFails) {
  for (uint32_t seed = 100; seed < 110; ++seed) {
    Simulation simulation(
        {.seed = seed, .config = kConfigs[seed % std::size(kConfigs)], .faults = false});
    simulation.Run();
    EXPECT_EQ(simulation.CountOf(absl::StatusCode::kInternal), 0u);
  }
}

TEST(SimulationTest, OneSeedIsOneHistory) {
  const SimulationOptions options = {.seed = 7, .config = kConfigs[2]};
  EXPECT_EQ(Simulation(options).Run(), Simulation(options).Run());
}

}  // namespace
}  // namespace stampmill
