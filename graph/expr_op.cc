// One function for each operation and dtype, made from four templates (floats, integers, bools,
// casts) and kept in one table.
#include "graph/expr_op.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace stampmill {
namespace {

constexpr size_t kOpCount = 97;
static_assert(static_cast<size_t>(ExprOp::kSelect) + 1 == kOpCount);

// How a dtype is kept in the bits of a scalar, and what it is computed in.
template <typename T>
struct Plain {
  using Compute = T;
  static T Load(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
  }
  static uint64_t Store(T value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    return bits;
  }
  static uint64_t StoreDouble(double value) { return Store(static_cast<T>(value)); }
};

template <DType dtype>
struct Format;
template <>
struct Format<DType::kBool> {
  using Compute = bool;
  static bool Load(uint64_t bits) { return bits != 0; }
  static uint64_t Store(bool value) { return value; }
};
template <>
struct Format<DType::kI8> : Plain<int8_t> {};
template <>
struct Format<DType::kI16> : Plain<int16_t> {};
template <>
struct Format<DType::kI32> : Plain<int32_t> {};
template <>
struct Format<DType::kI64> : Plain<int64_t> {};
template <>
struct Format<DType::kU8> : Plain<uint8_t> {};
template <>
struct Format<DType::kU16> : Plain<uint16_t> {};
template <>
struct Format<DType::kU32> : Plain<uint32_t> {};
template <>
struct Format<DType::kU64> : Plain<uint64_t> {};
template <>
struct Format<DType::kF32> : Plain<float> {};
template <>
struct Format<DType::kF64> : Plain<double> {};
template <>
struct Format<DType::kF16> {
  using Compute = float;
  static float Load(uint64_t bits) { return HalfToFloat(static_cast<uint16_t>(bits)); }
  static uint64_t Store(float value) { return FloatToHalf(value); }
  static uint64_t StoreDouble(double value) { return DoubleToHalf(value); }
};
template <>
struct Format<DType::kBF16> {
  using Compute = float;
  static float Load(uint64_t bits) { return BFloat16ToFloat(static_cast<uint16_t>(bits)); }
  static uint64_t Store(float value) { return FloatToBFloat16(value); }
  static uint64_t StoreDouble(double value) { return DoubleToBFloat16(value); }
};

constexpr bool IsFloatType(DType d) {
  return d == DType::kF16 || d == DType::kBF16 || d == DType::kF32 || d == DType::kF64;
}

constexpr bool IsComparison(ExprOp op) { return op >= ExprOp::kEq && op <= ExprOp::kGe; }
constexpr bool IsBinary(ExprOp op) {
  return (op >= ExprOp::kAdd && op <= ExprOp::kShiftRight) || IsComparison(op);
}
constexpr bool IsUnary(ExprOp op) { return op >= ExprOp::kNeg && op <= ExprOp::kIsInf; }

// Which operations a class of dtypes has. kCast and kBitCast have their own table.
constexpr bool IsDefined(ExprOp op, DType dtype) {
  if (dtype == DType::kInvalid || (!IsBinary(op) && !IsUnary(op))) return false;
  if (dtype == DType::kBool) {
    return op == ExprOp::kBitAnd || op == ExprOp::kBitOr || op == ExprOp::kBitXor ||
           op == ExprOp::kEq || op == ExprOp::kNe || op == ExprOp::kNot;
  }
  if (IsFloatType(dtype)) {
    return op != ExprOp::kFloorDiv && op != ExprOp::kNot &&
           !(op >= ExprOp::kBitAnd && op <= ExprOp::kShiftRight);
  }
  return op != ExprOp::kAtan2 && (IsBinary(op) || op <= ExprOp::kNot);
}

template <typename T>
bool Compare(ExprOp op, T a, T b) {
  switch (op) {
    case ExprOp::kEq:
      return a == b;
    case ExprOp::kNe:
      return a != b;
    case ExprOp::kLt:
      return a < b;
    case ExprOp::kLe:
      return a <= b;
    case ExprOp::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

// Rounded once when stored: f64 for the dtypes below it.
double FloatMath(ExprOp op, double a, double b) {
  switch (op) {
    case ExprOp::kRemainder:
      return std::fmod(a, b);
    case ExprOp::kFloorMod: {
      const double rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    case ExprOp::kPow:
      return std::pow(a, b);
    case ExprOp::kAtan2:
      return std::atan2(a, b);
    case ExprOp::kExp:
      return std::exp(a);
    case ExprOp::kLog:
      return std::log(a);
    case ExprOp::kSin:
      return std::sin(a);
    case ExprOp::kCos:
      return std::cos(a);
    case ExprOp::kTan:
      return std::tan(a);
    case ExprOp::kAsin:
      return std::asin(a);
    case ExprOp::kAcos:
      return std::acos(a);
    case ExprOp::kAtan:
      return std::atan(a);
    case ExprOp::kSinh:
      return std::sinh(a);
    case ExprOp::kCosh:
      return std::cosh(a);
    case ExprOp::kTanh:
      return std::tanh(a);
    case ExprOp::kAsinh:
      return std::asinh(a);
    case ExprOp::kAcosh:
      return std::acosh(a);
    case ExprOp::kAtanh:
      return std::atanh(a);
    default:
      return std::erf(a);
  }
}

// T is float or double. True when the operation is one of these; else FloatMath has it.
template <typename T>
bool FloatExact(ExprOp op, T a, T b, T* result) {
  switch (op) {
    case ExprOp::kAdd:
      *result = a + b;
      return true;
    case ExprOp::kSub:
      *result = a - b;
      return true;
    case ExprOp::kMul:
      *result = a * b;
      return true;
    case ExprOp::kDiv:
      *result = a / b;
      return true;
    case ExprOp::kMin:
      *result = std::isnan(a) || a < b ? a : b;
      return true;
    case ExprOp::kMax:
      *result = std::isnan(a) || a > b ? a : b;
      return true;
    case ExprOp::kNeg:
      *result = -a;
      return true;
    case ExprOp::kAbs:
      *result = std::fabs(a);
      return true;
    case ExprOp::kFloor:
      *result = std::floor(a);
      return true;
    case ExprOp::kCeil:
      *result = std::ceil(a);
      return true;
    case ExprOp::kRound:
      *result = std::nearbyint(a);
      return true;
    case ExprOp::kTrunc:
      *result = std::trunc(a);
      return true;
    case ExprOp::kSqrt:
      *result = std::sqrt(a);
      return true;
    default:
      return false;
  }
}

template <ExprOp op, DType dtype>
uint64_t ApplyFloat(uint64_t a_bits, uint64_t b_bits) {
  using F = Format<dtype>;
  using T = typename F::Compute;
  const T a = F::Load(a_bits);
  const T b = F::Load(b_bits);
  if constexpr (IsComparison(op)) return Compare(op, a, b);
  if constexpr (op == ExprOp::kIsNan) return std::isnan(a);
  if constexpr (op == ExprOp::kIsInf) return std::isinf(a);
  T result;
  if (FloatExact(op, a, b, &result)) return F::Store(result);
  return F::StoreDouble(FloatMath(op, a, b));
}

// U is unsigned: arithmetic that wraps without being undefined.
template <typename U>
U PowerOf(U base, U exponent) {
  U result = 1;
  while (exponent != 0) {
    if (exponent & 1) result = static_cast<U>(result * base);
    base = static_cast<U>(base * base);
    exponent = static_cast<U>(exponent >> 1);
  }
  return result;
}

template <typename T>
T IntegerPower(T base, T exponent) {
  using U = std::make_unsigned_t<T>;
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) {
      if (base == 1) return 1;
      if (base == -1) return (exponent & 1) != 0 ? -1 : 1;
      return 0;
    }
  }
  // u8 and u16 multiply as int; 65535 squared overflows it, so go through u64.
  return static_cast<T>(PowerOf<uint64_t>(static_cast<U>(base), static_cast<U>(exponent)));
}

template <typename T>
T IntegerDivide(ExprOp op, T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) {
      const bool quotient = op == ExprOp::kDiv || op == ExprOp::kFloorDiv;
      return quotient ? static_cast<T>(0 - static_cast<uint64_t>(a)) : T{0};
    }
  }
  const T quotient = static_cast<T>(a / b);
  const T rest = static_cast<T>(a % b);
  const bool crosses = rest != 0 && (rest < 0) != (b < 0);
  switch (op) {
    case ExprOp::kDiv:
      return quotient;
    case ExprOp::kRemainder:
      return rest;
    case ExprOp::kFloorDiv:
      return static_cast<T>(quotient - (crosses ? 1 : 0));
    default:
      return static_cast<T>(crosses ? rest + b : rest);
  }
}

template <typename T>
T IntegerShift(ExprOp op, T a, T count_bits) {
  using U = std::make_unsigned_t<T>;
  constexpr unsigned kWidth = sizeof(T) * 8;
  const U count = static_cast<U>(count_bits);
  if (op == ExprOp::kShiftLeft) {
    return count >= kWidth ? T{0} : static_cast<T>(static_cast<uint64_t>(a) << count);
  }
  if (count >= kWidth) return static_cast<T>(std::is_signed_v<T> && a < 0 ? -1 : 0);
  return static_cast<T>(a >> count);
}

template <typename T>
T Integer(ExprOp op, T a, T b) {
  // u64 wraps for all of them, and no operand is promoted to a signed int.
  const uint64_t x = static_cast<uint64_t>(a);
  const uint64_t y = static_cast<uint64_t>(b);
  switch (op) {
    case ExprOp::kAdd:
      return static_cast<T>(x + y);
    case ExprOp::kSub:
      return static_cast<T>(x - y);
    case ExprOp::kMul:
      return static_cast<T>(x * y);
    case ExprOp::kDiv:
    case ExprOp::kRemainder:
    case ExprOp::kFloorDiv:
    case ExprOp::kFloorMod:
      return IntegerDivide(op, a, b);
    case ExprOp::kMin:
      return std::min(a, b);
    case ExprOp::kMax:
      return std::max(a, b);
    case ExprOp::kPow:
      return IntegerPower(a, b);
    case ExprOp::kBitAnd:
      return static_cast<T>(x & y);
    case ExprOp::kBitOr:
      return static_cast<T>(x | y);
    case ExprOp::kBitXor:
      return static_cast<T>(x ^ y);
    case ExprOp::kShiftLeft:
    case ExprOp::kShiftRight:
      return IntegerShift(op, a, b);
    case ExprOp::kNeg:
      return static_cast<T>(0 - x);
    case ExprOp::kAbs:
      return a < 0 ? static_cast<T>(0 - x) : a;
    default:
      return static_cast<T>(~x);
  }
}

template <ExprOp op, DType dtype>
uint64_t ApplyInteger(uint64_t a, uint64_t b) {
  using F = Format<dtype>;
  if constexpr (IsComparison(op)) return Compare(op, F::Load(a), F::Load(b));
  return F::Store(Integer(op, F::Load(a), F::Load(b)));
}

template <ExprOp op>
uint64_t ApplyBool(uint64_t a, uint64_t b) {
  switch (op) {
    case ExprOp::kBitAnd:
      return (a != 0) && (b != 0);
    case ExprOp::kBitOr:
      return (a != 0) || (b != 0);
    case ExprOp::kEq:
      return (a != 0) == (b != 0);
    case ExprOp::kNot:
      return a == 0;
    default:  // kBitXor, kNe
      return (a != 0) != (b != 0);
  }
}

template <typename T>
T SaturateFrom(double value) {
  // 2^digits is the first value past the largest.
  constexpr double kEnd = std::is_same_v<T, uint64_t> ? 0x1p64
                          : std::is_same_v<T, int64_t>
                              ? 0x1p63
                              : static_cast<double>(std::numeric_limits<T>::max()) + 1;
  if (std::isnan(value)) return 0;
  if (value >= kEnd) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  return static_cast<T>(value);
}

template <DType from, DType to>
uint64_t ApplyCast(uint64_t bits, uint64_t) {
  using T = typename Format<to>::Compute;
  const auto value = Format<from>::Load(bits);
  if constexpr (to == DType::kBool) {
    return value != 0;
  } else if constexpr (from == to) {
    return bits;
  } else if constexpr (to == DType::kF16 || to == DType::kBF16) {
    return Format<to>::StoreDouble(static_cast<double>(value));
  } else if constexpr (IsFloatType(to) || !IsFloatType(from)) {
    return Format<to>::Store(static_cast<T>(value));
  } else {
    return Format<to>::Store(SaturateFrom<T>(value));
  }
}

uint64_t KeepBits(uint64_t bits, uint64_t) { return bits; }

template <ExprOp op, DType dtype>
constexpr ScalarFunction FunctionOf() {
  if constexpr (!IsDefined(op, dtype)) {
    return nullptr;
  } else if constexpr (dtype == DType::kBool) {
    return ApplyBool<op>;
  } else if constexpr (IsFloatType(dtype)) {
    return ApplyFloat<op, dtype>;
  } else {
    return ApplyInteger<op, dtype>;
  }
}

using Row = std::array<ScalarFunction, kDTypeCount>;

template <size_t op, size_t... dtype>
constexpr Row OperationRow(std::index_sequence<dtype...>) {
  return {FunctionOf<static_cast<ExprOp>(op), static_cast<DType>(dtype)>()...};
}

template <size_t... op>
constexpr std::array<Row, kOpCount> OperationTable(std::index_sequence<op...>) {
  return {OperationRow<op>(std::make_index_sequence<kDTypeCount>())...};
}

template <size_t from, size_t to>
constexpr ScalarFunction CastOf() {
  if constexpr (from == 0 || to == 0) {
    return nullptr;
  } else {
    return ApplyCast<static_cast<DType>(from), static_cast<DType>(to)>;
  }
}

template <size_t from, size_t... to>
constexpr Row CastRow(std::index_sequence<to...>) {
  return {CastOf<from, to>()...};
}

template <size_t... from>
constexpr std::array<Row, kDTypeCount> CastTable(std::index_sequence<from...>) {
  return {CastRow<from>(std::make_index_sequence<kDTypeCount>())...};
}

constexpr std::array<Row, kOpCount> kOperations =
    OperationTable(std::make_index_sequence<kOpCount>());
constexpr std::array<Row, kDTypeCount> kCasts = CastTable(std::make_index_sequence<kDTypeCount>());

constexpr std::array<std::pair<ExprOp, const char*>, 57> kNames = {{
    {ExprOp::kConstant, "constant"},
    {ExprOp::kCoord, "coord"},
    {ExprOp::kDim, "dim"},
    {ExprOp::kLoad, "load"},
    {ExprOp::kGuardedLoad, "guarded_load"},
    {ExprOp::kReduced, "reduced"},
    {ExprOp::kAccumulator, "accumulator"},
    {ExprOp::kAdd, "add"},
    {ExprOp::kSub, "sub"},
    {ExprOp::kMul, "mul"},
    {ExprOp::kDiv, "div"},
    {ExprOp::kRemainder, "remainder"},
    {ExprOp::kFloorDiv, "floordiv"},
    {ExprOp::kFloorMod, "floormod"},
    {ExprOp::kMin, "min"},
    {ExprOp::kMax, "max"},
    {ExprOp::kPow, "pow"},
    {ExprOp::kAtan2, "atan2"},
    {ExprOp::kBitAnd, "and"},
    {ExprOp::kBitOr, "or"},
    {ExprOp::kBitXor, "xor"},
    {ExprOp::kShiftLeft, "shl"},
    {ExprOp::kShiftRight, "shr"},
    {ExprOp::kEq, "eq"},
    {ExprOp::kNe, "ne"},
    {ExprOp::kLt, "lt"},
    {ExprOp::kLe, "le"},
    {ExprOp::kGt, "gt"},
    {ExprOp::kGe, "ge"},
    {ExprOp::kNeg, "neg"},
    {ExprOp::kAbs, "abs"},
    {ExprOp::kNot, "not"},
    {ExprOp::kFloor, "floor"},
    {ExprOp::kCeil, "ceil"},
    {ExprOp::kRound, "round"},
    {ExprOp::kTrunc, "trunc"},
    {ExprOp::kSqrt, "sqrt"},
    {ExprOp::kExp, "exp"},
    {ExprOp::kLog, "log"},
    {ExprOp::kSin, "sin"},
    {ExprOp::kCos, "cos"},
    {ExprOp::kTan, "tan"},
    {ExprOp::kAsin, "asin"},
    {ExprOp::kAcos, "acos"},
    {ExprOp::kAtan, "atan"},
    {ExprOp::kSinh, "sinh"},
    {ExprOp::kCosh, "cosh"},
    {ExprOp::kTanh, "tanh"},
    {ExprOp::kAsinh, "asinh"},
    {ExprOp::kAcosh, "acosh"},
    {ExprOp::kAtanh, "atanh"},
    {ExprOp::kErf, "erf"},
    {ExprOp::kIsNan, "isnan"},
    {ExprOp::kIsInf, "isinf"},
    {ExprOp::kCast, "cast"},
    {ExprOp::kBitCast, "bitcast"},
    {ExprOp::kSelect, "select"},
}};

}  // namespace

absl::string_view Name(ExprOp op) {
  for (const auto& [candidate, name] : kNames) {
    if (candidate == op) return name;
  }
  return "?";
}

bool IsExprOp(uint8_t number) { return Name(static_cast<ExprOp>(number)) != "?"; }

int Arity(ExprOp op) {
  if (IsBinary(op)) return 2;
  if (IsUnary(op) || op == ExprOp::kCast || op == ExprOp::kBitCast) return 1;
  return op == ExprOp::kSelect ? 3 : 0;
}

bool IsPredicate(ExprOp op) {
  return IsComparison(op) || op == ExprOp::kIsNan || op == ExprOp::kIsInf;
}

bool IsCommutative(ExprOp op) {
  return op == ExprOp::kAdd || op == ExprOp::kMul || op == ExprOp::kMin || op == ExprOp::kMax ||
         op == ExprOp::kBitAnd || op == ExprOp::kBitOr || op == ExprOp::kBitXor ||
         op == ExprOp::kEq || op == ExprOp::kNe;
}

ScalarFunction FindScalarFunction(ExprOp op, DType operand, DType result) {
  const size_t from = static_cast<size_t>(operand);
  const size_t to = static_cast<size_t>(result);
  const size_t row = static_cast<size_t>(op);
  if (from >= kDTypeCount || to >= kDTypeCount || row >= kOpCount) return nullptr;
  if (op == ExprOp::kCast) return kCasts[from][to];
  if (op == ExprOp::kBitCast) {
    // A bool holds 0 or 1 only: no bits may be cast to it.
    const bool allowed = from != 0 && SizeBytes(operand) == SizeBytes(result) &&
                         (result != DType::kBool || operand == DType::kBool);
    return allowed ? KeepBits : nullptr;
  }
  if (result != (IsPredicate(op) ? DType::kBool : operand)) return nullptr;
  return kOperations[row][from];
}

}  // namespace stampmill
