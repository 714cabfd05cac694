#include "compiler/passes/coordinates.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

namespace stampmill {
namespace {

Expr Flatten(std::span<const Expr> coordinates, std::span<const DimExpr> extents) {
  Expr flat = Expr::ConstantInt(DType::kI64, 0);
  for (size_t i = 0; i < coordinates.size(); ++i) {
    if (extents[i].IsConstant(1)) continue;
    flat = flat * Expr::Dim(extents[i]) + coordinates[i];
  }
  return flat;
}

void Unflatten(const Expr& flat, std::span<const DimExpr> extents, std::vector<Expr>& out) {
  // Axes of extent 1 have coordinate 0; the first other axis needs no modulus.
  const size_t begin = out.size();
  out.resize(begin + extents.size(), Expr::ConstantInt(DType::kI64, 0));
  size_t first = 0;
  while (first < extents.size() && extents[first].IsConstant(1)) ++first;
  Expr rest = flat;
  for (size_t i = extents.size(); i-- > first;) {
    if (extents[i].IsConstant(1)) continue;
    const Expr extent = Expr::Dim(extents[i]);
    out[begin + i] = i == first ? rest : Expr::Binary(ExprOp::kFloorMod, rest, extent);
    rest = Expr::Binary(ExprOp::kFloorDiv, rest, extent);
  }
}

struct Groups {
  std::vector<std::pair<size_t, size_t>> sizes;  // axes of `from` and of `to` in each group
};

// Smallest groups whose products are equal, left to right.
std::optional<Groups> MatchGroups(std::span<const DimExpr> from, std::span<const DimExpr> to) {
  Groups groups;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    bool found = false;
    for (size_t total = 1; !found && total <= (from.size() - i) + (to.size() - j); ++total) {
      for (size_t a = 0; !found && a <= total; ++a) {
        const size_t b = total - a;
        if (a > from.size() - i || b > to.size() - j) continue;
        if (ElementCount(from.subspan(i, a)) == ElementCount(to.subspan(j, b))) {
          groups.sizes.push_back({a, b});
          i += a;
          j += b;
          found = true;
        }
      }
    }
    if (!found) return std::nullopt;
  }
  return groups;
}

}  // namespace

std::optional<std::vector<Expr>> MapCoordinates(std::span<const Expr> coordinates,
                                                std::span<const DimExpr> from,
                                                std::span<const DimExpr> to) {
  const std::optional<Groups> groups = MatchGroups(from, to);
  if (!groups.has_value()) return std::nullopt;
  std::vector<Expr> mapped;
  size_t i = 0, j = 0;
  for (const auto& [a, b] : groups->sizes) {
    if (a == 1 && b == 1) {
      mapped.push_back(coordinates[i]);
    } else {
      Unflatten(Flatten(coordinates.subspan(i, a), from.subspan(i, a)), to.subspan(j, b), mapped);
    }
    i += a;
    j += b;
  }
  return mapped;
}

std::vector<Expr> IdentityCoordinates(size_t rank) {
  std::vector<Expr> coordinates;
  for (size_t i = 0; i < rank; ++i) coordinates.push_back(Expr::Coord(static_cast<int32_t>(i)));
  return coordinates;
}

bool IsIdentity(std::span<const Expr> coordinates) {
  for (size_t i = 0; i < coordinates.size(); ++i) {
    if (coordinates[i].op() != ExprOp::kCoord) return false;
    if (coordinates[i].index() != static_cast<int32_t>(i)) return false;
  }
  return true;
}

Shape DomainOf(const Nest& nest) {
  Shape domain = nest.kept;
  if (nest.per_element) {
    domain.insert(domain.end(), nest.reduced.begin(), nest.reduced.end());
  }
  return domain;
}

Shape DomainOf(const Contraction& contraction) {
  Shape domain = contraction.batch;
  domain.insert(domain.end(), contraction.m.begin(), contraction.m.end());
  domain.push_back(contraction.n);
  return domain;
}

bool WalksPlainly(std::span<const Expr> coordinates, int32_t axis, std::optional<size_t>* place) {
  place->reset();
  for (size_t i = 0; i < coordinates.size(); ++i) {
    bool uses = false;
    coordinates[i].Visit(
        [&](const Expr& e) { uses |= e.op() == ExprOp::kCoord && e.index() == axis; });
    if (!uses) continue;
    if (place->has_value() || CoordinateFactor(coordinates[i], axis) != 1) return false;
    *place = i;
  }
  return true;
}

Expr SubstituteCoordinates(const Expr& expr, std::span<const Expr> coordinates) {
  return expr.Rewrite([&](const Expr& e) {
    return e.op() == ExprOp::kCoord ? coordinates[static_cast<size_t>(e.index())] : e;
  });
}

namespace {

int64_t NodeCost(const Expr& expr) {
  switch (expr.op()) {
    case ExprOp::kConstant:
    case ExprOp::kCoord:
    case ExprOp::kDim:
    case ExprOp::kLoad:
    case ExprOp::kGuardedLoad:
    case ExprOp::kReduced:
    case ExprOp::kAccumulator:
      return 0;
    case ExprOp::kDiv:
    case ExprOp::kSqrt:
    case ExprOp::kRemainder:
    case ExprOp::kFloorDiv:
    case ExprOp::kFloorMod:
      return 4;
    default:
      break;
  }
  const bool transcendental =
      (expr.op() >= ExprOp::kExp && expr.op() <= ExprOp::kErf) || expr.op() == ExprOp::kPow;
  return transcendental ? 12 : 1;
}

void AddCost(const Expr& expr, absl::flat_hash_set<const void*>& seen, int64_t& cost) {
  if (!seen.insert(expr.id()).second) return;
  cost += NodeCost(expr);
  if (expr.op() == ExprOp::kLoad) return;
  if (expr.op() == ExprOp::kGuardedLoad) {
    AddCost(expr.operands()[1], seen, cost);  // the value read otherwise
    return;
  }
  for (const Expr& operand : expr.operands()) AddCost(operand, seen, cost);
}

template <typename Body, typename Visit>
void VisitExprs(Body& body, const Visit& visit) {
  if (auto* nest = std::get_if<Nest>(&body)) {
    for (auto& reduction : nest->reductions) {
      for (auto& e : reduction.init) visit(e);
      for (auto& e : reduction.update) visit(e);
      for (auto& e : reduction.merge) visit(e);
      visit(reduction.result);
    }
    visit(nest->result);
    for (auto& e : nest->output_coordinates) visit(e);
  } else if (auto* contraction = std::get_if<Contraction>(&body)) {
    visit(contraction->a);
    if (contraction->rows.valid()) visit(contraction->rows);
    visit(contraction->result);
    for (auto& e : contraction->output_coordinates) visit(e);
  }
}

}  // namespace

int64_t ArithmeticCost(const Expr& expr) {
  absl::flat_hash_set<const void*> seen;
  int64_t cost = 0;
  AddCost(expr, seen, cost);
  return cost;
}

void ForEachExpr(StageBody& body, const std::function<void(Expr&)>& visit) {
  VisitExprs(body, visit);
}

void ForEachExpr(const StageBody& body, const std::function<void(const Expr&)>& visit) {
  VisitExprs(body, visit);
}

}  // namespace stampmill
