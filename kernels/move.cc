// Operators that put whole elements elsewhere by position alone: Transpose, Concat, Split, Tile,
// DepthToSpace, SpaceToDepth. Each is a map whose loads compute their coordinates, or, for Concat,
// one map per input into its part of the output.
#include <algorithm>
#include <numeric>

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

// out[index] = in[sum of index * strides] over `dims`.
References Strided(const Tensor& input, const Dims& dims, const Dims& strides) {
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(input.dtype(), dims));
  RETURN_IF_ERROR(DispatchSize(input.dtype(), [&]<typename T>() {
    const In<T> x(input);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEach<1>(dims, {strides}, [&](const std::array<int64_t, 1>& at) { y[next++] = x[at[0]]; });
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::StatusOr<std::vector<size_t>> Permutation(const Node& node, size_t rank) {
  std::vector<int64_t> reversed(rank);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  ASSIGN_OR_RETURN(const std::vector<int64_t> perm, node.Ints("perm", reversed));
  ASSIGN_OR_RETURN(const std::vector<size_t> places, NormalizeAxes(node, perm, rank));
  if (places.size() != rank) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": perm: got ", places.size(),
                                                   " entries, input has ", rank, " dims"));
  }
  return places;
}

References TransposeReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const std::vector<size_t> perm,
                   Permutation(arguments.node, input.shape().size()));
  const Dims own = RowMajor(input.shape());
  Dims dims;
  Dims strides;
  for (const size_t axis : perm) {
    dims.push_back(input.shape()[axis]);
    strides.push_back(own[axis]);
  }
  return Strided(input, dims, strides);
}

absl::Status InferTranspose(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape from, context.InputShape(0));
  ASSIGN_OR_RETURN(const std::vector<size_t> perm, Permutation(context.node(), from.size()));
  Shape shape;
  for (const size_t axis : perm) shape.push_back(from[axis]);
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  return FollowMoves(context, kFirstInput, TransposeReference);
}

absl::Status LowerTranspose(LowerContext& context) {
  const size_t rank = context.InputShape(0).size();
  ASSIGN_OR_RETURN(const std::vector<size_t> perm, Permutation(context.node(), rank));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  std::vector<Expr> coordinates(rank);
  for (size_t d = 0; d < rank; ++d) coordinates[perm[d]] = Expr::Coord(static_cast<int32_t>(d));
  const Expr element = operands.Load(input, std::move(coordinates));
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

absl::StatusOr<size_t> RequiredAxis(const Node& node, size_t rank) {
  if (!node.Has("axis")) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": axis: missing"));
  }
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", 0));
  return NormalizeAxis(node, axis, rank);
}

References ConcatReference(const ReferenceArguments& arguments) {
  const Tensor& first = arguments.inputs[0];
  ASSIGN_OR_RETURN(const size_t axis, RequiredAxis(arguments.node, first.shape().size()));
  Dims dims = first.shape();
  dims[axis] = 0;
  for (const Tensor& input : arguments.inputs) {
    Dims same = input.shape();
    if (same.size() != dims.size() || input.dtype() != first.dtype()) {
      return ReferenceError(arguments, "inputs must have one type and rank");
    }
    same[axis] = dims[axis];
    if (same != dims) return ReferenceError(arguments, "inputs differ beside the axis");
    if (__builtin_add_overflow(dims[axis], input.shape()[axis], &dims[axis])) {
      return ReferenceError(arguments, "the axis overflows 64 bits");
    }
  }
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(first.dtype(), dims));
  const Dims strides = RowMajor(dims);
  RETURN_IF_ERROR(DispatchSize(first.dtype(), [&]<typename T>() {
    const std::span<T> y = output.mutable_values<T>();
    int64_t begin = 0;
    for (const Tensor& input : arguments.inputs) {
      const In<T> x(input);
      int64_t next = 0;
      ForEach<1>(input.shape(), {strides}, [&](const std::array<int64_t, 1>& at) {
        y[static_cast<size_t>(at[0] + begin * strides[axis])] = x[next++];
      });
      begin += input.shape()[axis];
    }
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status InferConcat(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const size_t axis, RequiredAxis(context.node(), shape.size()));
  std::vector<size_t> all = {0};
  for (size_t i = 1; i < context.input_count(); ++i) {
    all.push_back(i);
    ASSIGN_OR_RETURN(const DType other, context.InputDType(i));
    ASSIGN_OR_RETURN(const Shape next, context.InputShape(i));
    if (other != dtype || next.size() != shape.size()) {
      return context.Error(absl::StrCat("input ", i, " is ", Name(other), ToString(next),
                                        ", input 0 ", Name(dtype), " of rank ", shape.size()));
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d == axis) {
        shape[d] = shape[d] + next[d];
        continue;
      }
      RETURN_IF_ERROR(RequireEqual(context, shape[d], next[d],
                                   absl::StrCat("dim ", d, " of inputs 0 and ", i)));
      if (next[d].is_constant()) shape[d] = next[d];
    }
  }
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  return FollowMoves(context, all, ConcatReference);
}

absl::Status LowerConcat(LowerContext& context) {
  const Value& output = context.output(0);
  const size_t rank = output.shape->size();
  ASSIGN_OR_RETURN(const size_t axis, RequiredAxis(context.node(), rank));
  DimExpr begin = 0;
  for (size_t i = 0; i < context.node().inputs.size(); ++i) {
    const DimExpr& extent = context.InputShape(i)[axis];
    // What is empty writes nothing, but someone must write an output, though it be empty.
    if (extent.IsConstant(0) && !(*output.shape)[axis].IsConstant(0)) continue;
    StageOperands operands;
    Nest nest;
    // Beside the axis all inputs have the output's dims, of which it knows the most.
    nest.kept = *output.shape;
    nest.kept[axis] = extent;
    nest.result = operands.Load(operands.AddInput(context, i), Coords(0, rank));
    nest.output = {.dtype = output.dtype, .shape = *output.shape};
    nest.output_coordinates = Coords(0, rank);
    nest.output_coordinates[axis] = nest.output_coordinates[axis] + Extent(begin);
    EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
    begin = begin + extent;
  }
  return absl::OkStatus();
}

// The lengths of equal parts of `extent`, the last one shorter where it must be.
absl::StatusOr<std::vector<DimExpr>> EqualParts(InferContext& context, const DimExpr& extent,
                                                size_t count) {
  const DimExpr parts(static_cast<int64_t>(count));
  const DimExpr exact = FloorDiv(extent, parts);
  if (exact * parts == extent) return std::vector<DimExpr>(count, exact);
  const DimExpr part = CeilDiv(extent, parts);
  std::vector<DimExpr> lengths(count, part);
  lengths.back() = extent - part * (parts - 1);
  RETURN_IF_ERROR(context.Check(
      IsNot(IsLess(lengths.back(), 0)),
      absl::StrCat("axis of ", extent.ToString(), " is too short for ", count, " parts")));
  return lengths;
}

References SplitReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const size_t count = arguments.node.outputs.size();
  ASSIGN_OR_RETURN(const int64_t given, arguments.node.Int("axis", 0));
  ASSIGN_OR_RETURN(const int64_t place, AxisOf(given, input.rank()));
  const size_t axis = static_cast<size_t>(place);
  const int64_t extent = input.shape()[axis];
  Dims lengths;
  if (arguments.inputs.size() > 1 && arguments.inputs[1].valid()) {
    lengths = Int64Values(arguments.inputs[1]);
  } else {
    const int64_t parts = static_cast<int64_t>(count);
    lengths.assign(count, (extent + parts - 1) / parts);
    lengths.back() = extent - lengths[0] * (parts - 1);
  }
  if (lengths.size() != count || std::ranges::any_of(lengths, [](int64_t n) { return n < 0; }) ||
      std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) != extent) {
    return ReferenceError(arguments, "split: lengths must cover the axis, one for each output");
  }
  std::vector<Tensor> outputs;
  const Dims strides = RowMajor(input.shape());
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    Dims dims = input.shape();
    dims[axis] = length;
    ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(input.dtype(), dims));
    RETURN_IF_ERROR(DispatchSize(input.dtype(), [&]<typename T>() {
      const In<T> x(input);
      const std::span<T> y = output.mutable_values<T>();
      size_t next = 0;
      ForEach<1>(dims, {strides}, [&](const std::array<int64_t, 1>& at) {
        y[next++] = x[at[0] + begin * strides[axis]];
      });
      return absl::OkStatus();
    }));
    outputs.push_back(std::move(output));
    begin += length;
  }
  return outputs;
}

absl::Status InferSplit(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const int64_t given, context.node().Int("axis", 0));
  ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(context.node(), given, shape.size()));
  const DimExpr extent = shape[axis];
  std::vector<DimExpr> lengths;
  if (context.HasInput(1)) {
    ASSIGN_OR_RETURN(lengths, context.RequireSymbolic(1));
    DimExpr sum = 0;
    for (const DimExpr& length : lengths) sum = sum + length;
    RETURN_IF_ERROR(RequireEqual(context, sum, extent, "sum of split and axis"));
  } else {
    const int64_t outputs = static_cast<int64_t>(context.output_count());
    ASSIGN_OR_RETURN(const int64_t count, context.node().Int("num_outputs", outputs));
    if (count != outputs) {
      return context.Error(absl::StrCat("num_outputs: got ", count, ", node has ", outputs));
    }
    ASSIGN_OR_RETURN(lengths, EqualParts(context, extent, context.output_count()));
  }
  if (lengths.size() != context.output_count()) {
    return context.Error(absl::StrCat("split: got ", lengths.size(), " entries, node has ",
                                      context.output_count(), " outputs"));
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    shape[axis] = lengths[i];
    RETURN_IF_ERROR(context.SetOutput(i, dtype, shape));
  }
  return FollowMoves(context, kFirstInput, SplitReference);
}

absl::Status LowerSplit(LowerContext& context) {
  const size_t rank = context.InputShape(0).size();
  ASSIGN_OR_RETURN(const int64_t given, context.node().Int("axis", 0));
  ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(context.node(), given, rank));
  DimExpr begin = 0;
  for (size_t i = 0; i < context.node().outputs.size(); ++i) {
    const DimExpr extent = (*context.output(i).shape)[axis];
    if (context.HasOutput(i)) {
      StageOperands operands;
      const int32_t input = operands.AddInput(context, 0);
      std::vector<Expr> coordinates = Coords(0, rank);
      coordinates[axis] = coordinates[axis] + Extent(begin);
      const Expr element = operands.Load(input, std::move(coordinates));
      EmitMap(context, std::move(operands), element, i);
    }
    begin = begin + extent;
  }
  return absl::OkStatus();
}

References TileReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const Dims repeats = Int64Values(arguments.inputs[1]);
  if (repeats.size() != input.shape().size()) {
    return ReferenceError(arguments, "repeats: must have an entry for each dim");
  }
  Dims dims = input.shape();
  for (size_t d = 0; d < dims.size(); ++d) {
    if (repeats[d] < 0) return ReferenceError(arguments, "repeats: must not be negative");
    if (__builtin_mul_overflow(dims[d], repeats[d], &dims[d])) {
      return ReferenceError(arguments, "repeats: overflow of 64 bits");
    }
  }
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(input.dtype(), dims));
  const Dims strides = RowMajor(input.shape());
  RETURN_IF_ERROR(DispatchSize(input.dtype(), [&]<typename T>() {
    const In<T> x(input);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEachIndex(dims, [&](const Dims& index) {
      int64_t from = 0;
      for (size_t d = 0; d < dims.size(); ++d) from += index[d] % input.shape()[d] * strides[d];
      y[next++] = x[from];
    });
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status InferTile(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> repeats, context.RequireSymbolic(1));
  if (repeats.size() != shape.size()) {
    return context.Error(absl::StrCat("repeats: got ", repeats.size(), " entries, input has ",
                                      shape.size(), " dims"));
  }
  for (size_t d = 0; d < shape.size(); ++d) shape[d] = shape[d] * repeats[d];
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  return FollowMoves(context, kFirstInput, TileReference);
}

// A map with moduli; where the innermost dim is longer than 1 and repeated, a nest over (repeat,
// dim) pairs instead, which reads and writes consecutive elements.
absl::Status LowerTile(LowerContext& context) {
  const Shape& from = context.InputShape(0);
  const Shape& to = *context.output(0).shape;
  ASSIGN_OR_RETURN(const std::vector<DimExpr> repeats,
                   KnownContents(context.node(), context.input(1)));
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  std::vector<Expr> coordinates;
  const bool pairs = !from.empty() && from.back() != to.back() && !from.back().IsConstant(1);
  Nest nest;
  for (size_t d = 0; d < from.size(); ++d) {
    const bool once = from[d] == to[d];
    if (pairs && !once) nest.kept.push_back(repeats[d]);
    const Expr coordinate = Expr::Coord(static_cast<int32_t>(nest.kept.size()));
    if (!pairs) {
      nest.kept.push_back(to[d]);
      coordinates.push_back(once ? coordinate : FloorModulo(coordinate, Extent(from[d])));
      continue;
    }
    nest.kept.push_back(from[d]);
    coordinates.push_back(coordinate);
    if (once) {
      nest.output_coordinates.push_back(coordinate);
      continue;
    }
    const Expr repeat = Expr::Coord(static_cast<int32_t>(nest.kept.size()) - 2);
    nest.output_coordinates.push_back(repeat * Extent(from[d]) + coordinate);
  }
  nest.result = operands.Load(input, std::move(coordinates));
  nest.output = {.dtype = context.output(0).dtype, .shape = to};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

// DepthToSpace and SpaceToDepth: the input seen with blocks as axes of their own, transposed, and
// seen as the output.
struct BlockView {
  Shape before;              // the input, split
  std::vector<size_t> perm;  // of its axes
  Shape after;               // output shape
};

absl::StatusOr<bool> IsColumnRowDepth(const Node& node) {
  ASSIGN_OR_RETURN(const std::string mode, node.String("mode", "DCR"));
  if (mode != "DCR" && mode != "CRD") {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": mode: got '", mode, "', takes DCR or CRD"));
  }
  return mode == "CRD";
}

absl::StatusOr<int64_t> BlockSize(const Node& node, size_t rank) {
  ASSIGN_OR_RETURN(const int64_t block, node.Int("blocksize", 0));
  if (block < 1 || rank != 4) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": blocksize ", block,
                                                   " and rank ", rank, ", takes at least 1 and 4"));
  }
  return block;
}

absl::StatusOr<BlockView> DepthToSpaceView(const Node& node, const Shape& in) {
  ASSIGN_OR_RETURN(const int64_t block, BlockSize(node, in.size()));
  ASSIGN_OR_RETURN(const bool crd, IsColumnRowDepth(node));
  const DimExpr depth = FloorDiv(in[1], block * block);
  BlockView view;
  if (crd) {
    view.before = {in[0], depth, block, block, in[2], in[3]};
    view.perm = {0, 1, 4, 2, 5, 3};
  } else {
    view.before = {in[0], block, block, depth, in[2], in[3]};
    view.perm = {0, 3, 4, 1, 5, 2};
  }
  view.after = {in[0], depth, in[2] * block, in[3] * block};
  return view;
}

absl::StatusOr<BlockView> SpaceToDepthView(const Node& node, const Shape& in) {
  ASSIGN_OR_RETURN(const int64_t block, BlockSize(node, in.size()));
  ASSIGN_OR_RETURN(const bool crd, IsColumnRowDepth(node));
  const DimExpr height = FloorDiv(in[2], block);
  const DimExpr width = FloorDiv(in[3], block);
  BlockView view;
  view.before = {in[0], in[1], height, block, width, block};
  view.perm = crd ? std::vector<size_t>{0, 1, 3, 5, 2, 4} : std::vector<size_t>{0, 3, 5, 1, 2, 4};
  view.after = {in[0], in[1] * (block * block), height, width};
  return view;
}

using ViewFunction = absl::StatusOr<BlockView> (*)(const Node& node, const Shape& in);

template <ViewFunction view_of>
absl::Status InferBlocks(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(BlockView view, view_of(context.node(), shape));
  RETURN_IF_ERROR(RequireEqual(context, ElementCount(view.before), ElementCount(shape),
                               "elements in whole blocks and in all"));
  return context.SetOutput(0, dtype, std::move(view.after));
}

template <ViewFunction view_of>
References BlocksReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const Shape shape(input.shape().begin(), input.shape().end());
  ASSIGN_OR_RETURN(const BlockView view, view_of(arguments.node, shape));
  const Dims before = ConstantShape(view.before);
  if (ProductOf(before) != input.element_count()) {
    return ReferenceError(arguments, "blocksize does not divide the input");
  }
  const Dims own = RowMajor(before);
  Dims dims;
  Dims strides;
  for (const size_t axis : view.perm) {
    dims.push_back(before[axis]);
    strides.push_back(own[axis]);
  }
  ASSIGN_OR_RETURN(const std::vector<Tensor> moved, Strided(input, dims, strides));
  ASSIGN_OR_RETURN(Tensor output, moved[0].Reshaped(ConstantShape(view.after)));
  return One(std::move(output));
}

template <ViewFunction view_of>
absl::Status LowerBlocks(LowerContext& context) {
  ASSIGN_OR_RETURN(const BlockView view, view_of(context.node(), context.InputShape(0)));
  const DType dtype = context.output(0).dtype;
  const ValueId split = context.NewValue(dtype, view.before, "blocks");
  context.EmitAlias(context.node().inputs[0], split);
  Nest nest;
  for (const size_t axis : view.perm) nest.kept.push_back(view.before[axis]);
  StageOperands operands;
  std::vector<Expr> coordinates(view.perm.size());
  for (size_t d = 0; d < view.perm.size(); ++d) {
    coordinates[view.perm[d]] = Expr::Coord(static_cast<int32_t>(d));
  }
  nest.result = operands.Load(operands.Add(split, dtype, view.before), std::move(coordinates));
  nest.output = {.dtype = dtype, .shape = nest.kept};
  const ValueId moved = context.NewValue(dtype, nest.kept, "moved");
  EmitNest(context, std::move(operands), std::move(nest), moved);
  context.EmitAlias(moved, context.node().outputs[0]);
  return absl::OkStatus();
}

constexpr OpDefinition kOps[] = {
    {.name = "Transpose",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferTranspose,
     .reference = TransposeReference,
     .variants = kNest<LowerTranspose>},
    {.name = "Concat",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = -1,
     .infer = InferConcat,
     .reference = ConcatReference,
     .variants = kNest<LowerConcat>},
    {.name = "Split",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 2,
     .max_outputs = -1,
     .infer = InferSplit,
     .reference = SplitReference,
     .variants = kNest<LowerSplit>},
    {.name = "Tile",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferTile,
     .reference = TileReference,
     .variants = kNest<LowerTile>},
    {.name = "DepthToSpace",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferBlocks<DepthToSpaceView>,
     .reference = BlocksReference<DepthToSpaceView>,
     .variants = kNest<LowerBlocks<DepthToSpaceView>>},
    {.name = "SpaceToDepth",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferBlocks<SpaceToDepthView>,
     .reference = BlocksReference<SpaceToDepthView>,
     .variants = kNest<LowerBlocks<SpaceToDepthView>>},
};

}  // namespace

std::span<const OpDefinition> MoveOps() { return kOps; }

}  // namespace stampmill
