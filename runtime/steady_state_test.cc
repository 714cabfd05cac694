// Nothing is allocated or freed on the engine thread in steady state: counted by this program's own
// malloc and free, between requests far apart after a warm-up.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "base/check.h"
#include "gtest/gtest.h"
#include "runtime/served_model.h"
#include "runtime/testing/engine_fixture.h"

namespace {

thread_local bool counting = false;
thread_local int64_t calls = 0;

void Count() {
  if (counting) ++calls;
}

}  // namespace

// The C library's own functions under their other names; operator new and delete end here too.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);

void* malloc(size_t size) {
  Count();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count();
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  Count();
  return __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  Count();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? 12 : 0;
}
void free(void* memory) {
  Count();
  __libc_free(memory);
}
}

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
    int64_t before = calls;
    for (int sent = 0; sent < requests;) {
      for (uint32_t together = 1 + random_() % 4; together > 0; --together, ++sent) {
        const auto rows = static_cast<int64_t>(1 + random_() % 4);
        const size_t columns = random_() % 5;
        RequestHandle request =
            fixture.MakeRequest(model, inputs_[static_cast<size_t>(rows - 1) * 5 + columns], rows);
        CHECK_OK(fixture.engine->Submit(request));
      }
      while (fixture.engine->in_flight() > 0) {
        counting = true;
        fixture.engine->Turn();
        counting = false;
      }
      while (const RequestHandle ready = fixture.engine->PopReady()) CHECK_OK(ready->status);
    }
    return calls - before;
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
