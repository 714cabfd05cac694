#include "compiler/codegen/access.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace stampmill {
namespace {

int64_t NodeCost(const Expr& e) {
  switch (e.op()) {
    case ExprOp::kConstant:
    case ExprOp::kCoord:
    case ExprOp::kDim:
    case ExprOp::kReduced:
    case ExprOp::kAccumulator:
      return 0;
    case ExprOp::kGuardedLoad:
      return 3;
    case ExprOp::kDiv:
    case ExprOp::kFloorDiv:
    case ExprOp::kFloorMod:
    case ExprOp::kRemainder:
    case ExprOp::kSqrt:
      return IsFloat(e.dtype()) ? 6 : 12;
    case ExprOp::kExp:
    case ExprOp::kLog:
    case ExprOp::kTanh:
    case ExprOp::kErf:
    case ExprOp::kAtan:
      return 20;
    case ExprOp::kPow:
    case ExprOp::kSin:
    case ExprOp::kCos:
    case ExprOp::kTan:
    case ExprOp::kAsin:
    case ExprOp::kAcos:
    case ExprOp::kAtan2:
    case ExprOp::kSinh:
    case ExprOp::kCosh:
    case ExprOp::kAsinh:
    case ExprOp::kAcosh:
    case ExprOp::kAtanh:
      return 40;
    default:
      return 1;
  }
}

int64_t NodeOperations(const Expr& e) {
  constexpr int64_t kOfFunction = 14;
  if (e.dtype() == DType::kI64 || e.dtype() == DType::kBool) return 0;
  if (e.op() == ExprOp::kPow || e.op() == ExprOp::kAtan2) return kOfFunction;
  if (e.op() >= ExprOp::kExp && e.op() <= ExprOp::kErf) return kOfFunction;
  if (e.op() >= ExprOp::kAdd && e.op() <= ExprOp::kMax) return 1;
  return e.op() >= ExprOp::kNeg && e.op() <= ExprOp::kSqrt ? 1 : 0;
}

template <typename NodeSum>
int64_t SumOverNodes(std::span<const Expr> expressions, NodeSum of_node) {
  absl::flat_hash_set<const void*> seen;
  int64_t sum = 0;
  for (const Expr& e : expressions) {
    e.Visit([&](const Expr& node) {
      if (seen.insert(node.id()).second) sum += of_node(node);
    });
  }
  return sum;
}

}  // namespace

bool DependsOn(const Expr& e, int32_t axis) {
  bool found = false;
  e.Visit([&](const Expr& node) {
    if (node.op() == ExprOp::kCoord && node.index() == axis) found = true;
  });
  return found;
}

std::optional<int64_t> CoordinateFactor(const Expr& e, int32_t axis) {
  switch (e.op()) {
    case ExprOp::kCoord:
      return e.index() == axis ? 1 : 0;
    case ExprOp::kAdd:
    case ExprOp::kSub: {
      std::optional<int64_t> a = CoordinateFactor(e.operands()[0], axis);
      std::optional<int64_t> b = CoordinateFactor(e.operands()[1], axis);
      if (!a || !b) return std::nullopt;
      return e.op() == ExprOp::kAdd ? *a + *b : *a - *b;
    }
    case ExprOp::kMul:
      for (int side = 0; side < 2; ++side) {
        const Expr& constant = e.operands()[static_cast<size_t>(side)];
        if (!constant.IsConstant()) continue;
        std::optional<int64_t> factor =
            CoordinateFactor(e.operands()[static_cast<size_t>(1 - side)], axis);
        if (!factor) return std::nullopt;
        return *factor * constant.constant_int();
      }
      break;
    default:
      break;
  }
  if (DependsOn(e, axis)) return std::nullopt;
  return 0;
}

AxisWalk WalkOf(std::span<const Expr> coordinates, int32_t axis) {
  bool stays = true;
  bool unit = true;
  for (size_t n = 0; n < coordinates.size(); ++n) {
    std::optional<int64_t> factor = CoordinateFactor(coordinates[n], axis);
    if (factor != 0) stays = false;
    if (factor != (n + 1 == coordinates.size() ? 1 : 0)) unit = false;
  }
  if (stays) return AxisWalk::kStays;
  return unit ? AxisWalk::kUnit : AxisWalk::kStrided;
}

std::optional<int64_t> AddressFactor(const Expr& load, std::span<const DimExpr> shape,
                                     int32_t axis) {
  Shape strides = RowMajorStrides(shape);
  std::span<const Expr> coordinates = LoadCoordinates(load);
  int64_t result = 0;
  for (size_t n = 0; n < coordinates.size(); ++n) {
    std::optional<int64_t> factor = CoordinateFactor(coordinates[n], axis);
    if (!factor.has_value()) return std::nullopt;
    if (*factor == 0) continue;
    if (!strides[n].is_constant()) return std::nullopt;
    result += *factor * *strides[n].constant();
  }
  return result;
}

bool IsLoad(const Expr& e) { return e.op() == ExprOp::kLoad || e.op() == ExprOp::kGuardedLoad; }

std::span<const Expr> LoadCoordinates(const Expr& load) {
  return load.op() == ExprOp::kGuardedLoad ? load.operands().subspan(2) : load.operands();
}

namespace {

// Whether the value of `e` depends on the axis other than through where loads read.
bool IsUsedOutsideLoads(const Expr& e, int32_t axis) {
  if (e.op() == ExprOp::kCoord) return e.index() == axis;
  if (e.op() == ExprOp::kLoad) return false;
  if (e.op() == ExprOp::kGuardedLoad) return IsUsedOutsideLoads(e.operands()[1], axis);
  return std::any_of(e.operands().begin(), e.operands().end(),
                     [axis](const Expr& operand) { return IsUsedOutsideLoads(operand, axis); });
}

}  // namespace

size_t RunAxesOfK(const Contraction& contraction) {
  const size_t first = contraction.batch.size() + contraction.m.size();
  const size_t last = first + contraction.k.size() - 1;
  size_t count = 1;
  int64_t run = *contraction.k.back().constant();
  const auto continues = [&](size_t axis) {
    bool all = !IsUsedOutsideLoads(contraction.a, static_cast<int32_t>(axis)) &&
               !IsUsedOutsideLoads(contraction.a, static_cast<int32_t>(last));
    contraction.a.Visit([&](const Expr& node) {
      if (!IsLoad(node)) return;
      const Shape& shape = contraction.operands[static_cast<size_t>(node.index())].shape;
      const std::optional<int64_t> inner = AddressFactor(node, shape, static_cast<int32_t>(last));
      const std::optional<int64_t> outer = AddressFactor(node, shape, static_cast<int32_t>(axis));
      all = all && inner.has_value() && outer.has_value() && *outer == *inner * run;
    });
    return all;
  };
  while (count < contraction.k.size() && continues(last - count)) {
    run *= *contraction.k[contraction.k.size() - 1 - count].constant();
    ++count;
  }
  return count;
}

std::vector<Expr> Expressions(const Nest& nest) {
  std::vector<Expr> all;
  for (const Reduction& reduction : nest.reductions) {
    all.insert(all.end(), reduction.init.begin(), reduction.init.end());
    all.insert(all.end(), reduction.update.begin(), reduction.update.end());
    all.push_back(reduction.result);
  }
  all.push_back(nest.result);
  all.insert(all.end(), nest.output_coordinates.begin(), nest.output_coordinates.end());
  return all;
}

int64_t CostOf(std::span<const Expr> expressions) {
  return std::max<int64_t>(SumOverNodes(expressions, NodeCost), 1);
}

int64_t OperationsOf(std::span<const Expr> expressions) {
  return SumOverNodes(expressions, NodeOperations);
}

}  // namespace stampmill
