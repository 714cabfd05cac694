// The conformance suite: what every Device must do, compiled once and linked to each backend.
//
// A backend joins with a test target that depends on :suite and defines
// ConformanceBackendUnderTest. What it can never do goes in `unsupported`, what it does not do yet
// in `expected_failures`: a test there must fail, and fails when it passes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/artifact.h"
#include "devices/device.h"

namespace stampmill {

struct ConformanceException {
  std::string test;    // its name, such as "FillSetsEveryByte"
  std::string reason;  // one sentence
};

struct ConformanceBackend {
  // A fresh device. UNAVAILABLE: the hardware is absent and the tests skip; other errors fail them.
  std::function<absl::StatusOr<std::unique_ptr<Device>>()> create_device;
  // Kernels for it with the entries that devices/testing/test_kernels.h lists.
  std::function<absl::StatusOr<Artifact>()> kernels;
  std::vector<ConformanceException> unsupported;
  std::vector<ConformanceException> expected_failures;
};

// Defined by the backend's test.
ConformanceBackend ConformanceBackendUnderTest();

}  // namespace stampmill
