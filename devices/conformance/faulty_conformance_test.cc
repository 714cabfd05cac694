// FaultyDevice without faults: it must be as good as the device in it.
#include "base/status_macros.h"
#include "devices/conformance/conformance.h"
#include "devices/cpu/cpu_device.h"
#include "devices/testing/faulty_device.h"
#include "devices/testing/test_kernels.h"

namespace stampmill {

ConformanceBackend ConformanceBackendUnderTest() {
  static FaultPlan* const plan = new FaultPlan;
  return {.create_device = []() -> absl::StatusOr<std::unique_ptr<Device>> {
            ASSIGN_OR_RETURN(std::unique_ptr<Device> device, CreateCpuDevice({.threads = 2}));
            return std::make_unique<FaultyDevice>(std::move(device), plan);
          },
          .kernels = [] { return TestKernels(); },
          .unsupported = {},
          .expected_failures = {}};
}

}  // namespace stampmill
