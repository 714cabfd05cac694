#include "kernels/contraction.h"

#include <utility>

#include "base/status_macros.h"
#include "kernels/packing.h"

namespace stampmill {
namespace {

bool IsBatched(const Product& product) {
  for (const ProductAxis& axis : product.b_axes) {
    if (axis.role == ProductAxis::Role::kBatch) return true;
  }
  return false;
}

int64_t Panel(const LowerContext& context, const Product& product) {
  return context.options().panel(product.n, product.accumulator, context.options().target);
}

// What pairs are of; kInvalid: no pairs.
DType NumberOfPairs(const LowerContext& context, const Product& product) {
  if (product.a.dtype() == DType::kI16) return DType::kI16;
  const bool bf16 = context.options().bf16_products && product.accumulator == DType::kF32;
  return bf16 ? DType::kBF16 : DType::kInvalid;
}

// Shape of the packed right-hand side, `group` numbers of k in one row.
Shape PackedShape(const Product& product, bool batched, int64_t panel, int64_t group) {
  Shape shape;
  if (batched) shape = product.batch;
  shape.push_back(CeilDiv(product.n, panel));
  shape.push_back(CeilDiv(ElementCount(product.k), group));
  shape.push_back(panel);
  return shape;
}

bool OfBytes(const Product& product) { return SizeBytes(product.a.dtype()) == 1; }

// How the constant right-hand side lies in memory.
absl::StatusOr<PackPlan> PlanConstant(const Product& product, bool batched, int64_t panel,
                                      DType dtype) {
  const std::vector<int64_t> extents = ConstantShape(product.b_operand.shape);
  PackPlan plan{.k = std::vector<PackAxis>(product.k.size()), .panel = panel, .dtype = dtype};
  if (batched) plan.batch.resize(product.batch.size());
  // Extents of batch and k are those of the contraction: b may repeat along them.
  for (size_t i = 0; i < plan.batch.size(); ++i) {
    if (!product.batch[i].is_constant()) {
      return absl::InternalError("a constant of a contraction has a batch of unknown size");
    }
    plan.batch[i].extent = *product.batch[i].constant();
  }
  int64_t stride = 1;
  for (size_t i = extents.size(); i-- > 0;) {
    const ProductAxis& axis = product.b_axes[i];
    const PackAxis source{.extent = extents[i], .stride = stride};
    if (axis.role == ProductAxis::Role::kBatch) plan.batch[axis.index] = source;
    if (axis.role == ProductAxis::Role::kK) plan.k[axis.index] = source;
    if (axis.role == ProductAxis::Role::kN) {
      if (plan.n.size() <= axis.index) plan.n.resize(axis.index + 1);
      plan.n[axis.index] = source;
    }
    stride *= extents[i];
  }
  return plan;
}

// Coordinates of b's element from those of the packed value: batch..., panel, k..., column.
std::vector<Expr> SourceCoords(const Product& product, const std::vector<Expr>& batch,
                               const std::vector<Expr>& k, const Expr& n) {
  std::vector<Expr> coords(product.b_axes.size());
  std::vector<size_t> n_axes;
  for (size_t i = 0; i < coords.size(); ++i) {
    const ProductAxis& axis = product.b_axes[i];
    switch (axis.role) {
      case ProductAxis::Role::kSingle:
        coords[i] = Int(0);
        break;
      case ProductAxis::Role::kBatch:
        coords[i] = BroadcastCoord(product.b_operand.shape[i], product.batch[axis.index],
                                   batch[axis.index]);
        break;
      case ProductAxis::Role::kK:
        coords[i] = k[axis.index];
        break;
      case ProductAxis::Role::kN:
        if (n_axes.size() <= axis.index) n_axes.resize(axis.index + 1);
        n_axes[axis.index] = i;
        break;
    }
  }
  // From the innermost outward; the outermost needs no modulo.
  Expr rest = n;
  for (size_t j = n_axes.size(); j-- > 0;) {
    const Expr extent = Extent(product.b_operand.shape[n_axes[j]]);
    coords[n_axes[j]] = j == 0 ? rest : FloorModulo(rest, extent);
    if (j > 0) rest = FloorDivide(rest, extent);
  }
  return coords;
}

// Element of b at column `n`, row `k`; 0 past the last column.
Expr LoadRight(const Product& product, StageOperands& operands, const std::vector<Expr>& batch,
               const std::vector<Expr>& k, const Expr& n, const Expr& within) {
  const int32_t source = operands.Add(product.b, product.b_operand.dtype, product.b_operand.shape);
  return operands.LoadIf(within, source, SourceCoords(product, batch, k, n),
                         Expr::ConstantInt(product.b_operand.dtype, 0));
}

// A condition that the last panel (the last group) needs: it may reach past the extent.
Expr Within(const Expr& at, const DimExpr& extent, int64_t unit) {
  const bool ragged = !extent.is_constant() || *extent.constant() % unit != 0;
  return ragged ? Less(at, Extent(extent)) : Expr();
}

ValueId EmitPacking(LowerContext& context, const Product& product, bool batched, int64_t panel) {
  const DType dtype = product.accumulator;
  const size_t batch_rank = batched ? product.batch.size() : 0;
  const Shape packed = PackedShape(product, batched, panel, 1);
  Nest nest;
  nest.kept.assign(packed.begin(), packed.begin() + static_cast<int64_t>(batch_rank + 1));
  nest.kept.insert(nest.kept.end(), product.k.begin(), product.k.end());
  nest.kept.push_back(panel);
  const std::vector<Expr> batch = Coords(0, batch_rank);
  const std::vector<Expr> k = Coords(batch_rank + 1, product.k.size());
  const Expr column = Expr::Coord(static_cast<int32_t>(nest.kept.size() - 1));
  const Expr n = Expr::Coord(static_cast<int32_t>(batch_rank)) * Int(panel) + column;

  StageOperands operands;
  nest.result =
      Expr::Cast(dtype, LoadRight(product, operands, batch, k, n, Within(n, product.n, panel)));
  nest.output = {.dtype = dtype, .shape = packed};
  if (product.k.size() != 1) {
    Expr flat = Int(0);
    for (size_t i = 0; i < k.size(); ++i) flat = flat * Extent(product.k[i]) + k[i];
    nest.output_coordinates = Coords(0, batch_rank + 1);
    nest.output_coordinates.push_back(flat);
    nest.output_coordinates.push_back(column);
  }
  const ValueId value = context.NewValue(dtype, packed, "panels");
  EmitNest(context, std::move(operands), std::move(nest), value);
  return value;
}

// Flat place of k to its axes.
std::vector<Expr> UnflattenK(const Product& product, Expr flat) {
  std::vector<Expr> k(product.k.size());
  for (size_t i = k.size(); i-- > 0;) {
    k[i] = i == 0 ? flat : FloorModulo(flat, Extent(product.k[i]));
    if (i > 0) flat = FloorDivide(flat, Extent(product.k[i]));
  }
  return k;
}

// --- Pairs ---

// The element of b at `k`, `column`, as `number`, its 16 bits; 0 past the ends.
Expr BitsOf(DType number, const Product& product, StageOperands& operands,
            const std::vector<Expr>& batch, const Expr& k, const Expr& n, const Expr& within) {
  const Expr element = LoadRight(product, operands, batch, UnflattenK(product, k), n, within);
  const Expr rounded = Expr::Cast(number, Expr::Cast(product.accumulator, element));
  const Expr bits = Expr::Cast(DType::kU32, Expr::BitCast(DType::kU16, rounded));
  if (!within.valid() || element.op() == ExprOp::kGuardedLoad) return bits;
  return Expr::Select(within, bits, Expr::ConstantInt(DType::kU32, 0));
}

ValueId EmitPackingPairs(LowerContext& context, const Product& product, bool batched,
                         int64_t panel) {
  const size_t batch_rank = batched ? product.batch.size() : 0;
  const Shape packed = PackedShape(product, batched, panel, kPairGroup);
  Nest nest{.kept = packed};
  const std::vector<Expr> at = Coords(batch_rank, 3);  // panel, step, column
  const Expr n = at[0] * Int(panel) + at[2];
  const Expr within_n = Within(n, product.n, panel);
  StageOperands operands;
  const auto bits = [&](int64_t number, const Expr& within) {
    const Expr k = at[1] * Int(kPairGroup) + Int(number);
    return BitsOf(NumberOfPairs(context, product), product, operands, Coords(0, batch_rank), k, n,
                  And(within_n, within));
  };
  const Expr later = at[1] * Int(kPairGroup) + Int(1);
  const Expr high = bits(1, Within(later, ElementCount(product.k), kPairGroup));
  nest.result =
      Expr::Binary(ExprOp::kBitOr, bits(0, Expr()),
                   Expr::Binary(ExprOp::kShiftLeft, high, Expr::ConstantInt(DType::kU32, 16)));
  nest.output = {.dtype = DType::kU32, .shape = packed};
  const ValueId value = context.NewValue(DType::kU32, packed, "panels");
  EmitNest(context, std::move(operands), std::move(nest), value);
  return value;
}

// --- Bytes ---

Expr I32(int64_t value) { return Expr::ConstantInt(DType::kI32, value); }

// A byte of the other signedness: the value moves by 128, and the bits of its sign are turned.
Expr OtherSign(const Expr& byte) {
  const DType to = byte.dtype() == DType::kU8 ? DType::kI8 : DType::kU8;
  const Expr sign = Expr::ConstantInt(byte.dtype(), byte.dtype() == DType::kU8 ? 128 : -128);
  return Expr::BitCast(to, Expr::Binary(ExprOp::kBitXor, byte, sign));
}

Expr SumOf(const Expr& a, const Expr& b) { return a.valid() ? a + b : b; }

// The right-hand side as panels of i8, and what of the sums depends on it alone.
struct RightBytes {
  ValueId panels = kNoValue;
  Shape shape;
  Expr zero;  // to subtract from every element, over batch and n; invalid: nothing
  Expr sums;  // over k of each column; only if wanted
};

Shape PanelsOfBytes(const Product& product, bool batched, int64_t panel) {
  Shape shape = PackedShape(product, batched, panel, kByteGroup);
  shape.push_back(kByteGroup);
  return shape;
}

// Coordinates of a value for each column, [batch..., n], in those of the result.
std::vector<Expr> ColumnCoords(const Product& product, bool batched) {
  std::vector<Expr> coords = Coords(0, batched ? product.batch.size() : 0);
  coords.push_back(Expr::Coord(static_cast<int32_t>(product.batch.size() + product.m.size())));
  return coords;
}

absl::StatusOr<RightBytes> PackConstantBytes(LowerContext& context, Product& product, bool batched,
                                             int64_t panel, bool wants_sums) {
  ASSIGN_OR_RETURN(const PackPlan plan, PlanConstant(product, batched, panel, DType::kI8));
  ASSIGN_OR_RETURN(PackedBytes packed, PackBytes(*product.b_constant, plan));
  const std::vector<Expr> coords = ColumnCoords(product, batched);
  const auto load = [&](Tensor tensor, absl::string_view name) {
    const Shape shape(tensor.shape().begin(), tensor.shape().end());
    const ValueId value = context.NewConstant(std::move(tensor), name);
    return product.operands.Load(product.operands.Add(value, DType::kI32, shape), coords);
  };
  RightBytes right{.zero = product.b_zero};
  right.shape.assign(packed.panels.shape().begin(), packed.panels.shape().end());
  right.panels = context.NewConstant(std::move(packed.panels), "panels");
  if (packed.shifts.has_value()) {
    const Expr shift = load(*std::move(packed.shifts), "shifts");
    right.zero = right.zero.valid() ? right.zero - shift : I32(0) - shift;
  }
  if (wants_sums) right.sums = load(std::move(packed.sums), "sums");
  return right;
}

Expr SignedByte(const Expr& element) {
  return element.dtype() == DType::kU8 ? OtherSign(element) : element;
}

// Sums over k of the columns of a right-hand side that the model computes.
ValueId EmitColumnSums(LowerContext& context, const Product& product, bool batched) {
  Nest nest;
  if (batched) nest.kept = product.batch;
  nest.kept.push_back(product.n);
  nest.reduced = product.k;
  const size_t batch_rank = nest.kept.size() - 1;
  StageOperands operands;
  const Expr element = LoadRight(product, operands, Coords(0, batch_rank),
                                 Coords(nest.kept.size(), product.k.size()),
                                 Expr::Coord(static_cast<int32_t>(batch_rank)), Expr());
  nest.reductions = {SumReduction(Expr::Cast(DType::kI32, SignedByte(element)))};
  nest.result = Expr::Reduced(DType::kI32, 0);
  nest.output = {.dtype = DType::kI32, .shape = nest.kept};
  const ValueId value = context.NewValue(DType::kI32, nest.kept, "sums");
  EmitNest(context, std::move(operands), std::move(nest), value);
  return value;
}

RightBytes PackComputedBytes(LowerContext& context, Product& product, bool batched, int64_t panel,
                             bool wants_sums) {
  const size_t batch_rank = batched ? product.batch.size() : 0;
  RightBytes right{.shape = PanelsOfBytes(product, batched, panel), .zero = product.b_zero};
  Nest nest{.kept = right.shape};
  const std::vector<Expr> at = Coords(batch_rank, 4);  // panel, group, column, place in the group
  const Expr n = at[0] * Int(panel) + at[2];
  const Expr k = at[1] * Int(kByteGroup) + at[3];
  const Expr within =
      And(Within(n, product.n, panel), Within(k, ElementCount(product.k), kByteGroup));
  StageOperands operands;
  const Expr element = SignedByte(
      LoadRight(product, operands, Coords(0, batch_rank), UnflattenK(product, k), n, within));
  nest.result = within.valid() && element.op() != ExprOp::kGuardedLoad
                    ? Expr::Select(within, element, Expr::ConstantInt(DType::kI8, 0))
                    : element;
  nest.output = {.dtype = DType::kI8, .shape = right.shape};
  right.panels = context.NewValue(DType::kI8, right.shape, "panels");
  EmitNest(context, std::move(operands), std::move(nest), right.panels);
  if (product.b_operand.dtype == DType::kU8) right.zero = SumOf(right.zero, I32(-128));
  if (wants_sums) {
    Shape shape;
    if (batched) shape = product.batch;
    shape.push_back(product.n);
    const int32_t sums = product.operands.Add(EmitColumnSums(context, product, batched),
                                              DType::kI32, std::move(shape));
    right.sums = product.operands.Load(sums, ColumnCoords(product, batched));
  }
  return right;
}

// Where b is known its extents along k are numbers. Those of `a` are equal wherever a check
// passed, but maybe not by name.
void TakeDepthOfConstant(Product& product) {
  if (!product.b_constant.has_value()) return;
  for (size_t i = 0; i < product.b_operand.shape.size(); ++i) {
    const ProductAxis& axis = product.b_axes[i];
    if (axis.role == ProductAxis::Role::kK) product.k[axis.index] = product.b_operand.shape[i];
  }
}

absl::Status EmitProductOfBytes(LowerContext& context, Product product, ValueId output) {
  TakeDepthOfConstant(product);
  const bool batched = IsBatched(product);
  const int64_t panel = Panel(context, product);
  Expr a_zero = product.a_zero;
  if (product.a.dtype() == DType::kI8) {
    product.a = OtherSign(product.a);
    a_zero = SumOf(a_zero, I32(128));
  }
  if (a_zero.valid() && a_zero.IsConstant() && a_zero.constant_int() == 0) a_zero = Expr();
  RightBytes right;
  if (product.b_constant.has_value()) {
    ASSIGN_OR_RETURN(right, PackConstantBytes(context, product, batched, panel, a_zero.valid()));
  } else {
    right = PackComputedBytes(context, product, batched, panel, a_zero.valid());
  }
  Expr sum = Expr::Accumulator(DType::kI32, 0);
  if (a_zero.valid()) sum = sum - a_zero * right.sums;
  if (right.zero.valid()) {
    Expr row = Expr::Accumulator(DType::kI32, 1);
    if (a_zero.valid()) {
      row = row - Expr::Cast(DType::kI32, Extent(ElementCount(product.k))) * a_zero;
    }
    sum = sum - right.zero * row;
  }
  Contraction contraction{.batch = product.batch,
                          .m = product.m,
                          .n = product.n,
                          .k = product.k,
                          .accumulator = DType::kI32,
                          .a = product.a,
                          .b_batched = batched,
                          .panel = panel,
                          .output = product.output,
                          .output_coordinates = product.output_coordinates};
  contraction.result = product.result.Rewrite(
      [&](const Expr& e) { return e.op() == ExprOp::kAccumulator ? sum : e; });
  contraction.b = product.operands.Add(right.panels, DType::kI8, right.shape);
  contraction.operands = product.operands.TakeOperands();
  context.EmitContraction(std::move(contraction), product.operands.TakeValues(), output);
  return absl::OkStatus();
}

}  // namespace

std::optional<DType> ContractionAccumulator(DType dtype) {
  if (IsFloat(dtype)) return ComputeType(dtype);
  if (IsInteger(dtype) && SizeBytes(dtype) <= 4) return DType::kI32;
  return std::nullopt;
}

absl::StatusOr<ValueId> PackRight(LowerContext& context, const Product& product) {
  const DType number = NumberOfPairs(context, product);
  const bool pairs = number != DType::kInvalid;
  const bool batched = IsBatched(product);
  const int64_t panel = Panel(context, product);
  if (product.b_constant.has_value()) {
    ASSIGN_OR_RETURN(const PackPlan plan,
                     PlanConstant(product, batched, panel, pairs ? number : product.accumulator));
    ASSIGN_OR_RETURN(Tensor packed, pairs ? PackPairs(*product.b_constant, plan)
                                          : PackPanels(*product.b_constant, plan));
    return context.NewConstant(std::move(packed), "panels");
  }
  return pairs ? EmitPackingPairs(context, product, batched, panel)
               : EmitPacking(context, product, batched, panel);
}

void EmitPackedProduct(LowerContext& context, Product product, ValueId packed, ValueId output) {
  TakeDepthOfConstant(product);
  const DType number = NumberOfPairs(context, product);
  const bool pairs = number != DType::kInvalid;
  const bool batched = IsBatched(product);
  const int64_t panel = Panel(context, product);
  Contraction contraction{.batch = product.batch,
                          .m = product.m,
                          .n = product.n,
                          .k = product.k,
                          .accumulator = product.accumulator,
                          .a = pairs ? Expr::Cast(number, product.a) : product.a,
                          .b_batched = batched,
                          .panel = panel,
                          .rows = product.rows,
                          .result = product.result,
                          .output = product.output,
                          .output_coordinates = product.output_coordinates};
  contraction.b =
      product.operands.Add(packed, pairs ? DType::kU32 : product.accumulator,
                           PackedShape(product, batched, panel, pairs ? kPairGroup : 1));
  contraction.operands = product.operands.TakeOperands();
  context.EmitContraction(std::move(contraction), product.operands.TakeValues(), output);
}

absl::Status EmitProduct(LowerContext& context, Product product, ValueId output) {
  if (OfBytes(product)) return EmitProductOfBytes(context, std::move(product), output);
  ASSIGN_OR_RETURN(const ValueId packed, PackRight(context, product));
  EmitPackedProduct(context, std::move(product), packed, output);
  return absl::OkStatus();
}

}  // namespace stampmill
