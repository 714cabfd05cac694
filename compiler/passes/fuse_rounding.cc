// Quantising and dequantising meet in one expression once what is between them is fused: the byte
// in the middle is never stored. real(byte(round(t) + q)) - z is round(t), clamped, exactly: all of
// these are small whole numbers. What becomes of NaN is said only where NaN can be: sums of
// integers times known scales are ordinary numbers, and so is what has been clamped.
#include <optional>
#include <utility>

#include "compiler/passes/coordinates.h"
#include "compiler/passes/fusion.h"
#include "compiler/passes/ranges.h"

namespace stampmill {
namespace {

bool IsByte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

Expr Real(double value) { return Expr::Constant(DType::kF32, value); }

// e - constant as e and the constant.
std::pair<Expr, double> TakeConstant(const Expr& e) {
  const auto operands = e.operands();
  if (e.op() == ExprOp::kSub && operands[1].IsConstant()) {
    return {operands[0], -operands[1].constant_value()};
  }
  if (e.op() == ExprOp::kAdd && operands[1].IsConstant()) {
    return {operands[0], operands[1].constant_value()};
  }
  return {e, 0};
}

// Whole, and small enough that sums with bytes are exact.
bool IsSmallWhole(double value) {
  return value > -65536 && value < 65536 && value == static_cast<double>(static_cast<int>(value));
}

std::optional<Expr> Simplified(const Expr& e, Ranges& ranges) {
  // Of two ordinary numbers a comparison tells the greater.
  if ((e.op() == ExprOp::kMax || e.op() == ExprOp::kMin) && e.dtype() == DType::kF32 &&
      ranges.Of(e.operands()[0]).is_known() && ranges.Of(e.operands()[1]).is_known()) {
    const ExprOp beats = e.op() == ExprOp::kMax ? ExprOp::kGt : ExprOp::kLt;
    const Expr& a = e.operands()[0];
    const Expr& b = e.operands()[1];
    return Expr::Select(Expr::Binary(beats, a, b), a, b);
  }
  if (e.op() != ExprOp::kCast || e.dtype() != DType::kF32) return std::nullopt;
  auto [integer, less] = TakeConstant(e.operands()[0]);
  if (integer.dtype() == DType::kI32 && integer.op() == ExprOp::kCast) {
    integer = integer.operands()[0];
  } else if (less != 0) {
    return std::nullopt;  // arithmetic in bytes wraps
  }
  if (integer.op() != ExprOp::kCast || !IsByte(integer.dtype())) return std::nullopt;
  auto [rounded, zero] = TakeConstant(integer.operands()[0]);
  if (rounded.dtype() != DType::kF32 || rounded.op() != ExprOp::kRound) return std::nullopt;
  if (!IsSmallWhole(zero) || !IsSmallWhole(less)) return std::nullopt;
  const bool is_signed = integer.dtype() == DType::kI8;
  const Expr least = Real((is_signed ? -128 : 0) - zero);
  const Expr greatest = Real((is_signed ? 127 : 255) - zero);
  Expr value = rounded;
  // NaN becomes the byte 0, which is the least of u8: a comparison with NaN fails.
  if (is_signed && !ranges.Of(rounded).is_known()) {
    value = Expr::Select(Expr::Binary(ExprOp::kEq, value, value), value, Real(-zero));
  }
  value = Expr::Select(Expr::Binary(ExprOp::kGt, value, least), value, least);
  value = Expr::Select(Expr::Binary(ExprOp::kLt, value, greatest), value, greatest);
  return zero + less == 0 ? value : value + Real(zero + less);
}

}  // namespace

void SimplifyRoundings(StageGraph& stages) {
  for (Stage& stage : stages.stages) {
    if (stage.removed || std::holds_alternative<Library>(stage.body)) continue;
    Ranges ranges(stages, stage);
    ForEachExpr(stage.body, [&](Expr& expr) {
      expr = expr.Rewrite([&](const Expr& e) { return Simplified(e, ranges).value_or(e); });
    });
  }
}

}  // namespace stampmill
