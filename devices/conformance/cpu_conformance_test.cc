// The CPU device under the conformance suite. Four workers on whatever cores there are: more than
// two cores have, so that preempted workers are part of the test.
#include "devices/conformance/conformance.h"
#include "devices/cpu/cpu_device.h"
#include "devices/testing/test_kernels.h"

namespace stampmill {

ConformanceBackend ConformanceBackendUnderTest() {
  return {.create_device = [] { return CreateCpuDevice({.threads = 4}); },
          .kernels = [] { return TestKernels(); },
          .unsupported = {},
          .expected_failures = {}};
}

}  // namespace stampmill
