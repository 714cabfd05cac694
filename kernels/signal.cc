// Signal processing: windows, the mel filter bank, Fourier transforms.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
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
#include "kernels/library.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

constexpr double kPi = std::numbers::pi;

absl::StatusOr<DType> ReadOutputType(const Node& node) {
  ASSIGN_OR_RETURN(const int64_t number, node.Int("output_datatype", 1));
  const std::optional<DType> dtype =
      DTypeFromOnnx(static_cast<int32_t>(std::clamp<int64_t>(number, 0, 1000)));
  if (dtype.has_value() && *dtype != DType::kBool) return *dtype;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": output_datatype: got ", number, ", want a numeric type"));
}

// The one element of an integer input.
absl::StatusOr<DimExpr> RequireScalar(InferContext& context, size_t i, absl::string_view name) {
  ASSIGN_OR_RETURN(const std::vector<DimExpr> values, context.RequireSymbolic(i));
  if (values.size() == 1) return values[0];
  return context.Error(absl::StrCat(name, ": got ", values.size(), " values, want 1"));
}

// Windows: a[0] + a[1] cos(2 pi n / N) + a[2] cos(4 pi n / N).
struct Cosines {
  double a[3];
};
constexpr Cosines kBlackman = {{0.42, -0.5, 0.08}};
constexpr Cosines kHamming = {{25.0 / 46, -21.0 / 46, 0}};
constexpr Cosines kHann = {{0.5, -0.5, 0}};

absl::Status InferWindow(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, ReadOutputType(context.node()));
  RETURN_IF_ERROR(context.node().Int("periodic", 1).status());
  ASSIGN_OR_RETURN(const DimExpr size, RequireScalar(context, 0, "size"));
  RETURN_IF_ERROR(context.Check(IsNot(IsLess(size, 0)), "size must not be negative"));
  return context.SetOutput(0, dtype, {size});
}

template <const Cosines& window>
References WindowReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const DType dtype, ReadOutputType(arguments.node));
  ASSIGN_OR_RETURN(const int64_t periodic, arguments.node.Int("periodic", 1));
  const int64_t size = arguments.inputs[0].ValueAsInt64(0);
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(dtype, {size}));
  const double period = static_cast<double>(periodic != 0 ? size : size - 1);
  for (int64_t n = 0; n < size; ++n) {
    const double angle = 2 * kPi * static_cast<double>(n) / period;
    const double value =
        window.a[0] + window.a[1] * std::cos(angle) + window.a[2] * std::cos(2 * angle);
    if (IsFloat(dtype)) {
      output.SetFromDouble(n, value);
    } else {
      output.SetFromInt64(n, static_cast<int64_t>(value));
    }
  }
  return One(std::move(output));
}

template <const Cosines& window>
absl::Status LowerWindow(LowerContext& context) {
  ASSIGN_OR_RETURN(const int64_t periodic, context.node().Int("periodic", 1));
  const DimExpr& size = (*context.output(0).shape)[0];
  const auto real = [](double value) { return Expr::Constant(DType::kF64, value); };
  const Expr period = Expr::Cast(DType::kF64, Extent(periodic != 0 ? size : size - 1));
  const Expr angle = real(2 * kPi) * Expr::Cast(DType::kF64, Expr::Coord(0)) / period;
  Expr value = real(window.a[0]) + real(window.a[1]) * Expr::Unary(ExprOp::kCos, angle);
  if (window.a[2] != 0) {
    value = value + real(window.a[2]) * Expr::Unary(ExprOp::kCos, real(2) * angle);
  }
  EmitMap(context, StageOperands(), value);
  return absl::OkStatus();
}

// MelWeightMatrix: triangles over the bins of a spectrum, made when the model is compiled.

constexpr int64_t kMelSizeMax = int64_t{1} << 24;

absl::Status InferMel(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, ReadOutputType(context.node()));
  int64_t sizes[3];
  for (size_t i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> values, context.RequireConstant(i));
    if (values.size() != 1 || values[0] < (i == 0 ? 0 : 1) || values[0] > kMelSizeMax) {
      return context.Error(
          absl::StrCat("input ", i, ": want one number of ", i == 0 ? 0 : 1, " to ", kMelSizeMax));
    }
    sizes[i] = values[0];
  }
  for (size_t i = 3; i < 5; ++i) {
    const Tensor* edge = context.InputConstant(i);
    if (edge == nullptr) return context.Unsupported(absl::StrCat("input ", i, " must be constant"));
    if (edge->element_count() != 1 || !IsFloat(edge->dtype()) || !(edge->ValueAsDouble(0) >= 0)) {
      return context.Error(absl::StrCat("input ", i, ": want one frequency of 0 or more"));
    }
  }
  return context.SetOutput(0, dtype, {sizes[1] / 2 + 1, sizes[0]});
}

References MelReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const DType dtype, ReadOutputType(arguments.node));
  const int64_t bins = arguments.inputs[0].ValueAsInt64(0);
  const int64_t length = arguments.inputs[1].ValueAsInt64(0);
  const double rate = static_cast<double>(arguments.inputs[2].ValueAsInt64(0));
  const auto mel = [&](size_t i) {
    return 2595 * std::log10(1 + arguments.inputs[i].ValueAsDouble(0) / 700);
  };
  const int64_t rows = length / 2 + 1;
  const double step = (mel(4) - mel(3)) / static_cast<double>(bins + 2);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (mel(3) + static_cast<double>(i) * step) / 2595) - 1);
    const double place = std::floor(static_cast<double>(length + 1) * hertz / rate);
    if (!(place >= 0 && place < static_cast<double>(rows))) {
      return ReferenceError(arguments, absl::StrCat("the edges reach bin ", place, " of ", rows));
    }
    places.push_back(static_cast<int64_t>(place));
  }
  std::vector<double> y(static_cast<size_t>(rows * bins));
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t* const at = places.data() + i;
    const auto set = [&](int64_t row, int64_t value, int64_t range) {
      y[static_cast<size_t>(row * bins + i)] =
          static_cast<double>(value) / static_cast<double>(range);
    };
    if (at[1] == at[0]) set(at[1], 1, 1);
    for (int64_t row = at[0]; at[1] > at[0] && row <= at[1]; ++row) {
      set(row, row - at[0], at[1] - at[0]);
    }
    for (int64_t row = at[1]; row < at[2]; ++row) set(row, at[2] - row, at[2] - at[1]);
  }
  if (IsFloat(dtype)) {
    ASSIGN_OR_RETURN(Tensor output, MakeTensor(dtype, {rows, bins}, y));
    return One(std::move(output));
  }
  const std::vector<int64_t> whole(y.begin(), y.end());
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(dtype, {rows, bins}, whole));
  return One(std::move(output));
}

absl::Status LowerMel(LowerContext& context) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < 5; ++i) {
    const Value& value = context.input(i);
    if (!value.constant.has_value()) {
      return absl::UnimplementedError(
          absl::StrCat(context.node().Describe(), ": input ", i, " must be constant"));
    }
    inputs.push_back(*value.constant);
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> results, MelReference({context.node(), inputs}));
  const DType dtype = results[0].dtype();
  const Shape shape(results[0].shape().begin(), results[0].shape().end());
  const ValueId filters = context.NewConstant(std::move(results[0]), "filters");
  StageOperands operands;
  const int32_t operand = operands.Add(filters, dtype, shape);
  const Expr element = operands.Load(operand, Coords(0, 2));
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

// DFT: every line along the axis is transformed by a skeleton.

struct Transform {
  size_t axis = 0;
  bool inverse = false, one_sided = false;

  // The second half of the spectrum is implied in x, or left out of y.
  bool from_half() const { return inverse && one_sided; }
  bool to_half() const { return !inverse && one_sided; }
};

absl::StatusOr<Transform> ReadTransform(const Node& node, size_t rank, int64_t axis) {
  Transform transform;
  ASSIGN_OR_RETURN(const int64_t inverse, node.Int("inverse", 0));
  ASSIGN_OR_RETURN(const int64_t one_sided, node.Int("onesided", 0));
  ASSIGN_OR_RETURN(transform.axis, NormalizeAxis(node, axis, rank));
  transform.inverse = inverse != 0;
  transform.one_sided = one_sided != 0;
  if (transform.axis + 1 != rank) return transform;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": axis: got ", axis, ", the last one has real and imaginary"));
}

// Where the length is not given: that of the axis, or of the spectrum that it is half of.
DimExpr LengthOf(const Transform& transform, const DimExpr& extent) {
  return transform.from_half() ? 2 * (extent - 1) : extent;
}

absl::Status InferDft(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(0));
  if (!IsFloat(dtype)) return context.Error("input must be floating-point");
  if (x.size() < 2) return context.Error(absl::StrCat("input: got rank ", x.size(), ", least 2"));
  int64_t axis = -2;
  if (context.HasInput(2)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> values, context.RequireConstant(2));
    if (values.size() != 1) {
      return context.Error(absl::StrCat("axis: got ", values.size(), " values, want 1"));
    }
    axis = values[0];
  }
  ASSIGN_OR_RETURN(const Transform transform, ReadTransform(context.node(), x.size(), axis));
  if (!x.back().is_constant()) return context.Unsupported("input: the last dim must be fixed");
  if (!x.back().IsConstant(1) && !x.back().IsConstant(2)) {
    return context.Error(
        absl::StrCat("input: last dim: got ", x.back().ToString(), ", want 1 or 2"));
  }
  if (x.back().IsConstant(1) && transform.from_half()) {
    return context.Error("input: a half spectrum must be complex");
  }
  DimExpr length = LengthOf(transform, x[transform.axis]);
  if (context.HasInput(1)) {
    ASSIGN_OR_RETURN(length, RequireScalar(context, 1, "dft_length"));
  }
  RETURN_IF_ERROR(context.Check(IsLess(0, length), "dft_length must be 1 or more"));
  if (x.back().IsConstant(2) && transform.to_half()) {
    return context.Error("onesided: input must be real");
  }
  Shape y = x;
  y[transform.axis] = transform.to_half() ? FloorDiv(length, 2) + 1 : length;
  y.back() = transform.from_half() ? 1 : 2;
  return context.SetOutput(0, dtype, std::move(y));
}

// y[i] = sum of x[k] exp(-2 pi i k n / N) over the lines of [outer, axis, inner, parts].
absl::StatusOr<Tensor> TransformReference(const Tensor& input, const Transform& transform,
                                          int64_t length) {
  Dims dims = input.shape();
  const int64_t from = dims[transform.axis], parts = dims.back();
  const int64_t inner = RowMajor(dims)[transform.axis] / parts;
  const int64_t results = transform.from_half() ? 1 : 2;
  const int64_t to = transform.to_half() ? length / 2 + 1 : length;
  dims[transform.axis] = to;
  dims.back() = results;
  const std::vector<double> x = ReadValues<double>(input);
  std::vector<double> y(static_cast<size_t>(ProductOf(dims)));
  const int64_t lines = ProductOf(dims) / std::max<int64_t>(to * results, 1);
  for (int64_t line = 0; line < lines; ++line) {
    const auto element = [&](int64_t i, int64_t part) {
      if (i >= from || part >= parts) return 0.0;
      const int64_t place = ((line / inner * from + i) * inner + line % inner) * parts + part;
      return x[static_cast<size_t>(place)];
    };
    for (int64_t n = 0; n < to; ++n) {
      double real = 0, imaginary = 0;
      for (int64_t k = 0; k < length; ++k) {
        const bool is_mirror = transform.from_half() && 2 * k > length;
        const int64_t place = is_mirror ? length - k : k;
        const bool is_real = transform.from_half() && 2 * place % length == 0;
        const double a = element(place, 0);
        const double b = is_real ? 0 : is_mirror ? -element(place, 1) : element(place, 1);
        const double turn = 2 * kPi * static_cast<double>(k * n % length) /
                            static_cast<double>(length) * (transform.inverse ? 1 : -1);
        real += a * std::cos(turn) - b * std::sin(turn);
        imaginary += a * std::sin(turn) + b * std::cos(turn);
      }
      const double scale = transform.inverse ? static_cast<double>(length) : 1;
      const int64_t place = ((line / inner * to + n) * inner + line % inner) * results;
      y[static_cast<size_t>(place)] = real / scale;
      if (results == 2) y[static_cast<size_t>(place + 1)] = imaginary / scale;
    }
  }
  return MakeTensor(input.dtype(), dims, y);
}

References DftReference(const ReferenceArguments& arguments) {
  const auto has = [&](size_t i) {
    return i < arguments.inputs.size() && arguments.inputs[i].valid();
  };
  const Tensor& input = arguments.inputs[0];
  const int64_t axis = has(2) ? arguments.inputs[2].ValueAsInt64(0) : -2;
  ASSIGN_OR_RETURN(const Transform transform,
                   ReadTransform(arguments.node, input.shape().size(), axis));
  const DimExpr natural = LengthOf(transform, input.shape()[transform.axis]);
  const int64_t length = has(1) ? arguments.inputs[1].ValueAsInt64(0) : *natural.constant();
  if (length < 1) return ReferenceError(arguments, absl::StrCat("dft_length: got ", length));
  ASSIGN_OR_RETURN(Tensor output, TransformReference(input, transform, length));
  return One(std::move(output));
}

// exp(-2 pi i k / length) for all k: [length, 2] in f64.
ValueId EmitRoots(LowerContext& context, const DimExpr& length) {
  const Shape shape = {length, 2};
  const Expr turn = Expr::Constant(DType::kF64, -2 * kPi) *
                    Expr::Cast(DType::kF64, Expr::Coord(0)) /
                    Expr::Cast(DType::kF64, Extent(length));
  Nest nest{.kept = shape};
  nest.result = Expr::Select(Equal(Expr::Coord(1), Int(0)), Expr::Unary(ExprOp::kCos, turn),
                             Expr::Unary(ExprOp::kSin, turn));
  nest.output = {.dtype = DType::kF64, .shape = shape};
  const ValueId roots = context.NewValue(DType::kF64, shape, "roots");
  EmitNest(context, StageOperands(), std::move(nest), roots);
  return roots;
}

void EmitTransform(LowerContext& context, ValueId from, const Shape& x, DType dtype,
                   const Transform& transform, const DimExpr& length) {
  const Shape y = *context.output(0).shape;
  const std::span<const DimExpr> dims(x);
  const DimExpr inner =
      ElementCount(dims.subspan(transform.axis + 1, x.size() - transform.axis - 2));
  const ValueId roots = EmitRoots(context, length);
  // Two complex numbers in f64 for each place.
  constexpr int64_t kPlaceBytes = 32;
  context.EmitLibrary(
      {.skeleton = "dft",
       .configuration = {static_cast<int64_t>(dtype), *x.back().constant(), *y.back().constant(),
                         transform.inverse ? 1 : 0, transform.from_half() ? 1 : 0},
       .operands = {{.dtype = dtype, .shape = x}, {.dtype = DType::kF64, .shape = {length, 2}}},
       .outputs = {{.dtype = dtype, .shape = y}},
       .dims = {length, x[transform.axis], y[transform.axis], inner},
       .tasks = ElementCount(dims.first(transform.axis)) * inner,
       .scratch_bytes = kPlaceBytes * length},
      {from, roots}, {context.node().outputs[0]});
}

absl::Status LowerDft(LowerContext& context) {
  const Node& node = context.node();
  const Shape x = context.InputShape(0);
  int64_t axis = -2;
  if (context.HasInput(2)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> values, FixedInts(node, context.input(2)));
    axis = values[0];
  }
  ASSIGN_OR_RETURN(const Transform transform, ReadTransform(node, x.size(), axis));
  DimExpr length = LengthOf(transform, x[transform.axis]);
  if (context.HasInput(1)) {
    ASSIGN_OR_RETURN(const std::vector<DimExpr> given, KnownDims(node, context.input(1)));
    length = given[0];
  }
  EmitTransform(context, node.inputs[0], x, context.input(0).dtype, transform, length);
  return absl::OkStatus();
}

// STFT: a map takes the frames apart and weights them, DFT's skeleton transforms them.

enum : size_t { kSignal, kStep, kWindow, kFrameLength };

absl::Status InferStft(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kSignal));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(kSignal));
  if (!IsFloat(dtype)) return context.Error("signal must be floating-point");
  if (x.size() == 3 && !x[2].is_constant()) {
    return context.Unsupported("signal: the last dim must be fixed");
  }
  if (x.size() != 3 || (!x[2].IsConstant(1) && !x[2].IsConstant(2))) {
    return context.Error(
        absl::StrCat("signal: got shape ", ToString(x), ", want [batch, length, 1 or 2]"));
  }
  ASSIGN_OR_RETURN(const int64_t one_sided, context.node().Int("onesided", 1));
  if (one_sided != 0 && x[2].IsConstant(2)) return context.Error("onesided: signal must be real");
  ASSIGN_OR_RETURN(const DimExpr step, RequireScalar(context, kStep, "frame_step"));
  RETURN_IF_ERROR(context.Check(IsLess(0, step), "frame_step must be 1 or more"));
  DimExpr length = x[1];
  if (context.HasInput(kWindow)) {
    ASSIGN_OR_RETURN(const DType own, context.InputDType(kWindow));
    ASSIGN_OR_RETURN(const Shape window, context.InputShape(kWindow));
    if (own != dtype || window.size() != 1) {
      return context.Error(absl::StrCat("window: got ", Name(own), ToString(window), ", want ",
                                        Name(dtype), " of one dim"));
    }
    length = window[0];
  }
  if (context.HasInput(kFrameLength)) {
    ASSIGN_OR_RETURN(const DimExpr given, RequireScalar(context, kFrameLength, "frame_length"));
    if (context.HasInput(kWindow)) {
      RETURN_IF_ERROR(RequireEqual(context, given, length, "frame_length and window"));
    }
    length = given;
  }
  RETURN_IF_ERROR(context.Check(IsLess(0, length), "frames must have an element"));
  RETURN_IF_ERROR(context.Check(IsNot(IsLess(x[1], length)),
                                absl::StrCat("a frame of ", length.ToString(),
                                             " must fit into the signal of ", x[1].ToString())));
  const DimExpr bins = one_sided != 0 ? FloorDiv(length, 2) + 1 : length;
  return context.SetOutput(0, dtype, {x[0], FloorDiv(x[1] - length, step) + 1, bins, 2});
}

References StftReference(const ReferenceArguments& arguments) {
  const auto has = [&](size_t i) {
    return i < arguments.inputs.size() && arguments.inputs[i].valid();
  };
  const Tensor& input = arguments.inputs[kSignal];
  const int64_t step = arguments.inputs[kStep].ValueAsInt64(0);
  const int64_t batch = input.shape()[0], extent = input.shape()[1], parts = input.shape()[2];
  const int64_t length = has(kFrameLength) ? arguments.inputs[kFrameLength].ValueAsInt64(0)
                         : has(kWindow)    ? arguments.inputs[kWindow].shape()[0]
                                           : extent;
  ASSIGN_OR_RETURN(const int64_t one_sided, arguments.node.Int("onesided", 1));
  if (step < 1 || length < 1 || length > extent) {
    return ReferenceError(arguments, absl::StrCat("frame_step ", step, " and frame_length ", length,
                                                  " for a signal of ", extent));
  }
  const int64_t count = (extent - length) / step + 1;
  const std::vector<double> x = ReadValues<double>(input);
  std::vector<double> frames;
  ForEachIndex({batch, count, length, parts}, [&](const Dims& at) {
    const int64_t place = (at[0] * extent + at[1] * step + at[2]) * parts + at[3];
    const double weight = has(kWindow) ? arguments.inputs[kWindow].ValueAsDouble(at[2]) : 1;
    frames.push_back(x[static_cast<size_t>(place)] * weight);
  });
  // Frames stay in f64, so that they are rounded once.
  ASSIGN_OR_RETURN(const Tensor weighted,
                   MakeTensor(DType::kF64, {batch, count, length, parts}, frames));
  ASSIGN_OR_RETURN(const Tensor spectrum,
                   TransformReference(weighted, {.axis = 2, .one_sided = one_sided != 0}, length));
  ASSIGN_OR_RETURN(Tensor output,
                   MakeTensor(input.dtype(), spectrum.shape(), ReadValues<double>(spectrum)));
  return One(std::move(output));
}

absl::Status LowerStft(LowerContext& context) {
  const Node& node = context.node();
  const Shape& x = context.InputShape(kSignal);
  const DType dtype = context.input(kSignal).dtype;
  ASSIGN_OR_RETURN(const int64_t one_sided, node.Int("onesided", 1));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> step, KnownDims(node, context.input(kStep)));
  DimExpr length = context.HasInput(kWindow) ? context.InputShape(kWindow)[0] : x[1];
  if (context.HasInput(kFrameLength)) {
    ASSIGN_OR_RETURN(const std::vector<DimExpr> given,
                     KnownDims(node, context.input(kFrameLength)));
    length = given[0];
  }
  const Shape shape = {x[0], (*context.output(0).shape)[1], length, x[2]};
  const DType compute = ComputeType(dtype);
  StageOperands operands;
  const std::vector<Expr> c = Coords(0, 4);
  const int32_t signal = operands.AddInput(context, kSignal);
  const Expr place = c[1] * Extent(step[0]) + c[2];
  Expr element = Expr::Cast(compute, operands.Load(signal, {c[0], place, c[3]}));
  if (context.HasInput(kWindow)) {
    const int32_t window = operands.AddInput(context, kWindow);
    element = element * Expr::Cast(compute, operands.Load(window, {c[2]}));
  }
  Nest nest{.kept = shape};
  nest.result = element;
  nest.output = {.dtype = compute, .shape = shape};
  const ValueId frames = context.NewValue(compute, shape, "frames");
  EmitNest(context, std::move(operands), std::move(nest), frames);
  const Transform transform = {.axis = 2, .one_sided = one_sided != 0};
  if (compute == dtype) {
    EmitTransform(context, frames, shape, dtype, transform, length);
    return absl::OkStatus();
  }
  const ValueId narrow = context.NewValue(dtype, shape, "narrow");
  EmitConversion(context, frames, compute, shape, narrow, dtype);
  EmitTransform(context, narrow, shape, dtype, transform, length);
  return absl::OkStatus();
}

template <const Cosines& window>
constexpr OpDefinition WindowOp(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 1,
          .max_inputs = 1,
          .infer = InferWindow,
          .reference = WindowReference<window>,
          .variants = kNest<LowerWindow<window>>};
}

}  // namespace

std::span<const OpDefinition> SignalOps() {
  static constexpr OpDefinition kOps[] = {
      WindowOp<kBlackman>("BlackmanWindow"),
      {.name = "DFT",
       .domain = "",
       .min_inputs = 1,
       .max_inputs = 3,
       .infer = InferDft,
       .reference = DftReference,
       .variants = kNest<LowerDft>},
      WindowOp<kHamming>("HammingWindow"),
      WindowOp<kHann>("HannWindow"),
      {.name = "MelWeightMatrix",
       .domain = "",
       .min_inputs = 5,
       .max_inputs = 5,
       .infer = InferMel,
       .reference = MelReference,
       .variants = kNest<LowerMel>},
      {.name = "STFT",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 4,
       .infer = InferStft,
       .reference = StftReference,
       .variants = kNest<LowerStft>},
  };
  return kOps;
}

}  // namespace stampmill
