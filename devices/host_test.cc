// Limits of the host: cgroup files of versions 1 and 2 as kernels and container tools lay them out.
#include "devices/host.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"

namespace stampmill {
namespace {

class HostTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(testing::TempDir(), "/",
                         testing::UnitTest::GetInstance()->current_test_info()->name());
  }

  void Put(const std::string& path, const std::string& text) {
    const std::string whole = root_ + path;
    ASSERT_TRUE(MakeDirectories(whole.substr(0, whole.rfind('/'))).ok());
    ASSERT_TRUE(AtomicReplaceFile(whole, AsBytes(text)).ok());
  }

  std::string root_;
};

TEST_F(HostTest, ThisProcessMayUseSomething) {
  EXPECT_GE(UsableCpuCount(), 1);
  EXPECT_GT(UsableMemoryBytes(), int64_t{16} << 20);
}

TEST_F(HostTest, NoFilesAreNoLimits) {
  const CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_EQ(limits.cpus, 0);
  EXPECT_EQ(limits.memory_bytes, 0);
}

TEST_F(HostTest, Version2TakesTheLowestLimitOnTheWayUp) {
  Put("/proc/self/cgroup", "0::/kubepods/pod7/box\n");
  Put("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
  Put("/sys/fs/cgroup/kubepods/pod7/box/cpu.max", "max 100000\n");
  Put("/sys/fs/cgroup/kubepods/pod7/box/memory.max", "max\n");
  Put("/sys/fs/cgroup/kubepods/pod7/cpu.max", "150000 100000\n");
  Put("/sys/fs/cgroup/kubepods/pod7/memory.max", "1073741824\n");
  Put("/sys/fs/cgroup/kubepods/cpu.max", "800000 100000\n");
  Put("/sys/fs/cgroup/kubepods/memory.max", "2147483648\n");
  const CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_bytes, int64_t{1} << 30);
}

TEST_F(HostTest, Version2InANamespaceOfItsOwn) {
  Put("/proc/self/cgroup", "0::/\n");
  Put("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate\n");
  Put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(ReadCgroupLimits(root_).cpus, 4);
}

TEST_F(HostTest, Version1InAContainerWhoseMountShowsItsOwnSubtree) {
  Put("/proc/self/cgroup",
      "7:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n");
  Put("/proc/self/mountinfo",
      "50 40 0:31 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:13 - cgroup cgroup "
      "rw,cpu,cpuacct\n"
      "51 40 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
      "52 40 0:33 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n");
  Put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
  Put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
  const CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_EQ(limits.cpus, 2.5);
  EXPECT_EQ(limits.memory_bytes, int64_t{512} << 20);
}

TEST_F(HostTest, Version1WithoutAQuotaHasNone) {
  Put("/proc/self/cgroup", "4:cpu:/a/b\n");
  Put("/proc/self/mountinfo", "50 40 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  Put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  Put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadCgroupLimits(root_).cpus, 0);
}

TEST_F(HostTest, FilesThatMakeNoSenseAreNoLimits) {
  Put("/proc/self/cgroup", "0::/x\nnonsense\n::\n:\n0::../../..\n");
  Put("/proc/self/mountinfo", "- - -\n1 2 3\n30 23 0:26 / /g rw - cgroup2 x rw\n x - y - z\n\n");
  Put("/g/x/cpu.max", "many 0\n");
  Put("/g/x/memory.max", "-5\n");
  const CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_EQ(limits.cpus, 0);
  EXPECT_EQ(limits.memory_bytes, 0);
}

}  // namespace
}  // namespace stampmill
