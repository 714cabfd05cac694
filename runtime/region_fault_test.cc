#include "runtime/region_fault.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

class RegionFaultTest : public testing::Test {
 protected:
  RegionFaultTest() {
    path_ = absl::StrCat(testing::TempDir(), "/cut_XXXXXX");
    file_ = FileDescriptor(mkstemp(path_.data()));
    EXPECT_EQ(ftruncate(file_.get(), kBytes), 0);
  }
  ~RegionFaultTest() override { unlink(path_.c_str()); }

  static constexpr int64_t kBytes = 65536;
  std::string path_;
  FileDescriptor file_;
};

TEST_F(RegionFaultTest, AWatchedMappingThatIsCutOffReadsAsZerosAndIsMarked) {
  auto mapping = Mapping::Map(file_, 0, kBytes, Mapping::Access::kReadWrite);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  const std::span<std::byte> bytes = mapping->mutable_bytes();
  bytes[kBytes - 1] = std::byte{1};
  const int32_t place = WatchRegion(bytes);
  ASSERT_GE(place, 0);
  ASSERT_EQ(ftruncate(file_.get(), 0), 0);
  EXPECT_FALSE(RegionFaulted(place));
  EXPECT_EQ(bytes[kBytes - 1], std::byte{0});
  EXPECT_TRUE(RegionFaulted(place));
  UnwatchRegion(place);
}

TEST_F(RegionFaultTest, AFileThatIsCutOffElsewhereIsNamedBeforeTheProcessEnds) {
  const auto mapping = Mapping::Map(file_, 0, kBytes, Mapping::Access::kRead);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  ASSERT_EQ(ftruncate(file_.get(), 0), 0);
  const volatile std::byte* const lost = mapping->bytes().data() + kBytes / 2;
  const std::string name = path_.substr(path_.rfind('/') + 1);
  EXPECT_DEATH(
      {
        HandleBusErrors();
        const std::byte read = *lost;
        _exit(static_cast<int>(read));
      },
      absl::StrCat("cut off while it was in use: /.*", name));
}

}  // namespace
}  // namespace stampmill
