// The shared parts of elementwise operators.
#include "kernels/elementwise.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {

bool Includes(Types types, DType dtype) {
  switch (types) {
    case Types::kFloat:
      return IsFloat(dtype);
    case Types::kInteger:
      return IsInteger(dtype);
    case Types::kNumeric:
      return IsFloat(dtype) || IsInteger(dtype);
    case Types::kSigned:
      return IsFloat(dtype) || IsSignedInteger(dtype);
    case Types::kBool:
      return dtype == DType::kBool;
    case Types::kIntegerOrBool:
      return IsInteger(dtype) || dtype == DType::kBool;
    case Types::kAll:
      return dtype != DType::kInvalid;
  }
  return false;
}

absl::Status InferElementwise(InferContext& context, Types types, DType output,
                              FollowFunction follow) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  if (!Includes(types, dtype)) {
    return context.Error(absl::StrCat("input 0 is ", Name(dtype), ", which it does not take"));
  }
  std::vector<Shape> shapes;
  for (size_t i = 0; i < context.input_count(); ++i) {
    if (!context.HasInput(i)) continue;
    ASSIGN_OR_RETURN(const DType other, context.InputDType(i));
    if (other != dtype) {
      return context.Error(absl::StrCat("input ", i, " is ", Name(other), " and input 0 is ",
                                        Name(dtype), ", must be the same"));
    }
    ASSIGN_OR_RETURN(Shape shape, context.InputShape(i));
    shapes.push_back(std::move(shape));
  }
  ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(context, shapes));
  RETURN_IF_ERROR(
      context.SetOutput(0, output == DType::kInvalid ? dtype : output, std::move(shape)));
  return FollowElements(context, follow);
}

Expr LoadElement(const StageOperands& operands, int32_t operand, const Shape& to) {
  const Shape& shape = operands.operand(operand).shape;
  const size_t skipped = to.size() - shape.size();
  std::vector<Expr> coordinates;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Expr coordinate = Expr::Coord(static_cast<int32_t>(skipped + d));
    if (EqualWhenBroadcast(shape[d], to[skipped + d])) {
      coordinates.push_back(coordinate);
    } else if (shape[d].IsConstant(1)) {
      coordinates.push_back(Int(0));
    } else {
      coordinates.push_back(coordinate * Extent(Min(shape[d] - 1, 1)));
    }
  }
  return operands.Load(operand, std::move(coordinates));
}

Expr LoadForCompute(const StageOperands& operands, int32_t operand, const Shape& to) {
  const Expr element = LoadElement(operands, operand, to);
  return Expr::Cast(ComputeType(element.dtype()), element);
}

absl::Status LowerElementwise(LowerContext& context, ElementFunction element) {
  const Shape& shape = *context.output(0).shape;
  StageOperands operands;
  std::vector<Expr> inputs;
  for (size_t i = 0; i < context.node().inputs.size(); ++i) {
    inputs.emplace_back();
    if (!context.HasInput(i)) continue;
    inputs.back() = LoadForCompute(operands, operands.AddInput(context, i), shape);
  }
  ASSIGN_OR_RETURN(const Expr result, element(context.node(), inputs));
  EmitMap(context, std::move(operands), result);
  return absl::OkStatus();
}

absl::Status CheckSameTypes(const ReferenceArguments& arguments) {
  for (const Tensor& input : arguments.inputs) {
    if (input.valid() && input.dtype() != arguments.inputs[0].dtype()) {
      return ReferenceError(arguments,
                            absl::StrCat("inputs are ", Name(input.dtype()), " and ",
                                         Name(arguments.inputs[0].dtype()), ", must be the same"));
    }
  }
  return absl::OkStatus();
}

}  // namespace stampmill
