// Latency of repeated runs, as percentiles.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/tensor.h"
#include "runtime/local_runner.h"

namespace stampmill {

struct Latency {
  int64_t runs = 0;
  double p25_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double min_us = 0;
  double mean_us = 0;
};

// Of single runs; of none, zeros.
Latency LatencyOf(std::span<const int64_t> nanos);

// Runs the model `repeats` times after `warmups` that are not counted, into the same outputs.
absl::StatusOr<Latency> MeasureLatency(LocalRunner& runner, std::span<const Tensor> inputs,
                                       int warmups, int repeats);

// REQUIRES: not empty. The value below which that part of the samples lies (nearest rank).
double Percentile(std::vector<int64_t> samples, double part);

}  // namespace stampmill
