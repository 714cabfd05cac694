// Timelines: waiting, parking, and what a failure means for values before and after it.
#include "devices/timeline.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

namespace stampmill {
namespace {

struct RecordingWaiter final : Timeline::Waiter {
  void Release(const absl::Status& status) override { released = status; }
  std::optional<absl::Status> released;
};

TEST(TimelineTest, PassingAValueWakesTheWaker) {
  Waker waker;
  Timeline timeline(&waker);
  EXPECT_EQ(timeline.completed(), 0u);
  const uint32_t seen = waker.epoch();
  timeline.Pass(3);
  EXPECT_EQ(timeline.completed(), 3u);
  EXPECT_NE(waker.epoch(), seen);
}

TEST(TimelineTest, PassingAValueInsideSubmitWakesOnlyThoseWhoWaitForIt) {
  Waker waker;
  Timeline timeline(&waker);
  RecordingWaiter waiter;
  ASSERT_TRUE(timeline.AddWaiter(1, &waiter));
  std::thread sleeper([&] { EXPECT_TRUE(timeline.Wait(1).ok()); });
  const uint32_t seen = waker.epoch();
  timeline.PassInSubmit(1);
  EXPECT_EQ(timeline.completed(), 1u);
  EXPECT_EQ(waker.epoch(), seen);
  EXPECT_TRUE(waiter.released.has_value());
  sleeper.join();
}

TEST(TimelineTest, WaitReturnsOnceTheValueHasPassed) {
  Timeline timeline(nullptr);
  EXPECT_TRUE(timeline.Wait(0).ok());
  std::thread mover([&] {
    for (uint64_t value = 1; value <= 1000; ++value) timeline.Pass(value);
  });
  for (uint64_t value = 1; value <= 1000; value += 7) {
    EXPECT_TRUE(timeline.Wait(value).ok());
    EXPECT_GE(timeline.completed(), value);
  }
  mover.join();
}

TEST(TimelineTest, AWaiterIsReleasedOnceWhenItsValuePasses) {
  Timeline timeline(nullptr);
  RecordingWaiter early, late;
  ASSERT_TRUE(timeline.AddWaiter(2, &early));
  ASSERT_TRUE(timeline.AddWaiter(5, &late));
  timeline.Pass(1);
  EXPECT_FALSE(early.released.has_value());
  timeline.Pass(3);
  ASSERT_TRUE(early.released.has_value());
  EXPECT_TRUE(early.released->ok());
  EXPECT_FALSE(late.released.has_value());
  early.released.reset();
  timeline.Pass(5);
  EXPECT_FALSE(early.released.has_value());
  EXPECT_TRUE(late.released.has_value());
}

TEST(TimelineTest, AValueThatHasPassedNeedsNoWaiter) {
  Timeline timeline(nullptr);
  timeline.Pass(4);
  RecordingWaiter waiter;
  EXPECT_FALSE(timeline.AddWaiter(4, &waiter));
}

TEST(TimelineTest, ADestroyedTimelineReleasesItsWaitersAsCancelled) {
  auto timeline = std::make_unique<Timeline>(nullptr);
  RecordingWaiter first, second;
  ASSERT_TRUE(timeline->AddWaiter(1, &first));
  ASSERT_TRUE(timeline->AddWaiter(2, &second));
  timeline.reset();
  EXPECT_EQ(first.released->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second.released->code(), absl::StatusCode::kCancelled);
}

TEST(TimelineTest, TheFirstFailureSticksAndSparesWhatPassedBefore) {
  Waker waker;
  Timeline timeline(&waker);
  timeline.Pass(1);
  RecordingWaiter waiter;
  ASSERT_TRUE(timeline.AddWaiter(2, &waiter));
  const uint32_t seen = waker.epoch();
  timeline.Fail(absl::InternalError("first"));
  EXPECT_NE(waker.epoch(), seen);
  timeline.Fail(absl::InternalError("second"));
  EXPECT_EQ(timeline.status().message(), "first");
  timeline.Pass(2);
  EXPECT_EQ(waiter.released->message(), "first");
  EXPECT_TRUE(timeline.StatusAt(1).ok());
  EXPECT_EQ(timeline.StatusAt(2).message(), "first");
  EXPECT_EQ(timeline.Wait(2).message(), "first");
}

}  // namespace
}  // namespace stampmill
