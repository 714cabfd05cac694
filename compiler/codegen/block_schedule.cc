// How contractions of blocks are cut (launch_plan.h).
#include <algorithm>
#include <cstdint>

#include "compiler/codegen/launch_plan.h"
#include "graph/block_layout.h"
#include "graph/row_records.h"

namespace stampmill {
namespace {

// Products in one task: about 25 us at 330 GMAC/s.
constexpr int64_t kTaskProducts = int64_t{1} << 23;
// Weights in one task at least, where it reads them from memory: about 1 us.
constexpr int64_t kTaskBytes = 40 << 10;
constexpr int64_t kTasksWanted = 32;
constexpr int64_t kLineBytes = 64;
// Packed rows stay in the second-level cache.
constexpr int64_t kBlockRows = 132;
constexpr int64_t kManyElements = 2048;  // of a row: half as many rows then

using Dot = BlockSchedule::Dot;

// The greatest code, or value that one stands for.
int64_t GreatestCode(const BlockFacts& facts) {
  if (facts.values.empty()) return (int64_t{1} << facts.bits) - 1;
  return *std::max_element(facts.values.begin(), facts.values.end());
}

Dot DotOf(const Contraction& contraction, const Target& target) {
  if (contraction.exact_rows) return Dot::kExact;
  const bool is_wide = contraction.of_records() ? RecordsOf(contraction).wide
                                                : HasWideRows(*contraction.blocks, target);
  if (is_wide) return Dot::kPairs;
  return target.has_vnni() ? Dot::kFours : Dot::kBytes;
}

}  // namespace

int64_t BlockSumsInI16(BlockFormat format) {
  constexpr int64_t kGreatestByte = 127;
  return INT16_MAX / (2 * kGreatestByte * GreatestCode(FactsOf(format)));
}

bool HasWideRows(BlockFormat format, const Target& target) {
  return !target.has_vnni() && (!target.has_avx2() || BlockSumsInI16(format) < 2);
}

BlockSchedule ScheduleBlocks(const Contraction& contraction, const Target& target) {
  BlockSchedule schedule;
  const BlockLayout layout = LayoutOf(*contraction.blocks, contraction.panel);
  const BlockFacts& facts = layout.facts();
  const int64_t k = *ElementCount(contraction.k).constant();
  schedule.dot = DotOf(contraction, target);
  schedule.heights = {4, 2, 1};
  if (schedule.dot == Dot::kExact) {
    schedule.heights = target.has_avx2() ? std::vector<int64_t>{4, 1} : std::vector<int64_t>{1};
  } else if (target.has_avx512()) {
    schedule.heights = {8, 4, 2, 1};
    schedule.wide_rows = 6;
  }
  const int64_t unit = schedule.wide_rows > 0 ? schedule.wide_rows : schedule.heights.front();
  schedule.block_rows = kBlockRows / (k > kManyElements ? 2 : 1) / unit * unit;
  const RowRecords records = RecordsFor(*contraction.blocks, schedule.dot == Dot::kPairs);
  if (schedule.dot == Dot::kExact) {
    // An odd number of cache lines: rows of a tile spread over all sets.
    schedule.record_bytes = kBlockGroup * 4;
    const int64_t lines = (k / kBlockGroup * schedule.record_bytes + kLineBytes - 1) / kLineBytes;
    schedule.row_bytes = (lines | 1) * kLineBytes;
  } else {
    schedule.record_bytes = records.record_bytes();
    schedule.row_bytes = records.row_bytes(k);
  }
  if (!contraction.of_records()) {
    schedule.rows_bytes = schedule.row_bytes * schedule.block_rows;
    schedule.line_bytes = schedule.dot == Dot::kExact ? 0 : k * 4;
  }
  schedule.tile_bytes =
      std::max(2 * schedule.wide_rows, schedule.heights.front()) * contraction.panel * 4;
  schedule.scratch_bytes = schedule.rows_bytes + schedule.line_bytes + schedule.tile_bytes;

  schedule.batches = ElementCount(contraction.batch);
  schedule.m = ElementCount(contraction.m);
  schedule.panels = CeilDiv(contraction.n, contraction.panel);
  const DimExpr even = CeilDiv(schedule.m, Max(1, CeilDiv(schedule.m, schedule.block_rows)));
  schedule.rows_per_task = Max(1, CeilDiv(even, unit)) * unit;
  schedule.row_blocks = CeilDiv(schedule.m, schedule.rows_per_task);
  const int64_t panel_bytes = k / facts.elements * layout.block_bytes;
  const DimExpr task_rows = Max(1, Min(schedule.m, schedule.rows_per_task));
  const int64_t row_products = std::max<int64_t>(k * contraction.panel, 1);
  const DimExpr most = FloorDiv(kTaskProducts, task_rows * row_products);
  const DimExpr for_count =
      FloorDiv(schedule.batches * schedule.row_blocks * schedule.panels, kTasksWanted);
  const DimExpr wanted = Min(
      most, Max(std::max<int64_t>(kTaskBytes / std::max<int64_t>(panel_bytes, 1), 1), for_count));
  // Even groups.
  const DimExpr groups = CeilDiv(schedule.panels, Max(1, wanted));
  schedule.panels_per_task = Max(1, CeilDiv(schedule.panels, Max(1, groups)));
  schedule.panel_groups = CeilDiv(schedule.panels, schedule.panels_per_task);
  schedule.tasks = schedule.batches * schedule.row_blocks * schedule.panel_groups;
  return schedule;
}

}  // namespace stampmill
