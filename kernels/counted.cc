// Operators that find how much they give: NonZero, Compress, Unique, NonMaxSuppression.
//
// A skeleton fills a list that has room for the most there can be, and counts; the host reads the
// count into a symbol, which is a dim of the results; what follows runs over that many. Where the
// condition of a Compress is known it is a Gather at known places.
#include <algorithm>
#include <cmath>
#include <numeric>
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

constexpr size_t kFirstInput[] = {0};

DimExpr Found(const Node& node) { return CountOf(node, "count"); }

// Of constants the shapes are constants too. True: they are set.
absl::StatusOr<bool> InferConstants(InferContext& context, Reference reference) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < context.input_count(); ++i) {
    if (!context.HasInput(i)) {
      inputs.emplace_back();
    } else if (const Tensor* constant = context.InputConstant(i); constant != nullptr) {
      inputs.push_back(*constant);
    } else {
      return false;
    }
  }
  ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, reference({context.node(), inputs}));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Dims& dims = outputs[i].shape();
    RETURN_IF_ERROR(context.SetOutput(i, outputs[i].dtype(), Shape(dims.begin(), dims.end())));
  }
  return true;
}

// The rows of `data` at `places` of an axis.
absl::StatusOr<Tensor> TakeRows(const Tensor& data, const Dims& from, size_t axis,
                                const std::vector<int64_t>& places) {
  const Dims strides = RowMajor(from);
  Dims dims = from;
  dims[axis] = static_cast<int64_t>(places.size());
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(data.dtype(), dims));
  RETURN_IF_ERROR(DispatchSize(data.dtype(), [&]<typename T>() {
    const In<T> x(data);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEachIndex(dims, [&](const Dims& index) {
      Dims at = index;
      at[axis] = places[static_cast<size_t>(index[axis])];
      y[next++] = x[OffsetOf(at, strides)];
    });
    return absl::OkStatus();
  }));
  return output;
}

// The same as a stage: `list`, of `length` places, has those of the output's rows.
void EmitTakeRows(LowerContext& context, size_t axis, bool flat, ValueId list,
                  const DimExpr& length) {
  Shape shape = context.InputShape(0);
  ValueId data = context.node().inputs[0];
  const DType dtype = context.input(0).dtype;
  if (flat) {
    shape = {ElementCount(shape)};
    data = context.NewValue(dtype, shape, "row");
    context.EmitAlias(context.node().inputs[0], data);
  }
  StageOperands operands;
  const int32_t input = operands.Add(data, dtype, shape);
  const int32_t places = operands.Add(list, DType::kI64, {length});
  std::vector<Expr> coordinates = Coords(0, shape.size());
  coordinates[axis] = operands.Load(places, {coordinates[axis]});
  const Expr element = operands.Load(input, std::move(coordinates));
  EmitMap(context, std::move(operands), element);
}

// Finds what is not 0 of `x`: a list of places with room for all, how many there are in the symbol
// of the node. Gives the list.
ValueId EmitFind(LowerContext& context, ValueId x, DType dtype, const Shape& shape) {
  const DimExpr room = ElementCount(shape);
  const ValueId places = context.NewValue(DType::kI64, {room}, "places");
  const ValueId count = context.NewValue(DType::kI64, {}, "count");
  context.EmitLibrary(
      {.skeleton = "nonzero",
       .configuration = {static_cast<int64_t>(dtype)},
       .operands = {{.dtype = dtype, .shape = shape}},
       .outputs = {{.dtype = DType::kI64, .shape = {room}}, {.dtype = DType::kI64, .shape = {}}},
       .dims = {room}},
      {x}, {places, count});
  context.EmitRead(count, Found(context.node()).symbol_name(), room);
  return places;
}

// NonZero: a column for each element that is not 0, a row for each axis.

References NonZeroReference(const ReferenceArguments& arguments) {
  const Tensor& x = arguments.inputs[0];
  std::vector<Dims> found;
  RETURN_IF_ERROR(DispatchAll(x.dtype(), [&]<typename T>() {
    const In<T> values(x);
    int64_t at = 0;
    ForEachIndex(x.shape(), [&](const Dims& index) {
      if (values[at++] != static_cast<Compute<T>>(0)) found.push_back(index);
    });
    return absl::OkStatus();
  }));
  const auto count = static_cast<int64_t>(found.size());
  std::vector<int64_t> places;
  for (size_t d = 0; d < x.shape().size(); ++d) {
    for (const Dims& index : found) places.push_back(index[d]);
  }
  return One(Tensor::FromInt64({x.rank(), count}, places));
}

absl::Status InferNonZero(InferContext& context) {
  RETURN_IF_ERROR(context.InputDType(0).status());
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const bool known, InferConstants(context, NonZeroReference));
  if (known) return absl::OkStatus();
  return context.SetOutput(0, DType::kI64,
                           {static_cast<int64_t>(shape.size()), Found(context.node())});
}

absl::Status LowerNonZero(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  const ValueId list = EmitFind(context, context.node().inputs[0], context.input(0).dtype, shape);
  StageOperands operands;
  const int32_t places = operands.Add(list, DType::kI64, {ElementCount(shape)});
  const Expr place = operands.Load(places, {Expr::Coord(1)});
  const Shape strides = RowMajorStrides(shape);
  Expr result = place;
  for (size_t d = shape.size(); d-- > 0;) {
    Expr at = d + 1 == shape.size() ? place : FloorDivide(place, Extent(strides[d]));
    if (d > 0) at = FloorModulo(at, Extent(shape[d]));
    const bool is_last = d + 1 == shape.size();
    const Expr is_row = Equal(Expr::Coord(0), Int(static_cast<int64_t>(d)));
    result = is_last ? at : Expr::Select(is_row, at, result);
  }
  EmitMap(context, std::move(operands), result);
  return absl::OkStatus();
}

// Compress: rows of an axis for which a condition holds. Without an axis the data is one row.

absl::StatusOr<std::optional<size_t>> OptionalAxis(const Node& node, size_t rank) {
  if (!node.Has("axis")) return std::nullopt;
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", 0));
  ASSIGN_OR_RETURN(const size_t normal, NormalizeAxis(node, axis, rank));
  return normal;
}

std::vector<int64_t> TruePlaces(const std::vector<int64_t>& condition) {
  std::vector<int64_t> places;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) places.push_back(static_cast<int64_t>(i));
  }
  return places;
}

References CompressReference(const ReferenceArguments& arguments) {
  const Tensor& data = arguments.inputs[0];
  ASSIGN_OR_RETURN(const std::optional<size_t> axis,
                   OptionalAxis(arguments.node, data.shape().size()));
  Dims from = data.shape();
  if (!axis.has_value()) from = {data.element_count()};
  const std::vector<int64_t> places = TruePlaces(Int64Values(arguments.inputs[1]));
  if (!places.empty() && places.back() >= from[axis.value_or(0)]) {
    return ReferenceError(arguments, "condition is longer than the axis");
  }
  ASSIGN_OR_RETURN(Tensor output, TakeRows(data, from, axis.value_or(0), places));
  return One(std::move(output));
}

absl::Status InferCompress(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const DType condition_type, context.InputDType(1));
  ASSIGN_OR_RETURN(const Shape condition, context.InputShape(1));
  if (condition_type != DType::kBool || condition.size() != 1) {
    return context.Error(absl::StrCat("condition: got ", Name(condition_type), " of rank ",
                                      condition.size(), ", want bool of rank 1"));
  }
  ASSIGN_OR_RETURN(const std::optional<size_t> axis, OptionalAxis(context.node(), shape.size()));
  if (!axis.has_value()) shape = {ElementCount(shape)};
  DimExpr& dim = shape[axis.value_or(0)];
  if (context.InputConstant(1) == nullptr) {
    RETURN_IF_ERROR(context.Check(IsLess(condition[0], dim + 1),
                                  absl::StrCat("condition: got ", condition[0].ToString(),
                                               " elements, limit ", dim.ToString())));
    dim = Found(context.node());
    return context.SetOutput(0, dtype, std::move(shape));
  }
  const std::vector<int64_t> places = TruePlaces(Int64Values(*context.InputConstant(1)));
  if (!places.empty()) {
    RETURN_IF_ERROR(context.Check(
        IsLess(places.back(), dim),
        absl::StrCat("condition names element ", places.back(), " of ", dim.ToString())));
  }
  dim = static_cast<int64_t>(places.size());
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  return FollowMoves(context, kFirstInput, CompressReference);
}

absl::Status LowerCompress(LowerContext& context) {
  const Node& node = context.node();
  ASSIGN_OR_RETURN(const std::optional<size_t> axis,
                   OptionalAxis(node, context.InputShape(0).size()));
  ValueId list = kNoValue;
  DimExpr room;
  if (const std::optional<Tensor>& constant = context.input(1).constant; constant.has_value()) {
    const std::vector<int64_t> places = TruePlaces(Int64Values(*constant));
    room = static_cast<int64_t>(places.size());
    list = context.NewConstant(Tensor::FromInt64({*room.constant()}, places), "places");
  } else {
    const Shape condition = context.InputShape(1);
    room = condition[0];
    list = EmitFind(context, node.inputs[1], DType::kBool, condition);
  }
  EmitTakeRows(context, axis.value_or(0), !axis.has_value(), list, room);
  return absl::OkStatus();
}

// Unique: groups of equal elements, or of equal slices along an axis.

struct UniqueAttributes {
  std::optional<size_t> axis;
  bool sorted = true;
};
absl::StatusOr<UniqueAttributes> ReadUnique(const Node& node, size_t rank) {
  UniqueAttributes unique;
  ASSIGN_OR_RETURN(unique.axis, OptionalAxis(node, rank));
  ASSIGN_OR_RETURN(const int64_t sorted, node.Int("sorted", 1));
  unique.sorted = sorted != 0;
  return unique;
}

template <typename T>
int Order(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return (std::isnan(a) ? 1 : 0) - (std::isnan(b) ? 1 : 0);
  }
  return (a > b ? 1 : 0) - (a < b ? 1 : 0);
}

// The first of each group, and the group of each slice.
struct Groups {
  std::vector<int64_t> firsts, inverse, counts;
};

template <typename T>
Groups GroupSlices(const std::vector<T>& x, const Dims& from, size_t axis, bool sorted) {
  const int64_t length = from[axis];
  const int64_t inner = RowMajor(from)[axis];
  const auto compare = [&](int64_t a, int64_t b) {
    for (int64_t i = 0; length > 0 && i < static_cast<int64_t>(x.size()) / length; ++i) {
      const int64_t row = i / inner * length * inner + i % inner;
      const int order =
          Order(x[static_cast<size_t>(row + a * inner)], x[static_cast<size_t>(row + b * inner)]);
      if (order != 0) return order;
    }
    return 0;
  };
  std::vector<int64_t> order(static_cast<size_t>(length));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const int by_value = compare(a, b);
    return by_value != 0 ? by_value < 0 : a < b;
  });
  std::vector<std::vector<int64_t>> groups;
  for (const int64_t slice : order) {
    if (groups.empty() || compare(groups.back()[0], slice) != 0) groups.emplace_back();
    groups.back().push_back(slice);
  }
  if (!sorted) {
    std::sort(groups.begin(), groups.end(),
              [](const auto& a, const auto& b) { return a[0] < b[0]; });
  }
  Groups result;
  result.inverse.resize(order.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    result.firsts.push_back(groups[g][0]);
    result.counts.push_back(static_cast<int64_t>(groups[g].size()));
    for (const int64_t slice : groups[g]) {
      result.inverse[static_cast<size_t>(slice)] = static_cast<int64_t>(g);
    }
  }
  return result;
}

References UniqueReference(const ReferenceArguments& arguments) {
  const Tensor& x = arguments.inputs[0];
  ASSIGN_OR_RETURN(const UniqueAttributes unique, ReadUnique(arguments.node, x.shape().size()));
  Dims from = x.shape();
  if (!unique.axis.has_value()) from = {x.element_count()};
  const size_t axis = unique.axis.value_or(0);
  const Groups groups = WithArithmeticType(x.dtype(), [&]<typename T>(T) {
    return GroupSlices(ReadValues<T>(x), from, axis, unique.sorted);
  });
  ASSIGN_OR_RETURN(Tensor values, TakeRows(x, from, axis, groups.firsts));
  const auto list = [](const std::vector<int64_t>& numbers) {
    return Tensor::FromInt64({static_cast<int64_t>(numbers.size())}, numbers);
  };
  std::vector<Tensor> outputs;
  outputs.push_back(std::move(values));
  outputs.push_back(list(groups.firsts));
  outputs.push_back(list(groups.inverse));
  outputs.push_back(list(groups.counts));
  return outputs;
}

absl::Status InferUnique(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const UniqueAttributes unique, ReadUnique(context.node(), shape.size()));
  ASSIGN_OR_RETURN(const bool known, InferConstants(context, UniqueReference));
  if (known) return absl::OkStatus();
  if (!unique.axis.has_value()) shape = {ElementCount(shape)};
  const DimExpr groups = Found(context.node());
  const DimExpr length = std::exchange(shape[unique.axis.value_or(0)], groups);
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  RETURN_IF_ERROR(context.SetOutput(1, DType::kI64, {groups}));
  RETURN_IF_ERROR(context.SetOutput(2, DType::kI64, {length}));
  return context.SetOutput(3, DType::kI64, {groups});
}

absl::Status LowerUnique(LowerContext& context) {
  const Node& node = context.node();
  const Shape shape = context.InputShape(0);
  const DType dtype = context.input(0).dtype;
  ASSIGN_OR_RETURN(const UniqueAttributes unique, ReadUnique(node, shape.size()));
  const bool flat = !unique.axis.has_value();
  const size_t axis = unique.axis.value_or(0);
  const std::span<const DimExpr> dims = shape;
  const DimExpr before = flat ? 1 : ElementCount(dims.first(axis));
  const DimExpr length = flat ? ElementCount(shape) : shape[axis];
  const DimExpr after = flat ? 1 : ElementCount(dims.subspan(axis + 1));
  const Operand list = {.dtype = DType::kI64, .shape = {length}};
  const auto make = [&](absl::string_view name) {
    return context.NewValue(DType::kI64, {length}, name);
  };
  const ValueId firsts = make("firsts"), counts = make("counts");
  const ValueId inverse = context.HasOutput(2) ? node.outputs[2] : make("inverse");
  const ValueId count = context.NewValue(DType::kI64, {}, "count");
  // Two places of 8 bytes for each slice.
  constexpr int64_t kSliceBytes = 16;
  context.EmitLibrary({.skeleton = "unique",
                       .configuration = {static_cast<int64_t>(dtype), unique.sorted ? 1 : 0},
                       .operands = {{.dtype = dtype, .shape = shape}},
                       .outputs = {list, list, list, {.dtype = DType::kI64, .shape = {}}},
                       .dims = {before, length, after},
                       .scratch_bytes = kSliceBytes * length},
                      {node.inputs[0]}, {firsts, inverse, counts, count});
  context.EmitRead(count, Found(node).symbol_name(), length);
  if (context.HasOutput(0)) EmitTakeRows(context, axis, flat, firsts, length);
  for (const auto& [output, whole] : {std::pair<size_t, ValueId>(1, firsts), {3, counts}}) {
    if (!context.HasOutput(output)) continue;
    StageOperands operands;
    const int32_t from = operands.Add(whole, DType::kI64, {length});
    const Expr element = operands.Load(from, {Expr::Coord(0)});
    EmitMap(context, std::move(operands), element, output);
  }
  return absl::OkStatus();
}

// NonMaxSuppression: of boxes that overlap the one of the greatest score.

absl::StatusOr<bool> IsCentered(const Node& node) {
  ASSIGN_OR_RETURN(const int64_t centered, node.Int("center_point_box", 0));
  if (centered == 0 || centered == 1) return centered == 1;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": center_point_box: got ", centered, ", want 0 or 1"));
}

struct Corners {
  float y0, x0, y1, x1;
};

Corners CornersOf(const In<float>& boxes, int64_t at, bool centered) {
  const float a = boxes[at], b = boxes[at + 1], c = boxes[at + 2], d = boxes[at + 3];
  if (centered) return {b - d / 2, a - c / 2, b + d / 2, a + c / 2};
  return {std::min(a, c), std::min(b, d), std::max(a, c), std::max(b, d)};
}

float CommonShare(const Corners& a, const Corners& b) {
  const float height = std::min(a.y1, b.y1) - std::max(a.y0, b.y0);
  const float width = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  if (!(height > 0) || !(width > 0)) return 0;
  const float common = height * width;
  const float all = (a.y1 - a.y0) * (a.x1 - a.x0) + (b.y1 - b.y0) * (b.x1 - b.x0) - common;
  return all > 0 ? common / all : 0;
}

struct SuppressLimits {
  int64_t most = 0;
  float overlap = 0;
  std::optional<float> least;
};

absl::Status CheckOverlap(const Node& node, float overlap) {
  if (overlap >= 0 && overlap <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": iou_threshold: got ", overlap, ", limits 0 and 1"));
}

absl::StatusOr<SuppressLimits> ReadLimits(const ReferenceArguments& arguments) {
  const auto given = [&](size_t i) {
    return i < arguments.inputs.size() && arguments.inputs[i].valid();
  };
  for (size_t i = 2; i < arguments.inputs.size(); ++i) {
    if (given(i) && arguments.inputs[i].element_count() != 1) {
      return ReferenceError(arguments, absl::StrCat("input ", i, " must be one number"));
    }
  }
  SuppressLimits limits;
  if (given(2)) limits.most = arguments.inputs[2].ValueAsInt64(0);
  if (given(3)) limits.overlap = static_cast<float>(arguments.inputs[3].ValueAsDouble(0));
  if (given(4)) limits.least = static_cast<float>(arguments.inputs[4].ValueAsDouble(0));
  RETURN_IF_ERROR(CheckOverlap(arguments.node, limits.overlap));
  return limits;
}

References SuppressReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const SuppressLimits limits, ReadLimits(arguments));
  ASSIGN_OR_RETURN(const bool centered, IsCentered(arguments.node));
  const In<float> boxes(arguments.inputs[0]), scores(arguments.inputs[1]);
  const Dims& dims = arguments.inputs[1].shape();
  std::vector<int64_t> rows;
  for (int64_t list = 0; list < dims[0] * dims[1]; ++list) {
    const int64_t batch = list / dims[1];
    std::vector<int64_t> order;
    for (int64_t i = 0; i < dims[2]; ++i) {
      const float score = scores[list * dims[2] + i];
      if (limits.least.has_value() ? score > *limits.least : !std::isnan(score)) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const float score_a = scores[list * dims[2] + a], score_b = scores[list * dims[2] + b];
      return score_a != score_b ? score_a > score_b : a < b;
    });
    std::vector<Corners> kept;
    for (const int64_t i : order) {
      if (static_cast<int64_t>(kept.size()) >= limits.most) break;
      const Corners box = CornersOf(boxes, (batch * dims[2] + i) * 4, centered);
      const bool overlaps = std::ranges::any_of(
          kept, [&](const Corners& other) { return CommonShare(box, other) > limits.overlap; });
      if (overlaps) continue;
      kept.push_back(box);
      rows.insert(rows.end(), {batch, list % dims[1], i});
    }
  }
  return One(Tensor::FromInt64({static_cast<int64_t>(rows.size()) / 3, 3}, rows));
}

absl::Status CheckNumber(InferContext& context, size_t i, DType want, absl::string_view name) {
  if (!context.HasInput(i)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(i));
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(i));
  if (dtype != want) {
    return context.Error(absl::StrCat(name, ": got ", Name(dtype), ", want ", Name(want)));
  }
  return RequireEqual(context, ElementCount(shape), 1, absl::StrCat("elements of ", name));
}

absl::Status InferSuppress(InferContext& context) {
  constexpr absl::string_view kNames[] = {"boxes", "scores"};
  for (size_t i = 0; i < 2; ++i) {
    ASSIGN_OR_RETURN(const DType dtype, context.InputDType(i));
    ASSIGN_OR_RETURN(const Shape shape, context.InputShape(i));
    if (dtype != DType::kF32 || shape.size() != 3) {
      return context.Error(absl::StrCat(kNames[i], ": got ", Name(dtype), " of rank ", shape.size(),
                                        ", want f32 of rank 3"));
    }
  }
  ASSIGN_OR_RETURN(const Shape boxes, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape scores, context.InputShape(1));
  RETURN_IF_ERROR(RequireEqual(context, boxes[0], scores[0], "batches of boxes and scores"));
  RETURN_IF_ERROR(RequireEqual(context, boxes[1], scores[2], "numbers of boxes and scores"));
  RETURN_IF_ERROR(RequireEqual(context, boxes[2], 4, "numbers of a box"));
  RETURN_IF_ERROR(CheckNumber(context, 2, DType::kI64, "max_output_boxes_per_class"));
  RETURN_IF_ERROR(CheckNumber(context, 3, DType::kF32, "iou_threshold"));
  RETURN_IF_ERROR(CheckNumber(context, 4, DType::kF32, "score_threshold"));
  RETURN_IF_ERROR(IsCentered(context.node()).status());
  if (const Tensor* overlap = context.InputConstant(3); overlap != nullptr) {
    RETURN_IF_ERROR(CheckOverlap(context.node(), static_cast<float>(overlap->ValueAsDouble(0))));
  }
  ASSIGN_OR_RETURN(const bool known, InferConstants(context, SuppressReference));
  if (known) return absl::OkStatus();
  if (context.HasInput(3) && context.InputConstant(3) == nullptr) {
    RETURN_IF_ERROR(
        context.Check(CountOf(context.node(), "iou_threshold"), "iou_threshold must be in 0 to 1"));
  }
  return context.SetOutput(0, DType::kI64, {Found(context.node()), 3});
}

// An overlap that a request brings is checked on the way.
void EmitOverlapCheck(LowerContext& context, ValueId overlap, const Shape& shape) {
  const ValueId fits = context.NewValue(DType::kBool, {}, "fits");
  StageOperands operands;
  const int32_t operand = operands.Add(overlap, DType::kF32, shape);
  const Expr value = operands.Load(operand, std::vector<Expr>(shape.size(), Int(0)));
  Nest nest;
  nest.result = And(LessEqual(Expr::Constant(DType::kF32, 0), value),
                    LessEqual(value, Expr::Constant(DType::kF32, 1)));
  nest.output = {.dtype = DType::kBool, .shape = {}};
  EmitNest(context, std::move(operands), std::move(nest), fits);
  context.EmitRead(fits, CountOf(context.node(), "iou_threshold").symbol_name(), 1);
}

// How many a class may keep, as far as that is known.
DimExpr MostOf(LowerContext& context, const DimExpr& boxes) {
  if (!context.HasInput(2)) return 0;
  const Value& most = context.input(2);
  if (!most.symbolic.has_value() || most.symbolic->size() != 1) return boxes;
  return Max(0, Min(boxes, (*most.symbolic)[0]));
}

absl::Status LowerSuppress(LowerContext& context) {
  const Node& node = context.node();
  const Shape scores = context.InputShape(1);
  ASSIGN_OR_RETURN(const bool centered, IsCentered(node));
  // The limits, or what they are when they are left out.
  const Tensor defaults[] = {Tensor::Scalar(DType::kI64, 0), Tensor::Scalar(DType::kF32, 0),
                             Tensor::Scalar(DType::kF32, 0)};
  std::vector<ValueId> operands = {node.inputs[0], node.inputs[1]};
  Library library;
  library.skeleton = "suppress";
  library.configuration = {centered ? 1 : 0, context.HasInput(4) ? 1 : 0};
  library.operands = {{.dtype = DType::kF32, .shape = context.InputShape(0)},
                      {.dtype = DType::kF32, .shape = scores}};
  for (size_t i = 2; i < 5; ++i) {
    const bool given = context.HasInput(i);
    operands.push_back(given ? node.inputs[i] : context.NewConstant(defaults[i - 2], "default"));
    library.operands.push_back(
        {.dtype = defaults[i - 2].dtype(), .shape = given ? context.InputShape(i) : Shape{}});
  }
  if (context.HasInput(3) && !context.input(3).constant.has_value()) {
    EmitOverlapCheck(context, node.inputs[3], context.InputShape(3));
  }
  const DimExpr places = MostOf(context, scores[2]);
  const DimExpr lists = scores[0] * scores[1];
  const Operand kept = {.dtype = DType::kI64, .shape = {lists, places}};
  const Operand lengths = {.dtype = DType::kI64, .shape = {lists}};
  const ValueId kept_id = context.NewValue(DType::kI64, kept.shape, "kept");
  const ValueId lengths_id = context.NewValue(DType::kI64, lengths.shape, "lengths");
  // A score and an index, twice.
  constexpr int64_t kBoxBytes = 32;
  library.outputs = {kept, lengths};
  library.dims = {scores[2], scores[1], places};
  library.tasks = lists;
  library.scratch_bytes = kBoxBytes * scores[2];
  context.EmitLibrary(std::move(library), std::move(operands), {kept_id, lengths_id});

  const DimExpr room = lists * places;
  const ValueId rows = context.NewValue(DType::kI64, {room, 3}, "rows");
  const ValueId count = context.NewValue(DType::kI64, {}, "count");
  Library join;
  join.skeleton = "join_lists";
  join.operands = {kept, lengths};
  join.outputs = {{.dtype = DType::kI64, .shape = {room, 3}}, {.dtype = DType::kI64, .shape = {}}};
  join.dims = {scores[1], places, lists};
  context.EmitLibrary(std::move(join), {kept_id, lengths_id}, {rows, count});
  context.EmitRead(count, Found(node).symbol_name(), room);
  StageOperands loads;
  const int32_t from = loads.Add(rows, DType::kI64, {room, 3});
  const Expr element = loads.Load(from, Coords(0, 2));
  EmitMap(context, std::move(loads), element);
  return absl::OkStatus();
}

constexpr Variant kCompressVariants[] = {{"places", AlwaysApplies, LowerCompress}};
constexpr Variant kNonZeroVariants[] = {{"nonzero", AlwaysApplies, LowerNonZero}};
constexpr Variant kSuppressVariants[] = {{"suppress", AlwaysApplies, LowerSuppress}};
constexpr Variant kUniqueVariants[] = {{"unique", AlwaysApplies, LowerUnique}};

constexpr OpDefinition kOps[] = {
    {.name = "Compress",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferCompress,
     .reference = CompressReference,
     .variants = kCompressVariants},
    {.name = "NonMaxSuppression",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 5,
     .infer = InferSuppress,
     .reference = SuppressReference,
     .variants = kSuppressVariants},
    {.name = "NonZero",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferNonZero,
     .reference = NonZeroReference,
     .variants = kNonZeroVariants},
    {.name = "Unique",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .min_outputs = 1,
     .max_outputs = 4,
     .infer = InferUnique,
     .reference = UniqueReference,
     .variants = kUniqueVariants},
};

}  // namespace

std::span<const OpDefinition> CountedOps() { return kOps; }

}  // namespace stampmill
