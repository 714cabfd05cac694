#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "compiler/program/program.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

ProgramBuffer Temporary(int32_t first, int32_t last) {
  return {.kind = ProgramBuffer::Kind::kTemporary, .first_command = first, .last_command = last};
}

// The least arena there can be: the most bytes alive at one command.
int64_t LowerBound(const Program& program, const std::vector<int64_t>& sizes, int32_t commands) {
  int64_t bound = 0;
  for (int32_t c = 0; c < commands; ++c) {
    int64_t alive = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const ProgramBuffer& buffer = program.buffers[i];
      if (buffer.kind != ProgramBuffer::Kind::kTemporary) continue;
      if (buffer.first_command <= c && c <= buffer.last_command) alive += (sizes[i] + 63) / 64 * 64;
    }
    bound = std::max(bound, alive);
  }
  return bound;
}

TEST(MemoryPlanTest, LiveBuffersNeverOverlapAndTheArenaIsNearTheBound) {
  std::mt19937 random(7);
  MemoryPlanScratch scratch;
  double worst = 0;
  for (int round = 0; round < 300; ++round) {
    const int32_t commands = 1 + static_cast<int32_t>(random() % 60);
    Program program;
    std::vector<int64_t> sizes;
    const size_t count = random() % 80;
    for (size_t i = 0; i < count; ++i) {
      const int32_t first = static_cast<int32_t>(random() % static_cast<uint32_t>(commands));
      // Mostly short lives, as in a network, some long ones, as of a residual.
      const int32_t length = static_cast<int32_t>(random() % (i % 7 == 0 ? 40 : 4));
      program.buffers.push_back(Temporary(first, std::min(first + length, commands - 1)));
      if (i % 11 == 3) program.buffers.back().kind = ProgramBuffer::Kind::kWeight;
      sizes.push_back(random() % 5 == 0 ? 0 : static_cast<int64_t>(random() % 100000));
    }
    std::vector<int64_t> offsets(count, -7);
    const int64_t arena = PlanMemory(program, sizes, offsets, scratch);
    for (size_t i = 0; i < count; ++i) {
      if (program.buffers[i].kind != ProgramBuffer::Kind::kTemporary) {
        EXPECT_EQ(offsets[i], -7);
        continue;
      }
      EXPECT_EQ(offsets[i] % 64, 0);
      EXPECT_GE(offsets[i], 0);
      EXPECT_LE(offsets[i] + sizes[i], arena);
      for (size_t j = 0; j < i; ++j) {
        const ProgramBuffer &a = program.buffers[i], &b = program.buffers[j];
        if (b.kind != ProgramBuffer::Kind::kTemporary || a.first_command > b.last_command ||
            b.first_command > a.last_command) {
          continue;
        }
        EXPECT_TRUE(offsets[i] + sizes[i] <= offsets[j] || offsets[j] + sizes[j] <= offsets[i])
            << "buffers " << i << " and " << j << " of round " << round;
      }
    }
    const int64_t bound = LowerBound(program, sizes, commands);
    EXPECT_GE(arena, bound);
    if (bound > 0) worst = std::max(worst, static_cast<double>(arena) / static_cast<double>(bound));
  }
  EXPECT_LT(worst, 1.5);
}

TEST(MemoryPlanTest, AChainNeedsTwoBuffersOnly) {
  Program program;
  std::vector<int64_t> sizes;
  for (int32_t i = 0; i < 20; ++i) {
    program.buffers.push_back(Temporary(i, i + 1));
    sizes.push_back(1000);
  }
  std::vector<int64_t> offsets(20);
  MemoryPlanScratch scratch;
  EXPECT_EQ(PlanMemory(program, sizes, offsets, scratch), 2 * 1024);
}

TEST(MemoryPlanTest, ImpossibleSizesAreRefused) {
  Program program;
  program.buffers = {Temporary(0, 0), Temporary(0, 0)};
  std::vector<int64_t> offsets(2);
  MemoryPlanScratch scratch;
  for (const int64_t size : {int64_t{-1}, std::numeric_limits<int64_t>::max(), int64_t{1} << 61}) {
    EXPECT_EQ(PlanMemory(program, std::vector<int64_t>{size, 64}, offsets, scratch), -1);
  }
}

}  // namespace
}  // namespace stampmill
