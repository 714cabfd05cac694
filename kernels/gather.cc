// Operators that read elements at positions given by another tensor: Gather, GatherElements,
// GatherND.
//
// Negative indices count from the end. An index out of range is an error in the reference, where it
// is known, and where it is an element of the model's input (InferContext::CheckIndices). One that
// the model computes is its own fault and never reads outside: kernels clamp it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/indices.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {

Expr ClampedIndex(const Expr& index, const DimExpr& extent) {
  const Expr wide = Expr::Cast(DType::kI64, index);
  const Expr front = Expr::Select(Less(wide, Int(0)), wide + Extent(extent), wide);
  return Maximum(Int(0), Minimum(front, Extent(extent - 1)));
}

absl::StatusOr<int64_t> IndexOf(const ReferenceArguments& arguments, int64_t index,
                                int64_t extent) {
  if (index < -extent || index >= extent) {
    return ReferenceError(
        arguments, absl::StrCat("indices: got ", index, ", limits ", -extent, " and ", extent - 1));
  }
  return index < 0 ? index + extent : index;
}

absl::Status CheckIndexType(InferContext& context, size_t i) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(i));
  if (dtype == DType::kI32 || dtype == DType::kI64) return absl::OkStatus();
  return context.Error(absl::StrCat("indices are ", Name(dtype), ", must be i32 or i64"));
}

void CheckTuples(InferContext& context, std::span<const DimExpr> extents) {
  const bool same = std::ranges::all_of(extents, [&](const DimExpr& e) { return e == extents[0]; });
  if (same && !extents.empty()) context.CheckIndices(1, extents[0]);
}

namespace {

constexpr size_t kFirstInput[] = {0};

absl::StatusOr<size_t> AxisAttribute(const Node& node, size_t rank) {
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", 0));
  return NormalizeAxis(node, axis, rank);
}

// The one index of a Gather that is known when the model is compiled, as x[:, 0] has; nullopt for
// several or an unknown one.
std::optional<DimExpr> KnownIndex(const std::vector<DimExpr>* contents) {
  if (contents == nullptr || contents->size() != 1) return std::nullopt;
  return (*contents)[0];
}

// Its place from the front.
DimExpr PlaceOf(const DimExpr& index, const DimExpr& extent) {
  if (index.LowerBound().value_or(-1) >= 0) return index;
  return Choose(IsLess(index, 0), index + extent, index);
}

References GatherReference(const ReferenceArguments& arguments) {
  const Tensor& data = arguments.inputs[0];
  const Tensor& indices = arguments.inputs[1];
  ASSIGN_OR_RETURN(const size_t axis, AxisAttribute(arguments.node, data.shape().size()));
  const Dims& from = data.shape();
  Dims dims(from.begin(), from.begin() + static_cast<int64_t>(axis));
  dims.insert(dims.end(), indices.shape().begin(), indices.shape().end());
  dims.insert(dims.end(), from.begin() + static_cast<int64_t>(axis) + 1, from.end());
  int64_t outer = 1;
  int64_t inner = 1;
  for (size_t d = 0; d < axis; ++d) outer *= from[d];
  for (size_t d = axis + 1; d < from.size(); ++d) inner *= from[d];
  std::vector<int64_t> places;
  for (const int64_t index : Int64Values(indices)) {
    ASSIGN_OR_RETURN(const int64_t place, IndexOf(arguments, index, from[axis]));
    places.push_back(place);
  }
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(data.dtype(), dims));
  RETURN_IF_ERROR(DispatchSize(data.dtype(), [&]<typename T>() {
    const In<T> x(data);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    for (int64_t o = 0; o < outer; ++o) {
      for (const int64_t place : places) {
        for (int64_t i = 0; i < inner; ++i) y[next++] = x[(o * from[axis] + place) * inner + i];
      }
    }
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status InferGather(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape data, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape indices, context.InputShape(1));
  RETURN_IF_ERROR(CheckIndexType(context, 1));
  ASSIGN_OR_RETURN(const size_t axis, AxisAttribute(context.node(), data.size()));
  if (const auto index = KnownIndex(context.InputSymbolic(1)); index.has_value()) {
    const DimExpr place = PlaceOf(*index, data[axis]);
    const DimExpr inside = Min(IsNot(IsLess(place, 0)), IsLess(place, data[axis]));
    RETURN_IF_ERROR(
        context.Check(inside, absl::StrCat("index ", index->ToString(),
                                           " is outside of an axis of ", data[axis].ToString())));
  }
  context.CheckIndices(1, data[axis]);
  Shape shape(data.begin(), data.begin() + static_cast<int64_t>(axis));
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), data.begin() + static_cast<int64_t>(axis) + 1, data.end());
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  return FollowMoves(context, kFirstInput, GatherReference);
}

// A load that reads only where `extent` is not 0; where that is known, always.
Expr LoadUnlessEmpty(const StageOperands& operands, int32_t operand, std::vector<Expr> coordinates,
                     std::span<const DimExpr> extents) {
  Expr some;
  for (const DimExpr& extent : extents) {
    if (extent.LowerBound().value_or(0) < 1) some = And(some, Less(Int(0), Extent(extent)));
  }
  return operands.LoadIf(some, operand, std::move(coordinates),
                         Expr::ConstantInt(operands.operand(operand).dtype, 0));
}

absl::Status LowerGather(LowerContext& context) {
  const Shape& data = context.InputShape(0);
  const size_t index_rank = context.InputShape(1).size();
  ASSIGN_OR_RETURN(const size_t axis, AxisAttribute(context.node(), data.size()));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  std::vector<Expr> coordinates = Coords(0, axis);
  const Value& indices = context.input(1);
  const auto known = KnownIndex(indices.symbolic.has_value() ? &*indices.symbolic : nullptr);
  if (known.has_value()) {
    coordinates.push_back(Extent(PlaceOf(*known, data[axis])));
  } else {
    const int32_t operand = operands.AddInput(context, 1);
    const Expr index = operands.Load(operand, Coords(axis, index_rank));
    coordinates.push_back(ClampedIndex(index, data[axis]));
  }
  const std::vector<Expr> rest = Coords(axis + index_rank, data.size() - axis - 1);
  coordinates.insert(coordinates.end(), rest.begin(), rest.end());
  const DimExpr extents[] = {known.has_value() ? DimExpr(1) : data[axis]};
  const Expr element = LoadUnlessEmpty(operands, input, std::move(coordinates), extents);
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

References GatherElementsReference(const ReferenceArguments& arguments) {
  const Tensor& data = arguments.inputs[0];
  const Tensor& indices = arguments.inputs[1];
  ASSIGN_OR_RETURN(const size_t axis, AxisAttribute(arguments.node, data.shape().size()));
  if (indices.rank() != data.rank()) return ReferenceError(arguments, "ranks differ");
  for (size_t d = 0; d < data.shape().size(); ++d) {
    if (d != axis && indices.shape()[d] > data.shape()[d]) {
      return ReferenceError(arguments, absl::StrCat("indices: dim ", d, " is longer than data's"));
    }
  }
  const Dims strides = RowMajor(data.shape());
  const Dims list = Int64Values(indices);
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(data.dtype(), indices.shape()));
  absl::Status status;
  RETURN_IF_ERROR(DispatchSize(data.dtype(), [&]<typename T>() {
    const In<T> x(data);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEachIndex(indices.shape(), [&](const Dims& index) {
      const absl::StatusOr<int64_t> place = IndexOf(arguments, list[next], data.shape()[axis]);
      if (!place.ok()) {
        status = place.status();
        return;
      }
      Dims from = index;
      from[axis] = *place;
      y[next++] = x[OffsetOf(from, strides)];
    });
    return status;
  }));
  return One(std::move(output));
}

absl::Status InferGatherElements(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape data, context.InputShape(0));
  ASSIGN_OR_RETURN(Shape indices, context.InputShape(1));
  RETURN_IF_ERROR(CheckIndexType(context, 1));
  ASSIGN_OR_RETURN(const size_t axis, AxisAttribute(context.node(), data.size()));
  if (indices.size() != data.size()) {
    return context.Error(
        absl::StrCat("indices have ", indices.size(), " dims, data ", data.size()));
  }
  for (size_t d = 0; d < data.size(); ++d) {
    if (d == axis) continue;
    RETURN_IF_ERROR(context.Check(IsNot(IsLess(data[d], indices[d])),
                                  absl::StrCat("indices: dim ", d, " is longer than data's")));
  }
  context.CheckIndices(1, data[axis]);
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(indices)));
  return FollowMoves(context, kFirstInput, GatherElementsReference);
}

absl::Status LowerGatherElements(LowerContext& context) {
  const Shape& data = context.InputShape(0);
  ASSIGN_OR_RETURN(const size_t axis, AxisAttribute(context.node(), data.size()));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const int32_t indices = operands.AddInput(context, 1);
  std::vector<Expr> coordinates = Coords(0, data.size());
  const Expr index = operands.Load(indices, coordinates);
  coordinates[axis] = ClampedIndex(index, data[axis]);
  const DimExpr extents[] = {data[axis]};
  const Expr element = LoadUnlessEmpty(operands, input, std::move(coordinates), extents);
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

// The parts of GatherND: batch axes, then `depth` axes that an index tuple names, then the rest.
struct TupleAxes {
  size_t batch = 0, depth = 0;
};
absl::StatusOr<TupleAxes> TupleAxesOf(const Node& node, size_t data_rank, size_t index_rank,
                                      int64_t tuple) {
  ASSIGN_OR_RETURN(const int64_t batch, node.Int("batch_dims", 0));
  if (batch < 0 || tuple < 1 || index_rank < 1 ||
      static_cast<size_t>(batch) >= std::min(data_rank, index_rank) ||
      static_cast<size_t>(batch + tuple) > data_rank) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": batch_dims ", batch, " and index tuples of ", tuple,
                     " do not fit data of rank ", data_rank, ", indices of rank ", index_rank));
  }
  return TupleAxes{static_cast<size_t>(batch), static_cast<size_t>(tuple)};
}

References GatherNDReference(const ReferenceArguments& arguments) {
  const Tensor& data = arguments.inputs[0];
  const Tensor& indices = arguments.inputs[1];
  if (indices.rank() < 1) return ReferenceError(arguments, "indices must have a dim");
  ASSIGN_OR_RETURN(const TupleAxes axes,
                   TupleAxesOf(arguments.node, data.shape().size(), indices.shape().size(),
                               indices.shape().back()));
  const Dims& from = data.shape();
  const Dims outer(indices.shape().begin(), indices.shape().end() - 1);
  const Dims inner(from.begin() + static_cast<int64_t>(axes.batch + axes.depth), from.end());
  Dims dims = outer;
  dims.insert(dims.end(), inner.begin(), inner.end());
  const Dims strides = RowMajor(from);
  const Dims list = Int64Values(indices);
  const int64_t count = ProductOf(inner);
  std::vector<int64_t> bases;
  absl::Status status;
  ForEachIndex(outer, [&](const Dims& index) {
    int64_t base = 0;
    for (size_t d = 0; d < axes.batch; ++d) base += index[d] * strides[d];
    const size_t tuple = bases.size() * axes.depth;
    for (size_t j = 0; j < axes.depth; ++j) {
      const absl::StatusOr<int64_t> place =
          IndexOf(arguments, list[tuple + j], from[axes.batch + j]);
      if (!place.ok()) status = place.status();
      base += place.value_or(0) * strides[axes.batch + j];
    }
    bases.push_back(base);
  });
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(data.dtype(), dims));
  RETURN_IF_ERROR(DispatchSize(data.dtype(), [&]<typename T>() {
    const In<T> x(data);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    for (const int64_t base : bases) {
      for (int64_t i = 0; i < count; ++i) y[next++] = x[base + i];
    }
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status InferGatherND(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape data, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape indices, context.InputShape(1));
  RETURN_IF_ERROR(CheckIndexType(context, 1));
  if (indices.empty() || !indices.back().is_constant()) {
    return context.Unsupported(
        absl::StrCat("indices: last dim must be constant, got ", ToString(indices)));
  }
  ASSIGN_OR_RETURN(const TupleAxes axes, TupleAxesOf(context.node(), data.size(), indices.size(),
                                                     *indices.back().constant()));
  for (size_t d = 0; d < axes.batch; ++d) {
    RETURN_IF_ERROR(RequireEqual(context, data[d], indices[d], absl::StrCat("batch dim ", d)));
  }
  CheckTuples(context, std::span(data).subspan(axes.batch, axes.depth));
  Shape shape(indices.begin(), indices.end() - 1);
  shape.insert(shape.end(), data.begin() + static_cast<int64_t>(axes.batch + axes.depth),
               data.end());
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  return FollowMoves(context, kFirstInput, GatherNDReference);
}

absl::Status LowerGatherND(LowerContext& context) {
  const Shape& data = context.InputShape(0);
  const Shape& shape = context.InputShape(1);
  ASSIGN_OR_RETURN(const TupleAxes axes, TupleAxesOf(context.node(), data.size(), shape.size(),
                                                     *shape.back().constant()));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const int32_t indices = operands.AddInput(context, 1);
  const size_t outer = shape.size() - 1;
  std::vector<Expr> coordinates = Coords(0, axes.batch);
  for (size_t j = 0; j < axes.depth; ++j) {
    std::vector<Expr> at = Coords(0, outer);
    at.push_back(Int(static_cast<int64_t>(j)));
    coordinates.push_back(
        ClampedIndex(operands.Load(indices, std::move(at)), data[axes.batch + j]));
  }
  const std::vector<Expr> rest = Coords(outer, data.size() - axes.batch - axes.depth);
  coordinates.insert(coordinates.end(), rest.begin(), rest.end());
  const std::span<const DimExpr> named(data.data() + axes.batch, axes.depth);
  const Expr element = LoadUnlessEmpty(operands, input, std::move(coordinates), named);
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

constexpr OpDefinition kOps[] = {
    {.name = "Gather",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferGather,
     .reference = GatherReference,
     .variants = kNest<LowerGather>},
    {.name = "GatherElements",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferGatherElements,
     .reference = GatherElementsReference,
     .variants = kNest<LowerGatherElements>},
    {.name = "GatherND",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferGatherND,
     .reference = GatherNDReference,
     .variants = kNest<LowerGatherND>},
};

}  // namespace

std::span<const OpDefinition> GatherOps() { return kOps; }

}  // namespace stampmill
