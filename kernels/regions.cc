// Regions of maps: Col2Im adds blocks up to an image, MaxUnpool puts maxima back to where they were
// taken, RoiAlign reads boxes.
#include <algorithm>
#include <cmath>
#include <cstring>
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
#include "kernels/window.h"

namespace stampmill {
namespace {

// Col2Im: a window slid over the image; column i of the input has the window's i-th position.

// The window over an image of `image`; the kernel is input 2.
absl::StatusOr<std::vector<WindowAxis>> BlocksOf(const Node& node, const Shape& image,
                                                 std::span<const int64_t> block) {
  for (const absl::string_view name : {"auto_pad", "kernel_shape", "ceil_mode"}) {
    if (node.Has(name)) {
      return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": no attribute ", name));
    }
  }
  if (block.size() != image.size() || block.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": block_shape: got ",
                                                   block.size(), " values, want ", image.size(),
                                                   ", at least 1"));
  }
  return ReadWindow(node, image, block);
}

absl::Status InferCol2Im(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(0));
  if (dtype == DType::kBool) return context.Error("input: bool has no sum");
  if (x.size() != 3) return context.Error(absl::StrCat("input: got rank ", x.size(), ", want 3"));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> image, context.RequireSymbolic(1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> block, context.RequireConstant(2));
  ASSIGN_OR_RETURN(const std::vector<WindowAxis> window, BlocksOf(context.node(), image, block));
  RETURN_IF_ERROR(CheckWindow(context, window));
  int64_t taps = 1;
  for (const int64_t extent : block) {
    if (__builtin_mul_overflow(taps, extent, &taps)) {
      return context.Error("block_shape: has more elements than 64 bits count");
    }
  }
  RETURN_IF_ERROR(
      RequireEqual(context, Mod(x[1], taps), 0, "input: dim 1 modulo the elements of a block"));
  RETURN_IF_ERROR(
      RequireEqual(context, x[2], ElementCount(WindowOutput(window)), "input: number of blocks"));
  Shape y = {x[0], FloorDiv(x[1], taps)};
  y.insert(y.end(), image.begin(), image.end());
  return context.SetOutput(0, dtype, std::move(y));
}

References Col2ImReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const Dims image = Int64Values(arguments.inputs[1]);
  const Dims block = Int64Values(arguments.inputs[2]);
  ASSIGN_OR_RETURN(const std::vector<WindowAxis> window,
                   BlocksOf(arguments.node, Shape(image.begin(), image.end()), block));
  const Dims places = ConstantShape(WindowOutput(window));
  const int64_t taps = ProductOf(block);
  const int64_t planes = input.shape()[0] * (input.shape()[1] / taps);
  Dims dims = {input.shape()[0], input.shape()[1] / taps};
  dims.insert(dims.end(), image.begin(), image.end());
  const Dims strides = RowMajor(image);
  absl::StatusOr<Tensor> output = WithArithmeticType(input.dtype(), [&]<typename T>(T) {
    const std::vector<T> x = ReadValues<T>(input);
    std::vector<T> y(static_cast<size_t>(ProductOf(dims)));
    int64_t place = 0;
    ForEachIndex(places, [&](const Dims& position) {
      for (const FixedTap& tap : FixedTaps(window, position)) {
        for (int64_t plane = 0; plane < planes; ++plane) {
          T& sum = y[static_cast<size_t>(plane * ProductOf(image) + OffsetOf(tap.place, strides))];
          sum = WrapAdd(
              sum, x[static_cast<size_t>((plane * taps + tap.tap) * input.shape()[2] + place)]);
        }
      }
      ++place;
    });
    return MakeTensor(input.dtype(), dims, y);
  });
  if (!output.ok()) return output.status();
  return One(*std::move(output));
}

absl::Status LowerCol2Im(LowerContext& context) {
  const Shape& x = context.InputShape(0);
  ASSIGN_OR_RETURN(const std::vector<DimExpr> image, KnownDims(context.node(), context.input(1)));
  ASSIGN_OR_RETURN(const std::vector<int64_t> block, FixedInts(context.node(), context.input(2)));
  ASSIGN_OR_RETURN(const std::vector<WindowAxis> window, BlocksOf(context.node(), image, block));
  const Shape& out = *context.output(0).shape;
  const DType dtype = context.input(0).dtype;
  const DType compute = ComputeType(dtype);
  const size_t axes = image.size();
  Nest nest{.kept = out, .reduced = Shape(block.begin(), block.end())};
  const std::vector<Expr> c = Coords(0, out.size());
  const std::vector<Expr> taps = Coords(out.size(), axes);
  // Which window has this element of the image under this tap, if one has.
  Expr within, place = Int(0), tap = Int(0);
  for (size_t i = 0; i < axes; ++i) {
    const WindowAxis& axis = window[i];
    const Expr from = c[2 + i] + Extent(axis.pad_begin) - taps[i] * Int(axis.dilation);
    const Expr position = FloorDivide(from, Int(axis.stride));
    within = And(InRange(position, axis.output), within);
    within = And(Equal(FloorModulo(from, Int(axis.stride)), Int(0)), within);
    place = place * Extent(axis.output) + position;
    tap = tap * Int(axis.kernel) + taps[i];
  }
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const Expr row = c[1] * Extent(FloorDiv(x[1], out[1])) + tap;
  const Expr element =
      operands.LoadIf(within, input, {c[0], row, place}, Expr::ConstantInt(dtype, 0));
  nest.reductions = {SumReduction(Expr::Cast(compute, element))};
  nest.result = Expr::Cast(dtype, Expr::Reduced(compute, 0));
  nest.output = {.dtype = dtype, .shape = out};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

// MaxUnpool: the inverse of a MaxPool without overlap, by the indices that it gave.

// What MaxPool's input had, as far as its output tells.
absl::StatusOr<Shape> UnpooledShape(const Node& node, const Shape& x) {
  const size_t axes = x.size() - 2;
  ASSIGN_OR_RETURN(const std::vector<int64_t> kernel,
                   SpatialInts(node, "kernel_shape", axes, 0, 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> strides, SpatialInts(node, "strides", axes, 1, 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> pads, SpatialInts(node, "pads", 2 * axes, 0, 0));
  Shape shape = {x[0], x[1]};
  for (size_t i = 0; i < axes; ++i) {
    shape.push_back((x[2 + i] - 1) * strides[i] - pads[i] - pads[axes + i] + kernel[i]);
  }
  return shape;
}

absl::Status InferMaxUnpool(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const DType indices, context.InputDType(1));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape i, context.InputShape(1));
  if (!IsFloat(dtype)) return context.Error("X must be floating-point");
  if (indices != DType::kI64)
    return context.Error(absl::StrCat("I is ", Name(indices), ", must be i64"));
  if (x.size() < 3 || i.size() != x.size()) {
    return context.Error(absl::StrCat("X and I: got ranks ", x.size(), " and ", i.size(),
                                      ", want the same, 3 or more"));
  }
  for (size_t d = 0; d < x.size(); ++d) {
    RETURN_IF_ERROR(RequireEqual(context, x[d], i[d], absl::StrCat("dim ", d, " of X and I")));
  }
  ASSIGN_OR_RETURN(Shape shape, UnpooledShape(context.node(), x));
  for (const DimExpr& extent : shape) {
    RETURN_IF_ERROR(context.Check(IsNot(IsLess(extent, 0)), "pads leave nothing"));
  }
  if (!context.HasInput(2)) return context.SetOutput(0, dtype, std::move(shape));
  ASSIGN_OR_RETURN(std::vector<DimExpr> given, context.RequireSymbolic(2));
  if (given.size() != shape.size()) {
    return context.Error(
        absl::StrCat("output_shape: got ", given.size(), " values, want ", shape.size()));
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    RETURN_IF_ERROR(
        context.Check(IsNot(IsLess(given[d], shape[d])),
                      absl::StrCat("output_shape: dim ", d, ": got ", given[d].ToString(),
                                   ", least ", shape[d].ToString())));
  }
  return context.SetOutput(0, dtype, std::move(given));
}

References MaxUnpoolReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const Shape shape, UnpooledShape(arguments.node, Shape(input.shape().begin(),
                                                                          input.shape().end())));
  const Dims own = ConstantShape(shape);
  const bool is_given = arguments.inputs.size() > 2 && arguments.inputs[2].valid();
  const Dims dims = is_given ? Int64Values(arguments.inputs[2]) : own;
  const std::vector<double> x = ReadValues<double>(input);
  const Dims places = Int64Values(arguments.inputs[1]);
  std::vector<double> unpooled(static_cast<size_t>(ProductOf(own)));
  for (size_t i = 0; i < x.size(); ++i) {
    if (places[i] < 0 || places[i] >= ProductOf(own)) continue;
    unpooled[static_cast<size_t>(places[i])] = x[i];
  }
  std::vector<double> y(static_cast<size_t>(ProductOf(dims)));
  const Dims strides = RowMajor(dims);
  size_t next = 0;
  ForEachIndex(own, [&](const Dims& at) {
    y[static_cast<size_t>(OffsetOf(at, strides))] = unpooled[next++];
  });
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), dims, y));
  return One(std::move(output));
}

absl::Status LowerMaxUnpool(LowerContext& context) {
  const Node& node = context.node();
  const DType dtype = context.input(0).dtype;
  const Shape x = context.InputShape(0);
  ASSIGN_OR_RETURN(const Shape shape, UnpooledShape(node, x));
  const Shape& out = *context.output(0).shape;
  const ValueId unpooled =
      out == shape ? node.outputs[0] : context.NewValue(dtype, shape, "unpooled");
  context.EmitLibrary({.skeleton = "place",
                       .configuration = {static_cast<int64_t>(dtype)},
                       .operands = {{.dtype = dtype, .shape = x},
                                    {.dtype = DType::kI64, .shape = context.InputShape(1)}},
                       .outputs = {{.dtype = dtype, .shape = shape}},
                       .dims = {ElementCount(x), ElementCount(shape)}},
                      {node.inputs[0], node.inputs[1]}, {unpooled});
  if (out == shape) return absl::OkStatus();
  StageOperands operands;
  const int32_t operand = operands.Add(unpooled, dtype, shape);
  const std::vector<Expr> c = Coords(0, shape.size());
  Expr within;
  for (size_t d = 0; d < shape.size(); ++d) within = And(Less(c[d], Extent(shape[d])), within);
  const Expr element = operands.LoadIf(within, operand, c, Expr::Constant(dtype, 0));
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

// RoiAlign.

struct Roi {
  bool maximum = false;
  bool half_pixel = true;
  int64_t height = 1, width = 1, ratio = 0;
  float scale = 1;
};

absl::StatusOr<Roi> ReadRoi(const Node& node) {
  // Bins of a box and points of a bin: no model has more, and they are walked.
  constexpr int64_t kBinsMax = 1 << 14, kRatioMax = 1 << 10;
  Roi roi;
  ASSIGN_OR_RETURN(const std::string mode, node.String("mode", "avg"));
  ASSIGN_OR_RETURN(const std::string corners,
                   node.String("coordinate_transformation_mode", "half_pixel"));
  if ((mode != "avg" && mode != "max") ||
      (corners != "half_pixel" && corners != "output_half_pixel")) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": mode: got '", mode,
                                                   "', want avg or max; ",
                                                   "coordinate_transformation_mode: got '", corners,
                                                   "', want half_pixel or output_half_pixel"));
  }
  roi.maximum = mode == "max";
  roi.half_pixel = corners == "half_pixel";
  ASSIGN_OR_RETURN(roi.height, node.Int("output_height", 1));
  ASSIGN_OR_RETURN(roi.width, node.Int("output_width", 1));
  ASSIGN_OR_RETURN(roi.ratio, node.Int("sampling_ratio", 0));
  ASSIGN_OR_RETURN(roi.scale, node.Float("spatial_scale", 1));
  for (const auto& [name, value, least, most] :
       {std::tuple("output_height", roi.height, int64_t{1}, kBinsMax),
        std::tuple("output_width", roi.width, int64_t{1}, kBinsMax),
        std::tuple("sampling_ratio", roi.ratio, int64_t{0}, kRatioMax)}) {
    if (value >= least && value <= most) continue;
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": ", name, ": got ", value,
                                                   ", limits ", least, " and ", most));
  }
  return roi;
}

absl::Status InferRoiAlign(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const DType box_type, context.InputDType(1));
  ASSIGN_OR_RETURN(const DType image_type, context.InputDType(2));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape boxes, context.InputShape(1));
  ASSIGN_OR_RETURN(const Shape images, context.InputShape(2));
  ASSIGN_OR_RETURN(const Roi roi, ReadRoi(context.node()));
  if (!IsFloat(dtype) || box_type != dtype || image_type != DType::kI64) {
    return context.Error(absl::StrCat("X, rois and batch_indices: got ", Name(dtype), ", ",
                                      Name(box_type), " and ", Name(image_type),
                                      ", want a floating-point type, the same and i64"));
  }
  if (x.size() != 4 || boxes.size() != 2 || images.size() != 1) {
    return context.Error(absl::StrCat("X, rois and batch_indices: got ranks ", x.size(), ", ",
                                      boxes.size(), " and ", images.size(), ", want 4, 2 and 1"));
  }
  RETURN_IF_ERROR(RequireEqual(context, boxes[1], 4, "rois: dim 1"));
  RETURN_IF_ERROR(RequireEqual(context, boxes[0], images[0], "rois and batch_indices"));
  for (size_t d : {0, 2, 3}) {
    RETURN_IF_ERROR(context.Check(IsLess(0, x[d]), absl::StrCat("X: dim ", d, " is empty")));
  }
  context.CheckIndices(2, x[0]);
  return context.SetOutput(0, dtype, {boxes[0], x[1], roi.height, roi.width});
}

// The map between the four elements around a point; nullopt outside of it.
struct Corner {
  int64_t y, x;
  double weight;
};
std::vector<Corner> CornersOf(double y, double x, int64_t height, int64_t width) {
  const double h = static_cast<double>(height), w = static_cast<double>(width);
  if (!(y >= -1 && y <= h && x >= -1 && x <= w)) return {};
  y = std::clamp(y, 0.0, h - 1);
  x = std::clamp(x, 0.0, w - 1);
  const int64_t top = static_cast<int64_t>(y), left = static_cast<int64_t>(x);
  const double down = y - std::floor(y), right = x - std::floor(x);
  const int64_t bottom = std::min(top + 1, height - 1), side = std::min(left + 1, width - 1);
  return {{top, left, (1 - down) * (1 - right)},
          {top, side, (1 - down) * right},
          {bottom, left, down * (1 - right)},
          {bottom, side, down * right}};
}

// Points of a bin along an axis: those of a box of no sane size are not walked.
absl::StatusOr<std::vector<double>> PointsOf(const ReferenceArguments& arguments, double start,
                                             double size, int64_t ratio) {
  constexpr double kPointsMax = 1e6;
  const double count = ratio > 0 ? static_cast<double>(ratio) : std::ceil(size);
  if (!(count <= kPointsMax)) return ReferenceError(arguments, "rois: a box is too large");
  std::vector<double> points;
  for (double i = 0; i < count; ++i) points.push_back(start + (i + 0.5) * size / count);
  return points;
}

References RoiAlignReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const Roi roi, ReadRoi(arguments.node));
  const Tensor& input = arguments.inputs[0];
  const Dims& xs = input.shape();
  const std::vector<double> x = ReadValues<double>(input);
  const std::vector<double> boxes = ReadValues<double>(arguments.inputs[1]);
  const Dims images = Int64Values(arguments.inputs[2]);
  const Dims dims = {arguments.inputs[1].shape()[0], xs[1], roi.height, roi.width};
  std::vector<double> y;
  absl::Status status;
  ForEachIndex(dims, [&](const Dims& at) {
    const double* box = boxes.data() + 4 * at[0];
    const double scale = roi.scale, offset = roi.half_pixel ? 0.5 : 0;
    const double x0 = box[0] * scale - offset, y0 = box[1] * scale - offset;
    double width = (box[2] - box[0]) * scale, height = (box[3] - box[1]) * scale;
    if (!roi.half_pixel) width = std::max(width, 1.0), height = std::max(height, 1.0);
    const double bin_height = height / static_cast<double>(roi.height);
    const double bin_width = width / static_cast<double>(roi.width);
    const auto rows =
        PointsOf(arguments, y0 + static_cast<double>(at[2]) * bin_height, bin_height, roi.ratio);
    const auto columns =
        PointsOf(arguments, x0 + static_cast<double>(at[3]) * bin_width, bin_width, roi.ratio);
    if (!rows.ok() || !columns.ok()) status = rows.ok() ? columns.status() : rows.status();
    if (!status.ok()) return;
    const int64_t image = std::clamp<int64_t>(images[static_cast<size_t>(at[0])], 0, xs[0] - 1);
    const double* plane = x.data() + (image * xs[1] + at[1]) * xs[2] * xs[3];
    double sum = 0;
    std::optional<double> highest;
    for (const double row : *rows) {
      for (const double column : *columns) {
        double best = 0;
        bool first = true;
        for (const Corner& corner : CornersOf(row, column, xs[2], xs[3])) {
          const double value = corner.weight * plane[corner.y * xs[3] + corner.x];
          sum += value;
          best = first ? value : std::max(best, value);
          first = false;
        }
        highest = highest.has_value() ? std::max(*highest, best) : best;
      }
    }
    const double points = static_cast<double>(rows->size() * columns->size());
    y.push_back(roi.maximum ? highest.value_or(0) : sum / std::max(points, 1.0));
  });
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), dims, y));
  return One(std::move(output));
}

absl::Status LowerRoiAlign(LowerContext& context) {
  ASSIGN_OR_RETURN(const Roi roi, ReadRoi(context.node()));
  const Node& node = context.node();
  const DType dtype = context.input(0).dtype;
  const Shape x = context.InputShape(0), boxes = context.InputShape(1);
  uint32_t scale = 0;
  memcpy(&scale, &roi.scale, sizeof(scale));
  const ValueId corners = InputAs(context, 1, DType::kF32);
  context.EmitLibrary({.skeleton = "roi_align",
                       .configuration = {static_cast<int64_t>(dtype), roi.maximum ? 1 : 0,
                                         roi.half_pixel ? 1 : 0, roi.ratio, scale},
                       .operands = {{.dtype = dtype, .shape = x},
                                    {.dtype = DType::kF32, .shape = boxes},
                                    {.dtype = DType::kI64, .shape = context.InputShape(2)}},
                       .outputs = {{.dtype = dtype, .shape = *context.output(0).shape}},
                       .dims = {x[0], x[1], x[2], x[3], roi.height, roi.width},
                       .tasks = boxes[0],
                       .scratch_bytes = 4 * x[1]},
                      {node.inputs[0], corners, node.inputs[2]}, {node.outputs[0]});
  return absl::OkStatus();
}

}  // namespace

std::span<const OpDefinition> RegionOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "Col2Im",
       .domain = "",
       .min_inputs = 3,
       .max_inputs = 3,
       .infer = InferCol2Im,
       .reference = Col2ImReference,
       .variants = kNest<LowerCol2Im>},
      {.name = "MaxUnpool",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 3,
       .infer = InferMaxUnpool,
       .reference = MaxUnpoolReference,
       .variants = kNest<LowerMaxUnpool>},
      {.name = "RoiAlign",
       .domain = "",
       .min_inputs = 3,
       .max_inputs = 3,
       .infer = InferRoiAlign,
       .reference = RoiAlignReference,
       .variants = kNest<LowerRoiAlign>},
  };
  return kOps;
}

}  // namespace stampmill
