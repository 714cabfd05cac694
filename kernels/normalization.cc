// Normalisations over part of a tensor: LayerNormalization, RMSNormalization,
// InstanceNormalization, GroupNormalization, MeanVarianceNormalization, LpNormalization. Each is
// one nest that reduces the normalised axes and then writes each element. The mean is subtracted
// before squaring: the one-pass form loses all digits of a small variance beside a large mean.
// Those that scale by channel alone (BatchNormalization, LRN) are in channel_normalization.cc.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/layout.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// Reference: the rows that are normalised, and each element's coordinates for scale and bias.

struct Standardized {
  std::vector<double> values;   // (x - mean) * inverse
  std::vector<double> mean;     // per row
  std::vector<double> inverse;  // 1 / sqrt(variance + epsilon)
};

// `row[i]` is the row that element i belongs to. Without `centered` the mean is taken as 0.
Standardized Standardize(const std::vector<double>& x, const std::vector<int64_t>& row,
                         int64_t row_count, double epsilon, bool centered) {
  const size_t rows = static_cast<size_t>(row_count);
  Standardized result{
      .values = x, .mean = std::vector<double>(rows, 0), .inverse = std::vector<double>(rows, 0)};
  const double length = row_count == 0 ? 0 : static_cast<double>(x.size()) / rows;
  if (centered) {
    for (size_t i = 0; i < x.size(); ++i) result.mean[static_cast<size_t>(row[i])] += x[i];
    for (double& mean : result.mean) mean /= length;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = x[i] - result.mean[static_cast<size_t>(row[i])];
    result.inverse[static_cast<size_t>(row[i])] += difference * difference;
  }
  for (double& inverse : result.inverse) inverse = 1 / std::sqrt(inverse / length + epsilon);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t r = static_cast<size_t>(row[i]);
    result.values[i] = (x[i] - result.mean[r]) * result.inverse[r];
  }
  return result;
}

// Elements of `values` broadcast to `dims`, in its row-major order.
std::vector<double> Broadcast(const Tensor& values, const Dims& dims) {
  const std::vector<double> all = ReadValues<double>(values);
  std::vector<double> result;
  ForEach<1>(dims, {BroadcastStrides(values.shape(), dims)},
             [&](const auto& offset) { result.push_back(all[static_cast<size_t>(offset[0])]); });
  return result;
}

// Lowering: the reductions.

Expr ReciprocalRoot(const Expr& x) {
  return Expr::Constant(x.dtype(), 1) / Expr::Unary(ExprOp::kSqrt, x);
}

// Mean of `x` over `count` elements, and 1 / sqrt(variance + epsilon) about that mean.
std::vector<Reduction> MomentReductions(const Expr& x, const DimExpr& count, double epsilon) {
  const DType dtype = x.dtype();
  const Expr length = Expr::Cast(dtype, Extent(count));
  const Expr total = Expr::Accumulator(dtype, 0);
  const Expr difference = x - Expr::Reduced(dtype, 0);
  return {SumReduction(x, total / length),
          SumReduction(difference * difference,
                       ReciprocalRoot(total / length + Expr::Constant(dtype, epsilon)))};
}

// LayerNormalization and RMSNormalization.

absl::StatusOr<size_t> FirstNormalizedAxis(const Node& node, size_t rank) {
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", -1));
  return NormalizeAxis(node, axis, rank);
}

absl::StatusOr<DType> StashType(const Node& node) {
  ASSIGN_OR_RETURN(const int64_t stash, node.Int("stash_type", 1));
  const std::optional<DType> dtype = DTypeFromOnnx(static_cast<int32_t>(stash));
  if (!dtype.has_value() || !IsFloat(*dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": stash_type: got ", stash, ", not a floating-point type"));
  }
  return *dtype;
}

absl::Status CheckBroadcastsTo(InferContext& context, size_t input, const Shape& shape) {
  ASSIGN_OR_RETURN(const Shape own, context.InputShape(input));
  if (own.size() > shape.size()) {
    return context.Error(absl::StrCat("input ", input, ": shape ", ToString(own),
                                      " does not broadcast to ", ToString(shape)));
  }
  for (size_t i = 0; i < own.size(); ++i) {
    const DimExpr& dim = own[own.size() - 1 - i];
    if (dim.IsConstant(1)) continue;
    RETURN_IF_ERROR(
        RequireEqual(context, dim, shape[shape.size() - 1 - i], "dims of scale and input"));
  }
  return absl::OkStatus();
}

absl::Status InferLayerNorm(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  if (!IsFloat(dtype)) return context.Error("X: normalisation takes floating-point tensors");
  ASSIGN_OR_RETURN(const size_t axis, FirstNormalizedAxis(context.node(), shape.size()));
  ASSIGN_OR_RETURN(const DType stash, StashType(context.node()));
  ASSIGN_OR_RETURN(const DType scale_dtype, context.InputDType(1));
  RETURN_IF_ERROR(CheckBroadcastsTo(context, 1, shape));
  if (context.HasInput(2)) RETURN_IF_ERROR(CheckBroadcastsTo(context, 2, shape));
  Shape statistics = shape;
  for (size_t i = axis; i < statistics.size(); ++i) statistics[i] = 1;
  const bool root_mean_square = context.node().op_type == "RMSNormalization";
  RETURN_IF_ERROR(context.SetOutput(0, root_mean_square ? scale_dtype : dtype, shape));
  if (context.output_count() > 1) RETURN_IF_ERROR(context.SetOutput(1, stash, statistics));
  if (context.output_count() > 2) RETURN_IF_ERROR(context.SetOutput(2, stash, statistics));
  return absl::OkStatus();
}

template <bool centered>
absl::StatusOr<std::vector<Tensor>> LayerNormReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const Dims& dims = input.shape();
  ASSIGN_OR_RETURN(const size_t axis, FirstNormalizedAxis(arguments.node, dims.size()));
  ASSIGN_OR_RETURN(const float epsilon, arguments.node.Float("epsilon", 1e-5f));
  ASSIGN_OR_RETURN(const DType stash, StashType(arguments.node));
  const int64_t length = ProductOf(Dims(dims.begin() + static_cast<int64_t>(axis), dims.end()));
  std::vector<double> x = ReadValues<double>(input);
  std::vector<int64_t> row(x.size());
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<int64_t>(i) / length;
  Dims statistics(dims.size(), 1);
  std::copy_n(dims.begin(), axis, statistics.begin());
  Standardized result = Standardize(x, row, ProductOf(statistics), epsilon, centered);
  const std::vector<double> scale = Broadcast(arguments.inputs[1], dims);
  for (size_t i = 0; i < x.size(); ++i) result.values[i] *= scale[i];
  if (arguments.inputs.size() > 2 && arguments.inputs[2].valid()) {
    const std::vector<double> bias = Broadcast(arguments.inputs[2], dims);
    for (size_t i = 0; i < x.size(); ++i) result.values[i] += bias[i];
  }
  const DType dtype = centered ? input.dtype() : arguments.inputs[1].dtype();
  std::vector<Tensor> outputs(arguments.node.outputs.size());
  ASSIGN_OR_RETURN(outputs[0], MakeTensor(dtype, dims, result.values));
  if (outputs.size() > 1) {
    ASSIGN_OR_RETURN(outputs[1], MakeTensor(stash, statistics, result.mean));
  }
  if (outputs.size() > 2) {
    ASSIGN_OR_RETURN(outputs[2], MakeTensor(stash, statistics, result.inverse));
  }
  return outputs;
}

// A statistic of the rows as an output of its own: the rows' nest without its elements.
void EmitStatistic(LowerContext& context, const StageOperands& operands, const Nest& rows,
                   size_t reduction, size_t output) {
  Nest nest = rows;
  const Value& value = context.output(output);
  nest.per_element = false;
  nest.reductions.resize(reduction + 1);
  const Expr result = nest.reductions[reduction].result;
  nest.result =
      Expr::Cast(value.dtype, Expr::Reduced(result.dtype(), static_cast<int32_t>(reduction)));
  nest.output = {.dtype = value.dtype, .shape = *value.shape};
  nest.output_coordinates = Coords(0, nest.kept.size());
  nest.output_coordinates.resize(value.shape->size(), Int(0));
  EmitNest(context, operands, std::move(nest), context.node().outputs[output]);
}

template <bool centered>
absl::Status LowerLayerNorm(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const size_t axis, FirstNormalizedAxis(context.node(), shape.size()));
  ASSIGN_OR_RETURN(const float epsilon, context.node().Float("epsilon", 1e-5f));
  const DType compute = ComputeType(context.input(0).dtype);
  const std::vector<Expr> coords = Coords(0, shape.size());
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const Expr x = Expr::Cast(compute, operands.Load(input, coords));
  const auto split = shape.begin() + static_cast<int64_t>(axis);
  Nest nest{.kept = Shape(shape.begin(), split), .reduced = Shape(split, shape.end())};
  const DimExpr count = ElementCount(nest.reduced);
  Expr value;
  if (centered) {
    nest.reductions = MomentReductions(x, count, epsilon);
    value = (x - Expr::Reduced(compute, 0)) * Expr::Reduced(compute, 1);
    for (size_t i = 1; i <= 2; ++i) {
      if (context.HasOutput(i)) EmitStatistic(context, operands, nest, i - 1, i);
    }
  } else {
    const Expr mean_square = Expr::Accumulator(compute, 0) / Expr::Cast(compute, Extent(count));
    nest.reductions = {
        SumReduction(x * x, ReciprocalRoot(mean_square + Expr::Constant(compute, epsilon)))};
    value = x * Expr::Reduced(compute, 0);
  }
  const int32_t scale = operands.AddInput(context, 1);
  value = value * Expr::Cast(compute, operands.LoadBroadcast(scale, shape, coords));
  if (context.HasInput(2)) {
    const int32_t bias = operands.AddInput(context, 2);
    value = value + Expr::Cast(compute, operands.LoadBroadcast(bias, shape, coords));
  }
  nest.per_element = true;
  nest.output = {.dtype = context.output(0).dtype, .shape = shape};
  nest.result = Expr::Cast(nest.output.dtype, value);
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

// InstanceNormalization and GroupNormalization: groups of channels and all of space.

absl::StatusOr<DimExpr> GroupCount(const Node& node, const DimExpr& channels) {
  if (node.op_type == "InstanceNormalization") return channels;
  ASSIGN_OR_RETURN(const int64_t groups, node.Int("num_groups", 0));
  const bool divides =
      !channels.is_constant() || (groups > 0 && *channels.constant() % groups == 0);
  if (groups > 0 && divides) return DimExpr(groups);
  return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": num_groups: got ", groups,
                                                 ", channels are ", channels.ToString()));
}

absl::Status InferGroupNorm(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  if (!IsFloat(dtype)) return context.Error("X: normalisation takes floating-point tensors");
  if (shape.size() < 2) return context.Error("X: rank is below 2");
  const ActivationAxes axes{shape.size(), ChannelsLast(context.node())};
  const DimExpr& channels = shape[axes.channel()];
  RETURN_IF_ERROR(GroupCount(context.node(), channels).status());
  for (size_t i = 1; i <= 2; ++i) {
    ASSIGN_OR_RETURN(const Shape own, context.InputShape(i));
    if (own.size() != 1) {
      return context.Error(absl::StrCat("input ", i, ": got shape ", ToString(own), ", want [",
                                        channels.ToString(), "]"));
    }
    RETURN_IF_ERROR(RequireEqual(context, own[0], channels, "channels of scale and input"));
  }
  return context.SetOutput(0, dtype, shape);
}

absl::StatusOr<std::vector<Tensor>> GroupNormReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const Dims& dims = input.shape();
  const ActivationAxes axes{dims.size(), ChannelsLast(arguments.node)};
  const int64_t channels = dims[axes.channel()];
  ASSIGN_OR_RETURN(const DimExpr group_count, GroupCount(arguments.node, channels));
  const int64_t groups = *group_count.constant();
  ASSIGN_OR_RETURN(const float epsilon, arguments.node.Float("epsilon", 1e-5f));
  std::vector<size_t> channel;
  std::vector<int64_t> row;
  ForEachIndex(dims, [&](const Dims& index) {
    const int64_t c = index[axes.channel()];
    channel.push_back(static_cast<size_t>(c));
    row.push_back(index[0] * groups + c / (channels / groups));
  });
  Standardized result =
      Standardize(ReadValues<double>(input), row, dims[0] * groups, epsilon, true);
  const std::vector<double> scale = ReadValues<double>(arguments.inputs[1]);
  const std::vector<double> bias = ReadValues<double>(arguments.inputs[2]);
  for (size_t i = 0; i < channel.size(); ++i) {
    result.values[i] = result.values[i] * scale[channel[i]] + bias[channel[i]];
  }
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), dims, result.values));
  return One(std::move(output));
}

absl::Status LowerGroupNorm(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  const ActivationAxes axes{shape.size(), ChannelsLast(context.node())};
  const DimExpr& channels = shape[axes.channel()];
  ASSIGN_OR_RETURN(const DimExpr groups, GroupCount(context.node(), channels));
  ASSIGN_OR_RETURN(const float epsilon, context.node().Float("epsilon", 1e-5f));
  // Kept: batch, group. Reduced: channel within the group, space; in the order they lie in memory.
  const DimExpr members = FloorDiv(channels, groups);
  Nest nest{.kept = {shape[0], groups}};
  std::vector<Expr> space = Coords(axes.channels_last ? 2 : 3, axes.spatial_rank());
  const Expr member =
      Expr::Coord(static_cast<int32_t>(axes.channels_last ? 2 + axes.spatial_rank() : 2));
  const Expr channel = Expr::Coord(1) * Extent(members) + member;
  if (!axes.channels_last) nest.reduced.push_back(members);
  for (size_t i = 0; i < axes.spatial_rank(); ++i) nest.reduced.push_back(shape[axes.spatial(i)]);
  if (axes.channels_last) nest.reduced.push_back(members);
  const std::vector<Expr> coords = axes.Arrange(Expr::Coord(0), channel, space);

  StageOperands operands;
  const DType compute = ComputeType(context.input(0).dtype);
  const Expr x = Expr::Cast(compute, operands.Load(operands.AddInput(context, 0), coords));
  const Expr scale = Expr::Cast(compute, operands.Load(operands.AddInput(context, 1), {channel}));
  const Expr bias = Expr::Cast(compute, operands.Load(operands.AddInput(context, 2), {channel}));
  nest.reductions = MomentReductions(x, ElementCount(nest.reduced), epsilon);
  nest.per_element = true;
  nest.output = {.dtype = context.output(0).dtype, .shape = shape};
  nest.output_coordinates = coords;
  const Expr standard = (x - Expr::Reduced(compute, 0)) * Expr::Reduced(compute, 1);
  nest.result = Expr::Cast(nest.output.dtype, standard * scale + bias);
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

// MeanVarianceNormalization and LpNormalization: no scale, any axes.

constexpr double kVarianceNormEpsilon = 1e-9;  // of the operator's function body

absl::StatusOr<std::vector<size_t>> NormalizedAxes(const Node& node, size_t rank) {
  if (node.op_type == "LpNormalization") {
    ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", -1));
    return NormalizeAxes(node, std::vector<int64_t>{axis}, rank);
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, node.Ints("axes", {0, 2, 3}));
  return NormalizeAxes(node, axes, rank);
}

absl::StatusOr<int64_t> Norm(const Node& node) {
  ASSIGN_OR_RETURN(const int64_t p, node.Int("p", 2));
  if (p == 1 || p == 2) return p;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": p: got ", p, ", limits 1 and 2"));
}

absl::Status InferPlainNorm(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if (!IsFloat(dtype)) return context.Error("X: normalisation takes floating-point tensors");
  RETURN_IF_ERROR(NormalizedAxes(context.node(), shape.size()).status());
  RETURN_IF_ERROR(Norm(context.node()).status());
  return context.SetOutput(0, dtype, std::move(shape));
}

// The row of each element when `reduced` axes are normalised together.
std::vector<int64_t> RowsAcross(const Dims& dims, const std::vector<size_t>& reduced) {
  const std::vector<size_t> kept = OtherAxes(reduced, dims.size());
  std::vector<int64_t> rows;
  ForEachIndex(dims, [&](const Dims& index) {
    int64_t row = 0;
    for (const size_t axis : kept) row = row * dims[axis] + index[axis];
    rows.push_back(row);
  });
  return rows;
}

absl::StatusOr<std::vector<Tensor>> PlainNormReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const std::vector<size_t> reduced,
                   NormalizedAxes(arguments.node, input.shape().size()));
  const std::vector<int64_t> row = RowsAcross(input.shape(), reduced);
  std::vector<double> x = ReadValues<double>(input);
  std::vector<double> mean(x.size(), 0), norm(x.size(), 0), length(x.size(), 0);
  for (size_t i = 0; i < x.size(); ++i) ++length[static_cast<size_t>(row[i])];
  if (arguments.node.op_type == "LpNormalization") {
    ASSIGN_OR_RETURN(const int64_t p, Norm(arguments.node));
    for (size_t i = 0; i < x.size(); ++i) {
      norm[static_cast<size_t>(row[i])] += p == 1 ? std::abs(x[i]) : x[i] * x[i];
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const double total = norm[static_cast<size_t>(row[i])];
      // A row of zeros stays zero.
      if (total != 0) x[i] /= p == 1 ? total : std::sqrt(total);
    }
  } else {
    for (size_t i = 0; i < x.size(); ++i) mean[static_cast<size_t>(row[i])] += x[i];
    for (size_t r = 0; r < x.size(); ++r) mean[r] /= length[r];
    for (size_t i = 0; i < x.size(); ++i) {
      const double difference = x[i] - mean[static_cast<size_t>(row[i])];
      norm[static_cast<size_t>(row[i])] += difference * difference;
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t r = static_cast<size_t>(row[i]);
      x[i] = (x[i] - mean[r]) / (std::sqrt(norm[r] / length[r]) + kVarianceNormEpsilon);
    }
  }
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), input.shape(), x));
  return One(std::move(output));
}

absl::Status LowerPlainNorm(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const std::vector<size_t> reduced, NormalizedAxes(context.node(), shape.size()));
  ASSIGN_OR_RETURN(const int64_t p, Norm(context.node()));
  const std::vector<size_t> kept = OtherAxes(reduced, shape.size());
  const std::vector<Expr> coords = SplitCoords(kept, reduced);
  const DType compute = ComputeType(context.input(0).dtype);
  StageOperands operands;
  const Expr x = Expr::Cast(compute, operands.Load(operands.AddInput(context, 0), coords));
  Nest nest{.kept = SelectDims(shape, kept), .reduced = SelectDims(shape, reduced)};
  if (nest.reduced.empty()) nest.reduced = {1};
  const Expr total = Expr::Accumulator(compute, 0);
  Expr value;
  if (context.node().op_type == "LpNormalization") {
    const Expr norm = p == 1 ? total : Expr::Unary(ExprOp::kSqrt, total);
    const Expr zero = Expr::Constant(compute, 0), one = Expr::Constant(compute, 1);
    nest.reductions = {SumReduction(p == 1 ? Expr::Unary(ExprOp::kAbs, x) : x * x,
                                    Expr::Select(Equal(total, zero), one, norm))};
    value = x / Expr::Reduced(compute, 0);
  } else {
    const Expr length = Expr::Cast(compute, Extent(ElementCount(nest.reduced)));
    const Expr difference = x - Expr::Reduced(compute, 0);
    nest.reductions = {
        SumReduction(x, total / length),
        SumReduction(difference * difference, Expr::Unary(ExprOp::kSqrt, total / length) +
                                                  Expr::Constant(compute, kVarianceNormEpsilon))};
    value = difference / Expr::Reduced(compute, 1);
  }
  nest.per_element = true;
  nest.output = {.dtype = context.output(0).dtype, .shape = shape};
  nest.output_coordinates = coords;
  nest.result = Expr::Cast(nest.output.dtype, value);
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

constexpr Variant kLayerNormVariants[] = {{"nest", AlwaysApplies, LowerLayerNorm<true>}};
constexpr Variant kRmsNormVariants[] = {{"nest", AlwaysApplies, LowerLayerNorm<false>}};
constexpr Variant kGroupNormVariants[] = {{"nest", AlwaysApplies, LowerGroupNorm}};
constexpr Variant kPlainNormVariants[] = {{"nest", AlwaysApplies, LowerPlainNorm}};

constexpr OpDefinition GroupNormOp(absl::string_view name, absl::string_view domain) {
  return {.name = name,
          .domain = domain,
          .min_inputs = 3,
          .max_inputs = 3,
          .infer = InferGroupNorm,
          .reference = GroupNormReference,
          .variants = kGroupNormVariants};
}

constexpr OpDefinition PlainNormOp(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 1,
          .max_inputs = 1,
          .infer = InferPlainNorm,
          .reference = PlainNormReference,
          .variants = kPlainNormVariants};
}

}  // namespace

std::span<const OpDefinition> NormalizationOps() {
  static constexpr OpDefinition kOps[] = {
      GroupNormOp("GroupNormalization", ""),
      GroupNormOp("GroupNormalization", kOwnDomain),
      GroupNormOp("InstanceNormalization", ""),
      GroupNormOp("InstanceNormalization", kOwnDomain),
      {.name = "LayerNormalization",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 3,
       .min_outputs = 1,
       .max_outputs = 3,
       .infer = InferLayerNorm,
       .reference = LayerNormReference<true>,
       .variants = kLayerNormVariants},
      PlainNormOp("LpNormalization"),
      PlainNormOp("MeanVarianceNormalization"),
      {.name = "RMSNormalization",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = InferLayerNorm,
       .reference = LayerNormReference<false>,
       .variants = kRmsNormVariants},
  };
  return kOps;
}

}  // namespace stampmill
