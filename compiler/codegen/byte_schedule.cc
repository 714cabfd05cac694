// How contractions of bytes are cut (launch_plan.h).
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "compiler/codegen/access.h"
#include "compiler/codegen/launch_plan.h"

namespace stampmill {
namespace {

// Products in one task: 50 to 200 us at 100 to 400 GMAC/s.
constexpr int64_t kTaskProducts = int64_t{1} << 24;
constexpr int64_t kBlockRows = 96;
// Packed rows stay in the second-level cache beside the panel that passes.
constexpr int64_t kBlockBytes = int64_t{1} << 18;
// Packing costs about as much as some columns: a task has at least so many while it has rows.
constexpr int64_t kColumnsMin = 256;
constexpr int64_t kLineBytes = 64;

// One plain load, along whose innermost coordinate k runs: rows lie in memory.
bool HasRowsOfBytes(const Contraction& contraction) {
  const Expr& a = contraction.a;
  if (a.op() != ExprOp::kLoad || contraction.k.size() != 1) return false;
  bool places_are_loaded = false;
  a.Visit([&](const Expr& node) {
    places_are_loaded = places_are_loaded || (IsLoad(node) && node.id() != a.id());
  });
  const auto k_axis = static_cast<int32_t>(contraction.batch.size() + contraction.m.size());
  return !places_are_loaded && WalkOf(a.operands(), k_axis) == AxisWalk::kUnit;
}

// Bytes from one row in place to the next; nullopt when it is not one constant, when the last group
// of a row would reach beyond it, or when the rows of a tile fall into few sets of the first-level
// cache.
std::optional<int64_t> RowDistance(const Contraction& contraction, int64_t tile_rows) {
  const std::optional<int64_t> k = ElementCount(contraction.k).constant();
  if (!k.has_value() || *k % kByteGroup != 0 || contraction.m.size() != 1) return std::nullopt;
  const Shape& shape = contraction.operands[static_cast<size_t>(contraction.a.index())].shape;
  const std::optional<int64_t> distance =
      AddressFactor(contraction.a, shape, static_cast<int32_t>(contraction.batch.size()));
  if (!distance.has_value()) return std::nullopt;
  constexpr int64_t kSets = 64;
  constexpr int64_t kWaysForRows = 6;  // of 8 at least; columns pass through the others
  std::vector<int64_t> used(kSets, 0);
  for (int64_t row = 0; row < tile_rows; ++row) {
    const int64_t line = row * std::abs(*distance) / kLineBytes;
    if (++used[static_cast<size_t>(line % kSets)] > kWaysForRows) return std::nullopt;
  }
  return distance;
}

bool ReadsRowSums(const Contraction& contraction) {
  bool reads = false;
  contraction.result.Visit(
      [&](const Expr& e) { reads |= e.op() == ExprOp::kAccumulator && e.index() == 1; });
  return reads;
}

}  // namespace

ByteSchedule ScheduleBytes(const Contraction& contraction, const Target& target) {
  ByteSchedule schedule;
  schedule.lanes = VectorBytes(target) / 4;
  schedule.fours = target.has_vnni() && contraction.panel % schedule.lanes == 0;
  schedule.takes_apart = !schedule.fours;
  // As many as registers hold beside the columns: two vectors of sums a row.
  schedule.tile_rows = target.has_avx512() ? 12 : 6;
  schedule.batches = ElementCount(contraction.batch);
  schedule.m = ElementCount(contraction.m);
  schedule.k = ElementCount(contraction.k);
  schedule.panels = CeilDiv(contraction.n, contraction.panel);
  schedule.sums_rows = ReadsRowSums(contraction);
  const std::optional<int64_t> k = schedule.k.constant();
  schedule.direct_a = HasRowsOfBytes(contraction);
  if (schedule.direct_a && schedule.fours) {
    const std::optional<int64_t> distance = RowDistance(contraction, schedule.tile_rows);
    schedule.direct_a = distance.has_value();
    schedule.row_distance = distance.value_or(0);
  }
  const int64_t width = schedule.fours ? 1 : 2;
  const DimExpr lines = CeilDiv(CeilDiv(schedule.k, kByteGroup) * (kByteGroup * width), kLineBytes);
  // An odd number of cache lines: rows of a tile spread over all sets.
  schedule.row_bytes = (2 * FloorDiv(lines, 2) + 1) * kLineBytes;
  schedule.block_rows = kBlockRows;
  if (k.has_value()) {
    const int64_t unit = schedule.tile_rows;
    const int64_t rows = kBlockBytes / *schedule.row_bytes.constant() / unit * unit;
    schedule.block_rows = std::clamp(rows, 2 * unit, kBlockRows / unit * unit);
  }
  schedule.row_blocks = CeilDiv(schedule.m, schedule.block_rows);
  const bool packs = !schedule.fours || !schedule.direct_a;
  schedule.rows_bytes = packs ? schedule.row_bytes * schedule.block_rows : DimExpr(0);
  const bool copies = !schedule.fours && !schedule.direct_a;
  schedule.line_bytes = copies ? schedule.row_bytes : DimExpr(0);
  schedule.sums_bytes = schedule.sums_rows ? schedule.block_rows * 4 : 0;
  schedule.tile_bytes = schedule.tile_rows * contraction.panel * 4;
  const DimExpr step_bytes = 2 * contraction.panel * kByteGroup;
  const DimExpr apart_bytes =
      schedule.takes_apart ? CeilDiv(schedule.k, kByteGroup) * step_bytes : DimExpr(0);
  schedule.scratch_bytes = schedule.rows_bytes + schedule.line_bytes + schedule.sums_bytes +
                           schedule.tile_bytes + apart_bytes;
  const DimExpr task_rows = Max(12, Min(schedule.m, schedule.block_rows));
  const DimExpr wanted =
      FloorDiv(kTaskProducts, Max(1, task_rows * schedule.k * contraction.panel));
  const DimExpr least =
      Min(std::max<int64_t>(kColumnsMin / contraction.panel, 1), 1 + FloorDiv(schedule.m, 8));
  schedule.panels_per_task = Max(1, Min(Max(wanted, least), schedule.panels));
  schedule.panel_groups = CeilDiv(schedule.panels, schedule.panels_per_task);
  schedule.tasks = schedule.batches * schedule.row_blocks * schedule.panel_groups;
  return schedule;
}

}  // namespace stampmill
