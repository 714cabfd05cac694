// Operators that cut from, or put a rim around, axes: Slice, Pad, CenterCropPad, ReverseSequence.
// Bounds may be dims of the request; clamps then are minima and maxima.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

constexpr size_t kFirstInput[] = {0};
// Exporters write "to the end" as the largest i32 or i64, or as 10^9.
constexpr int64_t kToTheEnd = 1'000'000'000;
// No axis is longer (Tensor::Allocate).
constexpr int64_t kExtentMax = int64_t{1} << 62;

// One axis of a Slice: out[i] = in[begin + i * step], i < length.
struct Cut {
  DimExpr begin = 0;
  int64_t step = 1;
  DimExpr length = 0;
};

// A bound counted from the front, not yet clamped.
DimExpr FromFront(const DimExpr& bound, const DimExpr& extent) {
  if (bound.is_constant()) return *bound.constant() < 0 ? extent + bound : bound;
  if (bound.LowerBound().value_or(-1) >= 0) return bound;
  return Choose(IsLess(bound, 0), extent + bound, bound);
}

DimExpr Clamp(const DimExpr& bound, const DimExpr& low, const DimExpr& high) {
  if (bound == low || bound == high) return bound;
  return Max(low, Min(bound, high));
}

// Where a cut ends. A bound of 0 or "to the end" leaves no clamp behind.
DimExpr ClampedEnd(const DimExpr& bound, const DimExpr& extent, bool backwards) {
  if (bound.is_constant() && !extent.is_constant()) {
    if (*bound.constant() >= kToTheEnd) return backwards ? extent - 1 : extent;
    if (*bound.constant() <= -kToTheEnd) return backwards ? -1 : 0;
  }
  const DimExpr front = FromFront(bound, extent);
  if (backwards) return Max(-1, Min(front, extent - 1));
  return Clamp(front, 0, extent);
}

// Where it begins. Backwards from before the axis that is its first element, other than in Python.
DimExpr ClampedStart(const DimExpr& bound, const DimExpr& extent, bool backwards) {
  const DimExpr last = extent - 1;
  if (!backwards) return ClampedEnd(bound, extent, false);
  if (bound.is_constant() && *bound.constant() >= kToTheEnd && !extent.is_constant()) return last;
  const DimExpr front = FromFront(bound, extent);
  if (front == last) return last;
  // Of an empty axis there is no first element either.
  return Max(Min(front, last), Min(1, extent) - 1);
}

absl::StatusOr<Cut> CutAxis(InferContext* context, const DimExpr& extent, const DimExpr& start,
                            const DimExpr& end, int64_t step) {
  // Such a value stands for the end of any axis that can be, or for a step past it: of one that
  // varies, it is demanded that it be shorter.
  const auto is_far = [](int64_t value) {
    return (value >= kToTheEnd || value <= -kToTheEnd) && value < kExtentMax && value > -kExtentMax;
  };
  const int64_t step_max = extent.is_constant() ? kExtentMax : kToTheEnd;
  step = std::clamp(step, -step_max, step_max);
  const bool assumes_short = is_far(step) || (start.is_constant() && is_far(*start.constant())) ||
                             (end.is_constant() && is_far(*end.constant()));
  if (context != nullptr && !extent.is_constant() && assumes_short) {
    RETURN_IF_ERROR(context->Check(IsLess(extent, kToTheEnd),
                                   absl::StrCat("axis of ", extent.ToString(), " is too long")));
  }
  Cut cut{.begin = ClampedStart(start, extent, step < 0), .step = step};
  const DimExpr stop = ClampedEnd(end, extent, step < 0);
  if (step > 0) {
    cut.length = Max(0, CeilDiv(stop - cut.begin, step));
  } else {
    cut.length = Max(0, CeilDiv(cut.begin - stop, -step));
  }
  // The first or the last element: of an empty axis there is none, and dims of 1 keep shapes plain.
  const bool first = start.IsConstant(0) && end.IsConstant(1);
  const bool last = start.IsConstant(-1) && end.is_constant() && *end.constant() >= kToTheEnd;
  if (step == 1 && !extent.is_constant() && (first || last)) {
    if (context != nullptr) {
      RETURN_IF_ERROR(context->Check(Min(1, extent), "an element is cut from an empty axis"));
    }
    cut.begin = first ? DimExpr(0) : extent - 1;
    cut.length = 1;
  }
  return cut;
}

// Cuts of all axes. `context` records checks; null in lowerings.
struct SliceInputs {
  std::vector<DimExpr> starts, ends;
  std::optional<std::vector<DimExpr>> axes, steps;
};
absl::StatusOr<std::vector<Cut>> Cuts(const Node& node, InferContext* context, const Shape& shape,
                                      const SliceInputs& inputs) {
  std::vector<Cut> cuts;
  for (const DimExpr& extent : shape) cuts.push_back({.length = extent});
  std::vector<bool> seen(shape.size(), false);
  const size_t count = inputs.starts.size();
  if (inputs.ends.size() != count || (inputs.axes.has_value() && inputs.axes->size() != count) ||
      (inputs.steps.has_value() && inputs.steps->size() != count) ||
      (!inputs.axes.has_value() && count > shape.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": starts, ends, axes and steps must have one length, got ",
                     count, " starts for rank ", shape.size()));
  }
  for (size_t i = 0; i < count; ++i) {
    int64_t axis = static_cast<int64_t>(i);
    int64_t step = 1;
    for (const auto& [list, value] :
         {std::pair(&inputs.axes, &axis), std::pair(&inputs.steps, &step)}) {
      if (!list->has_value()) continue;
      if (!(**list)[i].is_constant()) {
        return absl::UnimplementedError(absl::StrCat(
            node.Describe(), ": axes and steps must be constant, got ", (**list)[i].ToString()));
      }
      *value = *(**list)[i].constant();
    }
    ASSIGN_OR_RETURN(const size_t place, NormalizeAxis(node, axis, shape.size()));
    if (step == 0 || seen[place]) {
      return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": steps: got ", step,
                                                     " for axis ", axis, ", which is named ",
                                                     seen[place] ? "twice" : "once"));
    }
    seen[place] = true;
    ASSIGN_OR_RETURN(cuts[place],
                     CutAxis(context, shape[place], inputs.starts[i], inputs.ends[i], step));
  }
  return cuts;
}

References SliceReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  Dims dims = input.shape();
  Dims strides = RowMajor(dims);
  int64_t base = 0;
  const Dims starts = Int64Values(arguments.inputs[1]);
  const Dims ends = Int64Values(arguments.inputs[2]);
  Dims axes;
  Dims steps(starts.size(), 1);
  for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (arguments.inputs.size() > 3 && arguments.inputs[3].valid()) {
    axes = Int64Values(arguments.inputs[3]);
  }
  if (arguments.inputs.size() > 4 && arguments.inputs[4].valid()) {
    steps = Int64Values(arguments.inputs[4]);
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    return ReferenceError(arguments, "starts, ends, axes and steps must have one length");
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t place, AxisOf(axes[i], input.rank()));
    const size_t axis = static_cast<size_t>(place);
    const int64_t n = input.shape()[axis];
    const int64_t step = steps[i];
    if (step == 0) return ReferenceError(arguments, "steps: must not be 0");
    const int64_t low = step > 0 ? 0 : -1;
    const int64_t high = step > 0 ? n : n - 1;
    const auto clamp = [&](int64_t at, int64_t least) {
      return std::max(least, std::min(at < 0 ? at + n : at, high));
    };
    const int64_t begin = clamp(starts[i], step > 0 ? 0 : std::min<int64_t>(n - 1, 0));
    const int64_t end = clamp(ends[i], low);
    // Bounds are within the axis, so their distance is no overflow; whole steps, rounded up.
    const int64_t distance = step > 0 ? end - begin : begin - end;
    const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : -static_cast<uint64_t>(step);
    const int64_t length =
        distance <= 0 ? 0
                      : static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride) + 1;
    dims[axis] = length;
    base += begin * strides[axis];
    // A step past the axis is taken at most once, from its only element.
    strides[axis] *= std::clamp(step, -n - 1, n + 1);
  }
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(input.dtype(), dims));
  RETURN_IF_ERROR(DispatchSize(input.dtype(), [&]<typename T>() {
    const In<T> x(input);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEach<1>(dims, {strides},
               [&](const std::array<int64_t, 1>& at) { y[next++] = x[base + at[0]]; });
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status InferSlice(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape from, context.InputShape(0));
  SliceInputs inputs;
  ASSIGN_OR_RETURN(inputs.starts, context.RequireSymbolic(1));
  ASSIGN_OR_RETURN(inputs.ends, context.RequireSymbolic(2));
  if (context.HasInput(3)) {
    ASSIGN_OR_RETURN(inputs.axes, context.RequireSymbolic(3));
  }
  if (context.HasInput(4)) {
    ASSIGN_OR_RETURN(inputs.steps, context.RequireSymbolic(4));
  }
  ASSIGN_OR_RETURN(const std::vector<Cut> cuts, Cuts(context.node(), &context, from, inputs));
  Shape shape;
  for (const Cut& cut : cuts) shape.push_back(cut.length);
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  return FollowMoves(context, kFirstInput, SliceReference);
}

absl::Status LowerSlice(LowerContext& context) {
  SliceInputs inputs;
  const Node& node = context.node();
  ASSIGN_OR_RETURN(inputs.starts, KnownContents(node, context.input(1)));
  ASSIGN_OR_RETURN(inputs.ends, KnownContents(node, context.input(2)));
  if (context.HasInput(3)) {
    ASSIGN_OR_RETURN(inputs.axes, KnownContents(node, context.input(3)));
  }
  if (context.HasInput(4)) {
    ASSIGN_OR_RETURN(inputs.steps, KnownContents(node, context.input(4)));
  }
  ASSIGN_OR_RETURN(const std::vector<Cut> cuts, Cuts(node, nullptr, context.InputShape(0), inputs));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  std::vector<Expr> coordinates;
  for (size_t d = 0; d < cuts.size(); ++d) {
    coordinates.push_back(Expr::Coord(static_cast<int32_t>(d)) * Int(cuts[d].step) +
                          Extent(cuts[d].begin));
  }
  const Expr element = operands.Load(input, std::move(coordinates));
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

enum class PadMode : uint8_t { kConstant, kReflect, kEdge, kWrap };

absl::StatusOr<PadMode> PadModeOf(const Node& node) {
  ASSIGN_OR_RETURN(const std::string mode, node.String("mode", "constant"));
  if (mode == "constant") return PadMode::kConstant;
  if (mode == "reflect") return PadMode::kReflect;
  if (mode == "edge") return PadMode::kEdge;
  if (mode == "wrap") return PadMode::kWrap;
  return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": mode: got '", mode,
                                                 "', takes constant, reflect, edge or wrap"));
}

// What is put before and after each axis; negative cuts. What is cut is gone when the rest of the
// axis is repeated.
struct Rim {
  std::vector<DimExpr> before, after;

  DimExpr CutBefore(size_t d) const { return Max(0, 0 - before[d]); }
  // What is left of an axis of `n`.
  DimExpr Left(size_t d, const DimExpr& n) const { return n - CutBefore(d) - Max(0, 0 - after[d]); }
  bool OnlyCuts(size_t d) const {
    const auto cuts = [](const DimExpr& rim) { return rim.is_constant() && *rim.constant() <= 0; };
    return cuts(before[d]) && cuts(after[d]);
  }
};
absl::StatusOr<Rim> RimOf(const Node& node, size_t rank, const std::vector<DimExpr>& pads,
                          const std::optional<std::vector<DimExpr>>& axes) {
  Rim rim{.before = std::vector<DimExpr>(rank, 0), .after = std::vector<DimExpr>(rank, 0)};
  const size_t count = axes.has_value() ? axes->size() : rank;
  if (pads.size() != 2 * count) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": pads: got ", pads.size(), " entries, limit ", 2 * count));
  }
  std::vector<int64_t> places;
  for (size_t i = 0; i < count; ++i) {
    if (axes.has_value() && !(*axes)[i].is_constant()) {
      return absl::UnimplementedError(absl::StrCat(node.Describe(), ": axes must be constant"));
    }
    places.push_back(axes.has_value() ? *(*axes)[i].constant() : static_cast<int64_t>(i));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> normal, NormalizeAxes(node, places, rank));
  for (size_t i = 0; i < count; ++i) {
    rim.before[normal[i]] = pads[i];
    rim.after[normal[i]] = pads[count + i];
  }
  return rim;
}

// The element of an axis of `n` that stands at `at`, which may lie outside; -1: none.
int64_t PaddedFrom(int64_t at, int64_t n, PadMode mode) {
  const auto modulo = [](int64_t a, int64_t m) { return (a % m + m) % m; };
  if (at >= 0 && at < n) return at;
  if (mode == PadMode::kConstant || n == 0) return -1;
  if (mode == PadMode::kEdge) return std::clamp<int64_t>(at, 0, n - 1);
  if (mode == PadMode::kWrap) return modulo(at, n);
  if (n == 1) return 0;
  const int64_t place = modulo(at, 2 * (n - 1));
  return place < n ? place : 2 * (n - 1) - place;
}

References PadReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const PadMode mode, PadModeOf(arguments.node));
  const auto contents = [&](size_t i) {
    std::vector<DimExpr> list;
    for (const int64_t element : Int64Values(arguments.inputs[i])) list.emplace_back(element);
    return list;
  };
  const bool has_axes = arguments.inputs.size() > 3 && arguments.inputs[3].valid();
  std::optional<std::vector<DimExpr>> axes;
  if (has_axes) axes = contents(3);
  ASSIGN_OR_RETURN(const Rim rim, RimOf(arguments.node, input.shape().size(), contents(1), axes));
  const Dims before = ConstantShape(rim.before);
  Dims dims = input.shape(), cut(dims.size()), left(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t after = *rim.after[d].constant();
    // The least number has no negative.
    cut[d] = std::min(std::max<int64_t>(0, -(before[d] + 1)) + (before[d] < 0 ? 1 : 0), dims[d]);
    left[d] = std::max<int64_t>(0, dims[d] - cut[d] + std::clamp<int64_t>(after, -dims[d], 0));
    if (__builtin_add_overflow(dims[d], before[d], &dims[d]) ||
        __builtin_add_overflow(dims[d], after, &dims[d])) {
      return ReferenceError(arguments, "pads: overflow of 64 bits");
    }
    if (mode != PadMode::kConstant && left[d] == 0 && dims[d] > 0) {
      return ReferenceError(arguments, "pads: nothing to repeat: all of the axis is cut");
    }
  }
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(input.dtype(), dims));
  const Dims strides = RowMajor(input.shape());
  const bool has_value = mode == PadMode::kConstant && arguments.inputs.size() > 2 &&
                         arguments.inputs[2].valid() && arguments.inputs[2].element_count() > 0;
  if (has_value && arguments.inputs[2].dtype() != input.dtype()) {
    return ReferenceError(arguments, "constant_value has another type than the data");
  }
  RETURN_IF_ERROR(DispatchSize(input.dtype(), [&]<typename T>() {
    const In<T> x(input);
    const T value = has_value ? In<T>(arguments.inputs[2])[0] : T{0};
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEachIndex(dims, [&](const Dims& index) {
      int64_t from = 0;
      bool inside = true;
      for (size_t d = 0; d < dims.size(); ++d) {
        const int64_t place = PaddedFrom(index[d] - before[d] - cut[d], left[d], mode);
        inside = inside && place >= 0;
        from += (place + cut[d]) * strides[d];
      }
      y[next++] = inside ? x[from] : value;
    });
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status InferPad(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const PadMode mode, PadModeOf(context.node()));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> pads, context.RequireSymbolic(1));
  std::optional<std::vector<DimExpr>> axes;
  if (context.HasInput(3)) {
    ASSIGN_OR_RETURN(axes, context.RequireSymbolic(3));
  }
  ASSIGN_OR_RETURN(const Rim rim, RimOf(context.node(), shape.size(), pads, axes));
  if (context.HasInput(2)) {
    ASSIGN_OR_RETURN(const DType value, context.InputDType(2));
    if (value != dtype) {
      return context.Error(
          absl::StrCat("constant_value is ", Name(value), ", data is ", Name(dtype)));
    }
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool none = rim.before[d].IsConstant(0) && rim.after[d].IsConstant(0);
    if (mode != PadMode::kConstant && !none && !rim.OnlyCuts(d)) {
      RETURN_IF_ERROR(context.Check(Min(1, Max(0, rim.Left(d, shape[d]))),
                                    "nothing to repeat: the axis is empty"));
    }
    shape[d] = shape[d] + rim.before[d] + rim.after[d];
    if (shape[d].LowerBound().value_or(-1) < 0) {
      RETURN_IF_ERROR(context.Check(IsNot(IsLess(shape[d], 0)), "pads cut more than there is"));
    }
  }
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  if (mode != PadMode::kConstant || !context.HasInput(2)) {
    return FollowMoves(context, kFirstInput, PadReference);
  }
  const size_t data[] = {0, 2};
  return FollowMoves(context, data, PadReference);
}

// The coordinate that is read for `at` of an axis of `n`, for the modes that always read.
Expr RimCoordinate(const Expr& at, const DimExpr& n, const DimExpr& before, const DimExpr& after,
                   PadMode mode) {
  const Expr last = Extent(n - 1);
  if (mode == PadMode::kWrap) return FloorModulo(at, Extent(n));
  if (mode == PadMode::kEdge) return Maximum(Int(0), Minimum(at, last));
  // One reflection at each end, where the rim is known to be shorter than the axis.
  const auto short_rim = [&](const DimExpr& rim) {
    return (n - 1 - rim).LowerBound().value_or(-1) >= 0;
  };
  if (short_rim(before) && short_rim(after)) {
    const Expr front = Expr::Unary(ExprOp::kAbs, at);
    return last - Expr::Unary(ExprOp::kAbs, last - front);
  }
  const Expr period = Extent(2 * (n - 1));
  const Expr place = FloorModulo(at, period);
  return Minimum(place, period - place);
}

// A constant's one element in its own type; an invalid Expr when it is not known.
Expr ConstantScalar(const Value& value) {
  if (!value.constant.has_value() || value.constant->element_count() != 1) return Expr();
  if (IsFloat(value.dtype)) return Expr::Constant(value.dtype, value.constant->ValueAsDouble(0));
  return Expr::ConstantInt(value.dtype, value.constant->ValueAsInt64(0));
}

absl::Status LowerPad(LowerContext& context) {
  const Node& node = context.node();
  const Shape& shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const PadMode mode, PadModeOf(node));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> pads, KnownContents(node, context.input(1)));
  std::optional<std::vector<DimExpr>> axes;
  if (context.HasInput(3)) {
    ASSIGN_OR_RETURN(axes, KnownContents(node, context.input(3)));
  }
  ASSIGN_OR_RETURN(const Rim rim, RimOf(node, shape.size(), pads, axes));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  std::vector<Expr> coordinates;
  Expr inside;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Expr at = Expr::Coord(static_cast<int32_t>(d)) - Extent(rim.before[d]);
    const bool none = rim.before[d].IsConstant(0) && rim.after[d].IsConstant(0);
    if (none) {
      coordinates.push_back(at);
    } else if (mode == PadMode::kConstant) {
      inside = And(inside, InRange(at, shape[d]));
      coordinates.push_back(at);
    } else {
      const DimExpr cut = rim.CutBefore(d);
      coordinates.push_back(RimCoordinate(at - Extent(cut), rim.Left(d, shape[d]), rim.before[d],
                                          rim.after[d], mode) +
                            Extent(cut));
    }
  }
  const DType dtype = context.output(0).dtype;
  Expr value = Expr::ConstantInt(dtype, 0);
  if (mode == PadMode::kConstant && context.HasInput(2)) {
    value = ConstantScalar(context.input(2));
    if (!value.valid()) {
      const int32_t operand = operands.AddInput(context, 2);
      value = operands.Load(operand, std::vector<Expr>(context.InputShape(2).size(), Int(0)));
    }
  }
  const Expr element = operands.LoadIf(inside, input, std::move(coordinates), value);
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

// How far the window of an axis of `from` begins after the axis's own begin; negative: before it.
DimExpr CenterShift(const DimExpr& from, const DimExpr& to) {
  return FloorDiv(Max(from - to, 0), 2) - FloorDiv(Max(to - from, 0), 2);
}

// The wanted dims, all axes, and the shift of each.
struct Window {
  Shape dims;
  Shape shift;
};
absl::StatusOr<Window> CenterWindow(const Node& node, const Shape& from,
                                    const std::vector<DimExpr>& wanted) {
  std::vector<int64_t> all;
  for (size_t d = 0; d < from.size(); ++d) all.push_back(static_cast<int64_t>(d));
  ASSIGN_OR_RETURN(const std::vector<int64_t> given, node.Ints("axes", all));
  ASSIGN_OR_RETURN(const std::vector<size_t> axes, NormalizeAxes(node, given, from.size()));
  if (axes.size() != wanted.size()) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": shape: got ", wanted.size(),
                                                   " entries for ", axes.size(), " axes"));
  }
  Window window{.dims = from, .shift = Shape(from.size(), 0)};
  for (size_t i = 0; i < axes.size(); ++i) {
    window.dims[axes[i]] = wanted[i];
    window.shift[axes[i]] = CenterShift(from[axes[i]], wanted[i]);
  }
  return window;
}

References CenterCropPadReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  std::vector<DimExpr> wanted;
  for (const int64_t dim : Int64Values(arguments.inputs[1])) wanted.emplace_back(dim);
  const Shape shape(input.shape().begin(), input.shape().end());
  ASSIGN_OR_RETURN(const Window window, CenterWindow(arguments.node, shape, wanted));
  const Dims dims = ConstantShape(window.dims);
  const Dims shift = ConstantShape(window.shift);
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(input.dtype(), dims));
  const Dims strides = RowMajor(input.shape());
  RETURN_IF_ERROR(DispatchSize(input.dtype(), [&]<typename T>() {
    const In<T> x(input);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEachIndex(dims, [&](const Dims& index) {
      int64_t from = 0;
      bool inside = true;
      for (size_t d = 0; d < dims.size(); ++d) {
        const int64_t at = index[d] + shift[d];
        inside = inside && at >= 0 && at < input.shape()[d];
        from += at * strides[d];
      }
      y[next++] = inside ? x[from] : T{0};
    });
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status InferCenterCropPad(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape from, context.InputShape(0));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> wanted, context.RequireSymbolic(1));
  ASSIGN_OR_RETURN(Window window, CenterWindow(context.node(), from, wanted));
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(window.dims)));
  return FollowMoves(context, kFirstInput, CenterCropPadReference);
}

absl::Status LowerCenterCropPad(LowerContext& context) {
  const Shape& from = context.InputShape(0);
  ASSIGN_OR_RETURN(const std::vector<DimExpr> wanted,
                   KnownContents(context.node(), context.input(1)));
  ASSIGN_OR_RETURN(const Window window, CenterWindow(context.node(), from, wanted));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  std::vector<Expr> coordinates;
  Expr inside;
  for (size_t d = 0; d < from.size(); ++d) {
    coordinates.push_back(Expr::Coord(static_cast<int32_t>(d)) + Extent(window.shift[d]));
    if (window.dims[d] != from[d]) inside = And(inside, InRange(coordinates[d], from[d]));
  }
  const Expr element = operands.LoadIf(inside, input, std::move(coordinates),
                                       Expr::ConstantInt(context.output(0).dtype, 0));
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

// Axes of ReverseSequence: 0 and 1, one each.
struct SequenceAxes {
  size_t batch, time;
};
absl::StatusOr<SequenceAxes> SequenceAxesOf(const Node& node, size_t rank) {
  ASSIGN_OR_RETURN(const int64_t batch, node.Int("batch_axis", 1));
  ASSIGN_OR_RETURN(const int64_t time, node.Int("time_axis", 0));
  if (rank < 2 || batch + time != 1 || batch < 0 || time < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": batch_axis ", batch, " and time_axis ", time,
                     " must be 0 and 1 of at least 2 dims, got rank ", rank));
  }
  return SequenceAxes{static_cast<size_t>(batch), static_cast<size_t>(time)};
}

absl::Status InferReverseSequence(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const SequenceAxes axes, SequenceAxesOf(context.node(), shape.size()));
  ASSIGN_OR_RETURN(const Shape lengths, context.InputShape(1));
  if (lengths.size() != 1) return context.Error("sequence_lens must have one dim");
  RETURN_IF_ERROR(
      RequireEqual(context, lengths[0], shape[axes.batch], "sequence_lens and the batch axis"));
  return context.SetOutput(0, dtype, std::move(shape));
}

References ReverseSequenceReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const SequenceAxes axes, SequenceAxesOf(arguments.node, input.shape().size()));
  const Dims lengths = Int64Values(arguments.inputs[1]);
  const Dims& dims = input.shape();
  if (static_cast<int64_t>(lengths.size()) != dims[axes.batch]) {
    return ReferenceError(arguments, "sequence_lens must have a length for each batch entry");
  }
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(input.dtype(), dims));
  const Dims strides = RowMajor(dims);
  RETURN_IF_ERROR(DispatchSize(input.dtype(), [&]<typename T>() {
    const In<T> x(input);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEachIndex(dims, [&](const Dims& index) {
      Dims from = index;
      const int64_t length =
          std::clamp<int64_t>(lengths[static_cast<size_t>(index[axes.batch])], 0, dims[axes.time]);
      if (index[axes.time] < length) from[axes.time] = length - 1 - index[axes.time];
      y[next++] = x[OffsetOf(from, strides)];
    });
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status LowerReverseSequence(LowerContext& context) {
  const Shape& shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const SequenceAxes axes, SequenceAxesOf(context.node(), shape.size()));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const int32_t lengths = operands.AddInput(context, 1);
  std::vector<Expr> coordinates = Coords(0, shape.size());
  const Expr time = coordinates[axes.time];
  // A length past the axis reads nothing outside of it.
  const Expr length =
      Minimum(Expr::Cast(DType::kI64, operands.Load(lengths, {coordinates[axes.batch]})),
              Extent(shape[axes.time]));
  coordinates[axes.time] = Expr::Select(Less(time, length), length - Int(1) - time, time);
  const Expr element = operands.Load(input, std::move(coordinates));
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

constexpr OpDefinition kOps[] = {
    {.name = "Slice",
     .domain = "",
     .min_inputs = 3,
     .max_inputs = 5,
     .infer = InferSlice,
     .reference = SliceReference,
     .variants = kNest<LowerSlice>},
    {.name = "Pad",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 4,
     .infer = InferPad,
     .reference = PadReference,
     .variants = kNest<LowerPad>},
    {.name = "CenterCropPad",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferCenterCropPad,
     .reference = CenterCropPadReference,
     .variants = kNest<LowerCenterCropPad>},
    {.name = "ReverseSequence",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferReverseSequence,
     .reference = ReverseSequenceReference,
     .variants = kNest<LowerReverseSequence>},
};

}  // namespace

std::span<const OpDefinition> SliceOps() { return kOps; }

}  // namespace stampmill
