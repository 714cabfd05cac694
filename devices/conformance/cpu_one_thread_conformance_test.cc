// The CPU device with a single worker, which all queues share.
#include "devices/conformance/conformance.h"
#include "devices/cpu/cpu_device.h"
#include "devices/testing/test_kernels.h"

namespace stampmill {

ConformanceBackend ConformanceBackendUnderTest() {
  return {.create_device = [] { return CreateCpuDevice({.threads = 1}); },
          .kernels = [] { return TestKernels(); },
          .unsupported = {},
          .expected_failures = {}};
}

}  // namespace stampmill
