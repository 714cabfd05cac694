#include "server/metrics.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "server/testing/serving_fixture.h"

namespace stampmill {
namespace {

TEST(MetricsTest, IsValidTextWithAllFamilies) {
  ServingFixture fixture;
  ByteBudget budget(1000);
  MemoryBudget memory("cpu", 5000);
  Metrics metrics({.serving = fixture.serving.get(),
                   .memory = &memory,
                   .inflight = &budget,
                   .http = [] { return HttpServerCounters{.connections = 3}; },
                   .grpc =
                       [] {
                         return ConnectionCounters{.connections_refused = 12345678,
                                                   .clients_too_slow = 7};
                       },
                   .cache = [] { return CacheCounters{.hits = 1, .misses = 2}; }});
  const std::string text = metrics.Text();
  for (const char* line :
       {"nv_inference_request_success{model=\"add\",version=\"1\"} 0\n",
        "nv_inference_request_failure{model=\"add\",version=\"1\",reason=\"REJECTED\"} 0\n",
        "nv_inference_pending_request_count{model=\"add\",version=\"1\"} 0\n",
        "nv_pinned_memory_pool_total_bytes 4194304\n", "stampmill_ready 1\n",
        "stampmill_connections{protocol=\"http\"} 3\n",
        "stampmill_connections_refused_total{protocol=\"grpc\"} 12345678\n",
        "stampmill_slow_clients_closed_total{protocol=\"grpc\"} 7\n",
        "stampmill_kernel_cache_misses_total 2\n", "stampmill_memory_budget_bytes 5000\n",
        "# TYPE nv_inference_count counter\n", "stampmill_bytes_copied_total"}) {
    EXPECT_TRUE(absl::StrContains(text, line)) << line << "\n" << text;
  }
  const absl::string_view load = "nv_model_load_duration_secs{model=\"add\",version=\"1\"} ";
  const size_t place = text.find(std::string(load));
  ASSERT_NE(place, text.npos);
  double seconds = 0;
  EXPECT_TRUE(absl::SimpleAtod(
      text.substr(place + load.size(), text.find('\n', place) - place - load.size()), &seconds));
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 60);
  // Each line is a comment, or a name and a number.
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "# HELP ") || absl::StartsWith(line, "# TYPE ")) continue;
    const size_t space = line.rfind(' ');
    ASSERT_NE(space, line.npos) << line;
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(space + 1), &value)) << line;
  }
}

}  // namespace
}  // namespace stampmill
