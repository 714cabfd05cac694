// Resize: nearest, linear and cubic interpolation along any axes, with all coordinate modes of the
// operator. An output position has a real-valued coordinate in the input, that gives taps and their
// weights along each axis; the interpolation is their product. Few taps are written out in a plain
// map, many (antialiasing, cubic in three dimensions) are a reduction.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

enum class Interpolation { kNearest, kLinear, kCubic };
enum class Coordinate {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfHalfPixelForNn,
  kTfCropAndResize,
};
enum class Rounding { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };
enum class Aspect { kStretch, kNotLarger, kNotSmaller };

struct ResizeAxis {
  DimExpr input;
  DimExpr output;
  std::optional<double> scale;  // not set: output / input
  double roi_begin = 0, roi_end = 1;

  bool identity() const {
    return input == output && scale.value_or(1) == 1 && roi_begin == 0 && roi_end == 1;
  }
};

struct ResizePlan {
  Interpolation interpolation = Interpolation::kNearest;
  Coordinate coordinate = Coordinate::kHalfPixel;
  Rounding rounding = Rounding::kRoundPreferFloor;
  Aspect aspect = Aspect::kStretch;
  bool antialias = false;
  bool exclude_outside = false;
  double cubic = -0.75;
  double extrapolation = 0;
  std::vector<ResizeAxis> axes;  // one an axis of X

  // Reach of the kernel to either side, in input positions at scale 1.
  int64_t support() const { return interpolation == Interpolation::kCubic ? 2 : 1; }
  bool normalised() const { return antialias || exclude_outside; }
};

constexpr std::array<std::pair<absl::string_view, Interpolation>, 3> kInterpolations = {
    {{"nearest", Interpolation::kNearest},
     {"linear", Interpolation::kLinear},
     {"cubic", Interpolation::kCubic}}};
constexpr std::array<std::pair<absl::string_view, Coordinate>, 7> kCoordinates = {
    {{"half_pixel", Coordinate::kHalfPixel},
     {"half_pixel_symmetric", Coordinate::kHalfPixelSymmetric},
     {"pytorch_half_pixel", Coordinate::kPytorchHalfPixel},
     {"align_corners", Coordinate::kAlignCorners},
     {"asymmetric", Coordinate::kAsymmetric},
     {"tf_half_pixel_for_nn", Coordinate::kTfHalfPixelForNn},
     {"tf_crop_and_resize", Coordinate::kTfCropAndResize}}};
constexpr std::array<std::pair<absl::string_view, Rounding>, 4> kRoundings = {
    {{"round_prefer_floor", Rounding::kRoundPreferFloor},
     {"round_prefer_ceil", Rounding::kRoundPreferCeil},
     {"floor", Rounding::kFloor},
     {"ceil", Rounding::kCeil}}};
constexpr std::array<std::pair<absl::string_view, Aspect>, 3> kAspects = {
    {{"stretch", Aspect::kStretch},
     {"not_larger", Aspect::kNotLarger},
     {"not_smaller", Aspect::kNotSmaller}}};

// The attribute's value among the names of `table`; the first one when absent.
template <typename E, size_t N>
absl::StatusOr<E> ReadEnum(const Node& node, absl::string_view attribute,
                           const std::array<std::pair<absl::string_view, E>, N>& table) {
  ASSIGN_OR_RETURN(const std::string text, node.String(attribute, table[0].first));
  for (const auto& [name, value] : table) {
    if (text == name) return value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": ", attribute, ": got '", text, "'"));
}

// What the inputs besides X say. Only one of scales and sizes is not empty.
struct ResizeInputs {
  std::vector<double> roi;
  std::vector<double> scales;
  std::vector<DimExpr> sizes;
};

absl::StatusOr<ResizePlan> ReadAttributes(const Node& node) {
  ResizePlan plan;
  ASSIGN_OR_RETURN(plan.interpolation, ReadEnum(node, "mode", kInterpolations));
  ASSIGN_OR_RETURN(plan.coordinate, ReadEnum(node, "coordinate_transformation_mode", kCoordinates));
  ASSIGN_OR_RETURN(plan.rounding, ReadEnum(node, "nearest_mode", kRoundings));
  ASSIGN_OR_RETURN(plan.aspect, ReadEnum(node, "keep_aspect_ratio_policy", kAspects));
  ASSIGN_OR_RETURN(const int64_t antialias, node.Int("antialias", 0));
  ASSIGN_OR_RETURN(const int64_t exclude, node.Int("exclude_outside", 0));
  ASSIGN_OR_RETURN(plan.cubic, node.Float("cubic_coeff_a", -0.75f));
  ASSIGN_OR_RETURN(plan.extrapolation, node.Float("extrapolation_value", 0));
  const bool nearest = plan.interpolation == Interpolation::kNearest;
  plan.antialias = antialias != 0 && !nearest;
  plan.exclude_outside = exclude != 0 && !nearest;
  return plan;
}

// input * scale, rounded down. A scale is meant as a fraction: 0.7 of 10 is 7, though the float
// nearest to 0.7 is below it.
DimExpr ScaledExtent(const DimExpr& input, double scale) {
  for (int64_t denominator = 1; denominator <= 4096; ++denominator) {
    const double numerator = std::round(scale * static_cast<double>(denominator));
    if (static_cast<float>(numerator / static_cast<double>(denominator)) ==
        static_cast<float>(scale)) {
      return FloorDiv(input * static_cast<int64_t>(numerator), denominator);
    }
  }
  constexpr int64_t kOne = int64_t{1} << 32;
  return FloorDiv(input * static_cast<int64_t>(scale * static_cast<double>(kOne)), kOne);
}

absl::Status SetScales(const Node& node, const std::vector<size_t>& axes,
                       const std::vector<double>& scales, ResizePlan* plan) {
  constexpr double kScaleMax = 1 << 24;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!(scales[i] > 1 / kScaleMax && scales[i] < kScaleMax)) {
      return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": scales: got ", scales[i],
                                                     ", limits ", 1 / kScaleMax, " and ",
                                                     kScaleMax));
    }
    ResizeAxis& axis = plan->axes[axes[i]];
    axis.scale = scales[i];
    axis.output = ScaledExtent(axis.input, scales[i]);
  }
  return absl::OkStatus();
}

absl::Status SetSizes(const Node& node, const std::vector<size_t>& axes,
                      const std::vector<DimExpr>& sizes, ResizePlan* plan) {
  for (size_t i = 0; i < axes.size(); ++i) {
    plan->axes[axes[i]].output = sizes[i];
    if (sizes[i].is_constant() && *sizes[i].constant() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(node.Describe(), ": sizes: got ", sizes[i].ToString()));
    }
  }
  if (plan->aspect == Aspect::kStretch) return absl::OkStatus();
  // One scale for all axes, that of the axis that grows least or most.
  std::optional<double> scale;
  for (size_t i = 0; i < axes.size(); ++i) {
    const DimExpr& input = plan->axes[axes[i]].input;
    if (!input.is_constant() || !sizes[i].is_constant() || *input.constant() == 0) {
      return absl::UnimplementedError(absl::StrCat(
          node.Describe(), ": keep_aspect_ratio_policy with dims that vary or are empty"));
    }
    const double own =
        static_cast<double>(*sizes[i].constant()) / static_cast<double>(*input.constant());
    if (!scale.has_value()) scale = own;
    scale = plan->aspect == Aspect::kNotLarger ? std::min(*scale, own) : std::max(*scale, own);
  }
  for (const size_t i : axes) {
    ResizeAxis& axis = plan->axes[i];
    axis.scale = scale;
    axis.output = static_cast<int64_t>(
        std::floor(*scale * static_cast<double>(*axis.input.constant()) + 0.5));
  }
  return absl::OkStatus();
}

absl::StatusOr<ResizePlan> PlanResize(const Node& node, const Shape& x,
                                      const ResizeInputs& inputs) {
  ASSIGN_OR_RETURN(ResizePlan plan, ReadAttributes(node));
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < x.size(); ++i) {
    numbers.push_back(static_cast<int64_t>(i));
    plan.axes.push_back({.input = x[i], .output = x[i]});
  }
  ASSIGN_OR_RETURN(numbers, node.Ints("axes", numbers));
  ASSIGN_OR_RETURN(const std::vector<size_t> axes, NormalizeAxes(node, numbers, x.size()));
  const size_t given = inputs.scales.size() + inputs.sizes.size();
  const bool both = !inputs.scales.empty() && !inputs.sizes.empty();
  if (both || given != axes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": got ", inputs.scales.size(),
                                                   " scales and ", inputs.sizes.size(),
                                                   " sizes for ", axes.size(), " axes"));
  }
  if (inputs.sizes.empty()) {
    RETURN_IF_ERROR(SetScales(node, axes, inputs.scales, &plan));
  } else {
    RETURN_IF_ERROR(SetSizes(node, axes, inputs.sizes, &plan));
  }
  if (plan.coordinate != Coordinate::kTfCropAndResize) return plan;
  if (inputs.roi.size() != 2 * axes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        node.Describe(), ": roi: got ", inputs.roi.size(), " values, want ", 2 * axes.size()));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    plan.axes[axes[i]].roi_begin = inputs.roi[i];
    plan.axes[axes[i]].roi_end = inputs.roi[axes.size() + i];
  }
  return plan;
}

absl::StatusOr<std::vector<double>> ConstantReals(InferContext& context, size_t i,
                                                  absl::string_view name) {
  if (!context.HasInput(i)) return std::vector<double>();
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(i));
  if (ElementCount(shape).IsConstant(0)) return std::vector<double>();
  const Tensor* constant = context.InputConstant(i);
  if (constant == nullptr) return context.Unsupported(absl::StrCat(name, " that are not constant"));
  return ReadValues<double>(*constant);
}

absl::Status InferResize(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(0));
  ResizeInputs inputs;
  ASSIGN_OR_RETURN(inputs.scales, ConstantReals(context, 2, "scales"));
  if (context.HasInput(3)) {
    ASSIGN_OR_RETURN(inputs.sizes, context.RequireSymbolic(3));
  }
  ASSIGN_OR_RETURN(const std::string mode,
                   context.node().String("coordinate_transformation_mode", ""));
  if (mode == "tf_crop_and_resize") {
    ASSIGN_OR_RETURN(inputs.roi, ConstantReals(context, 1, "regions of interest"));
  }
  ASSIGN_OR_RETURN(const ResizePlan plan, PlanResize(context.node(), x, inputs));
  if (plan.interpolation != Interpolation::kNearest && dtype == DType::kBool) {
    return context.Error("X: bool cannot be interpolated");
  }
  Shape shape;
  for (const ResizeAxis& axis : plan.axes) shape.push_back(axis.output);
  return context.SetOutput(0, dtype, std::move(shape));
}

// Reference: along one axis after the other, taps and weights by the operator's formulas.

double CubicWeight(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

struct FixedAxis {
  double input = 0, output = 0, scale = 1;
  double length = 0;  // scale * input: the output's extent before rounding
};

FixedAxis Fix(const ResizeAxis& axis) {
  FixedAxis fixed{.input = static_cast<double>(*axis.input.constant()),
                  .output = static_cast<double>(*axis.output.constant())};
  fixed.scale = axis.scale.value_or(fixed.output / fixed.input);
  fixed.length = axis.scale.has_value() ? fixed.scale * fixed.input : fixed.output;
  return fixed;
}

double SourceCoordinate(const ResizePlan& plan, const ResizeAxis& axis, double position) {
  const FixedAxis f = Fix(axis);
  switch (plan.coordinate) {
    case Coordinate::kHalfPixel:
      return (position + 0.5) / f.scale - 0.5;
    case Coordinate::kHalfPixelSymmetric:
      return f.input / 2 * (1 - f.output / f.length) + (position + 0.5) / f.scale - 0.5;
    case Coordinate::kPytorchHalfPixel:
      return f.length <= 1 ? 0 : (position + 0.5) / f.scale - 0.5;
    case Coordinate::kAlignCorners:
      return f.length == 1 ? 0 : position * (f.input - 1) / (f.length - 1);
    case Coordinate::kAsymmetric:
      return position / f.scale;
    case Coordinate::kTfHalfPixelForNn:
      return (position + 0.5) / f.scale;
    case Coordinate::kTfCropAndResize:
      break;
  }
  const double extent = (axis.roi_end - axis.roi_begin) * (f.input - 1);
  const double within = f.length == 1 ? extent / 2 : position * extent / (f.length - 1);
  return within + axis.roi_begin * (f.input - 1);
}

double RoundedCoordinate(Rounding rounding, double x) {
  switch (rounding) {
    case Rounding::kRoundPreferFloor:
      return std::ceil(x - 0.5);
    case Rounding::kRoundPreferCeil:
      return std::floor(x + 0.5);
    case Rounding::kFloor:
      return std::floor(x);
    case Rounding::kCeil:
      break;
  }
  return std::ceil(x);
}

struct WeightedTap {
  int64_t place = 0;
  double weight = 1;
};

std::vector<WeightedTap> TapsAt(const ResizePlan& plan, const ResizeAxis& axis, double x) {
  const int64_t last = *axis.input.constant() - 1;
  const auto clamp = [&](double place) {
    return static_cast<int64_t>(std::clamp(place, 0.0, static_cast<double>(last)));
  };
  if (plan.interpolation == Interpolation::kNearest) {
    return {{.place = clamp(RoundedCoordinate(plan.rounding, x))}};
  }
  const double shrink = plan.antialias ? std::min(Fix(axis).scale, 1.0) : 1.0;
  const double reach = std::ceil(static_cast<double>(plan.support()) / shrink);
  std::vector<WeightedTap> taps;
  double total = 0;
  for (double place = std::floor(x) + 1 - reach; place <= std::floor(x) + reach; ++place) {
    const double distance = (place - x) * shrink;
    double weight = plan.interpolation == Interpolation::kCubic
                        ? CubicWeight(distance, plan.cubic)
                        : std::max(0.0, 1 - std::abs(distance));
    if (plan.exclude_outside && (place < 0 || place > static_cast<double>(last))) weight = 0;
    total += weight;
    taps.push_back({clamp(place), weight});
  }
  for (WeightedTap& tap : taps) {
    if (plan.normalised() && total != 0) tap.weight /= total;
  }
  return taps;
}

// Resizes axis `i` of a tensor of `dims`, which become those of the result.
std::vector<double> ResizeAlong(const ResizePlan& plan, size_t i, const std::vector<double>& x,
                                Dims* dims) {
  const ResizeAxis& axis = plan.axes[i];
  const int64_t input = (*dims)[i], output = *axis.output.constant();
  const int64_t inner = RowMajor(*dims)[i];
  const int64_t outer = ProductOf(Dims(dims->begin(), dims->begin() + static_cast<int64_t>(i)));
  std::vector<double> y(static_cast<size_t>(outer * output * inner));
  for (int64_t position = 0; position < output; ++position) {
    const double source = SourceCoordinate(plan, axis, static_cast<double>(position));
    const bool outside = plan.coordinate == Coordinate::kTfCropAndResize &&
                         (source < 0 || source > static_cast<double>(input - 1));
    const std::vector<WeightedTap> taps = TapsAt(plan, axis, source);
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t j = 0; j < inner; ++j) {
        double sum = 0;
        for (const WeightedTap& tap : taps) {
          sum += tap.weight * x[static_cast<size_t>((o * input + tap.place) * inner + j)];
        }
        y[static_cast<size_t>((o * output + position) * inner + j)] =
            outside ? plan.extrapolation : sum;
      }
    }
  }
  (*dims)[i] = output;
  return y;
}

absl::StatusOr<std::vector<Tensor>> ResizeReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const auto has = [&](size_t i) {
    return i < arguments.inputs.size() && arguments.inputs[i].valid();
  };
  ResizeInputs inputs;
  if (has(1)) inputs.roi = ReadValues<double>(arguments.inputs[1]);
  if (has(2)) inputs.scales = ReadValues<double>(arguments.inputs[2]);
  if (has(3)) {
    for (const int64_t size : Int64Values(arguments.inputs[3])) inputs.sizes.push_back(size);
  }
  Dims dims = input.shape();
  ASSIGN_OR_RETURN(const ResizePlan plan,
                   PlanResize(arguments.node, Shape(dims.begin(), dims.end()), inputs));
  std::vector<double> values = ReadValues<double>(input);
  for (size_t i = 0; i < plan.axes.size(); ++i) {
    if (plan.axes[i].identity()) continue;
    if (dims[i] == 0 && !plan.axes[i].output.IsConstant(0)) {
      return ReferenceError(arguments, "an empty axis cannot be made longer");
    }
    values = ResizeAlong(plan, i, values, &dims);
  }
  if (!IsFloat(input.dtype())) {
    for (double& value : values) value = std::nearbyint(value);
  }
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), dims, values));
  return One(std::move(output));
}

// Lowering. `real` is the type in which coordinates and weights are computed.

Expr Real(DType real, double value) { return Expr::Constant(real, value); }
Expr Real(DType real, const DimExpr& dim) { return Expr::Cast(real, Extent(dim)); }

Expr SourceExpr(const ResizePlan& plan, const ResizeAxis& axis, DType real, const Expr& position) {
  const Expr input = Real(real, axis.input), output = Real(real, axis.output);
  const Expr scale = axis.scale.has_value() ? Real(real, *axis.scale) : output / input;
  const Expr length = axis.scale.has_value() ? scale * input : output;
  const Expr one = Real(real, 1), half = Real(real, 0.5);
  const Expr o = Expr::Cast(real, position);
  const Expr centred = (o + half) / scale - half;
  switch (plan.coordinate) {
    case Coordinate::kHalfPixel:
      return centred;
    case Coordinate::kHalfPixelSymmetric:
      return input * half * (one - output / length) + centred;
    case Coordinate::kPytorchHalfPixel:
      return Expr::Select(LessEqual(length, one), Real(real, 0.0), centred);
    case Coordinate::kAlignCorners:
      return Expr::Select(Equal(length, one), Real(real, 0.0), o * (input - one) / (length - one));
    case Coordinate::kAsymmetric:
      return o / scale;
    case Coordinate::kTfHalfPixelForNn:
      return (o + half) / scale;
    case Coordinate::kTfCropAndResize:
      break;
  }
  const Expr extent = Real(real, axis.roi_end - axis.roi_begin) * (input - one);
  return Expr::Select(Equal(length, one), extent * half, o * extent / (length - one)) +
         Real(real, axis.roi_begin) * (input - one);
}

// k where the axis grows k-fold and the nearest input position is simply position / k.
std::optional<int64_t> RepeatFactor(const ResizePlan& plan, const ResizeAxis& axis) {
  if (plan.interpolation != Interpolation::kNearest) return std::nullopt;
  const bool rounds =
      plan.rounding == Rounding::kRoundPreferFloor || plan.rounding == Rounding::kRoundPreferCeil;
  const bool simple =
      (plan.coordinate == Coordinate::kAsymmetric && plan.rounding == Rounding::kFloor) ||
      (plan.coordinate == Coordinate::kHalfPixel && rounds);
  const std::optional<int64_t> factor = FloorDiv(axis.output, axis.input).constant();
  if (!simple || !factor.has_value() || *factor < 1) return std::nullopt;
  const bool exact =
      axis.output == axis.input * *factor &&
      axis.scale.value_or(static_cast<double>(*factor)) == static_cast<double>(*factor);
  return exact ? factor : std::nullopt;
}

// One axis of the output in terms of the loops.
class AxisTaps {
 public:
  AxisTaps(const ResizePlan& plan, const ResizeAxis& axis, DType real, const Expr& position)
      : plan_(plan), axis_(axis), real_(real) {
    if (axis.identity()) {
      fixed_place_ = position;
    } else if (const std::optional<int64_t> factor = RepeatFactor(plan, axis)) {
      fixed_place_ = FloorDivide(position, Int(*factor));
    } else {
      Interpolate(position);
    }
  }

  // How many taps; 1 when there is nothing to weigh.
  const DimExpr& count() const { return count_; }
  // Place in the input of a tap 0..count-1.
  Expr Place(const Expr& tap) const {
    return fixed_place_.valid() ? fixed_place_ : Clamp(RawPlace(tap));
  }
  // Its weight, in `real`; REQUIRES: count is not 1.
  Expr Weight(const Expr& tap) const {
    const Expr raw = RawPlace(tap);
    Expr distance = Expr::Cast(real_, raw) - source_;
    if (shrink_.valid()) distance = distance * shrink_;
    const Expr x = Expr::Unary(ExprOp::kAbs, distance);
    Expr weight = plan_.interpolation == Interpolation::kCubic
                      ? Cubic(x)
                      : Maximum(Real(real_, 0.0), Real(real_, 1) - x);
    if (plan_.exclude_outside) {
      weight = Expr::Select(InRange(raw, axis_.input), weight, Real(real_, 0.0));
    }
    return weight;
  }
  // That the position lies outside of the region to read; invalid when it cannot.
  const Expr& outside() const { return outside_; }

 private:
  void Interpolate(const Expr& position) {
    source_ = SourceExpr(plan_, axis_, real_, position);
    if (plan_.coordinate == Coordinate::kTfCropAndResize) {
      outside_ = Or(Less(source_, Real(real_, 0.0)), Less(Real(real_, axis_.input - 1), source_));
    }
    if (plan_.interpolation == Interpolation::kNearest) {
      fixed_place_ = Clamp(Expr::Cast(DType::kI64, Rounded()));
      return;
    }
    DimExpr reach = plan_.support();
    if (plan_.antialias && axis_.scale.has_value()) {
      const double shrink = std::min(*axis_.scale, 1.0);
      reach = static_cast<int64_t>(std::ceil(static_cast<double>(plan_.support()) / shrink));
      shrink_ = Real(real_, shrink);
    } else if (plan_.antialias) {
      reach = Max(reach, CeilDiv(axis_.input * plan_.support(), axis_.output));
      shrink_ = Minimum(Real(real_, axis_.output) / Real(real_, axis_.input), Real(real_, 1));
    }
    count_ = reach * 2;
    first_ = Expr::Cast(DType::kI64, Expr::Unary(ExprOp::kFloor, source_)) + Int(1) - Extent(reach);
  }

  Expr Rounded() const {
    const Expr half = Real(real_, 0.5);
    switch (plan_.rounding) {
      case Rounding::kRoundPreferFloor:
        return Expr::Unary(ExprOp::kCeil, source_ - half);
      case Rounding::kRoundPreferCeil:
        return Expr::Unary(ExprOp::kFloor, source_ + half);
      case Rounding::kFloor:
        return Expr::Unary(ExprOp::kFloor, source_);
      case Rounding::kCeil:
        break;
    }
    return Expr::Unary(ExprOp::kCeil, source_);
  }

  Expr Cubic(const Expr& x) const {
    const double a = plan_.cubic;
    const auto c = [&](double value) { return Real(real_, value); };
    const Expr near = ((c(a + 2) * x - c(a + 3)) * x) * x + c(1);
    const Expr far = ((c(a) * x - c(5 * a)) * x + c(8 * a)) * x - c(4 * a);
    return Expr::Select(LessEqual(x, c(1)), near, Expr::Select(Less(x, c(2)), far, c(0)));
  }

  Expr RawPlace(const Expr& tap) const { return first_ + tap; }
  Expr Clamp(const Expr& place) const {
    return Maximum(Int(0), Minimum(place, Extent(axis_.input - 1)));
  }

  const ResizePlan& plan_;
  const ResizeAxis& axis_;
  DType real_;
  Expr fixed_place_;  // valid: the one tap
  Expr source_;       // real-valued coordinate in the input
  Expr shrink_;       // factor on distances when antialiasing
  Expr first_;        // place of tap 0, not clamped
  Expr outside_;
  DimExpr count_ = 1;
};

// Interpolations of up to this many taps are written out.
constexpr int64_t kUnrolledTapsMax = 16;

class ResizeLowering {
 public:
  ResizeLowering(LowerContext& context, const ResizePlan& plan)
      : context_(context), plan_(plan), dtype_(context.input(0).dtype) {
    real_ = RealType(dtype_);
    // Where a coordinate is cut to a whole number, a rounding error would move a pixel.
    const DType coordinate = plan.interpolation == Interpolation::kNearest ? DType::kF64 : real_;
    for (size_t i = 0; i < plan.axes.size(); ++i) {
      axes_.emplace_back(plan, plan.axes[i], coordinate, Expr::Coord(static_cast<int32_t>(i)));
      taps_ = taps_ * axes_.back().count();
    }
    input_ = operands_.AddInput(context, 0);
  }

  void Emit() {
    Nest nest;
    for (const ResizeAxis& axis : plan_.axes) nest.kept.push_back(axis.output);
    Expr value;
    if (taps_.IsConstant(1)) {
      std::vector<Expr> places;
      for (const AxisTaps& axis : axes_) places.push_back(axis.Place(Int(0)));
      value = operands_.Load(input_, std::move(places));
    } else {
      const std::optional<int64_t> taps = taps_.constant();
      value = taps.has_value() && *taps <= kUnrolledTapsMax ? Unrolled(0, {}) : Reduced(&nest);
      if (!IsFloat(dtype_)) value = Expr::Unary(ExprOp::kRound, value);
      value = Expr::Cast(dtype_, value);
    }
    for (const AxisTaps& axis : axes_) {
      if (!axis.outside().valid()) continue;
      value = Expr::Select(axis.outside(), Expr::Constant(dtype_, plan_.extrapolation), value);
    }
    nest.output = {.dtype = dtype_, .shape = nest.kept};
    nest.result = value;
    EmitNest(context_, std::move(operands_), std::move(nest), context_.node().outputs[0]);
  }

 private:
  Expr Element(const std::vector<Expr>& places) const {
    return Expr::Cast(real_, operands_.Load(input_, places));
  }

  // The interpolation over axes i.., at `places` along those before.
  Expr Unrolled(size_t i, std::vector<Expr> places) const {
    if (i == axes_.size()) return Element(places);
    const AxisTaps& axis = axes_[i];
    const int64_t count = *axis.count().constant();
    Expr sum, weights;
    for (int64_t tap = 0; tap < count; ++tap) {
      std::vector<Expr> further = places;
      further.push_back(axis.Place(Int(tap)));
      const Expr value = Unrolled(i + 1, std::move(further));
      if (count == 1) return value;
      const Expr weight = axis.Weight(Int(tap));
      sum = sum.valid() ? sum + weight * value : weight * value;
      weights = weights.valid() ? weights + weight : weight;
    }
    return plan_.normalised() ? sum / NotZero(weights) : sum;
  }

  Expr Reduced(Nest* nest) const {
    std::vector<Expr> places;
    Expr weight;
    for (const AxisTaps& axis : axes_) {
      if (axis.count().IsConstant(1)) {
        places.push_back(axis.Place(Int(0)));
        continue;
      }
      const Expr tap = Expr::Coord(static_cast<int32_t>(nest->kept.size() + nest->reduced.size()));
      nest->reduced.push_back(axis.count());
      places.push_back(axis.Place(tap));
      const Expr own = axis.Weight(tap);
      weight = weight.valid() ? weight * own : own;
    }
    nest->reductions = {SumReduction(weight * Element(places))};
    const Expr sum = Expr::Reduced(real_, 0);
    if (!plan_.normalised()) return sum;
    nest->reductions.push_back(SumReduction(weight));
    return sum / NotZero(Expr::Reduced(real_, 1));
  }

  Expr NotZero(const Expr& total) const {
    return Expr::Select(Equal(total, Real(real_, 0.0)), Real(real_, 1), total);
  }

  LowerContext& context_;
  const ResizePlan& plan_;
  DType dtype_;
  DType real_ = DType::kF32;
  std::vector<AxisTaps> axes_;
  DimExpr taps_ = 1;
  StageOperands operands_;
  int32_t input_ = 0;
};

std::vector<double> ConstantReals(const LowerContext& context, size_t i) {
  if (!context.HasInput(i) || !context.input(i).constant.has_value()) return {};
  return ReadValues<double>(*context.input(i).constant);
}

absl::Status LowerResize(LowerContext& context) {
  ResizeInputs inputs{.roi = ConstantReals(context, 1), .scales = ConstantReals(context, 2)};
  if (context.HasInput(3)) {
    ASSIGN_OR_RETURN(inputs.sizes, KnownDims(context.node(), context.input(3)));
  }
  ASSIGN_OR_RETURN(const ResizePlan plan,
                   PlanResize(context.node(), context.InputShape(0), inputs));
  ResizeLowering(context, plan).Emit();
  return absl::OkStatus();
}

constexpr Variant kResizeVariants[] = {{"nest", AlwaysApplies, LowerResize}};

}  // namespace

std::span<const OpDefinition> ResizeOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "Resize",
       .domain = "",
       .min_inputs = 1,
       .max_inputs = 4,
       .infer = InferResize,
       .reference = ResizeReference,
       .variants = kResizeVariants},
  };
  return kOps;
}

}  // namespace stampmill
