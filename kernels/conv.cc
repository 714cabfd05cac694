// Conv, ConvInteger and QLinearConv, over any number of spatial axes and in both layouts
// (kernels/layout.h). Weights are [M, C / group, kernel...] in either.
//
// A dense convolution is a contraction whose rows are output positions and whose k runs over the
// window and the channels, in the order in which the activation lies in memory; groups of enough
// channels are a batch of such contractions. Depthwise and thin groups are plain reductions: panels
// would be mostly padding.
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/contraction.h"
#include "kernels/conv_winograd.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/layout.h"
#include "kernels/packing.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"
#include "kernels/window.h"

namespace stampmill {
namespace {

constexpr size_t kAbsent = ~size_t{0};

// Which input is what; kAbsent: the operator has none.
struct ConvInputs {
  size_t x = 0, w = 1, bias = kAbsent;
  size_t x_zero = kAbsent, w_zero = kAbsent;
  size_t x_scale = kAbsent, w_scale = kAbsent, y_scale = kAbsent, y_zero = kAbsent;

  bool quantised() const { return x_zero != kAbsent; }
};

ConvInputs InputsOf(const Node& node) {
  ConvInputs inputs;
  if (node.op_type == "Conv") {
    inputs.bias = 2;
  } else if (node.op_type == "ConvInteger") {
    inputs.x_zero = 2;
    inputs.w_zero = 3;
  } else {
    inputs = {.x = 0,
              .w = 3,
              .bias = 8,
              .x_zero = 2,
              .w_zero = 5,
              .x_scale = 1,
              .w_scale = 4,
              .y_scale = 6,
              .y_zero = 7};
  }
  return inputs;
}

// Groups, with the channels that each takes and makes.
struct Groups {
  int64_t count = 1;
  int64_t inputs = 1, outputs = 1;
};

absl::StatusOr<Groups> ReadGroups(const Node& node, int64_t w_outputs, int64_t w_inputs) {
  Groups groups;
  ASSIGN_OR_RETURN(groups.count, node.Int("group", 1));
  if (groups.count < 1 || w_outputs % groups.count != 0) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": group: got ", groups.count,
                                                   ", output channels are ", w_outputs));
  }
  groups.inputs = w_inputs;
  groups.outputs = w_outputs / groups.count;
  return groups;
}

absl::StatusOr<std::vector<int64_t>> WeightDims(const Node& node, const Shape& w, size_t rank) {
  if (w.size() != rank || !IsConstant(w)) {
    return absl::InvalidArgumentError(absl::StrCat(
        node.Describe(), ": weights: got shape ", ToString(w), ", want fixed dims of rank ", rank));
  }
  return ConstantShape(w);
}

absl::Status CheckQuantised(InferContext& context, const ConvInputs& inputs) {
  for (const size_t i : {inputs.x, inputs.w}) {
    ASSIGN_OR_RETURN(const DType dtype, context.InputDType(i));
    if (dtype != DType::kI8 && dtype != DType::kU8) {
      return context.Error("activation and weights must be int8 or uint8");
    }
  }
  for (const size_t i : {inputs.x_zero, inputs.x_scale, inputs.y_zero, inputs.y_scale}) {
    if (i == kAbsent || !context.HasInput(i)) continue;
    ASSIGN_OR_RETURN(const Shape shape, context.InputShape(i));
    if (!ElementCount(shape).IsConstant(1)) {
      return context.Unsupported(
          absl::StrCat("input ", i, " of shape ", ToString(shape),
                       ": scales and zero points of activations are scalars"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DType> ConvOutputDType(InferContext& context, const ConvInputs& inputs) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(inputs.x));
  if (inputs.quantised()) {
    RETURN_IF_ERROR(CheckQuantised(context, inputs));
    if (inputs.y_zero == kAbsent) return DType::kI32;
    return context.InputDType(inputs.y_zero);
  }
  ASSIGN_OR_RETURN(const DType w_dtype, context.InputDType(inputs.w));
  if (!IsFloat(dtype) || dtype != w_dtype) {
    return context.Error(
        absl::StrCat("types of X and W: got ", Name(dtype), " and ", Name(w_dtype)));
  }
  return dtype;
}

absl::Status InferConv(InferContext& context) {
  const ConvInputs inputs = InputsOf(context.node());
  ASSIGN_OR_RETURN(const DType dtype, ConvOutputDType(context, inputs));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(inputs.x));
  ASSIGN_OR_RETURN(const Shape w, context.InputShape(inputs.w));
  if (x.size() < 3) return context.Error("X: rank is below 3");
  ASSIGN_OR_RETURN(const std::vector<int64_t> dims, WeightDims(context.node(), w, x.size()));
  ASSIGN_OR_RETURN(const Groups groups, ReadGroups(context.node(), dims[0], dims[1]));
  const ActivationAxes axes{x.size(), ChannelsLast(context.node())};
  RETURN_IF_ERROR(RequireEqual(context, x[axes.channel()], groups.count * groups.inputs,
                               "channels of X and of the weights"));
  for (const size_t i : {inputs.bias, inputs.w_scale, inputs.w_zero}) {
    if (i == kAbsent || !context.HasInput(i)) continue;
    ASSIGN_OR_RETURN(const Shape shape, context.InputShape(i));
    const bool one_each =
        shape.size() == 1 && (shape[0] == w[0] || (i != inputs.bias && shape[0].IsConstant(1)));
    if (one_each || (i != inputs.bias && shape.empty())) continue;
    return context.Error(
        absl::StrCat("input ", i, ": got shape ", ToString(shape), ", want [", dims[0], "]"));
  }
  ASSIGN_OR_RETURN(
      const std::vector<WindowAxis> window,
      ReadWindow(context.node(), axes.Space(x), std::span<const int64_t>(dims).subspan(2)));
  RETURN_IF_ERROR(CheckWindow(context, window));
  return context.SetOutput(0, dtype, axes.Arrange(x[0], w[0], WindowOutput(window)));
}

// Reference.

bool Has(const ReferenceArguments& arguments, size_t i) {
  return i < arguments.inputs.size() && arguments.inputs[i].valid();
}

// Values of x or w less their zero points; those of w are one for all or one for each of the M
// rows.
template <typename T>
std::vector<T> LessZeroPoint(const ReferenceArguments& arguments, size_t values, size_t zero) {
  const Tensor& tensor = arguments.inputs[values];
  std::vector<T> result = ReadValues<T>(tensor);
  if (!Has(arguments, zero)) return result;
  const std::vector<T> zeros = ReadValues<T>(arguments.inputs[zero]);
  const size_t row = zeros.size() == 1 ? result.size() : result.size() / zeros.size();
  for (size_t i = 0; i < result.size(); ++i) result[i] -= zeros[i / row];
  return result;
}

// The plain sums, without bias, in the layout's order.
template <typename T>
std::vector<T> Convolve(const std::vector<T>& x, const Dims& x_dims, const std::vector<T>& w,
                        const Dims& w_dims, const Groups& groups, const ActivationAxes& axes,
                        std::span<const WindowAxis> window) {
  const Dims space = ConstantShape(WindowOutput(window));
  const Dims y_dims = axes.Arrange(x_dims[0], w_dims[0], space);
  const Dims x_strides = RowMajor(x_dims), y_strides = RowMajor(y_dims);
  const Dims x_space = axes.Space(x_strides), y_space = axes.Space(y_strides);
  const int64_t taps_count = ProductOf(ConstantShape(WindowKernel(window)));
  std::vector<T> y(static_cast<size_t>(ProductOf(y_dims)), T{0});
  ForEachIndex(space, [&](const Dims& position) {
    const std::vector<FixedTap> taps = FixedTaps(window, position);
    for (int64_t n = 0; n < x_dims[0]; ++n) {
      for (int64_t m = 0; m < w_dims[0]; ++m) {
        const int64_t first_channel = m / groups.outputs * groups.inputs;
        T sum{0};
        for (int64_t c = 0; c < groups.inputs; ++c) {
          const int64_t x_at = n * x_strides[0] + (first_channel + c) * x_strides[axes.channel()];
          const int64_t w_at = (m * groups.inputs + c) * taps_count;
          for (const FixedTap& tap : taps) {
            sum += x[static_cast<size_t>(x_at + OffsetOf(tap.place, x_space))] *
                   w[static_cast<size_t>(w_at + tap.tap)];
          }
        }
        y[static_cast<size_t>(n * y_strides[0] + m * y_strides[axes.channel()] +
                              OffsetOf(position, y_space))] = sum;
      }
    }
  });
  return y;
}

// y = round((sum + bias) * x_scale * w_scale / y_scale) + y_zero, saturated.
absl::StatusOr<Tensor> Requantise(const ReferenceArguments& arguments, const ConvInputs& inputs,
                                  const std::vector<int64_t>& sums, const Dims& dims,
                                  const std::vector<size_t>& channel) {
  const float x_scale = ReadValues<float>(arguments.inputs[inputs.x_scale])[0];
  const float y_scale = ReadValues<float>(arguments.inputs[inputs.y_scale])[0];
  const float y_zero = ReadValues<float>(arguments.inputs[inputs.y_zero])[0];
  const std::vector<float> w_scale = ReadValues<float>(arguments.inputs[inputs.w_scale]);
  std::vector<float> values;
  for (size_t i = 0; i < sums.size(); ++i) {
    const float scale = x_scale * w_scale[w_scale.size() == 1 ? 0 : channel[i]] / y_scale;
    values.push_back(std::nearbyint(static_cast<float>(sums[i]) * scale) + y_zero);
  }
  return MakeTensor(arguments.inputs[inputs.y_zero].dtype(), dims, values);
}

absl::StatusOr<std::vector<Tensor>> ConvReference(const ReferenceArguments& arguments) {
  const ConvInputs inputs = InputsOf(arguments.node);
  const Tensor& x = arguments.inputs[inputs.x];
  const Tensor& w = arguments.inputs[inputs.w];
  const ActivationAxes axes{x.shape().size(), ChannelsLast(arguments.node)};
  ASSIGN_OR_RETURN(const Groups groups, ReadGroups(arguments.node, w.shape()[0], w.shape()[1]));
  const Shape x_shape(x.shape().begin(), x.shape().end());
  ASSIGN_OR_RETURN(const std::vector<WindowAxis> window,
                   ReadWindow(arguments.node, axes.Space(x_shape),
                              std::span<const int64_t>(w.shape()).subspan(2)));
  const Dims dims = axes.Arrange(x.shape()[0], w.shape()[0], ConstantShape(WindowOutput(window)));
  std::vector<size_t> channel;
  ForEachIndex(dims, [&](const Dims& index) {
    channel.push_back(static_cast<size_t>(index[axes.channel()]));
  });
  const auto convolve = [&]<typename T>(T) {
    std::vector<T> sums = Convolve(LessZeroPoint<T>(arguments, inputs.x, inputs.x_zero), x.shape(),
                                   LessZeroPoint<T>(arguments, inputs.w, inputs.w_zero), w.shape(),
                                   groups, axes, window);
    if (!Has(arguments, inputs.bias)) return sums;
    const std::vector<T> bias = ReadValues<T>(arguments.inputs[inputs.bias]);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += bias[channel[i]];
    return sums;
  };
  absl::StatusOr<Tensor> output;
  if (!inputs.quantised()) {
    output = MakeTensor(x.dtype(), dims, convolve(double{}));
  } else if (inputs.y_scale == kAbsent) {
    output = MakeTensor(DType::kI32, dims, convolve(int64_t{}));
  } else {
    output = Requantise(arguments, inputs, convolve(int64_t{}), dims, channel);
  }
  if (!output.ok()) return output.status();
  return One(*std::move(output));
}

// Lowering.

// A node's convolution, read once.
struct ConvPlan {
  ConvInputs inputs;
  ActivationAxes axes;
  Groups groups;
  std::vector<int64_t> w_dims;  // [M, C / group, kernel...]
  std::vector<WindowAxis> window;
  DType accumulator = DType::kF32;
};

absl::StatusOr<ConvPlan> PlanConv(const LowerContext& context) {
  ConvPlan plan{.inputs = InputsOf(context.node())};
  const Shape x = context.InputShape(plan.inputs.x);
  plan.axes = {x.size(), ChannelsLast(context.node())};
  plan.w_dims = ConstantShape(context.InputShape(plan.inputs.w));
  ASSIGN_OR_RETURN(plan.groups, ReadGroups(context.node(), plan.w_dims[0], plan.w_dims[1]));
  ASSIGN_OR_RETURN(plan.window, ReadWindow(context.node(), plan.axes.Space(x),
                                           std::span<const int64_t>(plan.w_dims).subspan(2)));
  plan.accumulator =
      plan.inputs.quantised() ? DType::kI32 : ComputeType(context.input(plan.inputs.x).dtype);
  return plan;
}

// Input `i` where it is one for all or one for each output channel.
Expr PerChannel(const LowerContext& context, StageOperands& operands, size_t i,
                const Expr& channel) {
  const std::optional<Tensor>& constant = context.input(i).constant;
  if (constant.has_value() && constant->element_count() == 1 && IsInteger(constant->dtype())) {
    return Expr::ConstantInt(constant->dtype(), constant->ValueAsInt64(0));
  }
  const int32_t operand = operands.AddInput(context, i);
  const Shape& shape = operands.operand(operand).shape;
  std::vector<Expr> coords;
  for (const DimExpr& dim : shape) coords.push_back(dim.IsConstant(1) ? Int(0) : channel);
  return operands.Load(operand, std::move(coords));
}

// A zero point of the node as i32; invalid when it has none.
Expr ZeroPoint(const LowerContext& context, StageOperands& operands, size_t i,
               const Expr& channel) {
  if (i == kAbsent || !context.HasInput(i)) return Expr();
  return Expr::Cast(DType::kI32, PerChannel(context, operands, i, channel));
}

// The zero point of the activation in its own dtype; invalid when it has none.
Expr ZeroByte(const LowerContext& context, const ConvPlan& plan, StageOperands& operands) {
  const size_t i = plan.inputs.x_zero;
  if (i == kAbsent || !context.HasInput(i)) return Expr();
  return PerChannel(context, operands, i, Int(0));
}

// The activation at a tap, as it is; in the padding 0 or its zero point.
Expr LoadActivation(const LowerContext& context, const ConvPlan& plan, StageOperands& operands,
                    const Expr& batch, const Expr& channel, const WindowTap& tap) {
  const int32_t x = operands.AddInput(context, plan.inputs.x);
  const DType dtype = operands.operand(x).dtype;
  Expr padding = ZeroByte(context, plan, operands);
  if (!padding.valid()) padding = Expr::ConstantInt(dtype, 0);
  return operands.LoadIf(tap.within, x, plan.axes.Arrange(batch, channel, tap.places), padding);
}

// `value` in the accumulator's type, less a zero point.
Expr LessZeroPoint(const ConvPlan& plan, const Expr& value, const Expr& zero) {
  const Expr wide = Expr::Cast(plan.accumulator, value);
  return zero.valid() ? wide - zero : wide;
}

// What a sum is multiplied by: one constant for each channel where the scales are known.
absl::StatusOr<Expr> Multiplier(LowerContext& context, const ConvInputs& inputs,
                                StageOperands& operands, const Expr& channel) {
  const auto real = [&](size_t i) {
    return Expr::Cast(DType::kF32, PerChannel(context, operands, i, channel));
  };
  const auto constant = [&](size_t i) -> const std::optional<Tensor>& {
    return context.input(i).constant;
  };
  for (const size_t i : {inputs.x_scale, inputs.w_scale, inputs.y_scale}) {
    if (!constant(i).has_value()) {
      return real(inputs.x_scale) * real(inputs.w_scale) / real(inputs.y_scale);
    }
  }
  const float x_scale = ReadValues<float>(*constant(inputs.x_scale))[0];
  const float y_scale = ReadValues<float>(*constant(inputs.y_scale))[0];
  std::vector<float> scales = ReadValues<float>(*constant(inputs.w_scale));
  for (float& scale : scales) scale = x_scale * scale / y_scale;
  if (scales.size() == 1) return Expr::Constant(DType::kF32, scales[0]);
  const auto count = static_cast<int64_t>(scales.size());
  ASSIGN_OR_RETURN(Tensor tensor, MakeTensor(DType::kF32, {count}, scales));
  const ValueId value = context.NewConstant(std::move(tensor), "multipliers");
  return operands.Load(operands.Add(value, DType::kF32, {count}), {channel});
}

// What becomes of a sum: bias, scales, the output's type.
absl::StatusOr<Expr> ConvResult(LowerContext& context, const ConvPlan& plan,
                                StageOperands& operands, Expr sum, const Expr& channel) {
  const ConvInputs& inputs = plan.inputs;
  if (inputs.bias != kAbsent && context.HasInput(inputs.bias)) {
    sum = sum + Expr::Cast(plan.accumulator, PerChannel(context, operands, inputs.bias, channel));
  }
  const DType dtype = context.output(0).dtype;
  if (inputs.y_scale == kAbsent) return Expr::Cast(dtype, sum);
  ASSIGN_OR_RETURN(const Expr scale, Multiplier(context, inputs, operands, channel));
  const Expr rounded = Expr::Unary(ExprOp::kRound, Expr::Cast(DType::kF32, sum) * scale);
  const Expr zero = PerChannel(context, operands, inputs.y_zero, channel);
  return Expr::Cast(dtype, rounded + Expr::Cast(DType::kF32, zero));
}

// Weights less their zero points as a constant, when all of that is known.
absl::StatusOr<std::optional<Tensor>> ConstantWeights(const LowerContext& context,
                                                      const ConvPlan& plan) {
  const std::optional<Tensor>& w = context.input(plan.inputs.w).constant;
  if (!w.has_value()) return std::optional<Tensor>();
  if (plan.inputs.w_zero == kAbsent || !context.HasInput(plan.inputs.w_zero)) return w;
  const std::optional<Tensor>& zero = context.input(plan.inputs.w_zero).constant;
  if (!zero.has_value()) return std::optional<Tensor>();
  const std::vector<Tensor> tensors = {*w, *zero};
  ASSIGN_OR_RETURN(
      Tensor adjusted,
      MakeTensor(DType::kI32, w->shape(), LessZeroPoint<int64_t>({context.node(), tensors}, 0, 1)));
  return std::optional<Tensor>(std::move(adjusted));
}

// The k axes of a contraction and where each index of it is taken from. Axes of extent 1 are left
// out: they would only cost the generated code loops.
struct ConvK {
  Shape extents;
  std::vector<Expr> taps;           // one for each spatial axis
  Expr channel;                     // within the group
  std::vector<ProductAxis> w_axes;  // of [C / group, kernel...]
};

ConvK OrderK(const ConvPlan& plan, size_t first_axis) {
  ConvK k;
  k.w_axes.resize(1 + plan.window.size());
  const auto add = [&](int64_t extent, size_t w_axis) {
    if (extent == 1) return Int(0);
    k.w_axes[w_axis] = {ProductAxis::Role::kK, k.extents.size()};
    k.extents.push_back(extent);
    return Expr::Coord(static_cast<int32_t>(first_axis + k.extents.size() - 1));
  };
  if (!plan.axes.channels_last) k.channel = add(plan.groups.inputs, 0);
  for (size_t i = 0; i < plan.window.size(); ++i) {
    k.taps.push_back(add(plan.window[i].kernel, 1 + i));
  }
  if (plan.axes.channels_last) k.channel = add(plan.groups.inputs, 0);
  if (k.extents.empty()) k.extents.push_back(1);
  return k;
}

// Makes the weights the product's right-hand side, a group an element of its batch.
absl::Status SetWeights(LowerContext& context, const ConvPlan& plan, const ConvK& k,
                        Product& product) {
  const bool grouped = plan.groups.count > 1;
  std::vector<int64_t> dims = plan.w_dims;
  if (grouped) {
    dims[0] = plan.groups.outputs;
    dims.insert(dims.begin(), plan.groups.count);
    product.b_axes.push_back({ProductAxis::Role::kBatch, 0});
  }
  product.b_axes.push_back({ProductAxis::Role::kN, 0});
  product.b_axes.insert(product.b_axes.end(), k.w_axes.begin(), k.w_axes.end());
  product.b = context.node().inputs[plan.inputs.w];
  product.b_operand = {.dtype = context.input(plan.inputs.w).dtype,
                       .shape = Shape(dims.begin(), dims.end())};
  ASSIGN_OR_RETURN(product.b_constant, ConstantWeights(context, plan));
  if (product.b_constant.has_value()) return absl::OkStatus();
  if (grouped) {
    product.b = context.NewValue(product.b_operand.dtype, product.b_operand.shape, "weights");
    context.EmitAlias(context.node().inputs[plan.inputs.w], product.b);
  }
  return absl::OkStatus();
}

absl::Status LowerConvContraction(LowerContext& context) {
  ASSIGN_OR_RETURN(const ConvPlan plan, PlanConv(context));
  const Groups& groups = plan.groups;
  const Shape shape = *context.output(0).shape;
  Product product;
  product.accumulator = plan.accumulator;
  Expr group = Int(0);
  if (groups.count > 1) {
    product.batch = {groups.count};
    group = Expr::Coord(0);
  }
  const size_t first_row = product.batch.size();
  product.m = {shape[0]};
  for (const WindowAxis& axis : plan.window) product.m.push_back(axis.output);
  const size_t row_end = first_row + product.m.size();
  product.n = groups.outputs;
  const ConvK k = OrderK(plan, row_end);
  product.k = k.extents;
  RETURN_IF_ERROR(SetWeights(context, plan, k, product));

  const Expr batch = Expr::Coord(static_cast<int32_t>(first_row));
  const std::vector<Expr> positions = Coords(first_row + 1, plan.window.size());
  product.a =
      LoadActivation(context, plan, product.operands, batch, group * Int(groups.inputs) + k.channel,
                     TapAt(plan.window, positions, k.taps));
  const Expr channel = group * Int(groups.outputs) + Expr::Coord(static_cast<int32_t>(row_end));
  if (plan.inputs.quantised()) {
    product.a_zero = ZeroPoint(context, product.operands, plan.inputs.x_zero, Int(0));
    if (!product.b_constant.has_value()) {
      product.b_zero = ZeroPoint(context, product.operands, plan.inputs.w_zero, channel);
    }
  } else {
    product.a = Expr::Cast(plan.accumulator, product.a);
  }
  ASSIGN_OR_RETURN(product.result, ConvResult(context, plan, product.operands,
                                              Expr::Accumulator(plan.accumulator, 0), channel));
  product.output = {.dtype = context.output(0).dtype, .shape = shape};
  product.output_coordinates = plan.axes.Arrange(batch, channel, positions);
  return EmitProduct(context, std::move(product), context.node().outputs[0]);
}

// What may be transformed of a dense convolution, channels last, of known weights, but for how its
// ends are computed.
absl::StatusOr<std::optional<WinogradConv>> ToTransform(const LowerContext& context,
                                                        const ConvPlan& plan) {
  const bool has_type =
      plan.inputs.quantised() || context.input(plan.inputs.x).dtype == DType::kF32;
  if (!has_type || !plan.axes.channels_last || plan.groups.count != 1) {
    return std::optional<WinogradConv>();
  }
  ASSIGN_OR_RETURN(std::optional<Tensor> weights, ConstantWeights(context, plan));
  if (!weights.has_value()) return std::optional<WinogradConv>();
  return std::optional<WinogradConv>(
      {.x = plan.inputs.x, .weights = *std::move(weights), .window = plan.window});
}

bool TransformsConv(const LowerContext& context) {
  const absl::StatusOr<ConvPlan> plan = PlanConv(context);
  if (!plan.ok()) return false;
  const absl::StatusOr<std::optional<WinogradConv>> conv = ToTransform(context, *plan);
  return conv.ok() && conv->has_value() && WinogradPays(context, **conv);
}

absl::Status LowerTransformedConv(LowerContext& context) {
  ASSIGN_OR_RETURN(const ConvPlan plan, PlanConv(context));
  ASSIGN_OR_RETURN(std::optional<WinogradConv> conv, ToTransform(context, plan));
  conv->zero = [&](StageOperands& operands) { return ZeroByte(context, plan, operands); };
  conv->result = [&](StageOperands& operands, const Expr& sum, const Expr& channel) {
    return ConvResult(context, plan, operands, sum, channel);
  };
  return LowerWinograd(context, *std::move(conv));
}

// The weights of a nest: [kernel..., C / group, M] when they are constant and channels are last, so
// that neighbouring output channels read neighbouring weights; else as they are.
absl::StatusOr<Expr> LoadNestWeight(LowerContext& context, const ConvPlan& plan,
                                    StageOperands& operands, const Expr& m, const Expr& c,
                                    const std::vector<Expr>& taps) {
  ASSIGN_OR_RETURN(const std::optional<Tensor> constant, ConstantWeights(context, plan));
  if (plan.axes.channels_last && constant.has_value()) {
    const std::vector<int64_t> strides = RowMajor(plan.w_dims);
    PackPlan pack{
        .n = {{plan.w_dims[0], strides[0]}}, .panel = plan.w_dims[0], .dtype = plan.accumulator};
    std::vector<int64_t> dims;
    for (size_t i = 2; i < plan.w_dims.size(); ++i) {
      pack.k.push_back({plan.w_dims[i], strides[i]});
      dims.push_back(plan.w_dims[i]);
    }
    pack.k.push_back({plan.w_dims[1], strides[1]});
    dims.insert(dims.end(), {plan.w_dims[1], plan.w_dims[0]});
    ASSIGN_OR_RETURN(const Tensor packed, PackPanels(*constant, pack));
    ASSIGN_OR_RETURN(Tensor weights, packed.Reshaped(dims));
    const ValueId value = context.NewConstant(std::move(weights), "weights");
    const int32_t w = operands.Add(value, plan.accumulator, Shape(dims.begin(), dims.end()));
    std::vector<Expr> coords = taps;
    coords.insert(coords.end(), {c, m});
    return operands.Load(w, std::move(coords));
  }
  const int32_t w = operands.AddInput(context, plan.inputs.w);
  std::vector<Expr> coords = {m, c};
  coords.insert(coords.end(), taps.begin(), taps.end());
  return LessZeroPoint(plan, operands.Load(w, std::move(coords)),
                       ZeroPoint(context, operands, plan.inputs.w_zero, m));
}

absl::Status LowerConvNest(LowerContext& context) {
  ASSIGN_OR_RETURN(const ConvPlan plan, PlanConv(context));
  const Groups& groups = plan.groups;
  const Shape shape = *context.output(0).shape;
  Nest nest{.kept = shape};
  const std::vector<Expr> kept = Coords(0, shape.size());
  const Expr& m = kept[plan.axes.channel()];
  std::vector<Expr> taps;
  for (const WindowAxis& axis : plan.window) {
    taps.push_back(Expr::Coord(static_cast<int32_t>(shape.size() + nest.reduced.size())));
    nest.reduced.push_back(axis.kernel);
  }
  Expr c = Int(0);
  if (groups.inputs > 1) {
    c = Expr::Coord(static_cast<int32_t>(shape.size() + nest.reduced.size()));
    nest.reduced.push_back(groups.inputs);
  }
  // Depthwise with one output a channel reads the channel it writes.
  const Expr group = groups.count == 1     ? Int(0)
                     : groups.outputs == 1 ? m
                                           : FloorDivide(m, Int(groups.outputs));
  StageOperands operands;
  const Expr x =
      LessZeroPoint(plan,
                    LoadActivation(context, plan, operands, kept[0], group * Int(groups.inputs) + c,
                                   TapAt(plan.window, plan.axes.Space(kept), taps)),
                    ZeroPoint(context, operands, plan.inputs.x_zero, Int(0)));
  ASSIGN_OR_RETURN(const Expr w, LoadNestWeight(context, plan, operands, m, c, taps));
  nest.reductions = {SumReduction(x * w)};
  ASSIGN_OR_RETURN(nest.result,
                   ConvResult(context, plan, operands, Expr::Reduced(plan.accumulator, 0), m));
  nest.output = {.dtype = context.output(0).dtype, .shape = shape};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

// Groups whose panels would hold fewer columns than this are cheaper as a nest.
constexpr int64_t kContractionOutputsMin = 8;
constexpr int64_t kContractionInputsMin = 4;

bool ContractsConv(const LowerContext& context) {
  const absl::StatusOr<ConvPlan> plan = PlanConv(context);
  if (!plan.ok()) return false;
  if (plan->groups.count == 1) return plan->groups.outputs > 1;
  return plan->groups.outputs >= kContractionOutputsMin &&
         plan->groups.inputs >= kContractionInputsMin;
}

constexpr Variant kConvVariants[] = {{"winograd", TransformsConv, LowerTransformedConv},
                                     {"contraction", ContractsConv, LowerConvContraction},
                                     {"nest", AlwaysApplies, LowerConvNest}};

constexpr OpDefinition ConvOp(absl::string_view name, absl::string_view domain, int min_inputs,
                              int max_inputs) {
  return {.name = name,
          .domain = domain,
          .min_inputs = min_inputs,
          .max_inputs = max_inputs,
          .infer = InferConv,
          .reference = ConvReference,
          .variants = kConvVariants};
}

}  // namespace

std::span<const OpDefinition> ConvOps() {
  static constexpr OpDefinition kOps[] = {
      ConvOp("Conv", "", 2, 3),        ConvOp("Conv", kOwnDomain, 2, 3),
      ConvOp("ConvInteger", "", 2, 4), ConvOp("ConvInteger", kOwnDomain, 2, 4),
      ConvOp("QLinearConv", "", 8, 9), ConvOp("QLinearConv", kOwnDomain, 8, 9),
  };
  return kOps;
}

}  // namespace stampmill
