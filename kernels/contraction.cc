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

// Shape of the packed right-hand side.
Shape PackedShape(const Product& product, bool batched, int64_t panel) {
  Shape shape;
  if (batched) shape = product.batch;
  shape.push_back(CeilDiv(product.n, panel));
  shape.push_back(ElementCount(product.k));
  shape.push_back(panel);
  return shape;
}

absl::StatusOr<ValueId> PackConstant(LowerContext& context, const Product& product, bool batched,
                                     int64_t panel) {
  const std::vector<int64_t> extents = ConstantShape(product.b_operand.shape);
  PackPlan plan{
      .k = std::vector<PackAxis>(product.k.size()), .panel = panel, .dtype = product.accumulator};
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
  ASSIGN_OR_RETURN(Tensor packed, PackPanels(*product.b_constant, plan));
  return context.NewConstant(std::move(packed), "panels");
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

ValueId EmitPacking(LowerContext& context, const Product& product, bool batched, int64_t panel) {
  const DType dtype = product.accumulator;
  const size_t batch_rank = batched ? product.batch.size() : 0;
  const Shape packed = PackedShape(product, batched, panel);
  Nest nest;
  nest.kept.assign(packed.begin(), packed.begin() + static_cast<int64_t>(batch_rank + 1));
  nest.kept.insert(nest.kept.end(), product.k.begin(), product.k.end());
  nest.kept.push_back(panel);
  const std::vector<Expr> batch = Coords(0, batch_rank);
  const std::vector<Expr> k = Coords(batch_rank + 1, product.k.size());
  const Expr column = Expr::Coord(static_cast<int32_t>(nest.kept.size() - 1));
  const Expr n = Expr::Coord(static_cast<int32_t>(batch_rank)) * Int(panel) + column;

  StageOperands operands;
  const int32_t source = operands.Add(product.b, product.b_operand.dtype, product.b_operand.shape);
  // The last panel may be wider than n.
  const bool ragged = !product.n.is_constant() || *product.n.constant() % panel != 0;
  const Expr within = ragged ? Less(n, Extent(product.n)) : Expr();
  const Expr element =
      Expr::Cast(dtype, operands.LoadIf(within, source, SourceCoords(product, batch, k, n),
                                        Expr::ConstantInt(product.b_operand.dtype, 0)));
  nest.result = element;
  if (product.b_adjust) {
    const Expr last = Extent(product.n - 1);
    const Expr adjusted = product.b_adjust(operands, element, ragged ? Minimum(n, last) : n);
    nest.result = ragged ? Expr::Select(within, adjusted, Expr::ConstantInt(dtype, 0)) : adjusted;
  }
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

}  // namespace

std::optional<DType> ContractionAccumulator(DType dtype) {
  if (IsFloat(dtype)) return ComputeType(dtype);
  if (IsInteger(dtype) && SizeBytes(dtype) <= 4) return DType::kI32;
  return std::nullopt;
}

absl::StatusOr<ValueId> PackRight(LowerContext& context, const Product& product) {
  if (product.b_constant.has_value()) {
    return PackConstant(context, product, IsBatched(product), Panel(context, product));
  }
  return EmitPacking(context, product, IsBatched(product), Panel(context, product));
}

void EmitPackedProduct(LowerContext& context, Product product, ValueId packed, ValueId output) {
  const bool batched = IsBatched(product);
  const int64_t panel = Panel(context, product);
  Contraction contraction{.batch = product.batch,
                          .m = product.m,
                          .n = product.n,
                          .k = product.k,
                          .accumulator = product.accumulator,
                          .a = product.a,
                          .b_batched = batched,
                          .panel = panel,
                          .result = product.result,
                          .output = product.output,
                          .output_coordinates = product.output_coordinates};
  contraction.b =
      product.operands.Add(packed, product.accumulator, PackedShape(product, batched, panel));
  contraction.operands = product.operands.TakeOperands();
  context.EmitContraction(std::move(contraction), product.operands.TakeValues(), output);
}

absl::Status EmitProduct(LowerContext& context, Product product, ValueId output) {
  ASSIGN_OR_RETURN(const ValueId packed, PackRight(context, product));
  EmitPackedProduct(context, std::move(product), packed, output);
  return absl::OkStatus();
}

}  // namespace stampmill
