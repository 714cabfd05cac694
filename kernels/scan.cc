// CumSum, CumProd and TopK as nests.
//
// A running total over L elements by its definition takes L^2 / 2 steps, so longer axes are cut
// into blocks: totals of the blocks, totals of the blocks before each, then each element within its
// block. The order of additions depends on nothing but L.
//
// TopK ranks by counting, for each element, those that come before it, and then gathers: L^2
// comparisons, without branches or a data-dependent order of writes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

struct ScanAttributes {
  size_t axis = 0;
  bool exclusive = false;
  bool reverse = false;
};

absl::StatusOr<ScanAttributes> ReadScan(const Node& node, const std::vector<int64_t>& axis,
                                        size_t rank) {
  ScanAttributes scan;
  if (axis.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": axis: got ", axis.size(), " values, want 1"));
  }
  ASSIGN_OR_RETURN(scan.axis, NormalizeAxis(node, axis[0], rank));
  ASSIGN_OR_RETURN(const int64_t exclusive, node.Int("exclusive", 0));
  ASSIGN_OR_RETURN(const int64_t reverse, node.Int("reverse", 0));
  scan.exclusive = exclusive != 0;
  scan.reverse = reverse != 0;
  return scan;
}

absl::Status InferScan(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if (dtype == DType::kBool) return context.Error("x: bool has no sum");
  ASSIGN_OR_RETURN(const std::vector<int64_t> axis, context.RequireConstant(1));
  RETURN_IF_ERROR(ReadScan(context.node(), axis, shape.size()).status());
  return context.SetOutput(0, dtype, std::move(shape));
}

template <bool product>
absl::StatusOr<std::vector<Tensor>> ScanReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const Dims& dims = input.shape();
  ASSIGN_OR_RETURN(const ScanAttributes scan,
                   ReadScan(arguments.node, Int64Values(arguments.inputs[1]), dims.size()));
  const int64_t length = dims[scan.axis];
  const int64_t stride = RowMajor(dims)[scan.axis];
  const int64_t rows = length == 0 ? 0 : ProductOf(dims) / length;
  absl::StatusOr<Tensor> output = WithArithmeticType(input.dtype(), [&]<typename T>(T) {
    std::vector<T> x = ReadValues<T>(input);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t first = row / stride * stride * length + row % stride;
      T total = product ? T{1} : T{0};
      for (int64_t i = 0; i < length; ++i) {
        T& place = x[static_cast<size_t>(first + (scan.reverse ? length - 1 - i : i) * stride)];
        const T before = total;
        total = product ? WrapMul(total, place) : WrapAdd(total, place);
        place = scan.exclusive ? before : total;
      }
    }
    return MakeTensor(input.dtype(), dims, x);
  });
  if (!output.ok()) return output.status();
  return One(*std::move(output));
}

// A scan's operation and identity.
struct Fold {
  ExprOp op = ExprOp::kAdd;
  DType dtype = DType::kF32;

  Expr identity() const { return Expr::ConstantInt(dtype, op == ExprOp::kMul ? 1 : 0); }
  Reduction Over(const Expr& value) const {
    const Expr total = Expr::Accumulator(dtype, 0);
    return {.init = {identity()},
            .update = {Expr::Binary(op, total, value)},
            .merge = {Expr::Binary(op, total, Expr::Accumulator(dtype, 1))},
            .result = total};
  }
};

// Whether element `j` belongs to the total at `i`.
Expr Belongs(const Expr& j, const Expr& i, bool exclusive, bool reverse) {
  const Expr& before = reverse ? i : j;
  const Expr& after = reverse ? j : i;
  return exclusive ? Less(before, after) : LessEqual(before, after);
}

constexpr int64_t kScanBlock = 32;
// Axes of up to this length are summed by definition.
constexpr int64_t kScanDirectMax = 128;

class ScanLowering {
 public:
  ScanLowering(LowerContext& context, const ScanAttributes& scan, ExprOp op)
      : context_(context),
        scan_(scan),
        shape_(context.InputShape(0)),
        length_(shape_[scan.axis]),
        dtype_(context.output(0).dtype),
        fold_{.op = op, .dtype = ComputeType(dtype_)} {}

  void Emit() {
    if (length_.UpperBound().value_or(kScanDirectMax + 1) <= kScanDirectMax) {
      EmitElements(length_, kNoValue, {});
      return;
    }
    Shape blocks = shape_;
    blocks[scan_.axis] = CeilDiv(length_, kScanBlock);
    const ValueId totals = context_.NewValue(fold_.dtype, blocks, "blocks");
    const ValueId before = context_.NewValue(fold_.dtype, blocks, "before");
    EmitBlockTotals(blocks, totals);
    EmitBefore(blocks, totals, before);
    EmitElements(kScanBlock, before, blocks);
  }

 private:
  std::vector<Expr> At(const Expr& place) const {
    std::vector<Expr> coords = Coords(0, shape_.size());
    coords[scan_.axis] = place;
    return coords;
  }
  Expr Inner() const { return Expr::Coord(static_cast<int32_t>(shape_.size())); }
  Expr Position() const { return Expr::Coord(static_cast<int32_t>(scan_.axis)); }

  // x at `place` if it counts, else the identity.
  Expr LoadInput(StageOperands& operands, const Expr& condition, const Expr& place) const {
    const int32_t x = operands.AddInput(context_, 0);
    const DType dtype = operands.operand(x).dtype;
    const int64_t identity = fold_.op == ExprOp::kMul ? 1 : 0;
    return Expr::Cast(fold_.dtype,
                      operands.LoadIf(condition, x, At(place), Expr::ConstantInt(dtype, identity)));
  }

  void EmitBlockTotals(const Shape& blocks, ValueId totals) {
    StageOperands operands;
    Nest nest{.kept = blocks, .reduced = {kScanBlock}};
    const Expr place = Position() * Int(kScanBlock) + Inner();
    nest.reductions = {fold_.Over(LoadInput(operands, Less(place, Extent(length_)), place))};
    nest.result = Expr::Reduced(fold_.dtype, 0);
    nest.output = {.dtype = fold_.dtype, .shape = blocks};
    EmitNest(context_, std::move(operands), std::move(nest), totals);
  }

  void EmitBefore(const Shape& blocks, ValueId totals, ValueId before) {
    StageOperands operands;
    const int32_t operand = operands.Add(totals, fold_.dtype, blocks);
    Nest nest{.kept = blocks, .reduced = {blocks[scan_.axis]}};
    nest.reductions = {fold_.Over(operands.LoadIf(Belongs(Inner(), Position(), true, scan_.reverse),
                                                  operand, At(Inner()), fold_.identity()))};
    nest.result = Expr::Reduced(fold_.dtype, 0);
    nest.output = {.dtype = fold_.dtype, .shape = blocks};
    EmitNest(context_, std::move(operands), std::move(nest), before);
  }

  // Elements within blocks of `extent`, on top of what is `before` their block.
  void EmitElements(const DimExpr& extent, ValueId before, const Shape& blocks) {
    StageOperands operands;
    Nest nest{.kept = shape_, .reduced = {extent}};
    const bool whole = before == kNoValue;
    const Expr block = whole ? Int(0) : FloorDivide(Position(), Int(kScanBlock));
    const Expr place = whole ? Inner() : block * Int(kScanBlock) + Inner();
    Expr counts = Belongs(place, Position(), scan_.exclusive, scan_.reverse);
    if (!whole && scan_.reverse) counts = And(counts, Less(place, Extent(length_)));
    nest.reductions = {fold_.Over(LoadInput(operands, counts, place))};
    Expr total = Expr::Reduced(fold_.dtype, 0);
    if (!whole) {
      const int32_t operand = operands.Add(before, fold_.dtype, blocks);
      total = Expr::Binary(fold_.op, operands.Load(operand, At(block)), total);
    }
    nest.result = Expr::Cast(dtype_, total);
    nest.output = {.dtype = dtype_, .shape = shape_};
    EmitNest(context_, std::move(operands), std::move(nest), context_.node().outputs[0]);
  }

  LowerContext& context_;
  ScanAttributes scan_;
  Shape shape_;
  DimExpr length_;
  DType dtype_;
  Fold fold_;
};

template <ExprOp op>
absl::Status LowerScan(LowerContext& context) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> axis, FixedInts(context.node(), context.input(1)));
  ASSIGN_OR_RETURN(const ScanAttributes scan,
                   ReadScan(context.node(), axis, context.InputShape(0).size()));
  ScanLowering(context, scan, op).Emit();
  return absl::OkStatus();
}

// TopK. Equal elements are taken in order; NaN is the greatest number.

struct TopAttributes {
  size_t axis = 0;
  bool largest = true;
};

absl::StatusOr<TopAttributes> ReadTop(const Node& node, size_t rank) {
  TopAttributes top;
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", -1));
  ASSIGN_OR_RETURN(const int64_t largest, node.Int("largest", 1));
  ASSIGN_OR_RETURN(top.axis, NormalizeAxis(node, axis, rank));
  top.largest = largest != 0;
  return top;
}

absl::Status InferTop(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if (dtype == DType::kBool) return context.Error("X: bool has no order");
  ASSIGN_OR_RETURN(const TopAttributes top, ReadTop(context.node(), shape.size()));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> k, context.RequireSymbolic(1));
  if (k.size() != 1) return context.Error(absl::StrCat("K: got ", k.size(), " values, want 1"));
  RETURN_IF_ERROR(context.Check(
      EitherOf(IsLess(k[0], shape[top.axis]), IsEqual(k[0], shape[top.axis])),
      absl::StrCat("K: got ", k[0].ToString(), ", the axis has ", shape[top.axis].ToString())));
  RETURN_IF_ERROR(context.Check(IsNot(IsLess(k[0], 0)), "K must not be negative"));
  shape[top.axis] = k[0];
  RETURN_IF_ERROR(context.SetOutput(0, dtype, shape));
  return context.SetOutput(1, DType::kI64, std::move(shape));
}

template <typename T>
bool Greater(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return !std::isnan(b);
  }
  return a > b;
}

absl::StatusOr<std::vector<Tensor>> TopReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const TopAttributes top, ReadTop(arguments.node, input.shape().size()));
  const int64_t k = arguments.inputs[1].ValueAsInt64(0);
  const int64_t length = input.shape()[top.axis];
  const int64_t stride = RowMajor(input.shape())[top.axis];
  if (k < 0 || k > length) {
    return ReferenceError(arguments, absl::StrCat("K: got ", k, ", the axis has ", length));
  }
  Dims dims = input.shape();
  dims[top.axis] = k;
  const int64_t rows = length == 0 ? 0 : input.element_count() / length;
  std::vector<int64_t> indices(static_cast<size_t>(ProductOf(dims)));
  std::vector<Tensor> outputs(2);
  outputs[0] = input;
  const absl::Status status = WithArithmeticType(input.dtype(), [&]<typename T>(T) {
    const std::vector<T> x = ReadValues<T>(input);
    std::vector<T> values(indices.size());
    for (int64_t row = 0; row < rows; ++row) {
      const T* first = x.data() + row / stride * stride * length + row % stride;
      std::vector<int64_t> order(static_cast<size_t>(length));
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const T x_a = first[a * stride], x_b = first[b * stride];
        if (Greater(x_a, x_b)) return top.largest;
        if (Greater(x_b, x_a)) return !top.largest;
        return a < b;
      });
      for (int64_t i = 0; i < k; ++i) {
        const size_t at =
            static_cast<size_t>(row / stride * stride * k + row % stride + i * stride);
        indices[at] = order[static_cast<size_t>(i)];
        values[at] = first[indices[at] * stride];
      }
    }
    ASSIGN_OR_RETURN(outputs[0], MakeTensor(input.dtype(), dims, values));
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(outputs[1], MakeTensor(DType::kI64, dims, indices));
  return outputs;
}

Expr GreaterExpr(const Expr& a, const Expr& b) {
  const Expr greater = Less(b, a);
  if (!IsFloat(a.dtype())) return greater;
  const Expr a_nan = Expr::Unary(ExprOp::kIsNan, a), b_nan = Expr::Unary(ExprOp::kIsNan, b);
  return Or(greater, And(a_nan, Not(b_nan)));
}

// rank[..., i, ...]: how many elements come before element i.
void EmitRanks(LowerContext& context, const TopAttributes& top, const Shape& shape, ValueId ranks) {
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const DType compute = ComputeType(context.input(0).dtype);
  Nest nest{.kept = shape, .reduced = {shape[top.axis]}};
  std::vector<Expr> coords = Coords(0, shape.size());
  const Expr i = coords[top.axis];
  const Expr j = Expr::Coord(static_cast<int32_t>(shape.size()));
  const Expr own = Expr::Cast(compute, operands.Load(input, coords));
  coords[top.axis] = j;
  const Expr other = Expr::Cast(compute, operands.Load(input, coords));
  const Expr ahead = top.largest ? GreaterExpr(other, own) : GreaterExpr(own, other);
  const Expr behind = top.largest ? GreaterExpr(own, other) : GreaterExpr(other, own);
  const Expr precedes = Or(ahead, And(Not(behind), Less(j, i)));
  nest.reductions = {SumReduction(Expr::Cast(DType::kI64, precedes))};
  nest.result = Expr::Reduced(DType::kI64, 0);
  nest.output = {.dtype = DType::kI64, .shape = shape};
  EmitNest(context, std::move(operands), std::move(nest), ranks);
}

absl::Status LowerTop(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const TopAttributes top, ReadTop(context.node(), shape.size()));
  const ValueId ranks = context.NewValue(DType::kI64, shape, "ranks");
  EmitRanks(context, top, shape, ranks);

  Shape chosen = shape;
  ASSIGN_OR_RETURN(const std::vector<DimExpr> k, KnownDims(context.node(), context.input(1)));
  chosen[top.axis] = k[0];
  const std::vector<Expr> slots = Coords(0, shape.size());
  ValueId indices = context.node().outputs.size() > 1 ? context.node().outputs[1] : kNoValue;
  if (indices == kNoValue) indices = context.NewValue(DType::kI64, chosen, "indices");
  {
    // The one element whose rank is the slot's number.
    StageOperands operands;
    const int32_t rank = operands.Add(ranks, DType::kI64, shape);
    Nest nest{.kept = chosen, .reduced = {shape[top.axis]}};
    const Expr i = Expr::Coord(static_cast<int32_t>(shape.size()));
    std::vector<Expr> coords = slots;
    coords[top.axis] = i;
    const Expr here = Equal(operands.Load(rank, coords), slots[top.axis]);
    nest.reductions = {SumReduction(Expr::Select(here, i, Int(0)))};
    nest.result = Expr::Reduced(DType::kI64, 0);
    nest.output = {.dtype = DType::kI64, .shape = chosen};
    EmitNest(context, std::move(operands), std::move(nest), indices);
  }
  if (!context.HasOutput(0)) return absl::OkStatus();
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const int32_t index = operands.Add(indices, DType::kI64, chosen);
  std::vector<Expr> coords = slots;
  coords[top.axis] = operands.Load(index, slots);
  Nest nest{.kept = chosen};
  nest.result = operands.Load(input, coords);
  nest.output = {.dtype = context.output(0).dtype, .shape = chosen};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

constexpr Variant kSumVariants[] = {{"nest", AlwaysApplies, LowerScan<ExprOp::kAdd>}};
constexpr Variant kProductVariants[] = {{"nest", AlwaysApplies, LowerScan<ExprOp::kMul>}};
constexpr Variant kTopVariants[] = {{"ranks", AlwaysApplies, LowerTop}};

}  // namespace

std::span<const OpDefinition> ScanOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "CumProd",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = InferScan,
       .reference = ScanReference<true>,
       .variants = kProductVariants},
      {.name = "CumSum",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = InferScan,
       .reference = ScanReference<false>,
       .variants = kSumVariants},
      {.name = "TopK",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 2,
       .min_outputs = 2,
       .max_outputs = 2,
       .infer = InferTop,
       .reference = TopReference,
       .variants = kTopVariants},
  };
  return kOps;
}

}  // namespace stampmill
