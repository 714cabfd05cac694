// Windows (convolutions, pools) guard their loads at the borders. Where lanes share the conditions
// and a window has few places, code tells the windows that lie inside with one test and computes
// them without guards.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/llvm/expr_emitter.h"
#include "graph/expr.h"

namespace stampmill {

// Axes first ... first + extents.size() - 1 of a nest or contraction.
struct Window {
  size_t first_axis = 0;
  std::vector<int64_t> extents;
};

// Conditions that together say that every guarded load in `expressions` happens. Empty when there
// are no guarded loads, when a condition depends on `lane_axis` or on loaded or computed values, or
// when there would be too many places to test.
std::vector<Expr> FindGuards(std::span<const Expr> expressions, const Window& window,
                             int32_t lane_axis);

// Whether all of `guards` hold at every place of the window; `scope` has the other coordinates, and
// one lane.
llvm::Value* EmitGuardsHold(std::span<const Expr> guards, const Window& window, const Scope& scope);

}  // namespace stampmill
