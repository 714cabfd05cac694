#include "compiler/passes/fuse.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "compiler/passes/coordinates.h"

namespace stampmill {
namespace {

// Arithmetic that may be done again in a second reader rather than stored and read back.
constexpr int64_t kCostToRepeat = 4;
// Arithmetic that may move into the packing of a contraction, where it runs once per element but
// with shorter vectors.
constexpr int64_t kCostToPack = 6;
// Reductions that one nest may hold: beyond it the row is read too often.
constexpr size_t kReductionsMax = 6;
// Operands of one stage: a kernel keeps a base address for each.
constexpr size_t kOperandsMax = 16;

std::vector<Operand>& Operands(StageBody& body) {
  return std::visit([](auto& b) -> std::vector<Operand>& { return b.operands; }, body);
}
const std::vector<Operand>& Operands(const StageBody& body) {
  return std::visit([](const auto& b) -> const std::vector<Operand>& { return b.operands; }, body);
}

bool IsMap(const Stage& stage) {
  const auto* nest = std::get_if<Nest>(&stage.body);
  return nest != nullptr && nest->reductions.empty() && nest->reduced.empty();
}

// The index space that a stage writes: its coordinates and extents.
struct Domain {
  Shape extents;
  const Operand* output = nullptr;
  const std::vector<Expr>* output_coordinates = nullptr;
};

std::optional<Domain> WrittenDomain(const StageBody& body) {
  if (const auto* nest = std::get_if<Nest>(&body)) {
    Domain domain{nest->kept, &nest->output, &nest->output_coordinates};
    if (nest->per_element) {
      domain.extents.insert(domain.extents.end(), nest->reduced.begin(), nest->reduced.end());
    }
    return domain;
  }
  if (const auto* contraction = std::get_if<Contraction>(&body)) {
    Domain domain{contraction->batch, &contraction->output, &contraction->output_coordinates};
    domain.extents.insert(domain.extents.end(), contraction->m.begin(), contraction->m.end());
    domain.extents.push_back(contraction->n);
    return domain;
  }
  return std::nullopt;
}

Expr ResultOf(const StageBody& body) {
  if (const auto* nest = std::get_if<Nest>(&body)) return nest->result;
  return std::get<Contraction>(body).result;
}

// Operand index of `value` in `stage`, added when it is new there.
int32_t AddOperand(Stage& stage, const Operand& operand, ValueId value) {
  for (size_t i = 0; i < stage.operands.size(); ++i) {
    if (stage.operands[i] == value) return static_cast<int32_t>(i);
  }
  Operands(stage.body).push_back(operand);
  stage.operands.push_back(value);
  return static_cast<int32_t>(stage.operands.size()) - 1;
}

// `expr` of `from` as an expression of `to`: its operands become operands of `to`.
Expr ImportOperands(const Expr& expr, const Stage& from, Stage& to) {
  return expr.Rewrite([&](const Expr& e) {
    if (!IsLoad(e)) return e;
    const auto operand = static_cast<size_t>(e.index());
    const int32_t index = AddOperand(to, Operands(from.body)[operand], from.operands[operand]);
    if (index == e.index()) return e;
    const std::span<const Expr> at = LoadCoordinates(e);
    std::vector<Expr> coordinates(at.begin(), at.end());
    if (e.op() == ExprOp::kLoad) return Expr::Load(e.dtype(), index, std::move(coordinates));
    return Expr::GuardedLoad(e.dtype(), index, std::move(coordinates), e.operands()[0],
                             e.operands()[1]);
  });
}

// Drops operands that no expression reads.
void CompactOperands(Stage& stage) {
  if (std::holds_alternative<Library>(stage.body)) return;
  std::vector<Operand>& operands = Operands(stage.body);
  std::vector<bool> used(operands.size(), false);
  auto* contraction = std::get_if<Contraction>(&stage.body);
  if (contraction != nullptr) used[static_cast<size_t>(contraction->b)] = true;
  ForEachExpr(std::as_const(stage.body), [&](const Expr& expr) {
    expr.Visit([&](const Expr& e) {
      if (IsLoad(e)) used[static_cast<size_t>(e.index())] = true;
    });
  });
  if (std::all_of(used.begin(), used.end(), [](bool u) { return u; })) return;
  std::vector<int32_t> renumbered(operands.size(), -1);
  size_t count = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!used[i]) continue;
    renumbered[i] = static_cast<int32_t>(count);
    operands[count] = operands[i];
    stage.operands[count] = stage.operands[i];
    ++count;
  }
  operands.resize(count);
  stage.operands.resize(count);
  if (contraction != nullptr) contraction->b = renumbered[static_cast<size_t>(contraction->b)];
  ForEachExpr(stage.body, [&](Expr& expr) {
    expr = expr.Rewrite([&](const Expr& e) {
      if (!IsLoad(e)) return e;
      const int32_t index = renumbered[static_cast<size_t>(e.index())];
      if (index == e.index()) return e;
      const std::span<const Expr> at = LoadCoordinates(e);
      std::vector<Expr> coordinates(at.begin(), at.end());
      if (e.op() == ExprOp::kLoad) return Expr::Load(e.dtype(), index, std::move(coordinates));
      return Expr::GuardedLoad(e.dtype(), index, std::move(coordinates), e.operands()[0],
                               e.operands()[1]);
    });
  });
}

void MergeLabels(Stage& into, const Stage& from, bool from_first) {
  constexpr size_t kLabelMax = 120;
  std::string label = from_first ? absl::StrCat(from.label, "+", into.label)
                                 : absl::StrCat(into.label, "+", from.label);
  if (label.size() > kLabelMax) label.resize(kLabelMax);
  into.label = std::move(label);
}

class Fuser {
 public:
  explicit Fuser(StageGraph& stages) : stages_(stages) { Index(); }

  void Run() {
    for (bool changed = true; changed;) {
      changed = false;
      changed |= Each([&](int32_t s) { return InlineMovement(s); });
      changed |= Each([&](int32_t s) { return FoldEpilogue(s); });
      changed |= Each([&](int32_t s) { return JoinMaps(s); });
      changed |= Each([&](int32_t s) { return FoldEpilogue(s); });
      changed |= Each([&](int32_t s) { return JoinRows(s); });
      if (!changed) changed |= Each([&](int32_t s) { return InlineIntoLoops(s); });
    }
    stages_.DropRemoved();
  }

 private:
  Stage& stage(int32_t s) { return stages_.stages[static_cast<size_t>(s)]; }

  void Index() {
    readers_.clear();
    writers_.clear();
    for (size_t i = 0; i < stages_.stages.size(); ++i) {
      const Stage& s = stages_.stages[i];
      if (s.removed) continue;
      for (ValueId id : s.operands) readers_[stages_.Root(id)].push_back(static_cast<int32_t>(i));
      for (ValueId id : s.outputs) writers_[stages_.Root(id)].push_back(static_cast<int32_t>(i));
    }
    for (auto& [root, list] : readers_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }

  template <typename Rule>
  bool Each(const Rule& rule) {
    bool changed = false;
    for (size_t i = 0; i < stages_.stages.size(); ++i) {
      if (stages_.stages[i].removed) continue;
      while (!stages_.stages[i].removed && rule(static_cast<int32_t>(i))) {
        changed = true;
        Index();
      }
    }
    return changed;
  }

  // Readers of the one value that stage `s` alone writes whole and that is not a graph output.
  std::vector<int32_t> FusibleReaders(int32_t s) {
    const Stage& producer = stage(s);
    if (producer.outputs.size() != 1) return {};
    const ValueId root = stages_.Root(producer.outputs[0]);
    if (stages_.IsGraphOutput(root) || writers_[root].size() != 1) return {};
    return readers_[root];
  }

  // Loads of `root` in `reader` as (expression kind is the caller's affair).
  void ForEachLoad(const Stage& reader, ValueId root,
                   const std::function<void(const Expr&)>& visit) {
    ForEachExpr(reader.body, [&](const Expr& expr) {
      expr.Visit([&](const Expr& e) {
        if (IsLoad(e) && stages_.Root(reader.operands[static_cast<size_t>(e.index())]) == root) {
          visit(e);
        }
      });
    });
  }

  bool ReadsThroughB(const Stage& reader, ValueId root) {
    const auto* contraction = std::get_if<Contraction>(&reader.body);
    if (contraction == nullptr) return std::holds_alternative<Library>(reader.body);
    return stages_.Root(reader.operands[static_cast<size_t>(contraction->b)]) == root;
  }

  // A map that writes its whole output in order: what can be inlined.
  bool IsInlinable(const Stage& producer) {
    if (!IsMap(producer)) return false;
    const Nest& nest = std::get<Nest>(producer.body);
    return nest.output_coordinates.empty() && nest.output.shape == nest.kept;
  }

  bool CanInlineInto(const Stage& producer, const Stage& reader) {
    const ValueId root = stages_.Root(producer.outputs[0]);
    if (ReadsThroughB(reader, root)) return false;
    if (reader.operands.size() + producer.operands.size() > kOperandsMax) return false;
    const Nest& nest = std::get<Nest>(producer.body);
    for (size_t i = 0; i < reader.operands.size(); ++i) {
      if (stages_.Root(reader.operands[i]) != root) continue;
      const Shape& seen = Operands(reader.body)[i].shape;
      if (!MapCoordinates(IdentityCoordinates(seen.size()), seen, nest.kept).has_value()) {
        return false;
      }
    }
    return true;
  }

  // The producer's value at the coordinates of `load`, in terms of `reader`.
  Expr InlinedValue(const Stage& producer, Stage& reader, const Expr& load) {
    const Nest& nest = std::get<Nest>(producer.body);
    const Shape seen = Operands(reader.body)[static_cast<size_t>(load.index())].shape;
    const std::vector<Expr> at = *MapCoordinates(LoadCoordinates(load), seen, nest.kept);
    const Expr value = ImportOperands(SubstituteCoordinates(nest.result, at), producer, reader);
    if (load.op() == ExprOp::kLoad) return value;
    const Expr condition = load.operands()[0];
    // Outside the condition the coordinates may be out of range: guard what the producer reads.
    const Expr guarded = value.Rewrite([&](const Expr& e) {
      if (!IsLoad(e)) return e;
      const std::span<const Expr> c = LoadCoordinates(e);
      std::vector<Expr> coordinates(c.begin(), c.end());
      if (e.op() == ExprOp::kLoad) {
        return Expr::GuardedLoad(e.dtype(), e.index(), std::move(coordinates), condition,
                                 Expr::Constant(e.dtype(), 0));
      }
      return Expr::GuardedLoad(e.dtype(), e.index(), std::move(coordinates),
                               Expr::Binary(ExprOp::kBitAnd, condition, e.operands()[0]),
                               e.operands()[1]);
    });
    if (guarded.op() == ExprOp::kGuardedLoad && value.op() == ExprOp::kLoad) {
      // A plain copy: one guarded load with the reader's own alternative.
      const std::span<const Expr> c = LoadCoordinates(guarded);
      return Expr::GuardedLoad(guarded.dtype(), guarded.index(),
                               std::vector<Expr>(c.begin(), c.end()), condition,
                               load.operands()[1]);
    }
    return Expr::Select(condition, guarded, load.operands()[1]);
  }

  void InlineInto(int32_t p, int32_t r) {
    const Stage producer = stage(p);
    Stage& reader = stage(r);
    const ValueId root = stages_.Root(producer.outputs[0]);
    ForEachExpr(reader.body, [&](Expr& expr) {
      expr = expr.Rewrite([&](const Expr& e) {
        if (!IsLoad(e) || stages_.Root(reader.operands[static_cast<size_t>(e.index())]) != root) {
          return e;
        }
        return InlinedValue(producer, reader, e);
      });
    });
    MergeLabels(reader, producer, /*from_first=*/true);
    CompactOperands(reader);
  }

  bool InlineIntoAll(int32_t p, const std::vector<int32_t>& readers) {
    for (int32_t r : readers) InlineInto(p, r);
    stage(p).removed = true;
    return true;
  }

  // How often each element of `root` is read by `reader`, when it can be told: the loop iterations
  // per element. 1 is the elementwise case.
  bool ReadsEachOnce(const Stage& reader, ValueId root, const DimExpr& elements) {
    DimExpr iterations = 1;
    if (const auto* nest = std::get_if<Nest>(&reader.body)) {
      iterations = ElementCount(nest->kept) * ElementCount(nest->reduced);
      size_t passes = 0;
      for (const Reduction& reduction : nest->reductions) {
        bool reads = false;
        for (const Expr& e : reduction.update) reads |= Reads(e, reader, root);
        passes += reads ? 1 : 0;
      }
      passes += Reads(nest->result, reader, root) ? 1 : 0;
      if (passes > 1) return false;
    } else if (const auto* contraction = std::get_if<Contraction>(&reader.body)) {
      if (Reads(contraction->a, reader, root)) {
        if (Reads(contraction->result, reader, root)) return false;
        iterations = ElementCount(contraction->batch) * ElementCount(contraction->m) *
                     ElementCount(contraction->k);
      } else {
        iterations =
            ElementCount(contraction->batch) * ElementCount(contraction->m) * contraction->n;
      }
    }
    return iterations == elements;
  }

  bool Reads(const Expr& expr, const Stage& reader, ValueId root) {
    bool reads = false;
    expr.Visit([&](const Expr& e) {
      reads |= IsLoad(e) && stages_.Root(reader.operands[static_cast<size_t>(e.index())]) == root;
    });
    return reads;
  }

  // The map's innermost axis is the innermost axis of what it loads: rows stay contiguous.
  static bool KeepsRows(const Nest& nest) {
    if (nest.kept.empty()) return true;
    const auto innermost = static_cast<int32_t>(nest.kept.size()) - 1;
    bool keeps = true;
    nest.result.Visit([&](const Expr& e) {
      if (!IsLoad(e)) return;
      const std::span<const Expr> at = LoadCoordinates(e);
      for (size_t i = 0; i < at.size(); ++i) {
        bool uses = false;
        at[i].Visit(
            [&](const Expr& c) { uses |= c.op() == ExprOp::kCoord && c.index() == innermost; });
        if (uses && i + 1 != at.size()) keeps = false;
      }
    });
    return keeps;
  }

  // Pure data movement goes into all its readers.
  bool InlineMovement(int32_t s) {
    Stage& producer = stage(s);
    if (!IsInlinable(producer)) return false;
    const Nest& nest = std::get<Nest>(producer.body);
    const bool movement = ArithmeticCost(nest.result) == 0;
    if (!movement) return false;
    const std::vector<int32_t> readers = FusibleReaders(s);
    if (readers.empty()) return false;
    const ValueId root = stages_.Root(producer.outputs[0]);
    const DimExpr elements = ElementCount(nest.kept);
    const bool keeps_rows = KeepsRows(nest);
    for (int32_t r : readers) {
      if (!CanInlineInto(producer, stage(r))) return false;
      if (!keeps_rows && !ReadsEachOnce(stage(r), root, elements)) return false;
    }
    return InlineIntoAll(s, readers);
  }

  // A map goes into the maps that read each of its elements once: one reader, or several when it is
  // cheap and reads one full-size operand.
  bool JoinMaps(int32_t s) {
    Stage& producer = stage(s);
    if (!IsInlinable(producer)) return false;
    const std::vector<int32_t> readers = FusibleReaders(s);
    if (readers.empty()) return false;
    const Nest& nest = std::get<Nest>(producer.body);
    const DimExpr elements = ElementCount(nest.kept);
    const ValueId root = stages_.Root(producer.outputs[0]);
    if (readers.size() > 1 && !IsCheapToRepeat(nest)) return false;
    for (int32_t r : readers) {
      if (readers.size() == 1 && !IsMap(stage(r))) return false;
      if (!CanInlineInto(producer, stage(r))) return false;
      if (!ReadsEachOnce(stage(r), root, elements) && !IsTiny(nest)) return false;
      if (std::holds_alternative<Contraction>(stage(r).body)) return false;
    }
    return InlineIntoAll(s, readers);
  }

  static bool IsCheapToRepeat(const Nest& nest) {
    if (ArithmeticCost(nest.result) > kCostToRepeat) return false;
    const DimExpr elements = ElementCount(nest.kept);
    int full_size = 0;
    for (const Operand& operand : nest.operands) {
      full_size += ElementCount(operand.shape) == elements ? 1 : 0;
    }
    return full_size <= 1;
  }

  // A handful of scalars: recomputing them is cheaper than a launch.
  static bool IsTiny(const Nest& nest) {
    const std::optional<int64_t> elements = ElementCount(nest.kept).constant();
    return elements.has_value() && *elements <= 1 && ArithmeticCost(nest.result) <= kCostToRepeat;
  }

  // What is left: a map into the one reduction or contraction that reads it, once per element.
  bool InlineIntoLoops(int32_t s) {
    Stage& producer = stage(s);
    if (!IsInlinable(producer)) return false;
    const std::vector<int32_t> readers = FusibleReaders(s);
    if (readers.size() != 1) return false;
    const Nest& nest = std::get<Nest>(producer.body);
    Stage& reader = stage(readers[0]);
    if (!CanInlineInto(producer, reader)) return false;
    const ValueId root = stages_.Root(producer.outputs[0]);
    const int64_t cost = ArithmeticCost(nest.result);
    const bool once = ReadsEachOnce(reader, root, ElementCount(nest.kept));
    const auto* contraction = std::get_if<Contraction>(&reader.body);
    if (contraction != nullptr && Reads(contraction->a, reader, root)) {
      if (!once || cost > kCostToPack || !KeepsRows(nest)) return false;
    } else if (!once && cost > kCostToRepeat) {
      return false;
    }
    return InlineIntoAll(s, readers);
  }

  // ---- epilogue ----

  // U is a map whose only reading of P's value is at one coordinate vector that is a permutation
  // of U's axes. Gives for each axis of U the axis of the value it runs over (-1: extent 1).
  std::optional<std::vector<int32_t>> PermutedAxes(const Stage& user, ValueId root,
                                                   const Shape& seen) {
    const Nest& nest = std::get<Nest>(user.body);
    std::vector<int32_t> axes(nest.kept.size(), -1);
    std::optional<Expr> first;
    bool same = true;
    ForEachLoad(user, root, [&](const Expr& load) {
      if (load.op() != ExprOp::kLoad) same = false;
      if (!first.has_value()) first = load;
      const std::span<const Expr> a = LoadCoordinates(*first), b = LoadCoordinates(load);
      for (size_t i = 0; i < a.size(); ++i) same &= i < b.size() && a[i] == b[i];
    });
    if (!same || !first.has_value()) return std::nullopt;
    const std::span<const Expr> at = LoadCoordinates(*first);
    for (size_t i = 0; i < at.size(); ++i) {
      if (seen[i].IsConstant(1) && at[i].IsConstant()) continue;
      if (at[i].op() != ExprOp::kCoord) return std::nullopt;
      const auto axis = static_cast<size_t>(at[i].index());
      if (axes[axis] != -1 || !(nest.kept[axis] == seen[i])) return std::nullopt;
      axes[axis] = static_cast<int32_t>(i);
    }
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      if (axes[axis] == -1 && !nest.kept[axis].IsConstant(1)) return std::nullopt;
    }
    return axes;
  }

  // One shape for all operands of `reader` that have the bytes of `root`; nullopt when they differ.
  std::optional<Shape> SeenShape(const Stage& reader, ValueId root) {
    std::optional<Shape> seen;
    for (size_t i = 0; i < reader.operands.size(); ++i) {
      if (stages_.Root(reader.operands[i]) != root) continue;
      const Shape& shape = Operands(reader.body)[i].shape;
      if (seen.has_value() && !(*seen == shape)) return std::nullopt;
      seen = shape;
    }
    return seen;
  }

  ValueId View(ValueId value, const Shape& shape) {
    if (stages_.value(value).shape == shape) return value;
    const ValueId root = stages_.Root(value);
    if (stages_.value(root).shape == shape) return root;
    const auto key = std::make_pair(root, shape);
    const auto found = views_.find(key);
    if (found != views_.end()) return found->second;
    const StageValue& of = stages_.value(root);
    stages_.values.push_back({.name = of.name,
                              .dtype = of.dtype,
                              .shape = shape,
                              .constant = std::nullopt,
                              .alias_of = root});
    const auto id = static_cast<ValueId>(stages_.values.size()) - 1;
    views_.emplace(key, id);
    return id;
  }

  bool FoldEpilogue(int32_t s) {
    Stage& producer = stage(s);
    const std::optional<Domain> domain = WrittenDomain(producer.body);
    if (!domain.has_value() || IsMap(producer)) return false;
    const std::vector<int32_t> readers = FusibleReaders(s);
    if (readers.size() != 1 || !IsMap(stage(readers[0]))) return false;
    Stage& user = stage(readers[0]);
    const ValueId root = stages_.Root(producer.outputs[0]);
    if (user.operands.size() + producer.operands.size() > kOperandsMax) return false;
    const std::optional<Shape> seen = SeenShape(user, root);
    if (!seen.has_value()) return false;
    const std::optional<std::vector<int32_t>> axes = PermutedAxes(user, root, *seen);
    if (!axes.has_value()) return false;
    // Coordinates of the value as the user sees it, in the producer's loop coordinates.
    const std::vector<Expr> written = domain->output_coordinates->empty()
                                          ? IdentityCoordinates(domain->extents.size())
                                          : *domain->output_coordinates;
    const std::optional<std::vector<Expr>> at =
        MapCoordinates(written, domain->output->shape, *seen);
    if (!at.has_value()) return false;
    std::vector<Expr> coordinates;  // of the user's axes
    for (int32_t axis : *axes) {
      coordinates.push_back(axis < 0 ? Expr::ConstantInt(DType::kI64, 0)
                                     : (*at)[static_cast<size_t>(axis)]);
    }
    Stage fused = producer;
    BuildEpilogue(fused, user, root, *seen, coordinates);
    MergeLabels(fused, user, /*from_first=*/false);
    CompactOperands(fused);
    user = std::move(fused);
    stage(s).removed = true;
    return true;
  }

  // Turns `fused`, a copy of the producer, into producer and user in one. `coordinates` are the
  // user's axes in the producer's loop coordinates.
  void BuildEpilogue(Stage& fused, const Stage& user, ValueId root, const Shape& seen,
                     const std::vector<Expr>& coordinates) {
    const Nest& map = std::get<Nest>(user.body);
    const Domain domain = *WrittenDomain(fused.body);
    const Shape written_shape = domain.output->shape;
    const std::vector<Expr> written = domain.output_coordinates->empty()
                                          ? IdentityCoordinates(domain.extents.size())
                                          : *domain.output_coordinates;
    // Where the user runs over the producer's value axis by axis, what else it reads and writes at
    // its own coordinates is seen in the producer's shape instead, without divisions.
    const bool same_space = map.kept == seen && ReadsAtIdentity(user, root);
    // Loads that are replaced whole stand aside as placeholders while the user's coordinates are
    // substituted: what replaces them is in the producer's coordinates already.
    std::vector<Expr> aside = {ResultOf(fused.body)};
    Expr result = map.result.Rewrite([&](const Expr& e) {
      if (!IsLoad(e)) return e;
      const auto operand = static_cast<size_t>(e.index());
      if (stages_.Root(user.operands[operand]) == root) return Placeholder(e.dtype(), 0);
      const Operand& read = map.operands[operand];
      if (!same_space || !IsIdentityLoad(e) || !(read.shape == map.kept)) return e;
      const ValueId view = View(user.operands[operand], written_shape);
      const int32_t index = AddOperand(fused, {read.dtype, written_shape}, view);
      aside.push_back(Expr::Load(e.dtype(), index, written));
      return Placeholder(e.dtype(), aside.size() - 1);
    });
    result = ImportOperands(SubstituteCoordinates(result, coordinates), user, fused);
    result = result.Rewrite([&](const Expr& e) {
      if (e.op() != ExprOp::kReduced || e.index() < kPlaceholder) return e;
      return aside[static_cast<size_t>(e.index() - kPlaceholder)];
    });

    Operand output = map.output;
    ValueId target = user.outputs[0];
    std::vector<Expr> at;
    if (map.output_coordinates.empty() && same_space) {
      target = View(target, written_shape);
      output.shape = written_shape;
      at = written;
    } else {
      at = map.output_coordinates.empty() ? IdentityCoordinates(map.kept.size())
                                          : map.output_coordinates;
      for (Expr& e : at) e = SubstituteCoordinates(e, coordinates);
    }
    if (IsIdentity(at) && output.shape == domain.extents) at.clear();
    SetWritten(fused.body, std::move(result), std::move(output), std::move(at));
    fused.outputs = {target};
  }

  static constexpr int32_t kPlaceholder = 1 << 20;
  static Expr Placeholder(DType dtype, size_t index) {
    return Expr::Reduced(dtype, kPlaceholder + static_cast<int32_t>(index));
  }

  static void SetWritten(StageBody& body, Expr result, Operand output, std::vector<Expr> at) {
    if (auto* nest = std::get_if<Nest>(&body)) {
      nest->result = std::move(result);
      nest->output = std::move(output);
      nest->output_coordinates = std::move(at);
    } else {
      auto& contraction = std::get<Contraction>(body);
      contraction.result = std::move(result);
      contraction.output = std::move(output);
      contraction.output_coordinates = std::move(at);
    }
  }

  static bool IsIdentityLoad(const Expr& e) {
    return e.op() == ExprOp::kLoad && IsIdentity(LoadCoordinates(e));
  }

  bool ReadsAtIdentity(const Stage& user, ValueId root) {
    bool identity = true;
    ForEachLoad(user, root, [&](const Expr& load) { identity &= IsIdentityLoad(load); });
    return identity;
  }

  // ---- rows ----

  // How the axes of a reduction lie in those of its reader.
  struct RowAxes {
    std::vector<int32_t> kept;      // the reader's axes that become kept, in order
    std::vector<int32_t> reduced;   // and reduced
    std::vector<Expr> of_producer;  // the producer's axes in the joined nest's coordinates
  };

  // The reader's coordinate for each kept axis of the producer, if all its loads agree on it.
  std::optional<std::vector<Expr>> KeptAxes(const Nest& producer, const Stage& reader,
                                            ValueId root) {
    const std::vector<Expr> written = producer.output_coordinates.empty()
                                          ? IdentityCoordinates(producer.kept.size())
                                          : producer.output_coordinates;
    std::optional<std::vector<Expr>> kept;
    bool agree = true;
    ForEachLoad(reader, root, [&](const Expr& load) {
      const Shape& seen = Operands(reader.body)[static_cast<size_t>(load.index())].shape;
      const std::optional<std::vector<Expr>> at =
          MapCoordinates(LoadCoordinates(load), seen, producer.output.shape);
      if (load.op() != ExprOp::kLoad || !at.has_value()) {
        agree = false;
        return;
      }
      std::vector<Expr> axes(producer.kept.size(), Expr::ConstantInt(DType::kI64, 0));
      for (size_t i = 0; i < written.size(); ++i) {
        if (written[i].op() != ExprOp::kCoord) continue;
        axes[static_cast<size_t>(written[i].index())] = (*at)[i];
      }
      if (kept.has_value()) {
        for (size_t i = 0; i < axes.size(); ++i) agree &= axes[i] == (*kept)[i];
      }
      kept = std::move(axes);
    });
    return agree ? kept : std::nullopt;
  }

  std::optional<RowAxes> MatchRows(const Nest& producer, const Stage& reader, ValueId root) {
    const Nest& nest = std::get<Nest>(reader.body);
    const std::optional<std::vector<Expr>> kept = KeptAxes(producer, reader, root);
    if (!kept.has_value()) return std::nullopt;
    Shape extents = nest.kept;
    extents.insert(extents.end(), nest.reduced.begin(), nest.reduced.end());
    std::vector<bool> referenced(extents.size(), false);
    for (size_t axis = 0; axis < kept->size(); ++axis) {
      const Expr& e = (*kept)[axis];
      if (e.IsConstant() && producer.kept[axis].IsConstant(1)) continue;
      if (e.op() != ExprOp::kCoord) return std::nullopt;
      const auto of_reader = static_cast<size_t>(e.index());
      if (referenced[of_reader] || !(extents[of_reader] == producer.kept[axis])) {
        return std::nullopt;
      }
      referenced[of_reader] = true;
    }
    // Axes of the reader that the reduction ran over, in order; extents of 1 may be anywhere.
    RowAxes rows;
    std::vector<int32_t> reduced_of_producer;
    for (size_t r = 0; r < producer.reduced.size(); ++r) {
      if (!producer.reduced[r].IsConstant(1))
        reduced_of_producer.push_back(static_cast<int32_t>(r));
    }
    for (size_t axis = 0; axis < extents.size(); ++axis) {
      const bool is_reduced = axis >= nest.kept.size();
      const auto index = static_cast<int32_t>(axis);
      if (referenced[axis]) {
        if (is_reduced) return std::nullopt;
        rows.kept.push_back(index);
      } else if (is_reduced || !extents[axis].IsConstant(1)) {
        rows.reduced.push_back(index);
      } else {
        rows.kept.push_back(index);
      }
    }
    if (!nest.reduced.empty() && rows.reduced.size() != nest.reduced.size()) return std::nullopt;
    std::vector<int32_t> matched;
    for (int32_t axis : rows.reduced) {
      if (!extents[static_cast<size_t>(axis)].IsConstant(1)) matched.push_back(axis);
    }
    if (matched.size() != reduced_of_producer.size() || matched.empty()) return std::nullopt;
    const std::vector<Expr> joined = JoinedCoordinates(rows, extents.size());
    rows.of_producer.assign(producer.kept.size() + producer.reduced.size(),
                            Expr::ConstantInt(DType::kI64, 0));
    for (size_t i = 0; i < matched.size(); ++i) {
      const auto r = static_cast<size_t>(reduced_of_producer[i]);
      if (!(extents[static_cast<size_t>(matched[i])] == producer.reduced[r])) return std::nullopt;
      rows.of_producer[producer.kept.size() + r] = joined[static_cast<size_t>(matched[i])];
    }
    for (size_t axis = 0; axis < kept->size(); ++axis) {
      rows.of_producer[axis] = SubstituteCoordinates((*kept)[axis], joined);
    }
    // Lanes run along the innermost axis: over the row when it is reduced there, across rows when
    // it is kept. Anything between would be strided both ways.
    const auto innermost = static_cast<int32_t>(extents.size()) - 1;
    const bool rows_inside = rows.kept.empty() || rows.reduced.front() > rows.kept.back();
    const bool rows_across = !rows.kept.empty() && rows.kept.back() == innermost;
    if (!rows_inside && !rows_across) return std::nullopt;
    return rows;
  }

  // The reader's axes in the joined nest's coordinates.
  static std::vector<Expr> JoinedCoordinates(const RowAxes& rows, size_t rank) {
    std::vector<Expr> joined(rank);
    int32_t next = 0;
    for (int32_t axis : rows.kept) joined[static_cast<size_t>(axis)] = Expr::Coord(next++);
    for (int32_t axis : rows.reduced) joined[static_cast<size_t>(axis)] = Expr::Coord(next++);
    return joined;
  }

  bool JoinRows(int32_t s) {
    const Stage producer = stage(s);
    const auto* p = std::get_if<Nest>(&producer.body);
    if (p == nullptr || p->reductions.empty() || p->per_element) return false;
    const std::vector<int32_t> readers = FusibleReaders(s);
    if (readers.size() != 1) return false;
    Stage& reader = stage(readers[0]);
    const auto* u = std::get_if<Nest>(&reader.body);
    if (u == nullptr || u->reductions.size() + p->reductions.size() > kReductionsMax) return false;
    if (reader.operands.size() + producer.operands.size() > kOperandsMax) return false;
    const ValueId root = stages_.Root(producer.outputs[0]);
    const std::optional<RowAxes> rows = MatchRows(*p, reader, root);
    if (!rows.has_value()) return false;
    Join(producer, reader, root, *rows);
    stage(s).removed = true;
    return true;
  }

  void Join(const Stage& producer, Stage& reader, ValueId root, const RowAxes& rows) {
    const Nest& p = std::get<Nest>(producer.body);
    const Nest u = std::get<Nest>(reader.body);
    Shape extents = u.kept;
    extents.insert(extents.end(), u.reduced.begin(), u.reduced.end());
    const std::vector<Expr> joined = JoinedCoordinates(rows, extents.size());
    const auto from_producer = [&](const Expr& e) {
      return ImportOperands(SubstituteCoordinates(e, rows.of_producer), producer, reader);
    };
    const Expr row_value = from_producer(p.result);
    const auto shift = static_cast<int32_t>(p.reductions.size());
    const auto from_reader = [&](const Expr& e) {
      // Loads of the producer's value stand aside while coordinates are substituted.
      return SubstituteCoordinates(e.Rewrite([&](const Expr& x) {
               if (x.op() == ExprOp::kReduced) return Expr::Reduced(x.dtype(), x.index() + shift);
               if (IsLoad(x) &&
                   stages_.Root(reader.operands[static_cast<size_t>(x.index())]) == root) {
                 return Placeholder(x.dtype(), 0);
               }
               return x;
             }),
                                   joined)
          .Rewrite([&](const Expr& x) {
            return x.op() == ExprOp::kReduced && x.index() >= kPlaceholder ? row_value : x;
          });
    };
    Nest nest;
    for (int32_t axis : rows.kept) nest.kept.push_back(extents[static_cast<size_t>(axis)]);
    for (int32_t axis : rows.reduced) nest.reduced.push_back(extents[static_cast<size_t>(axis)]);
    for (const Reduction& r : p.reductions)
      nest.reductions.push_back(MapReduction(r, from_producer));
    for (const Reduction& r : u.reductions) nest.reductions.push_back(MapReduction(r, from_reader));
    nest.result = from_reader(u.result);
    nest.per_element = u.reductions.empty() || u.per_element;
    nest.output = u.output;
    nest.output_coordinates = u.output_coordinates;
    if (nest.output_coordinates.empty()) {
      nest.output_coordinates =
          IdentityCoordinates(nest.per_element ? extents.size() : u.kept.size());
    }
    for (Expr& e : nest.output_coordinates) e = SubstituteCoordinates(e, joined);
    Shape domain = nest.kept;
    if (nest.per_element) domain.insert(domain.end(), nest.reduced.begin(), nest.reduced.end());
    if (IsIdentity(nest.output_coordinates) && nest.output.shape == domain) {
      nest.output_coordinates.clear();
    }
    nest.operands = Operands(reader.body);
    MergeEqualReductions(nest);
    reader.body = std::move(nest);
    MergeLabels(reader, producer, /*from_first=*/true);
    CompactOperands(reader);
  }

  template <typename Map>
  static Reduction MapReduction(const Reduction& reduction, const Map& map) {
    Reduction mapped;
    for (const Expr& e : reduction.init) mapped.init.push_back(map(e));
    for (const Expr& e : reduction.update) mapped.update.push_back(map(e));
    for (const Expr& e : reduction.merge) mapped.merge.push_back(map(e));
    mapped.result = map(reduction.result);
    return mapped;
  }

  // The same mean computed for two users of the row is computed once.
  static void MergeEqualReductions(Nest& nest) {
    for (size_t j = 1; j < nest.reductions.size(); ++j) {
      for (size_t i = 0; i < j; ++i) {
        const Reduction &a = nest.reductions[i], &b = nest.reductions[j];
        if (!(a.init == b.init && a.update == b.update && a.result == b.result)) continue;
        const auto from = static_cast<int32_t>(j), to = static_cast<int32_t>(i);
        const auto renumber = [&](const Expr& e) {
          return e.Rewrite([&](const Expr& x) {
            if (x.op() != ExprOp::kReduced || x.index() < from) return x;
            return Expr::Reduced(x.dtype(), x.index() == from ? to : x.index() - 1);
          });
        };
        nest.reductions.erase(nest.reductions.begin() + static_cast<int64_t>(j));
        for (Reduction& r : nest.reductions) r = MapReduction(r, renumber);
        nest.result = renumber(nest.result);
        --j;
        break;
      }
    }
  }

  StageGraph& stages_;
  absl::flat_hash_map<ValueId, std::vector<int32_t>> readers_, writers_;
  absl::flat_hash_map<std::pair<ValueId, Shape>, ValueId> views_;
};

}  // namespace

void FuseStages(StageGraph& stages) { Fuser(stages).Run(); }

}  // namespace stampmill
