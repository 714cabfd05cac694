#include "kernels/stage_builder.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace stampmill {

Expr Int(int64_t value) { return Expr::ConstantInt(DType::kI64, value); }

Expr Extent(const DimExpr& dim) {
  return dim.is_constant() ? Int(*dim.constant()) : Expr::Dim(dim);
}

std::vector<Expr> Coords(size_t first, size_t count) {
  std::vector<Expr> coords;
  for (size_t i = 0; i < count; ++i) {
    coords.push_back(Expr::Coord(static_cast<int32_t>(first + i)));
  }
  return coords;
}

Expr Equal(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kEq, a, b); }
Expr NotEqual(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kNe, a, b); }
Expr Less(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kLt, a, b); }
Expr LessEqual(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kLe, a, b); }

Expr And(const Expr& a, const Expr& b) {
  if (!a.valid()) return b;
  if (!b.valid()) return a;
  return Expr::Binary(ExprOp::kBitAnd, a, b);
}

Expr Or(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kBitOr, a, b); }
Expr Not(const Expr& a) { return Expr::Unary(ExprOp::kNot, a); }
Expr Minimum(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kMin, a, b); }
Expr Maximum(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kMax, a, b); }
Expr FloorDivide(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kFloorDiv, a, b); }
Expr FloorModulo(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kFloorMod, a, b); }

Expr InRange(const Expr& coordinate, const DimExpr& extent) {
  return And(LessEqual(Int(0), coordinate), Less(coordinate, Extent(extent)));
}

DType ComputeType(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kF32 : dtype;
}

DType RealType(DType dtype) {
  if (dtype == DType::kF64) return DType::kF64;
  return !IsFloat(dtype) && SizeBytes(dtype) >= 4 ? DType::kF64 : DType::kF32;
}

Expr LowestValue(DType dtype) {
  if (IsFloat(dtype)) return Expr::Constant(dtype, -std::numeric_limits<double>::infinity());
  if (!IsSignedInteger(dtype)) return Expr::ConstantInt(dtype, 0);
  return Expr::ConstantInt(dtype, -(int64_t{1} << (8 * SizeBytes(dtype) - 2)) * 2);
}

Expr HighestValue(DType dtype) {
  if (IsFloat(dtype)) return Expr::Constant(dtype, std::numeric_limits<double>::infinity());
  if (dtype == DType::kBool) return Expr::ConstantInt(dtype, 1);
  if (dtype == DType::kU64) return Expr::ConstantInt(dtype, -1);
  const size_t bits = 8 * SizeBytes(dtype) - (IsSignedInteger(dtype) ? 1 : 0);
  return Expr::ConstantInt(dtype, static_cast<int64_t>((uint64_t{1} << bits) - 1));
}

int32_t StageOperands::AddInput(const LowerContext& context, size_t i) {
  const Value& value = context.input(i);
  return Add(context.node().inputs[i], value.dtype, *value.shape);
}

int32_t StageOperands::Add(ValueId value, DType dtype, Shape shape) {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i] == value && operands_[i].shape == shape) return static_cast<int32_t>(i);
  }
  operands_.push_back({.dtype = dtype, .shape = std::move(shape)});
  values_.push_back(value);
  return static_cast<int32_t>(values_.size() - 1);
}

Expr StageOperands::Load(int32_t operand, std::vector<Expr> coordinates) const {
  return Expr::Load(this->operand(operand).dtype, operand, std::move(coordinates));
}

Expr StageOperands::LoadIf(const Expr& condition, int32_t operand, std::vector<Expr> coordinates,
                           Expr otherwise) const {
  if (!condition.valid()) return Load(operand, std::move(coordinates));
  return Expr::GuardedLoad(this->operand(operand).dtype, operand, std::move(coordinates), condition,
                           std::move(otherwise));
}

Expr StageOperands::LoadBroadcast(int32_t operand, std::span<const DimExpr> to,
                                  std::span<const Expr> coordinates) const {
  const Shape& shape = this->operand(operand).shape;
  CHECK_GE(coordinates.size(), shape.size());
  const size_t skipped = coordinates.size() - shape.size();
  std::vector<Expr> own;
  for (size_t i = 0; i < shape.size(); ++i) {
    own.push_back(BroadcastCoord(shape[i], to[skipped + i], coordinates[skipped + i]));
  }
  return Load(operand, std::move(own));
}

Reduction SumReduction(const Expr& value) {
  return SumReduction(value, Expr::Accumulator(value.dtype(), 0));
}

Reduction SumReduction(const Expr& value, const Expr& result) {
  const DType dtype = value.dtype();
  const Expr total = Expr::Accumulator(dtype, 0);
  return {.init = {Expr::ConstantInt(dtype, 0)},
          .update = {total + value},
          .merge = {total + Expr::Accumulator(dtype, 1)},
          .result = result};
}

Reduction MaxReduction(const Expr& value) {
  const DType dtype = value.dtype();
  const Expr best = Expr::Accumulator(dtype, 0);
  return {.init = {LowestValue(dtype)},
          .update = {Maximum(best, value)},
          .merge = {Maximum(best, Expr::Accumulator(dtype, 1))},
          .result = best};
}

void EmitMap(LowerContext& context, StageOperands operands, const Expr& result, size_t output) {
  const Value& value = context.output(output);
  Nest nest;
  nest.kept = *value.shape;
  nest.result = Expr::Cast(value.dtype, result);
  nest.output = {.dtype = value.dtype, .shape = *value.shape};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[output]);
}

namespace {

// Whether element b, (value, index), is to be taken in place of a.
Expr Beats(const Expr& b, const Expr& b_index, const Expr& a, const Expr& a_index,
           ArgChoice choice) {
  Expr beats = choice.least ? Less(b, a) : Less(a, b);
  Expr equal = Equal(a, b);
  if (IsFloat(a.dtype())) {
    const Expr a_nan = Expr::Unary(ExprOp::kIsNan, a), b_nan = Expr::Unary(ExprOp::kIsNan, b);
    beats = Or(beats, And(b_nan, Not(a_nan)));
    equal = Or(equal, And(a_nan, b_nan));
  }
  beats = Or(beats, And(equal, choice.last ? Less(a_index, b_index) : Less(b_index, a_index)));
  // An index of -1 is nothing yet: it never beats and is always beaten.
  return And(LessEqual(Int(0), b_index), Or(Less(a_index, Int(0)), beats));
}

}  // namespace

Reduction ArgReduction(const Expr& value, const Expr& index, const Expr& within, ArgChoice choice) {
  const DType dtype = value.dtype();
  const Expr a = Expr::Accumulator(dtype, 0), a_index = Expr::Accumulator(DType::kI64, 1);
  const Expr b = Expr::Accumulator(dtype, 2), b_index = Expr::Accumulator(DType::kI64, 3);
  const Expr take = And(Beats(value, index, a, a_index, choice), within);
  const Expr merge = Beats(b, b_index, a, a_index, choice);
  return {.init = {choice.least ? HighestValue(dtype) : LowestValue(dtype), Int(-1)},
          .update = {Expr::Select(take, value, a), Expr::Select(take, index, a_index)},
          .merge = {Expr::Select(merge, b, a), Expr::Select(merge, b_index, a_index)},
          .result = a_index};
}

void EmitNest(LowerContext& context, StageOperands operands, Nest nest, ValueId output) {
  nest.operands = operands.TakeOperands();
  context.EmitNest(std::move(nest), operands.TakeValues(), output);
}

absl::StatusOr<size_t> NormalizeAxis(const Node& node, int64_t axis, size_t rank) {
  const int64_t limit = static_cast<int64_t>(rank);
  if (axis < -limit || axis >= limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": axis: got ", axis, ", rank is ", rank));
  }
  return static_cast<size_t>(axis < 0 ? axis + limit : axis);
}

absl::StatusOr<std::vector<size_t>> NormalizeAxes(const Node& node, std::span<const int64_t> axes,
                                                  size_t rank) {
  std::vector<bool> seen(rank, false);
  std::vector<size_t> normal;
  for (const int64_t axis : axes) {
    ASSIGN_OR_RETURN(const size_t index, NormalizeAxis(node, axis, rank));
    if (seen[index]) {
      return absl::InvalidArgumentError(
          absl::StrCat(node.Describe(), ": axes: got axis ", axis, " twice"));
    }
    seen[index] = true;
    normal.push_back(index);
  }
  return normal;
}

absl::StatusOr<std::vector<DimExpr>> KnownDims(const Node& node, const Value& value) {
  if (value.symbolic.has_value()) return *value.symbolic;
  if (!value.constant.has_value()) {
    return absl::InternalError(
        absl::StrCat(node.Describe(), ": contents of '", value.name, "' are not known"));
  }
  std::vector<DimExpr> dims;
  for (int64_t i = 0; i < value.constant->element_count(); ++i) {
    dims.push_back(value.constant->ValueAsInt64(i));
  }
  return dims;
}

absl::StatusOr<std::vector<int64_t>> FixedInts(const Node& node, const Value& value) {
  ASSIGN_OR_RETURN(const std::vector<DimExpr> dims, KnownDims(node, value));
  if (IsConstant(dims)) return ConstantShape(dims);
  return absl::InternalError(
      absl::StrCat(node.Describe(), ": contents of '", value.name, "' are not fixed"));
}

Shape SelectDims(const Shape& shape, std::span<const size_t> axes) {
  Shape selected;
  for (const size_t axis : axes) selected.push_back(shape[axis]);
  return selected;
}

std::vector<size_t> OtherAxes(std::span<const size_t> axes, size_t rank) {
  std::vector<bool> named(rank, false);
  for (const size_t axis : axes) named[axis] = true;
  std::vector<size_t> others;
  for (size_t i = 0; i < rank; ++i) {
    if (!named[i]) others.push_back(i);
  }
  return others;
}

std::vector<Expr> SplitCoords(std::span<const size_t> kept, std::span<const size_t> reduced) {
  std::vector<Expr> coords(kept.size() + reduced.size());
  for (size_t i = 0; i < kept.size(); ++i) coords[kept[i]] = Expr::Coord(static_cast<int32_t>(i));
  for (size_t i = 0; i < reduced.size(); ++i) {
    coords[reduced[i]] = Expr::Coord(static_cast<int32_t>(kept.size() + i));
  }
  return coords;
}

Expr BroadcastCoord(const DimExpr& dim, const DimExpr& to, const Expr& coordinate) {
  if (dim.IsConstant(1)) return Int(0);
  if (dim == to) return coordinate;
  // A factor of 0 or 1 keeps the position linear in the coordinate.
  return coordinate * Extent(Min(dim - 1, 1));
}

bool AlwaysApplies(const LowerContext&) { return true; }

}  // namespace stampmill
