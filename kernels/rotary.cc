// Operators of sequence models that keep a state or a position: RotaryEmbedding,
// CausalConvWithState.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/indices.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// RotaryEmbedding turns pairs of elements of each head by an angle of its position: element i and
// i + half (or 2i and 2i + 1, interleaved) of the first `rotated` elements.

enum : size_t { kX, kCos, kSin, kPositions };

struct Rotary {
  bool interleaved = false;
  int64_t heads = 0;    // 0: not given
  int64_t rotated = 0;  // 0: the whole head
};

absl::StatusOr<Rotary> ReadRotary(const Node& node) {
  Rotary rotary;
  ASSIGN_OR_RETURN(const int64_t interleaved, node.Int("interleaved", 0));
  rotary.interleaved = interleaved != 0;
  ASSIGN_OR_RETURN(rotary.heads, node.Int("num_heads", 0));
  ASSIGN_OR_RETURN(rotary.rotated, node.Int("rotary_embedding_dim", 0));
  if (rotary.heads < 0 || rotary.rotated < 0 || rotary.rotated % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": num_heads ", rotary.heads,
                                                   " and rotary_embedding_dim ", rotary.rotated,
                                                   " must not be negative, the latter even"));
  }
  return rotary;
}

// Batch, length and head size of the input, which has heads before the length or packed after it.
template <typename Extent>
struct RotaryExtents {
  Extent batch, heads, length, head;
};

template <typename Extent>
RotaryExtents<Extent> RotaryExtentsOf(const std::vector<Extent>& x, const Rotary& rotary) {
  if (x.size() == 4) return {x[0], x[1], x[2], x[3]};
  if constexpr (std::is_same_v<Extent, DimExpr>) {
    return {x[0], rotary.heads, x[1], FloorDiv(x[2], rotary.heads)};
  } else {
    return {x[0], rotary.heads, x[1], x[2] / rotary.heads};
  }
}

absl::Status CheckCaches(InferContext& context, const RotaryExtents<DimExpr>& extents,
                         const DimExpr& half) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kX));
  for (const auto& [input, name] : {std::pair(size_t{kCos}, "cos_cache"), {kSin, "sin_cache"}}) {
    ASSIGN_OR_RETURN(const Shape cache, context.InputShape(input));
    ASSIGN_OR_RETURN(const DType own, context.InputDType(input));
    if (own != dtype) {
      return context.Error(absl::StrCat(name, " is ", Name(own), ", X ", Name(dtype)));
    }
    const size_t rank = context.HasInput(kPositions) ? 2 : 3;
    if (cache.size() != rank) {
      return context.Error(absl::StrCat(name, ": got rank ", cache.size(), ", want ", rank));
    }
    RETURN_IF_ERROR(RequireEqual(context, cache.back(), half, absl::StrCat(name, ": last dim")));
    if (rank == 3) {
      RETURN_IF_ERROR(
          RequireEqual(context, cache[0], extents.batch, absl::StrCat(name, ": batch")));
      RETURN_IF_ERROR(
          RequireEqual(context, cache[1], extents.length, absl::StrCat(name, ": length")));
    } else {
      ASSIGN_OR_RETURN(const Shape other, context.InputShape(kCos));
      RETURN_IF_ERROR(RequireEqual(context, cache[0], other[0], absl::StrCat(name, ": positions")));
    }
  }
  return absl::OkStatus();
}

absl::Status InferRotary(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kX));
  ASSIGN_OR_RETURN(Shape x, context.InputShape(kX));
  ASSIGN_OR_RETURN(const Rotary rotary, ReadRotary(context.node()));
  if (!IsFloat(dtype)) return context.Error("X must be floating-point");
  if (x.size() != 3 && x.size() != 4) {
    return context.Error(absl::StrCat("X: got rank ", x.size(), ", want 3 or 4"));
  }
  if (x.size() == 3) {
    if (rotary.heads == 0) return context.Error("num_heads is required with an X of rank 3");
    RETURN_IF_ERROR(RequireEqual(
        context, Mod(x[2], rotary.heads), 0,
        absl::StrCat("X: hidden size ", x[2].ToString(), " modulo num_heads ", rotary.heads)));
  } else if (rotary.heads != 0) {
    RETURN_IF_ERROR(RequireEqual(context, x[1], rotary.heads, "num_heads"));
  }
  const RotaryExtents<DimExpr> extents = RotaryExtentsOf(x, rotary);
  if (rotary.rotated == 0) {
    RETURN_IF_ERROR(RequireEqual(context, Mod(extents.head, 2), 0, "head size modulo 2"));
  } else {
    RETURN_IF_ERROR(context.Check(IsNot(IsLess(extents.head, rotary.rotated)),
                                  absl::StrCat("rotary_embedding_dim: got ", rotary.rotated,
                                               ", limit ", extents.head.ToString())));
  }
  const DimExpr half = FloorDiv(rotary.rotated == 0 ? extents.head : DimExpr(rotary.rotated), 2);
  RETURN_IF_ERROR(CheckCaches(context, extents, half));
  if (context.HasInput(kPositions)) {
    RETURN_IF_ERROR(CheckIndexType(context, kPositions));
    ASSIGN_OR_RETURN(const Shape positions, context.InputShape(kPositions));
    if (positions.size() != 2) return context.Error("position_ids must have 2 dims");
    RETURN_IF_ERROR(RequireEqual(context, positions[0], extents.batch, "position_ids: batch"));
    RETURN_IF_ERROR(RequireEqual(context, positions[1], extents.length, "position_ids: length"));
    ASSIGN_OR_RETURN(const Shape cache, context.InputShape(kCos));
    context.CheckIndices(kPositions, cache[0]);
  }
  return context.SetOutput(0, dtype, std::move(x));
}

References RotaryReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const Rotary rotary, ReadRotary(arguments.node));
  const Tensor& input = arguments.inputs[kX];
  const bool has_positions =
      arguments.inputs.size() > kPositions && arguments.inputs[kPositions].valid();
  const RotaryExtents<int64_t> e = RotaryExtentsOf(input.shape(), rotary);
  const int64_t rotated = rotary.rotated == 0 ? e.head : rotary.rotated;
  const int64_t half = rotated / 2;
  const std::vector<double> x = ReadValues<double>(input);
  const std::vector<double> cos = ReadValues<double>(arguments.inputs[kCos]);
  const std::vector<double> sin = ReadValues<double>(arguments.inputs[kSin]);
  std::vector<double> y = x;
  absl::Status status;
  ForEachIndex({e.batch, e.heads, e.length}, [&](const Dims& at) {
    int64_t row = at[0] * e.length + at[2];
    if (has_positions) {
      const int64_t position = arguments.inputs[kPositions].ValueAsInt64(row);
      const absl::StatusOr<int64_t> place =
          IndexOf(arguments, position, arguments.inputs[kCos].shape()[0]);
      if (!place.ok()) status = place.status();
      row = place.value_or(0);
    }
    const int64_t first = input.rank() == 4
                              ? ((at[0] * e.heads + at[1]) * e.length + at[2]) * e.head
                              : ((at[0] * e.length + at[2]) * e.heads + at[1]) * e.head;
    for (int64_t i = 0; i < half; ++i) {
      const size_t a = static_cast<size_t>(first + (rotary.interleaved ? 2 * i : i));
      const size_t b = static_cast<size_t>(first + (rotary.interleaved ? 2 * i + 1 : i + half));
      const double c = cos[static_cast<size_t>(row * half + i)];
      const double s = sin[static_cast<size_t>(row * half + i)];
      y[a] = c * x[a] - s * x[b];
      y[b] = s * x[a] + c * x[b];
    }
  });
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), input.shape(), y));
  return One(std::move(output));
}

// Where the cosine and sine of a pair are.
std::vector<Expr> AnglePlace(LowerContext& context, StageOperands& operands, const Expr& batch,
                             const Expr& length, const Expr& pair) {
  if (!context.HasInput(kPositions)) return {batch, length, pair};
  const int32_t positions = operands.AddInput(context, kPositions);
  return {ClampedIndex(operands.Load(positions, {batch, length}), context.InputShape(kCos)[0]),
          pair};
}

// Halves of whole heads: a half is a loop of its own, in which all that is read and written lies
// side by side.
absl::Status LowerRotaryOfHalves(LowerContext& context) {
  ASSIGN_OR_RETURN(const Rotary rotary, ReadRotary(context.node()));
  const Shape& shape = context.InputShape(kX);
  const bool packed = shape.size() == 3;
  const RotaryExtents<DimExpr> extents = RotaryExtentsOf(shape, rotary);
  const DimExpr half = FloorDiv(extents.head, 2);
  Nest nest;
  nest.kept = packed ? Shape{extents.batch, extents.length, extents.heads, 2, half}
                     : Shape{extents.batch, extents.heads, extents.length, 2, half};
  const std::vector<Expr> c = Coords(0, 5);
  const Expr batch = c[0], length = c[packed ? 1 : 2], second = c[3], pair = c[4];
  // The place of an element of one or the other half.
  const auto place = [&](const Expr& which) {
    const Expr in_head = which * Extent(half) + pair;
    if (packed) return std::vector<Expr>{c[0], c[1], c[2] * Extent(extents.head) + in_head};
    return std::vector<Expr>{c[0], c[1], c[2], in_head};
  };
  StageOperands operands;
  const DType dtype = context.input(kX).dtype;
  const DType compute = ComputeType(dtype);
  const int32_t input = operands.AddInput(context, kX);
  const auto load = [&](int32_t operand, std::vector<Expr> at) {
    return Expr::Cast(compute, operands.Load(operand, std::move(at)));
  };
  const Expr own = load(input, place(second)), partner = load(input, place(Int(1) - second));
  const std::vector<Expr> angle = AnglePlace(context, operands, batch, length, pair);
  const Expr cos = load(operands.AddInput(context, kCos), angle);
  const Expr sin = load(operands.AddInput(context, kSin), angle);
  nest.result = Expr::Cast(dtype, Expr::Select(Equal(second, Int(1)), sin * partner + cos * own,
                                               cos * own - sin * partner));
  nest.output = {.dtype = dtype, .shape = *context.output(0).shape};
  nest.output_coordinates = place(second);
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

bool TurnsHalvesOfWholeHeads(const LowerContext& context) {
  const absl::StatusOr<Rotary> rotary = ReadRotary(context.node());
  if (!rotary.ok() || rotary->interleaved) return false;
  const DimExpr head = RotaryExtentsOf(context.InputShape(kX), *rotary).head;
  if (!head.is_constant() || *head.constant() % 2 != 0) return false;
  return rotary->rotated == 0 || head.IsConstant(rotary->rotated);
}

absl::Status LowerRotary(LowerContext& context) {
  ASSIGN_OR_RETURN(const Rotary rotary, ReadRotary(context.node()));
  const Shape& shape = context.InputShape(kX);
  const bool packed = shape.size() == 3;
  const RotaryExtents<DimExpr> extents = RotaryExtentsOf(shape, rotary);
  const DimExpr rotated = rotary.rotated == 0 ? extents.head : DimExpr(rotary.rotated);
  const Expr half = Extent(FloorDiv(rotated, 2));
  const std::vector<Expr> c = Coords(0, shape.size());
  const Expr batch = c[0], length = c[packed ? 1 : 2];
  // Position within the head and what the element is turned with.
  const Expr in_head = packed ? FloorModulo(c[2], Extent(extents.head)) : c[3];
  const Expr pair = rotary.interleaved ? FloorDivide(in_head, Int(2)) : FloorModulo(in_head, half);
  const Expr is_second =
      rotary.interleaved ? Equal(FloorModulo(in_head, Int(2)), Int(1)) : LessEqual(half, in_head);
  const Expr step = rotary.interleaved ? Int(1) : half;
  const Expr turned = extents.head == rotated ? Expr() : Less(in_head, Extent(rotated));

  StageOperands operands;
  const DType dtype = context.input(kX).dtype;
  const DType compute = ComputeType(dtype);
  const Expr zero = Expr::Constant(dtype, 0);
  const int32_t input = operands.AddInput(context, kX);
  std::vector<Expr> other = c;
  other.back() = c.back() + Expr::Select(is_second, Int(0) - step, step);
  const Expr own = Expr::Cast(compute, operands.Load(input, c));
  const Expr partner = Expr::Cast(compute, operands.LoadIf(turned, input, std::move(other), zero));
  const std::vector<Expr> place = AnglePlace(context, operands, batch, length, pair);
  const Expr cos =
      Expr::Cast(compute, operands.LoadIf(turned, operands.AddInput(context, kCos), place, zero));
  const Expr sin =
      Expr::Cast(compute, operands.LoadIf(turned, operands.AddInput(context, kSin), place, zero));
  Expr result = Expr::Select(is_second, sin * partner + cos * own, cos * own - sin * partner);
  if (turned.valid()) result = Expr::Select(turned, result, own);
  EmitMap(context, std::move(operands), result);
  return absl::OkStatus();
}

// CausalConvWithState: a depthwise convolution over the past and the input, one after the other.

enum : size_t { kInput, kWeight, kBias, kPast };

absl::StatusOr<bool> ReadSilu(const Node& node) {
  ASSIGN_OR_RETURN(const std::string activation, node.String("activation", "none"));
  if (activation == "none") return false;
  if (activation == "silu" || activation == "swish") return true;
  return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": activation: got '", activation,
                                                 "', want silu, swish or none"));
}

absl::Status InferCausalConv(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kInput));
  if (!IsFloat(dtype)) return context.Error("input must be floating-point");
  RETURN_IF_ERROR(ReadSilu(context.node()).status());
  ASSIGN_OR_RETURN(Shape x, context.InputShape(kInput));
  ASSIGN_OR_RETURN(const Shape w, context.InputShape(kWeight));
  if (x.size() != 3 || w.size() != 3) {
    return context.Error(
        absl::StrCat("input and weight: got ranks ", x.size(), " and ", w.size(), ", want 3"));
  }
  RETURN_IF_ERROR(RequireEqual(context, w[0], x[1], "channels of weight and input"));
  RETURN_IF_ERROR(RequireEqual(context, w[1], 1, "weight: dim 1"));
  RETURN_IF_ERROR(context.Check(IsLess(0, w[2]), "weight must have an element a channel"));
  const Shape state = {x[0], x[1], w[2] - 1};
  const std::pair<size_t, Shape> rest[] = {{kWeight, w}, {kBias, {x[1]}}, {kPast, state}};
  for (const auto& [input, want] : rest) {
    if (!context.HasInput(input)) continue;
    ASSIGN_OR_RETURN(const DType own, context.InputDType(input));
    ASSIGN_OR_RETURN(const Shape shape, context.InputShape(input));
    if (own != dtype || shape.size() != want.size()) {
      return context.Error(absl::StrCat("input ", input, ": got ", Name(own), ToString(shape),
                                        ", want ", Name(dtype), ToString(want)));
    }
    for (size_t d = 0; d < want.size(); ++d) {
      RETURN_IF_ERROR(
          RequireEqual(context, shape[d], want[d], absl::StrCat("input ", input, ": dim ", d)));
    }
  }
  RETURN_IF_ERROR(context.SetOutput(1, dtype, state));
  return context.SetOutput(0, dtype, std::move(x));
}

References CausalConvReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const bool silu, ReadSilu(arguments.node));
  const auto has = [&](size_t i) {
    return i < arguments.inputs.size() && arguments.inputs[i].valid();
  };
  const Tensor& input = arguments.inputs[kInput];
  const int64_t channels = input.shape()[1], length = input.shape()[2];
  const int64_t taps = arguments.inputs[kWeight].shape()[2];
  const std::vector<double> x = ReadValues<double>(input);
  const std::vector<double> w = ReadValues<double>(arguments.inputs[kWeight]);
  const std::vector<double> bias =
      has(kBias) ? ReadValues<double>(arguments.inputs[kBias]) : std::vector<double>();
  const std::vector<double> past =
      has(kPast) ? ReadValues<double>(arguments.inputs[kPast]) : std::vector<double>();
  std::vector<double> y(x.size());
  std::vector<double> present;
  for (int64_t row = 0; row < input.shape()[0] * channels; ++row) {
    std::vector<double> padded(static_cast<size_t>(taps - 1));
    if (!past.empty()) {
      std::copy_n(past.begin() + row * (taps - 1), taps - 1, padded.begin());
    }
    padded.insert(padded.end(), x.begin() + row * length, x.begin() + (row + 1) * length);
    const int64_t channel = row % channels;
    for (int64_t i = 0; i < length; ++i) {
      double sum = bias.empty() ? 0 : bias[static_cast<size_t>(channel)];
      for (int64_t tap = 0; tap < taps; ++tap) {
        sum += w[static_cast<size_t>(channel * taps + tap)] * padded[static_cast<size_t>(i + tap)];
      }
      y[static_cast<size_t>(row * length + i)] = silu ? sum / (1 + std::exp(-sum)) : sum;
    }
    present.insert(present.end(), padded.end() - (taps - 1), padded.end());
  }
  std::vector<Tensor> outputs(2);
  ASSIGN_OR_RETURN(outputs[0], MakeTensor(input.dtype(), input.shape(), y));
  ASSIGN_OR_RETURN(outputs[1],
                   MakeTensor(input.dtype(), {input.shape()[0], channels, taps - 1}, present));
  return outputs;
}

// Element `place` of the past followed by the input; 0 without a past.
Expr LoadPadded(LowerContext& context, StageOperands& operands, const Expr& batch,
                const Expr& channel, const Expr& place) {
  const Expr state = Extent(context.InputShape(kWeight)[2] - 1);
  const int32_t x = operands.AddInput(context, kInput);
  const Expr zero = Expr::Constant(operands.operand(x).dtype, 0);
  const Expr in_past = Less(place, state);
  const Expr now = operands.LoadIf(Not(in_past), x, {batch, channel, place - state}, zero);
  if (!context.HasInput(kPast)) return now;
  const int32_t past = operands.AddInput(context, kPast);
  return Expr::Select(in_past, operands.LoadIf(in_past, past, {batch, channel, place}, zero), now);
}

absl::Status LowerCausalConv(LowerContext& context) {
  ASSIGN_OR_RETURN(const bool silu, ReadSilu(context.node()));
  const Shape& shape = context.InputShape(kInput);
  const DType dtype = context.input(kInput).dtype;
  const DType compute = ComputeType(dtype);
  {
    StageOperands operands;
    const std::vector<Expr> c = Coords(0, 3);
    const Expr tap = Expr::Coord(3);
    Nest nest{.kept = shape, .reduced = {context.InputShape(kWeight)[2]}};
    const int32_t weight = operands.AddInput(context, kWeight);
    const Expr w = Expr::Cast(compute, operands.Load(weight, {c[1], Int(0), tap}));
    const Expr x = LoadPadded(context, operands, c[0], c[1], c[2] + tap);
    nest.reductions = {SumReduction(w * Expr::Cast(compute, x))};
    Expr y = Expr::Reduced(compute, 0);
    if (context.HasInput(kBias)) {
      y = y + Expr::Cast(compute, operands.Load(operands.AddInput(context, kBias), {c[1]}));
    }
    const Expr one = Expr::Constant(compute, 1);
    if (silu) y = y / (one + Expr::Unary(ExprOp::kExp, -y));
    nest.result = Expr::Cast(dtype, y);
    nest.output = {.dtype = dtype, .shape = shape};
    const ValueId output =
        context.HasOutput(0) ? context.node().outputs[0] : context.NewValue(dtype, shape, "unused");
    EmitNest(context, std::move(operands), std::move(nest), output);
  }
  if (!context.HasOutput(1)) return absl::OkStatus();
  StageOperands operands;
  const std::vector<Expr> c = Coords(0, 3);
  const Expr element = LoadPadded(context, operands, c[0], c[1], c[2] + Extent(shape[2]));
  EmitMap(context, std::move(operands), element, 1);
  return absl::OkStatus();
}

constexpr Variant kRotaryVariants[] = {{"halves", TurnsHalvesOfWholeHeads, LowerRotaryOfHalves},
                                       {"nest", AlwaysApplies, LowerRotary}};

}  // namespace

std::span<const OpDefinition> RotaryOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "CausalConvWithState",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 4,
       .max_outputs = 2,
       .infer = InferCausalConv,
       .reference = CausalConvReference,
       .variants = kNest<LowerCausalConv>},
      {.name = "RotaryEmbedding",
       .domain = "",
       .min_inputs = 3,
       .max_inputs = 4,
       .infer = InferRotary,
       .reference = RotaryReference,
       .variants = kRotaryVariants},
  };
  return kOps;
}

}  // namespace stampmill
