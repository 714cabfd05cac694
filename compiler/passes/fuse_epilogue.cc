// Fusion: a map over the result of a contraction or reduction becomes part of what that writes.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/passes/coordinates.h"
#include "compiler/passes/fusion.h"

namespace stampmill {
namespace {

// U is a map whose only reading of P's value is at one coordinate vector that is a permutation
// of U's axes, those of one element aside. Gives for each axis of U the axis of the value it runs
// over (-1: extent 1).
std::optional<std::vector<int32_t>> PermutedAxes(Fusion& fusion, const Stage& user, ValueId root,
                                                 const Shape& seen) {
  const Nest& nest = std::get<Nest>(user.body);
  std::vector<int32_t> axes(nest.kept.size(), -1);
  std::optional<Expr> first;
  bool same = true;
  fusion.ForEachLoad(user, root, [&](const Expr& load) {
    if (load.op() != ExprOp::kLoad) same = false;
    if (!first.has_value()) first = load;
    const std::span<const Expr> a = LoadCoordinates(*first), b = LoadCoordinates(load);
    for (size_t i = 0; i < a.size(); ++i) same &= seen[i].IsConstant(1) || a[i] == b[i];
  });
  if (!same || !first.has_value()) return std::nullopt;
  const std::span<const Expr> at = LoadCoordinates(*first);
  for (size_t i = 0; i < at.size(); ++i) {
    if (seen[i].IsConstant(1)) continue;
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
std::optional<Shape> SeenShape(Fusion& fusion, const Stage& reader, ValueId root) {
  std::optional<Shape> seen;
  for (size_t i = 0; i < reader.operands.size(); ++i) {
    if (fusion.stages().Root(reader.operands[i]) != root) continue;
    const Shape& shape = OperandsOf(reader.body)[i].shape;
    if (seen.has_value() && !(*seen == shape)) return std::nullopt;
    seen = shape;
  }
  return seen;
}

bool IsIdentityLoad(const Expr& e) {
  return e.op() == ExprOp::kLoad && IsIdentity(LoadCoordinates(e));
}

bool ReadsAtIdentity(Fusion& fusion, const Stage& user, ValueId root) {
  bool identity = true;
  fusion.ForEachLoad(user, root, [&](const Expr& load) { identity &= IsIdentityLoad(load); });
  return identity;
}

// Turns `fused`, a copy of the producer, into producer and user in one. `coordinates` are the
// user's axes in the producer's loop coordinates.
void BuildEpilogue(Fusion& fusion, Stage& fused, const Stage& user, ValueId root, const Shape& seen,
                   const std::vector<Expr>& coordinates) {
  const Nest& map = std::get<Nest>(user.body);
  const WrittenDomain domain = *WrittenDomainOf(fused.body);
  const Shape& written_shape = domain.output.shape;
  const std::vector<Expr>& written = domain.output_coordinates;
  // Where the user runs over the producer's value axis by axis, what else it reads and writes at
  // its own coordinates is seen in the producer's shape instead, without divisions.
  const bool same_space = map.kept == seen && ReadsAtIdentity(fusion, user, root);
  // Loads that are replaced whole stand aside as placeholders while the user's coordinates are
  // substituted: what replaces them is in the producer's coordinates already.
  std::vector<Expr> aside = {ResultOf(fused.body)};
  Expr result = map.result.Rewrite([&](const Expr& e) {
    if (!IsLoad(e)) return e;
    const auto operand = static_cast<size_t>(e.index());
    if (fusion.stages().Root(user.operands[operand]) == root) return Placeholder(e.dtype(), 0);
    const Operand& read = map.operands[operand];
    if (!same_space || !IsIdentityLoad(e) || !(read.shape == map.kept)) return e;
    const ValueId view = fusion.View(user.operands[operand], written_shape);
    const int32_t index = AddOperand(fused, {read.dtype, written_shape}, view);
    aside.push_back(Expr::Load(e.dtype(), index, written));
    return Placeholder(e.dtype(), aside.size() - 1);
  });
  // Coordinates may load from the producer's own operands.
  result = FillPlaceholders(SubstituteCoordinates(ImportOperands(result, user, fused), coordinates),
                            aside);

  Operand output = map.output;
  ValueId target = user.outputs[0];
  std::vector<Expr> at;
  if (map.output_coordinates.empty() && same_space) {
    target = fusion.View(target, written_shape);
    output.shape = written_shape;
    at = written;
  } else {
    at = map.output_coordinates.empty() ? IdentityCoordinates(map.kept.size())
                                        : map.output_coordinates;
    for (Expr& e : at) e = SubstituteCoordinates(e, coordinates);
  }
  SetWritten(fused.body, std::move(result), std::move(output), std::move(at));
  fused.outputs = {target};
}

// What is written along the innermost loop stays neighbours in memory. An output without any such
// row (one column) has nothing to lose.
bool StoresRows(const WrittenDomain& domain, const Stage& user,
                const std::vector<Expr>& coordinates) {
  if (domain.extents.empty() || domain.extents.back().IsConstant(1)) return true;
  const Nest& map = std::get<Nest>(user.body);
  std::vector<Expr> at = map.output_coordinates.empty() ? IdentityCoordinates(map.kept.size())
                                                        : map.output_coordinates;
  for (Expr& e : at) e = SubstituteCoordinates(e, coordinates);
  const auto innermost = static_cast<int32_t>(domain.extents.size()) - 1;
  std::optional<size_t> place;
  if (!WalksPlainly(at, innermost, &place) || !place.has_value()) return false;
  for (size_t i = *place + 1; i < at.size(); ++i) {
    if (!map.output.shape[i].IsConstant(1)) return false;
  }
  return true;
}

}  // namespace

bool FoldEpilogue(Fusion& fusion, int32_t s) {
  Stage& producer = fusion.stage(s);
  const std::optional<WrittenDomain> domain = WrittenDomainOf(producer.body);
  if (!domain.has_value() || IsMap(producer)) return false;
  const std::vector<int32_t> readers = fusion.FusibleReaders(s);
  if (readers.size() != 1 || !IsMap(fusion.stage(readers[0]))) return false;
  Stage& user = fusion.stage(readers[0]);
  const ValueId root = fusion.stages().Root(producer.outputs[0]);
  if (user.operands.size() + producer.operands.size() > kOperandsMax) return false;
  const std::optional<Shape> seen = SeenShape(fusion, user, root);
  if (!seen.has_value()) return false;
  const std::optional<std::vector<int32_t>> axes = PermutedAxes(fusion, user, root, *seen);
  if (!axes.has_value()) return false;
  // Coordinates of the value as the user sees it, in the producer's loop coordinates.
  const std::optional<std::vector<Expr>> at =
      MapCoordinates(domain->output_coordinates, domain->output.shape, *seen);
  if (!at.has_value()) return false;
  std::vector<Expr> coordinates;  // of the user's axes
  for (int32_t axis : *axes) {
    coordinates.push_back(axis < 0 ? Expr::ConstantInt(DType::kI64, 0)
                                   : (*at)[static_cast<size_t>(axis)]);
  }
  if (!StoresRows(*domain, user, coordinates)) return false;
  Stage fused = producer;
  fused.region = user.region;
  BuildEpilogue(fusion, fused, user, root, *seen, coordinates);
  fused.label = JoinLabels(producer.label, user.label);
  CompactOperands(fused);
  user = std::move(fused);
  fusion.stage(s).removed = true;
  return true;
}

}  // namespace stampmill
