// A value carries the batch along the one axis of its shape that mentions the batch's symbol:
// symbol times so many rows of its own. A loop that writes such a value runs over the batch along
// one axis likewise. Then two things are shown of each stage: what it reads of the batch is within
// the row that it writes; and nothing else that it computes changes when the loop moves on by one
// row, which the steps of expressions tell.
//
// What a repeat carries from one iteration to the next is in the same rows by induction: every
// stage keeps to its row if all before it did.
#include "compiler/passes/batching.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/passes/coordinates.h"

namespace stampmill {
namespace {

bool Mentions(const DimExpr& dim, const std::string& symbol) {
  const std::vector<std::string> symbols = dim.Symbols();
  return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
}

// a / b, when b divides it whatever the symbols are.
std::optional<DimExpr> Quotient(const DimExpr& a, const DimExpr& b) {
  const DimExpr quotient = FloorDiv(a, b);
  if (!(quotient * b == a)) return std::nullopt;
  return quotient;
}

// Where a shape has the batch.
struct BatchAxis {
  size_t axis = 0;
  DimExpr rows;  // the extent is symbol * rows
};

class Prover {
 public:
  Prover(const StageGraph& stages, std::string symbol)
      : stages_(stages), symbol_(std::move(symbol)) {}

  std::optional<std::string> Failure() {
    for (ValueId input : stages_.inputs) {
      if (!BeginsWithBatch(stages_.value(input).shape)) {
        return absl::StrCat("input '", stages_.value(input).name, "' does not begin with it");
      }
    }
    for (size_t i = 0; i < stages_.outputs.size(); ++i) {
      const ValueId output = stages_.outputs[i];
      if (!BeginsWithBatch(stages_.value(output).shape) || !ShareFits(output)) {
        return absl::StrCat("output '", stages_.output_names[i], "' does not begin with it");
      }
      if (HasLateDim(stages_.value(output).shape)) {
        return absl::StrCat("the size of output '", stages_.output_names[i],
                            "' is known only from data");
      }
    }
    for (const StageRegion& region : stages_.regions) {
      if (Mentions(region.count, symbol_) || Mentions(region.proceed, symbol_)) {
        return "what runs depends on it";
      }
    }
    for (const Stage& stage : stages_.stages) {
      if (!CheckStage(stage)) return absl::StrCat(stage.label, " mixes rows");
    }
    return std::nullopt;
  }

 private:
  bool MentionsAny(const Shape& shape) const {
    return std::any_of(shape.begin(), shape.end(),
                       [&](const DimExpr& d) { return Mentions(d, symbol_); });
  }
  bool HasLateDim(const Shape& shape) const {
    return std::any_of(shape.begin(), shape.end(), [&](const DimExpr& dim) {
      const std::vector<std::string> symbols = dim.Symbols();
      return std::any_of(symbols.begin(), symbols.end(), [&](const std::string& symbol) {
        return stages_.late_limits.contains(symbol);
      });
    });
  }
  bool Batched(ValueId id) const { return MentionsAny(stages_.value(id).shape); }

  bool BeginsWithBatch(const Shape& shape) const {
    const std::optional<BatchAxis> at = AxisOf(shape);
    return at.has_value() && at->axis == 0 && at->rows.IsConstant(1);
  }

  // nullopt unless exactly one extent mentions the symbol, as a factor.
  std::optional<BatchAxis> AxisOf(const Shape& shape) const {
    std::optional<BatchAxis> found;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (!Mentions(shape[axis], symbol_)) continue;
      if (found.has_value()) return std::nullopt;
      std::optional<DimExpr> rows = Quotient(shape[axis], DimExpr::Symbol(symbol_));
      if (!rows.has_value() || rows->IsConstant(0) || Mentions(*rows, symbol_)) return std::nullopt;
      found = BatchAxis{axis, *std::move(rows)};
    }
    return found;
  }

  // An alias or slice has the rows of the value whose memory it shares.
  bool ShareFits(ValueId id) const {
    const StageValue& value = stages_.value(id);
    if (value.alias_of != kNoValue && !ShareFits(value.alias_of)) return false;
    const ValueId shared = value.alias_of != kNoValue ? value.alias_of : value.slice_of;
    if (shared == kNoValue || !(Batched(id) || Batched(shared))) return true;
    const Shape& whole = stages_.value(shared).shape;
    const std::optional<BatchAxis> a = AxisOf(value.shape), b = AxisOf(whole);
    if (!a.has_value() || !b.has_value()) return false;
    const std::span<const DimExpr> own = value.shape, outer = whole;
    if (value.alias_of != kNoValue) {
      return ElementCount(own.first(a->axis)) == ElementCount(outer.first(b->axis));
    }
    // One of those along the leading axes.
    return own.size() <= outer.size() &&
           std::equal(own.begin(), own.end(), outer.end() - static_cast<int64_t>(own.size())) &&
           b->axis >= outer.size() - own.size() &&
           Quotient(value.offset, ElementCount(own)).has_value();
  }

  // Library kernels are not looked into: they say it of the elements along dim 0.
  bool KeepsRowsApart(const Library& library) const {
    if (!library.by_row) return false;
    const auto has_rows = [&](const Operand& operand) {
      const std::optional<BatchAxis> at = AxisOf(operand.shape);
      return at.has_value() && at->axis == 0 && operand.shape[0] == library.outputs[0].shape[0];
    };
    return std::all_of(library.outputs.begin(), library.outputs.end(), has_rows) &&
           std::all_of(library.operands.begin(), library.operands.end(),
                       [&](const Operand& o) { return !MentionsAny(o.shape) || has_rows(o); });
  }

  bool CheckStage(const Stage& stage) {
    const auto fits = [&](ValueId id) { return ShareFits(id); };
    if (!std::all_of(stage.operands.begin(), stage.operands.end(), fits) ||
        !std::all_of(stage.outputs.begin(), stage.outputs.end(), fits)) {
      return false;
    }
    const bool reads_batch = std::any_of(stage.operands.begin(), stage.operands.end(),
                                         [&](ValueId id) { return Batched(id); });
    const bool writes_batch = std::any_of(stage.outputs.begin(), stage.outputs.end(),
                                          [&](ValueId id) { return Batched(id); });
    // What the host reads decides for all.
    if (!stage.reads.empty()) return !reads_batch && !writes_batch;
    if (const auto* library = std::get_if<Library>(&stage.body)) {
      return (!reads_batch && !writes_batch) || KeepsRowsApart(*library);
    }
    Shape loop;
    const auto* nest = std::get_if<Nest>(&stage.body);
    const auto* contraction = std::get_if<Contraction>(&stage.body);
    if (nest != nullptr) {
      loop = nest->kept;
      if (MentionsAny(nest->reduced)) return false;
    } else {
      loop = contraction->batch;
      loop.insert(loop.end(), contraction->m.begin(), contraction->m.end());
      if (MentionsAny(contraction->k) || Mentions(contraction->n, symbol_)) return false;
    }
    if (!reads_batch && !writes_batch && !MentionsAny(loop)) return UsesNoBatchDim(stage);
    const std::optional<BatchAxis> at = AxisOf(loop);
    if (!at.has_value()) return false;
    stage_ = &stage;
    loop_ = *at;
    steps_.clear();
    if (contraction != nullptr && !CheckRight(*contraction)) return false;
    if (contraction != nullptr) {
      return IsSame(contraction->a) && IsSame(contraction->result) &&
             CheckWrites(contraction->output, contraction->output_coordinates);
    }
    const auto same = [&](const std::vector<Expr>& list) {
      return std::all_of(list.begin(), list.end(), [&](const Expr& e) { return IsSame(e); });
    };
    return std::all_of(nest->reductions.begin(), nest->reductions.end(),
                       [&](const Reduction& r) {
                         return same(r.init) && same(r.update) && same(r.merge) && IsSame(r.result);
                       }) &&
           IsSame(nest->result) && CheckWrites(nest->output, nest->output_coordinates);
  }

  // b may carry the batch only along the contraction's own batch axes.
  bool CheckRight(const Contraction& contraction) const {
    const ValueId b = stage_->operands[static_cast<size_t>(contraction.b)];
    if (!Batched(b)) return true;
    const std::optional<BatchAxis> at = AxisOf(stages_.value(b).shape);
    return at.has_value() && contraction.b_batched && loop_.axis < contraction.batch.size() &&
           at->axis == loop_.axis && at->rows == loop_.rows;
  }

  bool UsesNoBatchDim(const Stage& stage) const {
    bool none = true;
    ForEachExpr(stage.body, [&](const Expr& expr) {
      expr.Visit([&](const Expr& e) {
        if (e.op() == ExprOp::kDim && Mentions(e.dim(), symbol_)) none = false;
      });
    });
    return none;
  }

  // The coordinate of an access along the axis that has the batch, `rows` a row, lies in the row of
  // the loop.
  bool InRow(const Expr& at, const DimExpr& rows) const {
    const Expr axis = Expr::Coord(static_cast<int32_t>(loop_.axis));
    if (at == axis) return rows == loop_.rows;
    // coordinate / several: from many loop rows to fewer.
    if (at.op() == ExprOp::kFloorDiv && at.operands()[0] == axis) {
      const std::optional<DimExpr> divisor = SizeOf(at.operands()[1]);
      return divisor.has_value() && *divisor * rows == loop_.rows;
    }
    // axis * rows + inner, 0 <= inner < rows: from one loop row to many, as flattening makes it.
    if (!loop_.rows.IsConstant(1) || at.op() != ExprOp::kAdd) return false;
    const Expr& inner = at.operands()[1];
    return at.operands()[0] == axis * Expr::Dim(rows) && inner.op() == ExprOp::kCoord &&
           inner.index() != static_cast<int32_t>(loop_.axis);
  }

  static std::optional<DimExpr> SizeOf(const Expr& e) {
    if (e.op() == ExprOp::kDim) return e.dim();
    if (e.IsConstant()) return DimExpr(e.constant_int());
    return std::nullopt;
  }

  // By how much an expression grows from one row of the loop to the next; nullopt: unknown.
  std::optional<DimExpr> StepOf(const Expr& e) {
    const auto known = steps_.find(e.id());
    if (known != steps_.end()) return known->second;
    std::optional<DimExpr> step = FindStep(e);
    steps_.emplace(e.id(), step);
    return step;
  }
  bool IsSame(const Expr& e) {
    const std::optional<DimExpr> step = StepOf(e);
    return step.has_value() && step->IsConstant(0);
  }

  std::optional<DimExpr> FindStep(const Expr& e) {
    if (e.op() == ExprOp::kCoord) {
      return e.index() == static_cast<int32_t>(loop_.axis) ? loop_.rows : DimExpr(0);
    }
    if (e.op() == ExprOp::kDim && Mentions(e.dim(), symbol_)) return std::nullopt;
    if (IsLoad(e)) return LoadStaysInRow(e) ? std::optional<DimExpr>(0) : std::nullopt;
    std::vector<DimExpr> steps;
    bool none_moves = true;
    for (const Expr& operand : e.operands()) {
      std::optional<DimExpr> step = StepOf(operand);
      if (!step.has_value()) return std::nullopt;
      none_moves = none_moves && step->IsConstant(0);
      steps.push_back(*std::move(step));
    }
    if (none_moves) return DimExpr(0);
    if (e.dtype() != DType::kI64) return std::nullopt;
    const std::optional<DimExpr> right =
        e.operands().size() == 2 ? SizeOf(e.operands()[1]) : std::nullopt;
    switch (e.op()) {
      case ExprOp::kAdd:
        return steps[0] + steps[1];
      case ExprOp::kSub:
        return steps[0] - steps[1];
      case ExprOp::kMul:
        if (!right.has_value()) return std::nullopt;
        return steps[0] * *right;
      case ExprOp::kFloorDiv:
        if (!right.has_value()) return std::nullopt;
        return Quotient(steps[0], *right);
      case ExprOp::kFloorMod:
        if (!right.has_value() || !Quotient(steps[0], *right).has_value()) return std::nullopt;
        return DimExpr(0);
      default:
        return std::nullopt;
    }
  }

  bool LoadStaysInRow(const Expr& load) {
    const size_t coordinates = LoadCoordinates(load).size();
    const ValueId id = stage_->operands[static_cast<size_t>(load.index())];
    std::optional<BatchAxis> at;
    if (Batched(id)) {
      at = AxisOf(stages_.value(id).shape);
      if (!at.has_value() || !InRow(LoadCoordinates(load)[at->axis], at->rows)) return false;
    }
    for (size_t i = 0; i < coordinates; ++i) {
      if ((!at.has_value() || i != at->axis) && !IsSame(LoadCoordinates(load)[i])) return false;
    }
    if (load.op() == ExprOp::kLoad) return true;
    return IsSame(load.operands()[0]) && IsSame(load.operands()[1]);
  }

  bool CheckWrites(const Operand& output, const std::vector<Expr>& places) {
    const std::optional<BatchAxis> at = AxisOf(output.shape);
    if (!at.has_value()) return false;
    const std::vector<Expr> written =
        places.empty() ? IdentityCoordinates(output.shape.size()) : places;
    for (size_t i = 0; i < written.size(); ++i) {
      if (i == at->axis ? !InRow(written[i], at->rows) : !IsSame(written[i])) return false;
    }
    return true;
  }

  const StageGraph& stages_;
  const std::string symbol_;
  // Of the stage being checked.
  const Stage* stage_ = nullptr;
  BatchAxis loop_;
  absl::flat_hash_map<const void*, std::optional<DimExpr>> steps_;
};

}  // namespace

BatchingProof ProveBatching(const StageGraph& stages) {
  if (stages.inputs.empty()) return {.symbol = "", .reason = "the model has no inputs"};
  if (stages.states > 0) return {.symbol = "", .reason = "the model keeps state"};
  const Shape& first = stages.value(stages.inputs[0]).shape;
  if (first.empty() || first[0].kind() != DimExpr::Kind::kSymbol) {
    return {.symbol = "", .reason = "dim 0 of the first input is fixed"};
  }
  std::string symbol(first[0].symbol_name());
  std::optional<std::string> failure = Prover(stages, symbol).Failure();
  if (failure.has_value()) {
    return {.symbol = "", .reason = absl::StrCat("dim 0, '", symbol, "': ", *failure)};
  }
  return {.symbol = std::move(symbol), .reason = ""};
}

}  // namespace stampmill
