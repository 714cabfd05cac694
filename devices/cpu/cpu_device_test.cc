// What is the CPU device's own, beyond conformance: where work runs, loading, memory, sharing.
#include "devices/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "devices/limits.h"
#include "devices/testing/test_kernels.h"

namespace stampmill {
namespace {

class CpuDeviceTest : public testing::Test {
 protected:
  void Create(int32_t threads) {
    absl::StatusOr<std::unique_ptr<Device>> device = CreateCpuDevice({.threads = threads});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    absl::StatusOr<Artifact> artifact = TestKernels();
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    absl::StatusOr<std::shared_ptr<const Executable>> kernels = device_->Load(*artifact);
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    kernels_ = *std::move(kernels);
  }

  std::unique_ptr<Queue> NewQueue() { return *device_->CreateQueue(nullptr); }

  LaunchCommand Launch(const char* entry, std::span<const BufferRef> buffers, int64_t tasks) {
    return {.executable = kernels_.get(),
            .entry = *kernels_->FindEntry(entry),
            .buffers = buffers,
            .tasks = tasks};
  }

  template <typename T>
  static BufferRef Ref(std::vector<T>& values) {
    return {reinterpret_cast<uint64_t>(values.data()), values.size() * sizeof(T)};
  }

  std::unique_ptr<Device> device_;
  std::shared_ptr<const Executable> kernels_;
};

TEST_F(CpuDeviceTest, LongWorkDoesNotRunOnTheCaller) {
  Create(1);
  std::unique_ptr<Queue> queue = NewQueue();
  std::vector<int32_t> counters(4), open(1);
  const BufferRef buffers[] = {Ref(counters), Ref(open)};
  // The gate is shut: a Submit that ran this would never return.
  const Command commands[] = {Launch("gate", buffers, 4), SignalCommand{1}};
  ASSERT_TRUE(queue->Submit(commands).ok());
  EXPECT_EQ(queue->completed(), 0u);
  std::atomic_ref(open[0]).store(1);
  EXPECT_TRUE(queue->Synchronize(1).ok());
  EXPECT_EQ(counters, std::vector<int32_t>(4, 1));
}

TEST_F(CpuDeviceTest, ShortWorkRunsInsideSubmitEvenWhenAllWorkersAreBusy) {
  Create(1);
  std::unique_ptr<Queue> busy = NewQueue(), queue = NewQueue();
  std::vector<int32_t> gated(1), open(1), counters(10);
  const BufferRef gate_buffers[] = {Ref(gated), Ref(open)};
  const Command gate[] = {Launch("gate", gate_buffers, 1), SignalCommand{1}};
  ASSERT_TRUE(busy->Submit(gate).ok());

  const BufferRef buffers[] = {Ref(counters)};
  LaunchCommand launch = Launch("count", buffers, 10);
  launch.nanos_estimate = 1000;
  const Command commands[] = {launch, SignalCommand{7}};
  ASSERT_TRUE(queue->Submit(commands).ok());
  EXPECT_EQ(queue->completed(), 7u);
  EXPECT_EQ(counters, std::vector<int32_t>(10, 1));
  EXPECT_EQ(busy->completed(), 0u);
  std::atomic_ref(open[0]).store(1);
  EXPECT_TRUE(busy->Synchronize(1).ok());
}

TEST_F(CpuDeviceTest, ShortWorkBehindLongWorkWaitsItsTurn) {
  Create(2);
  std::unique_ptr<Queue> queue = NewQueue();
  std::vector<int32_t> gated(1), open(1), counters(1);
  const BufferRef gate_buffers[] = {Ref(gated), Ref(open)};
  const Command gate[] = {Launch("gate", gate_buffers, 1), SignalCommand{1}};
  ASSERT_TRUE(queue->Submit(gate).ok());
  const BufferRef buffers[] = {Ref(counters)};
  LaunchCommand launch = Launch("count", buffers, 1);
  launch.nanos_estimate = 1000;
  const Command commands[] = {launch, SignalCommand{2}};
  ASSERT_TRUE(queue->Submit(commands).ok());
  EXPECT_EQ(queue->completed(), 0u);
  EXPECT_EQ(std::atomic_ref(counters[0]).load(), 0);
  std::atomic_ref(open[0]).store(1);
  EXPECT_TRUE(queue->Synchronize(2).ok());
  EXPECT_EQ(counters[0], 1);
}

TEST_F(CpuDeviceTest, OneWorkerGoesRoundBetweenALongAndAShortQueue) {
  Create(1);
  std::unique_ptr<Queue> slow = NewQueue(), quick = NewQueue();
  constexpr int64_t kTasks = 1 << 20;  // half a minute if nothing stops it
  std::vector<int32_t> spun(kTasks), stop(1), counters(64);
  const BufferRef spin_buffers[] = {Ref(spun), Ref(stop)};
  const int64_t rounds[] = {1000};
  LaunchCommand spin = Launch("spin", spin_buffers, kTasks);
  spin.dims = rounds;
  spin.nanos_estimate = kTasks * 30'000;
  const Command spins[] = {spin, SignalCommand{1}};
  ASSERT_TRUE(slow->Submit(spins).ok());
  const BufferRef buffers[] = {Ref(counters)};
  const Command counts[] = {Launch("count", buffers, 64), SignalCommand{1}};
  ASSERT_TRUE(quick->Submit(counts).ok());
  EXPECT_TRUE(quick->Synchronize(1).ok());
  EXPECT_EQ(slow->completed(), 0u);
  std::atomic_ref(stop[0]).store(1);
  EXPECT_TRUE(slow->Synchronize(1).ok());
  EXPECT_EQ(spun, std::vector<int32_t>(kTasks, 1));
}

TEST_F(CpuDeviceTest, WorkThatIsAllOneTaskALaunchYieldsToo) {
  Create(1);
  std::unique_ptr<Queue> slow = NewQueue(), quick = NewQueue();
  std::vector<int32_t> spun(1), stop(1), counters(1);
  const BufferRef spin_buffers[] = {Ref(spun), Ref(stop)};
  const int64_t rounds[] = {10'000};
  LaunchCommand spin = Launch("spin", spin_buffers, 1);
  spin.dims = rounds;
  std::vector<Command> spins(100'000, Command(spin));
  spins.push_back(SignalCommand{1});
  ASSERT_TRUE(slow->Submit(spins).ok());
  const BufferRef buffers[] = {Ref(counters)};
  const Command counts[] = {Launch("count", buffers, 1), SignalCommand{1}};
  ASSERT_TRUE(quick->Submit(counts).ok());
  EXPECT_TRUE(quick->Synchronize(1).ok());
  EXPECT_EQ(slow->completed(), 0u);
  std::atomic_ref(stop[0]).store(1);
  EXPECT_TRUE(slow->Synchronize(1).ok());
  EXPECT_EQ(spun[0], 100'000);
}

TEST_F(CpuDeviceTest, TheSameArtifactLoadsManyTimesAndEachUnloadsAlone) {
  Create(2);
  absl::StatusOr<Artifact> artifact = TestKernels();
  std::vector<std::shared_ptr<const Executable>> loaded;
  for (int i = 0; i < 20; ++i) {
    absl::StatusOr<std::shared_ptr<const Executable>> executable = device_->Load(*artifact);
    ASSERT_TRUE(executable.ok()) << executable.status();
    loaded.push_back(*std::move(executable));
    // Descriptor numbers are reused from here on; the library must not be.
    if (i % 3 == 2) loaded.erase(loaded.begin());
  }
  std::unique_ptr<Queue> queue = NewQueue();
  std::vector<int32_t> counters(1);
  const BufferRef buffers[] = {Ref(counters)};
  std::vector<Command> commands;
  for (const auto& executable : loaded) {
    LaunchCommand launch = Launch("count", buffers, 1);
    launch.executable = executable.get();
    commands.push_back(launch);
  }
  commands.push_back(SignalCommand{1});
  ASSERT_TRUE(queue->Submit(commands).ok());
  EXPECT_TRUE(queue->Synchronize(1).ok());
  EXPECT_EQ(counters[0], static_cast<int32_t>(loaded.size()));
}

TEST_F(CpuDeviceTest, CodeThatIsNotWhatTheArtifactSaysIsRefused) {
  Create(1);
  const auto refused = [&](const absl::StatusOr<Artifact>& artifact, const char* words) {
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    const absl::Status status = device_->Load(*artifact).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(words), std::string::npos) << status;
  };
  refused(TestKernels({.wrong_source_digest = true}), "source digest");
  refused(TestKernels({.next_abi_version = true}), "kernel ABI version: got 2");
  refused(TestKernels({.target = *Target::Parse("cuda:sm_80")}), "target: got cuda:sm_80");
  const std::string text = Artifact::Serialize(Target(), {}, AsBytes("not a library"));
  refused(Artifact::Parse(AsBytes(text), nullptr), "dlopen");
}

TEST_F(CpuDeviceTest, ALowerClassTakesNoHigherCode) {
  absl::StatusOr<std::unique_ptr<Device>> device =
      CreateCpuDevice({.threads = 1, .target = *Target::Parse("cpu:x86-64")});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->info().target.ToString(), "cpu:x86-64");
  const absl::Status status =
      (*device)->Load(*TestKernels({.target = *Target::Parse("cpu:x86-64-v3")})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CpuDeviceTest, OptionsOutOfRangeAreRefused) {
  for (const int32_t threads : {-1, kCpuThreadsMax + 1}) {
    EXPECT_EQ(CreateCpuDevice({.threads = threads}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(CreateCpuDevice({.target = *Target::Parse("npu:xdna1")}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CpuDeviceTest, TheInformationIsOfThisMachine) {
  Create(0);
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.id, "cpu");
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.target, Target::HostCpu());
  EXPECT_GE(info.threads, 1);
  EXPECT_GT(info.memory_bytes, int64_t{64} << 20);
  EXPECT_TRUE(info.host_memory);
  EXPECT_FALSE(info.emulated);
}

TEST_F(CpuDeviceTest, ImportIsInPlace) {
  Create(1);
  std::vector<std::byte> host(100);
  absl::StatusOr<Buffer> buffer = device_->Import(host, true);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->address(), reinterpret_cast<uint64_t>(host.data()));
}

TEST_F(CpuDeviceTest, QueuesBeyondTheLimitAreRefusedUntilOneGoes) {
  Create(1);
  std::vector<std::unique_ptr<Queue>> queues;
  for (int32_t i = 0; i < kCpuQueuesMax; ++i) queues.push_back(NewQueue());
  EXPECT_EQ(device_->CreateQueue(nullptr).status().code(), absl::StatusCode::kResourceExhausted);
  queues.erase(queues.begin() + 77);
  EXPECT_TRUE(device_->CreateQueue(nullptr).ok());
}

}  // namespace
}  // namespace stampmill
