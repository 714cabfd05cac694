// Nothing is allocated or freed on the engine thread in steady state: counted by this program's own
// malloc and free, between requests far apart after a warm-up.
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "base/check.h"
#include "gtest/gtest.h"
#include "runtime/served_model.h"
#include "runtime/testing/allocation_counter.h"
#include "runtime/testing/engine_fixture.h"

namespace stampmill {
namespace {

class SteadyState {
 public:
  explicit SteadyState(uint32_t seed) : random_(seed) {
    for (int rows = 0; rows < 4; ++rows) {
      for (int columns = 0; columns < 5; ++columns) {
        inputs_.emplace_back(static_cast<size_t>((rows + 1) * (columns + 1)), rows);
      }
    }
  }

  // So many requests of mixed shapes, some together; returns calls of malloc and free in Turn.
  int64_t Run(EngineFixture& fixture, ServedModel& model, int requests) {
    const int64_t before = AllocationCalls();
    for (int sent = 0; sent < requests;) {
      for (uint32_t together = 1 + random_() % 4; together > 0; --together, ++sent) {
        const auto rows = static_cast<int64_t>(1 + random_() % 4);
        const size_t columns = random_() % 5;
        RequestHandle request =
            fixture.MakeRequest(model, inputs_[static_cast<size_t>(rows - 1) * 5 + columns], rows);
        CHECK_OK(fixture.engine->Submit(request));
      }
      while (fixture.engine->in_flight() > 0) {
        const AllocationCounting counting;
        fixture.engine->Turn();
      }
      while (const RequestHandle ready = fixture.engine->PopReady()) CHECK_OK(ready->status);
    }
    return AllocationCalls() - before;
  }

 private:
  std::mt19937 random_;
  std::vector<std::vector<int32_t>> inputs_;
};

TEST(SteadyStateTest, TheEngineThreadNeitherAllocatesNorFrees) {
  EngineFixture fixture({.threads = 1});
  const auto model = *fixture.Serve({.columns = -1, .second_output = true}, "max_batch_size: 8");
  SteadyState load(1);
  EXPECT_GT(load.Run(fixture, *model, 5000), 0);  // the counter works: the first step makes memory
  EXPECT_EQ(load.Run(fixture, *model, 20000), 0);
}

}  // namespace
}  // namespace stampmill
