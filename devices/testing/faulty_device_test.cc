// FaultyDevice with faults. Without any, the conformance suite tests it.
#include "devices/testing/faulty_device.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "devices/testing/test_kernels.h"

namespace stampmill {
namespace {

class FaultyDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Device>> cpu = CreateCpuDevice({.threads = 2});
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    device_ = std::make_unique<FaultyDevice>(*std::move(cpu), &plan_);
    absl::StatusOr<Artifact> artifact = TestKernels();
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    kernels_ = *device_->Load(*artifact);
    queue_ = *device_->CreateQueue(&waker_);
    buffer_ = {reinterpret_cast<uint64_t>(counters_.data()), counters_.size() * sizeof(int32_t)};
  }

  // Counter 0 counts the launches that ran.
  LaunchCommand Count(int64_t nanos_estimate = 0) {
    return {.executable = kernels_.get(),
            .entry = *kernels_->FindEntry("count"),
            .buffers = std::span(&buffer_, 1),
            .tasks = 1,
            .nanos_estimate = nanos_estimate};
  }

  FaultPlan plan_;
  std::unique_ptr<FaultyDevice> device_;
  std::shared_ptr<const Executable> kernels_;
  Waker waker_;
  std::unique_ptr<Queue> queue_;
  std::vector<int32_t> counters_ = std::vector<int32_t>(4);
  BufferRef buffer_;
};

TEST_F(FaultyDeviceTest, TheNthCallFailsOnce) {
  plan_.FailNth(FaultyOperation::kAllocate, 2, absl::ResourceExhaustedError("planned"));
  EXPECT_TRUE(device_->Allocate(10).ok());
  EXPECT_EQ(device_->Allocate(10).status().message(), "planned");
  EXPECT_TRUE(device_->Allocate(10).ok());
  EXPECT_EQ(plan_.calls(FaultyOperation::kAllocate), 3);
}

TEST_F(FaultyDeviceTest, EveryOperationCanFail) {
  const absl::Status planned = absl::UnavailableError("planned");
  plan_.FailNth(FaultyOperation::kImport, 1, planned);
  plan_.FailNth(FaultyOperation::kLoad, 1, planned);
  plan_.FailNth(FaultyOperation::kCreateQueue, 1, planned);
  EXPECT_EQ(device_->Import({}, true).status(), planned);
  EXPECT_EQ(device_->Load(*TestKernels()).status(), planned);
  EXPECT_EQ(device_->CreateQueue(nullptr).status(), planned);
}

TEST_F(FaultyDeviceTest, AFailedSubmitTakesNothingAndTheQueueStaysGood) {
  plan_.FailNth(FaultyOperation::kSubmit, 1, absl::UnavailableError("planned"));
  const Command commands[] = {Count(), SignalCommand{1}};
  EXPECT_EQ(queue_->Submit(commands).message(), "planned");
  EXPECT_TRUE(queue_->status().ok());
  ASSERT_TRUE(queue_->Submit(commands).ok());
  EXPECT_TRUE(queue_->Synchronize(1).ok());
  EXPECT_EQ(counters_[0], 1);
}

TEST_F(FaultyDeviceTest, AFailedLaunchFailsTheQueueAtThatPlace) {
  for (const int64_t estimate : {0, 1000}) {
    counters_[0] = 0;
    queue_ = *device_->CreateQueue(&waker_);
    plan_.FailNth(FaultyOperation::kLaunch, 3, absl::InternalError("planned"));
    const Command commands[] = {Count(estimate), Count(estimate), SignalCommand{1},
                                Count(estimate), Count(estimate), SignalCommand{2},
                                Count(estimate), SignalCommand{3}};
    ASSERT_TRUE(queue_->Submit(commands).ok());
    EXPECT_EQ(queue_->Synchronize(3).message(), "planned");
    EXPECT_EQ(queue_->completed(), 3u);
    EXPECT_EQ(counters_[0], 2);
    EXPECT_TRUE(queue_->timeline().StatusAt(1).ok());
    EXPECT_FALSE(queue_->timeline().StatusAt(2).ok());
    const Command later[] = {SignalCommand{4}};
    EXPECT_EQ(queue_->Submit(later).message(), "planned");
  }
}

TEST_F(FaultyDeviceTest, HeldCompletionsPassInOrderWhenReleased) {
  plan_.HoldCompletions();
  const Command commands[] = {Count(1000), SignalCommand{1}, Count(1000), SignalCommand{2}};
  ASSERT_TRUE(queue_->Submit(commands).ok());
  EXPECT_EQ(counters_[0], 2) << "the work is done";
  EXPECT_EQ(queue_->completed(), 0u) << "but nobody hears of it";
  const uint32_t seen = waker_.epoch();
  plan_.ReleaseCompletions();
  EXPECT_EQ(queue_->completed(), 2u);
  EXPECT_NE(waker_.epoch(), seen);
  const Command more[] = {SignalCommand{3}};
  ASSERT_TRUE(queue_->Submit(more).ok());
  EXPECT_TRUE(queue_->Synchronize(3).ok());
}

TEST_F(FaultyDeviceTest, AHeldFailureShowsWhenReleased) {
  plan_.HoldCompletions();
  plan_.FailNth(FaultyOperation::kLaunch, 1, absl::InternalError("planned"));
  const Command commands[] = {Count(1000), SignalCommand{1}};
  ASSERT_TRUE(queue_->Submit(commands).ok());
  EXPECT_TRUE(queue_->status().ok());
  plan_.ReleaseCompletions();
  EXPECT_EQ(queue_->Synchronize(1).message(), "planned");
}

TEST_F(FaultyDeviceTest, ADestroyedQueueHoldsNothingBack) {
  plan_.HoldCompletions();
  const Command commands[] = {Count(1000), SignalCommand{1}};
  ASSERT_TRUE(queue_->Submit(commands).ok());
  const uint32_t seen = waker_.epoch();
  queue_.reset();
  EXPECT_NE(waker_.epoch(), seen);
}

TEST_F(FaultyDeviceTest, LiveBuffersAreCounted) {
  EXPECT_EQ(device_->live_buffers(), 0);
  Buffer first = *device_->Allocate(10);
  {
    const Buffer second = *device_->Import({}, false);
    EXPECT_EQ(device_->live_buffers(), 2);
  }
  EXPECT_EQ(device_->live_buffers(), 1);
  first = Buffer();
  EXPECT_EQ(device_->live_buffers(), 0);
}

}  // namespace
}  // namespace stampmill
