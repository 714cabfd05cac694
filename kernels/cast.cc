// Conversions between element types: Cast, CastLike, BitCast.
//
// Float to integer goes toward zero and saturates, NaN to 0: what ONNX leaves undefined is defined
// here, equally for every target (graph/expr.h). Integer to integer keeps the low bits.
#include <cmath>
#include <limits>

#include "kernels/elementwise.h"
#include "kernels/families.h"

namespace stampmill {
namespace {

absl::StatusOr<DType> TargetType(const Node& node) {
  ASSIGN_OR_RETURN(const int64_t to, node.Int("to", 0));
  const std::optional<DType> dtype = DTypeFromOnnx(static_cast<int32_t>(to));
  if (dtype.has_value()) return *dtype;
  return absl::UnimplementedError(
      absl::StrCat(node.Describe(), ": to: element type ", to,
                   " of TensorProto.DataType is not supported (strings, complex, below 8 bits)"));
}

// Contents go on to integers that hold every dim, and to bool as "is not zero". A narrower integer
// would wrap: known numbers only.
absl::Status FollowCast(InferContext& context, DType to) {
  const std::vector<DimExpr>* contents = context.InputSymbolic(0);
  if (contents == nullptr) return absl::OkStatus();
  if (to == DType::kI64 || to == DType::kI32 || to == DType::kF32 || to == DType::kF64) {
    context.SetOutputSymbolic(0, *contents);
  } else if (to == DType::kBool) {
    std::vector<DimExpr> tests;
    for (const DimExpr& e : *contents) tests.push_back(IsNot(IsEqual(e, 0)));
    context.SetOutputSymbolic(0, std::move(tests));
  }
  return absl::OkStatus();
}

absl::Status InferConversion(InferContext& context, DType to) {
  RETURN_IF_ERROR(context.InputDType(0).status());
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  RETURN_IF_ERROR(context.SetOutput(0, to, std::move(shape)));
  return FollowCast(context, to);
}

absl::Status InferCast(InferContext& context) {
  ASSIGN_OR_RETURN(const DType to, TargetType(context.node()));
  return InferConversion(context, to);
}

absl::Status InferCastLike(InferContext& context) {
  ASSIGN_OR_RETURN(const DType to, context.InputDType(1));
  return InferConversion(context, to);
}

template <typename To, typename From>
To Saturated(From value) {
  if (std::isnan(value)) return 0;
  // The bounds as floats: the upper one may round up to a power of two, which is past the range.
  if (value >= std::ldexp(From{1}, std::numeric_limits<To>::digits)) {
    return std::numeric_limits<To>::max();
  }
  if (value <= static_cast<From>(std::numeric_limits<To>::lowest())) {
    return std::numeric_limits<To>::lowest();
  }
  return static_cast<To>(value);
}

// From double, int64_t or uint64_t, which hold every element exactly.
template <typename To, typename From>
To Converted(From value) {
  if constexpr (std::same_as<To, Bool>) {
    return value != From{0};
  } else if constexpr (std::floating_point<From> && std::integral<To>) {
    return Saturated<To>(value);
  } else if constexpr (kIsSmallFloat<To>) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

References ConvertTo(const ReferenceArguments& arguments, DType to) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(to, input.shape()));
  RETURN_IF_ERROR(DispatchAll(to, [&]<typename To>() {
    const std::span<To> y = output.mutable_values<To>();
    for (size_t i = 0; i < y.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i);
      if (IsFloat(input.dtype())) {
        y[i] = Converted<To>(input.ValueAsDouble(at));
      } else if (input.dtype() == DType::kU64) {
        y[i] = Converted<To>(static_cast<uint64_t>(input.ValueAsInt64(at)));
      } else {
        y[i] = Converted<To>(input.ValueAsInt64(at));
      }
    }
    return absl::OkStatus();
  }));
  return One(std::move(output));
}

References CastReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const DType to, TargetType(arguments.node));
  return ConvertTo(arguments, to);
}

References CastLikeReference(const ReferenceArguments& arguments) {
  return ConvertTo(arguments, arguments.inputs[1].dtype());
}

// The nest of both. CastLike's second input gives its type only and is not read.
absl::Status LowerCast(LowerContext& context) {
  const Value& output = context.output(0);
  if (context.input(0).dtype == output.dtype) {
    context.EmitAlias(context.node().inputs[0], context.node().outputs[0]);
    return absl::OkStatus();
  }
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const Expr element = LoadElement(operands, input, *output.shape);
  EmitMap(context, std::move(operands), element);
  return absl::OkStatus();
}

absl::Status InferBitCast(InferContext& context) {
  ASSIGN_OR_RETURN(const DType to, TargetType(context.node()));
  ASSIGN_OR_RETURN(const DType from, context.InputDType(0));
  if (SizeBytes(from) != SizeBytes(to)) {
    return context.Error(absl::StrCat("to: ", Name(to), " has another width than ", Name(from)));
  }
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  return context.SetOutput(0, to, std::move(shape));
}

// Any byte becomes a bool through "is not zero".
References BitCastReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const DType to, TargetType(arguments.node));
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(to, input.shape()));
  if (input.bytes().size() != output.bytes().size()) {
    return ReferenceError(arguments, "to: another width than the input");
  }
  for (size_t i = 0; i < input.bytes().size(); ++i) {
    const std::byte byte = input.bytes()[i];
    output.mutable_bytes()[i] = to == DType::kBool ? std::byte{byte != std::byte{0}} : byte;
  }
  return One(std::move(output));
}

absl::Status LowerBitCast(LowerContext& context) {
  const DType to = context.output(0).dtype;
  if (to != DType::kBool || context.input(0).dtype == DType::kBool) {
    context.EmitAlias(context.node().inputs[0], context.node().outputs[0]);
    return absl::OkStatus();
  }
  return LowerCast(context);
}

constexpr OpDefinition kOps[] = {
    {.name = "Cast",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferCast,
     .reference = CastReference,
     .variants = kNest<LowerCast>},
    {.name = "CastLike",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferCastLike,
     .reference = CastLikeReference,
     .variants = kNest<LowerCast>},
    {.name = "BitCast",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferBitCast,
     .reference = BitCastReference,
     .variants = kNest<LowerBitCast>},
};

}  // namespace

std::span<const OpDefinition> CastOps() { return kOps; }

}  // namespace stampmill
