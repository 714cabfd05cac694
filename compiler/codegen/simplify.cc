// Simplify: fewer axes, the same elements. Works on the accesses of a stage, that is its loads and
// the place of its result: two neighbouring axes are one when every access uses both, side by side
// and over the whole inner extent, or neither; an axis of extent 1 is the coordinate 0. Of pads,
// the outer axis is shifted, and compared with where the operand begins and ends: over few inner
// elements (the channels of a picture) that holds for the merged axis as well, times their number.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/codegen/access.h"
#include "compiler/codegen/launch_plan.h"

namespace stampmill {
namespace {

// Expressions that share one numbering of axes, and what they access.
struct Accesses {
  std::vector<Expr*> expressions;
  std::vector<Expr>* output_coordinates = nullptr;  // null: the output is not in this numbering
  std::vector<Operand>* operands = nullptr;
  Operand* output = nullptr;
};

constexpr int32_t kOutput = -1;

bool IsCoord(const Expr& e, int32_t axis) { return e.op() == ExprOp::kCoord && e.index() == axis; }

void ForEachLoad(const Accesses& accesses, const std::function<void(const Expr&)>& visit) {
  auto each = [&](const Expr& node) {
    if (IsLoad(node)) visit(node);
  };
  for (const Expr* e : accesses.expressions) e->Visit(each);
  if (accesses.output_coordinates == nullptr) return;
  for (const Expr& e : *accesses.output_coordinates) e.Visit(each);
}

bool IsFixed(const Expr& e) { return e.IsConstant() || e.op() == ExprOp::kDim; }

// The coordinate of `axis` and a fixed number added to it or subtracted from it.
bool IsShifted(const Expr& e, int32_t axis) {
  if (e.op() == ExprOp::kSub) return IsCoord(e.operands()[0], axis) && IsFixed(e.operands()[1]);
  if (e.op() != ExprOp::kAdd) return false;
  const Expr& a = e.operands()[0];
  const Expr& b = e.operands()[1];
  return (IsCoord(a, axis) && IsFixed(b)) || (IsCoord(b, axis) && IsFixed(a));
}

// Whether a place along `axis` is compared: with the first that counts, or that no longer does.
bool IsBound(const Expr& e, int32_t axis) {
  if (e.op() != ExprOp::kGe && e.op() != ExprOp::kLt && e.op() != ExprOp::kLe) return false;
  const size_t at = e.op() == ExprOp::kLe ? 1 : 0;  // limit <= place
  const Expr& place = e.operands()[at];
  return (IsCoord(place, axis) || IsShifted(place, axis)) && IsFixed(e.operands()[1 - at]);
}

// Whether `axis` appears other than as a whole coordinate of an access; `shifted`: or one that is
// shifted, or in a bound.
bool IsComputedWith(const Accesses& accesses, int32_t axis, bool shifted) {
  bool found = false;
  auto is_used = [&](const Expr& e) { return IsCoord(e, axis) || (shifted && IsShifted(e, axis)); };
  auto inspect = [&](const Expr& node) {
    if (shifted && (IsBound(node, axis) || IsShifted(node, axis))) return;
    for (size_t n = 0; n < node.operands().size(); ++n) {
      size_t first = node.op() == ExprOp::kGuardedLoad ? 2 : 0;
      if (IsLoad(node) && n >= first) continue;
      if (is_used(node.operands()[n])) found = true;
    }
  };
  for (const Expr* e : accesses.expressions) {
    if (is_used(*e)) found = true;
    e->Visit(inspect);
  }
  if (accesses.output_coordinates != nullptr) {
    for (const Expr& e : *accesses.output_coordinates) e.Visit(inspect);
  }
  return found;
}

// Places p of an access where coordinates p and p + 1 are the axes `axis`, maybe shifted, and
// `axis` + 1 over the whole extent of the latter; nullopt when the axes are used in another way.
std::optional<std::set<size_t>> MergePlaces(std::span<const Expr> coordinates,
                                            const Operand& operand, int32_t axis,
                                            const DimExpr& inner_extent) {
  std::set<size_t> places;
  for (size_t n = 0; n < coordinates.size(); ++n) {
    if (IsCoord(coordinates[n], axis) || IsShifted(coordinates[n], axis)) {
      bool paired = n + 1 < coordinates.size() && IsCoord(coordinates[n + 1], axis + 1) &&
                    operand.shape[n + 1] == inner_extent;
      if (!paired) return std::nullopt;
      places.insert(n);
      ++n;
    } else if (IsCoord(coordinates[n], axis + 1)) {
      return std::nullopt;
    }
  }
  return places;
}

class Merger {
 public:
  Merger(Accesses accesses, int32_t axis, DimExpr inner_extent)
      : accesses_(std::move(accesses)), axis_(axis), inner_extent_(std::move(inner_extent)) {}

  // Finds where to merge; false when it cannot be done.
  bool Plan() {
    shifted_ = MayShift();
    if (IsComputedWith(accesses_, axis_, shifted_) || IsComputedWith(accesses_, axis_ + 1, false)) {
      return false;
    }
    bool possible = true;
    ForEachLoad(accesses_, [&](const Expr& load) {
      possible = possible && Note(load.index(), LoadCoordinates(load));
    });
    if (possible && accesses_.output_coordinates != nullptr) {
      possible = Note(kOutput, *accesses_.output_coordinates);
    }
    return possible;
  }

  bool Touches(int32_t operand) const {
    auto found = places_.find(operand);
    return found != places_.end() && !found->second.empty();
  }

  void Apply() {
    for (Expr* e : accesses_.expressions) *e = Rewritten(*e);
    for (auto& [operand, places] : places_) {
      Shape& shape = operand == kOutput ? accesses_.output->shape
                                        : (*accesses_.operands)[static_cast<size_t>(operand)].shape;
      for (auto place = places.rbegin(); place != places.rend(); ++place) {
        shape[*place] = shape[*place] * shape[*place + 1];
        shape.erase(shape.begin() + static_cast<int64_t>(*place) + 1);
      }
    }
    if (accesses_.output_coordinates == nullptr) return;
    std::vector<Expr> coordinates;
    for (const Expr& e : *accesses_.output_coordinates) coordinates.push_back(Rewritten(e));
    *accesses_.output_coordinates = WithoutMerged(kOutput, coordinates);
  }

 private:
  // Vectors across a bound are loaded by halves: that pays for few inner elements, each as wide as
  // what processors load by halves.
  bool MayShift() const {
    constexpr int64_t kInnerMax = 4;
    constexpr size_t kElementMin = 4;
    bool wide = true;
    ForEachLoad(accesses_, [&](const Expr& load) {
      wide = wide && (load.op() == ExprOp::kLoad || SizeBytes(load.dtype()) >= kElementMin);
    });
    return wide && inner_extent_.constant().value_or(kInnerMax + 1) <= kInnerMax;
  }

  bool Note(int32_t operand, std::span<const Expr> coordinates) {
    const Operand& shape = operand == kOutput ? *accesses_.output
                                              : (*accesses_.operands)[static_cast<size_t>(operand)];
    std::optional<std::set<size_t>> places = MergePlaces(coordinates, shape, axis_, inner_extent_);
    if (!places.has_value()) return false;
    auto [found, is_new] = places_.try_emplace(operand, *places);
    return is_new || found->second == *places;
  }

  std::vector<Expr> WithoutMerged(int32_t operand, std::span<const Expr> coordinates) const {
    const std::set<size_t>& places = places_.at(operand);
    std::vector<Expr> kept;
    for (size_t n = 0; n < coordinates.size(); ++n) {
      if (n == 0 || !places.contains(n - 1)) kept.push_back(coordinates[n]);
    }
    return kept;
  }

  // A fixed number of outer elements, in inner ones.
  Expr Times(const Expr& fixed) const {
    if (fixed.op() == ExprOp::kDim) return Expr::Dim(fixed.dim() * inner_extent_);
    return fixed * Expr::ConstantInt(DType::kI64, *inner_extent_.constant());
  }

  Expr RewrittenShift(const Expr& e) const {
    const Expr& a = e.operands()[0];
    const Expr& b = e.operands()[1];
    return IsCoord(a, axis_) ? Expr::Binary(e.op(), a, Times(b))
                             : Expr::Binary(e.op(), Times(a), b);
  }

  // Operands first: what a bound compares is rewritten before the bound.
  Expr Rewritten(const Expr& e) const {
    return e.Rewrite([&](const Expr& node) {
      if (node.op() == ExprOp::kCoord) {
        return node.index() <= axis_ ? node : Expr::Coord(node.index() - 1);
      }
      if (IsBound(node, axis_)) {
        const Expr& a = node.operands()[0];
        const Expr& b = node.operands()[1];
        return node.op() == ExprOp::kLe ? Expr::Binary(node.op(), Times(a), b)
                                        : Expr::Binary(node.op(), a, Times(b));
      }
      if (IsShifted(node, axis_)) return RewrittenShift(node);
      if (!IsLoad(node)) return node;
      std::vector<Expr> kept = WithoutMerged(node.index(), LoadCoordinates(node));
      if (node.op() == ExprOp::kLoad) return Expr::Load(node.dtype(), node.index(), kept);
      return Expr::GuardedLoad(node.dtype(), node.index(), kept, node.operands()[0],
                               node.operands()[1]);
    });
  }

  Accesses accesses_;
  int32_t axis_;
  DimExpr inner_extent_;
  bool shifted_ = false;
  std::map<int32_t, std::set<size_t>> places_;
};

// Coordinate `axis` becomes 0 and later axes move down by one.
void DropAxis(const Accesses& accesses, int32_t axis) {
  auto rewritten = [&](const Expr& e) {
    return e.Rewrite([&](const Expr& node) {
      if (node.op() != ExprOp::kCoord || node.index() < axis) return node;
      return node.index() == axis ? Expr::ConstantInt(DType::kI64, 0)
                                  : Expr::Coord(node.index() - 1);
    });
  };
  for (Expr* e : accesses.expressions) *e = rewritten(*e);
  if (accesses.output_coordinates == nullptr) return;
  for (Expr& e : *accesses.output_coordinates) e = rewritten(e);
}

// Dims of extent 1 say nothing about where an element lies. `fixed` is an operand to leave alone.
void DropUnitDims(const Accesses& accesses, int32_t fixed) {
  auto is_unit = [](const DimExpr& dim) { return dim.IsConstant(1); };
  auto without_units = [&](const Operand& operand, std::span<const Expr> coordinates) {
    std::vector<Expr> kept;
    for (size_t n = 0; n < coordinates.size(); ++n) {
      if (!is_unit(operand.shape[n])) kept.push_back(coordinates[n]);
    }
    return kept;
  };
  auto rewritten = [&](const Expr& e) {
    return e.Rewrite([&](const Expr& node) {
      if (!IsLoad(node) || node.index() == fixed) return node;
      const Operand& operand = (*accesses.operands)[static_cast<size_t>(node.index())];
      std::vector<Expr> kept = without_units(operand, LoadCoordinates(node));
      if (node.op() == ExprOp::kLoad) return Expr::Load(node.dtype(), node.index(), kept);
      return Expr::GuardedLoad(node.dtype(), node.index(), kept, node.operands()[0],
                               node.operands()[1]);
    });
  };
  for (Expr* e : accesses.expressions) *e = rewritten(*e);
  for (Expr& e : *accesses.output_coordinates) e = rewritten(e);
  *accesses.output_coordinates = without_units(*accesses.output, *accesses.output_coordinates);
  std::erase_if(accesses.output->shape, is_unit);
  for (size_t n = 0; n < accesses.operands->size(); ++n) {
    if (static_cast<int32_t>(n) == fixed) continue;
    std::erase_if((*accesses.operands)[n].shape, is_unit);
  }
}

std::vector<Expr> AxesInOrder(size_t count) {
  std::vector<Expr> axes;
  for (size_t n = 0; n < count; ++n) axes.push_back(Expr::Coord(static_cast<int32_t>(n)));
  return axes;
}

// --- Nests ---

Accesses AccessesOf(Nest& nest) {
  Accesses accesses;
  for (Reduction& reduction : nest.reductions) {
    for (Expr& e : reduction.init) accesses.expressions.push_back(&e);
    for (Expr& e : reduction.update) accesses.expressions.push_back(&e);
    for (Expr& e : reduction.merge) accesses.expressions.push_back(&e);
    accesses.expressions.push_back(&reduction.result);
  }
  accesses.expressions.push_back(&nest.result);
  accesses.output_coordinates = &nest.output_coordinates;
  accesses.operands = &nest.operands;
  accesses.output = &nest.output;
  return accesses;
}

// Merges what can be merged within the group of axes that begins at number `first`.
void MergeGroup(Nest& nest, Shape& group, size_t first) {
  for (size_t n = 0; n + 1 < group.size();) {
    Merger merger(AccessesOf(nest), static_cast<int32_t>(first + n), group[n + 1]);
    if (!merger.Plan()) {
      ++n;
      continue;
    }
    merger.Apply();
    group[n] = group[n] * group[n + 1];
    group.erase(group.begin() + static_cast<int64_t>(n) + 1);
  }
}

void DropUnitAxes(Nest& nest, Shape& group, size_t first, size_t least) {
  for (size_t n = group.size(); n-- > 0;) {
    if (!group[n].IsConstant(1) || group.size() <= least) continue;
    DropAxis(AccessesOf(nest), static_cast<int32_t>(first + n));
    group.erase(group.begin() + static_cast<int64_t>(n));
  }
}

Nest Simplified(Nest nest) {
  size_t written = nest.kept.size() + (nest.per_element ? nest.reduced.size() : 0);
  if (nest.output_coordinates.empty()) nest.output_coordinates = AxesInOrder(written);
  size_t least_reduced = nest.reductions.empty() ? 0 : 1;
  DropUnitAxes(nest, nest.reduced, nest.kept.size(), least_reduced);
  DropUnitAxes(nest, nest.kept, 0, 0);
  DropUnitDims(AccessesOf(nest), -1);
  MergeGroup(nest, nest.kept, 0);
  MergeGroup(nest, nest.reduced, nest.kept.size());
  Shape whole = nest.kept;
  if (nest.per_element) whole.insert(whole.end(), nest.reduced.begin(), nest.reduced.end());
  if (nest.output.shape == whole && nest.output_coordinates == AxesInOrder(whole.size())) {
    nest.output_coordinates.clear();
  }
  return nest;
}

// --- Contractions: `a` numbers its axes batch, m, k; the result batch, m, n. ---

Accesses AccessesOfA(Contraction& contraction) {
  return {.expressions = {&contraction.a},
          .output_coordinates = nullptr,
          .operands = &contraction.operands,
          .output = &contraction.output};
}

Accesses AccessesOfAll(Contraction& contraction) {
  Accesses accesses = {.expressions = {&contraction.a, &contraction.result},
                       .output_coordinates = &contraction.output_coordinates,
                       .operands = &contraction.operands,
                       .output = &contraction.output};
  if (contraction.rows.valid()) accesses.expressions.push_back(&contraction.rows);
  return accesses;
}

bool IsLoadedBy(const Expr& e, int32_t operand) {
  bool found = false;
  e.Visit([&](const Expr& node) {
    if (IsLoad(node) && node.index() == operand) found = true;
  });
  return found;
}

// Merging within batch or m: both numberings agree there.
void MergeRows(Contraction& contraction, Shape& group, size_t first, bool is_batch) {
  for (size_t n = 0; n + 1 < group.size();) {
    Merger merger(AccessesOfAll(contraction), static_cast<int32_t>(first + n), group[n + 1]);
    if (!merger.Plan() || merger.Touches(contraction.b)) {
      ++n;
      continue;
    }
    merger.Apply();
    if (is_batch && contraction.b_batched) {
      Shape& b = contraction.operands[static_cast<size_t>(contraction.b)].shape;
      b[n] = b[n] * b[n + 1];
      b.erase(b.begin() + static_cast<int64_t>(n) + 1);
    }
    group[n] = group[n] * group[n + 1];
    group.erase(group.begin() + static_cast<int64_t>(n) + 1);
  }
}

void MergeK(Contraction& contraction) {
  size_t first = contraction.batch.size() + contraction.m.size();
  for (size_t n = 0; n + 1 < contraction.k.size();) {
    Merger merger(AccessesOfA(contraction), static_cast<int32_t>(first + n), contraction.k[n + 1]);
    bool possible = merger.Plan();
    for (size_t operand = 0; possible && operand < contraction.operands.size(); ++operand) {
      int32_t index = static_cast<int32_t>(operand);
      possible = !merger.Touches(index) || !IsLoadedBy(contraction.result, index);
    }
    if (!possible) {
      ++n;
      continue;
    }
    merger.Apply();
    contraction.k[n] = contraction.k[n] * contraction.k[n + 1];
    contraction.k.erase(contraction.k.begin() + static_cast<int64_t>(n) + 1);
  }
}

void DropUnitRows(Contraction& contraction, Shape& group, size_t first, bool is_batch) {
  size_t least = is_batch ? 0 : 1;
  for (size_t n = group.size(); n-- > 0;) {
    if (!group[n].IsConstant(1) || group.size() <= least) continue;
    DropAxis(AccessesOfAll(contraction), static_cast<int32_t>(first + n));
    if (is_batch && contraction.b_batched) {
      Shape& b = contraction.operands[static_cast<size_t>(contraction.b)].shape;
      b.erase(b.begin() + static_cast<int64_t>(n));
    }
    group.erase(group.begin() + static_cast<int64_t>(n));
  }
}

Contraction Simplified(Contraction contraction) {
  size_t written = contraction.batch.size() + contraction.m.size() + 1;
  if (contraction.output_coordinates.empty()) {
    contraction.output_coordinates = AxesInOrder(written);
  }
  for (size_t n = contraction.k.size(); n-- > 0;) {
    if (!contraction.k[n].IsConstant(1) || contraction.k.size() == 1) continue;
    DropAxis(AccessesOfA(contraction),
             static_cast<int32_t>(contraction.batch.size() + contraction.m.size() + n));
    contraction.k.erase(contraction.k.begin() + static_cast<int64_t>(n));
  }
  DropUnitRows(contraction, contraction.m, contraction.batch.size(), false);
  DropUnitRows(contraction, contraction.batch, 0, true);
  DropUnitDims(AccessesOfAll(contraction), contraction.b);
  MergeK(contraction);
  MergeRows(contraction, contraction.m, contraction.batch.size(), false);
  MergeRows(contraction, contraction.batch, 0, true);
  Shape whole = contraction.batch;
  whole.insert(whole.end(), contraction.m.begin(), contraction.m.end());
  whole.push_back(contraction.n);
  if (contraction.output.shape == whole &&
      contraction.output_coordinates == AxesInOrder(whole.size())) {
    contraction.output_coordinates.clear();
  }
  return contraction;
}

}  // namespace

StageBody Simplify(const StageBody& body) {
  if (const Nest* nest = std::get_if<Nest>(&body)) return Simplified(*nest);
  if (const Contraction* contraction = std::get_if<Contraction>(&body)) {
    return Simplified(*contraction);
  }
  return body;
}

}  // namespace stampmill
