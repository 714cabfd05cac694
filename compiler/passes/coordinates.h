// Coordinates as expressions: what fusion needs to move a load from one index space to another.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "compiler/codegen/access.h"
#include "graph/dim.h"
#include "graph/expr.h"
#include "graph/nest.h"

namespace stampmill {

// Coordinates in `to` of the element at `coordinates` in `from`, where both shapes number the same
// elements in row-major order (a reshape). Axes are matched in groups of equal extent, so that what
// a reshape leaves alone stays a plain coordinate. nullopt when the shapes' products cannot be
// proved equal.
std::optional<std::vector<Expr>> MapCoordinates(std::span<const Expr> coordinates,
                                                std::span<const DimExpr> from,
                                                std::span<const DimExpr> to);

// Coord(0), Coord(1), ... for `rank` axes.
std::vector<Expr> IdentityCoordinates(size_t rank);
bool IsIdentity(std::span<const Expr> coordinates);

// Extents of the coordinates that a stage writes a value for.
Shape DomainOf(const Nest& nest);
Shape DomainOf(const Contraction& contraction);

// `axis` occurs in none of `coordinates` but plainly, as one of them or shifted by a constant or
// other axes: walking along it walks along one axis of a tensor. `place` receives which.
bool WalksPlainly(std::span<const Expr> coordinates, int32_t axis, std::optional<size_t>* place);

// `expr` with every Coord(i) replaced by coordinates[i].
Expr SubstituteCoordinates(const Expr& expr, std::span<const Expr> coordinates);

// Weight of the arithmetic in `expr`, each distinct node once, loads' coordinates not counted:
// about the instructions a vector of elements costs. 0: the expression only moves data.
int64_t ArithmeticCost(const Expr& expr);

// Every expression of a body, in a fixed order.
void ForEachExpr(StageBody& body, const std::function<void(Expr&)>& visit);
void ForEachExpr(const StageBody& body, const std::function<void(const Expr&)>& visit);

}  // namespace stampmill
