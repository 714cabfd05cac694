// Activations: operators of one float input, with attributes, that networks put behind their linear
// layers. Attributes that a reference and a lowering need are read by both from the node.
#include <cmath>
#include <numbers>

#include "kernels/elementwise.h"
#include "kernels/families.h"

namespace stampmill {
namespace {

Expr Number(const Expr& like, double value) { return Expr::Constant(like.dtype(), value); }
Expr Exp(const Expr& x) { return Expr::Unary(ExprOp::kExp, x); }
Expr PositivePart(const Expr& x) { return Maximum(x, Number(x, 0)); }
Expr NegativePart(const Expr& x) { return Minimum(x, Number(x, 0)); }
// exp of an argument that is at most 0, so that no branch overflows where it is not taken.
Expr ExpOfNegativePart(const Expr& x) { return Exp(NegativePart(x)); }

template <typename T>
T Logistic(T x) {
  return 1 / (1 + std::exp(-x));
}
Expr LogisticExpr(const Expr& x) { return Number(x, 1) / (Number(x, 1) + Exp(-x)); }

template <typename T>
T SoftplusOf(T x) {
  return std::fmax(x, T{0}) + std::log1p(std::exp(-std::fabs(x)));
}
Expr SoftplusExpr(const Expr& x) {
  const Expr small = Exp(-Expr::Unary(ExprOp::kAbs, x));
  return PositivePart(x) + Expr::Unary(ExprOp::kLog, Number(x, 1) + small);
}

// Keeps NaN, which std::fmin and std::fmax would drop.
template <typename T>
T Between(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;
}

template <typename T>
T HardSigmoidOf(T x, T alpha, T beta) {
  return Between<T>(alpha * x + beta, 0, 1);
}
Expr HardSigmoidOf(const Expr& x, double alpha, double beta) {
  const Expr line = Number(x, alpha) * x + Number(x, beta);
  return Minimum(Maximum(line, Number(x, 0)), Number(x, 1));
}

References ReluReference(const ReferenceArguments& arguments) {
  return MapNumbers(arguments, [](auto x) { return x < 0 ? decltype(x){0} : x; });
}

References LeakyReluReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const float alpha, arguments.node.Float("alpha", 0.01f));
  return MapFloats(arguments, [=](auto x) { return x < 0 ? alpha * x : x; });
}
absl::StatusOr<Expr> LeakyReluExpr(const Node& node, const Expr& x) {
  ASSIGN_OR_RETURN(const float alpha, node.Float("alpha", 0.01f));
  return Expr::Select(Less(x, Number(x, 0)), Number(x, alpha) * x, x);
}

References EluReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const float alpha, arguments.node.Float("alpha", 1));
  return MapFloats(arguments, [=](auto x) { return x < 0 ? alpha * (std::exp(x) - 1) : x; });
}
absl::StatusOr<Expr> EluExpr(const Node& node, const Expr& x) {
  ASSIGN_OR_RETURN(const float alpha, node.Float("alpha", 1));
  return Expr::Select(Less(x, Number(x, 0)),
                      Number(x, alpha) * (ExpOfNegativePart(x) - Number(x, 1)), x);
}

constexpr float kSeluAlpha = 1.67326319217681884765625f;
constexpr float kSeluGamma = 1.05070102214813232421875f;

References SeluReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const float alpha, arguments.node.Float("alpha", kSeluAlpha));
  ASSIGN_OR_RETURN(const float gamma, arguments.node.Float("gamma", kSeluGamma));
  return MapFloats(
      arguments, [=](auto x) { return x > 0 ? gamma * x : gamma * (alpha * std::exp(x) - alpha); });
}
absl::StatusOr<Expr> SeluExpr(const Node& node, const Expr& x) {
  ASSIGN_OR_RETURN(const float alpha, node.Float("alpha", kSeluAlpha));
  ASSIGN_OR_RETURN(const float gamma, node.Float("gamma", kSeluGamma));
  const Expr negative = Number(x, alpha) * (ExpOfNegativePart(x) - Number(x, 1));
  return Number(x, gamma) * Expr::Select(Less(Number(x, 0), x), x, negative);
}

References CeluReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const float alpha, arguments.node.Float("alpha", 1));
  return MapFloats(arguments,
                   [=](auto x) { return x < 0 ? alpha * (std::exp(x / alpha) - 1) : x; });
}
absl::StatusOr<Expr> CeluExpr(const Node& node, const Expr& x) {
  ASSIGN_OR_RETURN(const float alpha, node.Float("alpha", 1));
  const Expr a = Number(x, alpha);
  return Expr::Select(Less(x, Number(x, 0)), a * (Exp(NegativePart(x) / a) - Number(x, 1)), x);
}

References SigmoidReference(const ReferenceArguments& arguments) {
  return MapFloats(arguments, [](auto x) { return Logistic(x); });
}

References HardSigmoidReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const float alpha, arguments.node.Float("alpha", 0.2f));
  ASSIGN_OR_RETURN(const float beta, arguments.node.Float("beta", 0.5f));
  return MapFloats(arguments, [=](auto x) { return HardSigmoidOf<decltype(x)>(x, alpha, beta); });
}
absl::StatusOr<Expr> HardSigmoidExpr(const Node& node, const Expr& x) {
  ASSIGN_OR_RETURN(const float alpha, node.Float("alpha", 0.2f));
  ASSIGN_OR_RETURN(const float beta, node.Float("beta", 0.5f));
  return HardSigmoidOf(x, alpha, beta);
}

References HardSwishReference(const ReferenceArguments& arguments) {
  return MapFloats(arguments, [](auto x) {
    using T = decltype(x);
    return x * HardSigmoidOf<T>(x, T{1} / 6, T{0.5});
  });
}
Expr HardSwishExpr(const Expr& x) { return x * HardSigmoidOf(x, 1.0 / 6, 0.5); }

References SoftplusReference(const ReferenceArguments& arguments) {
  return MapFloats(arguments, [](auto x) { return SoftplusOf(x); });
}

References SoftsignReference(const ReferenceArguments& arguments) {
  return MapFloats(arguments, [](auto x) { return x / (1 + std::fabs(x)); });
}
Expr SoftsignExpr(const Expr& x) { return x / (Number(x, 1) + Expr::Unary(ExprOp::kAbs, x)); }

References MishReference(const ReferenceArguments& arguments) {
  return MapFloats(arguments, [](auto x) { return x * std::tanh(SoftplusOf(x)); });
}
Expr MishExpr(const Expr& x) { return x * Expr::Unary(ExprOp::kTanh, SoftplusExpr(x)); }

References SwishReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const float alpha, arguments.node.Float("alpha", 1));
  return MapFloats(arguments, [=](auto x) { return x * Logistic(alpha * x); });
}
absl::StatusOr<Expr> SwishExpr(const Node& node, const Expr& x) {
  ASSIGN_OR_RETURN(const float alpha, node.Float("alpha", 1));
  return x * LogisticExpr(Number(x, alpha) * x);
}

// swish(a) * b
References SwiGluReference(const ReferenceArguments& arguments) {
  RETURN_IF_ERROR(CheckSameTypes(arguments));
  ASSIGN_OR_RETURN(const float alpha, arguments.node.Float("alpha", 1));
  return ZipAs<double, double>(arguments, arguments.inputs[0].dtype(),
                               [=](double a, double b) { return a * Logistic(alpha * a) * b; });
}
absl::StatusOr<Expr> SwiGluExpr(const Node& node, const Expr& a, const Expr& b) {
  ASSIGN_OR_RETURN(const Expr gate, SwishExpr(node, a));
  return gate * b;
}

References ThresholdedReluReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const float alpha, arguments.node.Float("alpha", 1));
  return MapFloats(arguments, [=](auto x) { return x > alpha ? x : decltype(x){0}; });
}
absl::StatusOr<Expr> ThresholdedReluExpr(const Node& node, const Expr& x) {
  ASSIGN_OR_RETURN(const float alpha, node.Float("alpha", 1));
  return Expr::Select(Less(Number(x, alpha), x), x, Number(x, 0));
}

References ShrinkReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const float bias, arguments.node.Float("bias", 0));
  ASSIGN_OR_RETURN(const float lambda, arguments.node.Float("lambd", 0.5f));
  return MapFloats(arguments, [=](double x) {
    return x < -lambda ? x + bias : x > lambda ? x - bias : 0.0;
  });
}
// Of integers too: in f64, cast back.
absl::StatusOr<Expr> ShrinkExpr(const Node& node, const Expr& element) {
  ASSIGN_OR_RETURN(const float bias, node.Float("bias", 0));
  ASSIGN_OR_RETURN(const float lambda, node.Float("lambd", 0.5f));
  const Expr x = IsFloat(element.dtype()) ? element : Expr::Cast(DType::kF64, element);
  return Expr::Select(Less(x, Number(x, -lambda)), x + Number(x, bias),
                      Expr::Select(Less(Number(x, lambda), x), x - Number(x, bias), Number(x, 0)));
}

absl::Status InferGelu(InferContext& context) {
  ASSIGN_OR_RETURN(const std::string approximate, context.node().String("approximate", "none"));
  if (approximate != "none" && approximate != "tanh") {
    return context.Error(absl::StrCat("approximate: got '", approximate, "', takes none or tanh"));
  }
  return InferSame<Types::kFloat>(context);
}

constexpr double kGeluTanh = 0.044715;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;

References GeluReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const std::string approximate, arguments.node.String("approximate", "none"));
  if (approximate == "tanh") {
    return MapFloats(arguments, [](auto x) {
      using T = decltype(x);
      const T inner = T(kSqrtTwoOverPi) * (x + T(kGeluTanh) * x * x * x);
      return T(0.5) * x * (1 + std::tanh(inner));
    });
  }
  return MapFloats(arguments, [](auto x) {
    using T = decltype(x);
    return T(0.5) * x * (1 + std::erf(x * T(1 / std::numbers::sqrt2)));
  });
}
absl::StatusOr<Expr> GeluExpr(const Node& node, const Expr& x) {
  ASSIGN_OR_RETURN(const std::string approximate, node.String("approximate", "none"));
  Expr inner;
  if (approximate == "tanh") {
    const Expr cubic = Number(x, kGeluTanh) * x * x * x;
    inner = Expr::Unary(ExprOp::kTanh, Number(x, kSqrtTwoOverPi) * (x + cubic));
  } else {
    inner = Expr::Unary(ExprOp::kErf, x * Number(x, 1 / std::numbers::sqrt2));
  }
  return Number(x, 0.5) * x * (Number(x, 1) + inner);
}

// The slope broadcasts to the input, not the other way round.
absl::Status InferPRelu(InferContext& context) {
  RETURN_IF_ERROR(InferSame<Types::kSigned>(context));
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(0));
  const Shape& result = *context.OutputShape(0);
  if (result.size() != shape.size()) {
    return context.Error(absl::StrCat("slope has more dims than the input: ", ToString(shape)));
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    RETURN_IF_ERROR(RequireEqual(context, result[d], shape[d], "slope broadcast to the input"));
  }
  return absl::OkStatus();
}
References PReluReference(const ReferenceArguments& arguments) {
  return ZipNumbers(arguments, [](auto x, auto slope) { return x < 0 ? WrapMul(slope, x) : x; });
}
Expr PReluExpr(const Expr& x, const Expr& slope) {
  return Expr::Select(Less(x, Expr::ConstantInt(x.dtype(), 0)), slope * x, x);
}

template <absl::Status (*infer)(InferContext&), Reference reference, auto element>
constexpr OpDefinition Unary(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 1,
          .max_inputs = 1,
          .infer = infer,
          .reference = reference,
          .variants = kUnaryNest<element>};
}

constexpr auto kFloats = InferSame<Types::kFloat>;

constexpr OpDefinition kOps[] = {
    Unary<InferSame<Types::kSigned>, ReluReference,
          [](const Expr& x) { return Maximum(x, Expr::ConstantInt(x.dtype(), 0)); }>("Relu"),
    Unary<kFloats, LeakyReluReference, LeakyReluExpr>("LeakyRelu"),
    Unary<kFloats, EluReference, EluExpr>("Elu"),
    Unary<kFloats, SeluReference, SeluExpr>("Selu"),
    Unary<kFloats, CeluReference, CeluExpr>("Celu"),
    Unary<kFloats, SigmoidReference, LogisticExpr>("Sigmoid"),
    Unary<kFloats, HardSigmoidReference, HardSigmoidExpr>("HardSigmoid"),
    Unary<kFloats, HardSwishReference, HardSwishExpr>("HardSwish"),
    Unary<kFloats, SoftplusReference, SoftplusExpr>("Softplus"),
    Unary<kFloats, SoftsignReference, SoftsignExpr>("Softsign"),
    Unary<kFloats, MishReference, MishExpr>("Mish"),
    Unary<kFloats, SwishReference, SwishExpr>("Swish"),
    Unary<kFloats, ThresholdedReluReference, ThresholdedReluExpr>("ThresholdedRelu"),
    Unary<InferSame<Types::kNumeric>, ShrinkReference, ShrinkExpr>("Shrink"),
    Unary<InferGelu, GeluReference, GeluExpr>("Gelu"),
    {.name = "PRelu",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferPRelu,
     .reference = PReluReference,
     .variants = kBinaryNest<PReluExpr>},
    {.name = "SwiGLU",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = kFloats,
     .reference = SwiGluReference,
     .variants = kBinaryNest<SwiGluExpr>},
};

}  // namespace

std::span<const OpDefinition> ActivationOps() { return kOps; }

}  // namespace stampmill
