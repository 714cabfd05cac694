// How the loads of an expression walk along one loop axis: what decides which axis is vectorised
// and whether rows can be read in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/dim.h"
#include "graph/expr.h"
#include "graph/nest.h"

namespace stampmill {

// The constant c for which e = c * Coord(axis) + (what does not depend on it); nullopt if none.
std::optional<int64_t> CoordinateFactor(const Expr& e, int32_t axis);

enum class AxisWalk : uint8_t {
  kStays,    // the same element for every value of the coordinate
  kUnit,     // neighbours in memory
  kStrided,  // constant or data-dependent distance
};
AxisWalk WalkOf(std::span<const Expr> coordinates, int32_t axis);

bool DependsOn(const Expr& e, int32_t axis);

// Elements from one value of the axis to the next in the address of a load from an operand of this
// shape; nullopt when that is not one constant.
std::optional<int64_t> AddressFactor(const Expr& load, std::span<const DimExpr> shape,
                                     int32_t axis);

// Coordinates of a kLoad or kGuardedLoad.
std::span<const Expr> LoadCoordinates(const Expr& load);
bool IsLoad(const Expr& e);

// How many of the innermost axes of k are one run of memory in every load of `a`, so that they can
// be read as one: the columns and channels of a window. REQUIRES: k is constant.
size_t RunAxesOfK(const Contraction& contraction);

// Every expression of a nest, in a fixed order.
std::vector<Expr> Expressions(const Nest& nest);

// Rough cost of evaluating `e` for one element, in simple operations; shared nodes count once.
int64_t CostOf(std::span<const Expr> expressions);

// Operations on numbers in evaluating them for one element: not what finds places, compares,
// chooses or converts. A function (exp, erf) counts as the terms of its shortest form.
int64_t OperationsOf(std::span<const Expr> expressions);

}  // namespace stampmill
