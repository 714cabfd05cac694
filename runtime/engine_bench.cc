// What the runtime adds to a request: the round trip of a small one through the engine's thread and
// back, and the same without the thread.
#include <vector>

#include "base/check.h"
#include "benchmark/benchmark.h"
#include "runtime/served_model.h"
#include "runtime/testing/engine_fixture.h"

namespace stampmill {
namespace {

const std::vector<int32_t>& Input() {
  static const std::vector<int32_t> values(16, 1);
  return values;
}

void RoundTrip(benchmark::State& state) {
  EngineFixture fixture({.threads = 1});
  const auto model = *fixture.Serve({.columns = 16});
  fixture.engine->Start();
  for (auto unused : state) {
    RequestHandle request = fixture.MakeRequest(*model, Input(), 1);
    CHECK_OK(fixture.engine->Submit(request));
    CHECK_OK(fixture.WaitForReady()->status);
  }
  fixture.engine->Stop();
}
BENCHMARK(RoundTrip)->UseRealTime();

// One turn for each so many requests together.
void Turn(benchmark::State& state) {
  EngineFixture fixture({.threads = 1});
  const auto model = *fixture.Serve({.columns = 16});
  for (auto unused : state) {
    for (int64_t i = 0; i < state.range(0); ++i) {
      RequestHandle request = fixture.MakeRequest(*model, Input(), 1);
      CHECK_OK(fixture.engine->Submit(request));
    }
    while (fixture.engine->in_flight() > 0) fixture.engine->Turn();
    while (const RequestHandle ready = fixture.engine->PopReady()) CHECK_OK(ready->status);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Turn)->Arg(1)->Arg(8)->Arg(32);

}  // namespace
}  // namespace stampmill
