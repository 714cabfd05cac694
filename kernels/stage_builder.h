// The vocabulary that lowerings are written in: index arithmetic over loop coordinates, operand
// lists, the reductions that many operators share, and what a node's attributes and constant inputs
// say about axes. Stateless but for StageOperands; thread-safe as values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/dim.h"
#include "graph/dtype.h"
#include "graph/expr.h"
#include "graph/graph.h"
#include "graph/nest.h"
#include "kernels/op.h"

namespace stampmill {

// An i64 constant; the value of a dim (a constant where it is one); the coordinates of `count` loop
// axes from `first` on.
Expr Int(int64_t value);
Expr Extent(const DimExpr& dim);
std::vector<Expr> Coords(size_t first, size_t count);

// Comparisons of one dtype and logic on bool. An invalid Expr is "true" to And: conditions are
// gathered from none.
Expr Equal(const Expr& a, const Expr& b);
Expr NotEqual(const Expr& a, const Expr& b);
Expr Less(const Expr& a, const Expr& b);
Expr LessEqual(const Expr& a, const Expr& b);
Expr And(const Expr& a, const Expr& b);
Expr Or(const Expr& a, const Expr& b);
Expr Not(const Expr& a);
Expr Minimum(const Expr& a, const Expr& b);
Expr Maximum(const Expr& a, const Expr& b);
Expr FloorDivide(const Expr& a, const Expr& b);  // integers
Expr FloorModulo(const Expr& a, const Expr& b);
// 0 <= coordinate < extent
Expr InRange(const Expr& coordinate, const DimExpr& extent);

// The type in which sums and transcendental functions of `dtype` are computed: f32 for f16 and
// bf16, else the type itself.
DType ComputeType(DType dtype);
// f32, or f64 for f64 and 32- and 64-bit integers: where an integer needs a real function.
DType RealType(DType dtype);
// Least and greatest value: infinities for floats.
Expr LowestValue(DType dtype);
Expr HighestValue(DType dtype);

// Operands of one stage and the values behind them; the same value is listed once.
class StageOperands {
 public:
  // Input `i` of the node, its inferred dtype and shape.
  int32_t AddInput(const LowerContext& context, size_t i);
  int32_t Add(ValueId value, DType dtype, Shape shape);

  const Operand& operand(int32_t i) const { return operands_[static_cast<size_t>(i)]; }
  Expr Load(int32_t operand, std::vector<Expr> coordinates) const;
  // Reads only if `condition`, which may be invalid: then always.
  Expr LoadIf(const Expr& condition, int32_t operand, std::vector<Expr> coordinates,
              Expr otherwise) const;
  // The element of an operand that is broadcast to shape `to`, at `coordinates` of that shape.
  Expr LoadBroadcast(int32_t operand, std::span<const DimExpr> to,
                     std::span<const Expr> coordinates) const;

  std::vector<Operand> TakeOperands() { return std::move(operands_); }
  std::vector<ValueId> TakeValues() { return std::move(values_); }

 private:
  std::vector<Operand> operands_;
  std::vector<ValueId> values_;
};

// One accumulator, started from the operation's identity. `value` has the accumulator's dtype.
Reduction SumReduction(const Expr& value);
Reduction MaxReduction(const Expr& value);
// The same with `result` in place of the plain accumulator.
Reduction SumReduction(const Expr& value, const Expr& result);

// Emits the nest without reductions that writes `result`, cast to the output's dtype, at every
// coordinate of output `output`.
void EmitMap(LowerContext& context, StageOperands operands, const Expr& result, size_t output = 0);

// The index of the greatest (or least) value: the first among equals, or the last; NaN beats all
// numbers. `within`: a condition for an element to count at all, or invalid. -1 when none counts.
// Accumulators: the value, the index (i64); equal values at one index do not occur.
struct ArgChoice {
  bool least = false;
  bool last = false;
};
Reduction ArgReduction(const Expr& value, const Expr& index, const Expr& within, ArgChoice choice);

// Hands a finished nest over with its operands.
void EmitNest(LowerContext& context, StageOperands operands, Nest nest, ValueId output);

// `axis` in 0..rank-1; INVALID_ARGUMENT naming the node otherwise. Negative ones count from the
// end.
absl::StatusOr<size_t> NormalizeAxis(const Node& node, int64_t axis, size_t rank);
// As above, for all; INVALID_ARGUMENT for an axis that is named twice.
absl::StatusOr<std::vector<size_t>> NormalizeAxes(const Node& node, std::span<const int64_t> axes,
                                                  size_t rank);
// Contents of an integer value that inference found to be fixed. INTERNAL when they are not.
absl::StatusOr<std::vector<int64_t>> FixedInts(const Node& node, const Value& value);

// The same for contents that are dims of the request.
absl::StatusOr<std::vector<DimExpr>> KnownDims(const Node& node, const Value& value);

// The dims of `shape` at `axes`, in that order.
Shape SelectDims(const Shape& shape, std::span<const size_t> axes);
// The axes of 0..rank-1 that are not in `axes`, ascending.
std::vector<size_t> OtherAxes(std::span<const size_t> axes, size_t rank);

// Coordinates of a tensor whose axes are split in kept and reduced ones of a nest: result[kept[i]]
// = Coord(i), result[reduced[j]] = Coord(kept.size() + j).
std::vector<Expr> SplitCoords(std::span<const size_t> kept, std::span<const size_t> reduced);

// Where the element of a broadcast dim lies: 0 for an extent of 1; a dim that is only known to be
// equal to `to` or 1 decides at run time.
Expr BroadcastCoord(const DimExpr& dim, const DimExpr& to, const Expr& coordinate);

// A Variant that always applies.
bool AlwaysApplies(const LowerContext& context);

}  // namespace stampmill
