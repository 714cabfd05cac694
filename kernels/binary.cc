// Operators of two or more broadcast inputs: arithmetic, comparison, logic, bits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/elementwise.h"
#include "kernels/families.h"

namespace stampmill {
namespace {

// On double, int64_t and uint64_t; the width of the dtype is cut to when the result is stored.
template <typename T>
T Subtract(T a, T b) {
  if constexpr (std::floating_point<T>) return a - b;
  return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

// Toward zero; by zero gives 0, the least value by -1 wraps.
template <typename T>
T Divide(T a, T b) {
  if constexpr (std::integral<T>) {
    if (b == 0) return 0;
    if constexpr (std::signed_integral<T>) {
      if (b == -1) return Subtract(T{0}, a);
    }
    return static_cast<T>(a / b);
  } else {
    return a / b;
  }
}

// Sign of the dividend.
template <typename T>
T Remainder(T a, T b) {
  if constexpr (std::integral<T>) {
    if (b == 0) return 0;
    if constexpr (std::signed_integral<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  } else {
    return std::fmod(a, b);
  }
}

// Sign of the divisor.
template <typename T>
T Modulo(T a, T b) {
  T r = Remainder(a, b);
  if constexpr (std::floating_point<T>) {
    if (r == 0) return std::copysign(r, b);
  }
  if (r != 0 && (r < 0) != (b < 0)) r = static_cast<T>(r + b);
  return r;
}

template <auto f>
References NumbersReference(const ReferenceArguments& arguments) {
  return ZipNumbers(arguments, f);
}

// Operators of any number of inputs: f(f(a, b), c)...
template <auto f>
References FoldReference(const ReferenceArguments& arguments) {
  RETURN_IF_ERROR(CheckSameTypes(arguments));
  Tensor result = arguments.inputs[0];
  for (size_t i = 1; i < arguments.inputs.size(); ++i) {
    const Tensor pair[] = {result, arguments.inputs[i]};
    ASSIGN_OR_RETURN(std::vector<Tensor> next, ZipNumbers({arguments.node, pair}, f));
    result = std::move(next[0]);
  }
  return One(std::move(result));
}

// The sum, kept in double, over the count.
References MeanReference(const ReferenceArguments& arguments) {
  RETURN_IF_ERROR(CheckSameTypes(arguments));
  std::vector<Dims> shapes;
  for (const Tensor& input : arguments.inputs) shapes.push_back(input.shape());
  ASSIGN_OR_RETURN(const Dims dims, BroadcastDims(shapes));
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(arguments.inputs[0].dtype(), dims));
  int64_t next = 0;
  ForEachIndex(dims, [&](const Dims& index) {
    double sum = 0;
    for (const Tensor& input : arguments.inputs) {
      sum += input.ValueAsDouble(OffsetOf(index, BroadcastStrides(input.shape(), dims)));
    }
    output.SetFromDouble(next++, sum / static_cast<double>(arguments.inputs.size()));
  });
  return One(std::move(output));
}

absl::Status LowerMean(LowerContext& context) {
  return LowerElementwise(context,
                          [](const Node&, std::span<const Expr> x) -> absl::StatusOr<Expr> {
                            Expr sum = x[0];
                            for (size_t i = 1; i < x.size(); ++i) sum = sum + x[i];
                            return sum / Expr::Constant(sum.dtype(), static_cast<double>(x.size()));
                          });
}

// Contents of integers as dims.
using Elements = std::span<const DimExpr>;
std::optional<DimExpr> FollowAdd(const Node&, Elements x) { return x[0] + x[1]; }
std::optional<DimExpr> FollowSub(const Node&, Elements x) { return x[0] - x[1]; }
std::optional<DimExpr> FollowMul(const Node&, Elements x) { return x[0] * x[1]; }
std::optional<DimExpr> FollowMin(const Node&, Elements x) {
  DimExpr result = x[0];
  for (const DimExpr& e : x.subspan(1)) result = Min(result, e);
  return result;
}
std::optional<DimExpr> FollowMax(const Node&, Elements x) {
  DimExpr result = x[0];
  for (const DimExpr& e : x.subspan(1)) result = Max(result, e);
  return result;
}
std::optional<DimExpr> FollowSum(const Node&, Elements x) {
  DimExpr result = x[0];
  for (const DimExpr& e : x.subspan(1)) result = result + e;
  return result;
}

// A divisor that is 0 for some request fails that request.
bool IsDivisor(const DimExpr& e) { return e.LowerBound().value_or(-1) >= 0 && !e.IsConstant(0); }

// Division toward zero is floor division where both have known signs.
std::optional<DimExpr> FollowDiv(const Node&, Elements x) {
  if (!IsDivisor(x[1])) return std::nullopt;
  if (x[0].LowerBound().value_or(-1) >= 0) return FloorDiv(x[0], x[1]);
  if (x[0].UpperBound().value_or(1) <= 0) return 0 - FloorDiv(0 - x[0], x[1]);
  return std::nullopt;
}

std::optional<DimExpr> FollowMod(const Node& node, Elements x) {
  if (!IsDivisor(x[1])) return std::nullopt;
  const absl::StatusOr<int64_t> fmod = node.Int("fmod", 0);
  const bool like_c = fmod.ok() && *fmod != 0;
  if (like_c && x[0].LowerBound().value_or(-1) < 0) return std::nullopt;
  return Mod(x[0], x[1]);
}

std::optional<DimExpr> FollowEqual(const Node&, Elements x) { return IsEqual(x[0], x[1]); }
std::optional<DimExpr> FollowLess(const Node&, Elements x) { return IsLess(x[0], x[1]); }
std::optional<DimExpr> FollowGreater(const Node&, Elements x) { return IsLess(x[1], x[0]); }
std::optional<DimExpr> FollowLessOrEqual(const Node&, Elements x) {
  return IsNot(IsLess(x[1], x[0]));
}
std::optional<DimExpr> FollowGreaterOrEqual(const Node&, Elements x) {
  return IsNot(IsLess(x[0], x[1]));
}
std::optional<DimExpr> FollowAnd(const Node&, Elements x) { return Min(x[0], x[1]); }
std::optional<DimExpr> FollowOr(const Node&, Elements x) { return Max(x[0], x[1]); }
std::optional<DimExpr> FollowXor(const Node&, Elements x) { return IsNot(IsEqual(x[0], x[1])); }

// An arithmetic operator of two inputs that is one node of the expression language.
template <ExprOp op>
inline constexpr Variant kNode[] = {
    {"nest", AlwaysApplies,
     LowerBinary<[](const Expr& a, const Expr& b) { return Expr::Binary(op, a, b); }>}};
template <ExprOp op>
inline constexpr Variant kFoldNode[] = {
    {"nest", AlwaysApplies,
     LowerFold<[](const Expr& a, const Expr& b) { return Expr::Binary(op, a, b); }>}};

template <ExprOp op, auto f, FollowFunction follow>
constexpr OpDefinition Arithmetic(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 2,
          .max_inputs = 2,
          .infer = InferSame<Types::kNumeric, follow>,
          .reference = NumbersReference<f>,
          .variants = kNode<op>};
}

template <ExprOp op, auto f, FollowFunction follow>
constexpr OpDefinition Variadic(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 1,
          .max_inputs = -1,
          .infer = InferSame<Types::kNumeric, follow>,
          .reference = FoldReference<f>,
          .variants = kFoldNode<op>};
}

template <auto f>
References ComparisonReference(const ReferenceArguments& arguments) {
  RETURN_IF_ERROR(CheckSameTypes(arguments));
  return ZipNumbers(arguments, f, DType::kBool);
}

template <ExprOp op, auto f, FollowFunction follow, Types types = Types::kNumeric>
constexpr OpDefinition Comparison(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 2,
          .max_inputs = 2,
          .infer = InferTest<types, follow>,
          .reference = ComparisonReference<f>,
          .variants = kNode<op>};
}

template <auto f>
References BoolReference(const ReferenceArguments& arguments) {
  for (const Tensor& input : arguments.inputs) {
    if (input.dtype() != DType::kBool) return UnsupportedDType(input.dtype());
  }
  return ZipAs<int64_t, int64_t>(arguments, DType::kBool, f);
}

template <ExprOp op, auto f, FollowFunction follow>
constexpr OpDefinition Logic(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 2,
          .max_inputs = 2,
          .infer = InferTest<Types::kBool, follow>,
          .reference = BoolReference<f>,
          .variants = kNode<op>};
}

template <auto f>
References IntegersReference(const ReferenceArguments& arguments) {
  RETURN_IF_ERROR(CheckSameTypes(arguments));
  const DType dtype = arguments.inputs[0].dtype();
  if (!IsInteger(dtype)) return UnsupportedDType(dtype);
  return ZipAs<uint64_t, uint64_t>(arguments, dtype, f);
}

template <ExprOp op, auto f>
constexpr OpDefinition Bitwise(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 2,
          .max_inputs = 2,
          .infer = InferSame<Types::kInteger>,
          .reference = IntegersReference<f>,
          .variants = kNode<op>};
}

absl::Status InferBitShift(InferContext& context) {
  ASSIGN_OR_RETURN(const std::string direction, context.node().String("direction", ""));
  if (direction != "LEFT" && direction != "RIGHT") {
    return context.Error(absl::StrCat("direction: got '", direction, "', takes LEFT or RIGHT"));
  }
  return InferSame<Types::kInteger>(context);
}

// A count that is negative or at least the width shifts all bits out.
References BitShiftReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const std::string direction, arguments.node.String("direction", ""));
  const bool left = direction == "LEFT";
  const DType dtype = arguments.inputs[0].dtype();
  if (!IsInteger(dtype)) return UnsupportedDType(dtype);
  RETURN_IF_ERROR(CheckSameTypes(arguments));
  const uint64_t bits = 8 * SizeBytes(dtype);
  const auto shift = [&](auto x, auto count) {
    using T = decltype(x);
    const bool all = static_cast<uint64_t>(count) >= bits;
    if (left) return all ? T{0} : static_cast<T>(static_cast<uint64_t>(x) << count);
    if (all) return x < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(x >> count);
  };
  if (dtype == DType::kU64) return ZipAs<uint64_t, uint64_t>(arguments, dtype, shift);
  return ZipAs<int64_t, int64_t>(arguments, dtype, shift);
}

absl::StatusOr<Expr> BitShiftExpr(const Node& node, const Expr& x, const Expr& count) {
  ASSIGN_OR_RETURN(const std::string direction, node.String("direction", ""));
  const DType dtype = x.dtype();
  const int64_t bits = static_cast<int64_t>(8 * SizeBytes(dtype));
  Expr outside = LessEqual(Expr::ConstantInt(dtype, bits), count);
  if (IsSignedInteger(dtype)) outside = Or(outside, Less(count, Expr::ConstantInt(dtype, 0)));
  if (direction == "LEFT") {
    return Expr::Select(outside, Expr::ConstantInt(dtype, 0),
                        Expr::Binary(ExprOp::kShiftLeft, x, count));
  }
  // Arithmetic shifts by width - 1 leave nothing but copies of the sign.
  const Expr sign = IsSignedInteger(dtype)
                        ? Expr::Binary(ExprOp::kShiftRight, x, Expr::ConstantInt(dtype, bits - 1))
                        : Expr::ConstantInt(dtype, 0);
  return Expr::Select(outside, sign, Expr::Binary(ExprOp::kShiftRight, x, count));
}

References ModReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t like_c, arguments.node.Int("fmod", 0));
  if (like_c != 0) return ZipNumbers(arguments, [](auto a, auto b) { return Remainder(a, b); });
  return ZipNumbers(arguments, [](auto a, auto b) { return Modulo(a, b); });
}

absl::StatusOr<Expr> ModExpr(const Node& node, const Expr& a, const Expr& b) {
  ASSIGN_OR_RETURN(const int64_t like_c, node.Int("fmod", 0));
  return Expr::Binary(like_c != 0 ? ExprOp::kRemainder : ExprOp::kFloorMod, a, b);
}

// The exponent may have another type; the result has that of the base.
absl::Status InferPow(InferContext& context) {
  ASSIGN_OR_RETURN(const DType base, context.InputDType(0));
  ASSIGN_OR_RETURN(const DType exponent, context.InputDType(1));
  for (const DType dtype : {base, exponent}) {
    if (!Includes(Types::kNumeric, dtype)) {
      return context.Error(absl::StrCat("inputs are numbers, got ", Name(dtype)));
    }
  }
  ASSIGN_OR_RETURN(const Shape a, context.InputShape(0));
  ASSIGN_OR_RETURN(const Shape b, context.InputShape(1));
  const Shape shapes[] = {a, b};
  ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(context, shapes));
  return context.SetOutput(0, base, std::move(shape));
}

// Both as double, which holds all results of integers up to 2^53; beyond its type a result
// saturates, as a cast does.
References PowReference(const ReferenceArguments& arguments) {
  const DType dtype = arguments.inputs[0].dtype();
  return ZipAs<double, double>(arguments, dtype, [dtype](double base, double exponent) {
    const double power = std::pow(base, exponent);
    return std::isnan(power) && !IsFloat(dtype) ? 0 : power;
  });
}

Expr Power(const Expr& base, const Expr& exponent) {
  if (exponent.IsConstant()) {
    const double e = exponent.constant_value();
    if (e == 1) return base;
    if (e == 2) return base * base;
    if (e == 3) return base * base * base;
    if (e == 0.5) return Expr::Unary(ExprOp::kSqrt, base);
    if (e == -1) return Expr::Constant(base.dtype(), 1) / base;
  }
  return Expr::Binary(ExprOp::kPow, base, exponent);
}

// The single value of a constant input, as when a model squares; nullopt for more than one.
std::optional<double> UniformValue(const Value& value) {
  if (!value.constant.has_value() || value.constant->element_count() != 1) return std::nullopt;
  return value.constant->ValueAsDouble(0);
}

// Integers go through f64, which holds all results that do not overflow 2^53.
absl::Status LowerPow(LowerContext& context) {
  const Value& output = context.output(0);
  const DType compute = IsFloat(output.dtype) ? ComputeType(output.dtype) : DType::kF64;
  StageOperands operands;
  const auto input = [&](size_t i) {
    return Expr::Cast(compute, LoadElement(operands, operands.AddInput(context, i), *output.shape));
  };
  const Expr base = input(0);
  const std::optional<double> uniform = UniformValue(context.input(1));
  const Expr exponent = uniform.has_value() ? Expr::Constant(compute, *uniform) : input(1);
  EmitMap(context, std::move(operands), Power(base, exponent));
  return absl::OkStatus();
}

constexpr OpDefinition kOps[] = {
    Arithmetic<ExprOp::kAdd, [](auto a, auto b) { return WrapAdd(a, b); }, FollowAdd>("Add"),
    Arithmetic<ExprOp::kSub, [](auto a, auto b) { return Subtract(a, b); }, FollowSub>("Sub"),
    Arithmetic<ExprOp::kMul, [](auto a, auto b) { return WrapMul(a, b); }, FollowMul>("Mul"),
    Arithmetic<ExprOp::kDiv, [](auto a, auto b) { return Divide(a, b); }, FollowDiv>("Div"),
    Variadic<ExprOp::kAdd, [](auto a, auto b) { return WrapAdd(a, b); }, FollowSum>("Sum"),
    Variadic<ExprOp::kMax, [](auto a, auto b) { return NanMax(a, b); }, FollowMax>("Max"),
    Variadic<ExprOp::kMin, [](auto a, auto b) { return NanMin(a, b); }, FollowMin>("Min"),
    {.name = "Mean",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = -1,
     .infer = InferSame<Types::kFloat>,
     .reference = MeanReference,
     .variants = kNest<LowerMean>},
    {.name = "Mod",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferSame<Types::kNumeric, FollowMod>,
     .reference = ModReference,
     .variants = kBinaryNest<ModExpr>},
    {.name = "Pow",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferPow,
     .reference = PowReference,
     .variants = kNest<LowerPow>},
    Comparison<ExprOp::kEq, [](auto a, auto b) { return a == b; }, FollowEqual, Types::kAll>(
        "Equal"),
    Comparison<ExprOp::kLt, [](auto a, auto b) { return a < b; }, FollowLess>("Less"),
    Comparison<ExprOp::kLe, [](auto a, auto b) { return a <= b; }, FollowLessOrEqual>(
        "LessOrEqual"),
    Comparison<ExprOp::kGt, [](auto a, auto b) { return a > b; }, FollowGreater>("Greater"),
    Comparison<ExprOp::kGe, [](auto a, auto b) { return a >= b; }, FollowGreaterOrEqual>(
        "GreaterOrEqual"),
    Logic<ExprOp::kBitAnd, [](bool a, bool b) { return a && b; }, FollowAnd>("And"),
    Logic<ExprOp::kBitOr, [](bool a, bool b) { return a || b; }, FollowOr>("Or"),
    Logic<ExprOp::kBitXor, [](bool a, bool b) { return a != b; }, FollowXor>("Xor"),
    Bitwise<ExprOp::kBitAnd, [](auto a, auto b) { return a & b; }>("BitwiseAnd"),
    Bitwise<ExprOp::kBitOr, [](auto a, auto b) { return a | b; }>("BitwiseOr"),
    Bitwise<ExprOp::kBitXor, [](auto a, auto b) { return a ^ b; }>("BitwiseXor"),
    {.name = "BitShift",
     .domain = "",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferBitShift,
     .reference = BitShiftReference,
     .variants = kBinaryNest<BitShiftExpr>},
};

}  // namespace

std::span<const OpDefinition> BinaryOps() { return kOps; }

}  // namespace stampmill
