// The fixture of the conformance tests: a device, its kernels, and arrays on it. What a test cannot
// do without is taken with value(), whose exception GoogleTest reports as the failure of that test.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "devices/conformance/conformance.h"
#include "devices/device.h"

namespace stampmill {

class DeviceConformance : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Device& device() { return *device_; }
  // Another device of the backend.
  std::unique_ptr<Device> NewDevice();
  std::shared_ptr<const Executable> LoadKernels(Device& device);
  std::unique_ptr<Queue> NewQueue(Waker* waker = nullptr);

  // A launch of an entry of the test kernels. `buffers` and `dims` are borrowed.
  LaunchCommand Launch(const char* entry, std::span<const BufferRef> buffers, int64_t tasks,
                       std::span<const int64_t> dims = {}, int64_t nanos_estimate = 0);

  // Device memory with a copy of `values`, and back.
  template <typename T>
  Buffer ToDevice(const std::vector<T>& values) {
    std::vector<T> host = values;
    Buffer buffer = Allocate(host.size() * sizeof(T));
    CopyBytes(host.data(), buffer, host.size() * sizeof(T), /*to_device=*/true);
    return buffer;
  }
  template <typename T>
  std::vector<T> FromDevice(const Buffer& buffer) {
    std::vector<T> host(buffer.size_bytes() / sizeof(T));
    CopyBytes(host.data(), buffer, host.size() * sizeof(T), /*to_device=*/false);
    return host;
  }
  Buffer Allocate(size_t size_bytes);
  // Host memory that the device may use; the caller keeps it.
  template <typename T>
  Buffer Import(std::vector<T>& host) {
    return ImportBytes(std::as_writable_bytes(std::span<T>(host)));
  }

  static BufferRef Ref(const Buffer& buffer) { return {buffer.address(), buffer.size_bytes()}; }
  static BufferRef Part(const Buffer& buffer, uint64_t offset, uint64_t size_bytes) {
    return {buffer.address() + offset, size_bytes};
  }

  // Submits the list, waits for its last signal and expects success.
  void Run(Queue& queue, std::span<const Command> commands, uint64_t last_signal);

 private:
  void CopyBytes(void* host, const Buffer& buffer, size_t size_bytes, bool to_device);
  Buffer ImportBytes(std::span<std::byte> host);

  ConformanceBackend backend_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<const Executable> kernels_;
  // Takes the failures of a test that is expected to fail.
  testing::TestPartResultArray failures_;
  std::unique_ptr<testing::ScopedFakeTestPartResultReporter> reporter_;
};

}  // namespace stampmill
