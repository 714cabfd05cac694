#include "runtime/huge_pages.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

// Kernels may be built without them.
bool SystemHasHugePages() {
  return access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0;
}

constexpr size_t kWords = (size_t{37} << 20) / sizeof(uint64_t) + 5;

Mapping MapNumbers() {
  const std::string path = testing::TempDir() + "/numbers";
  std::vector<uint64_t> numbers(kWords);
  for (size_t i = 0; i < kWords; ++i) numbers[i] = i * 0x9e3779b97f4a7c15u;
  EXPECT_TRUE(AtomicReplaceFile(path, std::as_bytes(std::span(numbers))).ok());
  absl::StatusOr<Mapping> mapping = Mapping::File(path);
  EXPECT_TRUE(mapping.ok()) << mapping.status();
  return *std::move(mapping);
}

bool HoldsNumbers(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < kWords; ++i) {
    uint64_t number;
    std::memcpy(&number, bytes.data() + i * sizeof(number), sizeof(number));
    if (number != i * 0x9e3779b97f4a7c15u) return false;
  }
  return true;
}

TEST(HugePageMoveTest, ReadersSeeTheSameBytesBeforeWhileAndAfter) {
  const Mapping mapping = MapNumbers();
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0}, passes{0};
  std::vector<std::thread> readers;
  for (int n = 0; n < 2; ++n) {
    readers.emplace_back([&] {
      do {
        wrong += HoldsNumbers(mapping.bytes()) ? 0 : 1;
        ++passes;
      } while (!done.load());
    });
  }
  HugePageMove move(mapping.bytes());
  move.Wait();
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GE(passes.load(), 2);
  EXPECT_GE(move.moved_bytes(), SystemHasHugePages() ? size_t{32} << 20 : 0);
  EXPECT_TRUE(HoldsNumbers(mapping.bytes()));
}

TEST(HugePageMoveTest, MovedMemoryNoLongerDependsOnItsFile) {
  if (!SystemHasHugePages()) GTEST_SKIP() << "the system has no huge pages";
  const std::string path = testing::TempDir() + "/cut";
  const std::vector<std::byte> bytes(size_t{8} << 20, std::byte{7});
  ASSERT_TRUE(AtomicReplaceFile(path, bytes).ok());
  const Mapping mapping = *Mapping::File(path);
  HugePageMove move(mapping.bytes());
  move.Wait();
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  EXPECT_EQ(mapping.bytes()[size_t{4} << 20], std::byte{7});
}

TEST(HugePageMoveTest, LessThanAHugePageStaysWhereItIs) {
  const std::vector<std::byte> bytes(100, std::byte{7});
  HugePageMove move(bytes);
  move.Wait();
  EXPECT_EQ(move.moved_bytes(), 0u);
}

TEST(HugePageMoveTest, CanBeGivenUpAtAnyTime) {
  for (int n = 0; n < 5; ++n) {
    const Mapping mapping = MapNumbers();
    {
      HugePageMove move(mapping.bytes());
    }
    EXPECT_TRUE(HoldsNumbers(mapping.bytes()));
  }
}

}  // namespace
}  // namespace stampmill
