#include "runtime/peak.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "absl/strings/match.h"

namespace stampmill {
namespace {

// Twelve independent sums hide the latency of a multiply-add (4 to 5 cycles, two a cycle).
constexpr int kSums = 12;
constexpr int64_t kSteps = 20000;

template <typename Vector>
__attribute__((always_inline)) inline float MultiplyAdds(float seed) {
#pragma clang fp contract(fast)
  Vector sums[kSums];
  Vector factor, term;
  for (size_t lane = 0; lane < sizeof(Vector) / sizeof(float); ++lane) {
    factor[lane] = 1 - seed * 1e-3f;
    term[lane] = seed;
  }
  for (int i = 0; i < kSums; ++i) sums[i] = term * static_cast<float>(i);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma clang loop unroll(full)
    for (int i = 0; i < kSums; ++i) sums[i] = sums[i] * factor + term;
  }
  Vector total = sums[0];
  for (int i = 1; i < kSums; ++i) total += sums[i];
  return total[0];
}

typedef float V4 __attribute__((vector_size(16)));
typedef float V8 __attribute__((vector_size(32)));
typedef float V16 __attribute__((vector_size(64)));

float LoopSse(float seed) { return MultiplyAdds<V4>(seed); }
__attribute__((target("avx2,fma"))) float LoopAvx2(float seed) { return MultiplyAdds<V8>(seed); }
__attribute__((target("avx512f,avx512vl"))) float LoopAvx512(float seed) {
  return MultiplyAdds<V16>(seed);
}

int64_t NowNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The most of `amount` done per second by one call of `work`, over calls for about `nanos`.
template <typename Work>
double BestRate(double amount, int64_t nanos, Work work) {
  double best = 0;
  const int64_t end = NowNanos() + nanos;
  do {
    const int64_t start = NowNanos();
    work();
    const int64_t took = std::max<int64_t>(NowNanos() - start, 1);
    best = std::max(best, amount * 1e9 / static_cast<double>(took));
  } while (NowNanos() < end);
  return best;
}

volatile float float_sink;
volatile uint64_t integer_sink;

}  // namespace

double MeasurePeakFlops(absl::string_view cpu_class, int64_t nanos) {
  const bool wide = absl::StartsWith(cpu_class, "x86-64-v4");
  const bool middle = absl::StartsWith(cpu_class, "x86-64-v3");
  const double lanes = wide ? 16 : middle ? 8 : 4;
  float (*loop)(float) = wide ? LoopAvx512 : middle ? LoopAvx2 : LoopSse;
  return BestRate(2.0 * lanes * kSums * kSteps, nanos, [loop] { float_sink = loop(0.5f); });
}

double MeasureReadBandwidth(int64_t nanos) {
  constexpr size_t kWords = size_t{32} << 20;  // 256 MiB
  std::vector<uint64_t> memory(kWords, 1);
  return BestRate(8.0 * kWords, nanos, [&memory] {
    uint64_t sums[8] = {};
    for (size_t i = 0; i < memory.size(); i += 8) {
      for (size_t j = 0; j < 8; ++j) sums[j] += memory[i + j];
    }
    integer_sink = sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
  });
}

}  // namespace stampmill
