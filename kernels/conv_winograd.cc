// With tiles of m = 4 outputs and a = r + 3 inputs, for each transformed axis:
//
//   out[4 t + i] = sum over p of A[i][p] * (G w)[p] * (sum over j of B[p][j] * in[4 t + j])
//
// The matrices follow from a points, the last of them infinity, by interpolation (Toom and Cook):
// the products are those of polynomials evaluated at the points. 0, 1, -1, 1/2 and -2 keep the
// error of a kernel of 3, transformed along both axes, at about twice that of plain summation; a
// kernel of 5 is transformed along one axis only.
//
// In two dimensions the transforms go one axis after the other. Axes that are not transformed stay
// in the window of the contraction.
#include "kernels/conv_winograd.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kernels/contraction.h"
#include "kernels/host_values.h"
#include "kernels/layout.h"
#include "kernels/reference.h"
#include "kernels/stage_builder.h"
#include "kernels/window.h"

namespace stampmill {
namespace {

constexpr int64_t kTile = 4;  // outputs
constexpr int64_t kKernelMin = 3;
constexpr int64_t kKernelMax = 5;

using Matrix = std::vector<std::vector<double>>;

struct Matrices {
  Matrix a;  // [kTile][points]
  Matrix g;  // [points][kernel]
  Matrix b;  // [points][points]
};

// Coefficients, lowest first, of the product of (x - p) over all points but `without`.
std::vector<double> ProductWithout(const std::vector<double>& points, size_t without) {
  std::vector<double> product = {1};
  for (size_t l = 0; l < points.size(); ++l) {
    if (l == without) continue;
    product.insert(product.begin(), 0);
    for (size_t n = 0; n + 1 < product.size(); ++n) product[n] -= points[l] * product[n + 1];
  }
  return product;
}

double Power(double base, size_t exponent) {
  double power = 1;
  for (; exponent > 0; --exponent) power *= base;
  return power;
}

Matrices MakeMatrices(int64_t kernel) {
  const std::vector<double> all = {0, 1, -1, 0.5, -2, -0.5, 2};
  const auto count = static_cast<size_t>(kernel + kTile - 1);
  const std::vector<double> points(all.begin(), all.begin() + static_cast<int64_t>(count) - 1);
  Matrices m;
  m.a.assign(static_cast<size_t>(kTile), std::vector<double>(count, 0));
  m.g.assign(count, std::vector<double>(static_cast<size_t>(kernel), 0));
  m.b.assign(count, std::vector<double>(count, 0));
  for (size_t p = 0; p < count; ++p) {
    const std::vector<double> others = ProductWithout(points, p);
    std::copy(others.begin(), others.end(), m.b[p].begin());
    if (p + 1 == count) {  // infinity: the highest coefficients
      m.a.back()[p] = 1;
      m.g[p].back() = 1;
      break;
    }
    double value = 0;  // of the product of the others at this point
    for (size_t n = 0; n < others.size(); ++n) value += others[n] * Power(points[p], n);
    for (size_t i = 0; i < m.a.size(); ++i) m.a[i][p] = Power(points[p], i);
    for (size_t j = 0; j < m.g[p].size(); ++j) m.g[p][j] = Power(points[p], j) / value;
  }
  return m;
}

struct WinogradPlan {
  ActivationAxes axes;
  std::vector<WindowAxis> window;
  std::vector<bool> transformed;  // by spatial axis
  int64_t inputs = 0, outputs = 0;

  int64_t points(size_t axis) const { return window[axis].kernel + kTile - 1; }
  DimExpr tiles(size_t axis) const { return CeilDiv(window[axis].output, kTile); }
  // What the contraction runs over.
  DimExpr rows(size_t axis) const { return transformed[axis] ? tiles(axis) : window[axis].output; }
};

int64_t AssumedOutput(const WindowAxis& axis) {
  constexpr int64_t kUnknown = 64;
  return axis.output.constant().value_or(kUnknown);
}

// About the multiply-adds of one image: reading weights from memory, writing sums, and the terms of
// the transforms, which are short sums, count for the time that they take.
double CostOf(const WinogradPlan& plan) {
  constexpr double kOfWeight = 8;
  constexpr double kOfSum = 8;
  constexpr double kOfTerm = 1.3;
  double sums = 1, window = 1, points = 1, terms = 0;
  for (size_t i = 0; i < plan.window.size(); ++i) {
    const int64_t extent = AssumedOutput(plan.window[i]);
    if (!plan.transformed[i]) {
      sums *= static_cast<double>(extent);
      window *= static_cast<double>(plan.window[i].kernel);
      continue;
    }
    sums *= static_cast<double>((extent + kTile - 1) / kTile * plan.points(i));
    points *= static_cast<double>(plan.points(i));
    terms += static_cast<double>(plan.points(i));
  }
  const auto inputs = static_cast<double>(plan.inputs), outputs = static_cast<double>(plan.outputs);
  return sums * outputs * (window * inputs + kOfSum) +
         points * window * inputs * outputs * kOfWeight +
         terms * kOfTerm * sums * (inputs + outputs);
}

bool CanTransform(const WindowAxis& axis) {
  return axis.stride == 1 && axis.dilation == 1 && !axis.ceil_mode && axis.kernel >= kKernelMin &&
         axis.kernel <= kKernelMax;
}

// Which axes are transformed: those with which it costs least. None: not at all.
absl::StatusOr<WinogradPlan> PlanWinograd(const LowerContext& context) {
  constexpr double kWorthIt = 0.8;
  WinogradPlan plan;
  const Shape x = context.InputShape(0);
  const std::vector<int64_t> w = ConstantShape(context.InputShape(1));
  plan.axes = {x.size(), true};
  plan.outputs = w[0];
  plan.inputs = w[1];
  ASSIGN_OR_RETURN(plan.window, ReadWindow(context.node(), plan.axes.Space(x),
                                           std::span<const int64_t>(w).subspan(2)));
  const size_t rank = plan.window.size();
  plan.transformed.assign(rank, false);
  WinogradPlan best = plan;
  double least = kWorthIt * CostOf(plan);
  for (size_t choice = 1; choice < size_t{1} << rank; ++choice) {
    bool possible = true;
    int64_t count = 0, longest = 0;
    for (size_t i = 0; i < rank; ++i) {
      plan.transformed[i] = (choice >> i & 1) != 0;
      if (!plan.transformed[i]) continue;
      possible = possible && CanTransform(plan.window[i]);
      longest = std::max(longest, plan.window[i].kernel);
      ++count;
    }
    // Rounding errors multiply.
    if (!possible || count > 2 || (count == 2 && longest > kKernelMin)) continue;
    if (CostOf(plan) >= least) continue;
    least = CostOf(plan);
    best = plan;
  }
  return best;
}

absl::StatusOr<Tensor> MatrixTensor(const Matrix& matrix) {
  std::vector<double> values;
  for (const std::vector<double>& row : matrix) {
    values.insert(values.end(), row.begin(), row.end());
  }
  const std::vector<int64_t> dims = {static_cast<int64_t>(matrix.size()),
                                     static_cast<int64_t>(matrix[0].size())};
  return MakeTensor(DType::kF32, dims, values);
}

// Builds the stages. Between the transforms values are [points of transformed axes..., N, rows or
// places of spatial axes..., C].
class Winograd {
 public:
  Winograd(LowerContext& context, WinogradPlan plan) : context_(context), plan_(std::move(plan)) {}

  absl::Status Lower() {
    value_ = context_.node().inputs[0];
    shape_ = context_.InputShape(0);
    const size_t rank = plan_.window.size();
    for (size_t axis = rank; axis-- > 0;) {
      if (plan_.transformed[axis]) RETURN_IF_ERROR(TransformInput(axis));
    }
    RETURN_IF_ERROR(Contract());
    for (size_t axis = 0; axis < rank; ++axis) {
      if (plan_.transformed[axis]) RETURN_IF_ERROR(TransformSums(axis));
    }
    return absl::OkStatus();
  }

 private:
  size_t SpatialAt(size_t axis) const { return prefix_.size() + 1 + axis; }

  absl::StatusOr<int32_t> AddMatrix(StageOperands& operands, const Matrix& matrix) {
    ASSIGN_OR_RETURN(Tensor tensor, MatrixTensor(matrix));
    const Shape shape(tensor.shape().begin(), tensor.shape().end());
    return operands.Add(context_.NewConstant(std::move(tensor), "winograd"), DType::kF32, shape);
  }

  // [..., places, ..., C] to [..., points, ..., tiles, ..., C], the points behind those of the axes
  // before. Points go round inside tiles: they read the same. A thread that has the first of the
  // leading points finds in its own cache what it wrote, through the contraction and the first
  // transform of the sums.
  absl::Status TransformInput(size_t axis) {
    const WindowAxis& window = plan_.window[axis];
    const int64_t points = plan_.points(axis);
    const size_t at = SpatialAt(axis);
    Nest nest{.kept = shape_, .reduced = {points}};
    nest.kept[at] = plan_.tiles(axis);
    nest.kept.insert(nest.kept.end() - 1, points);
    const size_t rank = nest.kept.size();
    const std::vector<Expr> kept = Coords(0, rank);
    const Expr& point = kept[rank - 2];
    const Expr j = Expr::Coord(static_cast<int32_t>(rank));
    std::vector<Expr> coordinates(kept.begin(), kept.end() - 2);
    coordinates.push_back(kept[rank - 1]);
    std::vector<Expr> written = coordinates;
    const auto behind = static_cast<int64_t>(prefix_.size());
    written.insert(written.begin() + behind, point);
    Expr place = kept[at] * Int(kTile) + j;
    if (!window.pad_begin.IsConstant(0)) place = place - Extent(window.pad_begin);
    coordinates[at] = place;

    StageOperands operands;
    const int32_t x = operands.Add(value_, DType::kF32, shape_);
    ASSIGN_OR_RETURN(const int32_t b, AddMatrix(operands, MakeMatrices(window.kernel).b));
    // The last tile may reach past the end even without pads.
    const Expr loaded = operands.LoadIf(InRange(place, window.input), x, std::move(coordinates),
                                        Expr::Constant(DType::kF32, 0));
    nest.reductions = {SumReduction(loaded * operands.Load(b, {point, j}))};
    nest.result = Expr::Reduced(DType::kF32, 0);
    shape_[at] = plan_.tiles(axis);
    shape_.insert(shape_.begin() + behind, points);
    prefix_.push_back(axis);
    nest.output = {.dtype = DType::kF32, .shape = shape_};
    nest.output_coordinates = std::move(written);
    value_ = context_.NewValue(DType::kF32, shape_, "winograd");
    EmitNest(context_, std::move(operands), std::move(nest), value_);
    return absl::OkStatus();
  }

  // G w along the transformed axes: [points..., outputs, inputs, kernels of the others...].
  absl::StatusOr<Tensor> TransformedWeights(std::vector<int64_t>& dims) const {
    const Tensor& w = *context_.input(1).constant;
    std::vector<double> values = ReadValues<double>(w);
    std::vector<int64_t> extents = w.shape();
    for (size_t axis = 0; axis < plan_.window.size(); ++axis) {
      if (!plan_.transformed[axis]) continue;
      const Matrix g = MakeMatrices(plan_.window[axis].kernel).g;
      const size_t at = 2 + axis;
      int64_t inner = 1;
      for (size_t i = at + 1; i < extents.size(); ++i) inner *= extents[i];
      const auto kernel = static_cast<size_t>(extents[at]);
      const auto step = static_cast<size_t>(inner);
      const size_t outer = values.size() / kernel / step;
      std::vector<double> next(outer * g.size() * step, 0);
      for (size_t o = 0; o < outer; ++o) {
        for (size_t p = 0; p < g.size(); ++p) {
          for (size_t j = 0; j < kernel; ++j) {
            for (size_t i = 0; i < step; ++i) {
              next[(o * g.size() + p) * step + i] += g[p][j] * values[(o * kernel + j) * step + i];
            }
          }
        }
      }
      values = std::move(next);
      extents[at] = static_cast<int64_t>(g.size());
    }
    // The points come first.
    std::vector<size_t> order;
    for (const size_t axis : prefix_) order.push_back(2 + axis);
    order.insert(order.end(), {0, 1});
    for (size_t axis = 0; axis < plan_.window.size(); ++axis) {
      if (!plan_.transformed[axis]) order.push_back(2 + axis);
    }
    const std::vector<int64_t> strides = RowMajor(extents);
    for (const size_t i : order) dims.push_back(extents[i]);
    std::vector<double> ordered;
    ordered.reserve(values.size());
    ForEachIndex(dims, [&](const std::vector<int64_t>& index) {
      int64_t from = 0;
      for (size_t i = 0; i < order.size(); ++i) from += index[i] * strides[order[i]];
      ordered.push_back(values[static_cast<size_t>(from)]);
    });
    return MakeTensor(DType::kF32, dims, ordered);
  }

  absl::Status Contract() {
    using Role = ProductAxis::Role;
    const size_t points = prefix_.size();
    Product product;
    product.batch.assign(shape_.begin(), shape_.begin() + static_cast<int64_t>(points));
    product.m = {shape_[points]};
    for (size_t axis = 0; axis < plan_.window.size(); ++axis) product.m.push_back(plan_.rows(axis));
    product.n = plan_.outputs;
    const size_t first_k = points + product.m.size();

    for (size_t i = 0; i < points; ++i) product.b_axes.push_back({Role::kBatch, i});
    product.b_axes.push_back({Role::kN, 0});
    product.b_axes.push_back({Role::kK, 0});  // the channel's index follows below
    std::vector<Expr> coordinates = Coords(0, first_k);
    Expr within;
    for (size_t axis = 0; axis < plan_.window.size(); ++axis) {
      const WindowAxis& window = plan_.window[axis];
      if (plan_.transformed[axis]) continue;
      Expr tap = Int(0);
      ProductAxis role;
      if (window.kernel > 1) {
        tap = Expr::Coord(static_cast<int32_t>(first_k + product.k.size()));
        role = {Role::kK, product.k.size()};
        product.k.push_back(window.kernel);
      }
      product.b_axes.push_back(role);
      Expr& place = coordinates[SpatialAt(axis)];
      place = window.Place(place, tap);
      within = And(within, window.Within(place));
    }
    product.b_axes[points + 1].index = product.k.size();
    coordinates.push_back(Expr::Coord(static_cast<int32_t>(first_k + product.k.size())));
    product.k.push_back(plan_.inputs);

    const int32_t x = product.operands.Add(value_, DType::kF32, shape_);
    product.a =
        product.operands.LoadIf(within, x, std::move(coordinates), Expr::Constant(DType::kF32, 0));
    std::vector<int64_t> dims;
    ASSIGN_OR_RETURN(product.b_constant, TransformedWeights(dims));
    product.b_operand = {.dtype = DType::kF32, .shape = Shape(dims.begin(), dims.end())};
    product.result = Expr::Accumulator(DType::kF32, 0);
    shape_ = product.batch;
    shape_.insert(shape_.end(), product.m.begin(), product.m.end());
    shape_.push_back(plan_.outputs);
    product.output = {.dtype = DType::kF32, .shape = shape_};
    value_ = context_.NewValue(DType::kF32, shape_, "winograd");
    return EmitProduct(context_, std::move(product), value_);
  }

  // [..., points of the axis, ..., tiles, ..., C] to [..., outputs, ..., C]; the last one adds the
  // bias and writes the output.
  absl::Status TransformSums(size_t axis) {
    const DimExpr& extent = plan_.window[axis].output;
    const int64_t points = plan_.points(axis);
    const size_t removed =
        static_cast<size_t>(std::find(prefix_.begin(), prefix_.end(), axis) - prefix_.begin());
    Nest nest{.kept = shape_, .reduced = {points}};
    nest.kept.erase(nest.kept.begin() + static_cast<int64_t>(removed));
    const size_t at = SpatialAt(axis) - 1;
    const bool whole = extent.is_constant() && *extent.constant() % kTile == 0;
    const Shape before = shape_;
    shape_ = nest.kept;
    shape_[at] = extent;
    if (whole) {  // outputs go round inside tiles: they read the same
      nest.kept.insert(nest.kept.end() - 1, kTile);
    } else {
      nest.kept[at] = extent;
    }
    const size_t rank = nest.kept.size();
    std::vector<Expr> kept = Coords(0, rank);
    Expr i = FloorModulo(kept[at], Int(kTile));
    if (whole) {
      i = kept[rank - 2];
      kept.erase(kept.end() - 2);
    }
    std::vector<Expr> coordinates = kept;
    if (!whole) coordinates[at] = FloorDivide(kept[at], Int(kTile));
    const Expr point = Expr::Coord(static_cast<int32_t>(rank));
    coordinates.insert(coordinates.begin() + static_cast<int64_t>(removed), point);

    StageOperands operands;
    const int32_t sums = operands.Add(value_, DType::kF32, before);
    ASSIGN_OR_RETURN(const int32_t a,
                     AddMatrix(operands, MakeMatrices(plan_.window[axis].kernel).a));
    nest.reductions = {
        SumReduction(operands.Load(sums, std::move(coordinates)) * operands.Load(a, {i, point}))};
    nest.result = Expr::Reduced(DType::kF32, 0);
    prefix_.erase(prefix_.begin() + static_cast<int64_t>(removed));
    const bool is_last = prefix_.empty();
    if (is_last && context_.HasInput(2)) {
      nest.result = nest.result + operands.Load(operands.AddInput(context_, 2), {kept.back()});
    }
    nest.output = {.dtype = DType::kF32, .shape = shape_};
    if (whole) {
      kept[at] = kept[at] * Int(kTile) + i;
      nest.output_coordinates = std::move(kept);
    }
    value_ =
        is_last ? context_.node().outputs[0] : context_.NewValue(DType::kF32, shape_, "winograd");
    EmitNest(context_, std::move(operands), std::move(nest), value_);
    return absl::OkStatus();
  }

  LowerContext& context_;
  const WinogradPlan plan_;
  std::vector<size_t> prefix_;  // the axis of each leading axis of points
  ValueId value_ = kNoValue;
  Shape shape_;
};

}  // namespace

bool WinogradPays(const LowerContext& context) {
  const Node& node = context.node();
  if (node.op_type != "Conv" || !ChannelsLast(node)) return false;
  if (context.input(0).dtype != DType::kF32 || !context.input(1).constant.has_value()) return false;
  // Products of twice the speed are as fast without it, and transformed inputs, sums of several
  // times their size, would lose too much by rounding.
  if (context.options().bf16_products) return false;
  const absl::StatusOr<int64_t> group = node.Int("group", 1);
  if (!group.ok() || *group != 1) return false;
  const absl::StatusOr<WinogradPlan> plan = PlanWinograd(context);
  return plan.ok() && std::find(plan->transformed.begin(), plan->transformed.end(), true) !=
                          plan->transformed.end();
}

absl::Status LowerConvWinograd(LowerContext& context) {
  ASSIGN_OR_RETURN(WinogradPlan plan, PlanWinograd(context));
  return Winograd(context, std::move(plan)).Lower();
}

}  // namespace stampmill
