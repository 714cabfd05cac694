// Fusion: maps disappear into the loads of their readers.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/passes/coordinates.h"
#include "compiler/passes/fusion.h"

namespace stampmill {
namespace {

// Arithmetic that may be done again in a second reader rather than stored and read back.
constexpr int64_t kCostToRepeat = 4;
// Arithmetic that may move into the packing of a contraction, where it runs once per element but
// with shorter vectors.
constexpr int64_t kCostToPack = 6;
// Nodes of an expression that maps may grow to: what is fused is looked through again with each map
// more, and is one block of code.
constexpr int64_t kFusedNodesMax = 2048;

// A map that writes its whole output in order: what can be inlined.
bool IsInlinable(const Stage& producer) {
  if (!IsMap(producer)) return false;
  const Nest& nest = std::get<Nest>(producer.body);
  return nest.output_coordinates.empty() && nest.output.shape == nest.kept;
}

bool CanInlineInto(Fusion& fusion, const Stage& producer, const Stage& reader) {
  const ValueId root = fusion.stages().Root(producer.outputs[0]);
  if (fusion.ReadsOpaquely(reader, root)) return false;
  if (reader.operands.size() + producer.operands.size() > kOperandsMax) return false;
  const Nest& nest = std::get<Nest>(producer.body);
  int64_t nodes = nest.result.NodeCount();
  ForEachExpr(reader.body, [&](const Expr& expr) { nodes += expr.NodeCount(); });
  if (nodes > kFusedNodesMax) return false;
  for (size_t i = 0; i < reader.operands.size(); ++i) {
    if (fusion.stages().Root(reader.operands[i]) != root) continue;
    const Shape& seen = OperandsOf(reader.body)[i].shape;
    if (!MapCoordinates(IdentityCoordinates(seen.size()), seen, nest.kept).has_value()) {
      return false;
    }
  }
  return true;
}

// The producer's value at the coordinates of `load`, in terms of `reader`.
Expr InlinedValue(const Stage& producer, Stage& reader, const Expr& load) {
  const Nest& nest = std::get<Nest>(producer.body);
  const Shape seen = OperandsOf(reader.body)[static_cast<size_t>(load.index())].shape;
  const std::vector<Expr> at = *MapCoordinates(LoadCoordinates(load), seen, nest.kept);
  // The coordinates are in terms of the reader already, and may load from its operands themselves:
  // operands are imported first.
  const Expr imported = ImportOperands(nest.result, producer, reader);
  if (load.op() == ExprOp::kLoad) return SubstituteCoordinates(imported, at);
  const Expr condition = load.operands()[0];
  // Outside the condition the coordinates may be out of range: guard what the producer reads.
  const Expr guarded = imported.Rewrite([&](const Expr& e) {
    if (e.op() == ExprOp::kCoord) return at[static_cast<size_t>(e.index())];
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
  if (guarded.op() == ExprOp::kGuardedLoad && imported.op() == ExprOp::kLoad) {
    // A plain copy: one guarded load with the reader's own alternative.
    const std::span<const Expr> c = LoadCoordinates(guarded);
    return Expr::GuardedLoad(guarded.dtype(), guarded.index(),
                             std::vector<Expr>(c.begin(), c.end()), condition, load.operands()[1]);
  }
  return Expr::Select(condition, guarded, load.operands()[1]);
}

void InlineInto(Fusion& fusion, int32_t p, int32_t r) {
  const Stage producer = fusion.stage(p);
  Stage& reader = fusion.stage(r);
  const ValueId root = fusion.stages().Root(producer.outputs[0]);
  // One value for equal loads: a chain of maps that read the one before twice would double with
  // each.
  std::vector<std::pair<Expr, Expr>> values;
  ForEachExpr(reader.body, [&](Expr& expr) {
    expr = expr.Rewrite([&](const Expr& e) {
      if (!IsLoad(e) ||
          fusion.stages().Root(reader.operands[static_cast<size_t>(e.index())]) != root) {
        return e;
      }
      for (const auto& [load, value] : values) {
        if (load == e) return value;
      }
      values.emplace_back(e, InlinedValue(producer, reader, e));
      return values.back().second;
    });
  });
  reader.label = JoinLabels(producer.label, reader.label);
  CompactOperands(reader);
}

bool InlineIntoAll(Fusion& fusion, int32_t p, const std::vector<int32_t>& readers) {
  for (int32_t r : readers) InlineInto(fusion, p, r);
  fusion.stage(p).removed = true;
  return true;
}

// The map's innermost axis is the innermost axis of what it loads: rows stay contiguous.
bool KeepsRows(const Nest& nest) {
  if (nest.kept.empty()) return true;
  const auto innermost = static_cast<int32_t>(nest.kept.size()) - 1;
  bool keeps = true;
  nest.result.Visit([&](const Expr& e) {
    if (!IsLoad(e)) return;
    std::optional<size_t> place;
    keeps &= WalksPlainly(LoadCoordinates(e), innermost, &place) &&
             (!place.has_value() || *place + 1 == LoadCoordinates(e).size());
  });
  return keeps;
}

// The innermost loop of `reader` still walks plainly along what the producer reads once it is
// inlined: no division cuts its rows.
bool WalksPlainlyInlined(Fusion& fusion, const Stage& producer, const Stage& reader) {
  const Nest& nest = std::get<Nest>(producer.body);
  const ValueId root = fusion.stages().Root(producer.outputs[0]);
  int32_t innermost = 0;
  if (const auto* loops = std::get_if<Nest>(&reader.body)) {
    innermost = static_cast<int32_t>(loops->kept.size() + loops->reduced.size()) - 1;
  } else {
    const auto& product = std::get<Contraction>(reader.body);
    innermost =
        static_cast<int32_t>(product.batch.size() + product.m.size() + product.k.size()) - 1;
  }
  bool plain = true;
  fusion.ForEachLoad(reader, root, [&](const Expr& load) {
    const Shape& seen = OperandsOf(reader.body)[static_cast<size_t>(load.index())].shape;
    const std::vector<Expr> at = *MapCoordinates(LoadCoordinates(load), seen, nest.kept);
    nest.result.Visit([&](const Expr& e) {
      if (!IsLoad(e)) return;
      std::vector<Expr> coordinates;
      for (const Expr& c : LoadCoordinates(e)) coordinates.push_back(SubstituteCoordinates(c, at));
      std::optional<size_t> place;
      plain &= WalksPlainly(coordinates, innermost, &place);
    });
  });
  return plain;
}

bool IsCheapToRepeat(const Nest& nest) {
  if (ArithmeticCost(nest.result) > kCostToRepeat) return false;
  const DimExpr elements = ElementCount(nest.kept);
  int full_size = 0;
  for (const Operand& operand : nest.operands) {
    full_size += ElementCount(operand.shape) == elements ? 1 : 0;
  }
  return full_size <= 1;
}

// No load of the map takes a division, a minimum or another load to find its place.
bool LoadsInPlace(const Nest& nest) {
  bool in_place = true;
  nest.result.Visit([&](const Expr& e) {
    if (!IsLoad(e)) return;
    for (const Expr& coordinate : LoadCoordinates(e)) {
      for (size_t axis = 0; axis < nest.kept.size(); ++axis) {
        in_place &= CoordinateFactor(coordinate, static_cast<int32_t>(axis)).has_value();
      }
    }
  });
  return in_place;
}

// A handful of scalars: recomputing them is cheaper than a launch.
bool IsTiny(const Nest& nest) {
  const std::optional<int64_t> elements = ElementCount(nest.kept).constant();
  return elements.has_value() && *elements <= 1 && ArithmeticCost(nest.result) <= kCostToRepeat;
}

}  // namespace

namespace {

// The constant behind a load of a tensor of one element.
std::optional<Expr> ScalarOf(const StageGraph& stages, const Stage& stage, const Expr& load) {
  if (load.op() != ExprOp::kLoad) return std::nullopt;
  const ValueId id = stage.operands[static_cast<size_t>(load.index())];
  const std::optional<Tensor>& own = stages.value(id).constant;
  const std::optional<Tensor>& tensor = own ? own : stages.value(stages.Root(id)).constant;
  if (!tensor.has_value() || tensor->element_count() != 1) return std::nullopt;
  if (IsFloat(tensor->dtype())) return Expr::Constant(tensor->dtype(), tensor->ValueAsDouble(0));
  return Expr::ConstantInt(tensor->dtype(), tensor->ValueAsInt64(0));
}

// x / c as x * (1 / c), where both are ordinary f32 numbers.
std::optional<Expr> AsProduct(const Expr& e) {
  if (e.op() != ExprOp::kDiv || e.dtype() != DType::kF32 || !e.operands()[1].IsConstant()) {
    return std::nullopt;
  }
  const auto reciprocal = static_cast<float>(1.0 / e.operands()[1].constant_value());
  if (!std::isnormal(reciprocal)) return std::nullopt;
  return e.operands()[0] * Expr::Constant(DType::kF32, reciprocal);
}

}  // namespace

void InlineScalars(StageGraph& stages) {
  for (Stage& stage : stages.stages) {
    if (std::holds_alternative<Library>(stage.body)) continue;
    ForEachExpr(stage.body, [&](Expr& expr) {
      expr = expr.Rewrite([&](const Expr& e) {
        if (const std::optional<Expr> scalar = ScalarOf(stages, stage, e)) return *scalar;
        return AsProduct(e).value_or(e);
      });
    });
    CompactOperands(stage);
  }
}

// What is made of constants alone and yet is no constant would be too large (block-quantised
// weights): maps that read it, some rows of it mostly, make what they read.
bool InlineConstants(Fusion& fusion, int32_t s) {
  Stage& producer = fusion.stage(s);
  if (!IsInlinable(producer) || producer.operands.empty()) return false;
  for (const ValueId id : producer.operands) {
    if (!fusion.stages().value(fusion.stages().Root(id)).constant.has_value()) return false;
  }
  const std::vector<int32_t> readers = fusion.FusibleReaders(s);
  if (readers.empty()) return false;
  for (const int32_t r : readers) {
    if (!IsMap(fusion.stage(r)) || !CanInlineInto(fusion, producer, fusion.stage(r))) return false;
  }
  return InlineIntoAll(fusion, s, readers);
}

// Pure data movement goes into all its readers.
bool InlineMovement(Fusion& fusion, int32_t s) {
  Stage& producer = fusion.stage(s);
  if (!IsInlinable(producer)) return false;
  const Nest& nest = std::get<Nest>(producer.body);
  const bool movement = ArithmeticCost(nest.result) == 0;
  if (!movement) return false;
  const std::vector<int32_t> readers = fusion.FusibleReaders(s);
  if (readers.empty()) return false;
  const ValueId root = fusion.stages().Root(producer.outputs[0]);
  const DimExpr elements = ElementCount(nest.kept);
  const bool keeps_rows = KeepsRows(nest);
  for (int32_t r : readers) {
    const Stage& reader = fusion.stage(r);
    if (!CanInlineInto(fusion, producer, reader)) return false;
    // A map that moves data anyway may as well move it from there.
    if (IsMap(reader)) continue;
    if (!keeps_rows && !fusion.ReadsEachOnce(reader, root, elements)) return false;
    if (!WalksPlainlyInlined(fusion, producer, reader)) return false;
  }
  return InlineIntoAll(fusion, s, readers);
}

// A map goes into the maps that read each of its elements once: one reader, or several when it is
// cheap and reads one full-size operand.
bool JoinMaps(Fusion& fusion, int32_t s) {
  Stage& producer = fusion.stage(s);
  if (!IsInlinable(producer)) return false;
  const std::vector<int32_t> readers = fusion.FusibleReaders(s);
  if (readers.empty()) return false;
  const Nest& nest = std::get<Nest>(producer.body);
  const DimExpr elements = ElementCount(nest.kept);
  const ValueId root = fusion.stages().Root(producer.outputs[0]);
  if (readers.size() > 1 && !IsCheapToRepeat(nest)) return false;
  for (int32_t r : readers) {
    if (readers.size() == 1 && !IsMap(fusion.stage(r))) return false;
    if (!CanInlineInto(fusion, producer, fusion.stage(r))) return false;
    if (!fusion.ReadsEachOnce(fusion.stage(r), root, elements) && !IsTiny(nest)) return false;
    if (std::holds_alternative<Contraction>(fusion.stage(r).body)) return false;
  }
  return InlineIntoAll(fusion, s, readers);
}

// What is left: a map into the one reduction or contraction that reads it, once per element.
bool InlineIntoLoops(Fusion& fusion, int32_t s) {
  Stage& producer = fusion.stage(s);
  if (!IsInlinable(producer)) return false;
  const std::vector<int32_t> readers = fusion.FusibleReaders(s);
  if (readers.size() != 1) return false;
  const Nest& nest = std::get<Nest>(producer.body);
  Stage& reader = fusion.stage(readers[0]);
  if (!CanInlineInto(fusion, producer, reader)) return false;
  const ValueId root = fusion.stages().Root(producer.outputs[0]);
  const int64_t cost = ArithmeticCost(nest.result);
  const bool once = fusion.ReadsEachOnce(reader, root, ElementCount(nest.kept));
  const auto* contraction = std::get_if<Contraction>(&reader.body);
  if (contraction != nullptr && fusion.Reads(contraction->a, reader, root)) {
    if (!once || cost > kCostToPack || !KeepsRows(nest)) return false;
  } else if (!once && cost > 0 && !(IsCheapToRepeat(nest) && LoadsInPlace(nest))) {
    return false;
  } else if (!once && !KeepsRows(nest)) {
    // What jumps through memory jumps once, not for every reading.
    return false;
  }
  return InlineIntoAll(fusion, s, readers);
}

}  // namespace stampmill
