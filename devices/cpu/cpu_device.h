// The CPU device: host memory in place, kernels loaded from shared objects, and workers that all
// queues share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "devices/device.h"
#include "devices/target.h"

namespace stampmill {

struct CpuDeviceOptions {
  int32_t threads = 0;  // workers; 0: as many CPUs as the process may use
  std::optional<Target>
      target;  // class of code it takes, the host's or a lower one; empty: the host's
};

// INVALID_ARGUMENT for a count out of range or a target that this machine cannot run,
// RESOURCE_EXHAUSTED without threads.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options);

}  // namespace stampmill
