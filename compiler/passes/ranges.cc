#include "compiler/passes/ranges.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace stampmill {
namespace {

Range OfNumbers(ExprOp op, const Range& a, const Range& b) {
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

}  // namespace

Range Ranges::Of(const Expr& e) {
  if (const auto found = known_.find(e.id()); found != known_.end()) return found->second.second;
  const Range range = Compute(e);
  known_.emplace(e.id(), std::make_pair(e, range));
  return range;
}

Range Ranges::Compute(const Expr& e) {
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

// Clamping to a constant bounds one side, whatever the value: a comparison with NaN fails.
Range Ranges::OfSelect(const Expr& e) {
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

Range Ranges::OfConstant(const Expr& load) const {
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

}  // namespace stampmill
