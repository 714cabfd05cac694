// What operators are lowered to, and what fusion works on: loop nests and contractions over
// expressions. Two forms cover the tensor operators of ONNX; the rest (sorting, data-dependent
// sizes) are library kernels.
//
// Nest: for every kept coordinate, run the reductions one after the other over the reduced axes
// (each may use the results of those before it), then write the result: once per kept coordinate,
// or, `per_element`, once per kept and reduced coordinate (softmax, layer norm). Without reduced
// axes it is an elementwise map, a transpose, a gather, a pad: all data movement is a map whose
// loads compute their coordinates. Axes are numbered kept first, then reduced.
//
// Contraction: out[batch, m, n] = epilogue(sum over k of a(batch, m, k) * b(batch, k, n)), the form
// of MatMul, Gemm and convolution (m runs over output positions, k over kernel window and
// channels). The code generator packs `a` on the fly with the given expression; `b` is an operand
// already in panel layout: made at compile time for weights, by a nest of its own otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "graph/block_format.h"
#include "graph/dim.h"
#include "graph/dtype.h"
#include "graph/expr.h"
#include "graph/row_records.h"

namespace stampmill {

// An operand of a stage: what a Load's index refers to. Row-major, dense.
struct Operand {
  DType dtype = DType::kInvalid;
  Shape shape;
  bool operator==(const Operand&) const = default;
};

struct Reduction {
  // One or more accumulators, carried through the reduced coordinates in row-major order or in
  // any split of it into fixed lanes that depends only on extents, dtype and target.
  // Each lane starts from `init`: it must leave the other side of `merge` as it is.
  std::vector<Expr> init;  // constants or expressions of kept coordinates and Reduced(earlier)
  // New value of each accumulator, from Accumulator(i), loads, coordinates and Reduced(earlier).
  std::vector<Expr> update;
  // Combines two partial results: Accumulator(i) and Accumulator(count + i).
  std::vector<Expr> merge;
  // The value that Reduced(this) names, from Accumulator(i), kept coordinates, Reduced(earlier).
  Expr result;
};

struct Nest {
  Shape kept;
  Shape reduced;
  std::vector<Operand> operands;
  std::vector<Reduction> reductions;
  Expr result;  // the value written
  bool per_element = false;
  // Where it is written: the output operand's shape, and its coordinates as a function of the loop
  // coordinates (injective). Empty: kept (per_element: kept then reduced) in order, shape likewise.
  Operand output;
  std::vector<Expr> output_coordinates;
};

// Panel layout of b: [batch..., ceil(n / panel), k, panel], zero-filled past n. `panel` follows
// from the target and n alone.
//
// Bytes: where the accumulator is i32, `a` may be u8 and b i8, with four neighbours along k side by
// side: [batch..., ceil(n / panel), ceil(k / 4), panel, 4], zero-filled past n and k. The sums are
// exact, whatever the order. Zero points are the result's affair: it may also refer to
// Accumulator(1), the sum over k of a(batch, m, k).
//
// Pairs: where the accumulator is f32, `a` may be bf16 and b hold two neighbours along k, bf16
// both, in one u32, the earlier in its low half: [batch..., ceil(n / panel), ceil(k / 2), panel],
// zero-filled past n and k. Products are exact then, and the sum is rounded as each is added, of a
// pair the later one first, on every target: that of BF16 instructions, which also take what is
// below the least normal number, operands and sums, for 0.
// Where the accumulator is i32, they may be pairs of i16 in the same layout; sums wrap.
//
// Blocks: where the accumulator is f32, b may hold quantised weights in u8, panels of rows of W
// (graph/block_layout.h): [batch..., ceil(n / panel), bytes of a panel]; k is whole blocks. Rows of
// `a` are rounded to bytes in groups of 32 along k: with the greatest magnitude g of a group its
// scale is s = g / 127, its bytes are q = x * (127 / g), rounded to even; 0 where that is no finite
// number. The sum starts from 0; for each run of b (BlockFacts::run) in the order of k it becomes
//   fma(f32(sum of q * number), scale of the run * s, sum), then, where the format has minimums,
//   fma(minimum of the run, s * f32(sum of q), sum),
// each operation rounded to f32, sums of integers exact. Rows that were rounded before are `a` of
// u8, or i16 if they are wide: a plain load at its axes of an operand [batch..., m..., elements of
// a row of records] (graph/row_records.h), which may lack first axes of extent 1; k has one axis.
// Or, `exact_rows`, rows stay f32 and for each k the sum becomes fma(a, element of b, sum). In any
// case its order is that of k alone.
struct Contraction {
  Shape batch;
  Shape m;  // one or more axes; row index = their row-major flattening
  DimExpr n;
  Shape k;                          // one or more axes, flattened row-major
  DType accumulator = DType::kF32;  // f32, f64 or i32
  std::vector<Operand> operands;
  // Axes of `a`: batch, m axes, k axes, in this order. Its dtype is the accumulator's, or that of
  // bytes, pairs or records: u8, bf16, i16.
  Expr a;
  int32_t b = -1;  // operand index, dtype the accumulator's, or i8, u32 (pairs), u8 (blocks)
  bool b_batched = false;  // b has the batch axes; else it is shared by all of them
  int64_t panel = 0;
  std::optional<BlockFormat> blocks;  // of b; nullopt: numbers
  bool exact_rows = false;            // of a product of blocks
  // How many rows of m a batch has, i64 of its coordinates alone; those behind are neither read nor
  // written. Invalid: all.
  Expr rows;
  // The value written, from the accumulators and coordinates batch, m axes, n, in this order.
  Expr result;
  Operand output;
  std::vector<Expr> output_coordinates;  // as in Nest; empty: batch, m axes, n

  // Rows of `a` are records.
  bool of_records() const {
    return blocks.has_value() && (a.dtype() == DType::kU8 || a.dtype() == DType::kI16);
  }
  bool of_bytes() const { return operands[static_cast<size_t>(b)].dtype == DType::kI8; }
  bool of_pairs() const {
    return accumulator != DType::kF64 && operands[static_cast<size_t>(b)].dtype == DType::kU32;
  }
};

// REQUIRES: contraction.of_records() and it is verified.
RowRecords RecordsOf(const Contraction& contraction);

// Bytes side by side in a panel of bytes, numbers in one element of a panel of pairs.
inline constexpr int64_t kByteGroup = 4;
inline constexpr int64_t kPairGroup = 2;

// A kernel written whole as a skeleton (kernels/skeletons): sorting, scans.
struct Library {
  std::string skeleton;  // its name
  // Element i along dim 0 of the outputs depends on that of the operands alone, of those whose
  // leading dim is equal to the outputs', and not on how many there are. Not part of the code.
  bool by_row = false;
  std::vector<int64_t> configuration;  // its compile-time constants
  std::vector<Operand> operands;
  std::vector<Operand> outputs;  // one or more
  std::vector<DimExpr> dims;     // its run-time parameters
  DimExpr tasks = 1;
  DimExpr scratch_bytes = 0;  // per running task
};

using StageBody = std::variant<Nest, Contraction, Library>;

inline constexpr size_t kNestAxesMax = 32;         // kept and reduced; batch, m and k
inline constexpr size_t kNestOperandsMax = 1024;   // also reductions, accumulators of one
inline constexpr int64_t kNestNodesMax = 1 << 16;  // distinct expression nodes of a stage

// Checks ranks, operand indices, dtypes, the limits above, and that each expression refers only to
// what it may. For our own lowerings and passes: an error is a defect, but returned as INTERNAL so
// that one model fails and not a process.
absl::Status Verify(const Nest& nest);
absl::Status Verify(const Contraction& contraction);
absl::Status Verify(const StageBody& body);

std::string ToString(const StageBody& body);

// Canonical bytes: equal exactly for stages that generate the same code. Constants appear as
// values; each distinct non-constant DimExpr is a run-time parameter, numbered in order of first
// appearance. `dims` receives the parameters in that order; the kernel reads dims[i].
// Equal nodes are written once, shared or not. The byte table is in nest_bytes.cc.
// REQUIRES: Verify(body) is OK.
std::string CanonicalBytes(const StageBody& body, std::vector<DimExpr>* dims);
// The inverse, for the compile worker and tests: parameter i becomes the symbol "d<i>", whose bytes
// are the same again. Never trusts the bytes: INVALID_ARGUMENT says what is wrong and where.
absl::StatusOr<StageBody> ParseCanonicalBytes(absl::string_view bytes);

}  // namespace stampmill
