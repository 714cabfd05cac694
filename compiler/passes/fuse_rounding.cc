// Quantising and dequantising meet in one expression once what is between them is fused: the byte
// in the middle is never stored. real(byte(round(t) + q)) - z is round(t), clamped, exactly: all of
// these are small whole numbers. What becomes of NaN is said only where NaN can be: sums of
// integers times known scales are ordinary numbers, and so is what has been clamped.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "compiler/passes/coordinates.h"
#include "compiler/passes/fusion.h"

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

// Between which numbers a value lies. Where both are known it is an ordinary number; where neither
// is it may be NaN too.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double greatest = std::numeric_limits<double>::infinity();
  // Far from where f32 ends, rounding included.
  bool is_known() const { return least > -1e30 && greatest < 1e30; }
};

// Ranges of the expressions of one stage.
class Ranges {
 public:
  Ranges(const StageGraph& stages, const Stage& stage) : stages_(stages), stage_(stage) {}

  Range Of(const Expr& e) {
    if (const auto found = known_.find(e.id()); found != known_.end()) return found->second.second;
    const Range range = Compute(e);
    known_.emplace(e.id(), std::make_pair(e, range));
    return range;
  }

 private:
  Range Compute(const Expr& e) {
    const auto operands = e.operands();
    if (e.op() == ExprOp::kConstant) return {e.constant_value(), e.constant_value()};
    if (e.op() == ExprOp::kLoad) return OfConstant(e);
    if (e.op() == ExprOp::kSelect) return OfSelect(e);
    if (e.op() == ExprOp::kCast) {
      if (!IsFloat(e.dtype()) || !IsInteger(operands[0].dtype())) return {};
      const double size = std::exp2(static_cast<double>(SizeBytes(operands[0].dtype()) * 8));
      return {-size, size};
    }
    if (Arity(e.op()) == 0 || Arity(e.op()) > 2 || IsPredicate(e.op())) return {};
    const Range a = Of(operands[0]);
    const Range b = Arity(e.op()) == 2 ? Of(operands[1]) : a;
    return a.is_known() && b.is_known() ? OfNumbers(e.op(), a, b) : Range{};
  }

  static Range OfNumbers(ExprOp op, const Range& a, const Range& b) {
    switch (op) {
      case ExprOp::kAdd:
        return {a.least + b.least, a.greatest + b.greatest};
      case ExprOp::kSub:
        return {a.least - b.greatest, a.greatest - b.least};
      case ExprOp::kMul: {
        const auto corners = {a.least * b.least, a.least * b.greatest, a.greatest * b.least,
                              a.greatest * b.greatest};
        return {std::min(corners), std::max(corners)};
      }
      case ExprOp::kRound:
        return {a.least - 1, a.greatest + 1};
      case ExprOp::kMin:
        return {std::min(a.least, b.least), std::min(a.greatest, b.greatest)};
      case ExprOp::kMax:
        return {std::max(a.least, b.least), std::max(a.greatest, b.greatest)};
      default:
        return {};
    }
  }

  // Clamping to a constant bounds one side, whatever the value: a comparison with NaN fails.
  Range OfSelect(const Expr& e) {
    const auto operands = e.operands();
    const Range value = Of(operands[1]), other = Of(operands[2]);
    const Expr& condition = operands[0];
    const bool clamps = other.is_known() && operands[2].IsConstant() &&
                        (condition.op() == ExprOp::kGt || condition.op() == ExprOp::kLt) &&
                        condition.operands()[0].id() == operands[1].id() &&
                        condition.operands()[1] == operands[2];
    if (clamps && condition.op() == ExprOp::kGt) {
      return {std::max(value.least, other.least), std::max(value.greatest, other.greatest)};
    }
    if (clamps) {
      return {std::min(value.least, other.least), std::min(value.greatest, other.greatest)};
    }
    if (!value.is_known() || !other.is_known()) return {};
    return {std::min(value.least, other.least), std::max(value.greatest, other.greatest)};
  }

  Range OfConstant(const Expr& load) {
    constexpr int64_t kElementsMax = int64_t{1} << 16;
    const ValueId id = stage_.operands[static_cast<size_t>(load.index())];
    const std::optional<Tensor>& tensor = stages_.value(id).constant;
    if (!tensor.has_value() || !IsFloat(tensor->dtype()) || tensor->element_count() == 0 ||
        tensor->element_count() > kElementsMax) {
      return {};
    }
    Range range = {tensor->ValueAsDouble(0), tensor->ValueAsDouble(0)};
    for (int64_t i = 0; i < tensor->element_count(); ++i) {
      const double value = tensor->ValueAsDouble(i);
      if (std::isnan(value)) return {};
      range = {std::min(range.least, value), std::max(range.greatest, value)};
    }
    return range;
  }

  const StageGraph& stages_;
  const Stage& stage_;
  // The expressions are kept: an id is one only as long as its node lives.
  absl::flat_hash_map<const void*, std::pair<Expr, Range>> known_;
};

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
