// Operators on shapes: those that read one (Shape, Size), those that give the same elements another
// one (Reshape and kin: aliases, no work), and those that make a tensor from one.
//
// Contents of integers are followed through all of them, which is how a Reshape to a computed shape
// becomes dims of the request.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// The part start:end of a shape, as Python slices it.
struct Part {
  size_t begin, end;
};
absl::StatusOr<Part> ShapePart(const Node& node, size_t rank) {
  const int64_t limit = static_cast<int64_t>(rank);
  ASSIGN_OR_RETURN(int64_t begin, node.Int("start", 0));
  ASSIGN_OR_RETURN(int64_t end, node.Int("end", limit));
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + limit : at, 0, limit);
  };
  begin = clamp(begin);
  end = std::max(begin, clamp(end));
  return Part{static_cast<size_t>(begin), static_cast<size_t>(end)};
}

absl::Status InferShape(InferContext& context) {
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const Part part, ShapePart(context.node(), shape.size()));
  std::vector<DimExpr> contents(shape.begin() + static_cast<int64_t>(part.begin),
                                shape.begin() + static_cast<int64_t>(part.end));
  RETURN_IF_ERROR(context.SetOutput(0, DType::kI64, {static_cast<int64_t>(part.end - part.begin)}));
  context.SetOutputSymbolic(0, std::move(contents));
  return absl::OkStatus();
}

References ShapeReference(const ReferenceArguments& arguments) {
  const Dims& dims = arguments.inputs[0].shape();
  ASSIGN_OR_RETURN(const Part part, ShapePart(arguments.node, dims.size()));
  const Dims contents(dims.begin() + static_cast<int64_t>(part.begin),
                      dims.begin() + static_cast<int64_t>(part.end));
  return One(Tensor::FromInt64({static_cast<int64_t>(contents.size())}, contents));
}

absl::Status InferSize(InferContext& context) {
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  RETURN_IF_ERROR(context.SetOutput(0, DType::kI64, {}));
  context.SetOutputSymbolic(0, {ElementCount(shape)});
  return absl::OkStatus();
}

References SizeReference(const ReferenceArguments& arguments) {
  return One(Tensor::FromInt64({}, std::vector<int64_t>{arguments.inputs[0].element_count()}));
}

// Sets output 0 to input 0 under another shape; contents stay.
absl::Status SetReshaped(InferContext& context, Shape shape) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  if (const std::vector<DimExpr>* known = context.InputSymbolic(0); known != nullptr) {
    context.SetOutputSymbolic(0, *known);
  }
  return absl::OkStatus();
}

absl::Status LowerAlias(LowerContext& context) {
  context.EmitAlias(context.node().inputs[0], context.node().outputs[0]);
  return absl::OkStatus();
}

// The dims of a Reshape: 0 copies (unless allowzero), -1 takes what is left. A symbolic entry is a
// dim as it stands: inferred shapes are never -1 or, where they are 0, meant to copy.
absl::StatusOr<Shape> ReshapedShape(InferContext& context, const Shape& from,
                                    const std::vector<DimExpr>& wanted, bool allow_zero) {
  Shape shape;
  std::optional<size_t> rest;
  for (size_t d = 0; d < wanted.size(); ++d) {
    if (wanted[d].IsConstant(-1)) {
      if (rest.has_value()) return context.Error("shape has more than one -1");
      rest = d;
      shape.emplace_back(1);
    } else if (wanted[d].IsConstant(0) && !allow_zero) {
      if (d >= from.size()) {
        return context.Error(absl::StrCat("shape: entry ", d, " is 0, but the input has only ",
                                          from.size(), " dims"));
      }
      shape.push_back(from[d]);
    } else {
      if (wanted[d].is_constant() && *wanted[d].constant() < 0) {
        return context.Error(absl::StrCat("shape: entry ", d, " is ", wanted[d].ToString()));
      }
      shape.push_back(wanted[d]);
    }
  }
  if (!rest.has_value()) return shape;
  const DimExpr product = ElementCount(shape);
  if (product.IsConstant(0)) return context.Error("shape: -1 beside a dim of 0 is undetermined");
  shape[*rest] = FloorDiv(ElementCount(from), product);
  return shape;
}

absl::Status InferReshape(InferContext& context) {
  ASSIGN_OR_RETURN(const Shape from, context.InputShape(0));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> wanted, context.RequireSymbolic(1));
  ASSIGN_OR_RETURN(const int64_t allow_zero, context.node().Int("allowzero", 0));
  ASSIGN_OR_RETURN(Shape shape, ReshapedShape(context, from, wanted, allow_zero != 0));
  RETURN_IF_ERROR(
      RequireEqual(context, ElementCount(from), ElementCount(shape),
                   absl::StrCat("elements of ", ToString(from), " and ", ToString(shape))));
  return SetReshaped(context, std::move(shape));
}

References Reshaped(const ReferenceArguments& arguments, Dims shape) {
  ASSIGN_OR_RETURN(Tensor output, arguments.inputs[0].Reshaped(std::move(shape)));
  return One(std::move(output));
}

References ReshapeReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t allow_zero, arguments.node.Int("allowzero", 0));
  Dims shape = Int64Values(arguments.inputs[1]);
  const Dims& from = arguments.inputs[0].shape();
  int64_t rest = -1;
  int64_t product = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0 && allow_zero == 0) {
      if (d >= from.size()) return ReferenceError(arguments, "shape: 0 past the input's rank");
      shape[d] = from[d];
    }
    if (shape[d] == -1) {
      if (rest >= 0) return ReferenceError(arguments, "shape has more than one -1");
      rest = static_cast<int64_t>(d);
    } else if (__builtin_mul_overflow(product, shape[d], &product)) {
      return ReferenceError(arguments, "shape: the product of its entries overflows");
    }
  }
  if (rest >= 0) {
    if (product == 0) return ReferenceError(arguments, "shape: -1 is undetermined");
    shape[static_cast<size_t>(rest)] = arguments.inputs[0].element_count() / product;
  }
  return Reshaped(arguments, std::move(shape));
}

// Axis of Flatten: rank itself is allowed.
absl::StatusOr<size_t> FlattenAxis(const Node& node, size_t rank) {
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", 1));
  const int64_t limit = static_cast<int64_t>(rank);
  if (axis < -limit || axis > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": axis: got ", axis, ", rank is ", rank));
  }
  return static_cast<size_t>(axis < 0 ? axis + limit : axis);
}

absl::Status InferFlatten(InferContext& context) {
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  ASSIGN_OR_RETURN(const size_t axis, FlattenAxis(context.node(), shape.size()));
  const std::span<const DimExpr> dims = shape;
  return SetReshaped(context, {ElementCount(dims.first(axis)), ElementCount(dims.subspan(axis))});
}

References FlattenReference(const ReferenceArguments& arguments) {
  const Dims& from = arguments.inputs[0].shape();
  ASSIGN_OR_RETURN(const size_t axis, FlattenAxis(arguments.node, from.size()));
  int64_t rows = 1;
  int64_t columns = 1;
  for (size_t d = 0; d < from.size(); ++d) (d < axis ? rows : columns) *= from[d];
  return Reshaped(arguments, {rows, columns});
}

// Positions of the axes to squeeze: those given, else all that are 1 in every request. A dim that
// requests choose stays, though some may choose 1, since a rank belongs to the model: exporters
// write such a Squeeze for dims of 1 beside the batch's.
absl::Status InferSqueeze(InferContext& context) {
  ASSIGN_OR_RETURN(const Shape from, context.InputShape(0));
  std::vector<bool> gone(from.size(), false);
  if (context.HasInput(1)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> axes, context.RequireConstant(1));
    ASSIGN_OR_RETURN(const std::vector<size_t> places,
                     NormalizeAxes(context.node(), axes, from.size()));
    for (const size_t axis : places) {
      RETURN_IF_ERROR(RequireEqual(context, from[axis], 1, absl::StrCat("squeezed axis ", axis)));
      gone[axis] = true;
    }
  } else {
    for (size_t d = 0; d < from.size(); ++d) {
      gone[d] = from[d].IsConstant(1) || context.IsChecked(IsEqual(from[d], 1));
    }
  }
  Shape shape;
  for (size_t d = 0; d < from.size(); ++d) {
    if (!gone[d]) shape.push_back(from[d]);
  }
  return SetReshaped(context, std::move(shape));
}

References SqueezeReference(const ReferenceArguments& arguments) {
  const Dims& from = arguments.inputs[0].shape();
  std::vector<bool> gone(from.size(), false);
  if (arguments.inputs.size() > 1 && arguments.inputs[1].valid()) {
    for (const int64_t axis : Int64Values(arguments.inputs[1])) {
      ASSIGN_OR_RETURN(const int64_t place, AxisOf(axis, static_cast<int64_t>(from.size())));
      if (from[static_cast<size_t>(place)] != 1) {
        return ReferenceError(arguments, absl::StrCat("squeezed axis ", place, " is not 1"));
      }
      gone[static_cast<size_t>(place)] = true;
    }
  } else {
    for (size_t d = 0; d < from.size(); ++d) gone[d] = from[d] == 1;
  }
  Dims shape;
  for (size_t d = 0; d < from.size(); ++d) {
    if (!gone[d]) shape.push_back(from[d]);
  }
  return Reshaped(arguments, std::move(shape));
}

absl::Status InferUnsqueeze(InferContext& context) {
  ASSIGN_OR_RETURN(const Shape from, context.InputShape(0));
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, context.RequireConstant(1));
  const size_t rank = from.size() + axes.size();
  ASSIGN_OR_RETURN(const std::vector<size_t> places, NormalizeAxes(context.node(), axes, rank));
  Shape shape(rank, DimExpr(-1));
  for (const size_t axis : places) shape[axis] = 1;
  size_t next = 0;
  for (DimExpr& dim : shape) {
    if (dim.IsConstant(-1)) dim = from[next++];
  }
  return SetReshaped(context, std::move(shape));
}

References UnsqueezeReference(const ReferenceArguments& arguments) {
  const Dims& from = arguments.inputs[0].shape();
  const Dims axes = Int64Values(arguments.inputs[1]);
  Dims shape(from.size() + axes.size(), -1);
  for (const int64_t axis : axes) {
    ASSIGN_OR_RETURN(const int64_t place, AxisOf(axis, static_cast<int64_t>(shape.size())));
    if (shape[static_cast<size_t>(place)] == 1) {
      return ReferenceError(arguments, absl::StrCat("axis ", place, " is named twice"));
    }
    shape[static_cast<size_t>(place)] = 1;
  }
  size_t next = 0;
  for (int64_t& dim : shape) {
    if (dim == -1) dim = from[next++];
  }
  return Reshaped(arguments, std::move(shape));
}

// Input 1 broadcasts with the input's shape, in both directions.
References ExpandReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const Dims dims,
                   BroadcastDims({input.shape(), Int64Values(arguments.inputs[1])}));
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(input.dtype(), dims));
  RETURN_IF_ERROR(DispatchSize(input.dtype(), [&]<typename T>() {
    const In<T> x(input);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEach<1>(dims, {BroadcastStrides(input.shape(), dims)},
               [&](const std::array<int64_t, 1>& at) { y[next++] = x[at[0]]; });
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status InferExpand(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape from, context.InputShape(0));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> wanted, context.RequireSymbolic(1));
  const Shape shapes[] = {from, wanted};
  ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(context, shapes));
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  const size_t data[] = {0};
  return FollowMoves(context, data, ExpandReference);
}

absl::Status LowerExpand(LowerContext& context) {
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const Expr element = LoadElement(operands, input, *context.output(0).shape);
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

// Optional values are tensors here, there or left out.
absl::Status InferHasElement(InferContext& context) {
  RETURN_IF_ERROR(context.SetOutput(0, DType::kBool, {}));
  context.SetOutputSymbolic(0, {context.HasInput(0) ? 1 : 0});
  return absl::OkStatus();
}

References HasElementReference(const ReferenceArguments& arguments) {
  const bool has = !arguments.inputs.empty() && arguments.inputs[0].valid();
  return One(Tensor::Scalar(DType::kBool, has ? 1 : 0));
}

absl::Status InferGetElement(InferContext& context) {
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  return SetReshaped(context, std::move(shape));
}

References GetElementReference(const ReferenceArguments& arguments) {
  return One(arguments.inputs[0]);
}

constexpr Variant kAlias[] = {{"alias", AlwaysApplies, LowerAlias}};
constexpr Variant kExpand[] = {{"nest", AlwaysApplies, LowerExpand}};

constexpr OpDefinition kOps[] = {
    // These are lowered from their contents, which are always known.
    {.name = "OptionalHasElement",
     .domain = "",
     .min_inputs = 0,
     .max_inputs = 1,
     .infer = InferHasElement,
     .reference = HasElementReference,
     .variants = {}},
    {.name = "Shape",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferShape,
     .reference = ShapeReference,
     .variants = {}},
    {.name = "Size",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferSize,
     .reference = SizeReference,
     .variants = {}},
    {.name = "OptionalGetElement",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferGetElement,
     .reference = GetElementReference,
     .variants = kAlias},
    {.name = "Reshape",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferReshape,
     .reference = ReshapeReference,
     .variants = kAlias},
    {.name = "Flatten",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferFlatten,
     .reference = FlattenReference,
     .variants = kAlias},
    {.name = "Squeeze",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 2,
     .infer = InferSqueeze,
     .reference = SqueezeReference,
     .variants = kAlias},
    {.name = "Unsqueeze",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferUnsqueeze,
     .reference = UnsqueezeReference,
     .variants = kAlias},
    {.name = "Expand",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferExpand,
     .reference = ExpandReference,
     .variants = kExpand},
};

}  // namespace

std::span<const OpDefinition> ShapeOps() { return kOps; }

}  // namespace stampmill
