// ExprOp: the operations of scalar expressions, and what each does to host scalars. The interpreter
// and the folding of constants call the functions found here; code generators are compared with
// them.
//
// Integer arithmetic wraps. Floats: + - * / sqrt and rounding are exact IEEE 754 in the dtype, the
// rest is computed in f64 and rounded once. f16 and bf16 round after each operation. A cast of a
// float to an integer goes toward zero and saturates, NaN becomes 0; integers wrap; to bool is
// "!= 0"; to a float rounds to nearest even.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "graph/dtype.h"

namespace stampmill {

// Numbers are part of descriptors' canonical bytes: append only.
enum class ExprOp : uint8_t {
  // Leaves.
  kConstant = 0,  // bits, in dtype
  kCoord = 1,     // index of a loop axis; i64
  kDim = 2,       // value of a DimExpr; i64
  kLoad = 3,      // element of an operand at operands() = coordinates (i64), row-major in its shape
  kGuardedLoad = 4,  // operands() = {condition, otherwise, coordinates...}; reads only if condition
  kReduced = 5,      // result of reduction `index` of the nest at the current kept coordinates
  kAccumulator = 6,  // the running value of accumulator `index` within a reduction or an epilogue
  // Binary, operands of the node's dtype.
  kAdd = 16,
  kSub = 17,
  kMul = 18,
  kDiv = 19,        // floats: IEEE; integers: toward zero; x / 0 is 0, INT_MIN / -1 wraps
  kRemainder = 20,  // C's fmod and %: sign of the dividend; integer x % 0 is 0
  kFloorDiv = 21,   // integers: toward minus infinity; x / 0 is 0
  kFloorMod = 22,   // sign of the divisor (floats too); integer x mod 0 is 0
  kMin = 23,        // floats: NaN if either is NaN
  kMax = 24,
  kPow = 25,  // integers: wraps; a negative exponent truncates 1 / x^n, and 0 gives 0
  kAtan2 = 26,
  kBitAnd = 27,  // integers, and bool as logic
  kBitOr = 28,
  kBitXor = 29,
  kShiftLeft = 30,   // by a count read as unsigned; >= the width: 0
  kShiftRight = 31,  // logical for unsigned, arithmetic for signed; >= the width: 0 or -1
  // Comparisons: operands of one dtype, result bool. Ordered: false with NaN, but kNe true.
  kEq = 48,
  kNe = 49,
  kLt = 50,
  kLe = 51,
  kGt = 52,
  kGe = 53,
  // Unary.
  kNeg = 64,
  kAbs = 65,
  kNot = 66,  // bool: logical; integers: complement
  kFloor = 67,
  kCeil = 68,
  kRound = 69,  // half to even
  kTrunc = 70,
  kSqrt = 71,
  kExp = 72,
  kLog = 73,
  kSin = 74,
  kCos = 75,
  kTan = 76,
  kAsin = 77,
  kAcos = 78,
  kAtan = 79,
  kSinh = 80,
  kCosh = 81,
  kTanh = 82,
  kAsinh = 83,
  kAcosh = 84,
  kAtanh = 85,
  kErf = 86,
  kIsNan = 87,    // result bool
  kIsInf = 88,    // result bool
  kCast = 89,     // between any dtypes, see below
  kBitCast = 90,  // between dtypes of one size
  // Ternary.
  kSelect = 96,  // {condition bool, a, b}; both sides may be evaluated
};

// "add", "floordiv", ...; "?" for a number that is no operation.
absl::string_view Name(ExprOp op);
bool IsExprOp(uint8_t number);

// Operands of an arithmetic operation: 1, 2 or 3; 0 for leaves and loads.
int Arity(ExprOp op);
// Result is bool: comparisons, kIsNan, kIsInf.
bool IsPredicate(ExprOp op);
// The order of the two operands makes no difference.
bool IsCommutative(ExprOp op);

// A scalar is its bits, zero-extended. Unary functions ignore `b`.
using ScalarFunction = uint64_t (*)(uint64_t a, uint64_t b);

// The function of an operation of arity 1 or 2 on operands of dtype `operand`, with a result of
// dtype `result` (its own for kCast and kBitCast, else bool for predicates and `operand`). Null
// where the operation is not defined for these types: this is the type rule of expressions.
ScalarFunction FindScalarFunction(ExprOp op, DType operand, DType result);

}  // namespace stampmill
