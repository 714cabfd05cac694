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
//
// Bytes, of a kernel of 3, take the points 0, 1, -1, 2 and -2 and stay integers. B has no fractions
// then; those of G move to A, and A is taken 24 times, so that it has none either. Transformed
// inputs and weights fit in 16 bits. Sums wrap, and are divided by 24 for each axis in the end,
// exactly: by 3 as the product with its inverse modulo 2^32, by 8 as a shift. That loses three bits
// at the top for each axis, so the weights have to bound the wanted sums to what is left.
#include "kernels/conv_winograd.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
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
// A byte less a zero point, or twice that of a weight.
constexpr int64_t kByteRange = 255;

using Matrix = std::vector<std::vector<double>>;

struct Matrices {
  Matrix a;             // [kTile][points]
  Matrix g;             // [points][kernel]
  Matrix b;             // [points][points]
  int64_t divisor = 1;  // of sums
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

// Each row of g is multiplied by what makes it whole, and its column of a divided by it; so that
// that is whole as well, a is multiplied by a common divisor.
void MakeIntegral(const std::vector<double>& values, Matrices& m) {
  for (const double value : values) {
    m.divisor = std::lcm(m.divisor, static_cast<int64_t>(std::abs(value)));
  }
  for (size_t p = 0; p < values.size(); ++p) {
    for (double& term : m.g[p]) term = std::round(term * values[p]);
    for (std::vector<double>& row : m.a) {
      row[p] = std::round(row[p] * static_cast<double>(m.divisor) / values[p]);
    }
  }
}

Matrices MakeMatrices(int64_t kernel, bool integral) {
  const std::vector<double> real = {0, 1, -1, 0.5, -2, -0.5, 2};
  const std::vector<double> whole = {0, 1, -1, 2, -2};
  const std::vector<double>& all = integral ? whole : real;
  const auto count = static_cast<size_t>(kernel + kTile - 1);
  const std::vector<double> points(all.begin(), all.begin() + static_cast<int64_t>(count) - 1);
  Matrices m;
  std::vector<double> values(count, 1);  // of the product of the others at each point
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
    values[p] = 0;
    for (size_t n = 0; n < others.size(); ++n) values[p] += others[n] * Power(points[p], n);
    for (size_t i = 0; i < m.a.size(); ++i) m.a[i][p] = Power(points[p], i);
    for (size_t j = 0; j < m.g[p].size(); ++j) m.g[p][j] = Power(points[p], j) / values[p];
  }
  if (integral) MakeIntegral(values, m);
  return m;
}

struct WinogradPlan {
  std::vector<WindowAxis> window;
  std::vector<bool> transformed;  // by spatial axis
  int64_t inputs = 0, outputs = 0;
  bool of_bytes = false;

  int64_t points(size_t axis) const { return window[axis].kernel + kTile - 1; }
  DimExpr tiles(size_t axis) const { return CeilDiv(window[axis].output, kTile); }
  // What the contraction runs over.
  DimExpr rows(size_t axis) const { return transformed[axis] ? tiles(axis) : window[axis].output; }
  Matrices matrices(size_t axis) const { return MakeMatrices(window[axis].kernel, of_bytes); }
  DType values() const { return of_bytes ? DType::kI16 : DType::kF32; }
  DType sums() const { return of_bytes ? DType::kI32 : DType::kF32; }
};

int64_t AssumedOutput(const WindowAxis& axis) {
  constexpr int64_t kUnknown = 64;
  return axis.output.constant().value_or(kUnknown);
}

// How many multiply-adds take the time of reading a weight from memory, of writing a sum, of a term
// of the transforms, which are short sums.
struct Costs {
  double of_weight = 8, of_sum = 8, of_term = 1.3;
};
constexpr Costs kFloats;
constexpr Costs kWords = {.of_weight = 8, .of_sum = 16, .of_term = 2.3};
constexpr Costs kBytes = {.of_weight = 4, .of_sum = 8, .of_term = 0};  // not transformed

// About the multiply-adds of one image.
double CostOf(const WinogradPlan& plan, const Costs& costs) {
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
  return sums * outputs * (window * inputs + costs.of_sum) +
         points * window * inputs * outputs * costs.of_weight +
         terms * costs.of_term * sums * (inputs + outputs);
}

bool CanTransform(const WindowAxis& axis, bool of_bytes) {
  return axis.stride == 1 && axis.dilation == 1 && !axis.ceil_mode && axis.kernel >= kKernelMin &&
         axis.kernel <= (of_bytes ? kKernelMin : kKernelMax);
}

// The greatest sum of magnitudes in a row.
int64_t GreatestRow(const Matrix& matrix) {
  double greatest = 0;
  for (const std::vector<double>& row : matrix) {
    double sum = 0;
    for (const double term : row) sum += std::abs(term);
    greatest = std::max(greatest, sum);
  }
  return static_cast<int64_t>(greatest);
}

// A bound of the sums of products of bytes that lie within kByteRange of each other, 0 among them.
int64_t GreatestSum(const Tensor& weights) {
  const int64_t column = weights.element_count() / std::max<int64_t>(weights.shape()[0], 1);
  int64_t greatest = 0;
  for (int64_t begin = 0; begin < weights.element_count(); begin += column) {
    int64_t above = 0, below = 0;
    for (int64_t i = begin; i < begin + column; ++i) {
      const int64_t value = weights.ValueAsInt64(i);
      (value > 0 ? above : below) += std::abs(value);
    }
    greatest = std::max({greatest, above * kByteRange, below * kByteRange});
  }
  return greatest;
}

// Whether operands of the products are in i16, and sums are what is left of them by division.
bool IsExact(const WinogradPlan& plan, int64_t greatest_sum) {
  int64_t input = kByteRange, weight = kByteRange, divisor = 1;
  for (size_t axis = 0; axis < plan.window.size(); ++axis) {
    if (!plan.transformed[axis]) continue;
    const Matrices matrices = plan.matrices(axis);
    input *= GreatestRow(matrices.b);
    weight *= GreatestRow(matrices.g);
    divisor *= matrices.divisor;
  }
  const int64_t lost = divisor & -divisor;  // the greatest power of two
  return input <= INT16_MAX && weight <= INT16_MAX && greatest_sum < (int64_t{1} << 31) / lost;
}

// Which axes are transformed: those with which it costs least. None: not at all.
WinogradPlan PlanWinograd(const WinogradConv& conv) {
  constexpr double kWorthIt = 0.8;
  WinogradPlan plan{.window = conv.window,
                    .inputs = conv.weights.shape()[1],
                    .outputs = conv.weights.shape()[0],
                    .of_bytes = IsInteger(conv.weights.dtype())};
  const int64_t greatest_sum = plan.of_bytes ? GreatestSum(conv.weights) : 0;
  const size_t rank = plan.window.size();
  plan.transformed.assign(rank, false);
  WinogradPlan best = plan;
  double least = kWorthIt * CostOf(plan, plan.of_bytes ? kBytes : kFloats);
  const Costs& costs = plan.of_bytes ? kWords : kFloats;
  for (size_t choice = 1; choice < size_t{1} << rank; ++choice) {
    bool possible = true;
    int64_t count = 0, longest = 0;
    for (size_t i = 0; i < rank; ++i) {
      plan.transformed[i] = (choice >> i & 1) != 0;
      if (!plan.transformed[i]) continue;
      possible = possible && CanTransform(plan.window[i], plan.of_bytes);
      longest = std::max(longest, plan.window[i].kernel);
      ++count;
    }
    // Rounding errors multiply.
    if (!possible || count > 2 || (count == 2 && longest > kKernelMin)) continue;
    if (plan.of_bytes && !IsExact(plan, greatest_sum)) continue;
    const double cost = CostOf(plan, costs);
    if (cost >= least) continue;
    least = cost;
    best = plan;
  }
  return best;
}

absl::StatusOr<Tensor> MatrixTensor(DType dtype, const Matrix& matrix) {
  std::vector<double> values;
  for (const std::vector<double>& row : matrix) {
    values.insert(values.end(), row.begin(), row.end());
  }
  const std::vector<int64_t> dims = {static_cast<int64_t>(matrix.size()),
                                     static_cast<int64_t>(matrix[0].size())};
  return MakeTensor(dtype, dims, values);
}

// A sum of transformed values over `divisor`, of which it is a multiple.
Expr Quotient(const Expr& sum, int64_t divisor) {
  if (divisor == 1) return sum;
  int64_t shift = 0;
  for (; divisor % 2 == 0; divisor /= 2) ++shift;
  uint32_t inverse = 1;  // modulo 2^32: each turn doubles the bits that are right
  for (int turn = 0; turn < 5; ++turn) inverse *= 2 - static_cast<uint32_t>(divisor) * inverse;
  const auto constant = [](int64_t value) { return Expr::ConstantInt(DType::kI32, value); };
  return Expr::Binary(ExprOp::kShiftRight, sum * constant(static_cast<int32_t>(inverse)),
                      constant(shift));
}

// Builds the stages. Between the transforms values are [points of transformed axes..., N, rows or
// places of spatial axes..., C].
class Winograd {
 public:
  Winograd(LowerContext& context, WinogradConv conv)
      : context_(context), conv_(std::move(conv)), plan_(PlanWinograd(conv_)) {}

  absl::Status Lower() {
    value_ = context_.node().inputs[conv_.x];
    shape_ = context_.InputShape(conv_.x);
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

  absl::StatusOr<int32_t> AddMatrix(StageOperands& operands, DType dtype, const Matrix& matrix) {
    ASSIGN_OR_RETURN(Tensor tensor, MatrixTensor(dtype, matrix));
    const Shape shape(tensor.shape().begin(), tensor.shape().end());
    return operands.Add(context_.NewConstant(std::move(tensor), "winograd"), dtype, shape);
  }

  // The input, or what is transformed of it, 0 where not `within`.
  Expr LoadValue(StageOperands& operands, const Expr& within, std::vector<Expr> coordinates) {
    if (!prefix_.empty() || !plan_.of_bytes) {
      const int32_t x = operands.Add(value_, plan_.values(), shape_);
      return operands.LoadIf(within, x, std::move(coordinates),
                             Expr::ConstantInt(plan_.values(), 0));
    }
    const int32_t x = operands.AddInput(context_, conv_.x);
    const Expr zero = conv_.zero(operands);
    const Expr padding = zero.valid() ? zero : Expr::ConstantInt(operands.operand(x).dtype, 0);
    const Expr byte = operands.LoadIf(within, x, std::move(coordinates), padding);
    const Expr value = Expr::Cast(DType::kI16, byte);
    return zero.valid() ? value - Expr::Cast(DType::kI16, zero) : value;
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
    ASSIGN_OR_RETURN(const int32_t b, AddMatrix(operands, plan_.values(), plan_.matrices(axis).b));
    // The last tile may reach past the end even without pads.
    const Expr loaded = LoadValue(operands, InRange(place, window.input), std::move(coordinates));
    nest.reductions = {SumReduction(loaded * operands.Load(b, {point, j}))};
    nest.result = Expr::Reduced(plan_.values(), 0);
    shape_[at] = plan_.tiles(axis);
    shape_.insert(shape_.begin() + behind, points);
    prefix_.push_back(axis);
    nest.output = {.dtype = plan_.values(), .shape = shape_};
    nest.output_coordinates = std::move(written);
    value_ = context_.NewValue(plan_.values(), shape_, "winograd");
    EmitNest(context_, std::move(operands), std::move(nest), value_);
    return absl::OkStatus();
  }

  // G w along the transformed axes: [points..., outputs, inputs, kernels of the others...].
  absl::StatusOr<Tensor> TransformedWeights(std::vector<int64_t>& dims) const {
    std::vector<double> values = ReadValues<double>(conv_.weights);
    std::vector<int64_t> extents = conv_.weights.shape();
    for (size_t axis = 0; axis < plan_.window.size(); ++axis) {
      if (!plan_.transformed[axis]) continue;
      const Matrix g = plan_.matrices(axis).g;
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
    return MakeTensor(plan_.values(), dims, ordered);
  }

  absl::Status Contract() {
    using Role = ProductAxis::Role;
    const size_t points = prefix_.size();
    Product product;
    product.accumulator = plan_.sums();
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

    product.a = LoadValue(product.operands, within, std::move(coordinates));
    std::vector<int64_t> dims;
    ASSIGN_OR_RETURN(product.b_constant, TransformedWeights(dims));
    product.b_operand = {.dtype = plan_.values(), .shape = Shape(dims.begin(), dims.end())};
    product.result = Expr::Accumulator(plan_.sums(), 0);
    shape_ = product.batch;
    shape_.insert(shape_.end(), product.m.begin(), product.m.end());
    shape_.push_back(plan_.outputs);
    product.output = {.dtype = plan_.sums(), .shape = shape_};
    value_ = context_.NewValue(plan_.sums(), shape_, "winograd");
    return EmitProduct(context_, std::move(product), value_);
  }

  // [..., points of the axis, ..., tiles, ..., C] to [..., outputs, ..., C]; the last one writes
  // the output.
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
    const int32_t sums = operands.Add(value_, plan_.sums(), before);
    const Matrices matrices = plan_.matrices(axis);
    ASSIGN_OR_RETURN(const int32_t a, AddMatrix(operands, plan_.sums(), matrices.a));
    divisor_ *= matrices.divisor;
    nest.reductions = {
        SumReduction(operands.Load(sums, std::move(coordinates)) * operands.Load(a, {i, point}))};
    nest.result = Expr::Reduced(plan_.sums(), 0);
    prefix_.erase(prefix_.begin() + static_cast<int64_t>(removed));
    const bool is_last = prefix_.empty();
    if (is_last) {
      ASSIGN_OR_RETURN(nest.result,
                       conv_.result(operands, Quotient(nest.result, divisor_), kept.back()));
    }
    const DType dtype = is_last ? context_.output(0).dtype : plan_.sums();
    nest.output = {.dtype = dtype, .shape = shape_};
    if (whole) {
      kept[at] = kept[at] * Int(kTile) + i;
      nest.output_coordinates = std::move(kept);
    }
    value_ = is_last ? context_.node().outputs[0] : context_.NewValue(dtype, shape_, "winograd");
    EmitNest(context_, std::move(operands), std::move(nest), value_);
    return absl::OkStatus();
  }

  LowerContext& context_;
  const WinogradConv conv_;
  const WinogradPlan plan_;
  int64_t divisor_ = 1;         // of the sums, as far as they are transformed
  std::vector<size_t> prefix_;  // the axis of each leading axis of points
  ValueId value_ = kNoValue;
  Shape shape_;
};

}  // namespace

bool WinogradPays(const LowerContext& context, const WinogradConv& conv) {
  // Products of twice the speed are as fast without it, and transformed inputs, sums of several
  // times their size, would lose too much by rounding.
  const bool of_bytes = IsInteger(conv.weights.dtype());
  if (of_bytes ? context.options().has_byte_products : context.options().bf16_products) {
    return false;
  }
  const WinogradPlan plan = PlanWinograd(conv);
  return std::find(plan.transformed.begin(), plan.transformed.end(), true) !=
         plan.transformed.end();
}

absl::Status LowerWinograd(LowerContext& context, WinogradConv conv) {
  return Winograd(context, std::move(conv)).Lower();
}

}  // namespace stampmill
