// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear over the integer types of 8 and 16
// bits. A scale is for the whole tensor, for each place of an axis, or for blocks along an axis.
#include <algorithm>
#include <cmath>
#include <optional>
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

// How scales lie over the tensor.
struct Granularity {
  enum class Kind { kTensor, kAxis, kBlocks };
  Kind kind = Kind::kTensor;
  size_t axis = 0;
  int64_t block = 1;
};

absl::StatusOr<Granularity> ReadGranularity(const Node& node, size_t rank, const Shape& scale) {
  Granularity granularity;
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", 1));
  ASSIGN_OR_RETURN(const int64_t block, node.Int("block_size", 0));
  if (block < 0) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": block_size: got ", block));
  }
  if (scale.empty() || (block == 0 && scale.size() == 1 && scale[0].IsConstant(1))) {
    return granularity;
  }
  ASSIGN_OR_RETURN(granularity.axis, NormalizeAxis(node, axis, rank));
  granularity.kind = block == 0 ? Granularity::Kind::kAxis : Granularity::Kind::kBlocks;
  granularity.block = std::max<int64_t>(1, block);
  const size_t want = block == 0 ? 1 : rank;
  if (scale.size() == want) return granularity;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": scale: got shape ", ToString(scale), ", want rank ", want));
}

// Coordinates of the scale for an element, in any arithmetic.
template <typename T, typename Divide>
std::vector<T> ScaleCoords(const Granularity& granularity, size_t scale_rank, const T& zero,
                           const std::vector<T>& coords, const Divide& divide) {
  if (granularity.kind == Granularity::Kind::kTensor) return std::vector<T>(scale_rank, zero);
  if (granularity.kind == Granularity::Kind::kAxis) return {coords[granularity.axis]};
  std::vector<T> result = coords;
  result[granularity.axis] = divide(coords[granularity.axis], granularity.block);
  return result;
}

absl::StatusOr<std::optional<DType>> DTypeAttribute(const Node& node, absl::string_view name) {
  ASSIGN_OR_RETURN(const int64_t number, node.Int(name, 0));
  if (number == 0) return std::optional<DType>();
  const std::optional<DType> dtype = DTypeFromOnnx(static_cast<int32_t>(number));
  if (dtype.has_value()) return dtype;
  return absl::UnimplementedError(
      absl::StrCat(node.Describe(), ": ", name, ": element type ", number, " is not supported"));
}

bool IsQuantised(DType dtype) { return IsInteger(dtype) && SizeBytes(dtype) <= 2; }

absl::Status CheckScales(InferContext& context, const Shape& x) {
  ASSIGN_OR_RETURN(const Shape scale, context.InputShape(1));
  ASSIGN_OR_RETURN(const DType scale_dtype, context.InputDType(1));
  if (!IsFloat(scale_dtype)) return context.Error("scale: must be a floating-point tensor");
  ASSIGN_OR_RETURN(const Granularity granularity, ReadGranularity(context.node(), x.size(), scale));
  const DimExpr along = x.empty() ? DimExpr(1) : x[granularity.axis];
  if (granularity.kind == Granularity::Kind::kAxis) {
    RETURN_IF_ERROR(RequireEqual(context, scale[0], along, "scales and places of the axis"));
  }
  for (size_t i = 0; granularity.kind == Granularity::Kind::kBlocks && i < x.size(); ++i) {
    const DimExpr want = i == granularity.axis ? CeilDiv(x[i], granularity.block) : x[i];
    RETURN_IF_ERROR(RequireEqual(context, scale[i], want, "dims of scale and blocks"));
  }
  if (!context.HasInput(2)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Shape zero, context.InputShape(2));
  if (zero.size() != scale.size() &&
      !(ElementCount(zero).IsConstant(1) && ElementCount(scale).IsConstant(1))) {
    return context.Error(
        absl::StrCat("zero point: got shape ", ToString(zero), ", scale has ", ToString(scale)));
  }
  for (size_t i = 0; i < zero.size() && zero.size() == scale.size(); ++i) {
    RETURN_IF_ERROR(RequireEqual(context, zero[i], scale[i], "dims of zero point and scale"));
  }
  return absl::OkStatus();
}

absl::Status InferQuantize(InferContext& context) {
  ASSIGN_OR_RETURN(const DType x_dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  if (!IsFloat(x_dtype) && x_dtype != DType::kI32) {
    return context.Error(absl::StrCat("x: got type ", Name(x_dtype)));
  }
  ASSIGN_OR_RETURN(const std::optional<DType> wanted,
                   DTypeAttribute(context.node(), "output_dtype"));
  DType dtype = wanted.value_or(DType::kU8);
  if (context.HasInput(2)) {
    ASSIGN_OR_RETURN(dtype, context.InputDType(2));
    if (wanted.has_value() && *wanted != dtype) {
      return context.Error(
          absl::StrCat("output_dtype is ", Name(*wanted), ", the zero point is ", Name(dtype)));
    }
  }
  if (!IsQuantised(dtype)) {
    return context.Unsupported(absl::StrCat("quantised type ", Name(dtype)));
  }
  RETURN_IF_ERROR(DTypeAttribute(context.node(), "precision").status());
  RETURN_IF_ERROR(CheckScales(context, shape));
  return context.SetOutput(0, dtype, shape);
}

absl::Status InferDequantize(InferContext& context) {
  ASSIGN_OR_RETURN(const DType x_dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  if (!IsQuantised(x_dtype) && x_dtype != DType::kI32) {
    return context.Unsupported(absl::StrCat("quantised type ", Name(x_dtype)));
  }
  if (context.HasInput(2)) {
    ASSIGN_OR_RETURN(const DType zero, context.InputDType(2));
    if (zero != x_dtype) return context.Error("the zero point must have the type of x");
  }
  RETURN_IF_ERROR(CheckScales(context, shape));
  ASSIGN_OR_RETURN(const DType scale, context.InputDType(1));
  ASSIGN_OR_RETURN(const std::optional<DType> wanted,
                   DTypeAttribute(context.node(), "output_dtype"));
  if (wanted.has_value() && !IsFloat(*wanted)) {
    return context.Error(absl::StrCat("output_dtype: got ", Name(*wanted)));
  }
  return context.SetOutput(0, wanted.value_or(scale), shape);
}

// Reference. Scale and zero point of each element.
struct ElementScales {
  std::vector<float> scale;
  std::vector<int64_t> zero;
};

absl::StatusOr<ElementScales> ReadScales(const ReferenceArguments& arguments) {
  const Tensor& scale = arguments.inputs[1];
  const Dims& dims = arguments.inputs[0].shape();
  ASSIGN_OR_RETURN(const Granularity granularity,
                   ReadGranularity(arguments.node, dims.size(),
                                   Shape(scale.shape().begin(), scale.shape().end())));
  const bool has_zero = arguments.inputs.size() > 2 && arguments.inputs[2].valid();
  const Dims strides = RowMajor(scale.shape());
  ElementScales result;
  ForEachIndex(dims, [&](const Dims& index) {
    const Dims at = ScaleCoords<int64_t>(granularity, scale.shape().size(), 0, index,
                                         [](int64_t a, int64_t b) { return a / b; });
    const int64_t place = OffsetOf(at, strides);
    result.scale.push_back(static_cast<float>(scale.ValueAsDouble(place)));
    result.zero.push_back(has_zero ? arguments.inputs[2].ValueAsInt64(place) : 0);
  });
  return result;
}

// A float cut to the precision of `dtype`.
float Rounded(float value, DType dtype) {
  if (dtype == DType::kF16) return HalfToFloat(FloatToHalf(value));
  if (dtype == DType::kBF16) return BFloat16ToFloat(FloatToBFloat16(value));
  return value;
}

absl::StatusOr<std::vector<Tensor>> QuantizeReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const ElementScales scales, ReadScales(arguments));
  ASSIGN_OR_RETURN(const std::optional<DType> wanted,
                   DTypeAttribute(arguments.node, "output_dtype"));
  ASSIGN_OR_RETURN(const std::optional<DType> precision,
                   DTypeAttribute(arguments.node, "precision"));
  const bool has_zero = arguments.inputs.size() > 2 && arguments.inputs[2].valid();
  const DType dtype = has_zero ? arguments.inputs[2].dtype() : wanted.value_or(DType::kU8);
  const std::vector<double> x = ReadValues<double>(input);
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) {
    const float quotient = Rounded(static_cast<float>(x[i]) / scales.scale[i],
                                   precision.value_or(arguments.inputs[1].dtype()));
    y.push_back(std::nearbyint(quotient) + static_cast<double>(scales.zero[i]));
  }
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(dtype, input.shape(), y));
  return One(std::move(output));
}

absl::StatusOr<std::vector<Tensor>> DequantizeReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const ElementScales scales, ReadScales(arguments));
  ASSIGN_OR_RETURN(const std::optional<DType> wanted,
                   DTypeAttribute(arguments.node, "output_dtype"));
  const std::vector<int64_t> x = ReadValues<int64_t>(input);
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(static_cast<float>(x[i] - scales.zero[i]) * scales.scale[i]);
  }
  ASSIGN_OR_RETURN(Tensor output,
                   MakeTensor(wanted.value_or(arguments.inputs[1].dtype()), input.shape(), y));
  return One(std::move(output));
}

// Lowering.

// What the maps of both operators load: the element, its scale in f32, its zero point or nothing.
struct QuantizeMap {
  StageOperands operands;
  Expr x;
  Expr scale;
  Expr zero;  // of its own type; invalid: none
};

absl::StatusOr<QuantizeMap> StartMap(const LowerContext& context) {
  const Shape shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const Granularity granularity,
                   ReadGranularity(context.node(), shape.size(), context.InputShape(1)));
  QuantizeMap map;
  const std::vector<Expr> coords = Coords(0, shape.size());
  const auto load = [&](size_t input) {
    return map.operands.Load(
        map.operands.AddInput(context, input),
        ScaleCoords<Expr>(granularity, context.InputShape(input).size(), Int(0), coords,
                          [](const Expr& a, int64_t b) { return FloorDivide(a, Int(b)); }));
  };
  map.x = map.operands.Load(map.operands.AddInput(context, 0), coords);
  map.scale = Expr::Cast(DType::kF32, load(1));
  if (context.HasInput(2)) map.zero = load(2);
  return map;
}

void FinishMap(LowerContext& context, StageOperands operands, const Expr& value) {
  Nest nest{.kept = *context.output(0).shape};
  nest.output = {.dtype = context.output(0).dtype, .shape = nest.kept};
  nest.result = Expr::Cast(nest.output.dtype, value);
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
}

absl::Status LowerQuantize(LowerContext& context) {
  ASSIGN_OR_RETURN(QuantizeMap map, StartMap(context));
  ASSIGN_OR_RETURN(const std::optional<DType> precision,
                   DTypeAttribute(context.node(), "precision"));
  const DType cut = precision.value_or(context.input(1).dtype);
  Expr quotient = Expr::Cast(DType::kF32, map.x) / map.scale;
  if (ComputeType(cut) != cut) quotient = Expr::Cast(DType::kF32, Expr::Cast(cut, quotient));
  Expr value = Expr::Unary(ExprOp::kRound, quotient);
  if (map.zero.valid()) value = value + Expr::Cast(DType::kF32, map.zero);
  FinishMap(context, std::move(map.operands), value);
  return absl::OkStatus();
}

absl::Status LowerDequantize(LowerContext& context) {
  ASSIGN_OR_RETURN(QuantizeMap map, StartMap(context));
  Expr x = map.x;
  if (map.zero.valid()) x = Expr::Cast(DType::kI32, x) - Expr::Cast(DType::kI32, map.zero);
  FinishMap(context, std::move(map.operands), Expr::Cast(DType::kF32, x) * map.scale);
  return absl::OkStatus();
}

// DynamicQuantizeLinear: the range of the whole tensor, 0 included, on 0..255.

absl::Status InferDynamic(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  if (dtype != DType::kF32) return context.Error(absl::StrCat("x: got type ", Name(dtype)));
  RETURN_IF_ERROR(context.SetOutput(0, DType::kU8, shape));
  RETURN_IF_ERROR(context.SetOutput(1, DType::kF32, {}));
  return context.SetOutput(2, DType::kU8, {});
}

absl::StatusOr<std::vector<Tensor>> DynamicReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const std::vector<double> x = ReadValues<double>(input);
  float least = 0, greatest = 0;
  for (const double value : x) {
    least = std::min(least, static_cast<float>(value));
    greatest = std::max(greatest, static_cast<float>(value));
  }
  const float range = greatest == least ? 1.0f : greatest - least;
  const float scale = range / 255.0f;
  const float zero = std::nearbyint(std::clamp(0.0f - least / scale, 0.0f, 255.0f));
  std::vector<double> y;
  for (const double value : x) {
    y.push_back(std::nearbyint(static_cast<float>(value) / scale) + zero);
  }
  std::vector<Tensor> outputs(3);
  ASSIGN_OR_RETURN(outputs[0], MakeTensor(DType::kU8, input.shape(), y));
  ASSIGN_OR_RETURN(outputs[1], MakeTensor(DType::kF32, {}, std::vector<double>{scale}));
  ASSIGN_OR_RETURN(outputs[2], MakeTensor(DType::kU8, {}, std::vector<double>{zero}));
  return outputs;
}

// The least and the greatest of 0 and everything, in the halves of one u64; NaN counts for nothing.
Reduction RangeWithZero(const Expr& x) {
  const auto better = [](ExprOp beats, const Expr& a, const Expr& b) {
    return Expr::Select(Expr::Binary(beats, a, b), a, b);
  };
  const auto found = [&](int32_t i) { return Expr::Accumulator(x.dtype(), i); };
  const auto bits = [&](int32_t i) {
    return Expr::Cast(DType::kU64, Expr::BitCast(DType::kU32, found(i)));
  };
  const Expr zero = Expr::Constant(x.dtype(), 0);
  const Expr high = Expr::Binary(ExprOp::kShiftLeft, bits(1), Expr::ConstantInt(DType::kU64, 32));
  return {
      .init = {zero, zero},
      .update = {better(ExprOp::kLt, x, found(0)), better(ExprOp::kGt, x, found(1))},
      .merge = {better(ExprOp::kLt, found(2), found(0)), better(ExprOp::kGt, found(3), found(1))},
      .result = Expr::Binary(ExprOp::kBitOr, bits(0), high)};
}

absl::Status LowerDynamic(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  const DType real = DType::kF32;
  const auto constant = [&](double value) { return Expr::Constant(real, value); };
  const std::vector<ValueId>& outputs = context.node().outputs;
  const auto value_of = [&](size_t i, DType dtype) {
    return context.HasOutput(i) ? outputs[i] : context.NewValue(dtype, {}, "range");
  };
  const ValueId scale_value = value_of(1, real), zero_value = value_of(2, DType::kU8);
  const ValueId range_value = context.NewValue(DType::kU64, {}, "least and greatest");
  const auto emit_scalar = [&](StageOperands operands, const Expr& result, ValueId value) {
    Nest nest{.result = result, .output = {.dtype = result.dtype(), .shape = {}}};
    EmitNest(context, std::move(operands), std::move(nest), value);
  };
  // The half of the range that begins at a bit.
  const auto half = [&](StageOperands& operands, int64_t first_bit) {
    const Expr both = operands.Load(operands.Add(range_value, DType::kU64, {}), {});
    const Expr shifted =
        Expr::Binary(ExprOp::kShiftRight, both, Expr::ConstantInt(DType::kU64, first_bit));
    return Expr::BitCast(real, Expr::Cast(DType::kU32, shifted));
  };
  {
    StageOperands operands;
    const Expr x = operands.Load(operands.AddInput(context, 0), Coords(0, shape.size()));
    Nest nest{.reduced = shape, .reductions = {RangeWithZero(x)}};
    if (shape.empty()) nest.reduced = {1};
    nest.result = Expr::Reduced(DType::kU64, 0);
    nest.output = {.dtype = DType::kU64, .shape = {}};
    EmitNest(context, std::move(operands), std::move(nest), range_value);
  }
  {
    StageOperands operands;
    const Expr least = half(operands, 0), greatest = half(operands, 32);
    const Expr range = Expr::Select(Equal(greatest, least), constant(1), greatest - least);
    emit_scalar(std::move(operands), range / constant(255), scale_value);
  }
  {
    StageOperands operands;
    const Expr least = half(operands, 0);
    const Expr scale = operands.Load(operands.Add(scale_value, real, {}), {});
    const Expr zero = Maximum(constant(0), Minimum(constant(255), constant(0) - least / scale));
    emit_scalar(std::move(operands), Expr::Cast(DType::kU8, Expr::Unary(ExprOp::kRound, zero)),
                zero_value);
  }
  if (!context.HasOutput(0)) return absl::OkStatus();
  StageOperands operands;
  const Expr x = operands.Load(operands.AddInput(context, 0), Coords(0, shape.size()));
  const Expr scale = operands.Load(operands.Add(scale_value, real, {}), {});
  const Expr zero = operands.Load(operands.Add(zero_value, DType::kU8, {}), {});
  const Expr rounded = Expr::Unary(ExprOp::kRound, x / scale);
  FinishMap(context, std::move(operands), rounded + Expr::Cast(real, zero));
  return absl::OkStatus();
}

constexpr Variant kQuantizeVariants[] = {{"nest", AlwaysApplies, LowerQuantize}};
constexpr Variant kDequantizeVariants[] = {{"nest", AlwaysApplies, LowerDequantize}};
constexpr Variant kDynamicVariants[] = {{"nest", AlwaysApplies, LowerDynamic}};

}  // namespace

std::span<const OpDefinition> QuantizeOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "DequantizeLinear",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 3,
       .infer = InferDequantize,
       .reference = DequantizeReference,
       .variants = kDequantizeVariants},
      {.name = "DynamicQuantizeLinear",
       .domain = "",
       .min_inputs = 1,
       .max_inputs = 1,
       .min_outputs = 3,
       .max_outputs = 3,
       .infer = InferDynamic,
       .reference = DynamicReference,
       .variants = kDynamicVariants},
      {.name = "QuantizeLinear",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 3,
       .infer = InferQuantize,
       .reference = QuantizeReference,
       .variants = kQuantizeVariants},
  };
  return kOps;
}

}  // namespace stampmill
