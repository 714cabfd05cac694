#include "devices/conformance/fixture.h"

#include <utility>

namespace stampmill {
namespace {

const ConformanceException* Find(const std::vector<ConformanceException>& list,
                                 const std::string& test) {
  for (const ConformanceException& exception : list) {
    if (exception.test == test) return &exception;
  }
  return nullptr;
}

}  // namespace

void DeviceConformance::SetUp() {
  backend_ = ConformanceBackendUnderTest();
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  if (const auto* unsupported = Find(backend_.unsupported, test)) {
    GTEST_SKIP() << "unsupported: " << unsupported->reason;
  }
  absl::StatusOr<std::unique_ptr<Device>> device = backend_.create_device();
  if (device.status().code() == absl::StatusCode::kUnavailable) {
    GTEST_SKIP() << device.status();
  }
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  kernels_ = LoadKernels(*device_);
  if (Find(backend_.expected_failures, test) != nullptr) {
    reporter_ = std::make_unique<testing::ScopedFakeTestPartResultReporter>(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures_);
  }
}

void DeviceConformance::TearDown() {
  kernels_.reset();
  device_.reset();
  if (reporter_ == nullptr) return;
  reporter_.reset();
  bool failed = false;
  for (int i = 0; i < failures_.size(); ++i) failed |= failures_.GetTestPartResult(i).failed();
  EXPECT_TRUE(failed) << "an expected failure passed: take it off the list";
}

std::unique_ptr<Device> DeviceConformance::NewDevice() {
  absl::StatusOr<std::unique_ptr<Device>> device = backend_.create_device();
  EXPECT_TRUE(device.ok()) << device.status();
  return std::move(device).value();
}

std::shared_ptr<const Executable> DeviceConformance::LoadKernels(Device& device) {
  absl::StatusOr<Artifact> artifact = backend_.kernels();
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  absl::StatusOr<std::shared_ptr<const Executable>> kernels = device.Load(*artifact);
  EXPECT_TRUE(kernels.ok()) << kernels.status();
  return std::move(kernels).value();
}

std::unique_ptr<Queue> DeviceConformance::NewQueue(Waker* waker) {
  absl::StatusOr<std::unique_ptr<Queue>> queue = device().CreateQueue(waker);
  EXPECT_TRUE(queue.ok()) << queue.status();
  return std::move(queue).value();
}

LaunchCommand DeviceConformance::Launch(const char* entry, std::span<const BufferRef> buffers,
                                        int64_t tasks, std::span<const int64_t> dims,
                                        int64_t nanos_estimate) {
  absl::StatusOr<int32_t> index = kernels_->FindEntry(entry);
  EXPECT_TRUE(index.ok()) << index.status();
  return {.executable = kernels_.get(),
          .entry = *index,
          .buffers = buffers,
          .dims = dims,
          .tasks = tasks,
          .nanos_estimate = nanos_estimate};
}

Buffer DeviceConformance::Allocate(size_t size_bytes) {
  absl::StatusOr<Buffer> buffer = device().Allocate(size_bytes);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return std::move(buffer).value();
}

Buffer DeviceConformance::ImportBytes(std::span<std::byte> host) {
  absl::StatusOr<Buffer> buffer = device().Import(host, /*writable=*/true);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return std::move(buffer).value();
}

void DeviceConformance::CopyBytes(void* host, const Buffer& buffer, size_t size_bytes,
                                  bool to_device) {
  const Buffer imported = ImportBytes({static_cast<std::byte*>(host), size_bytes});
  const BufferRef there = Part(buffer, 0, size_bytes);
  const Command commands[] = {CopyCommand{.source = to_device ? Ref(imported) : there,
                                          .target = to_device ? there : Ref(imported)},
                              SignalCommand{1}};
  Run(*NewQueue(), commands, 1);
}

void DeviceConformance::Run(Queue& queue, std::span<const Command> commands, uint64_t last_signal) {
  const absl::Status submitted = queue.Submit(commands);
  ASSERT_TRUE(submitted.ok()) << submitted;
  const absl::Status status = queue.Synchronize(last_signal);
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace stampmill
