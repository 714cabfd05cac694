// Metrics: the daemon's state as Prometheus text: Triton's nv_* names, so that its dashboards work,
// and our own stampmill_*. Nothing is counted here: each scrape reads the counters of the parts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "runtime/memory_budget.h"
#include "server/byte_budget.h"
#include "server/grpc/grpc_acceptor.h"
#include "server/http/http_server.h"
#include "server/language_models.h"
#include "server/serving.h"

namespace stampmill {

struct CacheCounters {
  int64_t hits = 0, misses = 0;
  int64_t corrupt_refused = 0;  // objects and records
  int64_t write_failures = 0;   // likewise
};

// Borrowed parts; all outlive it. Null and empty ones have no metrics.
struct MetricsSources {
  const Serving* serving = nullptr;
  const LanguageModels* language = nullptr;
  const MemoryBudget* memory = nullptr;
  const ByteBudget* inflight = nullptr;
  std::function<HttpServerCounters()> http;
  std::function<ConnectionCounters()> grpc;
  std::function<CacheCounters()> cache;
};

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(MetricsSources sources);

  // The whole text, version 0.0.4 of the format.
  std::string Text();

 private:
  class Writer;
  void WriteModels(Writer& writer);
  void WriteLanguageModels(Writer& writer);  // under vLLM's names
  void WriteHost(Writer& writer);
  void WriteServer(Writer& writer);
  // Share of all processors in use since the last call.
  double CpuUtilization();

  const MetricsSources sources_;
  absl::Mutex mutex_;
  uint64_t busy_ticks_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t all_ticks_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace stampmill
