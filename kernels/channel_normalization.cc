// BatchNormalization with given statistics, and LRN: what a channel, or a few neighbouring ones,
// say about an element. In both layouts (kernels/layout.h).
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

// BatchNormalization: X, scale, B, mean, variance. X may have rank 1: then it is [N] of one
// channel.

size_t ChannelAxis(const Node& node, size_t rank) { return ChannelsLast(node) ? rank - 1 : 1; }

absl::Status InferBatchNorm(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if (!IsFloat(dtype)) return context.Error("X: normalisation takes floating-point tensors");
  ASSIGN_OR_RETURN(const int64_t training, context.node().Int("training_mode", 0));
  if (training != 0) return context.Unsupported("training_mode 1");
  for (size_t i = 1; i < context.output_count(); ++i) {
    if (context.HasOutput(i)) return context.Unsupported("outputs of training");
  }
  const DimExpr channels =
      shape.size() < 2 ? DimExpr(1) : shape[ChannelAxis(context.node(), shape.size())];
  for (size_t i = 1; i <= 4; ++i) {
    ASSIGN_OR_RETURN(const Shape own, context.InputShape(i));
    if (own.size() != 1) {
      return context.Error(absl::StrCat("input ", i, ": got shape ", ToString(own), ", want [",
                                        channels.ToString(), "]"));
    }
    RETURN_IF_ERROR(RequireEqual(context, own[0], channels, "channels of X and its statistics"));
  }
  return context.SetOutput(0, dtype, std::move(shape));
}

absl::StatusOr<std::vector<Tensor>> BatchNormReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const Dims& dims = input.shape();
  ASSIGN_OR_RETURN(const int64_t training, arguments.node.Int("training_mode", 0));
  if (training != 0) {
    return absl::UnimplementedError(absl::StrCat(arguments.node.Describe(), ": training_mode 1"));
  }
  ASSIGN_OR_RETURN(const float epsilon, arguments.node.Float("epsilon", 1e-5f));
  std::vector<std::vector<double>> statistics;
  for (size_t i = 1; i <= 4; ++i) statistics.push_back(ReadValues<double>(arguments.inputs[i]));
  std::vector<double> x = ReadValues<double>(input);
  size_t at = 0;
  ForEachIndex(dims, [&](const Dims& index) {
    const size_t c =
        dims.size() < 2 ? 0 : static_cast<size_t>(index[ChannelAxis(arguments.node, dims.size())]);
    x[at] = (x[at] - statistics[2][c]) / std::sqrt(statistics[3][c] + epsilon) * statistics[0][c] +
            statistics[1][c];
    ++at;
  });
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), dims, x));
  std::vector<Tensor> outputs(arguments.node.outputs.size());
  outputs[0] = std::move(output);
  return outputs;
}

// factor and offset of each channel, as constants, when all statistics are.
struct ChannelLine {
  Tensor factor, offset;
};

absl::StatusOr<std::optional<ChannelLine>> ConstantLine(const LowerContext& context, float epsilon,
                                                        DType dtype) {
  std::vector<std::vector<double>> statistics;
  for (size_t i = 1; i <= 4; ++i) {
    if (!context.input(i).constant.has_value()) return std::optional<ChannelLine>();
    statistics.push_back(ReadValues<double>(*context.input(i).constant));
  }
  std::vector<double> factor, offset;
  for (size_t c = 0; c < statistics[0].size(); ++c) {
    factor.push_back(statistics[0][c] / std::sqrt(statistics[3][c] + epsilon));
    offset.push_back(statistics[1][c] - statistics[2][c] * factor.back());
  }
  const Dims dims = {static_cast<int64_t>(factor.size())};
  ChannelLine line;
  ASSIGN_OR_RETURN(line.factor, MakeTensor(dtype, dims, factor));
  ASSIGN_OR_RETURN(line.offset, MakeTensor(dtype, dims, offset));
  return std::optional<ChannelLine>(std::move(line));
}

absl::Status LowerBatchNorm(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const float epsilon, context.node().Float("epsilon", 1e-5f));
  const DType compute = ComputeType(context.input(0).dtype);
  const std::vector<Expr> coords = Coords(0, shape.size());
  const Expr channel =
      shape.size() < 2 ? Int(0) : coords[ChannelAxis(context.node(), shape.size())];
  StageOperands operands;
  const Expr x = Expr::Cast(compute, operands.Load(operands.AddInput(context, 0), coords));
  Nest nest{.kept = shape};
  Expr value;
  ASSIGN_OR_RETURN(const std::optional<ChannelLine> line, ConstantLine(context, epsilon, compute));
  if (line.has_value()) {
    const Shape channels = *context.input(1).shape;
    const int32_t factor =
        operands.Add(context.NewConstant(line->factor, "factor"), compute, channels);
    const int32_t offset =
        operands.Add(context.NewConstant(line->offset, "offset"), compute, channels);
    value = x * operands.Load(factor, {channel}) + operands.Load(offset, {channel});
  } else {
    const auto statistic = [&](size_t i) {
      return Expr::Cast(compute, operands.Load(operands.AddInput(context, i), {channel}));
    };
    const Expr deviation =
        Expr::Unary(ExprOp::kSqrt, statistic(4) + Expr::Constant(compute, epsilon));
    value = (x - statistic(3)) / deviation * statistic(1) + statistic(2);
  }
  nest.output = {.dtype = context.output(0).dtype, .shape = shape};
  nest.result = Expr::Cast(nest.output.dtype, value);
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

// LRN: x / (bias + alpha / size * sum of squares of `size` neighbouring channels) ^ beta.

struct LrnAttributes {
  float alpha = 0, beta = 0, bias = 0;
  int64_t size = 1;

  int64_t before() const { return (size - 1) / 2; }
};

absl::StatusOr<LrnAttributes> ReadLrn(const Node& node) {
  LrnAttributes lrn;
  ASSIGN_OR_RETURN(lrn.alpha, node.Float("alpha", 1e-4f));
  ASSIGN_OR_RETURN(lrn.beta, node.Float("beta", 0.75f));
  ASSIGN_OR_RETURN(lrn.bias, node.Float("bias", 1));
  ASSIGN_OR_RETURN(lrn.size, node.Int("size", 0));
  if (lrn.size >= 1) return lrn;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": size: got ", lrn.size, ", must be 1 or more"));
}

absl::Status InferLrn(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if (!IsFloat(dtype)) return context.Error("X: LRN takes floating-point tensors");
  if (shape.size() < 2) return context.Error("X: rank is below 2");
  RETURN_IF_ERROR(ReadLrn(context.node()).status());
  return context.SetOutput(0, dtype, std::move(shape));
}

absl::StatusOr<std::vector<Tensor>> LrnReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const LrnAttributes lrn, ReadLrn(arguments.node));
  const Dims& dims = input.shape();
  const size_t axis = ChannelAxis(arguments.node, dims.size());
  const int64_t stride = RowMajor(dims)[axis];
  const std::vector<double> x = ReadValues<double>(input);
  std::vector<double> y;
  ForEachIndex(dims, [&](const Dims& index) {
    const int64_t at = static_cast<int64_t>(y.size());
    double sum = 0;
    for (int64_t i = 0; i < lrn.size; ++i) {
      const int64_t c = index[axis] - lrn.before() + i;
      if (c < 0 || c >= dims[axis]) continue;
      const double neighbour = x[static_cast<size_t>(at + (c - index[axis]) * stride)];
      sum += neighbour * neighbour;
    }
    const double scale = lrn.bias + lrn.alpha / static_cast<double>(lrn.size) * sum;
    y.push_back(x[static_cast<size_t>(at)] / std::pow(scale, lrn.beta));
  });
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), dims, y));
  return One(std::move(output));
}

absl::Status LowerLrn(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const LrnAttributes lrn, ReadLrn(context.node()));
  const size_t axis = ChannelAxis(context.node(), shape.size());
  const DType dtype = context.input(0).dtype;
  const DType compute = ComputeType(dtype);
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const std::vector<Expr> coords = Coords(0, shape.size());
  const Expr x = Expr::Cast(compute, operands.Load(input, coords));
  std::vector<Expr> neighbour = coords;
  neighbour[axis] =
      coords[axis] + Expr::Coord(static_cast<int32_t>(shape.size())) - Int(lrn.before());
  const Expr y = Expr::Cast(compute, operands.LoadIf(InRange(neighbour[axis], shape[axis]), input,
                                                     neighbour, Expr::Constant(dtype, 0)));
  Nest nest{.kept = shape, .reduced = {lrn.size}};
  nest.reductions = {SumReduction(y * y)};
  const Expr scale =
      Expr::Constant(compute, lrn.bias) +
      Expr::Constant(compute, lrn.alpha / static_cast<float>(lrn.size)) * Expr::Reduced(compute, 0);
  const Expr power = Expr::Binary(ExprOp::kPow, scale, Expr::Constant(compute, lrn.beta));
  nest.output = {.dtype = context.output(0).dtype, .shape = shape};
  nest.result = Expr::Cast(nest.output.dtype, x / power);
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

constexpr Variant kBatchNormVariants[] = {{"nest", AlwaysApplies, LowerBatchNorm}};
constexpr Variant kLrnVariants[] = {{"nest", AlwaysApplies, LowerLrn}};

constexpr OpDefinition BatchNormOp(absl::string_view domain) {
  return {.name = "BatchNormalization",
          .domain = domain,
          .min_inputs = 5,
          .max_inputs = 5,
          .min_outputs = 1,
          .max_outputs = 5,
          .infer = InferBatchNorm,
          .reference = BatchNormReference,
          .variants = kBatchNormVariants};
}

constexpr OpDefinition LrnOp(absl::string_view domain) {
  return {.name = "LRN",
          .domain = domain,
          .min_inputs = 1,
          .max_inputs = 1,
          .infer = InferLrn,
          .reference = LrnReference,
          .variants = kLrnVariants};
}

}  // namespace

std::span<const OpDefinition> ChannelNormalizationOps() {
  static constexpr OpDefinition kOps[] = {BatchNormOp(""), BatchNormOp(kOwnDomain), LrnOp(""),
                                          LrnOp(kOwnDomain)};
  return kOps;
}

}  // namespace stampmill
