// Operators that write elements at positions given by another tensor: Scatter, ScatterElements,
// ScatterND, TensorScatter.
//
// They are lowered as the reverse: every element of the output looks for the updates that name it,
// in a reduction over all updates that could. That is the same result however the work is split,
// and writes nothing twice; its price is the number of updates for every element.
// Without a reduction the last update of an element wins, as in numpy; its position is what is
// reduced, since a maximum does not depend on the order.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/indices.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

enum class Combine : uint8_t { kReplace, kAdd, kMul, kMin, kMax };

absl::StatusOr<Combine> CombineOf(const Node& node) {
  ASSIGN_OR_RETURN(const std::string reduction, node.String("reduction", "none"));
  if (reduction == "none") return Combine::kReplace;
  if (reduction == "add") return Combine::kAdd;
  if (reduction == "mul") return Combine::kMul;
  if (reduction == "min") return Combine::kMin;
  if (reduction == "max") return Combine::kMax;
  return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": reduction: got '", reduction,
                                                 "', takes none, add, mul, min or max"));
}

// Reference arithmetic: floats in double, integers wrapping.
template <typename T>
T Combined(Combine combine, T a, T b) {
  switch (combine) {
    case Combine::kReplace:
      return b;
    case Combine::kAdd:
      return WrapAdd(a, b);
    case Combine::kMul:
      return WrapMul(a, b);
    case Combine::kMin:
      return NanMin(a, b);
    case Combine::kMax:
      return NanMax(a, b);
  }
  return a;
}

// Applies updates[i] to element targets[i] of a copy of `data`, in order.
References ApplyUpdates(const Tensor& data, const Tensor& updates,
                        const std::vector<int64_t>& targets, Combine combine) {
  return WithArithmeticType(data.dtype(), [&](auto zero) -> References {
    using T = decltype(zero);
    std::vector<T> values = ReadValues<T>(data);
    const std::vector<T> changes = ReadValues<T>(updates);
    for (size_t i = 0; i < targets.size(); ++i) {
      T& value = values[static_cast<size_t>(targets[i])];
      value = Combined(combine, value, changes[i]);
    }
    ASSIGN_OR_RETURN(Tensor output, MakeTensor(data.dtype(), data.shape(), values));
    return One(std::move(output));
  });
}

absl::StatusOr<size_t> ScatterAxis(const Node& node, size_t rank) {
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", 0));
  return NormalizeAxis(node, axis, rank);
}

absl::Status CheckUpdateType(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const DType updates, context.InputDType(2));
  ASSIGN_OR_RETURN(const Combine combine, CombineOf(context.node()));
  if (updates != dtype) {
    return context.Error(absl::StrCat("updates are ", Name(updates), ", data ", Name(dtype)));
  }
  if (dtype == DType::kBool && (combine == Combine::kAdd || combine == Combine::kMul)) {
    return context.Error("reduction: bool elements cannot be added or multiplied");
  }
  return CheckIndexType(context, 1);
}

References ScatterElementsReference(const ReferenceArguments& arguments);
References ScatterNDReference(const ReferenceArguments& arguments);

// Contents stay known where elements are only replaced.
absl::Status FollowReplaced(InferContext& context, Reference reference) {
  ASSIGN_OR_RETURN(const Combine combine, CombineOf(context.node()));
  if (combine != Combine::kReplace) return absl::OkStatus();
  const size_t data[] = {0, 2};
  return FollowMoves(context, data, reference);
}

absl::Status InferScatterElements(InferContext& context) {
  RETURN_IF_ERROR(CheckUpdateType(context));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape data, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape indices, context.InputShape(1));
  ASSIGN_OR_RETURN(const Shape updates, context.InputShape(2));
  ASSIGN_OR_RETURN(const size_t axis, ScatterAxis(context.node(), data.size()));
  if (indices.size() != data.size() || updates.size() != data.size()) {
    return context.Error(absl::StrCat("data, indices and updates must have one rank, got ",
                                      ToString(data), ", ", ToString(indices), " and ",
                                      ToString(updates)));
  }
  for (size_t d = 0; d < data.size(); ++d) {
    RETURN_IF_ERROR(RequireEqual(context, indices[d], updates[d],
                                 absl::StrCat("dim ", d, " of indices and updates")));
    if (d == axis) continue;
    RETURN_IF_ERROR(context.Check(IsNot(IsLess(data[d], indices[d])),
                                  absl::StrCat("indices: dim ", d, " is longer than data's")));
  }
  context.CheckIndices(1, data[axis]);
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(data)));
  return FollowReplaced(context, ScatterElementsReference);
}

References ScatterElementsReference(const ReferenceArguments& arguments) {
  const Tensor& data = arguments.inputs[0];
  const Tensor& indices = arguments.inputs[1];
  ASSIGN_OR_RETURN(const size_t axis, ScatterAxis(arguments.node, data.shape().size()));
  ASSIGN_OR_RETURN(const Combine combine, CombineOf(arguments.node));
  if (indices.rank() != data.rank() || indices.shape() != arguments.inputs[2].shape()) {
    return ReferenceError(arguments, "indices and updates must have one shape of data's rank");
  }
  for (size_t d = 0; d < data.shape().size(); ++d) {
    if (d != axis && indices.shape()[d] > data.shape()[d]) {
      return ReferenceError(arguments, absl::StrCat("indices: dim ", d, " is longer than data's"));
    }
  }
  const Dims list = Int64Values(indices);
  const Dims strides = RowMajor(data.shape());
  std::vector<int64_t> targets;
  absl::Status status;
  ForEachIndex(indices.shape(), [&](const Dims& index) {
    const absl::StatusOr<int64_t> place =
        IndexOf(arguments, list[targets.size()], data.shape()[axis]);
    if (!place.ok()) status = place.status();
    Dims at = index;
    at[axis] = place.value_or(0);
    targets.push_back(OffsetOf(at, strides));
  });
  RETURN_IF_ERROR(status);
  return ApplyUpdates(data, arguments.inputs[2], targets, combine);
}

// The greatest position for which `match` holds, -1 for none.
Reduction LastMatch(const Expr& match, const Expr& position) {
  const Expr best = Expr::Accumulator(DType::kI64, 0);
  return {.init = {Int(-1)},
          .update = {Maximum(best, Expr::Select(match, position, Int(-1)))},
          .merge = {Maximum(best, Expr::Accumulator(DType::kI64, 1))},
          .result = best};
}

// All updates for which `match` holds, combined from the identity of the operation.
struct Gathering {
  Reduction reduction;
  Expr (*apply)(const Expr& data, const Expr& gathered);
};
Gathering GatherUpdates(Combine combine, const Expr& match, const Expr& update) {
  const DType dtype = update.dtype();
  const Expr total = Expr::Accumulator(dtype, 0);
  const Expr other = Expr::Accumulator(dtype, 1);
  Expr identity;
  Expr (*apply)(const Expr&, const Expr&);
  if (combine == Combine::kAdd) {
    identity = Expr::ConstantInt(dtype, 0);
    apply = [](const Expr& a, const Expr& b) { return a + b; };
  } else if (combine == Combine::kMul) {
    identity = Expr::ConstantInt(dtype, 1);
    apply = [](const Expr& a, const Expr& b) { return a * b; };
  } else if (combine == Combine::kMin) {
    identity = HighestValue(dtype);
    apply = [](const Expr& a, const Expr& b) { return Minimum(a, b); };
  } else {
    identity = LowestValue(dtype);
    apply = [](const Expr& a, const Expr& b) { return Maximum(a, b); };
  }
  return {.reduction = {.init = {identity},
                        .update = {apply(total, Expr::Select(match, update, identity))},
                        .merge = {apply(total, other)},
                        .result = total},
          .apply = apply};
}

// Bool has minima and maxima as logic, but no arithmetic: it is reduced as u8.
DType ReducedType(DType dtype) { return dtype == DType::kBool ? DType::kU8 : ComputeType(dtype); }

void EmitScatter(LowerContext& context, StageOperands operands, Nest nest) {
  const Value& output = context.output(0);
  nest.result = Expr::Cast(output.dtype, nest.result);
  nest.output = {.dtype = output.dtype, .shape = *output.shape};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
}

absl::Status LowerScatterElements(LowerContext& context) {
  const Shape& shape = context.InputShape(0);
  const Shape& index_shape = context.InputShape(1);
  ASSIGN_OR_RETURN(const size_t axis, ScatterAxis(context.node(), shape.size()));
  ASSIGN_OR_RETURN(const Combine combine, CombineOf(context.node()));
  StageOperands operands;
  const int32_t data = operands.AddInput(context, 0);
  const int32_t indices = operands.AddInput(context, 1);
  const int32_t updates = operands.AddInput(context, 2);
  Nest nest;
  nest.kept = shape;
  nest.reduced = {index_shape[axis]};
  const std::vector<Expr> here = Coords(0, shape.size());
  const Expr position = Expr::Coord(static_cast<int32_t>(shape.size()));
  // Beside the axis, indices may cover only the beginning of data.
  Expr covered;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d != axis && shape[d] != index_shape[d]) {
      covered = And(covered, Less(here[d], Extent(index_shape[d])));
    }
  }
  std::vector<Expr> at = here;
  at[axis] = position;
  const DType index_type = context.input(1).dtype;
  // Out of range: names no element.
  const Expr nowhere = Expr::ConstantInt(index_type, -1);
  const Expr index = Expr::Cast(DType::kI64, operands.LoadIf(covered, indices, at, nowhere));
  const Expr front = Expr::Select(Less(index, Int(0)), index + Extent(shape[axis]), index);
  const Expr match = And(covered, Equal(front, here[axis]));
  const DType dtype = context.output(0).dtype;
  if (combine == Combine::kReplace) {
    nest.reductions = {LastMatch(match, position)};
    const Expr found = Expr::Reduced(DType::kI64, 0);
    at[axis] = found;
    nest.result = operands.LoadIf(LessEqual(Int(0), found), updates, at, operands.Load(data, here));
  } else {
    const DType compute = ReducedType(dtype);
    const Expr update = operands.LoadIf(match, updates, at, Expr::ConstantInt(dtype, 0));
    const Gathering gathering = GatherUpdates(combine, match, Expr::Cast(compute, update));
    nest.reductions = {gathering.reduction};
    nest.result =
        gathering.apply(Expr::Cast(compute, operands.Load(data, here)), Expr::Reduced(compute, 0));
  }
  EmitScatter(context, std::move(operands), std::move(nest));
  return absl::OkStatus();
}

// Length of the index tuples of ScatterND: constant, at most the rank of the data.
absl::StatusOr<size_t> TupleLength(const Node& node, size_t data_rank, const Shape& indices) {
  if (indices.empty() || !indices.back().is_constant()) {
    return absl::UnimplementedError(absl::StrCat(
        node.Describe(), ": indices: last dim must be constant, got ", ToString(indices)));
  }
  const int64_t length = *indices.back().constant();
  if (length < 0 || length > static_cast<int64_t>(data_rank)) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": indices: tuples of ", length,
                                                   " for data of rank ", data_rank));
  }
  return static_cast<size_t>(length);
}

absl::Status InferScatterND(InferContext& context) {
  RETURN_IF_ERROR(CheckUpdateType(context));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape data, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape indices, context.InputShape(1));
  ASSIGN_OR_RETURN(const Shape updates, context.InputShape(2));
  ASSIGN_OR_RETURN(const size_t tuple, TupleLength(context.node(), data.size(), indices));
  Shape want(indices.begin(), indices.end() - 1);
  want.insert(want.end(), data.begin() + static_cast<int64_t>(tuple), data.end());
  if (updates.size() != want.size()) {
    return context.Error(
        absl::StrCat("updates are ", ToString(updates), ", must be ", ToString(want)));
  }
  for (size_t d = 0; d < want.size(); ++d) {
    RETURN_IF_ERROR(
        RequireEqual(context, updates[d], want[d], absl::StrCat("dim ", d, " of updates")));
  }
  CheckTuples(context, std::span(data).first(tuple));
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(data)));
  return FollowReplaced(context, ScatterNDReference);
}

References ScatterNDReference(const ReferenceArguments& arguments) {
  const Tensor& data = arguments.inputs[0];
  const Tensor& indices = arguments.inputs[1];
  ASSIGN_OR_RETURN(const Combine combine, CombineOf(arguments.node));
  const Shape index_shape(indices.shape().begin(), indices.shape().end());
  ASSIGN_OR_RETURN(const size_t tuple,
                   TupleLength(arguments.node, data.shape().size(), index_shape));
  const Dims strides = RowMajor(data.shape());
  const Dims inner(data.shape().begin() + static_cast<int64_t>(tuple), data.shape().end());
  Dims want(indices.shape().begin(), indices.shape().end() - 1);
  const int64_t tuples = ProductOf(want);
  want.insert(want.end(), inner.begin(), inner.end());
  if (arguments.inputs[2].shape() != want) {
    return ReferenceError(arguments, "updates have another shape than indices and data ask for");
  }
  const Dims list = Int64Values(indices);
  const int64_t count = ProductOf(inner);
  std::vector<int64_t> targets;
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t base = 0;
    for (size_t j = 0; j < tuple; ++j) {
      ASSIGN_OR_RETURN(
          const int64_t place,
          IndexOf(arguments, list[static_cast<size_t>(t) * tuple + j], data.shape()[j]));
      base += place * strides[j];
    }
    for (int64_t i = 0; i < count; ++i) targets.push_back(base + i);
  }
  return ApplyUpdates(data, arguments.inputs[2], targets, combine);
}

// The pieces of a ScatterND's nests. Updates are named by the axes of indices but the last.
struct TupleNest {
  size_t tuple = 0;       // axes of data that a tuple names
  Shape updates;          // axes of the tuples
  Shape updates_strides;  // of a position among them
  // What a nest reduces over: one tuple without axes counts as an axis of 1.
  Shape Reduced() const { return updates.empty() ? Shape{1} : updates; }
};

// Whether the tuple at reduced coordinates `at` names the kept coordinates `here`.
Expr TupleMatches(const TupleNest& form, const Shape& data_shape, const StageOperands& operands,
                  int32_t indices, const std::vector<Expr>& at, const std::vector<Expr>& here) {
  Expr match;
  for (size_t j = 0; j < form.tuple; ++j) {
    std::vector<Expr> place = at;
    place.push_back(Int(static_cast<int64_t>(j)));
    const Expr index = Expr::Cast(DType::kI64, operands.Load(indices, std::move(place)));
    const Expr front = Expr::Select(Less(index, Int(0)), index + Extent(data_shape[j]), index);
    match = And(match, Equal(front, here[j]));
  }
  return match.valid() ? match : Expr::ConstantInt(DType::kBool, 1);
}

// Without a reduction: the last tuple for each row of data, then a map that takes the row from
// there or from data.
void LowerLastTuple(LowerContext& context, const TupleNest& form) {
  const Shape shape = context.InputShape(0);
  const Shape index_shape = context.InputShape(1);
  const ValueId index_value = context.node().inputs[1];
  const DType index_type = context.input(1).dtype;
  const Shape rows(shape.begin(), shape.begin() + static_cast<int64_t>(form.tuple));
  const ValueId winners = context.NewValue(DType::kI64, rows, "winners");
  {
    StageOperands operands;
    const int32_t indices = operands.Add(index_value, index_type, index_shape);
    Nest nest;
    nest.kept = rows;
    nest.reduced = form.Reduced();
    const std::vector<Expr> at = Coords(rows.size(), form.updates.size());
    Expr position = Int(0);
    for (size_t d = 0; d < at.size(); ++d) {
      position = position + at[d] * Extent(form.updates_strides[d]);
    }
    const Expr match = TupleMatches(form, shape, operands, indices, at, Coords(0, rows.size()));
    nest.reductions = {LastMatch(match, position)};
    nest.result = Expr::Reduced(DType::kI64, 0);
    nest.output = {.dtype = DType::kI64, .shape = rows};
    EmitNest(context, std::move(operands), std::move(nest), winners);
  }
  StageOperands operands;
  const int32_t data = operands.AddInput(context, 0);
  const int32_t updates = operands.AddInput(context, 2);
  const int32_t winner = operands.Add(winners, DType::kI64, rows);
  const std::vector<Expr> here = Coords(0, shape.size());
  const Expr position = operands.Load(winner, Coords(0, rows.size()));
  std::vector<Expr> at;
  for (size_t d = 0; d < form.updates.size(); ++d) {
    const Expr place = FloorDivide(position, Extent(form.updates_strides[d]));
    at.push_back(d == 0 ? place : FloorModulo(place, Extent(form.updates[d])));
  }
  at.insert(at.end(), here.begin() + static_cast<int64_t>(form.tuple), here.end());
  const Expr element = operands.LoadIf(LessEqual(Int(0), position), updates, std::move(at),
                                       operands.Load(data, here));
  EmitMap(context, std::move(operands), element);
}

absl::Status LowerScatterND(LowerContext& context) {
  const Shape& shape = context.InputShape(0);
  const Shape& index_shape = context.InputShape(1);
  ASSIGN_OR_RETURN(const Combine combine, CombineOf(context.node()));
  TupleNest form;
  ASSIGN_OR_RETURN(form.tuple, TupleLength(context.node(), shape.size(), index_shape));
  form.updates = Shape(index_shape.begin(), index_shape.end() - 1);
  form.updates_strides = RowMajorStrides(form.updates);
  if (combine == Combine::kReplace) {
    LowerLastTuple(context, form);
    return absl::OkStatus();
  }
  StageOperands operands;
  const int32_t data = operands.AddInput(context, 0);
  const int32_t indices = operands.AddInput(context, 1);
  const int32_t updates = operands.AddInput(context, 2);
  Nest nest;
  nest.kept = shape;
  nest.reduced = form.Reduced();
  const std::vector<Expr> here = Coords(0, shape.size());
  std::vector<Expr> at = Coords(shape.size(), form.updates.size());
  const Expr match = TupleMatches(form, shape, operands, indices, at, here);
  at.insert(at.end(), here.begin() + static_cast<int64_t>(form.tuple), here.end());
  const DType dtype = context.output(0).dtype;
  const DType compute = ReducedType(dtype);
  const Expr update = operands.LoadIf(match, updates, std::move(at), Expr::ConstantInt(dtype, 0));
  const Gathering gathering = GatherUpdates(combine, match, Expr::Cast(compute, update));
  nest.reductions = {gathering.reduction};
  nest.result =
      gathering.apply(Expr::Cast(compute, operands.Load(data, here)), Expr::Reduced(compute, 0));
  EmitScatter(context, std::move(operands), std::move(nest));
  return absl::OkStatus();
}

// TensorScatter: rows of a cache replaced from a position on, one for each batch entry.
absl::StatusOr<size_t> CacheAxis(const Node& node, size_t rank) {
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", -2));
  ASSIGN_OR_RETURN(const size_t place, NormalizeAxis(node, axis, rank));
  if (place != 0) return place;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": axis: the batch axis cannot be the sequence axis"));
}

absl::StatusOr<bool> IsCircular(const Node& node) {
  ASSIGN_OR_RETURN(const std::string mode, node.String("mode", "linear"));
  if (mode != "linear" && mode != "circular") {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": mode: got '", mode, "', takes linear or circular"));
  }
  return mode == "circular";
}

absl::Status InferTensorScatter(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const DType update_type, context.InputDType(1));
  ASSIGN_OR_RETURN(Shape past, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape update, context.InputShape(1));
  ASSIGN_OR_RETURN(const size_t axis, CacheAxis(context.node(), past.size()));
  RETURN_IF_ERROR(IsCircular(context.node()).status());
  if (update_type != dtype || update.size() != past.size()) {
    return context.Error(absl::StrCat("update is ", Name(update_type), ToString(update),
                                      ", past_cache ", Name(dtype), ToString(past)));
  }
  for (size_t d = 0; d < past.size(); ++d) {
    if (d == axis) {
      RETURN_IF_ERROR(
          context.Check(IsNot(IsLess(past[d], update[d])), "update has more rows than the cache"));
    } else {
      RETURN_IF_ERROR(RequireEqual(context, past[d], update[d],
                                   absl::StrCat("dim ", d, " of past_cache and update")));
    }
  }
  if (context.HasInput(2)) {
    RETURN_IF_ERROR(CheckIndexType(context, 2));
    ASSIGN_OR_RETURN(const Shape starts, context.InputShape(2));
    if (starts.size() != 1) return context.Error("write_indices must have one dim");
    RETURN_IF_ERROR(RequireEqual(context, starts[0], past[0], "write_indices and batch"));
  }
  return context.SetOutput(0, dtype, std::move(past));
}

References TensorScatterReference(const ReferenceArguments& arguments) {
  const Tensor& past = arguments.inputs[0];
  const Tensor& update = arguments.inputs[1];
  ASSIGN_OR_RETURN(const size_t axis, CacheAxis(arguments.node, past.shape().size()));
  ASSIGN_OR_RETURN(const bool circular, IsCircular(arguments.node));
  Dims starts(static_cast<size_t>(past.shape()[0]), 0);
  if (arguments.inputs.size() > 2 && arguments.inputs[2].valid()) {
    starts = Int64Values(arguments.inputs[2]);
  }
  Dims same = update.shape();
  if (same.size() == past.shape().size()) same[axis] = past.shape()[axis];
  if (same != past.shape() || update.dtype() != past.dtype() ||
      static_cast<int64_t>(starts.size()) != past.shape()[0]) {
    return ReferenceError(arguments, "update and write_indices do not fit past_cache");
  }
  const Dims strides = RowMajor(past.shape());
  const int64_t rows = past.shape()[axis];
  std::vector<int64_t> targets;
  absl::Status status;
  ForEachIndex(update.shape(), [&](const Dims& index) {
    Dims at = index;
    at[axis] += starts[static_cast<size_t>(index[0])];
    if (circular) at[axis] %= rows;
    if (at[axis] < 0 || at[axis] >= rows) {
      status = ReferenceError(
          arguments, absl::StrCat("write_indices: row ", at[axis], " of a cache of ", rows));
      return;
    }
    targets.push_back(OffsetOf(at, strides));
  });
  RETURN_IF_ERROR(status);
  return ApplyUpdates(past, update, targets, Combine::kReplace);
}

absl::Status LowerTensorScatter(LowerContext& context) {
  const Shape& past_shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const size_t axis, CacheAxis(context.node(), past_shape.size()));
  ASSIGN_OR_RETURN(const bool circular, IsCircular(context.node()));
  StageOperands operands;
  const int32_t past = operands.AddInput(context, 0);
  const int32_t update = operands.AddInput(context, 1);
  const std::vector<Expr> here = Coords(0, past_shape.size());
  Expr row = here[axis];
  if (context.HasInput(2)) {
    const int32_t starts = operands.AddInput(context, 2);
    row = row - Expr::Cast(DType::kI64, operands.Load(starts, {here[0]}));
  }
  if (circular) row = FloorModulo(row, Extent(past_shape[axis]));
  std::vector<Expr> at = here;
  at[axis] = row;
  const Expr element = operands.LoadIf(InRange(row, context.InputShape(1)[axis]), update,
                                       std::move(at), operands.Load(past, here));
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

constexpr OpDefinition Elements(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 3,
          .max_inputs = 3,
          .infer = InferScatterElements,
          .reference = ScatterElementsReference,
          .variants = kNest<LowerScatterElements>};
}

constexpr OpDefinition kOps[] = {
    Elements("ScatterElements"),
    Elements("Scatter"),  // its name until opset 11
    {.name = "ScatterND",
     .domain = "",
     .min_inputs = 3,
     .max_inputs = 3,
     .infer = InferScatterND,
     .reference = ScatterNDReference,
     .variants = kNest<LowerScatterND>},
    {.name = "TensorScatter",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 3,
     .infer = InferTensorScatter,
     .reference = TensorScatterReference,
     .variants = kNest<LowerTensorScatter>},
};

}  // namespace

std::span<const OpDefinition> ScatterOps() { return kOps; }

}  // namespace stampmill
