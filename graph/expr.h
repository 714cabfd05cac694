// Expr: the scalar expression DAG, the one form in which the arithmetic of every operator reaches
// every target: the reference interpreter evaluates it, the CPU and GPU code generators emit it,
// and fusion is substitution of one expression into another.
//
// An Expr is an immutable, typed node; sharing a node means computing it once. Integer arithmetic
// wraps; float arithmetic is IEEE 754 in the node's type, f16 and bf16 rounding after each node
// (lowerings compute in f32 and cast at the end). Coordinates, dims and load positions are i64.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/dim.h"
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
  kPow = 25,
  kAtan2 = 26,
  kBitAnd = 27,  // integers, and bool as logic
  kBitOr = 28,
  kBitXor = 29,
  kShiftLeft = 30,   // by >= the width: 0
  kShiftRight = 31,  // logical for unsigned, arithmetic for signed
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
  kIsNan = 87,  // result bool
  kIsInf = 88,  // result bool
  kCast =
      89,  // between any dtypes: float to integer toward zero, saturating, NaN to 0; to bool: != 0
  kBitCast = 90,  // between dtypes of one size
  // Ternary.
  kSelect = 96,  // {condition bool, a, b}; both sides may be evaluated
};

class Expr {
 public:
  Expr() = default;  // invalid; valid() is false

  static Expr Constant(DType dtype, double value);
  static Expr ConstantInt(DType dtype, int64_t value);  // exact for 64-bit integers
  static Expr Coord(int32_t axis);
  static Expr Dim(const DimExpr& dim);
  static Expr Load(DType dtype, int32_t operand, std::vector<Expr> coordinates);
  static Expr GuardedLoad(DType dtype, int32_t operand, std::vector<Expr> coordinates,
                          Expr condition, Expr otherwise);
  static Expr Reduced(DType dtype, int32_t index);
  static Expr Accumulator(DType dtype, int32_t index);
  // Checks operand types (CHECK: lowerings are our own code) and simplifies constants, x + 0,
  // x * 1, x * 0 on integers, selects on constants, casts to the same type.
  static Expr Unary(ExprOp op, Expr a);
  static Expr Binary(ExprOp op, Expr a, Expr b);
  static Expr Select(Expr condition, Expr a, Expr b);
  static Expr Cast(DType dtype, Expr a);
  static Expr BitCast(DType dtype, Expr a);

  bool valid() const { return node_ != nullptr; }
  ExprOp op() const;
  DType dtype() const;
  std::span<const Expr> operands() const;
  int32_t index() const;           // kCoord axis, kLoad operand, kReduced / kAccumulator index
  const DimExpr& dim() const;      // kDim
  uint64_t constant_bits() const;  // kConstant, zero-extended bits of the dtype
  double constant_value() const;
  int64_t constant_int() const;
  bool IsConstant() const { return op() == ExprOp::kConstant; }

  // Identity of the shared node, for memo tables.
  const void* id() const { return node_.get(); }
  // Structural equality and hash.
  friend bool operator==(const Expr& a, const Expr& b);
  size_t hash() const;
  std::string ToString() const;

  // Rebuilds bottom-up: `replace` sees each node after its operands were rebuilt and returns the
  // node to use in its place (the argument itself to keep it). Shared nodes are visited once.
  Expr Rewrite(const std::function<Expr(const Expr&)>& replace) const;
  // Calls `visit` on every distinct node, operands before users.
  void Visit(const std::function<void(const Expr&)>& visit) const;
  int64_t NodeCount() const;

  struct Node;  // private to expr.cc
 private:
  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

inline Expr operator+(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kAdd, a, b); }
inline Expr operator-(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kSub, a, b); }
inline Expr operator*(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kMul, a, b); }
inline Expr operator/(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kDiv, a, b); }
inline Expr operator-(const Expr& a) { return Expr::Unary(ExprOp::kNeg, a); }

}  // namespace stampmill
