// What this process may use of the machine it runs on: its affinity mask, cgroup limits (versions 1
// and 2) and memory. Read anew at each call; nothing is cached.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace stampmill {

// CPUs: the smaller of the affinity mask and the cgroup's quota, rounded up; at least 1.
int32_t UsableCpuCount();

// Bytes: the smaller of the machine's memory and the cgroup's limit.
int64_t UsableMemoryBytes();

// The cgroup limits of this process, read below `root` ("" for the machine's own files; tests give
// a folder with copies of /proc/self/cgroup, /proc/self/mountinfo and the mounted files).
struct CgroupLimits {
  double cpus = 0;           // quota over period; 0: none
  int64_t memory_bytes = 0;  // 0: none
};
CgroupLimits ReadCgroupLimits(absl::string_view root);

}  // namespace stampmill
