#include "runtime/scheduler.h"

#include <memory>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

constexpr int64_t kMicros = 1000;

// Requests with one input [rows, columns].
class SchedulerTest : public testing::Test {
 protected:
  Request* Make(int64_t rows = 1, int64_t columns = 4) {
    RequestHandle handle = *pool_.Acquire();
    handle->rows = rows;
    handle->signature = static_cast<uint64_t>(columns);
    handle->inputs.emplace_back().shape = *TensorShape::From(std::vector<int64_t>{rows, columns});
    handles_.push_back(std::move(handle));
    return handles_.back().get();
  }
  Request* Enqueue(Scheduler& scheduler, Request* request, int64_t now = 0) {
    request->times.queue_start = now;
    EXPECT_TRUE(scheduler.Enqueue(request, now));
    scheduler.CheckInvariants();
    return request;
  }
  static std::vector<Request*> Form(Scheduler& scheduler, int64_t now = 0) {
    const std::span<Request* const> batch = scheduler.FormBatch(now);
    scheduler.CheckInvariants();
    return {batch.begin(), batch.end()};
  }
  static BatchingPolicy Batching(int64_t max_batch_size) {
    BatchingPolicy policy;
    policy.max_batch_size = max_batch_size;
    policy.dynamic = true;
    return policy;
  }

  RequestPool pool_{4096};
  std::vector<RequestHandle> handles_;
};

using Batch = std::vector<Request*>;

TEST_F(SchedulerTest, WithoutBatchingRequestsRunAloneInOrder) {
  Scheduler scheduler(BatchingPolicy{}, 64);
  Request* const a = Enqueue(scheduler, Make());
  Request* const b = Enqueue(scheduler, Make());
  EXPECT_EQ(Form(scheduler), Batch({a}));
  EXPECT_EQ(Form(scheduler), Batch({b}));
  EXPECT_EQ(Form(scheduler), Batch());
  EXPECT_EQ(scheduler.NextDeadline(), kNoDeadline);
}

TEST_F(SchedulerTest, PutsTogetherUpToTheLimitOfRows) {
  Scheduler scheduler(Batching(4), 64);
  Request* const a = Enqueue(scheduler, Make(2));
  Request* const b = Enqueue(scheduler, Make(1));
  Request* const c = Enqueue(scheduler, Make(2));
  Request* const d = Enqueue(scheduler, Make(1));
  // c does not fit any more; d is not let past it.
  EXPECT_EQ(Form(scheduler), Batch({a, b}));
  EXPECT_EQ(Form(scheduler), Batch({c, d}));
}

TEST_F(SchedulerTest, OnlyRequestsOfOneShapeRunTogetherAndNobodyStarves) {
  Scheduler scheduler(Batching(8), 64);
  Request* const a = Enqueue(scheduler, Make(1, 4));
  Request* const b = Enqueue(scheduler, Make(1, 5));
  Request* const c = Enqueue(scheduler, Make(1, 4));
  EXPECT_EQ(Form(scheduler), Batch({a, c}));
  Request* const d = Enqueue(scheduler, Make(1, 4));
  EXPECT_EQ(Form(scheduler), Batch({b}));
  EXPECT_EQ(Form(scheduler), Batch({d}));
}

TEST_F(SchedulerTest, EqualHashesOfDifferentShapesAreNotPutTogether) {
  Scheduler scheduler(Batching(8), 64);
  Request* const a = Make(1, 4);
  Request* const b = Make(1, 5);
  a->signature = b->signature = 7;
  Enqueue(scheduler, a);
  Enqueue(scheduler, b);
  EXPECT_EQ(Form(scheduler), Batch({a}));
}

TEST_F(SchedulerTest, PreservedOrderLetsNobodyPass) {
  BatchingPolicy policy = Batching(8);
  policy.preserve_ordering = true;
  Scheduler scheduler(policy, 64);
  Request* const a = Enqueue(scheduler, Make(1, 4));
  Request* const b = Enqueue(scheduler, Make(1, 5));
  Request* const c = Enqueue(scheduler, Make(1, 4));
  EXPECT_EQ(Form(scheduler), Batch({a}));
  EXPECT_EQ(Form(scheduler), Batch({b}));
  EXPECT_EQ(Form(scheduler), Batch({c}));
}

TEST_F(SchedulerTest, WaitsForMoreUntilTheDelayIsOver) {
  BatchingPolicy policy = Batching(4);
  policy.max_queue_delay_nanos = 100 * kMicros;
  Scheduler scheduler(policy, 64);
  Request* const a = Enqueue(scheduler, Make(), 10 * kMicros);
  EXPECT_EQ(Form(scheduler, 20 * kMicros), Batch());
  EXPECT_EQ(scheduler.NextDeadline(), 110 * kMicros);
  Request* const b = Enqueue(scheduler, Make(), 50 * kMicros);
  EXPECT_EQ(Form(scheduler, 109 * kMicros), Batch());
  EXPECT_EQ(Form(scheduler, 110 * kMicros), Batch({a, b}));
}

TEST_F(SchedulerTest, AFullBatchDoesNotWait) {
  BatchingPolicy policy = Batching(2);
  policy.max_queue_delay_nanos = 100 * kMicros;
  Scheduler scheduler(policy, 64);
  Request* const a = Enqueue(scheduler, Make());
  Request* const b = Enqueue(scheduler, Make());
  EXPECT_EQ(Form(scheduler, 1), Batch({a, b}));
  // Nor one that the next request does not fit into.
  Request* const c = Enqueue(scheduler, Make(1));
  Enqueue(scheduler, Make(2));
  EXPECT_EQ(Form(scheduler, 1), Batch({c}));
}

TEST_F(SchedulerTest, TakesTheLargestPreferredSizeAndElseWaits) {
  BatchingPolicy policy = Batching(8);
  policy.preferred_sizes = {2, 4};
  policy.max_queue_delay_nanos = 100 * kMicros;
  Scheduler scheduler(policy, 64);
  Request* const a = Enqueue(scheduler, Make());
  EXPECT_EQ(Form(scheduler), Batch());
  Request* const b = Enqueue(scheduler, Make());
  Request* const c = Enqueue(scheduler, Make());
  EXPECT_EQ(Form(scheduler), Batch({a, b}));
  EXPECT_EQ(Form(scheduler, 99 * kMicros), Batch());
  EXPECT_EQ(Form(scheduler, 100 * kMicros), Batch({c}));
  Batch five;
  for (int i = 0; i < 5; ++i) five.push_back(Enqueue(scheduler, Make()));
  EXPECT_EQ(Form(scheduler), Batch(five.begin(), five.begin() + 4));
}

TEST_F(SchedulerTest, HigherPriorityGoesFirstAndUnknownOnesAreTheLowest) {
  BatchingPolicy policy;
  policy.levels.resize(3);
  policy.default_level = 1;
  Scheduler scheduler(policy, 64);
  const auto with_priority = [&](uint64_t priority) {
    Request* const request = Make();
    request->priority = priority;
    return Enqueue(scheduler, request);
  };
  Request* const last = with_priority(77);
  Request* const second = with_priority(0);
  Request* const third = with_priority(2);
  Request* const first = with_priority(1);
  EXPECT_EQ(Form(scheduler), Batch({first}));
  EXPECT_EQ(Form(scheduler), Batch({second}));
  EXPECT_EQ(Form(scheduler), Batch({third}));
  EXPECT_EQ(Form(scheduler), Batch({last}));
}

TEST_F(SchedulerTest, AFullLevelRefuses) {
  BatchingPolicy policy;
  policy.levels[0].max_queue_size = 2;
  Scheduler scheduler(policy, 64);
  Enqueue(scheduler, Make());
  Enqueue(scheduler, Make());
  EXPECT_FALSE(scheduler.Enqueue(Make(), 0));
  Form(scheduler);
  Enqueue(scheduler, Make());
}

TEST_F(SchedulerTest, QueueTimeoutsFollowThePolicy) {
  const auto queue_deadline = [&](QueuePolicy policy, uint64_t timeout_us) {
    BatchingPolicy batching;
    batching.levels[0] = policy;
    Scheduler scheduler(batching, 64);
    Request* const request = Make();
    request->timeout_us = timeout_us;
    Enqueue(scheduler, request, 1000);
    scheduler.Remove(request);
    return request->queue_deadline_nanos;
  };
  EXPECT_EQ(queue_deadline({}, 0), kNoDeadline);
  EXPECT_EQ(queue_deadline({}, 5), 6000);
  EXPECT_EQ(queue_deadline({.default_timeout_us = 7}, 5), 8000);
  EXPECT_EQ(queue_deadline({.default_timeout_us = 7, .allow_timeout_override = true}, 5), 6000);
  EXPECT_EQ(queue_deadline({.default_timeout_us = 7, .allow_timeout_override = true}, 9), 8000);
  EXPECT_EQ(queue_deadline({.default_timeout_us = ~uint64_t{0}}, 0), kNoDeadline);
}

TEST_F(SchedulerTest, ExpiredRequestsAreTakenOutOrGoBehind) {
  BatchingPolicy policy;
  policy.levels[0].default_timeout_us = 10;
  Scheduler reject(policy, 64);
  Request* const a = Enqueue(reject, Make(), 0);
  EXPECT_EQ(reject.NextDeadline(), 10 * kMicros);
  EXPECT_EQ(reject.TakeExpired(10 * kMicros - 1), nullptr);
  EXPECT_EQ(reject.TakeExpired(10 * kMicros), a);
  EXPECT_EQ(reject.TakeExpired(10 * kMicros), nullptr);
  EXPECT_TRUE(reject.empty());

  policy.levels[0].delay_on_timeout = true;
  Scheduler delay(policy, 64);
  Request* const b = Enqueue(delay, Make(), 0);
  Request* const c = Enqueue(delay, Make(), 5 * kMicros);
  EXPECT_EQ(delay.TakeExpired(10 * kMicros), nullptr);
  delay.CheckInvariants();
  EXPECT_EQ(Form(delay), Batch({c}));
  EXPECT_EQ(Form(delay), Batch({b}));
}

TEST_F(SchedulerTest, DeadlinesEndAlsoDelayedRequests) {
  BatchingPolicy policy;
  policy.levels[0] = {.delay_on_timeout = true, .default_timeout_us = 10};
  Scheduler scheduler(policy, 64);
  Request* const a = Make();
  a->deadline_nanos = 20 * kMicros;
  Enqueue(scheduler, a);
  EXPECT_EQ(scheduler.TakeExpired(10 * kMicros), nullptr);
  EXPECT_EQ(scheduler.NextDeadline(), 20 * kMicros);
  EXPECT_EQ(scheduler.TakeExpired(20 * kMicros), a);
}

TEST_F(SchedulerTest, CancelledRequestsAreTakenOut) {
  Scheduler scheduler(Batching(8), 64);
  Enqueue(scheduler, Make());
  Request* const b = Enqueue(scheduler, Make());
  EXPECT_EQ(scheduler.TakeCancelled(), nullptr);
  b->Cancel(b->generation - 1);  // an earlier use of the slot
  EXPECT_EQ(scheduler.TakeCancelled(), nullptr);
  b->Cancel(b->generation);
  EXPECT_EQ(scheduler.TakeCancelled(), b);
  EXPECT_EQ(scheduler.waiting(), 1);
}

TEST_F(SchedulerTest, RequestsPutBackHaveTheirOldPlacesAndThoseMarkedRunAlone) {
  Scheduler scheduler(Batching(4), 64);
  Request* const a = Enqueue(scheduler, Make(1, 4));
  Request* const b = Enqueue(scheduler, Make(1, 5));
  Request* const c = Enqueue(scheduler, Make(1, 4));
  Request* const d = Enqueue(scheduler, Make(1, 4));
  const Batch first = Form(scheduler);
  EXPECT_EQ(first, Batch({a, c, d}));
  Request* const e = Enqueue(scheduler, Make(1, 5));
  a->alone = true;
  scheduler.PutBack(first);
  scheduler.CheckInvariants();
  EXPECT_EQ(Form(scheduler), Batch({a}));
  EXPECT_EQ(Form(scheduler), Batch({b, e}));
  d->alone = true;
  EXPECT_EQ(Form(scheduler), Batch({c}));
  EXPECT_EQ(Form(scheduler), Batch({d}));
}

TEST_F(SchedulerTest, TheSameCallsGiveTheSameBatches) {
  const auto run = [&](uint32_t seed) {
    std::mt19937 random(seed);
    BatchingPolicy policy = Batching(8);
    policy.preferred_sizes = {4};
    policy.max_queue_delay_nanos = 50;
    policy.levels.resize(2);
    policy.levels[1].default_timeout_us = 1;
    Scheduler scheduler(policy, 64);
    std::vector<uint64_t> order;
    std::set<Request*> waiting;
    RequestPool pool(512);
    std::vector<RequestHandle> handles;
    for (int64_t now = 0; now < 400; ++now) {
      RequestHandle handle = *pool.Acquire();
      const auto rows = static_cast<int64_t>(1 + random() % 8);
      handle->rows = rows;
      handle->signature = random() % 3;
      handle->inputs.emplace_back().shape =
          *TensorShape::From(std::vector<int64_t>{rows, static_cast<int64_t>(handle->signature)});
      handle->priority = random() % 3;
      handle->times.queue_start = now;
      EXPECT_TRUE(scheduler.Enqueue(handle.get(), now));
      waiting.insert(handle.get());
      handles.push_back(std::move(handle));
      while (Request* const expired = scheduler.TakeExpired(now)) waiting.erase(expired);
      for (Request* const request : scheduler.FormBatch(now)) {
        EXPECT_EQ(waiting.erase(request), 1u);
        order.push_back(request->arrival_number);
      }
      scheduler.CheckInvariants();
      EXPECT_EQ(static_cast<size_t>(scheduler.waiting()), waiting.size());
    }
    while (Request* const request = scheduler.TakeAny()) waiting.erase(request);
    EXPECT_TRUE(waiting.empty());
    return order;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST_F(SchedulerTest, AfterAStepItsClientsAreWaitedForWhileTheyKeepComing) {
  Scheduler scheduler(Batching(8), 64);
  const int64_t step = 2400 * kMicros;  // its 12th part is 200 us
  scheduler.StepEnded(3, step, 10'000 * kMicros);
  int64_t now = 10'100 * kMicros;
  Request* const a = Enqueue(scheduler, Make(), now);
  EXPECT_EQ(Form(scheduler, now), Batch());
  EXPECT_EQ(scheduler.NextDeadline(), now + 200 * kMicros);
  now += 150 * kMicros;
  Request* const b = Enqueue(scheduler, Make(), now);
  EXPECT_EQ(Form(scheduler, now), Batch());
  now += 150 * kMicros;
  Request* const c = Enqueue(scheduler, Make(), now);
  EXPECT_EQ(Form(scheduler, now), Batch({a, b, c})) << "all are back";

  // One does not come: the others wait for one gap.
  scheduler.StepEnded(3, step, now);
  Request* const d = Enqueue(scheduler, Make(), now);
  Request* const e = Enqueue(scheduler, Make(), now);
  EXPECT_EQ(Form(scheduler, now), Batch());
  EXPECT_EQ(Form(scheduler, now + 200 * kMicros), Batch({d, e}));
  // Without a step in between nobody is expected.
  Request* const f = Enqueue(scheduler, Make(), now);
  EXPECT_EQ(Form(scheduler, now), Batch({f}));
}

TEST_F(SchedulerTest, ReturnsAreWaitedForAQuarterOfAStepAtTheMostAndNotAfterShortOnes) {
  Scheduler scheduler(Batching(8), 64);
  scheduler.StepEnded(8, 2400 * kMicros, 0);
  Batch batch;
  for (int64_t now = 0; now < 600; now += 190) {
    EXPECT_EQ(Form(scheduler, now * kMicros), Batch());
    batch.push_back(Enqueue(scheduler, Make(), now * kMicros));
  }
  EXPECT_EQ(Form(scheduler, 600 * kMicros), batch);

  scheduler.StepEnded(8, 500 * kMicros, 0);
  Request* const alone = Enqueue(scheduler, Make());
  EXPECT_EQ(Form(scheduler), Batch({alone}));
}

TEST_F(SchedulerTest, WhereNobodyComesBackFewWaitsAreMade) {
  Scheduler scheduler(Batching(8), 64);
  constexpr int64_t kStep = 2400 * kMicros;
  int waits = 0;
  int64_t now = 0;
  Request* waiting = Enqueue(scheduler, Make(), now);
  for (int step = 0; step < 99; ++step, now += kStep) {
    scheduler.StepEnded(1, kStep, now);
    Batch batch = Form(scheduler, now);
    if (batch.empty()) {
      ++waits;
      now = scheduler.NextDeadline();
      batch = Form(scheduler, now);
    }
    EXPECT_EQ(batch, Batch({waiting}));
    waiting = Enqueue(scheduler, Make(), now + kStep / 2);  // while the step runs
  }
  EXPECT_EQ(waits, 3);
}

}  // namespace
}  // namespace stampmill
