// Operators that read between the elements of a map: GridSample, AffineGrid, DeformConv.
//
// A point between elements is a sum over its neighbours on each axis, weights times elements, so
// every output element is one expression. Positions come from the model: a neighbour outside of the
// map is left out (zeros), or an index that is clamped or reflected back into it.
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
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"
#include "kernels/window.h"

namespace stampmill {
namespace {

enum class Between : uint8_t { kNearest, kLinear, kCubic };
enum class Beyond : uint8_t { kZeros, kBorder, kReflection };

struct Sampling {
  Between between = Between::kLinear;
  Beyond beyond = Beyond::kZeros;
  bool align_corners = false;

  // Neighbours on an axis, and the first of them from the element before the point.
  int64_t taps() const {
    return between == Between::kNearest ? 1 : between == Between::kLinear ? 2 : 4;
  }
  int64_t first() const { return between == Between::kCubic ? -1 : 0; }
};

// Neighbours of a point: 4 on each of three axes.
constexpr int64_t kTapsMax = 64;

absl::StatusOr<Sampling> ReadSampling(const Node& node, size_t axes) {
  Sampling sampling;
  ASSIGN_OR_RETURN(const std::string mode, node.String("mode", "linear"));
  ASSIGN_OR_RETURN(const std::string padding, node.String("padding_mode", "zeros"));
  ASSIGN_OR_RETURN(const int64_t align, node.Int("align_corners", 0));
  sampling.align_corners = align != 0;
  if (mode == "nearest") {
    sampling.between = Between::kNearest;
  } else if (mode == "cubic") {
    sampling.between = Between::kCubic;
  } else if (mode != "linear") {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": mode: got '", mode, "', want nearest, linear or cubic"));
  }
  if (padding == "border") {
    sampling.beyond = Beyond::kBorder;
  } else if (padding == "reflection") {
    sampling.beyond = Beyond::kReflection;
  } else if (padding != "zeros") {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": padding_mode: got '",
                                                   padding, "', want zeros, border or reflection"));
  }
  int64_t taps = 1;
  for (size_t axis = 0; axis < axes && taps <= kTapsMax; ++axis) taps *= sampling.taps();
  if (taps > kTapsMax) {
    return absl::UnimplementedError(
        absl::StrCat(node.Describe(), ": mode ", mode, " over ", axes, " axes is not supported"));
  }
  return sampling;
}

absl::Status InferGridSample(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const DType grid_type, context.InputDType(1));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape grid, context.InputShape(1));
  if (!IsFloat(grid_type)) return context.Error("grid must be floating-point");
  if (!IsFloat(dtype)) {
    return context.Unsupported(absl::StrCat("X of type ", Name(dtype), ": must be floating-point"));
  }
  if (x.size() < 3 || grid.size() != x.size()) {
    return context.Error(absl::StrCat("X and grid: got ranks ", x.size(), " and ", grid.size(),
                                      ", want the same, 3 or more"));
  }
  const size_t axes = x.size() - 2;
  RETURN_IF_ERROR(ReadSampling(context.node(), axes).status());
  RETURN_IF_ERROR(RequireEqual(context, x[0], grid[0], "batch of X and grid"));
  RETURN_IF_ERROR(RequireEqual(context, grid.back(), static_cast<int64_t>(axes),
                               "coordinates of a point of grid"));
  for (size_t i = 2; i < x.size(); ++i) {
    RETURN_IF_ERROR(context.Check(IsLess(0, x[i]), absl::StrCat("X: dim ", i, " is empty")));
  }
  Shape y = {x[0], x[1]};
  y.insert(y.end(), grid.begin() + 1, grid.end() - 1);
  return context.SetOutput(0, dtype, std::move(y));
}

// The reference, point by point.

// A place beyond [low, high] mirrored at the bounds until it lies between them.
double Mirrored(double place, double low, double high) {
  const double range = high - low;
  if (!(range > 0)) return low;
  const double turn = place - low - 2 * range * std::floor((place - low) / (2 * range));
  return turn <= range ? low + turn : low + 2 * range - turn;
}

double CubicWeight(double distance) {
  constexpr double kA = -0.75;
  const double d = std::fabs(distance);
  if (d <= 1) return ((kA + 2) * d - (kA + 3)) * d * d + 1;
  return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA;
}

struct Neighbour {
  int64_t place;  // -1: not there
  double weight;
};

std::vector<Neighbour> NeighboursOf(double point, int64_t extent, const Sampling& s) {
  const double size = static_cast<double>(extent);
  const double low = s.align_corners ? 0 : -0.5;
  const double high = s.align_corners ? size - 1 : size - 0.5;
  double at = s.align_corners ? (point + 1) / 2 * (size - 1) : ((point + 1) * size - 1) / 2;
  if (s.between == Between::kNearest) at = std::nearbyint(at);
  if (at < low || at > high) {
    if (s.beyond == Beyond::kBorder) at = std::clamp(at, 0.0, size - 1);
    if (s.beyond == Beyond::kReflection) at = Mirrored(at, low, high);
  }
  std::vector<Neighbour> neighbours;
  const double before = std::floor(at);
  for (int64_t tap = 0; tap < s.taps(); ++tap) {
    const double offset = static_cast<double>(s.first() + tap);
    double place = before + offset;
    const double distance = at - place;
    double weight = 1;
    if (s.between == Between::kLinear) weight = 1 - std::fabs(distance);
    if (s.between == Between::kCubic) weight = CubicWeight(distance);
    if (s.beyond == Beyond::kBorder) place = std::clamp(place, 0.0, size - 1);
    if (s.beyond == Beyond::kReflection) place = Mirrored(place, low, high);
    const bool within = place >= 0 && place < size;
    neighbours.push_back({within ? static_cast<int64_t>(place) : -1, weight});
  }
  return neighbours;
}

// The weighted sum over all combinations of neighbours.
double SampleAt(const std::vector<double>& x, int64_t first, const Dims& dims,
                const std::vector<std::vector<Neighbour>>& neighbours) {
  double sum = 0;
  Dims taps;
  for (const std::vector<Neighbour>& axis : neighbours) {
    taps.push_back(static_cast<int64_t>(axis.size()));
  }
  ForEachIndex(taps, [&](const Dims& tap) {
    double weight = 1;
    int64_t place = 0;
    bool within = true;
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      const Neighbour& n = neighbours[axis][static_cast<size_t>(tap[axis])];
      weight *= n.weight;
      within = within && n.place >= 0;
      place = place * dims[axis] + n.place;
    }
    sum += weight * (within ? x[static_cast<size_t>(first + place)] : 0);
  });
  return sum;
}

References GridSampleReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const Tensor& grid = arguments.inputs[1];
  const size_t axes = input.shape().size() - 2;
  ASSIGN_OR_RETURN(const Sampling sampling, ReadSampling(arguments.node, axes));
  const Dims space(input.shape().begin() + 2, input.shape().end());
  Dims out = {input.shape()[0], input.shape()[1]};
  out.insert(out.end(), grid.shape().begin() + 1, grid.shape().end() - 1);
  const std::vector<double> x = ReadValues<double>(input);
  const std::vector<double> points = ReadValues<double>(grid);
  const int64_t per_image = ProductOf(out) == 0 ? 0 : ProductOf(out) / out[0] / out[1];
  std::vector<double> y;
  for (int64_t plane = 0; plane < out[0] * out[1]; ++plane) {
    for (int64_t i = 0; i < per_image; ++i) {
      const int64_t point = plane / out[1] * per_image + i;
      std::vector<std::vector<Neighbour>> neighbours;
      for (size_t axis = 0; axis < axes; ++axis) {
        // The last axis of the map comes first.
        const size_t place = static_cast<size_t>(point) * axes + axes - 1 - axis;
        neighbours.push_back(NeighboursOf(points[place], space[axis], sampling));
      }
      y.push_back(SampleAt(x, plane * ProductOf(space), space, neighbours));
    }
  }
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), out, y));
  return One(std::move(output));
}

// The lowering.

// A neighbour on an axis: its index, its weight and whether it is there (invalid: always).
struct Tap {
  Expr place, weight, within;
};

Expr Real(DType dtype, double value) { return Expr::Constant(dtype, value); }

// An index beyond [0, extent) mirrored at the first and last element, or at their outer edges.
Expr MirroredIndex(const Expr& index, const DimExpr& extent, bool align_corners) {
  const Expr turn = Extent(align_corners ? 2 * (extent - 1) : 2 * extent);
  const Expr place = FloorModulo(index, turn);
  const Expr last = align_corners ? Int(0) : Int(1);
  return Expr::Select(Less(place, Extent(extent)), place, turn - last - place);
}

Expr MirroredPlace(const Expr& at, const Expr& low, const Expr& high) {
  const DType dtype = at.dtype();
  const Expr range = high - low, zero = Real(dtype, 0), two = Real(dtype, 2);
  const Expr turn = FloorModulo(at - low, two * range);
  const Expr place = Expr::Select(LessEqual(turn, range), low + turn, low + two * range - turn);
  return Expr::Select(Less(zero, range), place, low);
}

Expr CubicWeightExpr(const Expr& distance, bool is_near) {
  const DType dtype = distance.dtype();
  constexpr double kA = -0.75;
  const Expr d = Expr::Unary(ExprOp::kAbs, distance);
  if (is_near) {
    return (Real(dtype, kA + 2) * d - Real(dtype, kA + 3)) * d * d + Real(dtype, 1);
  }
  return ((Real(dtype, kA) * d - Real(dtype, 5 * kA)) * d + Real(dtype, 8 * kA)) * d -
         Real(dtype, 4 * kA);
}

// The neighbours of `at`, a place in elements.
std::vector<Tap> TapsAround(const Expr& at, const DimExpr& extent, const Sampling& s) {
  const DType dtype = at.dtype();
  const Expr before = Expr::Unary(ExprOp::kFloor, at);
  const Expr first = Expr::Cast(DType::kI64, before);
  std::vector<Tap> taps;
  for (int64_t i = 0; i < s.taps(); ++i) {
    const int64_t offset = s.first() + i;
    Tap tap{.place = first + Int(offset), .weight = Real(dtype, 1)};
    const Expr distance = at - before - Real(dtype, static_cast<double>(offset));
    if (s.between == Between::kLinear) {
      tap.weight = Real(dtype, 1) - Expr::Unary(ExprOp::kAbs, distance);
    }
    if (s.between == Between::kCubic) {
      tap.weight = CubicWeightExpr(distance, offset == 0 || offset == 1);
    }
    switch (s.beyond) {
      case Beyond::kZeros:
        tap.within = InRange(tap.place, extent);
        break;
      case Beyond::kBorder:
        tap.place = Maximum(Int(0), Minimum(tap.place, Extent(extent - 1)));
        break;
      case Beyond::kReflection:
        tap.place = MirroredIndex(tap.place, extent, s.align_corners);
        break;
    }
    taps.push_back(std::move(tap));
  }
  return taps;
}

// The place in elements that a point in [-1, 1] stands for.
Expr PlaceOf(const Expr& point, const DimExpr& extent, const Sampling& s) {
  const DType dtype = point.dtype();
  const Expr size = Expr::Cast(dtype, Extent(extent));
  const Expr one = Real(dtype, 1), half = Real(dtype, 0.5);
  const Expr last = size - one;
  const Expr low = s.align_corners ? Real(dtype, 0) : Real(dtype, -0.5);
  const Expr high = s.align_corners ? last : size - half;
  Expr at = s.align_corners ? (point + one) * half * last : ((point + one) * size - one) * half;
  if (s.between == Between::kNearest) at = Expr::Unary(ExprOp::kRound, at);
  const Expr beyond = Or(Less(at, low), Less(high, at));
  if (s.beyond == Beyond::kBorder) {
    at = Expr::Select(beyond, Maximum(Real(dtype, 0), Minimum(at, last)), at);
  }
  if (s.beyond == Beyond::kReflection) {
    at = Expr::Select(beyond, MirroredPlace(at, low, high), at);
  }
  return at;
}

// The weighted sum over the neighbours on `axes`, of which those before `axis` are in `coords`.
Expr SumOfTaps(const StageOperands& operands, int32_t input, DType compute,
               const std::vector<std::vector<Tap>>& axes, std::vector<Expr>& coords,
               const Expr& within, size_t axis) {
  if (axis == axes.size()) {
    const DType dtype = operands.operand(input).dtype;
    return Expr::Cast(compute, operands.LoadIf(within, input, coords, Real(dtype, 0)));
  }
  Expr sum;
  for (const Tap& tap : axes[axis]) {
    coords.push_back(tap.place);
    const Expr value =
        SumOfTaps(operands, input, compute, axes, coords, And(tap.within, within), axis + 1);
    coords.pop_back();
    const Expr term = axes[axis].size() == 1 ? value : tap.weight * value;
    sum = sum.valid() ? sum + term : term;
  }
  return sum;
}

absl::Status LowerGridSample(LowerContext& context) {
  const Shape& shape = context.InputShape(0);
  const size_t axes = shape.size() - 2;
  ASSIGN_OR_RETURN(const Sampling sampling, ReadSampling(context.node(), axes));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const int32_t grid = operands.AddInput(context, 1);
  // Positions are computed in at least f32, and in f64 if either side has it.
  const bool wide = context.input(0).dtype == DType::kF64 || context.input(1).dtype == DType::kF64;
  const DType compute = wide ? DType::kF64 : DType::kF32;
  std::vector<std::vector<Tap>> taps;
  for (size_t axis = 0; axis < axes; ++axis) {
    std::vector<Expr> from = {Expr::Coord(0)};
    const std::vector<Expr> space = Coords(2, axes);
    from.insert(from.end(), space.begin(), space.end());
    from.push_back(Int(static_cast<int64_t>(axes - 1 - axis)));
    const Expr point = Expr::Cast(compute, operands.Load(grid, std::move(from)));
    const DimExpr& extent = shape[2 + axis];
    taps.push_back(TapsAround(PlaceOf(point, extent, sampling), extent, sampling));
  }
  std::vector<Expr> coords = Coords(0, 2);
  const Expr value = SumOfTaps(operands, input, compute, taps, coords, Expr(), 0);
  EmitMap(context, std::move(operands), value);
  return absl::OkStatus();
}

// AffineGrid: theta applied to the centres (or corners) of the elements of a map over [-1, 1].

absl::Status InferAffineGrid(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape theta, context.InputShape(0));
  if (!IsFloat(dtype)) return context.Error("theta must be floating-point");
  ASSIGN_OR_RETURN(const std::vector<DimExpr> size, context.RequireSymbolic(1));
  if (size.size() != 4 && size.size() != 5) {
    return context.Error(absl::StrCat("size: got ", size.size(), " values, want 4 or 5"));
  }
  const int64_t axes = static_cast<int64_t>(size.size()) - 2;
  if (theta.size() != 3) {
    return context.Error(absl::StrCat("theta: got rank ", theta.size(), ", want 3"));
  }
  RETURN_IF_ERROR(RequireEqual(context, theta[0], size[0], "batch of theta and size"));
  RETURN_IF_ERROR(RequireEqual(context, theta[1], axes, "theta: dim 1"));
  RETURN_IF_ERROR(RequireEqual(context, theta[2], axes + 1, "theta: dim 2"));
  RETURN_IF_ERROR(context.node().Int("align_corners", 0).status());
  Shape grid = {size[0]};
  for (size_t i = 2; i < size.size(); ++i) {
    RETURN_IF_ERROR(context.Check(IsNot(IsLess(size[i], 0)),
                                  absl::StrCat("size: element ", i, " is negative")));
    grid.push_back(size[i]);
  }
  grid.push_back(axes);
  return context.SetOutput(0, dtype, std::move(grid));
}

References AffineGridReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t align, arguments.node.Int("align_corners", 0));
  const std::vector<double> theta = ReadValues<double>(arguments.inputs[0]);
  const Dims size = Int64Values(arguments.inputs[1]);
  const Dims space(size.begin() + 2, size.end());
  const size_t axes = space.size();
  Dims shape = {size[0]};
  shape.insert(shape.end(), space.begin(), space.end());
  std::vector<double> y;
  ForEachIndex(shape, [&](const Dims& at) {
    for (size_t row = 0; row < axes; ++row) {
      const double* t = theta.data() + (static_cast<size_t>(at[0]) * axes + row) * (axes + 1);
      double sum = t[axes];
      for (size_t axis = 0; axis < axes; ++axis) {
        const double extent = static_cast<double>(space[axis]);
        const double i = static_cast<double>(at[1 + axis]);
        const double place =
            align != 0 ? -1 + 2 * i / std::max(extent - 1, 1.0) : (2 * i + 1) / extent - 1;
        sum += t[axes - 1 - axis] * place;
      }
      y.push_back(sum);
    }
  });
  shape.push_back(static_cast<int64_t>(axes));
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(arguments.inputs[0].dtype(), shape, y));
  return One(std::move(output));
}

absl::Status LowerAffineGrid(LowerContext& context) {
  ASSIGN_OR_RETURN(const int64_t align, context.node().Int("align_corners", 0));
  const Shape& shape = *context.output(0).shape;
  const size_t axes = shape.size() - 2;
  StageOperands operands;
  const int32_t theta = operands.AddInput(context, 0);
  const DType compute = ComputeType(context.input(0).dtype);
  const Expr one = Real(compute, 1), two = Real(compute, 2);
  const Expr row = Expr::Coord(static_cast<int32_t>(axes + 1));
  const auto factor = [&](size_t column) {
    return Expr::Cast(
        compute, operands.Load(theta, {Expr::Coord(0), row, Int(static_cast<int64_t>(column))}));
  };
  Expr sum = factor(axes);
  for (size_t axis = 0; axis < axes; ++axis) {
    const DimExpr& extent = shape[1 + axis];
    const Expr i = Expr::Cast(compute, Expr::Coord(static_cast<int32_t>(1 + axis)));
    const Expr size = Expr::Cast(compute, Extent(align != 0 ? Max(extent - 1, 1) : extent));
    const Expr place = align != 0 ? two * i / size - one : (two * i + one) / size - one;
    sum = sum + factor(axes - 1 - axis) * place;
  }
  EmitMap(context, std::move(operands), sum);
  return absl::OkStatus();
}

// DeformConv: a convolution whose taps are moved by offsets and weighted by a mask.

enum : size_t { kX, kW, kOffset, kBias, kMask };

struct DeformAttributes {
  int64_t group = 1, offset_group = 1;
  std::vector<WindowAxis> window;
};

absl::StatusOr<DeformAttributes> ReadDeform(const Node& node, const Shape& x, const Shape& w) {
  DeformAttributes deform;
  ASSIGN_OR_RETURN(deform.group, node.Int("group", 1));
  ASSIGN_OR_RETURN(deform.offset_group, node.Int("offset_group", 1));
  if (deform.group < 1 || deform.offset_group < 1) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": group ", deform.group,
                                                   " and offset_group ", deform.offset_group,
                                                   " must be 1 or more"));
  }
  if (!w[2].is_constant() || !w[3].is_constant()) {
    return absl::UnimplementedError(
        absl::StrCat(node.Describe(), ": W: the kernel's shape must be fixed"));
  }
  const int64_t kernel[] = {*w[2].constant(), *w[3].constant()};
  ASSIGN_OR_RETURN(deform.window, ReadWindow(node, std::span(x).subspan(2), kernel));
  return deform;
}

absl::Status InferDeformConv(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kX));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(kX));
  ASSIGN_OR_RETURN(const Shape w, context.InputShape(kW));
  if (!IsFloat(dtype)) return context.Error("X must be floating-point");
  if (x.size() != 4 || w.size() != 4) {
    return context.Unsupported(
        absl::StrCat("X and W: got ranks ", x.size(), " and ", w.size(), ", supported is 4"));
  }
  ASSIGN_OR_RETURN(const DeformAttributes deform, ReadDeform(context.node(), x, w));
  RETURN_IF_ERROR(CheckWindow(context, deform.window));
  RETURN_IF_ERROR(RequireEqual(context, x[1], w[1] * deform.group, "channels of X and W"));
  RETURN_IF_ERROR(RequireEqual(context, Mod(w[0], deform.group), 0, "outputs of W modulo group"));
  RETURN_IF_ERROR(
      RequireEqual(context, Mod(x[1], deform.offset_group), 0, "channels modulo offset_group"));
  const Shape space = WindowOutput(deform.window);
  const DimExpr taps = deform.offset_group * w[2] * w[3];
  const std::pair<size_t, Shape> rest[] = {{kW, w},
                                           {kOffset, {x[0], 2 * taps, space[0], space[1]}},
                                           {kBias, {w[0]}},
                                           {kMask, {x[0], taps, space[0], space[1]}}};
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
  return context.SetOutput(0, dtype, {x[0], w[0], space[0], space[1]});
}

References DeformConvReference(const ReferenceArguments& arguments) {
  const auto shape_of = [&](size_t i) {
    const Dims& dims = arguments.inputs[i].shape();
    return Shape(dims.begin(), dims.end());
  };
  ASSIGN_OR_RETURN(const DeformAttributes deform,
                   ReadDeform(arguments.node, shape_of(kX), shape_of(kW)));
  const Dims& xs = arguments.inputs[kX].shape();
  const Dims& ws = arguments.inputs[kW].shape();
  const Dims out = ConstantShape(WindowOutput(deform.window));
  const auto has = [&](size_t i) {
    return i < arguments.inputs.size() && arguments.inputs[i].valid();
  };
  const std::vector<double> x = ReadValues<double>(arguments.inputs[kX]);
  const std::vector<double> w = ReadValues<double>(arguments.inputs[kW]);
  const std::vector<double> offset = ReadValues<double>(arguments.inputs[kOffset]);
  const std::vector<double> mask =
      has(kMask) ? ReadValues<double>(arguments.inputs[kMask]) : std::vector<double>();
  const std::vector<double> bias =
      has(kBias) ? ReadValues<double>(arguments.inputs[kBias]) : std::vector<double>();
  const Dims space = {xs[2], xs[3]};
  std::vector<double> y;
  ForEachIndex({xs[0], ws[0], out[0], out[1]}, [&](const Dims& at) {
    double sum = bias.empty() ? 0 : bias[static_cast<size_t>(at[1])];
    const int64_t first = at[1] / (ws[0] / deform.group) * ws[1];
    ForEachIndex({ws[1], ws[2], ws[3]}, [&](const Dims& tap) {
      const int64_t channel = first + tap[0];
      const int64_t set = channel / (xs[1] / deform.offset_group);
      const int64_t place = ((at[0] * deform.offset_group + set) * ws[2] + tap[1]) * ws[3] + tap[2];
      std::vector<std::vector<Neighbour>> neighbours;
      for (size_t axis = 0; axis < 2; ++axis) {
        const WindowAxis& a = deform.window[axis];
        const double moved =
            static_cast<double>(at[2 + axis] * a.stride + tap[1 + axis] * a.dilation -
                                *a.pad_begin.constant()) +
            offset[static_cast<size_t>(
                ((place * 2 + static_cast<int64_t>(axis)) * out[0] + at[2]) * out[1] + at[3])];
        const double before = std::floor(moved);
        std::vector<Neighbour> pair;
        for (const double low : {before, before + 1}) {
          const bool within = low >= 0 && low < static_cast<double>(space[axis]);
          pair.push_back({within ? static_cast<int64_t>(low) : -1, 1 - std::fabs(moved - low)});
        }
        neighbours.push_back(std::move(pair));
      }
      const double factor =
          mask.empty() ? 1 : mask[static_cast<size_t>((place * out[0] + at[2]) * out[1] + at[3])];
      const size_t weight =
          static_cast<size_t>(((at[1] * ws[1] + tap[0]) * ws[2] + tap[1]) * ws[3] + tap[2]);
      sum += w[weight] * factor *
             SampleAt(x, (at[0] * xs[1] + channel) * xs[2] * xs[3], space, neighbours);
    });
    y.push_back(sum);
  });
  ASSIGN_OR_RETURN(Tensor output,
                   MakeTensor(arguments.inputs[kX].dtype(), {xs[0], ws[0], out[0], out[1]}, y));
  return One(std::move(output));
}

absl::Status LowerDeformConv(LowerContext& context) {
  const Shape& x = context.InputShape(kX);
  const Shape& w = context.InputShape(kW);
  ASSIGN_OR_RETURN(const DeformAttributes deform, ReadDeform(context.node(), x, w));
  const DType dtype = context.input(kX).dtype;
  const DType compute = ComputeType(dtype);
  const Shape& out = *context.output(0).shape;
  StageOperands operands;
  const std::vector<Expr> c = Coords(0, 4);    // batch, output channel, place
  const std::vector<Expr> tap = Coords(4, 3);  // channel in the group, place in the kernel
  Nest nest{.kept = out, .reduced = {w[1], w[2], w[3]}};
  const Expr group = FloorDivide(c[1], Extent(FloorDiv(w[0], deform.group)));
  const Expr channel = group * Extent(w[1]) + tap[0];
  const Expr set = FloorDivide(channel, Extent(FloorDiv(x[1], deform.offset_group)));
  const Expr place = (set * Extent(w[2]) + tap[1]) * Extent(w[3]) + tap[2];
  const int32_t offset = operands.AddInput(context, kOffset);
  std::vector<std::vector<Tap>> taps;
  for (size_t axis = 0; axis < 2; ++axis) {
    const Expr start = deform.window[axis].Place(c[2 + axis], tap[1 + axis]);
    const Expr moved =
        operands.Load(offset, {c[0], place * Int(2) + Int(static_cast<int64_t>(axis)), c[2], c[3]});
    const Expr at = Expr::Cast(compute, start) + Expr::Cast(compute, moved);
    taps.push_back(TapsAround(at, x[2 + axis], Sampling()));
  }
  const int32_t input = operands.AddInput(context, kX);
  std::vector<Expr> coords = {c[0], channel};
  Expr value = SumOfTaps(operands, input, compute, taps, coords, Expr(), 0);
  const Expr weight = operands.Load(operands.AddInput(context, kW), {c[1], tap[0], tap[1], tap[2]});
  value = value * Expr::Cast(compute, weight);
  if (context.HasInput(kMask)) {
    const int32_t mask = operands.AddInput(context, kMask);
    value = value * Expr::Cast(compute, operands.Load(mask, {c[0], place, c[2], c[3]}));
  }
  nest.reductions = {SumReduction(value)};
  Expr result = Expr::Reduced(compute, 0);
  if (context.HasInput(kBias)) {
    const int32_t bias = operands.AddInput(context, kBias);
    result = result + Expr::Cast(compute, operands.Load(bias, {c[1]}));
  }
  nest.result = Expr::Cast(dtype, result);
  nest.output = {.dtype = dtype, .shape = out};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

}  // namespace

std::span<const OpDefinition> GridSampleOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "AffineGrid",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = InferAffineGrid,
       .reference = AffineGridReference,
       .variants = kNest<LowerAffineGrid>},
      {.name = "DeformConv",
       .domain = "",
       .min_inputs = 3,
       .max_inputs = 5,
       .infer = InferDeformConv,
       .reference = DeformConvReference,
       .variants = kNest<LowerDeformConv>},
      {.name = "GridSample",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = InferGridSample,
       .reference = GridSampleReference,
       .variants = kNest<LowerGridSample>},
  };
  return kOps;
}

}  // namespace stampmill
