// In steady state no thread of the CPU device, and no Submit, allocates. This program counts every
// operator new of the process; tests in it must not run beside others that allocate.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "devices/testing/test_kernels.h"

namespace {
std::atomic<int64_t> allocations{0};

void* Count(void* memory) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (memory == nullptr) abort();
  return memory;
}
}  // namespace

void* operator new(size_t size) { return Count(malloc(size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  const size_t unit = static_cast<size_t>(alignment);
  return Count(aligned_alloc(unit, (size + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free(memory); }

namespace stampmill {
namespace {

TEST(CpuAllocationTest, SteadyWorkAllocatesNothing) {
  const std::unique_ptr<Device> device = CreateCpuDevice({.threads = 2}).value();
  const std::shared_ptr<const Executable> kernels = device->Load(TestKernels().value()).value();
  Waker waker;
  const std::unique_ptr<Queue> first = device->CreateQueue(&waker).value();
  const std::unique_ptr<Queue> second = device->CreateQueue(&waker).value();

  std::vector<int32_t> counters(64);
  std::vector<std::byte> source(1 << 20), target(1 << 20);
  const BufferRef buffers[] = {
      {reinterpret_cast<uint64_t>(counters.data()), counters.size() * sizeof(int32_t)}};
  const int64_t scratch[] = {4096};
  LaunchCommand launch = {.executable = kernels.get(),
                          .entry = kernels->FindEntry("scratch").value(),
                          .buffers = buffers,
                          .dims = scratch,
                          .tasks = 64,
                          .scratch_bytes = 4096};
  LaunchCommand quick = launch;
  quick.nanos_estimate = 1000;
  const CopyCommand copy = {{reinterpret_cast<uint64_t>(source.data()), source.size()},
                            {reinterpret_cast<uint64_t>(target.data()), target.size()}};

  int64_t before = 0;
  constexpr uint64_t kWarmUp = 200, kRounds = 2000;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    if (round == kWarmUp) before = allocations.load();
    const Command on_caller[] = {quick, quick, SignalCommand{2 * round - 1}};
    const Command on_workers[] = {launch, copy, launch, SignalCommand{2 * round}};
    const Command waits[] = {WaitCommand{first.get(), 2 * round}, quick, SignalCommand{round}};
    ASSERT_TRUE(first->Submit(on_caller).ok());
    ASSERT_TRUE(second->Submit(waits).ok());
    ASSERT_TRUE(first->Submit(on_workers).ok());
    ASSERT_TRUE(second->Synchronize(round).ok());
  }
  EXPECT_EQ(allocations.load() - before, 0);
}

}  // namespace
}  // namespace stampmill
