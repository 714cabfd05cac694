#include "runtime/engine.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "devices/cpu/cpu_device.h"
#include "devices/testing/faulty_device.h"
#include "gtest/gtest.h"
#include "runtime/served_model.h"
#include "runtime/testing/engine_fixture.h"

namespace stampmill {
namespace {

using Values = std::vector<int32_t>;

TEST(EngineTest, ARequestAloneIsAnsweredWithoutACopy) {
  EngineFixture f;
  const auto model = *f.Serve({.second_output = true});
  const Values in = {1, 2, 3, 4};
  RequestHandle request = f.MakeRequest(*model, in, 1);
  request->id = "me";
  ASSERT_TRUE(f.engine->Submit(request).ok());
  EXPECT_EQ(request, nullptr);
  RequestHandle ready = f.TurnUntilReady();
  ASSERT_TRUE(ready->status.ok()) << ready->status;
  EXPECT_EQ(ready->id, "me");
  ASSERT_EQ(ready->outputs.size(), 2u);
  EXPECT_EQ(f.Values(ready->outputs[0]), Values({3, 4, 5, 6}));
  EXPECT_EQ(f.Values(ready->outputs[1]), Values({2, 3, 4, 5}));
  EXPECT_EQ(ready->outputs[0].dtype, DType::kI32);
  EXPECT_EQ(ready->outputs[0].shape.ToString(), "[1,4]");
  const StatisticsSnapshot statistics = model->statistics().Snapshot();
  EXPECT_EQ(statistics.bytes_copied, 0u);
  EXPECT_EQ(statistics.success.count, 1u);
  EXPECT_EQ(statistics.execution_count, 1u);
  EXPECT_EQ(statistics.inference_count, 1u);
  EXPECT_EQ(statistics.pending_count, 0u);
  EXPECT_GT(statistics.last_inference_ms, 0u);
  EXPECT_EQ(f.engine->in_flight(), 0);
}

TEST(EngineTest, RequestsThatWaitTogetherRunAsOneBatch) {
  EngineFixture f;
  const auto model = *f.Serve({.second_output = true});
  std::vector<Values> inputs;
  for (int32_t i = 0; i < 4; ++i) {
    Values& in = inputs.emplace_back();
    for (int32_t j = 0; j < 4 * (i + 1); ++j) in.push_back(100 * i + j);
  }
  for (int32_t i = 0; i < 4; ++i) {
    RequestHandle request = f.MakeRequest(*model, inputs[static_cast<size_t>(i)], i + 1);
    request->id = std::to_string(i);
    if (i == 2) request->outputs.emplace_back().index = 1;
    ASSERT_TRUE(f.engine->Submit(request).ok());
  }
  for (int32_t i = 0; i < 4; ++i) {
    const RequestHandle ready = f.TurnUntilReady();
    ASSERT_TRUE(ready->status.ok()) << ready->status;
    EXPECT_EQ(ready->id, std::to_string(i));
    Values plus_1 = inputs[static_cast<size_t>(i)], plus_2 = plus_1;
    for (int32_t& v : plus_1) v += 1;
    for (int32_t& v : plus_2) v += 2;
    if (i == 2) {
      ASSERT_EQ(ready->outputs.size(), 1u);
      EXPECT_EQ(f.Values(ready->outputs[0]), plus_1);
    } else {
      EXPECT_EQ(f.Values(ready->outputs[0]), plus_2);
      EXPECT_EQ(f.Values(ready->outputs[1]), plus_1);
      EXPECT_EQ(ready->outputs[1].shape[0], i + 1);
    }
  }
  const StatisticsSnapshot statistics = model->statistics().Snapshot();
  EXPECT_EQ(statistics.execution_count, 1u);
  EXPECT_EQ(statistics.inference_count, 10u);
  EXPECT_EQ(statistics.bytes_copied, 10u * 16);  // inputs gathered; outputs are slices
  ASSERT_EQ(statistics.batches.size(), 1u);
  EXPECT_EQ(statistics.batches[0].batch_size, 10u);
}

TEST(EngineTest, ShapesThatDifferRunApart) {
  EngineFixture f;
  const auto model = *f.Serve({.columns = -1});
  const Values a = {1, 2, 3}, b = {5, 6};
  for (const Values* in : {&a, &b}) {
    RequestHandle request = f.MakeRequest(*model, *in, 1);
    ASSERT_TRUE(f.engine->Submit(request).ok());
  }
  EXPECT_EQ(f.Values(f.TurnUntilReady()->outputs[0]), Values({3, 4, 5}));
  EXPECT_EQ(f.Values(f.TurnUntilReady()->outputs[0]), Values({7, 8}));
  EXPECT_EQ(model->statistics().Snapshot().execution_count, 2u);
}

TEST(EngineTest, BadRequestsAreRefusedAndStayTheCallers) {
  EngineFixture f;
  const auto model = *f.Serve({}, "max_batch_size: 2");
  const Values in(12, 1);
  const auto refused = [&](const auto& spoil) {
    RequestHandle request = f.MakeRequest(*model, in, 3);
    request->inputs[0].shape = *TensorShape::From(std::vector<int64_t>{2, 4});
    request->inputs[0].bytes = request->inputs[0].bytes.first(32);
    spoil(*request);
    const absl::Status status = f.engine->Submit(request);
    EXPECT_NE(request, nullptr);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  const auto contains = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const auto shape = [](std::vector<int64_t> dims) { return *TensorShape::From(dims); };
  contains(refused([&](Request& r) { r.inputs[0].shape = shape({3, 4}); }), "must be <= 2");
  contains(refused([&](Request& r) { r.inputs[0].shape = shape({0, 4}); }), "must be >= 1");
  contains(refused([&](Request& r) { r.inputs[0].shape = shape({2, 5}); }), "Expected [-1,4]");
  contains(refused([&](Request& r) { r.inputs[0].shape = shape({8}); }), "got [8]");
  contains(refused([](Request& r) { r.inputs[0].dtype = DType::kF32; }), "is 'FP32'");
  contains(refused([](Request& r) { r.inputs.clear(); }), "missing required input(s) ['IN']");
  contains(refused([](Request& r) { r.inputs.push_back(r.inputs[0]); }), "more than once");
  contains(refused([](Request& r) { r.inputs[0].index = 1; }), "unexpected inference input");
  contains(refused([](Request& r) { r.outputs.emplace_back().index = 1; }),
           "unexpected inference output");
  contains(refused([](Request& r) { r.inputs[0].bytes = r.inputs[0].bytes.first(31); }), "got 31");
  EXPECT_EQ(f.requests.in_use(), 0);
}

TEST(EngineTest, HugeDimsAreRefused) {
  EngineFixture f;
  const auto model = *f.Serve({.columns = -1, .batchable = false});
  const Values in(4, 1);
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
           {1, int64_t{1} << 62}, {int64_t{1} << 40, int64_t{1} << 40}}) {
    RequestHandle request = f.MakeRequest(*model, in, 1);
    request->inputs[0].shape = *TensorShape::From(dims);
    EXPECT_TRUE(absl::IsInvalidArgument(f.engine->Submit(request)));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(TensorShape::From(std::vector<int64_t>{-1}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(TensorShape::From(std::vector<int64_t>(17, 1)).status()));
}

TEST(EngineTest, ACheckOfTheProgramFailsTheRequestWithItsMessage) {
  EngineFixture f;
  const auto model = *f.Serve({.batchable = false, .rows_max = 2});
  const Values three(12, 1), two(8, 1);
  RequestHandle bad = f.MakeRequest(*model, three, 3), good = f.MakeRequest(*model, two, 2);
  ASSERT_TRUE(f.engine->Submit(bad).ok());
  ASSERT_TRUE(f.engine->Submit(good).ok());
  const RequestHandle failed = f.TurnUntilReady();
  EXPECT_TRUE(absl::IsInvalidArgument(failed->status));
  EXPECT_NE(failed->status.message().find("too many rows"), absl::string_view::npos);
  EXPECT_TRUE(f.TurnUntilReady()->status.ok());
}

TEST(EngineTest, AFailedStepFailsItsRequestsAndTheModelGoesOn) {
  EngineFixture f;
  const auto broken = *f.Serve({.fail = true});
  const auto sound = *f.Serve({});
  const Values in(4, 1);
  for (int round = 0; round < 2; ++round) {
    RequestHandle a = f.MakeRequest(*broken, in, 1), b = f.MakeRequest(*sound, in, 1);
    ASSERT_TRUE(f.engine->Submit(a).ok());
    EXPECT_EQ(f.TurnUntilReady()->status.code(), absl::StatusCode::kInternal);
    ASSERT_TRUE(f.engine->Submit(b).ok());
    EXPECT_TRUE(f.TurnUntilReady()->status.ok());
  }
  const StatisticsSnapshot statistics = broken->statistics().Snapshot();
  EXPECT_EQ(statistics.fail.count, 2u);
  EXPECT_EQ(statistics.failures[static_cast<int>(FailureReason::kBackend)], 2u);
  EXPECT_EQ(statistics.success.count, 0u);
}

TEST(EngineTest, CancelTakesOutAWaitingRequestAndLateCancelsDoNothing) {
  EngineFixture f;
  const auto model = *f.Serve({});
  const Values in(4, 1);
  RequestHandle a = f.MakeRequest(*model, in, 1);
  const RequestTag tag = a->tag();
  ASSERT_TRUE(f.engine->Submit(a).ok());
  f.engine->Cancel(tag);
  RequestHandle ready = f.TurnUntilReady();
  EXPECT_TRUE(absl::IsCancelled(ready->status));
  EXPECT_TRUE(ready->outputs[0].bytes.empty());
  ready.reset();
  for (uint32_t i = 0; i < 200; ++i) {
    RequestHandle b = f.MakeRequest(*model, in, 1);
    ASSERT_TRUE(f.engine->Submit(b).ok());
    f.engine->Cancel(tag);
    EXPECT_TRUE(f.TurnUntilReady()->status.ok());
  }
  f.engine->Cancel({.slot = 1u << 30, .generation = 1});
}

TEST(EngineTest, QueueTimeoutAndDeadlineEndWaitingRequests) {
  SimulatedClock clock(1000);
  EngineFixture f({.clock = &clock});
  const auto model = *f.Serve({}, "dynamic_batching { max_queue_delay_microseconds: 1000000 }");
  const Values in(4, 1);
  RequestHandle a = f.MakeRequest(*model, in, 1), b = f.MakeRequest(*model, in, 1);
  a->timeout_us = 1;
  b->deadline_nanos = 3000;
  ASSERT_TRUE(f.engine->Submit(a).ok());
  ASSERT_TRUE(f.engine->Submit(b).ok());
  f.engine->Turn();
  EXPECT_EQ(f.engine->PopReady(), nullptr);
  EXPECT_EQ(f.engine->NextDeadline(), 2000);
  clock.AdvanceTo(2000);
  f.engine->Turn();
  RequestHandle ready = f.engine->PopReady();
  ASSERT_NE(ready, nullptr);
  EXPECT_TRUE(absl::IsUnavailable(ready->status));
  EXPECT_EQ(ready->status.message(), "Request timeout expired");
  EXPECT_EQ(f.engine->NextDeadline(), 3000);
  clock.AdvanceTo(3000);
  f.engine->Turn();
  ready = f.engine->PopReady();
  ASSERT_NE(ready, nullptr);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ready->status));
  EXPECT_EQ(f.engine->NextDeadline(), kNoDeadline);
}

TEST(EngineTest, AFullQueueRefusesAtOnce) {
  EngineFixture f({.slots = 2});
  RequestHandle a = *f.requests.Acquire(), b = *f.requests.Acquire();
  const absl::Status status = f.requests.Acquire().status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "Exceeds maximum queue size");
  a.reset();
  EXPECT_TRUE(f.requests.Acquire().ok());
}

TEST(EngineTest, AModelsOwnQueueLimitRefuses) {
  SimulatedClock clock;
  EngineFixture f({.clock = &clock});
  const auto model = *f.Serve({},
                              "dynamic_batching { max_queue_delay_microseconds: 10 "
                              "default_queue_policy { max_queue_size: 1 } }");
  const Values in(4, 1);
  RequestHandle a = f.MakeRequest(*model, in, 1), b = f.MakeRequest(*model, in, 1);
  ASSERT_TRUE(f.engine->Submit(a).ok());
  ASSERT_TRUE(f.engine->Submit(b).ok());
  f.engine->Turn();
  RequestHandle refused = f.engine->PopReady();
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->status.message(), "Exceeds maximum queue size");
  EXPECT_EQ(model->statistics().Snapshot().failures[0], 1u);
  clock.Advance(10000);
  EXPECT_TRUE(f.TurnUntilReady()->status.ok());
}

TEST(EngineTest, DrainingRefusesNewRequestsAndFinishesOldOnes) {
  EngineFixture f;
  const auto model = *f.Serve({});
  const Values in(4, 1);
  RequestHandle a = f.MakeRequest(*model, in, 1), b = f.MakeRequest(*model, in, 1);
  ASSERT_TRUE(f.engine->Submit(a).ok());
  f.engine->BeginDrain();
  EXPECT_TRUE(absl::IsUnavailable(f.engine->Submit(b)));
  EXPECT_NE(b, nullptr);
  EXPECT_TRUE(f.TurnUntilReady()->status.ok());
}

TEST(EngineTest, StopEndsWhatWaits) {
  SimulatedClock clock;
  EngineFixture f({.clock = &clock});
  const auto model = *f.Serve({}, "dynamic_batching { max_queue_delay_microseconds: 1000000 }");
  const Values in(4, 1);
  RequestHandle a = f.MakeRequest(*model, in, 1);
  ASSERT_TRUE(f.engine->Submit(a).ok());
  f.engine->Turn();
  f.engine->Stop();
  EXPECT_TRUE(absl::IsUnavailable(f.TurnUntilReady()->status));
}

TEST(EngineTest, AnOutputThatThePoolCannotHoldFailsTheRequestAndNotTheModel) {
  EngineFixture f({.pool_bytes = 64});
  const auto model = *f.Serve({.columns = -1, .batchable = false});
  const Values large(100, 1), small(4, 1);
  RequestHandle a = f.MakeRequest(*model, large, 1), b = f.MakeRequest(*model, small, 1);
  ASSERT_TRUE(f.engine->Submit(a).ok());
  ASSERT_TRUE(f.engine->Submit(b).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(f.TurnUntilReady()->status));
  EXPECT_TRUE(f.TurnUntilReady()->status.ok());
}

TEST(EngineTest, RequestsWaitForPoolMemoryThatAnswersStillHold) {
  SimulatedClock clock(1);
  EngineFixture f({.pool_bytes = 128, .clock = &clock});
  const auto model = *f.Serve({.columns = 16, .batchable = false});
  const Values in(16, 5);
  for (int i = 0; i < 5; ++i) {
    RequestHandle request = f.MakeRequest(*model, in, 1);
    ASSERT_TRUE(f.engine->Submit(request).ok());
  }
  std::vector<RequestHandle> held;
  for (int i = 0; i < 2; ++i) held.push_back(f.TurnUntilReady());
  while (f.engine->Turn()) f.engine->CheckInvariants();
  EXPECT_EQ(f.engine->PopReady(), nullptr);
  EXPECT_EQ(f.engine->in_flight(), 3);
  held.pop_back();  // wakes the engine
  held.push_back(f.TurnUntilReady());
  for (const RequestHandle& ready : held) EXPECT_TRUE(ready->status.ok()) << ready->status;
  // Nobody reads: the wait has an end, and those behind do not wait for as long once more.
  while (f.engine->Turn()) f.engine->CheckInvariants();
  clock.AdvanceTo(f.engine->NextDeadline());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(f.TurnUntilReady()->status));
  }
  held.clear();
  RequestHandle request = f.MakeRequest(*model, in, 1);
  ASSERT_TRUE(f.engine->Submit(request).ok());
  EXPECT_TRUE(f.TurnUntilReady()->status.ok());
}

TEST(EngineTest, AFailureOfABatchDoesNotReachTheNeighbours) {
  FaultPlan plan;
  auto inner = CreateCpuDevice({.threads = 1});
  ASSERT_TRUE(inner.ok());
  FaultyDevice device(*std::move(inner), &plan);
  EngineFixture f({.device = &device});
  const auto model = *f.Serve({});
  const Values in(4, 1);
  for (const FaultyOperation operation : {FaultyOperation::kLaunch, FaultyOperation::kSubmit}) {
    plan.FailNth(operation, 1, absl::InternalError("planned"));
    for (int i = 0; i < 3; ++i) {
      RequestHandle request = f.MakeRequest(*model, in, 1);
      ASSERT_TRUE(f.engine->Submit(request).ok());
    }
    for (int i = 0; i < 3; ++i) {
      const RequestHandle ready = f.TurnUntilReady();
      EXPECT_TRUE(ready->status.ok()) << ready->status;
      EXPECT_EQ(f.Values(ready->outputs[0]), Values(4, 3));
    }
  }
  // Alone it fails.
  plan.FailNth(FaultyOperation::kLaunch, 1, absl::InternalError("planned"));
  RequestHandle request = f.MakeRequest(*model, in, 1);
  ASSERT_TRUE(f.engine->Submit(request).ok());
  EXPECT_EQ(f.TurnUntilReady()->status.code(), absl::StatusCode::kInternal);
}

TEST(EngineTest, ABatchThatIsTooLargeRunsInParts) {
  EngineFixture f;
  const auto model = *f.Serve({.rows_max = 3});
  const Values in(4, 1), bad(16, 1);
  for (int i = 0; i < 5; ++i) {
    RequestHandle request = f.MakeRequest(*model, in, 1);
    ASSERT_TRUE(f.engine->Submit(request).ok());
  }
  RequestHandle too_large = f.MakeRequest(*model, bad, 4);
  ASSERT_TRUE(f.engine->Submit(too_large).ok());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(f.TurnUntilReady()->status.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(f.TurnUntilReady()->status));
}

TEST(EngineTest, WorkspaceBeyondTheBudgetFailsWithThePlan) {
  EngineFixture f;
  MemoryBudget budget("cpu", 4096);
  const auto model = *f.Serve({.columns = -1, .batchable = false}, "", &budget);
  const Values large(4096, 1), small(4, 1);
  RequestHandle a = f.MakeRequest(*model, large, 1), b = f.MakeRequest(*model, small, 1);
  ASSERT_TRUE(f.engine->Submit(a).ok());
  ASSERT_TRUE(f.engine->Submit(b).ok());
  const RequestHandle failed = f.TurnUntilReady();
  EXPECT_TRUE(absl::IsResourceExhausted(failed->status));
  EXPECT_NE(failed->status.message().find("weights add:1"), absl::string_view::npos)
      << failed->status;
  EXPECT_TRUE(f.TurnUntilReady()->status.ok());
}

TEST(EngineTest, ReshapedTensorsKeepTheClientsShapes) {
  EngineFixture f;
  const auto model = *f.Serve({}, R"(
      max_batch_size: 4
      input { name: 'IN' dims: [2, 2] reshape { shape: 4 } }
      output { name: 'OUT' dims: [4, 1] reshape { shape: 4 } })");
  EXPECT_EQ(model->inputs()[0].dims, std::vector<int64_t>({-1, 2, 2}));
  const Values in = {1, 2, 3, 4};
  RequestHandle request = f.MakeRequest(*model, in, 1);
  request->inputs[0].shape = *TensorShape::From(std::vector<int64_t>{1, 2, 2});
  ASSERT_TRUE(f.engine->Submit(request).ok());
  const RequestHandle ready = f.TurnUntilReady();
  ASSERT_TRUE(ready->status.ok()) << ready->status;
  EXPECT_EQ(ready->outputs[0].shape.ToString(), "[1,4,1]");
}

void SubmitCancelAndReceive(bool submitters_turn) {
  EngineFixture f({.slots = 32, .submitters_turn = submitters_turn});
  const auto model = *f.Serve({.columns = -1});
  f.engine->Start();
  constexpr int kThreads = 3, kEach = 300;
  std::atomic<int> taken{0}, ended{0};
  std::vector<std::vector<Values>> inputs(kThreads);
  std::vector<std::thread> senders;
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < kEach; ++i) {
      inputs[t].emplace_back(static_cast<size_t>(4 + i % 3), t * kEach + i);
    }
    senders.emplace_back([&, t] {
      for (int i = 0; i < kEach;) {
        if (f.requests.in_use() > 16) {
          std::this_thread::yield();
          continue;
        }
        RequestHandle request = f.MakeRequest(*model, inputs[t][i], 1);
        request->context = &inputs[t][i];
        const RequestTag tag = request->tag();
        ASSERT_TRUE(f.engine->Submit(request).ok());
        if (submitters_turn) f.reply_waker.Wake();  // the other thread looks
        ++taken;
        if (i % 7 == 0) f.engine->Cancel(tag);
        ++i;
      }
    });
  }
  for (; ended < kThreads * kEach; ++ended) {
    const RequestHandle ready = f.WaitForReady();
    if (!ready->status.ok()) {
      EXPECT_TRUE(absl::IsCancelled(ready->status)) << ready->status;
      continue;
    }
    Values expected = *static_cast<const Values*>(ready->context);
    for (int32_t& value : expected) value += 2;
    EXPECT_EQ(f.Values(ready->outputs[0]), expected);
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(taken, kThreads * kEach);
  f.engine->Stop();
  EXPECT_EQ(f.engine->in_flight(), 0);
  EXPECT_EQ(model->pins(), 0);
}

TEST(EngineTest, ThreadsSubmitCancelAndReceive) { SubmitCancelAndReceive(false); }

TEST(EngineTest, ThreadsThatSubmitTurnToo) { SubmitCancelAndReceive(true); }

TEST(EngineTest, ShortWorkEndsInsideSubmit) {
  EngineFixture f({.submitters_turn = true});
  const auto model = *f.Serve({});
  f.engine->Start();
  const Values in(4, 1);
  int inside = 0;
  for (int i = 0; i < 100; ++i) {
    RequestHandle request = f.MakeRequest(*model, in, 1);
    ASSERT_TRUE(f.engine->Submit(request).ok());
    RequestHandle ready = f.engine->PopReady();
    inside += ready != nullptr ? 1 : 0;
    // The engine's own thread had just begun a turn.
    if (ready == nullptr) ready = f.WaitForReady();
    EXPECT_EQ(f.Values(ready->outputs[0]), Values(4, 3));
  }
  EXPECT_GT(inside, 0);
}

TEST(EngineTest, ADeadlineThatASubmitterFoundWakesTheEngineThread) {
  EngineFixture f({.submitters_turn = true});
  const auto model = *f.Serve({}, "dynamic_batching { max_queue_delay_microseconds: 500 }");
  f.engine->Start();
  const Values in(4, 1);
  for (int i = 0; i < 20; ++i) {
    RequestHandle request = f.MakeRequest(*model, in, 1);
    ASSERT_TRUE(f.engine->Submit(request).ok());
    EXPECT_EQ(f.Values(f.WaitForReady()->outputs[0]), Values(4, 3));
  }
}

TEST(EngineLateOutputTest, EveryRequestGetsAsMuchAsItsDataSays) {
  EngineFixture f;
  const auto model = *f.ServeImage(*MakePrefixModel());
  for (const int32_t found : {1, 3, 0, 2}) {
    Values in(12, 7);
    in[0] = found;
    RequestHandle request = f.MakeRequest(*model, in, 3);
    ASSERT_TRUE(f.engine->Submit(request).ok());
    const RequestHandle ready = f.TurnUntilReady();
    ASSERT_TRUE(ready->status.ok()) << ready->status;
    EXPECT_EQ(ready->outputs[0].shape.ToString(), "[" + std::to_string(found) + ",4]");
    in.resize(static_cast<size_t>(found) * 4);
    EXPECT_EQ(f.Values(ready->outputs[0]), in);
  }
}

TEST(EngineLateOutputTest, AClientsMemoryMayBeSmallerThanTheMostThereCouldBe) {
  EngineFixture f;
  const auto model = *f.ServeImage(*MakePrefixModel());
  for (const uint64_t room : {64, 48, 40, 32, 16}) {
    Values in(12, 7);
    in[0] = 2;
    RequestHandle request = f.MakeRequest(*model, in, 3);
    OutputTensor& output = request->outputs.emplace_back();
    output.index = 0;
    output.target = *f.pool->Allocate(room);
    const std::byte* const target = output.target.bytes().data();
    ASSERT_TRUE(f.engine->Submit(request).ok());
    const RequestHandle ready = f.TurnUntilReady();
    if (room < 32) {
      EXPECT_EQ(ready->status, OutputTargetTooSmall("OUT", room, 32));
      continue;
    }
    ASSERT_TRUE(ready->status.ok()) << ready->status;
    EXPECT_EQ(ready->outputs[0].bytes.data(), target);
    EXPECT_EQ(f.Values(ready->outputs[0]), Values(in.begin(), in.begin() + 8));
  }
}

TEST(EngineLateOutputTest, RoomForTheMostThereCouldBeIsRefusedWhereThereIsNone) {
  EngineFixture f({.pool_bytes = uint64_t{1} << 20});
  const auto model = *f.ServeImage(*MakePrefixModel());
  Values in(4 * 70000);
  RequestHandle request = f.MakeRequest(*model, in, 70000);
  ASSERT_TRUE(f.engine->Submit(request).ok());
  const RequestHandle ready = f.TurnUntilReady();
  EXPECT_TRUE(absl::IsResourceExhausted(ready->status)) << ready->status;
}

// More iterations than any machine makes.
constexpr int64_t kForEver = int64_t{1} << 40;

TEST(EngineRepeatTest, RequestsThatAskForDifferentCountsGetTheirOwn) {
  EngineFixture f;
  const auto model = *f.ServeImage(*MakeRepeatModel({.trips = RepeatModelOptions::Trips::kInput}));
  const Values in = {1, 2, 3, 4};
  const std::vector<std::vector<int64_t>> counts = {{5}, {0}, {20000}};
  for (const std::vector<int64_t>& count : counts) {
    RequestHandle request = f.MakeRepeatRequest(*model, in, count);
    ASSERT_TRUE(f.engine->Submit(request).ok());
  }
  for (const std::vector<int64_t>& count : counts) {
    const RequestHandle ready = f.TurnUntilReady();
    ASSERT_TRUE(ready->status.ok()) << ready->status;
    EXPECT_EQ(f.Values(ready->outputs[0])[0], 1 + count[0]);
  }
}

TEST(EngineRepeatTest, ACancelEndsALoopThatWouldRunForEver) {
  EngineFixture f;
  const auto model = *f.ServeImage(*MakeRepeatModel({.trips = RepeatModelOptions::Trips::kInput}));
  const Values in = {1, 2, 3, 4};
  const std::vector<int64_t> count = {kForEver}, few = {2};
  RequestHandle request = f.MakeRepeatRequest(*model, in, count);
  const RequestTag tag = request->tag();
  ASSERT_TRUE(f.engine->Submit(request).ok());
  for (int turn = 0; turn < 10; ++turn) {
    f.engine->Turn();
    f.engine->CheckInvariants();
    EXPECT_EQ(f.engine->PopReady(), nullptr);
  }
  RequestHandle other = f.MakeRepeatRequest(*model, in, few);
  ASSERT_TRUE(f.engine->Submit(other).ok());
  f.engine->Cancel(tag);
  RequestHandle ready = f.TurnUntilReady();
  EXPECT_TRUE(absl::IsCancelled(ready->status)) << ready->status;
  ready = f.TurnUntilReady();
  ASSERT_TRUE(ready->status.ok()) << ready->status;
  EXPECT_EQ(f.Values(ready->outputs[0]), Values({3, 4, 5, 6}));
}

TEST(EngineRepeatTest, ADeadlineEndsALoopThatWouldRunForEver) {
  SimulatedClock clock(1);
  EngineFixture f({.clock = &clock});
  const auto model = *f.ServeImage(
      *MakeRepeatModel({.trips = RepeatModelOptions::Trips::kWhile, .count = kForEver}));
  const Values in = {std::numeric_limits<int32_t>::min(), 0, 0, 0};
  const std::vector<int64_t> count = {0};
  RequestHandle request = f.MakeRepeatRequest(*model, in, count);
  request->deadline_nanos = clock.NowNanos() + 1000;
  ASSERT_TRUE(f.engine->Submit(request).ok());
  for (int turn = 0; turn < 10; ++turn) f.engine->Turn();
  EXPECT_EQ(f.engine->PopReady(), nullptr);
  clock.Advance(2000);
  const RequestHandle ready = f.TurnUntilReady();
  EXPECT_TRUE(absl::IsDeadlineExceeded(ready->status)) << ready->status;
}

TEST(EngineRepeatTest, StoppingEndsALoopThatWouldRunForEver) {
  EngineFixture f;
  const auto model = *f.ServeImage(*MakeRepeatModel({.count = kForEver}));
  const Values in = {1, 2, 3, 4};
  const std::vector<int64_t> count = {0};
  f.engine->Start();
  RequestHandle request = f.MakeRepeatRequest(*model, in, count);
  ASSERT_TRUE(f.engine->Submit(request).ok());
  f.engine->Stop();
  const RequestHandle ready = f.engine->PopReady();
  ASSERT_NE(ready, nullptr);
  EXPECT_TRUE(absl::IsUnavailable(ready->status)) << ready->status;
}

}  // namespace
}  // namespace stampmill
