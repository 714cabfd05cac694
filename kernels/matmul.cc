// MatMul, MatMulInteger, QLinearMatMul and Gemm. MatMul broadcasts batch axes as numpy does; a
// batch axis along which the right-hand side does not vary becomes an axis of rows, so that weights
// are packed once and rows of all batches share them.
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/contraction.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// The axes of a MatMul. `a` is [batch..., m, k] or [k], `b` is [batch..., k, n] or [k].
template <typename Extents>
struct MatMulAxes {
  Extents a_batch, b_batch;
  bool has_m = false, has_n = false;

  MatMulAxes(const Extents& a, const Extents& b) {
    has_m = a.size() > 1;
    has_n = b.size() > 1;
    if (has_m) a_batch.assign(a.begin(), a.end() - 2);
    if (has_n) b_batch.assign(b.begin(), b.end() - 2);
  }
};

constexpr size_t kAbsent = ~size_t{0};

// Which input is what; kAbsent: the operator has none.
struct ProductInputs {
  size_t a = 0, b = 1;
  size_t a_zero = kAbsent, b_zero = kAbsent;
  size_t a_scale = kAbsent, b_scale = kAbsent, y_scale = kAbsent, y_zero = kAbsent;

  bool quantised() const { return a_zero != kAbsent; }
};

ProductInputs InputsOf(const Node& node) {
  ProductInputs inputs;
  if (node.op_type == "MatMulInteger") inputs = {.a = 0, .b = 1, .a_zero = 2, .b_zero = 3};
  if (node.op_type == "QLinearMatMul") {
    inputs = {.a = 0,
              .b = 3,
              .a_zero = 2,
              .b_zero = 5,
              .a_scale = 1,
              .b_scale = 4,
              .y_scale = 6,
              .y_zero = 7};
  }
  return inputs;
}

bool IsByte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

absl::StatusOr<Shape> InferProductShape(InferContext& context) {
  const ProductInputs inputs = InputsOf(context.node());
  ASSIGN_OR_RETURN(const Shape a, context.InputShape(inputs.a));
  ASSIGN_OR_RETURN(const Shape b, context.InputShape(inputs.b));
  if (a.empty() || b.empty()) return context.Error("a scalar cannot be multiplied as a matrix");
  const MatMulAxes<Shape> axes(a, b);
  const DimExpr& b_length = b[axes.has_n ? b.size() - 2 : 0];
  RETURN_IF_ERROR(RequireEqual(context, a.back(), b_length, "inner dims of A and B"));
  ASSIGN_OR_RETURN(Shape shape,
                   BroadcastShapes(context, std::vector<Shape>{axes.a_batch, axes.b_batch}));
  if (axes.has_m) shape.push_back(a[a.size() - 2]);
  if (axes.has_n) shape.push_back(b.back());
  return shape;
}

absl::Status InferMatMul(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const DType other, context.InputDType(1));
  if (dtype != other || dtype == DType::kBool) {
    return context.Error(absl::StrCat("types of A and B: got ", Name(dtype), " and ", Name(other)));
  }
  ASSIGN_OR_RETURN(Shape shape, InferProductShape(context));
  return context.SetOutput(0, dtype, std::move(shape));
}

// A scale or zero point of A has one element or one for each row, of B one for each column.
absl::Status CheckQuantisation(InferContext& context, size_t input, const DimExpr& lines) {
  if (input == kAbsent || !context.HasInput(input)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(input));
  if (shape.empty() || (shape.size() == 1 && shape[0].IsConstant(1))) return absl::OkStatus();
  if (shape.size() != 1) {
    return context.Unsupported(absl::StrCat("input ", input, " of shape ", ToString(shape),
                                            ": scales and zero points have rank 1 at most"));
  }
  return RequireEqual(context, shape[0], lines, "zero points or scales and rows or columns");
}

absl::Status InferQuantised(InferContext& context) {
  const ProductInputs inputs = InputsOf(context.node());
  for (const auto& [side, zero, scale, from_end] :
       {std::array<size_t, 4>{inputs.a, inputs.a_zero, inputs.a_scale, 2},
        std::array<size_t, 4>{inputs.b, inputs.b_zero, inputs.b_scale, 1}}) {
    ASSIGN_OR_RETURN(const DType dtype, context.InputDType(side));
    ASSIGN_OR_RETURN(const Shape shape, context.InputShape(side));
    if (!IsByte(dtype)) return context.Error("A and B must be int8 or uint8");
    const DimExpr lines = shape.size() < 2 ? DimExpr(1) : shape[shape.size() - from_end];
    RETURN_IF_ERROR(CheckQuantisation(context, zero, lines));
    RETURN_IF_ERROR(CheckQuantisation(context, scale, lines));
    if (!context.HasInput(zero)) continue;
    ASSIGN_OR_RETURN(const DType zero_dtype, context.InputDType(zero));
    if (zero_dtype != dtype) return context.Error("a zero point must have its tensor's type");
  }
  DType dtype = DType::kI32;
  if (inputs.y_zero != kAbsent) {
    RETURN_IF_ERROR(CheckQuantisation(context, inputs.y_scale, 1));
    RETURN_IF_ERROR(CheckQuantisation(context, inputs.y_zero, 1));
    ASSIGN_OR_RETURN(dtype, context.InputDType(inputs.y_zero));
    if (!IsByte(dtype)) return context.Error("Y must be int8 or uint8");
  }
  ASSIGN_OR_RETURN(Shape shape, InferProductShape(context));
  return context.SetOutput(0, dtype, std::move(shape));
}

// Reference. Elements of A and B less their zero points, then plain loops.
template <typename T>
std::vector<T> Multiply(const std::vector<T>& a, const Dims& a_dims, const std::vector<T>& b,
                        const Dims& b_dims, const Dims& batch) {
  const MatMulAxes<Dims> axes(a_dims, b_dims);
  const int64_t m = axes.has_m ? a_dims[a_dims.size() - 2] : 1;
  const int64_t n = axes.has_n ? b_dims.back() : 1;
  const int64_t k = a_dims.back();
  std::vector<T> result;
  ForEach<2>(batch, {BroadcastStrides(axes.a_batch, batch), BroadcastStrides(axes.b_batch, batch)},
             [&](const auto& offset) {
               const T* a_matrix = a.data() + offset[0] * m * k;
               const T* b_matrix = b.data() + offset[1] * k * n;
               for (int64_t row = 0; row < m; ++row) {
                 for (int64_t column = 0; column < n; ++column) {
                   T sum{0};
                   for (int64_t i = 0; i < k; ++i) {
                     sum = WrapAdd(sum, WrapMul(a_matrix[row * k + i], b_matrix[i * n + column]));
                   }
                   result.push_back(sum);
                 }
               }
             });
  return result;
}

absl::StatusOr<Dims> ProductBatch(const Dims& a, const Dims& b) {
  const MatMulAxes<Dims> axes(a, b);
  return BroadcastDims({axes.a_batch, axes.b_batch});
}

Dims ProductDims(const Dims& a, const Dims& b, Dims batch) {
  const MatMulAxes<Dims> axes(a, b);
  if (axes.has_m) batch.push_back(a[a.size() - 2]);
  if (axes.has_n) batch.push_back(b.back());
  return batch;
}

absl::StatusOr<std::vector<Tensor>> MatMulReference(const ReferenceArguments& arguments) {
  const Tensor& a = arguments.inputs[0];
  const Tensor& b = arguments.inputs[1];
  ASSIGN_OR_RETURN(const Dims batch, ProductBatch(a.shape(), b.shape()));
  absl::StatusOr<Tensor> output = WithArithmeticType(a.dtype(), [&]<typename T>(T) {
    return MakeTensor(a.dtype(), ProductDims(a.shape(), b.shape(), batch),
                      Multiply(ReadValues<T>(a), a.shape(), ReadValues<T>(b), b.shape(), batch));
  });
  if (!output.ok()) return output.status();
  return One(*std::move(output));
}

// Subtracts zero points: one for all, or one for each coordinate of an axis of `stride` and
// `extent`.
void SubtractZeroPoints(std::vector<int64_t>& values, const Tensor& zero_points, int64_t stride,
                        int64_t extent) {
  const std::vector<int64_t> zeros = ReadValues<int64_t>(zero_points);
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t place = static_cast<int64_t>(i) / stride % extent;
    values[i] -= zeros[zeros.size() == 1 ? 0 : static_cast<size_t>(place)];
  }
}

// sums * a_scale * b_scale / y_scale, rounded, + y_zero, saturated. Scales of A go with rows, of B
// with columns; the sums are [..., rows, columns].
absl::StatusOr<Tensor> Requantise(const ReferenceArguments& arguments, const ProductInputs& inputs,
                                  const std::vector<int64_t>& sums, const Dims& dims, int64_t rows,
                                  int64_t columns) {
  const auto read = [&](size_t i) { return ReadValues<float>(arguments.inputs[i]); };
  const std::vector<float> a_scale = read(inputs.a_scale), b_scale = read(inputs.b_scale);
  const float y_scale = read(inputs.y_scale)[0], y_zero = read(inputs.y_zero)[0];
  std::vector<float> values;
  for (size_t i = 0; i < sums.size(); ++i) {
    const size_t row = i / static_cast<size_t>(columns) % static_cast<size_t>(rows);
    const size_t column = i % static_cast<size_t>(columns);
    const float scale = a_scale[a_scale.size() == 1 ? 0 : row] *
                        b_scale[b_scale.size() == 1 ? 0 : column] / y_scale;
    values.push_back(std::nearbyint(static_cast<float>(sums[i]) * scale) + y_zero);
  }
  return MakeTensor(arguments.inputs[inputs.y_zero].dtype(), dims, values);
}

absl::StatusOr<std::vector<Tensor>> QuantisedReference(const ReferenceArguments& arguments) {
  const ProductInputs inputs = InputsOf(arguments.node);
  const Tensor& a = arguments.inputs[inputs.a];
  const Tensor& b = arguments.inputs[inputs.b];
  ASSIGN_OR_RETURN(const Dims batch, ProductBatch(a.shape(), b.shape()));
  std::vector<int64_t> a_values = ReadValues<int64_t>(a);
  std::vector<int64_t> b_values = ReadValues<int64_t>(b);
  const auto has = [&](size_t i) {
    return arguments.inputs.size() > i && arguments.inputs[i].valid();
  };
  const int64_t rows = a.rank() > 1 ? a.shape()[a.shape().size() - 2] : 1;
  const int64_t columns = b.rank() > 1 ? b.shape().back() : 1;
  if (has(inputs.a_zero)) {
    SubtractZeroPoints(a_values, arguments.inputs[inputs.a_zero], a.shape().back(), rows);
  }
  if (has(inputs.b_zero)) SubtractZeroPoints(b_values, arguments.inputs[inputs.b_zero], 1, columns);
  const std::vector<int64_t> sums = Multiply(a_values, a.shape(), b_values, b.shape(), batch);
  const Dims dims = ProductDims(a.shape(), b.shape(), batch);
  absl::StatusOr<Tensor> output = inputs.y_scale == kAbsent
                                      ? MakeTensor(DType::kI32, dims, sums)
                                      : Requantise(arguments, inputs, sums, dims, rows, columns);
  if (!output.ok()) return output.status();
  return One(*std::move(output));
}

// Lowering.

// Input `i`, a scale or zero point, for the row or column `line`.
Expr LoadLine(const LowerContext& context, StageOperands& operands, size_t i, const Expr& line) {
  const std::optional<Tensor>& constant = context.input(i).constant;
  if (constant.has_value() && constant->element_count() == 1 && IsInteger(constant->dtype())) {
    return Expr::ConstantInt(constant->dtype(), constant->ValueAsInt64(0));
  }
  const int32_t operand = operands.AddInput(context, i);
  std::vector<Expr> coords;
  for (const DimExpr& dim : operands.operand(operand).shape) {
    coords.push_back(dim.IsConstant(1) ? Int(0) : line);
  }
  return operands.Load(operand, std::move(coords));
}

// Zero point `i` of a row or column as i32; invalid where the node has none.
Expr ZeroPoint(const LowerContext& context, StageOperands& operands, size_t i, const Expr& line) {
  if (i == kAbsent || !context.HasInput(i)) return Expr();
  return Expr::Cast(DType::kI32, LoadLine(context, operands, i, line));
}

Expr LessZeroPoint(const LowerContext& context, StageOperands& operands, const Expr& value,
                   size_t i, const Expr& line) {
  const Expr zero = ZeroPoint(context, operands, i, line);
  return zero.valid() ? value - zero : value;
}

// What a sum is multiplied by: one constant for each column where the scales are known.
absl::StatusOr<Expr> Multiplier(LowerContext& context, const ProductInputs& inputs,
                                StageOperands& operands, const Expr& row, const Expr& column) {
  const auto real = [&](size_t i, const Expr& line) {
    return Expr::Cast(DType::kF32, LoadLine(context, operands, i, line));
  };
  const auto constant = [&](size_t i) -> const std::optional<Tensor>& {
    return context.input(i).constant;
  };
  const bool known = constant(inputs.a_scale).has_value() && constant(inputs.b_scale).has_value() &&
                     constant(inputs.y_scale).has_value() &&
                     constant(inputs.a_scale)->element_count() == 1;
  if (!known) {
    return real(inputs.a_scale, row) * real(inputs.b_scale, column) / real(inputs.y_scale, Int(0));
  }
  const float a_scale = ReadValues<float>(*constant(inputs.a_scale))[0];
  const float y_scale = ReadValues<float>(*constant(inputs.y_scale))[0];
  std::vector<float> scales = ReadValues<float>(*constant(inputs.b_scale));
  for (float& scale : scales) scale = a_scale * scale / y_scale;
  if (scales.size() == 1) return Expr::Constant(DType::kF32, scales[0]);
  const auto count = static_cast<int64_t>(scales.size());
  ASSIGN_OR_RETURN(Tensor tensor, MakeTensor(DType::kF32, {count}, scales));
  const ValueId value = context.NewConstant(std::move(tensor), "multipliers");
  return operands.Load(operands.Add(value, DType::kF32, {count}), {column});
}

// What becomes of a sum.
absl::StatusOr<Expr> ProductResult(LowerContext& context, const ProductInputs& inputs,
                                   StageOperands& operands, const Expr& sum, const Expr& row,
                                   const Expr& column) {
  const DType dtype = context.output(0).dtype;
  if (inputs.y_scale == kAbsent) return Expr::Cast(dtype, sum);
  ASSIGN_OR_RETURN(const Expr scale, Multiplier(context, inputs, operands, row, column));
  const Expr rounded = Expr::Unary(ExprOp::kRound, Expr::Cast(DType::kF32, sum) * scale);
  const Expr zero = LoadLine(context, operands, inputs.y_zero, Int(0));
  return Expr::Cast(dtype, rounded + Expr::Cast(DType::kF32, zero));
}

// The constant right-hand side less its zero points, when both are known.
absl::StatusOr<std::optional<Tensor>> ConstantRight(const LowerContext& context,
                                                    const ProductInputs& inputs) {
  const std::optional<Tensor>& b = context.input(inputs.b).constant;
  if (!b.has_value()) return std::optional<Tensor>();
  if (inputs.b_zero == kAbsent || !context.HasInput(inputs.b_zero)) return b;
  const std::optional<Tensor>& zero = context.input(inputs.b_zero).constant;
  if (!zero.has_value()) return std::optional<Tensor>();
  std::vector<int64_t> values = ReadValues<int64_t>(*b);
  SubtractZeroPoints(values, *zero, 1, b->shape().back());
  ASSIGN_OR_RETURN(Tensor adjusted, MakeTensor(DType::kI32, b->shape(), values));
  return std::optional<Tensor>(std::move(adjusted));
}

// Coordinates of one side of a MatMul: its batch axes, then the last two or one.
std::vector<Expr> SideCoords(const Shape& side_batch, const Shape& batch,
                             const std::vector<Expr>& batch_coords, std::vector<Expr> inner) {
  std::vector<Expr> coords;
  const size_t skipped = batch.size() - side_batch.size();
  for (size_t i = 0; i < side_batch.size(); ++i) {
    coords.push_back(BroadcastCoord(side_batch[i], batch[skipped + i], batch_coords[skipped + i]));
  }
  coords.insert(coords.end(), inner.begin(), inner.end());
  return coords;
}

Shape OutputBatch(const LowerContext& context, const MatMulAxes<Shape>& axes) {
  Shape batch = *context.output(0).shape;
  batch.resize(batch.size() - (axes.has_m ? 1 : 0) - (axes.has_n ? 1 : 0));
  return batch;
}

// The batch axes of a MatMul, dealt out: those along which b varies stay batch axes of the
// contraction, the others become rows.
struct BatchAxes {
  Shape batch, rows;
  std::vector<Expr> coords;         // of the output's batch axes, in its order
  std::vector<ProductAxis> b_axes;  // of b's batch axes
};

BatchAxes DealBatch(const Shape& batch, const Shape& b_batch) {
  const size_t skipped = batch.size() - b_batch.size();
  const auto varies = [&](size_t i) { return i >= skipped && !b_batch[i - skipped].IsConstant(1); };
  BatchAxes result;
  result.coords.resize(batch.size());
  result.b_axes.resize(b_batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!varies(i)) continue;
    result.coords[i] = Expr::Coord(static_cast<int32_t>(result.batch.size()));
    result.b_axes[i - skipped] = {ProductAxis::Role::kBatch, result.batch.size()};
    result.batch.push_back(batch[i]);
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    if (varies(i)) continue;
    result.coords[i] = Expr::Coord(static_cast<int32_t>(result.batch.size() + result.rows.size()));
    result.rows.push_back(batch[i]);
  }
  return result;
}

absl::Status LowerMatMulContraction(LowerContext& context) {
  const ProductInputs inputs = InputsOf(context.node());
  const Shape a = context.InputShape(inputs.a);
  const Shape b = context.InputShape(inputs.b);
  const MatMulAxes<Shape> axes(a, b);
  const Shape batch = OutputBatch(context, axes);
  BatchAxes dealt = DealBatch(batch, axes.b_batch);

  Product product;
  product.accumulator =
      inputs.quantised() ? DType::kI32 : *ContractionAccumulator(context.output(0).dtype);
  product.batch = dealt.batch;
  product.m = dealt.rows;
  Expr row = Int(0);
  if (axes.has_m) {
    row = Expr::Coord(static_cast<int32_t>(batch.size()));
    product.m.push_back(a[a.size() - 2]);
  }
  if (product.m.empty()) product.m.push_back(1);
  product.n = b.back();
  product.k = {a.back()};
  // The axis after the rows is k to `a` and n to the result.
  const Expr last = Expr::Coord(static_cast<int32_t>(product.batch.size() + product.m.size()));
  const int32_t left = product.operands.AddInput(context, inputs.a);
  const std::vector<Expr> place =
      SideCoords(axes.a_batch, batch, dealt.coords,
                 axes.has_m ? std::vector<Expr>{row, last} : std::vector<Expr>{last});
  product.a = product.operands.Load(left, place);
  if (!inputs.quantised()) product.a = Expr::Cast(product.accumulator, product.a);
  product.b = context.node().inputs[inputs.b];
  product.b_operand = {.dtype = context.input(inputs.b).dtype, .shape = b};
  product.b_axes = dealt.b_axes;
  product.b_axes.push_back({ProductAxis::Role::kK, 0});
  product.b_axes.push_back({ProductAxis::Role::kN, 0});
  ASSIGN_OR_RETURN(product.b_constant, ConstantRight(context, inputs));
  product.a_zero = ZeroPoint(context, product.operands, inputs.a_zero, row);
  if (!product.b_constant.has_value()) {
    product.b_zero = ZeroPoint(context, product.operands, inputs.b_zero, last);
  }
  ASSIGN_OR_RETURN(product.result,
                   ProductResult(context, inputs, product.operands,
                                 Expr::Accumulator(product.accumulator, 0), row, last));
  product.output = {.dtype = context.output(0).dtype, .shape = *context.output(0).shape};
  product.output_coordinates = dealt.coords;
  if (axes.has_m) product.output_coordinates.push_back(row);
  product.output_coordinates.push_back(last);
  return EmitProduct(context, std::move(product), context.node().outputs[0]);
}

// One column, or a type that no contraction accumulates: a plain reduction.
absl::Status LowerMatMulNest(LowerContext& context) {
  const ProductInputs inputs = InputsOf(context.node());
  const Shape a = context.InputShape(inputs.a);
  const Shape b = context.InputShape(inputs.b);
  const MatMulAxes<Shape> axes(a, b);
  const Shape batch = OutputBatch(context, axes);
  const DType dtype = context.output(0).dtype;
  const DType compute = inputs.quantised() ? DType::kI32 : ComputeType(dtype);
  Nest nest{.kept = *context.output(0).shape, .reduced = {a.back()}};
  const std::vector<Expr> coords = Coords(0, batch.size());
  const Expr inner = Expr::Coord(static_cast<int32_t>(nest.kept.size()));
  std::vector<Expr> a_inner = {inner}, b_inner = {inner};
  Expr row = Int(0), column = Int(0);
  if (axes.has_m) {
    row = Expr::Coord(static_cast<int32_t>(batch.size()));
    a_inner = {row, inner};
  }
  if (axes.has_n) {
    column = Expr::Coord(static_cast<int32_t>(nest.kept.size() - 1));
    b_inner = {inner, column};
  }
  StageOperands operands;
  const auto load = [&](size_t input, const Shape& side, const std::vector<Expr>& place) {
    const int32_t operand = operands.AddInput(context, input);
    return Expr::Cast(compute, operands.Load(operand, SideCoords(side, batch, coords, place)));
  };
  const Expr x =
      LessZeroPoint(context, operands, load(inputs.a, axes.a_batch, a_inner), inputs.a_zero, row);
  const Expr y = LessZeroPoint(context, operands, load(inputs.b, axes.b_batch, b_inner),
                               inputs.b_zero, column);
  nest.reductions = {SumReduction(x * y)};
  ASSIGN_OR_RETURN(nest.result, ProductResult(context, inputs, operands, Expr::Reduced(compute, 0),
                                              row, column));
  nest.output = {.dtype = dtype, .shape = nest.kept};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

bool ContractsMatMul(const LowerContext& context) {
  const ProductInputs inputs = InputsOf(context.node());
  const Shape b = context.InputShape(inputs.b);
  return b.size() > 1 && !b.back().IsConstant(1) &&
         ContractionAccumulator(context.input(inputs.a).dtype).has_value();
}

// Gemm.

struct GemmAttributes {
  bool transpose_a = false, transpose_b = false;
  float alpha = 1, beta = 1;
};

absl::StatusOr<GemmAttributes> ReadGemm(const Node& node) {
  GemmAttributes gemm;
  ASSIGN_OR_RETURN(const int64_t transpose_a, node.Int("transA", 0));
  ASSIGN_OR_RETURN(const int64_t transpose_b, node.Int("transB", 0));
  ASSIGN_OR_RETURN(gemm.alpha, node.Float("alpha", 1));
  ASSIGN_OR_RETURN(gemm.beta, node.Float("beta", 1));
  gemm.transpose_a = transpose_a != 0;
  gemm.transpose_b = transpose_b != 0;
  return gemm;
}

absl::Status InferGemm(InferContext& context) {
  ASSIGN_OR_RETURN(const GemmAttributes gemm, ReadGemm(context.node()));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const DType other, context.InputDType(1));
  ASSIGN_OR_RETURN(const Shape a, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape b, context.InputShape(1));
  if (dtype != other || dtype == DType::kBool) {
    return context.Error(absl::StrCat("types of A and B: got ", Name(dtype), " and ", Name(other)));
  }
  if (a.size() != 2 || b.size() != 2) return context.Error("A and B must have rank 2");
  RETURN_IF_ERROR(RequireEqual(context, a[gemm.transpose_a ? 0 : 1], b[gemm.transpose_b ? 1 : 0],
                               "inner dims of A and B"));
  const Shape shape = {a[gemm.transpose_a ? 1 : 0], b[gemm.transpose_b ? 0 : 1]};
  if (context.HasInput(2)) {
    ASSIGN_OR_RETURN(const Shape c, context.InputShape(2));
    if (c.size() > 2) return context.Error("C must have rank 2 or less");
    for (size_t i = 0; i < c.size(); ++i) {
      const DimExpr& dim = c[c.size() - 1 - i];
      if (dim.IsConstant(1)) continue;
      RETURN_IF_ERROR(RequireEqual(context, dim, shape[1 - i], "dims of C and the result"));
    }
  }
  return context.SetOutput(0, dtype, shape);
}

absl::StatusOr<std::vector<Tensor>> GemmReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const GemmAttributes gemm, ReadGemm(arguments.node));
  const Tensor& a = arguments.inputs[0];
  const Tensor& b = arguments.inputs[1];
  const int64_t m = a.shape()[gemm.transpose_a ? 1 : 0];
  const int64_t k = a.shape()[gemm.transpose_a ? 0 : 1];
  const int64_t n = b.shape()[gemm.transpose_b ? 0 : 1];
  const bool has_c = arguments.inputs.size() > 2 && arguments.inputs[2].valid();
  const Dims dims = {m, n};
  absl::StatusOr<Tensor> output = WithArithmeticType(a.dtype(), [&]<typename T>(T) {
    const std::vector<T> x = ReadValues<T>(a), y = ReadValues<T>(b);
    const std::vector<T> c = has_c ? ReadValues<T>(arguments.inputs[2]) : std::vector<T>{0};
    const Dims c_strides = has_c ? BroadcastStrides(arguments.inputs[2].shape(), dims) : Dims{0, 0};
    std::vector<T> result;
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t column = 0; column < n; ++column) {
        T sum{0};
        for (int64_t i = 0; i < k; ++i) {
          const int64_t left = gemm.transpose_a ? i * m + row : row * k + i;
          const int64_t right = gemm.transpose_b ? column * k + i : i * n + column;
          sum = WrapAdd(sum, WrapMul(x[static_cast<size_t>(left)], y[static_cast<size_t>(right)]));
        }
        const T addend = c[static_cast<size_t>(row * c_strides[0] + column * c_strides[1])];
        if (gemm.alpha != 1) sum = static_cast<T>(static_cast<double>(sum) * gemm.alpha);
        const T scaled =
            gemm.beta == 1 ? addend : static_cast<T>(static_cast<double>(addend) * gemm.beta);
        result.push_back(WrapAdd(sum, scaled));
      }
    }
    return MakeTensor(a.dtype(), dims, result);
  });
  if (!output.ok()) return output.status();
  return One(*std::move(output));
}

// value * factor, computed as a real number; unchanged for a factor of 1.
Expr Scaled(const Expr& value, float factor) {
  if (factor == 1) return value;
  if (IsFloat(value.dtype())) return value * Expr::Constant(value.dtype(), factor);
  const Expr real = Expr::Cast(DType::kF64, value) * Expr::Constant(DType::kF64, factor);
  return Expr::Cast(value.dtype(), real);
}

// alpha * total + beta * C at the output coordinates.
Expr GemmResult(const LowerContext& context, const GemmAttributes& gemm, StageOperands& operands,
                const Expr& total, const std::vector<Expr>& coords) {
  Expr value = Scaled(total, gemm.alpha);
  if (context.HasInput(2) && gemm.beta != 0) {
    const int32_t c = operands.AddInput(context, 2);
    const Expr addend =
        Expr::Cast(total.dtype(), operands.LoadBroadcast(c, *context.output(0).shape, coords));
    value = value + Scaled(addend, gemm.beta);
  }
  return Expr::Cast(context.output(0).dtype, value);
}

absl::Status LowerGemmContraction(LowerContext& context) {
  ASSIGN_OR_RETURN(const GemmAttributes gemm, ReadGemm(context.node()));
  const DType dtype = context.output(0).dtype;
  const Shape shape = *context.output(0).shape;
  Product product;
  product.accumulator = *ContractionAccumulator(dtype);
  product.m = {shape[0]};
  product.n = shape[1];
  product.k = {context.InputShape(0)[gemm.transpose_a ? 0 : 1]};
  const int32_t left = product.operands.AddInput(context, 0);
  const Expr row = Expr::Coord(0), inner = Expr::Coord(1);
  product.a =
      Expr::Cast(product.accumulator,
                 product.operands.Load(left, gemm.transpose_a ? std::vector<Expr>{inner, row}
                                                              : std::vector<Expr>{row, inner}));
  product.b = context.node().inputs[1];
  product.b_operand = {.dtype = context.input(1).dtype, .shape = context.InputShape(1)};
  product.b_axes = {{ProductAxis::Role::kK, 0}, {ProductAxis::Role::kN, 0}};
  if (gemm.transpose_b) std::swap(product.b_axes[0], product.b_axes[1]);
  product.b_constant = context.input(1).constant;
  product.result = GemmResult(context, gemm, product.operands,
                              Expr::Accumulator(product.accumulator, 0), Coords(0, 2));
  product.output = {.dtype = dtype, .shape = shape};
  return EmitProduct(context, std::move(product), context.node().outputs[0]);
}

absl::Status LowerGemmNest(LowerContext& context) {
  ASSIGN_OR_RETURN(const GemmAttributes gemm, ReadGemm(context.node()));
  const DType compute = ComputeType(context.output(0).dtype);
  Nest nest{.kept = *context.output(0).shape,
            .reduced = {context.InputShape(0)[gemm.transpose_a ? 0 : 1]}};
  StageOperands operands;
  const int32_t left = operands.AddInput(context, 0);
  const int32_t right = operands.AddInput(context, 1);
  const Expr row = Expr::Coord(0), column = Expr::Coord(1), inner = Expr::Coord(2);
  std::vector<Expr> a_coords = {row, inner}, b_coords = {inner, column};
  if (gemm.transpose_a) std::swap(a_coords[0], a_coords[1]);
  if (gemm.transpose_b) std::swap(b_coords[0], b_coords[1]);
  nest.reductions = {SumReduction(Expr::Cast(compute, operands.Load(left, a_coords)) *
                                  Expr::Cast(compute, operands.Load(right, b_coords)))};
  nest.result = GemmResult(context, gemm, operands, Expr::Reduced(compute, 0), Coords(0, 2));
  nest.output = {.dtype = context.output(0).dtype, .shape = nest.kept};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

bool ContractsGemm(const LowerContext& context) {
  return !(*context.output(0).shape)[1].IsConstant(1) &&
         ContractionAccumulator(context.output(0).dtype).has_value();
}

constexpr Variant kMatMulVariants[] = {{"contraction", ContractsMatMul, LowerMatMulContraction},
                                       {"nest", AlwaysApplies, LowerMatMulNest}};
constexpr Variant kGemmVariants[] = {{"contraction", ContractsGemm, LowerGemmContraction},
                                     {"nest", AlwaysApplies, LowerGemmNest}};

}  // namespace

std::span<const OpDefinition> MatMulOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "Gemm",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 3,
       .infer = InferGemm,
       .reference = GemmReference,
       .variants = kGemmVariants},
      {.name = "MatMul",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = InferMatMul,
       .reference = MatMulReference,
       .variants = kMatMulVariants},
      {.name = "MatMulInteger",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 4,
       .infer = InferQuantised,
       .reference = QuantisedReference,
       .variants = kMatMulVariants},
      {.name = "QLinearMatMul",
       .domain = "",
       .min_inputs = 8,
       .max_inputs = 8,
       .infer = InferQuantised,
       .reference = QuantisedReference,
       .variants = kMatMulVariants},
  };
  return kOps;
}

}  // namespace stampmill
