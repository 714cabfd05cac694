// Operators of one input and no or few attributes that are plain mathematics of an element.
#include <cmath>
#include <limits>

#include "kernels/elementwise.h"
#include "kernels/families.h"

namespace stampmill {
namespace {

// A function of floats that is one node of the expression language.
template <ExprOp op>
inline constexpr Variant kFunction[] = {
    {"nest", AlwaysApplies, LowerUnary<[](const Expr& x) { return Expr::Unary(op, x); }>}};

Expr One(const Expr& like) { return Expr::ConstantInt(like.dtype(), 1); }
Expr Zero(const Expr& like) { return Expr::ConstantInt(like.dtype(), 0); }

template <auto f>
References FloatReference(const ReferenceArguments& arguments) {
  return MapFloats(arguments, f);
}

template <auto f>
References NumberReference(const ReferenceArguments& arguments) {
  return MapNumbers(arguments, f);
}

// An operator on floats whose result has the same type.
template <ExprOp op, auto f>
constexpr OpDefinition FloatFunction(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 1,
          .max_inputs = 1,
          .infer = InferSame<Types::kFloat>,
          .reference = FloatReference<f>,
          .variants = kFunction<op>};
}

// Integer arithmetic wraps: done unsigned.
template <typename T>
T Negate(T x) {
  if constexpr (std::integral<T>) return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
  return -x;
}

template <typename T>
T Absolute(T x) {
  if constexpr (std::floating_point<T>) return std::fabs(x);
  if constexpr (std::signed_integral<T>) return x < 0 ? Negate(x) : x;
  return x;
}

template <typename T>
T SignOf(T x) {
  if constexpr (std::floating_point<T>) {
    if (std::isnan(x)) return x;
  }
  if constexpr (!std::unsigned_integral<T>) {
    if (x < T{0}) return T{-1};
  }
  return x > T{0} ? T{1} : T{0};
}

Expr SignExpr(const Expr& x) {
  const Expr zero = Zero(x);
  const Expr positive = Expr::Select(Less(zero, x), One(x), IsFloat(x.dtype()) ? x : zero);
  if (IsUnsignedInteger(x.dtype())) return positive;
  // For a float, neither less nor greater is a zero of either sign or NaN: itself.
  return Expr::Select(Less(x, zero), -One(x), positive);
}

std::optional<DimExpr> FollowNeg(const Node&, std::span<const DimExpr> x) { return 0 - x[0]; }
std::optional<DimExpr> FollowAbs(const Node&, std::span<const DimExpr> x) {
  return x[0].LowerBound().value_or(-1) >= 0 ? x[0] : Max(x[0], 0 - x[0]);
}

References NotReference(const ReferenceArguments& arguments) {
  return MapNumbers(arguments, [](auto x) { return x == 0; });
}

References BitwiseNotReference(const ReferenceArguments& arguments) {
  if (!IsInteger(arguments.inputs[0].dtype())) {
    return UnsupportedDType(arguments.inputs[0].dtype());
  }
  return MapAs<uint64_t>(arguments, arguments.inputs[0].dtype(), [](uint64_t x) { return ~x; });
}

std::optional<DimExpr> FollowNot(const Node&, std::span<const DimExpr> x) { return IsNot(x[0]); }

References IsNanReference(const ReferenceArguments& arguments) {
  return MapAs<double>(arguments, DType::kBool, [](double x) { return std::isnan(x); });
}

References IsInfReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t negative, arguments.node.Int("detect_negative", 1));
  ASSIGN_OR_RETURN(const int64_t positive, arguments.node.Int("detect_positive", 1));
  return MapAs<double>(arguments, DType::kBool, [&](double x) {
    return std::isinf(x) && (x < 0 ? negative != 0 : positive != 0);
  });
}

absl::StatusOr<Expr> IsInfExpr(const Node& node, const Expr& x) {
  ASSIGN_OR_RETURN(const int64_t negative, node.Int("detect_negative", 1));
  ASSIGN_OR_RETURN(const int64_t positive, node.Int("detect_positive", 1));
  const Expr infinite = Expr::Unary(ExprOp::kIsInf, x);
  const Expr wanted = Expr::Select(Less(x, Zero(x)), Expr::ConstantInt(DType::kBool, negative != 0),
                                   Expr::ConstantInt(DType::kBool, positive != 0));
  return And(infinite, wanted);
}

constexpr OpDefinition kOps[] = {
    FloatFunction<ExprOp::kSqrt, [](auto x) { return std::sqrt(x); }>("Sqrt"),
    FloatFunction<ExprOp::kExp, [](auto x) { return std::exp(x); }>("Exp"),
    FloatFunction<ExprOp::kLog, [](auto x) { return std::log(x); }>("Log"),
    FloatFunction<ExprOp::kSin, [](auto x) { return std::sin(x); }>("Sin"),
    FloatFunction<ExprOp::kCos, [](auto x) { return std::cos(x); }>("Cos"),
    FloatFunction<ExprOp::kTan, [](auto x) { return std::tan(x); }>("Tan"),
    FloatFunction<ExprOp::kAsin, [](auto x) { return std::asin(x); }>("Asin"),
    FloatFunction<ExprOp::kAcos, [](auto x) { return std::acos(x); }>("Acos"),
    FloatFunction<ExprOp::kAtan, [](auto x) { return std::atan(x); }>("Atan"),
    FloatFunction<ExprOp::kSinh, [](auto x) { return std::sinh(x); }>("Sinh"),
    FloatFunction<ExprOp::kCosh, [](auto x) { return std::cosh(x); }>("Cosh"),
    FloatFunction<ExprOp::kTanh, [](auto x) { return std::tanh(x); }>("Tanh"),
    FloatFunction<ExprOp::kAsinh, [](auto x) { return std::asinh(x); }>("Asinh"),
    FloatFunction<ExprOp::kAcosh, [](auto x) { return std::acosh(x); }>("Acosh"),
    FloatFunction<ExprOp::kAtanh, [](auto x) { return std::atanh(x); }>("Atanh"),
    FloatFunction<ExprOp::kErf, [](auto x) { return std::erf(x); }>("Erf"),
    FloatFunction<ExprOp::kFloor, [](auto x) { return std::floor(x); }>("Floor"),
    FloatFunction<ExprOp::kCeil, [](auto x) { return std::ceil(x); }>("Ceil"),
    FloatFunction<ExprOp::kRound, [](auto x) { return std::nearbyint(x); }>("Round"),
    {.name = "Reciprocal",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferSame<Types::kFloat>,
     .reference = FloatReference<[](auto x) { return 1 / x; }>,
     .variants = kUnaryNest<[](const Expr& x) { return One(x) / x; }>},
    {.name = "Neg",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferSame<Types::kNumeric, FollowNeg>,
     .reference = NumberReference<[](auto x) { return Negate(x); }>,
     .variants = kFunction<ExprOp::kNeg>},
    {.name = "Abs",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferSame<Types::kNumeric, FollowAbs>,
     .reference = NumberReference<[](auto x) { return Absolute(x); }>,
     .variants = kUnaryNest<[](const Expr& x) {
       return IsUnsignedInteger(x.dtype()) ? x : Expr::Unary(ExprOp::kAbs, x);
     }>},
    {.name = "Sign",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferSame<Types::kNumeric>,
     .reference = NumberReference<[](auto x) { return SignOf(x); }>,
     .variants = kUnaryNest<SignExpr>},
    {.name = "Not",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferSame<Types::kBool, FollowNot>,
     .reference = NotReference,
     .variants = kFunction<ExprOp::kNot>},
    {.name = "BitwiseNot",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferSame<Types::kInteger>,
     .reference = BitwiseNotReference,
     .variants = kFunction<ExprOp::kNot>},
    {.name = "IsNaN",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferTest<Types::kFloat>,
     .reference = IsNanReference,
     .variants = kFunction<ExprOp::kIsNan>},
    {.name = "IsInf",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferTest<Types::kFloat>,
     .reference = IsInfReference,
     .variants = kUnaryNest<IsInfExpr>},
};

}  // namespace

std::span<const OpDefinition> UnaryOps() { return kOps; }

}  // namespace stampmill
