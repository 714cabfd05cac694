// ConvTranspose, over any number of spatial axes and in both layouts (kernels/layout.h). Weights
// are [C, M / group, kernel...] in either.
//
// Where windows do not overlap (kernel = stride, no padding: the usual upsampling by 2) every input
// position writes its own block of the output: one contraction over the channels whose columns are
// output channels times the window. Where channels are last and enough for vectors of their own,
// places of the window are a batch of contractions instead: their columns are neighbours. Otherwise
// each output position gathers the taps that reach it: a contraction over window and channels that
// skips, by a guard, the taps that fall between input positions.
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/contraction.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/layout.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"
#include "kernels/window.h"

namespace stampmill {
namespace {

// Along one spatial axis: output position = input position * stride + tap * dilation - pad_begin.
struct SpreadAxis {
  DimExpr input;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  DimExpr pad_begin;
  DimExpr output;

  bool IsBlock() const {
    return kernel == stride && dilation == 1 && pad_begin.IsConstant(0) && output == input * stride;
  }
};

struct TransposePlan {
  ActivationAxes axes;
  std::vector<int64_t> w_dims;  // [C, M / group, kernel...]
  int64_t groups = 1;
  std::vector<SpreadAxis> space;

  int64_t inputs() const { return w_dims[0] / groups; }  // channels of a group
  int64_t outputs() const { return w_dims[1]; }
};

// Total padding shared out as auto_pad says: the odd one at the end for SAME_UPPER, else in front.
void SharePads(SpreadAxis& axis, const DimExpr& total, AutoPad auto_pad) {
  const DimExpr less = FloorDiv(total, 2);
  axis.pad_begin = auto_pad == AutoPad::kSameUpper ? less : total - less;
}

absl::StatusOr<std::vector<SpreadAxis>> ReadSpread(const Node& node,
                                                   const std::vector<DimExpr>& input,
                                                   std::span<const int64_t> kernel) {
  const size_t count = input.size();
  ASSIGN_OR_RETURN(const std::vector<int64_t> strides, SpatialInts(node, "strides", count, 1, 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> dilations,
                   SpatialInts(node, "dilations", count, 1, 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> pads, SpatialInts(node, "pads", 2 * count, 0, 0));
  ASSIGN_OR_RETURN(const std::vector<int64_t> extra,
                   SpatialInts(node, "output_padding", count, 0, 0));
  ASSIGN_OR_RETURN(std::vector<int64_t> sizes, node.Ints("output_shape", {}));
  // Some exporters give the whole shape.
  if (sizes.size() == count + 2) sizes.erase(sizes.begin(), sizes.begin() + 2);
  if (!sizes.empty() && sizes.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": output_shape: got ",
                                                   sizes.size(), " values, want ", count));
  }
  ASSIGN_OR_RETURN(const AutoPad auto_pad, ReadAutoPad(node));
  const bool same = auto_pad == AutoPad::kSameUpper || auto_pad == AutoPad::kSameLower;
  std::vector<SpreadAxis> space;
  for (size_t i = 0; i < count; ++i) {
    SpreadAxis axis{
        .input = input[i], .kernel = kernel[i], .stride = strides[i], .dilation = dilations[i]};
    const DimExpr full =
        (axis.input - 1) * axis.stride + extra[i] + (axis.kernel - 1) * axis.dilation + 1;
    if (!sizes.empty() || same) {
      axis.output = sizes.empty() ? axis.input * axis.stride : DimExpr(sizes[i]);
      SharePads(axis, Max(0, full - axis.output), auto_pad);
    } else {
      const bool padded = auto_pad == AutoPad::kNotSet;
      axis.pad_begin = padded ? pads[i] : 0;
      axis.output = full - axis.pad_begin - (padded ? pads[count + i] : 0);
    }
    space.push_back(std::move(axis));
  }
  return space;
}

absl::StatusOr<TransposePlan> PlanTranspose(const Node& node, const Shape& x, const Shape& w) {
  if (x.size() < 3 || w.size() != x.size() || !IsConstant(w)) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": got shapes ", ToString(x),
                                                   " and ", ToString(w), " of X and W"));
  }
  TransposePlan plan{.axes = {x.size(), ChannelsLast(node)}, .w_dims = ConstantShape(w)};
  ASSIGN_OR_RETURN(plan.groups, node.Int("group", 1));
  if (plan.groups < 1 || plan.w_dims[0] % plan.groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": group: got ", plan.groups,
                                                   ", input channels are ", plan.w_dims[0]));
  }
  const std::span<const int64_t> kernel = std::span<const int64_t>(plan.w_dims).subspan(2);
  for (const int64_t extent : kernel) {
    if (extent < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(node.Describe(), ": W: kernel extent: got ", extent));
    }
  }
  ASSIGN_OR_RETURN(plan.space, ReadSpread(node, plan.axes.Space(x), kernel));
  return plan;
}

Shape OutputSpace(const TransposePlan& plan) {
  Shape shape;
  for (const SpreadAxis& axis : plan.space) shape.push_back(axis.output);
  return shape;
}

absl::Status InferTranspose(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const DType w_dtype, context.InputDType(1));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape w, context.InputShape(1));
  if (!IsFloat(dtype) || dtype != w_dtype) {
    return context.Error(
        absl::StrCat("types of X and W: got ", Name(dtype), " and ", Name(w_dtype)));
  }
  ASSIGN_OR_RETURN(const TransposePlan plan, PlanTranspose(context.node(), x, w));
  RETURN_IF_ERROR(RequireEqual(context, x[plan.axes.channel()], plan.w_dims[0],
                               "channels of X and of the weights"));
  const int64_t channels = plan.outputs() * plan.groups;
  if (context.HasInput(2)) {
    ASSIGN_OR_RETURN(const Shape bias, context.InputShape(2));
    if (bias.size() != 1 || !bias[0].IsConstant(channels)) {
      return context.Error(
          absl::StrCat("B: got shape ", ToString(bias), ", want [", channels, "]"));
    }
  }
  for (const SpreadAxis& axis : plan.space) {
    RETURN_IF_ERROR(context.Check(IsNot(IsLess(axis.output, 0)),
                                  "the output must not be padded below nothing"));
  }
  return context.SetOutput(0, dtype, plan.axes.Arrange(x[0], DimExpr(channels), OutputSpace(plan)));
}

absl::StatusOr<std::vector<Tensor>> TransposeReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const Tensor& weights = arguments.inputs[1];
  const Dims& dims = input.shape();
  const Dims& w_dims = weights.shape();
  ASSIGN_OR_RETURN(const TransposePlan plan,
                   PlanTranspose(arguments.node, Shape(dims.begin(), dims.end()),
                                 Shape(w_dims.begin(), w_dims.end())));
  const ActivationAxes& axes = plan.axes;
  const int64_t channels = plan.outputs() * plan.groups;
  const Dims y_dims = axes.Arrange(dims[0], channels, ConstantShape(OutputSpace(plan)));
  const Dims x_strides = RowMajor(dims), y_strides = RowMajor(y_dims);
  const std::vector<double> x = ReadValues<double>(input), w = ReadValues<double>(weights);
  std::vector<double> y(static_cast<size_t>(ProductOf(y_dims)), 0);
  if (arguments.inputs.size() > 2 && arguments.inputs[2].valid()) {
    const std::vector<double> bias = ReadValues<double>(arguments.inputs[2]);
    size_t at = 0;
    ForEachIndex(y_dims, [&](const Dims& index) {
      y[at++] = bias[static_cast<size_t>(index[axes.channel()])];
    });
  }
  const Dims kernel(w_dims.begin() + 2, w_dims.end());
  const int64_t taps = ProductOf(kernel);
  // Each input element adds to all outputs that it reaches.
  ForEachIndex(axes.Space(dims), [&](const Dims& from) {
    int64_t tap_index = -1;
    ForEachIndex(kernel, [&](const Dims& tap) {
      ++tap_index;
      Dims to;
      for (size_t i = 0; i < tap.size(); ++i) {
        const SpreadAxis& axis = plan.space[i];
        to.push_back(from[i] * axis.stride + tap[i] * axis.dilation - *axis.pad_begin.constant());
        if (to.back() < 0 || to.back() >= *axis.output.constant()) return;
      }
      const int64_t x_at = OffsetOf(from, axes.Space(x_strides));
      const int64_t y_at = OffsetOf(to, axes.Space(y_strides));
      for (int64_t n = 0; n < dims[0]; ++n) {
        for (int64_t c = 0; c < w_dims[0]; ++c) {
          const double value =
              x[static_cast<size_t>(n * x_strides[0] + c * x_strides[axes.channel()] + x_at)];
          for (int64_t m = 0; m < plan.outputs(); ++m) {
            const int64_t channel = c / plan.inputs() * plan.outputs() + m;
            y[static_cast<size_t>(n * y_strides[0] + channel * y_strides[axes.channel()] + y_at)] +=
                value * w[static_cast<size_t>((c * plan.outputs() + m) * taps + tap_index)];
          }
        }
      }
    });
  });
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), y_dims, y));
  return One(std::move(output));
}

// Lowering.

// The weights as right-hand side: [group, C / group, M / group, kernel...], a group an element of
// the batch; `roles` are those of the last axes, from M / group on.
void SetWeights(LowerContext& context, const TransposePlan& plan,
                const std::vector<ProductAxis>& roles, size_t channel_axis, Product& product) {
  std::vector<int64_t> dims = plan.w_dims;
  product.b = context.node().inputs[1];
  product.b_constant = context.input(1).constant;
  product.b_operand.dtype = context.input(1).dtype;
  if (plan.groups > 1) {
    dims[0] = plan.inputs();
    dims.insert(dims.begin(), plan.groups);
    product.b_axes.push_back({ProductAxis::Role::kBatch, 0});
  }
  product.b_operand.shape = Shape(dims.begin(), dims.end());
  if (plan.groups > 1 && !product.b_constant.has_value()) {
    product.b = context.NewValue(product.b_operand.dtype, product.b_operand.shape, "weights");
    context.EmitAlias(context.node().inputs[1], product.b);
  }
  product.b_axes.push_back({ProductAxis::Role::kK, channel_axis});
  product.b_axes.insert(product.b_axes.end(), roles.begin(), roles.end());
}

// What the contractions have in common: groups, rows, and the sum with its bias at `channel`.
struct Frame {
  Product product;
  Expr group = Int(0);
  size_t first_row = 0;
  size_t row_end = 0;
};

// `batch` comes after the groups.
Frame StartProduct(const LowerContext& context, const TransposePlan& plan, const Shape& rows,
                   const Shape& batch) {
  Frame frame;
  Product& product = frame.product;
  product.accumulator = ComputeType(context.input(0).dtype);
  if (plan.groups > 1) {
    product.batch = {plan.groups};
    frame.group = Expr::Coord(0);
  }
  product.batch.insert(product.batch.end(), batch.begin(), batch.end());
  frame.first_row = product.batch.size();
  product.m = {context.InputShape(0)[0]};
  product.m.insert(product.m.end(), rows.begin(), rows.end());
  frame.row_end = frame.first_row + product.m.size();
  product.output = {.dtype = context.output(0).dtype, .shape = *context.output(0).shape};
  return frame;
}

void SetResult(const LowerContext& context, const Expr& channel, Product& product) {
  Expr sum = Expr::Accumulator(product.accumulator, 0);
  if (context.HasInput(2)) {
    const int32_t bias = product.operands.AddInput(context, 2);
    sum = sum + Expr::Cast(product.accumulator, product.operands.Load(bias, {channel}));
  }
  product.result = Expr::Cast(product.output.dtype, sum);
}

// With fewer output channels places of the window are columns.
constexpr int64_t kBatchOutputsMin = 8;

absl::Status LowerBlocks(LowerContext& context) {
  ASSIGN_OR_RETURN(const TransposePlan plan,
                   PlanTranspose(context.node(), context.InputShape(0), context.InputShape(1)));
  const ActivationAxes& axes = plan.axes;
  const size_t rank = plan.space.size();
  const bool batches_window = axes.channels_last && plan.outputs() >= kBatchOutputsMin;
  Shape window;
  for (const SpreadAxis& axis : plan.space) window.push_back(axis.kernel);
  Frame frame = StartProduct(context, plan, axes.Space(context.InputShape(0)),
                             batches_window ? window : Shape());
  Product& product = frame.product;
  product.k = {plan.inputs()};
  product.n = plan.outputs();
  const size_t first_place = frame.first_row - rank;  // batches_window: its axes
  std::vector<ProductAxis> roles;
  if (batches_window) {
    roles.push_back({ProductAxis::Role::kN, 0});
    for (size_t i = 0; i < rank; ++i) roles.push_back({ProductAxis::Role::kBatch, first_place + i});
  } else {
    // Columns in the order in which the output lies in memory.
    roles.push_back({ProductAxis::Role::kN, axes.channels_last ? rank : 0});
    for (size_t i = 0; i < rank; ++i) {
      roles.push_back({ProductAxis::Role::kN, axes.channels_last ? i : 1 + i});
    }
    product.n = product.n * ElementCount(window);
  }
  SetWeights(context, plan, roles, 0, product);

  const Expr batch = Expr::Coord(static_cast<int32_t>(frame.first_row));
  const std::vector<Expr> from = Coords(frame.first_row + 1, rank);
  const Expr k = Expr::Coord(static_cast<int32_t>(frame.row_end));
  const int32_t x = product.operands.AddInput(context, 0);
  product.a = Expr::Cast(
      product.accumulator,
      product.operands.Load(x, axes.Arrange(batch, frame.group * Int(plan.inputs()) + k, from)));

  // The column taken apart, innermost axis first.
  Expr rest = Expr::Coord(static_cast<int32_t>(frame.row_end));
  Expr m = rest;
  if (axes.channels_last && !batches_window) {
    m = FloorModulo(rest, Int(plan.outputs()));
    rest = FloorDivide(rest, Int(plan.outputs()));
  }
  std::vector<Expr> to(rank);
  for (size_t i = rank; i-- > 0;) {
    Expr place = batches_window ? Expr::Coord(static_cast<int32_t>(first_place + i))
                                : FloorModulo(rest, Int(plan.space[i].kernel));
    to[i] = from[i] * Int(plan.space[i].stride) + place;
    if (!batches_window) rest = FloorDivide(rest, Int(plan.space[i].kernel));
  }
  if (!axes.channels_last) m = rest;
  const Expr channel = frame.group * Int(plan.outputs()) + m;
  SetResult(context, channel, product);
  product.output_coordinates = axes.Arrange(batch, channel, to);
  return EmitProduct(context, std::move(product), context.node().outputs[0]);
}

absl::Status LowerGather(LowerContext& context) {
  ASSIGN_OR_RETURN(const TransposePlan plan,
                   PlanTranspose(context.node(), context.InputShape(0), context.InputShape(1)));
  const ActivationAxes& axes = plan.axes;
  Frame frame = StartProduct(context, plan, OutputSpace(plan), {});
  Product& product = frame.product;
  const size_t rank = plan.space.size();
  const size_t channel_axis = axes.channels_last ? rank : 0;
  std::vector<ProductAxis> roles = {{ProductAxis::Role::kN, 0}};
  for (size_t i = 0; i < rank; ++i) {
    const size_t k_axis = axes.channels_last ? i : 1 + i;
    roles.push_back({ProductAxis::Role::kK, k_axis});
    product.k.push_back(plan.space[i].kernel);
  }
  product.k.insert(product.k.begin() + static_cast<int64_t>(channel_axis), plan.inputs());
  product.n = plan.outputs();
  SetWeights(context, plan, roles, channel_axis, product);

  const Expr batch = Expr::Coord(static_cast<int32_t>(frame.first_row));
  const std::vector<Expr> to = Coords(frame.first_row + 1, rank);
  const std::vector<Expr> k = Coords(frame.row_end, rank + 1);
  std::vector<Expr> from;
  Expr reaches;
  for (size_t i = 0; i < rank; ++i) {
    const SpreadAxis& axis = plan.space[i];
    const Expr& tap = k[axes.channels_last ? i : 1 + i];
    const Expr distance = to[i] + Extent(axis.pad_begin) - tap * Int(axis.dilation);
    Expr place = distance;
    if (axis.stride > 1) {
      place = FloorDivide(distance, Int(axis.stride));
      reaches = And(reaches, Equal(FloorModulo(distance, Int(axis.stride)), Int(0)));
    }
    reaches = And(reaches, InRange(place, axis.input));
    from.push_back(place);
  }
  const int32_t x = product.operands.AddInput(context, 0);
  const Expr channel_in = frame.group * Int(plan.inputs()) + k[channel_axis];
  product.a = Expr::Cast(product.accumulator,
                         product.operands.LoadIf(reaches, x, axes.Arrange(batch, channel_in, from),
                                                 Expr::Constant(context.input(0).dtype, 0)));
  const Expr channel =
      frame.group * Int(plan.outputs()) + Expr::Coord(static_cast<int32_t>(frame.row_end));
  SetResult(context, channel, product);
  product.output_coordinates = axes.Arrange(batch, channel, to);
  return EmitProduct(context, std::move(product), context.node().outputs[0]);
}

bool MakesBlocks(const LowerContext& context) {
  const absl::StatusOr<TransposePlan> plan =
      PlanTranspose(context.node(), context.InputShape(0), context.InputShape(1));
  if (!plan.ok()) return false;
  for (const SpreadAxis& axis : plan->space) {
    if (!axis.IsBlock()) return false;
  }
  return true;
}

constexpr Variant kTransposeVariants[] = {{"blocks", MakesBlocks, LowerBlocks},
                                          {"gather", AlwaysApplies, LowerGather}};

constexpr OpDefinition TransposeOp(absl::string_view domain) {
  return {.name = "ConvTranspose",
          .domain = domain,
          .min_inputs = 2,
          .max_inputs = 3,
          .infer = InferTranspose,
          .reference = TransposeReference,
          .variants = kTransposeVariants};
}

}  // namespace

std::span<const OpDefinition> ConvTransposeOps() {
  static constexpr OpDefinition kOps[] = {TransposeOp(""), TransposeOp(kOwnDomain)};
  return kOps;
}

}  // namespace stampmill
