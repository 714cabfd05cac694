// Conformance: loading, launches, order, scratch and malformed commands.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "devices/conformance/fixture.h"
#include "devices/limits.h"

namespace stampmill {
namespace {

// Unknown, short enough for the caller, and long: the same result on every path.
constexpr int64_t kEstimates[] = {0, 100, 20'000, 3'000'000, 2'000'000'000};

TEST_F(DeviceConformance, EntriesAreFoundByNameOnly) {
  const std::shared_ptr<const Executable> kernels = LoadKernels(device());
  EXPECT_GE(kernels->entry_count(), 7);
  for (const char* name : {"count", "add", "append", "fail", "scratch"}) {
    absl::StatusOr<int32_t> entry = kernels->FindEntry(name);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_LT(*entry, kernels->entry_count());
  }
  EXPECT_EQ(kernels->FindEntry("coun").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(kernels->FindEntry("").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(DeviceConformance, CodeForAnotherKindOfDeviceIsRefused) {
  for (const char* text : {"cpu:x86-64", "cuda:sm_80", "hip:gfx942", "npu:xdna1"}) {
    const Target target = *Target::Parse(text);
    if (target.kind() == device().info().target.kind()) continue;
    const std::string bytes = Artifact::Serialize(target, {}, {});
    absl::StatusOr<Artifact> artifact =
        Artifact::Parse(std::as_bytes(std::span(bytes.data(), bytes.size())), nullptr);
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    EXPECT_EQ(device().Load(*artifact).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(DeviceConformance, ALaunchRunsEachTaskExactlyOnce) {
  std::unique_ptr<Queue> queue = NewQueue();
  uint64_t signal = 0;
  for (const int64_t tasks : {1, 2, 3, 7, 64, 1000, 100'003}) {
    for (const int64_t estimate : kEstimates) {
      const Buffer counters = ToDevice(std::vector<int32_t>(tasks));
      const BufferRef buffers[] = {Ref(counters)};
      const Command commands[] = {Launch("count", buffers, tasks, {}, estimate),
                                  SignalCommand{++signal}};
      Run(*queue, commands, signal);
      ASSERT_EQ(FromDevice<int32_t>(counters), std::vector<int32_t>(tasks, 1))
          << tasks << " tasks, " << estimate << " ns";
    }
  }
}

TEST_F(DeviceConformance, ALaunchOfNoTasksRunsNothing) {
  const Buffer counters = ToDevice(std::vector<int32_t>(1));
  const BufferRef buffers[] = {Ref(counters)};
  const Command commands[] = {Launch("count", buffers, 0), SignalCommand{1}};
  Run(*NewQueue(), commands, 1);
  EXPECT_EQ(FromDevice<int32_t>(counters)[0], 0);
}

TEST_F(DeviceConformance, CommandsOfAListRunInOrder) {
  constexpr int64_t kLaunches = 2000;
  const Buffer log = ToDevice(std::vector<int64_t>(kLaunches + 1));
  const BufferRef buffers[] = {Ref(log)};
  std::vector<int64_t> values(kLaunches);
  std::iota(values.begin(), values.end(), 0);
  std::vector<Command> commands;
  for (int64_t i = 0; i < kLaunches; ++i) {
    commands.push_back(Launch("append", buffers, 1, std::span(&values[i], 1), kEstimates[i % 3]));
  }
  commands.push_back(SignalCommand{1});
  Run(*NewQueue(), commands, 1);
  std::vector<int64_t> expected = {kLaunches};
  expected.insert(expected.end(), values.begin(), values.end());
  EXPECT_EQ(FromDevice<int64_t>(log), expected);
}

TEST_F(DeviceConformance, WhatALaunchWritesTheNextOneReads) {
  constexpr int64_t kSize = 10'007, kBlock = 100, kRounds = 300;
  constexpr int64_t kTasks = (kSize + kBlock - 1) / kBlock;
  for (const int64_t estimate : kEstimates) {
    const Buffer first = ToDevice(std::vector<int32_t>(kSize));
    const Buffer second = Allocate(kSize * sizeof(int32_t));
    const BufferRef there[] = {Ref(first), Ref(second)}, back[] = {Ref(second), Ref(first)};
    const int64_t dims[] = {kSize, 1, kBlock};
    std::vector<Command> commands;
    for (int64_t i = 0; i < kRounds; ++i) {
      commands.push_back(FillCommand{.target = Ref(second), .value = 0xff});
      commands.push_back(Launch("add", there, kTasks, dims, estimate));
      commands.push_back(Launch("add", back, kTasks, dims, estimate));
    }
    commands.push_back(SignalCommand{1});
    Run(*NewQueue(), commands, 1);
    ASSERT_EQ(FromDevice<int32_t>(first), std::vector<int32_t>(kSize, 2 * kRounds)) << estimate;
  }
}

TEST_F(DeviceConformance, ScratchIsTheRunningTasksOwn) {
  std::unique_ptr<Queue> queue = NewQueue();
  uint64_t signal = 0;
  for (const int64_t bytes : {8, 64, 100'000, 1000, 1 << 20}) {
    for (const int64_t estimate : kEstimates) {
      const Buffer counters = ToDevice(std::vector<int32_t>(60));
      const BufferRef buffers[] = {Ref(counters)};
      LaunchCommand launch = Launch("scratch", buffers, 60, std::span(&bytes, 1), estimate);
      launch.scratch_bytes = bytes;
      const Command commands[] = {launch, SignalCommand{++signal}};
      Run(*queue, commands, signal);
      ASSERT_EQ(FromDevice<int32_t>(counters), std::vector<int32_t>(60, 1));
    }
  }
}

TEST_F(DeviceConformance, ALaunchMayHaveAsManyBuffersAsTheLimitSays) {
  const Buffer counters = ToDevice(std::vector<int32_t>(5));
  const std::vector<BufferRef> buffers(kLaunchBuffersMax, Ref(counters));
  const Command commands[] = {Launch("count", buffers, 5), SignalCommand{1}};
  Run(*NewQueue(), commands, 1);
  EXPECT_EQ(FromDevice<int32_t>(counters), std::vector<int32_t>(5, 1));
}

// Lists of one bad command behind a good launch, which must not run either.
class MalformedCommands : public DeviceConformance {
 protected:
  void SetUp() override {
    DeviceConformance::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    counters_ = ToDevice(std::vector<int32_t>(8));
    buffers_ = {Ref(counters_)};
    queue_ = NewQueue();
    const Command commands[] = {SignalCommand{10}};
    Run(*queue_, commands, 10);
  }
  void TearDown() override {
    queue_.reset();
    counters_ = Buffer();
    DeviceConformance::TearDown();
  }

  LaunchCommand Good() { return Launch("count", buffers_, 8); }

  void Refused(const Command& bad, const std::string& words) {
    const Command commands[] = {Good(), bad, SignalCommand{20}};
    const absl::Status status = queue_->Submit(commands);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_NE(std::string(status.message()).find("command 1"), std::string::npos) << status;
    EXPECT_NE(std::string(status.message()).find(words), std::string::npos) << status;
    EXPECT_TRUE(queue_->status().ok());
  }

  Buffer counters_;
  std::vector<BufferRef> buffers_;
  std::unique_ptr<Queue> queue_;
};

TEST_F(MalformedCommands, AreRefusedAndNothingOfTheirListRuns) {
  LaunchCommand launch = Good();
  launch.executable = nullptr;
  Refused(launch, "executable: null");
  for (const int32_t entry : {-1, 1000, INT32_MAX, INT32_MIN}) {
    launch = Good();
    launch.entry = entry;
    Refused(launch, "entry: got " + std::to_string(entry));
  }
  launch = Good();
  launch.tasks = -1;
  Refused(launch, "tasks: got -1");
  launch = Good();
  launch.nanos_estimate = -5;
  Refused(launch, "nanos_estimate");
  for (const int64_t bytes : {int64_t{-1}, kScratchBytesMax + 1, INT64_MAX}) {
    launch = Good();
    launch.scratch_bytes = bytes;
    Refused(launch, "scratch_bytes");
  }
  launch = Good();
  const std::vector<BufferRef> many(kLaunchBuffersMax + 1, buffers_[0]);
  launch.buffers = many;
  Refused(launch, "buffers: got 1025, limit 1024");

  const BufferRef half = Part(counters_, 0, 16);
  Refused(CopyCommand{.source = Ref(counters_), .target = half}, "size_bytes");
  Refused(CopyCommand{.source = half, .target = Part(counters_, 8, 16)}, "overlap");
  Refused(CopyCommand{.source = Part(counters_, 1, 16), .target = half}, "overlap");
  Refused(CopyCommand{.source = {0, 16}, .target = half}, "null");
  Refused(FillCommand{.target = {0, 1}, .value = 0}, "null");
  Refused(FillCommand{.target = {UINT64_MAX - 4, 16}, .value = 0}, "beyond the end of memory");
  Refused(FillCommand{.target = {16, UINT64_MAX - 64}, .value = 0}, "beyond the end of memory");

  Refused(SignalCommand{10}, "value: got 10, must be above 10");
  Refused(SignalCommand{0}, "value: got 0");
  Refused(WaitCommand{.queue = nullptr, .value = 1}, "queue: null");
  Refused(WaitCommand{.queue = queue_.get(), .value = 11}, "its own signal 11");

  EXPECT_EQ(FromDevice<int32_t>(counters_), std::vector<int32_t>(8, 0));
  EXPECT_EQ(queue_->completed(), 10u);
  const Command commands[] = {Good(), SignalCommand{11}};
  Run(*queue_, commands, 11);
  EXPECT_EQ(FromDevice<int32_t>(counters_), std::vector<int32_t>(8, 1));
}

TEST_F(MalformedCommands, IncludeExecutablesOfAnotherDevice) {
  const std::unique_ptr<Device> other = NewDevice();
  const std::shared_ptr<const Executable> foreign = LoadKernels(*other);
  LaunchCommand launch = Good();
  launch.executable = foreign.get();
  Refused(launch, "another device");
}

}  // namespace
}  // namespace stampmill
