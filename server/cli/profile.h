// Where a model's time goes: time, operations and bytes of each command of its program, held
// against what the machine can do (runtime/peak.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/tensor.h"
#include "runtime/local_runner.h"
#include "server/cli/table.h"

namespace stampmill {

struct ProfiledCommand {
  std::string label;
  int64_t nanos = 0;
  int64_t flops = 0;  // 0: not known
  int64_t bytes = 0;
};

struct ModelProfile {
  std::vector<ProfiledCommand> commands;
  int64_t total_nanos = 0;
  double peak_flops = 0;      // per second, all threads
  double peak_bandwidth = 0;  // bytes per second, one thread
};

absl::StatusOr<ModelProfile> ProfileModel(LocalRunner& runner, std::span<const Tensor> inputs,
                                          int repeats);

// One row for each command: time, share, GFLOP/s, GB/s, and the part of the roofline it reaches.
Table ProfileTable(const ModelProfile& profile);

// The same as a picture (SVG 1.1): time runs to the right, one box a command under one for the
// model, coloured by the part of the roofline that it reaches; below each, that part as a bar. A
// box has its numbers as a tooltip.
std::string FlameChart(const ModelProfile& profile, absl::string_view title);

// The same as a Chrome trace (chrome://tracing, Perfetto), commands one after the other.
std::string ChromeTrace(const ModelProfile& profile);

}  // namespace stampmill
