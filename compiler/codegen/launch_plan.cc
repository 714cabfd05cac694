#include "compiler/codegen/launch_plan.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/codegen/access.h"

namespace stampmill {
namespace {

// Simple operations in one task, 10 to 200 us of one core; when that would make few tasks, a
// sixteenth of it.
constexpr int64_t kTaskWork = int64_t{1} << 18;
constexpr int64_t kSmallTaskWork = kTaskWork / 16;
// Multiply-adds in one task of a contraction: 50 to 400 us at 20 to 150 GFLOP/s; when that would
// make few tasks, an eighth of it.
constexpr int64_t kTaskProducts = int64_t{1} << 23;
constexpr int64_t kSmallTaskProducts = kTaskProducts / 8;
constexpr int64_t kTasksWanted = 32;
constexpr int64_t kNestTasksWanted = 16;
constexpr int64_t kChunkUnit = 64;
constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockK = 512;
// A task's columns do not fall below this while it has rows enough to pack, or below half of it
// where that would make few tasks: packing costs about as much as 8 columns. Where neighbours share
// packed rows a thread packs them once, and half of it is enough, or a quarter.
constexpr int64_t kColumnsMin = 256;
constexpr int64_t kPackingTasksWanted = 8;

// The narrowest vectors of sums that pairs are multiplied into.
constexpr int64_t kDotLanesMin = 4;

int64_t FloorPowerOfTwo(int64_t value) {
  return value < 1 ? 1 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(value)));
}

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Size of the elements that fill vectors: of what is loaded, stored and computed in floats. Narrow
// floats are computed in f32; i64 coordinates and bools do not count unless they are data.
int64_t LaneElementBytes(const Nest& nest) {
  size_t bytes = SizeBytes(nest.result.dtype());
  auto widen = [&](DType dtype) {
    bytes =
        std::max(bytes, IsFloat(dtype) ? std::max<size_t>(SizeBytes(dtype), 4) : SizeBytes(dtype));
  };
  for (const Expr& e : Expressions(nest)) {
    e.Visit([&](const Expr& node) {
      if (IsLoad(node) || IsFloat(node.dtype())) widen(node.dtype());
    });
  }
  return static_cast<int64_t>(bytes);
}

struct Walks {
  int64_t stays = 0, unit = 0, strided = 0;
  // Strided accesses cost about a vector's lanes.
  int64_t cost() const { return stays + 2 * unit + 16 * strided; }
};

Walks CountWalks(std::span<const Expr> expressions, int32_t axis) {
  Walks walks;
  for (const Expr& e : expressions) {
    e.Visit([&](const Expr& node) {
      if (!IsLoad(node)) return;
      switch (WalkOf(LoadCoordinates(node), axis)) {
        case AxisWalk::kStays:
          ++walks.stays;
          break;
        case AxisWalk::kUnit:
          ++walks.unit;
          break;
        case AxisWalk::kStrided:
          ++walks.strided;
          break;
      }
    });
  }
  return walks;
}

// What runs once per kept and reduced coordinate.
std::vector<Expr> InnerExpressions(const Nest& nest) {
  std::vector<Expr> inner;
  for (const Reduction& reduction : nest.reductions) {
    inner.insert(inner.end(), reduction.update.begin(), reduction.update.end());
  }
  if (nest.per_element || nest.reduced.empty()) inner.push_back(nest.result);
  return inner;
}

// The kept axis along which the result is contiguous; the innermost when none is.
int64_t KeptLaneAxis(const Nest& nest) {
  int64_t rank = static_cast<int64_t>(nest.kept.size());
  if (!nest.output_coordinates.empty()) {
    for (int64_t axis = rank; axis-- > 0;) {
      if (WalkOf(nest.output_coordinates, static_cast<int32_t>(axis)) == AxisWalk::kUnit) {
        return axis;
      }
    }
  }
  return rank - 1;
}

bool IsBelow(const DimExpr& dim, int64_t limit) {
  return dim.constant().has_value() && *dim.constant() < limit;
}

bool LanesAlongReduced(const Nest& nest) {
  if (nest.reduced.empty() || nest.reductions.empty()) return false;
  if (nest.kept.empty()) return true;
  int64_t kept = KeptLaneAxis(nest);
  int64_t reduced = static_cast<int64_t>(nest.kept.size() + nest.reduced.size()) - 1;
  const DimExpr& kept_extent = nest.kept[static_cast<size_t>(kept)];
  const DimExpr& reduced_extent = nest.reduced.back();
  if (IsBelow(kept_extent, 4) && !IsBelow(reduced_extent, 16)) return true;
  if (IsBelow(reduced_extent, 8)) return false;
  std::vector<Expr> inner = InnerExpressions(nest);
  return CountWalks(inner, static_cast<int32_t>(reduced)).cost() <
         CountWalks(inner, static_cast<int32_t>(kept)).cost();
}

// Whether neighbours along a row axis read something in common: weights, or overlapping windows.
bool SharesLoads(const Nest& nest, int64_t row_axis) {
  const auto axis = static_cast<int32_t>(row_axis);
  bool shares = false;
  auto overlaps = [&](const Expr& coordinate) {
    const std::optional<int64_t> step = CoordinateFactor(coordinate, axis);
    if (!step.has_value() || *step == 0) return false;
    for (size_t n = 0; n < nest.reduced.size(); ++n) {
      const std::optional<int64_t> place =
          CoordinateFactor(coordinate, static_cast<int32_t>(nest.kept.size() + n));
      if (place.has_value() && std::abs(*step) < std::abs(*place) * *nest.reduced[n].constant()) {
        return true;
      }
    }
    return false;
  };
  for (const Expr& update : nest.reductions[0].update) {
    update.Visit([&](const Expr& node) {
      if (!IsLoad(node)) return;
      std::span<const Expr> at = LoadCoordinates(node);
      shares = shares || WalkOf(at, axis) == AxisWalk::kStays ||
               std::any_of(at.begin(), at.end(), overlaps);
    });
  }
  return shares;
}

// Windows: small reductions of constant extents along lanes of a kept axis.
int64_t RowsTogether(const Nest& nest, const NestSchedule& schedule) {
  constexpr int64_t kRows = 4;
  constexpr int64_t kPlacesMax = 64;
  constexpr int64_t kWrittenOutMax = 32;  // places; of more only the innermost axis is
  constexpr int64_t kCostMax = 512;       // of what is written out for one row
  if (schedule.lane_reduced || schedule.lane_axis < 0 || schedule.row_axes.empty()) return 1;
  if (nest.reductions.size() != 1 || nest.per_element) return 1;
  const Reduction& reduction = nest.reductions[0];
  std::optional<int64_t> places = ElementCount(nest.reduced).constant();
  if (reduction.update.size() != 1 || !places.has_value() || *places < 2 || *places > kPlacesMax) {
    return 1;
  }
  const int64_t written = *places > kWrittenOutMax ? *nest.reduced.back().constant() : *places;
  if (written * CostOf(reduction.update) > kCostMax ||
      !SharesLoads(nest, schedule.row_axes.back())) {
    return 1;
  }
  // A few more rather than leave a rest.
  const DimExpr& extent = schedule.row_shape.back();
  return IsBelow(extent, kRows + 3) ? std::max<int64_t>(*extent.constant(), 1) : kRows;
}

// The axis along which most of the loads that are strided along the lane axis find neighbours; -1
// when tiles do not pay: a tile writes its expression out once for each of its rows.
int64_t TileAxis(const Nest& nest, int64_t lane_axis) {
  constexpr int64_t kCostMax = 32;
  constexpr int64_t kExtentMin = 4;
  if (!nest.reduced.empty() || !nest.reductions.empty()) return -1;
  if (CostOf({&nest.result, 1}) > kCostMax) return -1;
  if (IsBelow(nest.kept[static_cast<size_t>(lane_axis)], kExtentMin)) return -1;
  int64_t best = -1;
  size_t most = 0;
  for (int64_t axis = 0; axis < static_cast<int64_t>(nest.kept.size()); ++axis) {
    if (axis == lane_axis || IsBelow(nest.kept[static_cast<size_t>(axis)], kExtentMin)) continue;
    size_t count = TransposedLoads(nest.result, lane_axis, axis).size();
    if (count <= most) continue;
    most = count;
    best = axis;
  }
  return best;
}

// Sides of the tiles to generate.
std::vector<int64_t> TileWidths(const Nest& nest, const NestSchedule& schedule,
                                const Target& target) {
  constexpr int64_t kWidest = 16;
  constexpr int64_t kNarrow = 4;
  int64_t widest = std::min(VectorBytes(target) / LaneElementBytes(nest), kWidest);
  std::optional<int64_t> lane_extent = schedule.lane_extent.constant();
  std::optional<int64_t> extent = nest.kept[static_cast<size_t>(schedule.tile_axis)].constant();
  widest = std::min({widest, lane_extent.value_or(widest), extent.value_or(widest)});
  std::vector<int64_t> widths = {FloorPowerOfTwo(widest)};
  if (lane_extent.has_value() && extent.has_value()) return widths;
  if (widths.back() > kNarrow) widths.push_back(kNarrow);
  if (widths.back() > 1) widths.push_back(1);
  return widths;
}

// Elements that vectors of `lanes` compute for one row, those computed twice included; when the
// extent is not known, for a row of middling length.
double LaneTurns(const DimExpr& extent, int64_t lanes) {
  constexpr int64_t kUnknown = 256;
  return static_cast<double>(RoundUp(extent.constant().value_or(kUnknown), lanes));
}

// Lane counts to generate. Reductions along lanes fix theirs by type and extent alone, so that
// every instruction set sums in the same order.
std::vector<int64_t> LaneWidths(const Nest& nest, const NestSchedule& schedule,
                                const Target& target) {
  int64_t bytes = LaneElementBytes(nest);
  int64_t widest = 0;
  if (schedule.lane_reduced) {
    widest = 128 / std::max<int64_t>(bytes, 4);
  } else {
    int64_t native = std::min<int64_t>(VectorBytes(target) / bytes, 64);
    // Chains of accumulators need company to fill the pipelines; long expressions have it within.
    bool reduces = !nest.reductions.empty();
    bool is_short = CostOf(InnerExpressions(nest)) <= 12;
    widest = native;
    double least = LaneTurns(schedule.lane_extent, native) * (reduces || is_short ? 1.3 : 1.0);
    // Rows that go together are such company, and want the registers.
    int64_t most = schedule.rows_together == 1 ? 4 : 2;
    for (int64_t vectors : {2, 4}) {
      bool wanted = vectors <= most && (vectors == 2 ? reduces || is_short : reduces);
      int64_t room = std::min<int64_t>(schedule.lane_extent.constant().value_or(64), 64);
      if (!wanted || vectors * native > room) continue;
      double turns =
          LaneTurns(schedule.lane_extent, vectors * native) * (vectors == 2 ? 1.0 : 0.95);
      if (turns >= least) continue;
      least = turns;
      widest = vectors * native;
    }
  }
  if (std::optional<int64_t> extent = schedule.lane_extent.constant()) {
    return {FloorPowerOfTwo(std::min(widest, *extent))};
  }
  std::vector<int64_t> widths = {widest};
  if (widest >= 16) widths.push_back(4);
  if (widest > 1) widths.push_back(1);
  return widths;
}

// Lines of the innermost row axis, or as many rows of one as go together without a rest.
DimExpr WholeLines(const DimExpr& rows, const NestSchedule& schedule) {
  DimExpr line = Max(1, schedule.row_shape.back());
  DimExpr groups = CeilDiv(rows, schedule.rows_together) * schedule.rows_together;
  return Max(FloorDiv(rows, line) * line, Min(groups, line));
}

DimExpr BytesOf(const Operand& operand) {
  return ElementCount(operand.shape) * static_cast<int64_t>(SizeBytes(operand.dtype));
}

LaunchPlan PlanNest(const Nest& nest, const Target& target) {
  NestSchedule schedule = ScheduleNest(nest, target);
  LaunchPlan plan;
  plan.tasks = schedule.tasks;
  DimExpr kept = ElementCount(nest.kept);
  plan.flops = kept * ElementCount(nest.reduced) * OperationsOf(InnerExpressions(nest));
  if (!nest.per_element && !nest.reduced.empty()) {
    plan.flops = plan.flops + kept * OperationsOf({&nest.result, 1});
  }
  plan.bytes = BytesOf(nest.output);
  for (const Operand& operand : nest.operands) plan.bytes = plan.bytes + BytesOf(operand);
  return plan;
}

LaunchPlan PlanContraction(const Contraction& contraction, const Target& target) {
  LaunchPlan plan;
  if (contraction.blocks.has_value()) {
    BlockSchedule schedule = ScheduleBlocks(contraction, target);
    plan.tasks = schedule.tasks;
    plan.scratch_bytes = schedule.scratch_bytes;
  } else if (contraction.of_bytes()) {
    ByteSchedule schedule = ScheduleBytes(contraction, target);
    plan.tasks = schedule.tasks;
    plan.scratch_bytes = schedule.scratch_bytes;
  } else {
    ContractionSchedule schedule = ScheduleContraction(contraction, target);
    plan.tasks = schedule.tasks;
    plan.scratch_bytes = schedule.scratch_a_bytes + schedule.scratch_c_bytes;
  }
  DimExpr sums = ElementCount(contraction.batch) * ElementCount(contraction.m) * contraction.n;
  plan.flops = sums * (2 * ElementCount(contraction.k) + OperationsOf({&contraction.result, 1}));
  plan.bytes = BytesOf(contraction.output);
  for (const Operand& operand : contraction.operands) plan.bytes = plan.bytes + BytesOf(operand);
  return plan;
}

LaunchPlan PlanLibrary(const Library& library) {
  LaunchPlan plan;
  plan.tasks = library.tasks;
  plan.scratch_bytes = library.scratch_bytes;
  for (const Operand& operand : library.operands) plan.bytes = plan.bytes + BytesOf(operand);
  for (const Operand& operand : library.outputs) plan.bytes = plan.bytes + BytesOf(operand);
  plan.flops = plan.bytes;
  return plan;
}

// Distance in bytes between the rows of `a` when it can be read in place: one plain load whose
// innermost coordinate is k, of whole steps as tiles read them, whose rows are a constant distance
// apart, and of which the rows of one register tile do not fall into few sets of the first-level
// cache.
std::optional<int64_t> DirectRowDistance(const Contraction& contraction,
                                         const ContractionSchedule& schedule) {
  const Expr& a = contraction.a;
  const auto element = static_cast<int64_t>(SizeBytes(a.dtype()));
  const std::optional<int64_t> k = schedule.k.constant();
  if (element * schedule.group != schedule.a_step_bytes) return std::nullopt;
  if (schedule.group > 1 && (!k.has_value() || *k % schedule.group != 0)) return std::nullopt;
  if (a.op() != ExprOp::kLoad || contraction.k.size() != 1 || contraction.m.size() > 1) {
    return std::nullopt;
  }
  int32_t m_axis = static_cast<int32_t>(contraction.batch.size());
  int32_t k_axis = m_axis + static_cast<int32_t>(contraction.m.size());
  if (WalkOf(a.operands(), k_axis) != AxisWalk::kUnit) return std::nullopt;
  if (contraction.m.empty()) return 0;
  const Operand& operand = contraction.operands[static_cast<size_t>(a.index())];
  Shape strides = RowMajorStrides(operand.shape);
  int64_t distance = 0;
  for (size_t n = 0; n < a.operands().size(); ++n) {
    std::optional<int64_t> factor = CoordinateFactor(a.operands()[n], m_axis);
    if (!factor.has_value()) return std::nullopt;
    if (*factor == 0) continue;
    if (!strides[n].constant().has_value()) return std::nullopt;
    distance += *factor * *strides[n].constant();
  }
  constexpr int64_t kLineBytes = 64;
  constexpr int64_t kSets = 64;
  constexpr int64_t kWaysForRows = 6;  // of 8 at least; columns pass through the others
  std::vector<int64_t> used(kSets, 0);
  const int64_t row_bytes = distance * element;
  for (int64_t row = 0; row < schedule.tile_rows; ++row) {
    int64_t line = (row * row_bytes) / kLineBytes;
    if (++used[static_cast<size_t>(line % kSets)] > kWaysForRows) return std::nullopt;
  }
  return row_bytes;
}

// Whether lanes along the axis are neighbours in memory, or every other one: two vectors then have
// what one is picked from.
bool FindsNeighbours(std::span<const Expr> coordinates, int32_t axis) {
  if (coordinates.empty()) return false;
  for (const Expr& outer : coordinates.first(coordinates.size() - 1)) {
    if (CoordinateFactor(outer, axis) != 0) return false;
  }
  const std::optional<int64_t> factor = CoordinateFactor(coordinates.back(), axis);
  return factor == 1 || factor == 2;
}

}  // namespace

int64_t VectorBytes(const Target& target) {
  if (target.has_avx512()) return 64;
  return target.has_avx2() ? 32 : 16;
}

int64_t PanelWidth(const DimExpr& n, DType accumulator, const Target& target) {
  int64_t lanes = VectorBytes(target) / static_cast<int64_t>(SizeBytes(accumulator));
  if (n.constant().has_value() && *n.constant() <= lanes) return lanes;
  return 2 * lanes;
}

std::vector<Expr> TransposedLoads(const Expr& result, int64_t lane_axis, int64_t tile_axis) {
  std::vector<Expr> loads;
  result.Visit([&](const Expr& node) {
    if (!IsLoad(node)) return;
    std::span<const Expr> coordinates = LoadCoordinates(node);
    if (WalkOf(coordinates, static_cast<int32_t>(lane_axis)) == AxisWalk::kStrided &&
        FindsNeighbours(coordinates, static_cast<int32_t>(tile_axis))) {
      loads.push_back(node);
    }
  });
  return loads;
}

NestSchedule ScheduleNest(const Nest& nest, const Target& target) {
  NestSchedule schedule;
  int64_t kept_rank = static_cast<int64_t>(nest.kept.size());
  schedule.lane_reduced = LanesAlongReduced(nest);
  if (schedule.lane_reduced) {
    schedule.lane_axis = kept_rank + static_cast<int64_t>(nest.reduced.size()) - 1;
    schedule.lane_extent = nest.reduced.back();
  } else if (kept_rank > 0) {
    schedule.lane_axis = KeptLaneAxis(nest);
    schedule.lane_extent = nest.kept[static_cast<size_t>(schedule.lane_axis)];
  } else {
    schedule.lane_extent = 1;
  }
  if (!schedule.lane_reduced && kept_rank > 0) {
    schedule.tile_axis = TileAxis(nest, schedule.lane_axis);
  }
  for (int64_t axis = 0; axis < kept_rank; ++axis) {
    if (axis == schedule.lane_axis || axis == schedule.tile_axis) continue;
    schedule.row_axes.push_back(axis);
    schedule.row_shape.push_back(nest.kept[static_cast<size_t>(axis)]);
  }
  DimExpr lane_rows = 1;  // that one row stands for
  if (schedule.tile_axis >= 0) {
    const DimExpr& extent = nest.kept[static_cast<size_t>(schedule.tile_axis)];
    schedule.row_axes.push_back(schedule.tile_axis);
    schedule.row_shape.push_back(Max(Min(1, extent), FloorDiv(extent, kTileRows)));
    lane_rows = Max(1, Min(kTileRows, extent));
    schedule.lanes = TileWidths(nest, schedule, target);
  } else {
    schedule.rows_together = RowsTogether(nest, schedule);
    schedule.lanes = LaneWidths(nest, schedule, target);
  }
  schedule.rows = ElementCount(schedule.row_shape);
  DimExpr reduced = ElementCount(nest.reduced);
  const int64_t cost = CostOf(InnerExpressions(nest));
  int64_t most = std::max<int64_t>(kTaskWork / cost, 1024);
  int64_t least = std::max<int64_t>(kSmallTaskWork / cost, 256);
  // Places and guards of windows are worked out once for all lanes.
  if (schedule.rows_together > 1) {
    most *= 8;
    least *= 8;
  }
  DimExpr all = ElementCount(nest.kept) * Max(1, reduced);
  DimExpr elements = Min(most, Max(least, FloorDiv(all, kNestTasksWanted)));
  if (schedule.lane_reduced) {
    schedule.rows_per_task = Max(1, FloorDiv(elements, Max(1, reduced)));
    schedule.chunk = 0;
    schedule.chunks = 1;
  } else {
    DimExpr work = Max(1, reduced) * lane_rows;  // in one element of a row
    schedule.chunk = Max(1, FloorDiv(elements, work * kChunkUnit)) * kChunkUnit;
    schedule.chunks =
        Max(Min(1, schedule.lane_extent), FloorDiv(schedule.lane_extent, schedule.chunk));
    schedule.rows_per_task = Max(1, FloorDiv(elements, Max(1, schedule.lane_extent) * work));
    if (schedule.rows_together > 1) {
      schedule.rows_per_task = WholeLines(schedule.rows_per_task, schedule);
    }
  }
  schedule.row_blocks = CeilDiv(schedule.rows, schedule.rows_per_task);
  schedule.tasks = schedule.row_blocks * schedule.chunks;
  return schedule;
}

ContractionSchedule ScheduleContraction(const Contraction& contraction, const Target& target) {
  ContractionSchedule schedule;
  int64_t element = static_cast<int64_t>(SizeBytes(contraction.accumulator));
  schedule.lanes = VectorBytes(target) / element;
  const bool has_one_width = std::has_single_bit(static_cast<uint64_t>(contraction.panel));
  schedule.group = contraction.of_pairs() ? kPairGroup : 1;
  schedule.dots = contraction.of_pairs() &&
                  (contraction.accumulator == DType::kI32 || target.has_bf16()) &&
                  contraction.panel >= kDotLanesMin && has_one_width;
  // One by one pairs are packed in the accumulator's type.
  schedule.a_step_bytes = schedule.dots ? element : element * schedule.group;
  schedule.tile_rows = target.has_avx512() ? 12 : 6;
  schedule.batches = ElementCount(contraction.batch);
  schedule.m = ElementCount(contraction.m);
  schedule.k = ElementCount(contraction.k);
  schedule.steps = CeilDiv(schedule.k, schedule.group);
  schedule.panels = CeilDiv(contraction.n, contraction.panel);
  schedule.block_rows = kBlockRows;
  std::optional<int64_t> steps = schedule.steps.constant();
  schedule.block_k = kBlockK * 4 / schedule.a_step_bytes;
  if (steps.has_value()) {
    int64_t blocks = std::max<int64_t>((*steps + schedule.block_k - 1) / schedule.block_k, 1);
    schedule.block_k = std::max<int64_t>(RoundUp((*steps + blocks - 1) / blocks, 16), 16);
  }
  bool one_block = steps.has_value() && *steps <= schedule.block_k;
  std::optional<int64_t> direct = DirectRowDistance(contraction, schedule);
  schedule.direct_a = direct.has_value();
  int64_t padded_k = RoundUp(schedule.block_k, 16);
  schedule.pack_whole_k = !schedule.direct_a && steps.has_value() && contraction.k.size() > 1;
  if (schedule.pack_whole_k) padded_k = RoundUp(*steps, 16);
  // An odd number of cache lines: rows of a tile spread over all sets.
  constexpr int64_t kLineBytes = 64;
  const int64_t row_bytes = (padded_k * schedule.a_step_bytes / kLineBytes | 1) * kLineBytes;
  schedule.a_row_bytes = direct.value_or(row_bytes);
  schedule.scratch_a_bytes =
      schedule.direct_a ? DimExpr(0) : DimExpr(schedule.block_rows * row_bytes);
  DimExpr even = CeilDiv(schedule.m, Max(1, CeilDiv(schedule.m, schedule.block_rows)));
  schedule.rows_per_task = Max(1, CeilDiv(even, schedule.tile_rows)) * schedule.tile_rows;
  schedule.row_blocks = CeilDiv(schedule.m, schedule.rows_per_task);
  DimExpr task_rows = Max(12, Min(schedule.m, schedule.rows_per_task));
  DimExpr panel_products = Max(1, task_rows * schedule.k * contraction.panel);
  DimExpr for_count =
      FloorDiv(schedule.batches * schedule.row_blocks * schedule.panels, kTasksWanted);
  DimExpr wanted = Min(FloorDiv(kTaskProducts, panel_products),
                       Max(FloorDiv(kSmallTaskProducts, panel_products), for_count));
  DimExpr least = 1;
  if (!schedule.direct_a) {
    const bool packs_once = one_block || schedule.pack_whole_k;
    const int64_t columns = packs_once ? kColumnsMin / 2 : kColumnsMin;
    const int64_t most = std::max<int64_t>(columns / contraction.panel, 1);
    DimExpr all = schedule.batches * schedule.row_blocks * schedule.panels;
    least = Min(most, Max(std::max<int64_t>(most / 2, 1),
                          FloorDiv(all, packs_once ? kTasksWanted : kPackingTasksWanted)));
    least = Min(least, 1 + FloorDiv(schedule.m, 8));
  }
  // Even groups.
  DimExpr groups = CeilDiv(schedule.panels, Max(1, Max(wanted, least)));
  schedule.panels_per_task = Max(1, CeilDiv(schedule.panels, Max(1, groups)));
  schedule.panel_groups = CeilDiv(schedule.panels, schedule.panels_per_task);
  DimExpr accumulators = schedule.tile_rows * contraction.panel;
  if (!one_block) accumulators = schedule.block_rows * contraction.panel * schedule.panels_per_task;
  schedule.scratch_c_bytes = accumulators * element;
  schedule.tasks = schedule.batches * schedule.row_blocks * schedule.panel_groups;
  return schedule;
}

LaunchPlan PlanLaunch(const StageBody& body, const Target& target) {
  // Over the canonical form, as the code generator sees it: the same body in every detail.
  std::vector<DimExpr> dims;
  absl::StatusOr<StageBody> canonical = ParseCanonicalBytes(CanonicalBytes(body, &dims));
  CHECK_OK(canonical) << ToString(body);
  absl::flat_hash_map<std::string, DimExpr> values;
  for (size_t n = 0; n < dims.size(); ++n) values[absl::StrCat("d", n)] = dims[n];
  LaunchPlan plan;
  if (const Nest* nest = std::get_if<Nest>(&*canonical)) {
    plan = PlanNest(*nest, target);
  } else if (const Contraction* contraction = std::get_if<Contraction>(&*canonical)) {
    plan = PlanContraction(*contraction, target);
  } else {
    plan = PlanLibrary(std::get<Library>(*canonical));
  }
  return {.tasks = plan.tasks.Substitute(values),
          .scratch_bytes = plan.scratch_bytes.Substitute(values),
          .flops = plan.flops.Substitute(values),
          .bytes = plan.bytes.Substitute(values)};
}

}  // namespace stampmill
