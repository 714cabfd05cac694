// The list of expected failures itself: a device that fails a test on that list passes the suite.
#include "absl/status/status.h"
#include "base/status_macros.h"
#include "devices/conformance/conformance.h"
#include "devices/cpu/cpu_device.h"
#include "devices/testing/faulty_device.h"
#include "devices/testing/test_kernels.h"

namespace stampmill {

ConformanceBackend ConformanceBackendUnderTest() {
  static FaultPlan* const plan = new FaultPlan;
  return {.create_device = []() -> absl::StatusOr<std::unique_ptr<Device>> {
            ASSIGN_OR_RETURN(std::unique_ptr<Device> device, CreateCpuDevice({.threads = 1}));
            // A wrong code for the first test, an exception in the second.
            plan->FailNth(FaultyOperation::kAllocate, 1, absl::UnavailableError("planned"));
            return std::make_unique<FaultyDevice>(std::move(device), plan);
          },
          .kernels = [] { return TestKernels(); },
          .unsupported = {{"ACopyOntoItselfChangesNothing", "to be skipped here"}},
          .expected_failures = {{"AnImpossibleAllocationIsRefusedAndLaterOnesWork", "planned"},
                                {"FillSetsEveryByteAndNoOther", "planned"}}};
}

}  // namespace stampmill
