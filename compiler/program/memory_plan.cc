// PlanMemory: offsets of temporaries in one arena.
#include <algorithm>
#include <cstdint>

#include "compiler/program/program.h"

namespace stampmill {
namespace {

// Cache lines, and the widest vector: buffers never share one.
constexpr int64_t kAlignment = 64;
// Leaves room for sums of two without overflow.
constexpr int64_t kArenaBytesMax = int64_t{1} << 61;

bool LiveTogether(const ProgramBuffer& a, const ProgramBuffer& b) {
  return a.first_command <= b.last_command && b.first_command <= a.last_command;
}

}  // namespace

int64_t PlanMemory(const Program& program, std::span<const int64_t> sizes,
                   std::span<int64_t> offsets, MemoryPlanScratch& scratch) {
  scratch.order.clear();
  scratch.placed.clear();
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (program.buffers[i].kind != ProgramBuffer::Kind::kTemporary) continue;
    if (sizes[i] < 0 || sizes[i] > kArenaBytesMax) return -1;
    scratch.order.push_back(static_cast<int32_t>(i));
  }
  // Large ones first: small ones then fill the gaps between them. Ties by number, so that a plan
  // depends on nothing but its arguments.
  std::sort(scratch.order.begin(), scratch.order.end(), [sizes](int32_t a, int32_t b) {
    const int64_t size_a = sizes[static_cast<size_t>(a)], size_b = sizes[static_cast<size_t>(b)];
    return size_a != size_b ? size_a > size_b : a < b;
  });
  const auto aligned_size = [sizes](int32_t i) {
    return (sizes[static_cast<size_t>(i)] + kAlignment - 1) / kAlignment * kAlignment;
  };
  int64_t arena = 0;
  for (const int32_t i : scratch.order) {
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(i)];
    const int64_t size = aligned_size(i);
    // `placed` is in order of offset: the first gap between those alive with this one that fits.
    int64_t offset = 0;
    for (const int32_t other : scratch.placed) {
      if (!LiveTogether(buffer, program.buffers[static_cast<size_t>(other)])) continue;
      const int64_t begin = offsets[static_cast<size_t>(other)];
      if (begin - offset >= size) break;
      offset = std::max(offset, begin + aligned_size(other));
    }
    if (offset > kArenaBytesMax - size) return -1;
    offsets[static_cast<size_t>(i)] = offset;
    arena = std::max(arena, offset + size);
    const auto after = std::upper_bound(scratch.placed.begin(), scratch.placed.end(), offset,
                                        [offsets](int64_t value, int32_t other) {
                                          return value < offsets[static_cast<size_t>(other)];
                                        });
    scratch.placed.insert(after, i);
  }
  return arena;
}

}  // namespace stampmill
