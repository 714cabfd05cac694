// Conformance: memory, import, copies and fills.
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "devices/conformance/fixture.h"

namespace stampmill {
namespace {

std::vector<uint8_t> Pattern(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = 12345;
  for (uint8_t& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

TEST_F(DeviceConformance, AllocatedMemoryIsAlignedAndKeepsWhatIsWritten) {
  for (const size_t size : {1, 63, 64, 65, 4095, 262'143, 262'144, 1 << 20, 5'000'001}) {
    const std::vector<uint8_t> pattern = Pattern(size);
    const Buffer buffer = ToDevice(pattern);
    EXPECT_TRUE(buffer.valid());
    EXPECT_EQ(buffer.device(), &device());
    EXPECT_EQ(buffer.size_bytes(), size);
    EXPECT_EQ(buffer.address() % 64, 0u);
    EXPECT_EQ(FromDevice<uint8_t>(buffer), pattern) << size;
  }
}

TEST_F(DeviceConformance, AllocationsDoNotOverlap) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 100; ++i) {
    buffers.push_back(ToDevice(std::vector<uint8_t>(1 + i * 37, static_cast<uint8_t>(i))));
  }
  for (int i = 0; i < 100; i += 3) buffers[i] = Buffer();
  for (int i = 0; i < 100; ++i) {
    if (i % 3 == 0) continue;
    EXPECT_EQ(FromDevice<uint8_t>(buffers[i]),
              std::vector<uint8_t>(1 + i * 37, static_cast<uint8_t>(i)));
  }
}

TEST_F(DeviceConformance, NothingCanBeAllocatedAndImported) {
  EXPECT_TRUE(Allocate(0).valid());
  std::vector<uint8_t> nothing;
  EXPECT_TRUE(Import(nothing).valid());
}

TEST_F(DeviceConformance, AnImpossibleAllocationIsRefusedAndLaterOnesWork) {
  for (const size_t size : {SIZE_MAX, SIZE_MAX - 63, size_t{1} << 60}) {
    EXPECT_EQ(device().Allocate(size).status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_TRUE(Allocate(1000).valid());
}

TEST_F(DeviceConformance, AMovedBufferKeepsItsMemory) {
  const std::vector<uint8_t> pattern = Pattern(1000);
  Buffer first = ToDevice(pattern);
  const uint64_t address = first.address();
  Buffer second = std::move(first);
  EXPECT_FALSE(first.valid());
  EXPECT_EQ(second.address(), address);
  Buffer third = Allocate(10);
  third = std::move(second);
  EXPECT_FALSE(second.valid());
  Buffer& itself = third;
  third = std::move(itself);
  EXPECT_EQ(third.address(), address);
  EXPECT_EQ(FromDevice<uint8_t>(third), pattern);
}

TEST_F(DeviceConformance, ImportedMemoryIsReadAndWrittenByKernels) {
  std::vector<int32_t> in(1001), out(1001);
  std::iota(in.begin(), in.end(), 0);
  {
    const Buffer in_buffer = Import(in), out_buffer = Import(out);
    const BufferRef buffers[] = {Ref(in_buffer), Ref(out_buffer)};
    const int64_t dims[] = {1001, 7, 100};
    const Command commands[] = {Launch("add", buffers, 11, dims), SignalCommand{1}};
    Run(*NewQueue(), commands, 1);
  }
  for (int32_t i = 0; i < 1001; ++i) ASSERT_EQ(out[i], i + 7);
}

TEST_F(DeviceConformance, CopiesMoveBytesOfAnySizeAndAlignment) {
  constexpr size_t kSize = 3'000'000;
  const std::vector<uint8_t> pattern = Pattern(kSize);
  const Buffer source = ToDevice(pattern);
  std::unique_ptr<Queue> queue = NewQueue();
  uint64_t signal = 0;
  for (const size_t size : {0, 1, 7, 64, 1000, 262'144, 262'145, 2'500'000}) {
    for (const size_t offset : {0, 1, 33}) {
      const Buffer target = ToDevice(std::vector<uint8_t>(kSize, 0xee));
      const Command commands[] = {CopyCommand{.source = Part(source, offset, size),
                                              .target = Part(target, 2 * offset, size)},
                                  SignalCommand{++signal}};
      Run(*queue, commands, signal);
      std::vector<uint8_t> expected(kSize, 0xee);
      std::copy_n(pattern.begin() + offset, size, expected.begin() + 2 * offset);
      ASSERT_TRUE(FromDevice<uint8_t>(target) == expected) << size << " at " << offset;
    }
  }
}

TEST_F(DeviceConformance, ACopyOntoItselfChangesNothing) {
  const std::vector<uint8_t> pattern = Pattern(1000);
  const Buffer buffer = ToDevice(pattern);
  const Command commands[] = {CopyCommand{Ref(buffer), Ref(buffer)}, SignalCommand{1}};
  Run(*NewQueue(), commands, 1);
  EXPECT_EQ(FromDevice<uint8_t>(buffer), pattern);
}

TEST_F(DeviceConformance, FillSetsEveryByteAndNoOther) {
  std::unique_ptr<Queue> queue = NewQueue();
  uint64_t signal = 0;
  for (const size_t size : {0, 1, 63, 1000, 262'145, 1'000'003}) {
    const size_t whole = size + 100;
    const Buffer buffer = ToDevice(std::vector<uint8_t>(whole, 1));
    const Command commands[] = {FillCommand{.target = Part(buffer, 33, size), .value = 0xab},
                                SignalCommand{++signal}};
    Run(*queue, commands, signal);
    std::vector<uint8_t> expected(whole, 1);
    std::fill_n(expected.begin() + 33, size, 0xab);
    ASSERT_TRUE(FromDevice<uint8_t>(buffer) == expected) << size;
  }
}

}  // namespace
}  // namespace stampmill
