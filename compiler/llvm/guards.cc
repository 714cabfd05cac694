#include "compiler/llvm/guards.h"

#include <algorithm>

#include "compiler/codegen/access.h"

namespace stampmill {
namespace {

constexpr int64_t kPlacesMax = 64;

// Axes of the window that the guard depends on, as positions in `extents`.
std::vector<size_t> AxesOf(const Expr& guard, const Window& window) {
  std::vector<size_t> axes;
  for (size_t n = 0; n < window.extents.size(); ++n) {
    if (DependsOn(guard, static_cast<int32_t>(window.first_axis + n))) axes.push_back(n);
  }
  return axes;
}

int64_t PlacesOf(const std::vector<size_t>& axes, const Window& window) {
  int64_t places = 1;
  for (size_t axis : axes) places = std::min(places * window.extents[axis], kPlacesMax + 1);
  return places;
}

bool IsOfCoordinates(const Expr& guard) {
  bool result = true;
  guard.Visit([&](const Expr& node) {
    result = result && !IsLoad(node) && node.op() != ExprOp::kReduced &&
             node.op() != ExprOp::kAccumulator;
  });
  return result;
}

}  // namespace

std::vector<Expr> FindGuards(std::span<const Expr> expressions, const Window& window,
                             int32_t lane_axis) {
  std::vector<Expr> open;
  for (const Expr& e : expressions) {
    e.Visit([&](const Expr& node) {
      if (node.op() == ExprOp::kGuardedLoad) open.push_back(node.operands()[0]);
    });
  }
  std::vector<Expr> guards;
  int64_t places = 0;
  while (!open.empty()) {
    Expr term = open.back();
    open.pop_back();
    if (term.op() == ExprOp::kBitAnd) {
      open.insert(open.end(), term.operands().begin(), term.operands().end());
      continue;
    }
    if (std::find(guards.begin(), guards.end(), term) != guards.end()) continue;
    places += PlacesOf(AxesOf(term, window), window);
    if (DependsOn(term, lane_axis) || !IsOfCoordinates(term) || places > kPlacesMax) return {};
    guards.push_back(term);
  }
  return guards;
}

llvm::Value* EmitGuardsHold(std::span<const Expr> guards, const Window& window,
                            const Scope& scope) {
  Ir& ir = scope.kernel->ir();
  llvm::Value* all = ir.b().getTrue();
  for (const Expr& guard : guards) {
    std::vector<size_t> axes = AxesOf(guard, window);
    for (int64_t flat = 0; flat < PlacesOf(axes, window); ++flat) {
      Scope place = scope;
      int64_t rest = flat;
      for (size_t n = axes.size(); n-- > 0;) {
        int64_t extent = window.extents[axes[n]];
        place.coordinates[window.first_axis + axes[n]] = {ir.Int(rest % extent)};
        rest /= extent;
      }
      all = ir.b().CreateAnd(all, ExprEmitter(place).EmitLanes(guard));
    }
  }
  return all;
}

}  // namespace stampmill
