// Operators that pass elements on unchanged or pick among them: Where, Clip, Identity, Dropout.
#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/families.h"

namespace stampmill {
namespace {

absl::Status InferWhere(InferContext& context) {
  ASSIGN_OR_RETURN(const DType condition, context.InputDType(0));
  if (condition != DType::kBool) {
    return context.Error(absl::StrCat("condition is ", Name(condition), ", must be bool"));
  }
  ASSIGN_OR_RETURN(const DType yes, context.InputDType(1));
  ASSIGN_OR_RETURN(const DType no, context.InputDType(2));
  if (yes != no) {
    return context.Error(
        absl::StrCat("inputs are ", Name(yes), " and ", Name(no), ", must be the same"));
  }
  std::vector<Shape> shapes;
  for (size_t i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(Shape shape, context.InputShape(i));
    shapes.push_back(std::move(shape));
  }
  ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(context, shapes));
  RETURN_IF_ERROR(context.SetOutput(0, yes, std::move(shape)));
  return FollowElements(context,
                        [](const Node&, std::span<const DimExpr> x) -> std::optional<DimExpr> {
                          return Choose(x[0], x[1], x[2]);
                        });
}

References WhereReference(const ReferenceArguments& arguments) {
  const Tensor& condition = arguments.inputs[0];
  const Tensor& yes = arguments.inputs[1];
  const Tensor& no = arguments.inputs[2];
  if (condition.dtype() != DType::kBool || yes.dtype() != no.dtype()) {
    return ReferenceError(arguments, "condition must be bool, the others of one type");
  }
  ASSIGN_OR_RETURN(const Dims dims, BroadcastDims({condition.shape(), yes.shape(), no.shape()}));
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(yes.dtype(), dims));
  RETURN_IF_ERROR(DispatchSize(yes.dtype(), [&]<typename T>() {
    const In<Bool> c(condition);
    const In<T> a(yes);
    const In<T> b(no);
    const std::span<T> y = output.mutable_values<T>();
    size_t next = 0;
    ForEach<3>(
        dims,
        {BroadcastStrides(condition.shape(), dims), BroadcastStrides(yes.shape(), dims),
         BroadcastStrides(no.shape(), dims)},
        [&](const std::array<int64_t, 3>& at) { y[next++] = c[at[0]] ? a[at[1]] : b[at[2]]; });
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

absl::Status LowerWhere(LowerContext& context) {
  const Shape& shape = *context.output(0).shape;
  StageOperands operands;
  std::vector<Expr> x;
  for (size_t i = 0; i < 3; ++i) {
    x.push_back(LoadElement(operands, operands.AddInput(context, i), shape));
  }
  EmitMap(context, std::move(operands), Expr::Select(x[0], x[1], x[2]));
  return absl::OkStatus();
}

// Bounds are scalars of the input's type, each optional; where they cross, the upper one wins.
absl::Status InferClip(InferContext& context) {
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  for (size_t i = 1; i < context.input_count(); ++i) {
    if (!context.HasInput(i)) continue;
    ASSIGN_OR_RETURN(const Shape bound, context.InputShape(i));
    RETURN_IF_ERROR(RequireEqual(context, ElementCount(bound), 1, "elements of a bound"));
    if (bound.size() > shape.size()) {
      return context.Unsupported("a bound of a higher rank than the input");
    }
  }
  return InferElementwise(context, Types::kNumeric, DType::kInvalid, nullptr);
}

References ClipReference(const ReferenceArguments& arguments) {
  for (size_t i = 1; i < arguments.inputs.size(); ++i) {
    const Tensor& bound = arguments.inputs[i];
    if (bound.valid() &&
        (bound.element_count() != 1 || bound.dtype() != arguments.inputs[0].dtype())) {
      return ReferenceError(arguments, "a bound must be one element of the input's type");
    }
  }
  const auto bound = [&](size_t i) {
    const bool given = arguments.inputs.size() > i && arguments.inputs[i].valid();
    return given ? &arguments.inputs[i] : nullptr;
  };
  const Tensor* low = bound(1);
  const Tensor* high = bound(2);
  return MapNumbers(arguments, [&](auto x) {
    using T = decltype(x);
    if (low != nullptr && x < Element<T>(*low, 0)) x = Element<T>(*low, 0);
    if (high != nullptr && x > Element<T>(*high, 0)) x = Element<T>(*high, 0);
    return x;
  });
}

absl::StatusOr<Expr> ClipExpr(const Node&, std::span<const Expr> x) {
  Expr result = x[0];
  if (x.size() > 1 && x[1].valid()) result = Maximum(result, x[1]);
  if (x.size() > 2 && x[2].valid()) result = Minimum(result, x[2]);
  return result;
}

absl::Status LowerClip(LowerContext& context) { return LowerElementwise(context, ClipExpr); }

absl::Status InferIdentity(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  RETURN_IF_ERROR(context.SetOutput(0, dtype, std::move(shape)));
  if (const std::vector<DimExpr>* known = context.InputSymbolic(0); known != nullptr) {
    context.SetOutputSymbolic(0, *known);
  }
  return absl::OkStatus();
}

References IdentityReference(const ReferenceArguments& arguments) {
  return One(arguments.inputs[0]);
}

absl::Status LowerIdentity(LowerContext& context) {
  context.EmitAlias(context.node().inputs[0], context.node().outputs[0]);
  return absl::OkStatus();
}

// Inference only: the data unchanged and a mask of ones. A ratio of 0 in training mode is the same.
absl::Status CheckDropout(const Node& node, const Tensor* ratio, const Tensor* training) {
  if (training == nullptr || training->element_count() != 1 || training->ValueAsInt64(0) == 0) {
    return absl::OkStatus();
  }
  if (ratio != nullptr && ratio->element_count() == 1 && ratio->ValueAsDouble(0) == 0) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat(node.Describe(), ": training_mode drops elements at random"));
}

absl::Status InferDropout(InferContext& context) {
  RETURN_IF_ERROR(InferIdentity(context));
  if (context.HasInput(2)) {
    RETURN_IF_ERROR(context.RequireConstant(2).status());
    RETURN_IF_ERROR(
        CheckDropout(context.node(), context.InputConstant(1), context.InputConstant(2)));
  }
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  return context.SetOutput(1, DType::kBool, std::move(shape));
}

References DropoutReference(const ReferenceArguments& arguments) {
  const auto input = [&](size_t i) {
    const bool given = arguments.inputs.size() > i && arguments.inputs[i].valid();
    return given ? &arguments.inputs[i] : nullptr;
  };
  RETURN_IF_ERROR(CheckDropout(arguments.node, input(1), input(2)));
  ASSIGN_OR_RETURN(Tensor mask, Tensor::Allocate(DType::kBool, arguments.inputs[0].shape()));
  std::ranges::fill(mask.mutable_values<uint8_t>(), uint8_t{1});
  return std::vector<Tensor>{arguments.inputs[0], mask};
}

absl::Status LowerDropout(LowerContext& context) {
  RETURN_IF_ERROR(LowerIdentity(context));
  if (!context.HasOutput(1)) return absl::OkStatus();
  EmitMap(context, StageOperands(), Expr::ConstantInt(DType::kBool, 1), 1);
  return absl::OkStatus();
}

constexpr OpDefinition kOps[] = {
    {.name = "Where",
     .domain = "",
     .min_inputs = 3,
     .max_inputs = 3,
     .infer = InferWhere,
     .reference = WhereReference,
     .variants = kNest<LowerWhere>},
    {.name = "Clip",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 3,
     .infer = InferClip,
     .reference = ClipReference,
     .variants = kNest<LowerClip>},
    {.name = "Identity",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferIdentity,
     .reference = IdentityReference,
     .variants = kNest<LowerIdentity>},
    {.name = "Dropout",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 3,
     .max_outputs = 2,
     .infer = InferDropout,
     .reference = DropoutReference,
     .variants = kNest<LowerDropout>},
};

}  // namespace

std::span<const OpDefinition> SelectOps() { return kOps; }

}  // namespace stampmill
