// Fusion: a reduction joins its one reader when both run over the same rows.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/passes/coordinates.h"
#include "compiler/passes/fusion.h"

namespace stampmill {
namespace {

// Reductions that one nest may hold: beyond it the row is read too often.
constexpr size_t kReductionsMax = 6;

// How the axes of a reduction lie in those of its reader.
struct RowAxes {
  std::vector<int32_t> kept;      // the reader's axes that become kept, in order
  std::vector<int32_t> reduced;   // and reduced
  std::vector<Expr> of_producer;  // the producer's axes in the joined nest's coordinates
};

// The reader's coordinate for each kept axis of the producer, if all its loads agree on it.
std::optional<std::vector<Expr>> KeptAxes(Fusion& fusion, const Nest& producer, const Stage& reader,
                                          ValueId root) {
  const std::vector<Expr> written = producer.output_coordinates.empty()
                                        ? IdentityCoordinates(producer.kept.size())
                                        : producer.output_coordinates;
  std::optional<std::vector<Expr>> kept;
  bool agree = true;
  fusion.ForEachLoad(reader, root, [&](const Expr& load) {
    const Shape& seen = OperandsOf(reader.body)[static_cast<size_t>(load.index())].shape;
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

// The reader's axes in the joined nest's coordinates.
std::vector<Expr> JoinedCoordinates(const RowAxes& rows, size_t rank) {
  std::vector<Expr> joined(rank);
  int32_t next = 0;
  for (int32_t axis : rows.kept) joined[static_cast<size_t>(axis)] = Expr::Coord(next++);
  for (int32_t axis : rows.reduced) joined[static_cast<size_t>(axis)] = Expr::Coord(next++);
  return joined;
}

std::optional<RowAxes> MatchRows(Fusion& fusion, const Nest& producer, const Stage& reader,
                                 ValueId root) {
  const Nest& nest = std::get<Nest>(reader.body);
  const std::optional<std::vector<Expr>> kept = KeptAxes(fusion, producer, reader, root);
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
    if (!producer.reduced[r].IsConstant(1)) reduced_of_producer.push_back(static_cast<int32_t>(r));
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

template <typename Map>
Reduction MapReduction(const Reduction& reduction, const Map& map) {
  Reduction mapped;
  for (const Expr& e : reduction.init) mapped.init.push_back(map(e));
  for (const Expr& e : reduction.update) mapped.update.push_back(map(e));
  for (const Expr& e : reduction.merge) mapped.merge.push_back(map(e));
  mapped.result = map(reduction.result);
  return mapped;
}

// The same mean computed for two users of the row is computed once.
void MergeEqualReductions(Nest& nest) {
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

void Join(Fusion& fusion, const Stage& producer, Stage& reader, ValueId root, const RowAxes& rows) {
  const Nest& p = std::get<Nest>(producer.body);
  const Nest u = std::get<Nest>(reader.body);
  Shape extents = u.kept;
  extents.insert(extents.end(), u.reduced.begin(), u.reduced.end());
  const std::vector<Expr> joined = JoinedCoordinates(rows, extents.size());
  const auto from_producer = [&](const Expr& e) {
    return SubstituteCoordinates(ImportOperands(e, producer, reader), rows.of_producer);
  };
  const Expr row_value = from_producer(p.result);
  const auto shift = static_cast<int32_t>(p.reductions.size());
  const auto from_reader = [&](const Expr& e) {
    // Loads of the producer's value stand aside while coordinates are substituted.
    const Expr aside = e.Rewrite([&](const Expr& x) {
      if (x.op() == ExprOp::kReduced) return Expr::Reduced(x.dtype(), x.index() + shift);
      const bool of_producer =
          IsLoad(x) &&
          fusion.stages().Root(reader.operands[static_cast<size_t>(x.index())]) == root;
      return of_producer ? Placeholder(x.dtype(), 0) : x;
    });
    return FillPlaceholders(SubstituteCoordinates(aside, joined), {row_value});
  };
  Nest nest;
  for (int32_t axis : rows.kept) nest.kept.push_back(extents[static_cast<size_t>(axis)]);
  for (int32_t axis : rows.reduced) nest.reduced.push_back(extents[static_cast<size_t>(axis)]);
  for (const Reduction& r : p.reductions) {
    nest.reductions.push_back(MapReduction(r, from_producer));
  }
  for (const Reduction& r : u.reductions) nest.reductions.push_back(MapReduction(r, from_reader));
  nest.per_element = u.reductions.empty() || u.per_element;
  std::vector<Expr> at = u.output_coordinates;
  if (at.empty()) at = IdentityCoordinates(nest.per_element ? extents.size() : u.kept.size());
  for (Expr& e : at) e = SubstituteCoordinates(e, joined);
  const Expr result = from_reader(u.result);
  nest.operands = OperandsOf(reader.body);
  reader.body = std::move(nest);
  SetWritten(reader.body, result, u.output, std::move(at));
  MergeEqualReductions(std::get<Nest>(reader.body));
  reader.label = JoinLabels(producer.label, reader.label);
  CompactOperands(reader);
}

}  // namespace

bool JoinRows(Fusion& fusion, int32_t s) {
  const Stage producer = fusion.stage(s);
  const auto* p = std::get_if<Nest>(&producer.body);
  if (p == nullptr || p->reductions.empty() || p->per_element) return false;
  const std::vector<int32_t> readers = fusion.FusibleReaders(s);
  if (readers.size() != 1) return false;
  Stage& reader = fusion.stage(readers[0]);
  const auto* u = std::get_if<Nest>(&reader.body);
  if (u == nullptr || u->reductions.size() + p->reductions.size() > kReductionsMax) return false;
  if (reader.operands.size() + producer.operands.size() > kOperandsMax) return false;
  const ValueId root = fusion.stages().Root(producer.outputs[0]);
  const std::optional<RowAxes> rows = MatchRows(fusion, *p, reader, root);
  if (!rows.has_value()) return false;
  Join(fusion, producer, reader, root, *rows);
  fusion.stage(s).removed = true;
  return true;
}

}  // namespace stampmill
