#include "server/cli/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/status_macros.h"

namespace stampmill {

double Percentile(std::vector<int64_t> samples, double part) {
  CHECK(!samples.empty());
  const double rank = std::ceil(part * static_cast<double>(samples.size())) - 1;
  const auto at = samples.begin() + static_cast<ptrdiff_t>(std::max(rank, 0.0));
  std::nth_element(samples.begin(), at, samples.end());
  return static_cast<double>(*at);
}

Latency LatencyOf(std::span<const int64_t> nanos) {
  if (nanos.empty()) return Latency{};
  const std::vector<int64_t> samples(nanos.begin(), nanos.end());
  const auto runs = static_cast<int64_t>(samples.size());
  const double total =
      static_cast<double>(std::accumulate(samples.begin(), samples.end(), int64_t{0}));
  return Latency{
      .runs = runs,
      .p25_us = Percentile(samples, 0.25) / 1e3,
      .p50_us = Percentile(samples, 0.50) / 1e3,
      .p99_us = Percentile(samples, 0.99) / 1e3,
      .min_us = static_cast<double>(*std::min_element(samples.begin(), samples.end())) / 1e3,
      .mean_us = total / static_cast<double>(runs) / 1e3,
  };
}

absl::StatusOr<Latency> MeasureLatency(LocalRunner& runner, std::span<const Tensor> inputs,
                                       int warmups, int repeats) {
  ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, runner.Run(inputs));
  for (int i = 0; i < warmups; ++i) RETURN_IF_ERROR(runner.RunAgain(inputs, outputs));
  std::vector<int64_t> nanos;
  nanos.reserve(static_cast<size_t>(repeats));
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(runner.RunAgain(inputs, outputs));
    nanos.push_back((std::chrono::steady_clock::now() - start).count());
  }
  return LatencyOf(nanos);
}

}  // namespace stampmill
