// Operators that make elements from positions: ConstantOfShape, Range, EyeLike, OneHot, Trilu.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// The attribute `value`: one element, f32 0 when absent.
absl::StatusOr<Tensor> FillValue(const Node& node) {
  const Tensor* value = node.FindTensor("value");
  if (value == nullptr) return Tensor::Allocate(DType::kF32, {1});
  if (value->element_count() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": value: got ",
                                                   value->element_count(), " elements, limit 1"));
  }
  return *value;
}

Expr ElementExpr(const Tensor& tensor) {
  if (IsFloat(tensor.dtype())) return Expr::Constant(tensor.dtype(), tensor.ValueAsDouble(0));
  return Expr::ConstantInt(tensor.dtype(), tensor.ValueAsInt64(0));
}

absl::Status InferConstantOfShape(InferContext& context) {
  ASSIGN_OR_RETURN(const Tensor value, FillValue(context.node()));
  ASSIGN_OR_RETURN(Shape shape, context.RequireSymbolic(0));
  const bool is_fixed = IsConstant(shape);
  RETURN_IF_ERROR(context.SetOutput(0, value.dtype(), shape));
  if (!is_fixed || IsFloat(value.dtype())) return absl::OkStatus();
  int64_t count = 1;
  for (const int64_t dim : ConstantShape(shape)) {
    if (__builtin_mul_overflow(count, dim, &count)) return absl::OkStatus();
  }
  if (count <= static_cast<int64_t>(kSymbolicElementsMax)) {
    context.SetOutputSymbolic(
        0, std::vector<DimExpr>(static_cast<size_t>(count), value.ValueAsInt64(0)));
  }
  return absl::OkStatus();
}

References ConstantOfShapeReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const Tensor value, FillValue(arguments.node));
  ASSIGN_OR_RETURN(Tensor output,
                   Tensor::Allocate(value.dtype(), Int64Values(arguments.inputs[0])));
  RETURN_IF_ERROR(DispatchSize(value.dtype(), [&]<typename T>() {
    std::ranges::fill(output.mutable_values<T>(), In<T>(value)[0]);
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status LowerConstantOfShape(LowerContext& context) {
  ASSIGN_OR_RETURN(const Tensor value, FillValue(context.node()));
  EmitMap(context, StageOperands(), ElementExpr(value));
  return absl::OkStatus();
}

// Whole steps from start to limit.
absl::StatusOr<int64_t> RangeCount(const Node& node, double start, double limit, double delta) {
  const double count = std::ceil((limit - start) / delta);
  if (std::isnan(count) || count > 9e15) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": range from ", start, " to ",
                                                   limit, " by ", delta, " has no end"));
  }
  return std::max<int64_t>(0, static_cast<int64_t>(count));
}

absl::Status InferRange(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  for (size_t i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(const DType other, context.InputDType(i));
    ASSIGN_OR_RETURN(const Shape shape, context.InputShape(i));
    if (other != dtype || dtype == DType::kBool) {
      return context.Error(
          absl::StrCat("input ", i, " is ", Name(other), ", input 0 ", Name(dtype)));
    }
    RETURN_IF_ERROR(RequireEqual(context, ElementCount(shape), 1, "elements of a bound"));
  }
  const Tensor* bounds[] = {context.InputConstant(0), context.InputConstant(1),
                            context.InputConstant(2)};
  if (IsFloat(dtype) && bounds[0] != nullptr && bounds[1] != nullptr && bounds[2] != nullptr) {
    ASSIGN_OR_RETURN(const int64_t count,
                     RangeCount(context.node(), bounds[0]->ValueAsDouble(0),
                                bounds[1]->ValueAsDouble(0), bounds[2]->ValueAsDouble(0)));
    return context.SetOutput(0, dtype, {count});
  }
  // Integers, or floats that are whole numbers computed from shapes.
  for (size_t i = 0; i < 3 && IsFloat(dtype); ++i) {
    if (context.InputSymbolic(i) != nullptr) continue;
    return context.Unsupported(absl::StrCat("input ", i, " is a float that is not known"));
  }
  ASSIGN_OR_RETURN(const std::vector<DimExpr> start, context.RequireSymbolic(0));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> limit, context.RequireSymbolic(1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> delta, context.RequireConstant(2));
  if (delta[0] == 0) return context.Error("delta: must not be 0");
  const DimExpr distance = delta[0] > 0 ? limit[0] - start[0] : start[0] - limit[0];
  const DimExpr steps = CeilDiv(distance, delta[0] > 0 ? delta[0] : -delta[0]);
  const DimExpr count = steps.LowerBound().value_or(-1) >= 0 ? steps : Max(0, steps);
  RETURN_IF_ERROR(context.SetOutput(0, dtype, {count}));
  if (count.is_constant() && *count.constant() <= static_cast<int64_t>(kSymbolicElementsMax)) {
    std::vector<DimExpr> contents;
    for (int64_t i = 0; i < *count.constant(); ++i) contents.push_back(start[0] + i * delta[0]);
    context.SetOutputSymbolic(0, std::move(contents));
  }
  return absl::OkStatus();
}

References RangeReference(const ReferenceArguments& arguments) {
  const Tensor& first = arguments.inputs[0];
  for (const Tensor& bound : arguments.inputs) {
    if (bound.element_count() != 1 || bound.dtype() != first.dtype()) {
      return ReferenceError(arguments, "bounds must be one element of one type");
    }
  }
  return DispatchNumeric(first.dtype(), [&]<typename T>() -> References {
    const Compute<T> start = In<T>(first)[0];
    const Compute<T> limit = In<T>(arguments.inputs[1])[0];
    const Compute<T> delta = In<T>(arguments.inputs[2])[0];
    if (delta == 0) return ReferenceError(arguments, "delta: must not be 0");
    ASSIGN_OR_RETURN(const int64_t count,
                     RangeCount(arguments.node, static_cast<double>(start),
                                static_cast<double>(limit), static_cast<double>(delta)));
    ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(DTypeOf<T>(), {count}));
    const std::span<T> y = output.mutable_values<T>();
    for (int64_t i = 0; i < count; ++i) {
      const Compute<T> offset = static_cast<Compute<T>>(static_cast<Compute<T>>(i) * delta);
      y[static_cast<size_t>(i)] = static_cast<T>(start + offset);
    }
    return One(std::move(output));
  });
}

absl::Status LowerRange(LowerContext& context) {
  const DType dtype = context.output(0).dtype;
  const DType compute = ComputeType(dtype);
  // A bound that is not constant was followed to a dim.
  const auto bound = [&](size_t i) -> absl::StatusOr<Expr> {
    const Value& value = context.input(i);
    if (IsFloat(dtype) && value.constant.has_value()) {
      return Expr::Cast(compute, ElementExpr(*value.constant));
    }
    ASSIGN_OR_RETURN(const std::vector<DimExpr> known, KnownContents(context.node(), value));
    return Expr::Cast(compute, Extent(known[0]));
  };
  ASSIGN_OR_RETURN(const Expr start, bound(0));
  ASSIGN_OR_RETURN(const Expr delta, bound(2));
  EmitMap(context, StageOperands(), start + Expr::Cast(compute, Expr::Coord(0)) * delta);
  return absl::OkStatus();
}

absl::StatusOr<DType> EyeType(const Node& node, DType input) {
  if (!node.Has("dtype")) return input;
  ASSIGN_OR_RETURN(const int64_t given, node.Int("dtype", 0));
  const std::optional<DType> dtype = DTypeFromOnnx(static_cast<int32_t>(given));
  if (dtype.has_value()) return *dtype;
  return absl::UnimplementedError(
      absl::StrCat(node.Describe(), ": dtype: element type ", given, " is not supported"));
}

absl::Status InferEyeLike(InferContext& context) {
  ASSIGN_OR_RETURN(const DType input, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const DType dtype, EyeType(context.node(), input));
  RETURN_IF_ERROR(context.node().Int("k", 0).status());
  if (shape.size() != 2)
    return context.Error(absl::StrCat("rank: got ", shape.size(), ", takes 2"));
  return context.SetOutput(0, dtype, std::move(shape));
}

References EyeLikeReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const DType dtype, EyeType(arguments.node, input.dtype()));
  ASSIGN_OR_RETURN(const int64_t k, arguments.node.Int("k", 0));
  if (input.rank() != 2) return ReferenceError(arguments, "input must have two dims");
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(dtype, input.shape()));
  for (int64_t row = 0; row < input.shape()[0]; ++row) {
    for (int64_t column = 0; column < input.shape()[1]; ++column) {
      if (column - row == k) output.SetFromInt64(row * input.shape()[1] + column, 1);
    }
  }
  return One(std::move(output));
}

absl::Status LowerEyeLike(LowerContext& context) {
  ASSIGN_OR_RETURN(const int64_t k, context.node().Int("k", 0));
  const Expr on = Equal(Expr::Coord(1) - Expr::Coord(0), Int(k));
  EmitMap(context, StageOperands(), Expr::Select(on, Int(1), Int(0)));
  return absl::OkStatus();
}

// Axis of OneHot in the output, which has one dim more.
absl::StatusOr<size_t> OneHotAxis(const Node& node, size_t rank) {
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", -1));
  return NormalizeAxis(node, axis, rank + 1);
}

// A depth may be of any type: known as a dim, or a constant float.
absl::StatusOr<DimExpr> OneHotDepth(const Node& node, const Value& value) {
  if (value.constant.has_value() && value.constant->element_count() == 1) {
    return DimExpr(value.constant->ValueAsInt64(0));
  }
  if (value.symbolic.has_value() && value.symbolic->size() == 1) return (*value.symbolic)[0];
  return absl::UnimplementedError(absl::StrCat(
      node.Describe(), ": input 1 ('", value.name,
      "') must be one element that is known when the model is compiled: a constant, or computed "
      "from the shapes of the model's inputs"));
}

absl::Status InferOneHot(InferContext& context) {
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(2));
  ASSIGN_OR_RETURN(const Shape values, context.InputShape(2));
  ASSIGN_OR_RETURN(const size_t axis, OneHotAxis(context.node(), shape.size()));
  if (values.size() != 1) return context.Error("values must have one dim");
  RETURN_IF_ERROR(RequireEqual(context, values[0], 2, "elements of values"));
  ASSIGN_OR_RETURN(const DimExpr depth, OneHotDepth(context.node(), context.InputValue(1)));
  shape.insert(shape.begin() + static_cast<int64_t>(axis), depth);
  return context.SetOutput(0, dtype, std::move(shape));
}

References OneHotReference(const ReferenceArguments& arguments) {
  const Tensor& indices = arguments.inputs[0];
  const Tensor& values = arguments.inputs[2];
  ASSIGN_OR_RETURN(const size_t axis, OneHotAxis(arguments.node, indices.shape().size()));
  if (arguments.inputs[1].element_count() != 1 || values.element_count() != 2) {
    return ReferenceError(arguments, "depth must be one element, values two");
  }
  const int64_t depth = arguments.inputs[1].ValueAsInt64(0);
  Dims dims = indices.shape();
  dims.insert(dims.begin() + static_cast<int64_t>(axis), depth);
  const Dims list = Int64Values(indices);
  const Dims strides = RowMajor(indices.shape());
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(values.dtype(), dims));
  RETURN_IF_ERROR(DispatchSize(values.dtype(), [&]<typename T>() {
    const In<T> v(values);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEachIndex(dims, [&](const Dims& index) {
      Dims at = index;
      at.erase(at.begin() + static_cast<int64_t>(axis));
      const int64_t hot = list[static_cast<size_t>(OffsetOf(at, strides))];
      y[next++] = v[(hot < 0 ? hot + depth : hot) == index[axis] ? 1 : 0];
    });
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status LowerOneHot(LowerContext& context) {
  const size_t rank = context.InputShape(0).size();
  ASSIGN_OR_RETURN(const size_t axis, OneHotAxis(context.node(), rank));
  ASSIGN_OR_RETURN(const DimExpr depth, OneHotDepth(context.node(), context.input(1)));
  StageOperands operands;
  const int32_t indices = operands.AddInput(context, 0);
  const int32_t values = operands.AddInput(context, 2);
  std::vector<Expr> coordinates = Coords(0, rank + 1);
  const Expr place = coordinates[axis];
  coordinates.erase(coordinates.begin() + static_cast<int64_t>(axis));
  const Expr index = Expr::Cast(DType::kI64, operands.Load(indices, std::move(coordinates)));
  const Expr hot = Expr::Select(Less(index, Int(0)), index + Extent(depth), index);
  EmitMap(context, operands,
          Expr::Select(Equal(hot, place), operands.Load(values, {Int(1)}),
                       operands.Load(values, {Int(0)})));
  return absl::OkStatus();
}

absl::Status InferTrilu(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  RETURN_IF_ERROR(context.node().Int("upper", 1).status());
  if (shape.size() < 2) {
    return context.Error(absl::StrCat("rank: got ", shape.size(), ", takes at least 2"));
  }
  if (context.HasInput(1)) {
    ASSIGN_OR_RETURN(const Shape k, context.InputShape(1));
    RETURN_IF_ERROR(RequireEqual(context, ElementCount(k), 1, "elements of k"));
  }
  return context.SetOutput(0, dtype, std::move(shape));
}

References TriluReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const int64_t upper, arguments.node.Int("upper", 1));
  int64_t k = 0;
  if (arguments.inputs.size() > 1 && arguments.inputs[1].valid()) {
    if (arguments.inputs[1].element_count() != 1) {
      return ReferenceError(arguments, "k must be one element");
    }
    k = arguments.inputs[1].ValueAsInt64(0);
  }
  if (input.rank() < 2) return ReferenceError(arguments, "input must have two dims");
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(input.dtype(), input.shape()));
  RETURN_IF_ERROR(DispatchSize(input.dtype(), [&]<typename T>() {
    const In<T> x(input);
    const std::span<T> y = output.mutable_values<T>();
    int64_t next = 0;
    ForEachIndex(input.shape(), [&](const Dims& index) {
      // In 128 bits: k may be any i64.
      const __int128 distance = index[index.size() - 1] - index[index.size() - 2];
      const bool keep = upper != 0 ? distance >= k : distance <= k;
      y[static_cast<size_t>(next)] = keep ? x[next] : T{0};
      ++next;
    });
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status LowerTrilu(LowerContext& context) {
  const size_t rank = context.InputShape(0).size();
  ASSIGN_OR_RETURN(const int64_t upper, context.node().Int("upper", 1));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  Expr k = Int(0);
  if (context.HasInput(1)) {
    const Value& value = context.input(1);
    if (value.symbolic.has_value()) {
      k = Extent((*value.symbolic)[0]);
    } else {
      const int32_t operand = operands.AddInput(context, 1);
      k = Expr::Cast(DType::kI64,
                     operands.Load(operand, std::vector<Expr>(value.shape->size(), Int(0))));
    }
  }
  const std::vector<Expr> coordinates = Coords(0, rank);
  const Expr distance = coordinates[rank - 1] - coordinates[rank - 2];
  const Expr keep = upper != 0 ? LessEqual(k, distance) : LessEqual(distance, k);
  const Expr zero = Expr::ConstantInt(context.output(0).dtype, 0);
  EmitMap(context, operands, Expr::Select(keep, operands.Load(input, coordinates), zero));
  return absl::OkStatus();
}

constexpr OpDefinition kOps[] = {
    {.name = "ConstantOfShape",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferConstantOfShape,
     .reference = ConstantOfShapeReference,
     .variants = kNest<LowerConstantOfShape>},
    {.name = "Range",
     .domain = "",
     .min_inputs = 3,
     .max_inputs = 3,
     .infer = InferRange,
     .reference = RangeReference,
     .variants = kNest<LowerRange>},
    {.name = "EyeLike",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferEyeLike,
     .reference = EyeLikeReference,
     .variants = kNest<LowerEyeLike>},
    {.name = "OneHot",
     .domain = "",
     .min_inputs = 3,
     .max_inputs = 3,
     .infer = InferOneHot,
     .reference = OneHotReference,
     .variants = kNest<LowerOneHot>},
    {.name = "Trilu",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 2,
     .infer = InferTrilu,
     .reference = TriluReference,
     .variants = kNest<LowerTrilu>},
};

}  // namespace

std::span<const OpDefinition> GenerateOps() { return kOps; }

}  // namespace stampmill
