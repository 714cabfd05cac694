// MaxPool, AveragePool, LpPool over any number of spatial axes, and their global forms, in both
// layouts (kernels/layout.h): one nest, kept over the output, reduced over the window. Padding does
// not take part; what is counted for an average is computed from the position, not by a second sum.
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
#include "kernels/stage_builder.h"
#include "kernels/window.h"

namespace stampmill {
namespace {

enum class PoolKind { kMax, kAverage, kLp };

// A node's pool: one window over everything for the global forms.
struct PoolPlan {
  ActivationAxes axes;
  std::vector<WindowAxis> window;
  bool global = false;
  bool count_include_pad = false;
  bool column_major = false;
  int64_t p = 2;
};

absl::StatusOr<PoolPlan> PlanPool(const Node& node, const Shape& x) {
  PoolPlan plan{.axes = {x.size(), ChannelsLast(node)}};
  plan.global = node.op_type.rfind("Global", 0) == 0;
  ASSIGN_OR_RETURN(plan.p, node.Int("p", 2));
  if (plan.p < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": p: got ", plan.p, ", must be 1 or more"));
  }
  if (plan.global) return plan;
  ASSIGN_OR_RETURN(const int64_t include, node.Int("count_include_pad", 0));
  ASSIGN_OR_RETURN(const int64_t order, node.Int("storage_order", 0));
  plan.count_include_pad = include != 0;
  plan.column_major = order != 0;
  ASSIGN_OR_RETURN(plan.window, ReadWindow(node, plan.axes.Space(x), {}));
  return plan;
}

template <PoolKind kind>
absl::Status InferPool(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(0));
  const bool fits = kind == PoolKind::kMax ? dtype != DType::kBool : IsFloat(dtype);
  if (!fits) return context.Error(absl::StrCat("X: got type ", Name(dtype)));
  if (x.size() < 2) return context.Error("X: rank is below 2");
  ASSIGN_OR_RETURN(const PoolPlan plan, PlanPool(context.node(), x));
  Shape space(plan.axes.spatial_rank(), DimExpr(1));
  if (!plan.global) {
    RETURN_IF_ERROR(CheckWindow(context, plan.window));
    space = WindowOutput(plan.window);
  }
  const Shape output = plan.axes.Arrange(x[0], x[plan.axes.channel()], space);
  RETURN_IF_ERROR(context.SetOutput(0, dtype, output));
  if (context.HasOutput(1)) return context.SetOutput(1, DType::kI64, output);
  return absl::OkStatus();
}

// Reference.

// How many places along an axis the window at `position` has that count for the average.
int64_t CountedTaps(const WindowAxis& axis, int64_t position, bool include_pad) {
  const int64_t before = *axis.pad_begin.constant();
  const int64_t begin = include_pad ? -before : 0;
  const int64_t end = *axis.input.constant() + (include_pad ? *axis.pad_end.constant() : 0);
  int64_t count = 0;
  for (int64_t tap = 0; tap < axis.kernel; ++tap) {
    const int64_t place = position * axis.stride + tap * axis.dilation - before;
    count += place >= begin && place < end ? 1 : 0;
  }
  return count;
}

template <typename T>
struct Pooled {
  T value;
  int64_t index = -1;  // spatial, row-major
};

// One output element; `x` is at the first element of its plane.
template <PoolKind kind, typename T>
Pooled<T> PoolAt(const T* x, std::span<const FixedTap> taps, const Dims& strides, const Dims& space,
                 int64_t count, const PoolPlan& plan, DType dtype) {
  Pooled<T> result{.value = kind == PoolKind::kMax ? LowestOf<T>(dtype) : T{0}};
  for (const FixedTap& tap : taps) {
    const T element = x[OffsetOf(tap.place, strides)];
    if constexpr (kind == PoolKind::kMax) {
      const T best = NanMax(result.value, element);
      // NaN differs from itself: the first one stays.
      const bool better =
          result.index < 0 || (best != result.value && result.value == result.value);
      if (better) result = {best, OffsetOf(tap.place, RowMajor(space))};
    } else if constexpr (kind == PoolKind::kAverage) {
      result.value += element;
    } else {
      result.value += std::pow(std::abs(element), static_cast<T>(plan.p));
    }
  }
  if (kind == PoolKind::kAverage) result.value /= static_cast<T>(std::max<int64_t>(1, count));
  if constexpr (kind == PoolKind::kLp) result.value = std::pow(result.value, T{1} / plan.p);
  return result;
}

// Every place is a tap of the one window of a global pool.
std::vector<FixedTap> AllTaps(const Dims& space) {
  std::vector<FixedTap> taps;
  ForEachIndex(space, [&](const Dims& index) { taps.push_back({.tap = 0, .place = index}); });
  return taps;
}

// The place of a row-major index when the first axis varies fastest.
int64_t ColumnMajor(int64_t index, const Dims& space) {
  int64_t result = 0;
  int64_t stride = ProductOf(space);
  for (size_t i = space.size(); i-- > 0;) {
    stride /= space[i];
    result += index % space[i] * stride;
    index /= space[i];
  }
  return result;
}

template <PoolKind kind, typename T>
absl::StatusOr<std::vector<Tensor>> RunPool(const ReferenceArguments& arguments,
                                            const PoolPlan& plan) {
  const Tensor& input = arguments.inputs[0];
  const Dims& dims = input.shape();
  const int64_t channels = dims[plan.axes.channel()];
  const Dims space = plan.axes.Space(dims);
  const Dims out_space =
      plan.global ? Dims(space.size(), 1) : Dims(ConstantShape(WindowOutput(plan.window)));
  const Dims out_dims = plan.axes.Arrange(dims[0], channels, out_space);
  const Dims strides = RowMajor(dims), out_strides = RowMajor(out_dims);
  const std::vector<T> x = ReadValues<T>(input);
  std::vector<T> values(static_cast<size_t>(ProductOf(out_dims)));
  std::vector<int64_t> indices(values.size());
  ForEachIndex(out_space, [&](const Dims& position) {
    const std::vector<FixedTap> taps =
        plan.global ? AllTaps(space) : FixedTaps(plan.window, position);
    int64_t count = plan.global ? ProductOf(space) : 1;
    for (size_t i = 0; i < plan.window.size(); ++i) {
      count *= CountedTaps(plan.window[i], position[i], plan.count_include_pad);
    }
    for (int64_t n = 0; n < dims[0]; ++n) {
      for (int64_t c = 0; c < channels; ++c) {
        const T* plane = x.data() + n * strides[0] + c * strides[plan.axes.channel()];
        const Pooled<T> pooled = PoolAt<kind, T>(plane, taps, plan.axes.Space(strides), space,
                                                 count, plan, input.dtype());
        const size_t at =
            static_cast<size_t>(n * out_strides[0] + c * out_strides[plan.axes.channel()] +
                                OffsetOf(position, plan.axes.Space(out_strides)));
        values[at] = pooled.value;
        const int64_t index = plan.column_major && pooled.index >= 0
                                  ? ColumnMajor(pooled.index, space)
                                  : pooled.index;
        indices[at] = (n * channels + c) * ProductOf(space) + index;
      }
    }
  });
  std::vector<Tensor> outputs(arguments.node.outputs.size());
  ASSIGN_OR_RETURN(outputs[0], MakeTensor(input.dtype(), out_dims, values));
  if (outputs.size() > 1) {
    ASSIGN_OR_RETURN(outputs[1], MakeTensor(DType::kI64, out_dims, indices));
  }
  return outputs;
}

template <PoolKind kind>
absl::StatusOr<std::vector<Tensor>> PoolReference(const ReferenceArguments& arguments) {
  const Dims& dims = arguments.inputs[0].shape();
  ASSIGN_OR_RETURN(const PoolPlan plan, PlanPool(arguments.node, Shape(dims.begin(), dims.end())));
  if constexpr (kind == PoolKind::kMax) {
    return WithArithmeticType(arguments.inputs[0].dtype(),
                              [&]<typename T>(T) { return RunPool<kind, T>(arguments, plan); });
  } else {
    return RunPool<kind, double>(arguments, plan);
  }
}

// Lowering.

// The nest's loops and the element that a tap reads.
struct PoolNest {
  Nest nest;
  StageOperands operands;
  std::vector<Expr> kept;   // of the output, in its order
  std::vector<Expr> space;  // where the tap lies in the input
  Expr within;              // invalid: always
  Expr element;             // in the compute type; `outside` where the tap is not within
};

PoolNest StartNest(const LowerContext& context, const PoolPlan& plan, const Expr& outside) {
  PoolNest pool;
  const Shape x = context.InputShape(0);
  const Shape y = *context.output(0).shape;
  const ActivationAxes& axes = plan.axes;
  Expr batch, channel;
  if (plan.global) {
    // The axes of 1 are no loops.
    pool.nest.kept = {x[0], x[axes.channel()]};
    pool.nest.reduced = axes.Space(x);
    if (pool.nest.reduced.empty()) pool.nest.reduced = {1};
    batch = Expr::Coord(0);
    channel = Expr::Coord(1);
    pool.space = Coords(2, axes.spatial_rank());
    pool.kept = axes.Arrange(batch, channel, std::vector<Expr>(axes.spatial_rank(), Int(0)));
    pool.nest.output_coordinates = pool.kept;
  } else {
    pool.nest.kept = y;
    pool.nest.reduced = WindowKernel(plan.window);
    pool.kept = Coords(0, y.size());
    batch = pool.kept[0];
    channel = pool.kept[axes.channel()];
    WindowTap tap = TapAt(plan.window, axes.Space(pool.kept), Coords(y.size(), plan.window.size()));
    pool.space = std::move(tap.places);
    pool.within = tap.within;
  }
  const int32_t operand = pool.operands.AddInput(context, 0);
  const Expr loaded =
      pool.operands.LoadIf(pool.within, operand, axes.Arrange(batch, channel, pool.space), outside);
  pool.element = Expr::Cast(ComputeType(loaded.dtype()), loaded);
  return pool;
}

// The number of taps along an axis that count for the average at `position`.
Expr CountedTapsExpr(const WindowAxis& axis, const Expr& position, bool include_pad) {
  const bool whole = include_pad ? !axis.ceil_mode : !axis.crosses_begin() && !axis.crosses_end();
  if (whole) return Int(axis.kernel);
  const Expr first_place = axis.Place(position, Int(0));
  const DimExpr end = include_pad ? axis.input + axis.pad_end : axis.input;
  const Expr last =
      Minimum(Int(axis.kernel - 1), FloorDivide(Extent(end - 1) - first_place, Int(axis.dilation)));
  Expr first = Int(0);
  if (!include_pad && axis.crosses_begin()) {
    // ceil(-place / dilation) for a place before the input
    first = Maximum(first, Int(0) - FloorDivide(first_place, Int(axis.dilation)));
  }
  return Maximum(Int(0), last - first + Int(1));
}

Expr CountExpr(const LowerContext& context, const PoolPlan& plan, const PoolNest& pool) {
  if (plan.global) return Extent(ElementCount(plan.axes.Space(context.InputShape(0))));
  Expr count = Int(1);
  const std::vector<Expr> positions = plan.axes.Space(pool.kept);
  for (size_t i = 0; i < plan.window.size(); ++i) {
    count = count * CountedTapsExpr(plan.window[i], positions[i], plan.count_include_pad);
  }
  return Maximum(count, Int(1));
}

void Finish(LowerContext& context, PoolNest pool, size_t output) {
  pool.nest.output = {.dtype = context.output(output).dtype,
                      .shape = *context.output(output).shape};
  EmitNest(context, std::move(pool.operands), std::move(pool.nest), context.node().outputs[output]);
}

// Indices are those of the tensor with channels first, whatever the layout.
void LowerIndices(LowerContext& context, const PoolPlan& plan) {
  const Shape x = context.InputShape(0);
  const Shape space = plan.axes.Space(x);
  PoolNest pool = StartNest(context, plan, LowestValue(context.input(0).dtype));
  Expr flat = Int(0);
  for (size_t i = 0; i < space.size(); ++i) flat = flat * Extent(space[i]) + pool.space[i];
  pool.nest.reductions = {ArgReduction(pool.element, flat, pool.within, {})};
  Expr index = Expr::Reduced(DType::kI64, 0);
  if (plan.column_major) {
    Expr rest = index, stride = Int(1), total = Int(0);
    std::vector<Expr> strides;
    for (const DimExpr& dim : space) {
      strides.push_back(stride);
      stride = stride * Extent(dim);
    }
    for (size_t i = space.size(); i-- > 0;) {
      total = total + FloorModulo(rest, Extent(space[i])) * strides[i];
      rest = FloorDivide(rest, Extent(space[i]));
    }
    index = Expr::Select(Less(index, Int(0)), index, total);
  }
  const Expr plane = pool.kept[0] * Extent(x[plan.axes.channel()]) + pool.kept[plan.axes.channel()];
  pool.nest.result = plane * Extent(ElementCount(space)) + index;
  Finish(context, std::move(pool), 1);
}

template <PoolKind kind>
absl::Status LowerPool(LowerContext& context) {
  ASSIGN_OR_RETURN(const PoolPlan plan, PlanPool(context.node(), context.InputShape(0)));
  const DType dtype = context.input(0).dtype;
  PoolNest pool = StartNest(
      context, plan, kind == PoolKind::kMax ? LowestValue(dtype) : Expr::ConstantInt(dtype, 0));
  const Expr x = pool.element;
  const Expr total = Expr::Reduced(x.dtype(), 0);
  Expr result = total;
  if constexpr (kind == PoolKind::kMax) {
    pool.nest.reductions = {MaxReduction(x)};
  } else if constexpr (kind == PoolKind::kAverage) {
    pool.nest.reductions = {SumReduction(x)};
    result = total / Expr::Cast(x.dtype(), CountExpr(context, plan, pool));
  } else if (plan.p == 2) {
    pool.nest.reductions = {SumReduction(x * x)};
    result = Expr::Unary(ExprOp::kSqrt, total);
  } else {
    const Expr magnitude = Expr::Unary(ExprOp::kAbs, x);
    const auto power = [&](const Expr& base, double exponent) {
      return exponent == 1 ? base
                           : Expr::Binary(ExprOp::kPow, base, Expr::Constant(x.dtype(), exponent));
    };
    pool.nest.reductions = {SumReduction(power(magnitude, static_cast<double>(plan.p)))};
    result = power(total, 1.0 / static_cast<double>(plan.p));
  }
  pool.nest.result = Expr::Cast(dtype, result);
  Finish(context, std::move(pool), 0);
  if (context.HasOutput(1)) LowerIndices(context, plan);
  return absl::OkStatus();
}

template <PoolKind kind>
constexpr Variant kPoolVariants[] = {{"nest", AlwaysApplies, LowerPool<kind>}};

template <PoolKind kind>
constexpr OpDefinition PoolOp(absl::string_view name, absl::string_view domain,
                              int max_outputs = 1) {
  return {.name = name,
          .domain = domain,
          .min_inputs = 1,
          .max_inputs = 1,
          .min_outputs = 1,
          .max_outputs = max_outputs,
          .infer = InferPool<kind>,
          .reference = PoolReference<kind>,
          .variants = kPoolVariants<kind>};
}

}  // namespace

std::span<const OpDefinition> PoolOps() {
  static constexpr OpDefinition kOps[] = {
      PoolOp<PoolKind::kAverage>("AveragePool", ""),
      PoolOp<PoolKind::kAverage>("AveragePool", kOwnDomain),
      PoolOp<PoolKind::kAverage>("GlobalAveragePool", ""),
      PoolOp<PoolKind::kAverage>("GlobalAveragePool", kOwnDomain),
      PoolOp<PoolKind::kLp>("GlobalLpPool", ""),
      PoolOp<PoolKind::kLp>("GlobalLpPool", kOwnDomain),
      PoolOp<PoolKind::kMax>("GlobalMaxPool", ""),
      PoolOp<PoolKind::kMax>("GlobalMaxPool", kOwnDomain),
      PoolOp<PoolKind::kLp>("LpPool", ""),
      PoolOp<PoolKind::kLp>("LpPool", kOwnDomain),
      PoolOp<PoolKind::kMax>("MaxPool", "", 2),
      PoolOp<PoolKind::kMax>("MaxPool", kOwnDomain, 2),
  };
  return kOps;
}

}  // namespace stampmill
