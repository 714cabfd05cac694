#include "devices/host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"

namespace stampmill {
namespace {

// Text of a small file, nothing if it cannot be read: the kernel may be built without it.
std::string TextOf(absl::string_view path) {
  absl::StatusOr<std::string> text = ReadFile(path, uint64_t{1} << 20);
  return text.ok() ? *std::move(text) : std::string();
}

std::optional<int64_t> NumberIn(absl::string_view path) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(TextOf(path)), &number)) return std::nullopt;
  return number;
}

void Lower(double cpus, CgroupLimits* limits) {
  if (cpus > 0 && (limits->cpus == 0 || cpus < limits->cpus)) limits->cpus = cpus;
}

void LowerMemory(int64_t bytes, CgroupLimits* limits) {
  if (bytes > 0 && (limits->memory_bytes == 0 || bytes < limits->memory_bytes)) {
    limits->memory_bytes = bytes;
  }
}

// A mounted hierarchy: which subtree is mounted where, and what it controls.
struct CgroupMount {
  std::string root;
  std::string point;
  bool version2 = false;
  std::vector<std::string> options;
};

// Lines of mountinfo: "36 35 0:30 / /sys/fs/cgroup/cpu rw,... - cgroup cgroup rw,cpu,cpuacct".
std::vector<CgroupMount> ReadMounts(absl::string_view root) {
  std::vector<CgroupMount> mounts;
  for (const absl::string_view line :
       absl::StrSplit(TextOf(absl::StrCat(root, "/proc/self/mountinfo")), '\n')) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> before = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> after = absl::StrSplit(halves.second, ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    if (after[0] != "cgroup2" && after[0] != "cgroup") continue;
    mounts.push_back({.root = std::string(before[3]),
                      .point = std::string(before[4]),
                      .version2 = after[0] == "cgroup2",
                      .options = absl::StrSplit(after[2], ',')});
  }
  return mounts;
}

void ReadFolder(absl::string_view folder, bool version2, CgroupLimits* limits) {
  if (version2) {
    // "max 100000" or "150000 100000".
    const std::vector<std::string> words =
        absl::StrSplit(TextOf(absl::StrCat(folder, "/cpu.max")), absl::ByAnyChar(" \n"));
    double quota = 0, period = 0;
    if (words.size() >= 2 && absl::SimpleAtod(words[0], &quota) &&
        absl::SimpleAtod(words[1], &period) && period > 0) {
      Lower(quota / period, limits);
    }
    LowerMemory(NumberIn(absl::StrCat(folder, "/memory.max")).value_or(0), limits);
    return;
  }
  const int64_t quota = NumberIn(absl::StrCat(folder, "/cpu.cfs_quota_us")).value_or(-1);
  const int64_t period = NumberIn(absl::StrCat(folder, "/cpu.cfs_period_us")).value_or(0);
  if (quota > 0 && period > 0) Lower(static_cast<double>(quota) / period, limits);
  LowerMemory(NumberIn(absl::StrCat(folder, "/memory.limit_in_bytes")).value_or(0), limits);
}

// A limit anywhere between the process's group and the top of what is mounted holds.
void ReadHierarchy(absl::string_view root, const CgroupMount& mount, absl::string_view group,
                   CgroupLimits* limits) {
  // In a container the mount may show a subtree only; a group outside it is seen from its top.
  absl::string_view path = group;
  if (mount.root != "/" && !absl::ConsumePrefix(&path, mount.root)) path = "";
  for (;;) {
    ReadFolder(absl::StrCat(root, mount.point, path), mount.version2, limits);
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == absl::string_view::npos) return;
    path = path.substr(0, slash);
  }
}

}  // namespace

CgroupLimits ReadCgroupLimits(absl::string_view root) {
  CgroupLimits limits;
  const std::vector<CgroupMount> mounts = ReadMounts(root);
  // Lines "0::/user.slice" (version 2) and "4:cpu,cpuacct:/docker/1234" (version 1).
  for (const absl::string_view line :
       absl::StrSplit(TextOf(absl::StrCat(root, "/proc/self/cgroup")), '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const bool version2 = fields[1].empty();
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    for (const CgroupMount& mount : mounts) {
      const bool ours =
          mount.version2 == version2 &&
          (version2 || std::any_of(controllers.begin(), controllers.end(), [&](const auto& name) {
             return (name == "cpu" || name == "memory") &&
                    std::count(mount.options.begin(), mount.options.end(), name) > 0;
           }));
      if (ours) ReadHierarchy(root, mount, fields[2], &limits);
    }
  }
  return limits;
}

int32_t UsableCpuCount() {
  // The mask of a machine with more than 1024 CPUs does not fit cpu_set_t: the call fails then.
  int32_t count = 0;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) count = CPU_COUNT(&mask);
  if (count <= 0) count = static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  const double quota = ReadCgroupLimits("").cpus;
  if (quota > 0 && quota < count) count = static_cast<int32_t>(std::ceil(quota));
  return std::max(count, 1);
}

int64_t UsableMemoryBytes() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const int64_t limit = ReadCgroupLimits("").memory_bytes;
  return limit > 0 ? std::min(machine, limit) : machine;
}

}  // namespace stampmill
