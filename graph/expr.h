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
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/dim.h"
#include "graph/dtype.h"
#include "graph/expr_op.h"

namespace stampmill {

class Expr {
 public:
  Expr() = default;  // invalid; valid() is false

  static Expr Constant(DType dtype, double value);
  static Expr ConstantInt(DType dtype, int64_t value);   // exact for 64-bit integers
  static Expr ConstantBits(DType dtype, uint64_t bits);  // what is past the width is dropped
  static Expr Coord(int32_t axis);
  static Expr Dim(const DimExpr& dim);
  static Expr Load(DType dtype, int32_t operand, std::vector<Expr> coordinates);
  static Expr GuardedLoad(DType dtype, int32_t operand, std::vector<Expr> coordinates,
                          Expr condition, Expr otherwise);
  static Expr Reduced(DType dtype, int32_t index);
  static Expr Accumulator(DType dtype, int32_t index);
  // Check operand types (CHECK: lowerings are our own code; FindScalarFunction has the rule) and
  // simplify, never changing a value: constants fold, integer identities (x + 0, x * 0, x / 1,
  // x - x, sums and products of constants and dims), float ones that are exact (x * 1), selects on
  // constants, casts to the same type. A constant operand of a commutative operation goes second.
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

  // This node over other operands, as many and of the same dtypes; simplified like a new one.
  Expr WithOperands(std::vector<Expr> operands) const;

  // Identity of the shared node, for memo tables.
  const void* id() const { return node_.get(); }
  // Structural equality and hash.
  friend bool operator==(const Expr& a, const Expr& b);
  size_t hash() const;
  // "mul(load0[c0, c1], 2)"; nodes used more than once are named: "%0 = ...; add(%0, %0)".
  std::string ToString() const;

  // Rebuilds bottom-up: `replace` sees each node after its operands were rebuilt and returns the
  // node to use in its place (the argument itself to keep it). Shared nodes are visited once.
  Expr Rewrite(const std::function<Expr(const Expr&)>& replace) const;
  // Calls `visit` on every distinct node, operands before users, the root last.
  void Visit(const std::function<void(const Expr&)>& visit) const;
  int64_t NodeCount() const;

  struct Node;  // private to expr.cc
 private:
  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  static Expr Finish(std::shared_ptr<Node> node);
  static Expr FromBits(DType dtype, uint64_t bits);
  static Expr Leaf(ExprOp op, DType dtype, int32_t index);
  static Expr Raw(ExprOp op, DType dtype, std::vector<Expr> operands);
  std::shared_ptr<const Node> node_;
};

// The value of an expression without loads, coordinates, reductions and accumulators, as bits of
// its dtype: dims are looked up by `symbols`. FAILED_PRECONDITION for other leaves.
absl::StatusOr<uint64_t> EvaluateScalar(const Expr& expr, const DimExpr::SymbolValue& symbols);

inline Expr operator+(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kAdd, a, b); }
inline Expr operator-(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kSub, a, b); }
inline Expr operator*(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kMul, a, b); }
inline Expr operator/(const Expr& a, const Expr& b) { return Expr::Binary(ExprOp::kDiv, a, b); }
inline Expr operator-(const Expr& a) { return Expr::Unary(ExprOp::kNeg, a); }

}  // namespace stampmill
