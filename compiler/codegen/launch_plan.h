// How a stage is cut into tasks: what the program builder needs to launch a generated kernel and
// what the code generator compiles into it. Both sides compute the same formulas over dims, so that
// a kernel and the launch that names it agree without storing anything. Links no LLVM.
//
// Splits depend on dims and target only, never on threads.
#pragma once

#include <cstdint>
#include <vector>

#include "devices/target.h"
#include "graph/dim.h"
#include "graph/dtype.h"
#include "graph/nest.h"

namespace stampmill {

struct LaunchPlan {
  DimExpr tasks;          // independent tasks; 0 when the result is empty
  DimExpr scratch_bytes;  // for each task that runs at the same time
  DimExpr flops;          // estimates for profiles and for choosing where to run
  DimExpr bytes;          // read and written
};

// REQUIRES: Verify(body) is OK.
LaunchPlan PlanLaunch(const StageBody& body, const Target& target);

// Columns of one panel of a contraction's `b` (Contraction::panel): a whole number of vectors.
int64_t PanelWidth(const DimExpr& n, DType accumulator, const Target& target);

// The same stage with fewer axes: extents of one are dropped, neighbouring axes that every access
// walks as one are merged, operands' unit dims are dropped. Done before CanonicalBytes, so that
// kernels that are equal but for such spelling are one.
StageBody Simplify(const StageBody& body);

// Bytes of one vector register of the target: 64, 32 or 16.
int64_t VectorBytes(const Target& target);

// --- What the code generator shares with PlanLaunch. ---

// A nest runs `lanes` elements of one axis at a time. Rows are the kept coordinates without the
// lane axis, row-major; a task is `rows_per_task` rows, or, when the lane axis is kept, one of
// `chunks` pieces of such rows: pieces of `chunk` elements, the last one taking what is left.
//
// A map whose loads find neighbours along another kept axis than the lane axis (a transpose) goes
// over tiles of `lanes` by `lanes` elements, loaded along that axis and transposed in registers. It
// is then the last of the row axes, and counts strips of kTileRows, the last one taking what is
// left.
struct NestSchedule {
  bool lane_reduced = false;  // the lane axis is the innermost reduced axis, else a kept one
  int64_t lane_axis = -1;     // axis number; -1: no axes at all, one element
  int64_t tile_axis = -1;     // axis number; -1: no tiles
  // Neighbours along the innermost row axis that are computed together where there are as many:
  // windows share what they read, and all of them their weights.
  int64_t rows_together = 1;
  // Widths to generate, descending, ending in 1 unless the lane extent is a constant. The kernel
  // takes the first that is at most the lane extent and, of tiles, the other axis's.
  std::vector<int64_t> lanes;
  DimExpr lane_extent;
  Shape row_shape;  // extents of the row axes
  std::vector<int64_t> row_axes;
  DimExpr rows;
  DimExpr rows_per_task;
  DimExpr row_blocks;
  DimExpr chunk;  // lane elements, multiple of 64
  DimExpr chunks;
  DimExpr tasks;  // row_blocks * chunks
};
NestSchedule ScheduleNest(const Nest& nest, const Target& target);
inline constexpr int64_t kTileRows = 64;

// The distinct loads that tiles transpose: strided along the lane axis; along the tile axis
// neighbours, or every other one (pairs).
std::vector<Expr> TransposedLoads(const Expr& result, int64_t lane_axis, int64_t tile_axis);

// Tasks of a contraction: batch, then blocks of rows, then groups of panels: neighbours share the
// rows. A step multiplies one number of k, or a pair (Contraction::of_pairs).
struct ContractionSchedule {
  int64_t lanes = 0;          // elements of the accumulator's type in one vector
  int64_t group = 1;          // numbers of k in one step
  bool dots = false;          // of pairs: the target multiplies them as such, else one by one
  int64_t tile_rows = 0;      // rows of the widest register tile
  int64_t block_rows = 0;     // rows of one task at most
  int64_t block_k = 0;        // steps between two visits to the accumulators in memory
  bool direct_a = false;      // `a` is read in place, not packed
  bool pack_whole_k = false;  // all of k is packed at once (else block_k at a time)
  int64_t a_step_bytes = 0;   // of a row, as tiles read it
  int64_t a_row_bytes = 0;    // from one row to the next, packed or in place
  DimExpr batches;
  DimExpr m, k, steps, panels;
  DimExpr rows_per_task;  // at most block_rows: even pieces of m
  DimExpr row_blocks;
  DimExpr panels_per_task;
  DimExpr panel_groups;
  DimExpr scratch_a_bytes;  // packed rows, at the start of scratch
  DimExpr scratch_c_bytes;  // accumulators between blocks of k, after them
  DimExpr tasks;
};
ContractionSchedule ScheduleContraction(const Contraction& contraction, const Target& target);

// A contraction of bytes (Contraction::of_bytes). Tasks as above; all of k at once: sums stay in
// registers. Rows of `a` are read as bytes, in place or packed. Where nothing multiplies bytes in
// fours they are then widened to 16 bits, and the targets' products of pairs are taken; so are the
// panels, one at a time, where enough rows pass through it.
struct ByteSchedule {
  int64_t lanes = 0;  // sums in one vector
  bool fours = false;
  int64_t tile_rows = 0;
  int64_t block_rows = 0;
  bool takes_apart = false;  // panels may be widened in scratch
  bool direct_a = false;     // rows are read in place
  int64_t row_distance = 0;  // direct_a and fours: bytes from one to the next
  bool sums_rows = false;    // the result uses Accumulator(1)
  DimExpr batches;
  DimExpr m, k, panels;
  DimExpr row_blocks;
  DimExpr panels_per_task;
  DimExpr panel_groups;
  // Scratch, in this order: packed or widened rows; one row of bytes, when they are widened;
  // the rows' sums; a tile's sums; a panel taken apart.
  DimExpr row_bytes;
  DimExpr rows_bytes;
  DimExpr line_bytes;
  int64_t sums_bytes = 0;
  int64_t tile_bytes = 0;
  DimExpr scratch_bytes;
  DimExpr tasks;
};
ByteSchedule ScheduleBytes(const Contraction& contraction, const Target& target);

// A contraction of blocks (Contraction::blocks). Tasks: batch, then blocks of rows, then groups of
// panels, so that neighbours share their rows; all of k at once. Rows are records
// (graph/row_records.h), wide ones for products of pairs: of operand `a`, or made in scratch; exact
// rows are f32 as they are.
struct BlockSchedule {
  enum class Dot : uint8_t {
    kFours,  // u8 by i8 in fours
    kBytes,  // u8 by i8 in twos, in i16: of formats whose codes leave room
    kPairs,  // i16 by i16 in twos
    kExact,  // f32
  };
  Dot dot = Dot::kPairs;
  std::vector<int64_t> heights;  // rows of register tiles of one panel, descending to 1
  int64_t wide_rows = 0;         // of the tile of two panels for many rows; 0: there is none
  int64_t block_rows = 0;        // rows of one task at most
  int64_t record_bytes = 0;      // of a group
  int64_t row_bytes = 0;         // from one packed row to the next
  int64_t line_bytes = 0;        // room for one row of f32
  int64_t tile_bytes = 0;        // sums of a tile
  int64_t rows_bytes = 0;
  DimExpr batches;
  DimExpr m, panels;
  DimExpr rows_per_task;  // at most block_rows: even pieces of m
  DimExpr row_blocks;
  DimExpr panels_per_task;
  DimExpr panel_groups;
  DimExpr scratch_bytes;  // rows, line, tile
  DimExpr tasks;
};
BlockSchedule ScheduleBlocks(const Contraction& contraction, const Target& target);
// Whether rows that blocks multiply are wide records (graph/row_records.h).
bool HasWideRows(BlockFormat format, const Target& target);
// How many sums of two products of a format's codes and bytes of rows an i16 holds.
int64_t BlockSumsInI16(BlockFormat format);

}  // namespace stampmill
