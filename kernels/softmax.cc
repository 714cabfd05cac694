// Softmax and LogSoftmax: one nest that finds the maximum and the sum of exponentials along the
// axis and then writes each element. Opset 13 form: one axis, not a flattened matrix.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

absl::Status InferSoftmax(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const int64_t axis, context.node().Int("axis", -1));
  if (!IsFloat(dtype)) return context.Error("input: softmax takes floating-point tensors");
  if (shape.empty() && axis >= -1 && axis <= 0) return context.SetOutput(0, dtype, {});
  RETURN_IF_ERROR(NormalizeAxis(context.node(), axis, shape.size()).status());
  return context.SetOutput(0, dtype, std::move(shape));
}

template <bool logarithm>
absl::StatusOr<std::vector<Tensor>> SoftmaxReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const int64_t axis_attribute, arguments.node.Int("axis", -1));
  // A scalar is a row of one element.
  Dims dims = input.shape();
  if (dims.empty()) dims = {1};
  ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(arguments.node, axis_attribute, dims.size()));
  const int64_t length = dims[axis];
  const int64_t stride = RowMajor(dims)[axis];
  std::vector<double> x = ReadValues<double>(input);
  for (int64_t row = 0; length > 0 && row < ProductOf(dims) / length; ++row) {
    const int64_t first = row / stride * stride * length + row % stride;
    double highest = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < length; ++i) {
      highest = NanMax(highest, x[static_cast<size_t>(first + i * stride)]);
    }
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) {
      sum += std::exp(x[static_cast<size_t>(first + i * stride)] - highest);
    }
    for (int64_t i = 0; i < length; ++i) {
      double& value = x[static_cast<size_t>(first + i * stride)];
      value = logarithm ? value - highest - std::log(sum) : std::exp(value - highest) / sum;
    }
  }
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), input.shape(), x));
  return One(std::move(output));
}

// A scalar is a row of one element: 1, or 0 for the logarithm, and NaN for NaN.
void LowerScalar(LowerContext& context, bool logarithm) {
  StageOperands operands;
  const Expr x = operands.Load(operands.AddInput(context, 0), {});
  const Expr zero = x - x;
  Nest nest;
  nest.result = logarithm ? zero : zero + Expr::Constant(x.dtype(), 1);
  nest.output = {.dtype = x.dtype(), .shape = {}};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
}

template <bool logarithm>
absl::Status LowerSoftmax(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  if (shape.empty()) {
    LowerScalar(context, logarithm);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t axis_attribute, context.node().Int("axis", -1));
  ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(context.node(), axis_attribute, shape.size()));
  const std::vector<size_t> reduced = {axis};
  const std::vector<size_t> kept = OtherAxes(reduced, shape.size());
  const std::vector<Expr> coords = SplitCoords(kept, reduced);
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const DType dtype = context.output(0).dtype;
  const DType compute = ComputeType(dtype);
  const Expr x = Expr::Cast(compute, operands.Load(input, coords));
  const Expr highest = Expr::Reduced(compute, 0);
  const Expr power = Expr::Unary(ExprOp::kExp, x - highest);
  const Expr sum = Expr::Accumulator(compute, 0);
  const Expr scale = Expr::Reduced(compute, 1);
  Nest nest{.kept = SelectDims(shape, kept), .reduced = SelectDims(shape, reduced)};
  if (logarithm) {
    nest.reductions = {MaxReduction(x), SumReduction(power, Expr::Unary(ExprOp::kLog, sum))};
    nest.result = Expr::Cast(dtype, x - highest - scale);
  } else {
    nest.reductions = {MaxReduction(x), SumReduction(power, Expr::Constant(compute, 1) / sum)};
    nest.result = Expr::Cast(dtype, power * scale);
  }
  nest.per_element = true;
  nest.output = {.dtype = dtype, .shape = shape};
  if (axis + 1 != shape.size()) nest.output_coordinates = coords;
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

template <bool logarithm>
constexpr Variant kVariants[] = {{"nest", AlwaysApplies, LowerSoftmax<logarithm>}};

template <bool logarithm>
constexpr OpDefinition SoftmaxOp(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 1,
          .max_inputs = 1,
          .infer = InferSoftmax,
          .reference = SoftmaxReference<logarithm>,
          .variants = kVariants<logarithm>};
}

}  // namespace

std::span<const OpDefinition> SoftmaxOps() {
  static constexpr OpDefinition kOps[] = {SoftmaxOp<true>("LogSoftmax"),
                                          SoftmaxOp<false>("Softmax")};
  return kOps;
}

}  // namespace stampmill
