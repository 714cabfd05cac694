// ReduceSum and kin: one nest each, kept axes times reduced axes. All of them differ only in what
// they do to an element, how they combine, and what they do to the total, so that is what the table
// at the end of the file is made from.
#include <cmath>
#include <optional>
#include <span>
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

enum class ReduceKind {
  kSum,
  kMean,
  kProd,
  kMax,
  kMin,
  kL1,
  kL2,
  kLogSum,
  kLogSumExp,
  kSumSquare,
};

// The axes that a node reduces, given the contents of its second input where it has one. An empty
// list means none at all: then every element is its own reduction.
absl::StatusOr<std::vector<size_t>> AxesToReduce(const Node& node, const std::vector<int64_t>* axes,
                                                 size_t rank) {
  ASSIGN_OR_RETURN(const int64_t noop, node.Int("noop_with_empty_axes", 0));
  if (axes != nullptr && !axes->empty()) return NormalizeAxes(node, *axes, rank);
  std::vector<size_t> all;
  for (size_t i = 0; i < rank && noop == 0; ++i) all.push_back(i);
  return all;
}

// Whether integers are summed as real numbers: their result is one.
constexpr bool InReals(ReduceKind kind) {
  return kind == ReduceKind::kL2 || kind == ReduceKind::kLogSum || kind == ReduceKind::kLogSumExp;
}

bool Supports(ReduceKind kind, DType dtype) {
  if (dtype == DType::kBool) return kind == ReduceKind::kMax || kind == ReduceKind::kMin;
  return dtype != DType::kInvalid;
}

// What two elements become; nullopt where that is no integer arithmetic on them.
std::optional<DimExpr> Joined(ReduceKind kind, const DimExpr& a, const DimExpr& b) {
  switch (kind) {
    case ReduceKind::kMin:
      return Min(a, b);
    case ReduceKind::kMax:
      return Max(a, b);
    case ReduceKind::kSum:
      return a + b;
    case ReduceKind::kProd:
      return a * b;
    default:
      return std::nullopt;
  }
}

// Contents of integers that become one are followed.
void FollowTotal(InferContext& context, ReduceKind kind) {
  const std::vector<DimExpr>* contents = context.InputSymbolic(0);
  if (contents == nullptr || contents->empty()) return;
  DimExpr total = contents->front();
  if (!Joined(kind, total, total).has_value()) return;
  for (const DimExpr& e : std::span(*contents).subspan(1)) total = *Joined(kind, total, e);
  context.SetOutputSymbolic(0, {std::move(total)});
}

template <ReduceKind kind>
absl::Status InferReduce(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  if (!Supports(kind, dtype)) return context.Error("data: bool has no sum");
  std::vector<int64_t> axes;
  if (context.HasInput(1)) {
    ASSIGN_OR_RETURN(axes, context.RequireConstant(1));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> reduced,
                   AxesToReduce(context.node(), &axes, shape.size()));
  ASSIGN_OR_RETURN(const int64_t keepdims, context.node().Int("keepdims", 1));
  std::vector<bool> is_reduced(shape.size(), false);
  for (const size_t axis : reduced) is_reduced[axis] = true;
  Shape output;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!is_reduced[i]) {
      output.push_back(shape[i]);
    } else if (keepdims != 0) {
      output.push_back(1);
    }
  }
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(output)));
  if (reduced.size() == shape.size() && IsInteger(dtype)) FollowTotal(context, kind);
  return absl::OkStatus();
}

// The reference: one pass that finds each element's place in the output, a second one for the sum
// of exponentials.
template <typename T>
T Identity(ReduceKind kind, DType dtype) {
  if (kind == ReduceKind::kMax) return LowestOf<T>(dtype);
  if (kind == ReduceKind::kMin) return HighestOf<T>(dtype);
  return kind == ReduceKind::kProd ? T{1} : T{0};
}

template <typename T>
T Combine(ReduceKind kind, T total, T x) {
  switch (kind) {
    case ReduceKind::kProd:
      return WrapMul(total, x);
    case ReduceKind::kMax:
      return NanMax(total, x);
    case ReduceKind::kMin:
      return NanMin(total, x);
    case ReduceKind::kL1:
      return WrapAdd(total, x < T{0} ? WrapMul(x, static_cast<T>(-1)) : x);
    case ReduceKind::kL2:
    case ReduceKind::kSumSquare:
      return WrapAdd(total, WrapMul(x, x));
    default:
      return WrapAdd(total, x);
  }
}

template <typename T>
T Finish(ReduceKind kind, T total, int64_t count) {
  switch (kind) {
    case ReduceKind::kMean:
      if (std::is_integral_v<T> && count == 0) return T{0};
      return total / static_cast<T>(count);
    case ReduceKind::kL2:
      return static_cast<T>(std::sqrt(static_cast<double>(total)));
    case ReduceKind::kLogSum:
      return static_cast<T>(std::log(static_cast<double>(total)));
    default:
      return total;
  }
}

// Row-major place in the output of each input element, and the extents of the kept axes.
std::vector<int64_t> OutputPlaces(const std::vector<int64_t>& shape,
                                  const std::vector<size_t>& reduced,
                                  std::vector<int64_t>* kept_extents) {
  const std::vector<size_t> kept = OtherAxes(reduced, shape.size());
  for (const size_t axis : kept) kept_extents->push_back(shape[axis]);
  std::vector<int64_t> places;
  ForEachIndex(shape, [&](const Dims& index) {
    int64_t place = 0;
    for (const size_t axis : kept) place = place * shape[axis] + index[axis];
    places.push_back(place);
  });
  return places;
}

std::vector<double> LogSumExp(const std::vector<double>& x, const std::vector<int64_t>& places,
                              size_t output_count) {
  std::vector<double> highest(output_count, -std::numeric_limits<double>::infinity());
  std::vector<double> total(output_count, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    double& best = highest[static_cast<size_t>(places[i])];
    best = NanMax(best, x[i]);
  }
  // An infinite maximum must not be subtracted from itself.
  for (double& best : highest) best = std::isinf(best) ? 0 : best;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t place = static_cast<size_t>(places[i]);
    total[place] += std::exp(x[i] - highest[place]);
  }
  for (size_t i = 0; i < total.size(); ++i) total[i] = std::log(total[i]) + highest[i];
  return total;
}

template <ReduceKind kind>
absl::StatusOr<std::vector<Tensor>> ReduceReference(const ReferenceArguments& arguments) {
  const Tensor& data = arguments.inputs[0];
  std::vector<int64_t> axes;
  if (arguments.inputs.size() > 1 && arguments.inputs[1].valid()) {
    axes = ReadValues<int64_t>(arguments.inputs[1]);
  }
  const size_t rank = data.shape().size();
  ASSIGN_OR_RETURN(const std::vector<size_t> reduced, AxesToReduce(arguments.node, &axes, rank));
  ASSIGN_OR_RETURN(const int64_t keepdims, arguments.node.Int("keepdims", 1));
  std::vector<int64_t> kept_extents;
  const std::vector<int64_t> places = OutputPlaces(data.shape(), reduced, &kept_extents);
  std::vector<int64_t> shape = kept_extents;
  if (keepdims != 0) {
    shape = data.shape();
    for (const size_t axis : reduced) shape[axis] = 1;
  }
  int64_t count = 1;
  for (const size_t axis : reduced) count *= data.shape()[axis];
  const size_t output_count = static_cast<size_t>(ProductOf(shape));
  absl::StatusOr<Tensor> output;
  if constexpr (kind == ReduceKind::kLogSumExp) {
    output =
        MakeTensor(data.dtype(), shape, LogSumExp(ReadValues<double>(data), places, output_count));
  } else {
    const DType computed = InReals(kind) ? DType::kF64 : data.dtype();
    output = WithArithmeticType(computed, [&]<typename T>(T) {
      const std::vector<T> x = ReadValues<T>(data);
      std::vector<T> total(output_count, Identity<T>(kind, data.dtype()));
      for (size_t i = 0; i < x.size(); ++i) {
        T& place = total[static_cast<size_t>(places[i])];
        place = Combine(kind, place, x[i]);
      }
      for (T& value : total) value = Finish(kind, value, count);
      return MakeTensor(data.dtype(), shape, total);
    });
  }
  if (!output.ok()) return output.status();
  return One(*std::move(output));
}

// The lowering.
Reduction FoldReduction(const Expr& value, const Expr& identity, ExprOp op) {
  const Expr total = Expr::Accumulator(value.dtype(), 0);
  return {.init = {identity},
          .update = {Expr::Binary(op, total, value)},
          .merge = {Expr::Binary(op, total, Expr::Accumulator(value.dtype(), 1))},
          .result = total};
}

// What an element is before it is combined, and the type in which that happens.
Expr Prepared(ReduceKind kind, const Expr& element) {
  const DType dtype = element.dtype();
  const bool real = InReals(kind) && !IsFloat(dtype);
  const Expr value = Expr::Cast(real ? RealType(dtype) : ComputeType(dtype), element);
  if (kind == ReduceKind::kL1) {
    return IsUnsignedInteger(dtype) ? value : Expr::Unary(ExprOp::kAbs, value);
  }
  if (kind == ReduceKind::kL2 || kind == ReduceKind::kSumSquare) return value * value;
  return value;
}

Reduction Combining(ReduceKind kind, const Expr& value) {
  const DType dtype = value.dtype();
  const bool is_bool = dtype == DType::kBool;
  switch (kind) {
    case ReduceKind::kProd:
      return FoldReduction(value, Expr::ConstantInt(dtype, 1), ExprOp::kMul);
    case ReduceKind::kMax:
      return FoldReduction(value, LowestValue(dtype), is_bool ? ExprOp::kBitOr : ExprOp::kMax);
    case ReduceKind::kMin:
      return FoldReduction(value, HighestValue(dtype), is_bool ? ExprOp::kBitAnd : ExprOp::kMin);
    default:
      return SumReduction(value);
  }
}

// What becomes of the total of `dtype`.
Expr Finished(ReduceKind kind, const Expr& total, const DimExpr& count) {
  const DType dtype = total.dtype();
  switch (kind) {
    case ReduceKind::kMean:
      return total / Expr::Cast(dtype, Extent(count));
    case ReduceKind::kL2:
      return Expr::Unary(ExprOp::kSqrt, total);
    case ReduceKind::kLogSum:
      return Expr::Unary(ExprOp::kLog, total);
    default:
      return total;
  }
}

template <ReduceKind kind>
absl::Status LowerReduce(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  std::vector<int64_t> axes;
  if (context.HasInput(1)) {
    ASSIGN_OR_RETURN(axes, FixedInts(context.node(), context.input(1)));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> reduced,
                   AxesToReduce(context.node(), &axes, shape.size()));
  const std::vector<size_t> kept = OtherAxes(reduced, shape.size());
  StageOperands operands;
  const int32_t data = operands.AddInput(context, 0);
  Nest nest{.kept = SelectDims(shape, kept), .reduced = SelectDims(shape, reduced)};
  const DimExpr count = ElementCount(nest.reduced);
  // A reduction over no axes still has one element.
  if (nest.reduced.empty()) nest.reduced = {1};
  const Expr value = Prepared(kind, operands.Load(data, SplitCoords(kept, reduced)));
  const DType dtype = context.output(0).dtype;
  if constexpr (kind == ReduceKind::kLogSumExp) {
    Reduction highest = MaxReduction(value);
    const Expr best = highest.result;
    highest.result =
        Expr::Select(Expr::Unary(ExprOp::kIsInf, best), Expr::Constant(best.dtype(), 0), best);
    const Expr shift = Expr::Reduced(value.dtype(), 0);
    nest.reductions = {std::move(highest), SumReduction(Expr::Unary(ExprOp::kExp, value - shift))};
    nest.result =
        Expr::Cast(dtype, Expr::Unary(ExprOp::kLog, Expr::Reduced(value.dtype(), 1)) + shift);
  } else {
    nest.reductions = {Combining(kind, value)};
    nest.result = Expr::Cast(dtype, Finished(kind, Expr::Reduced(value.dtype(), 0), count));
  }
  // Dims of 1 that keepdims leaves are no axes of the nest: the output is addressed as they say.
  const Shape output = *context.output(0).shape;
  nest.output = {.dtype = dtype, .shape = output};
  if (output.size() != kept.size()) {
    nest.output_coordinates.assign(output.size(), Int(0));
    for (size_t i = 0; i < kept.size(); ++i) {
      nest.output_coordinates[kept[i]] = Expr::Coord(static_cast<int32_t>(i));
    }
  }
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

template <ReduceKind kind>
constexpr Variant kReduceVariants[] = {{"nest", AlwaysApplies, LowerReduce<kind>}};

template <ReduceKind kind>
constexpr OpDefinition ReduceOp(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 1,
          .max_inputs = 2,
          .infer = InferReduce<kind>,
          .reference = ReduceReference<kind>,
          .variants = kReduceVariants<kind>};
}

}  // namespace

std::span<const OpDefinition> ReduceOps() {
  static constexpr OpDefinition kOps[] = {
      ReduceOp<ReduceKind::kL1>("ReduceL1"),
      ReduceOp<ReduceKind::kL2>("ReduceL2"),
      ReduceOp<ReduceKind::kLogSum>("ReduceLogSum"),
      ReduceOp<ReduceKind::kLogSumExp>("ReduceLogSumExp"),
      ReduceOp<ReduceKind::kMax>("ReduceMax"),
      ReduceOp<ReduceKind::kMean>("ReduceMean"),
      ReduceOp<ReduceKind::kMin>("ReduceMin"),
      ReduceOp<ReduceKind::kProd>("ReduceProd"),
      ReduceOp<ReduceKind::kSum>("ReduceSum"),
      ReduceOp<ReduceKind::kSumSquare>("ReduceSumSquare"),
  };
  return kOps;
}

}  // namespace stampmill
