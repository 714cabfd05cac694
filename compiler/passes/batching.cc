#include "compiler/passes/batching.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/passes/coordinates.h"

namespace stampmill {
namespace {

bool Mentions(const DimExpr& dim, const std::string& symbol) {
  const std::vector<std::string> symbols = dim.Symbols();
  return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
}

// The batch symbol that a shape begins with: its leading dim is symbol * (something without it).
// Gives the rows' share of that leading dim.
std::optional<DimExpr> RowsOf(const Shape& shape, const std::string& symbol) {
  if (shape.empty()) return std::nullopt;
  const DimExpr rows = FloorDiv(shape[0], DimExpr::Symbol(symbol));
  if (rows.IsConstant(0)) return std::nullopt;
  if (Mentions(rows, symbol) || !(rows * DimExpr::Symbol(symbol) == shape[0])) return std::nullopt;
  for (size_t i = 1; i < shape.size(); ++i) {
    if (Mentions(shape[i], symbol)) return std::nullopt;
  }
  return rows;
}

class Prover {
 public:
  Prover(const StageGraph& stages, std::string symbol)
      : stages_(stages), symbol_(std::move(symbol)), batched_(stages.values.size(), false) {}

  std::optional<std::string> Failure() {
    for (ValueId input : stages_.inputs) {
      batched_[static_cast<size_t>(input)] = true;
      if (!RowsOf(stages_.value(input).shape, symbol_).has_value()) {
        return absl::StrCat("input '", stages_.value(input).name, "' does not begin with it");
      }
    }
    for (const Stage& stage : stages_.stages) {
      if (!CheckStage(stage)) {
        return absl::StrCat(stage.label, " mixes rows");
      }
    }
    for (size_t i = 0; i < stages_.outputs.size(); ++i) {
      const ValueId output = stages_.outputs[i];
      const std::optional<DimExpr> rows = RowsOf(stages_.value(output).shape, symbol_);
      if (!batched_[static_cast<size_t>(stages_.Root(output))] || !rows.has_value() ||
          !rows->IsConstant(1)) {
        return absl::StrCat("output '", stages_.output_names[i], "' does not begin with it");
      }
    }
    return std::nullopt;
  }

 private:
  bool Batched(ValueId value) const { return batched_[static_cast<size_t>(stages_.Root(value))]; }

  bool CheckStage(const Stage& stage) {
    const bool reads_batch = std::any_of(stage.operands.begin(), stage.operands.end(),
                                         [&](ValueId id) { return Batched(id); });
    Shape outer;  // the loop axes that the result is written over
    if (const auto* nest = std::get_if<Nest>(&stage.body)) {
      outer = nest->kept;
      if (MentionsAny(nest->reduced)) return false;
    } else if (const auto* contraction = std::get_if<Contraction>(&stage.body)) {
      outer = contraction->batch;
      outer.insert(outer.end(), contraction->m.begin(), contraction->m.end());
      if (MentionsAny(contraction->k) || Mentions(contraction->n, symbol_)) return false;
      // b may carry the batch only as the contraction's own batch axis.
      if (Batched(stage.operands[static_cast<size_t>(contraction->b)]) &&
          (!contraction->b_batched || contraction->batch.empty())) {
        return false;
      }
    } else {
      return !reads_batch;  // library kernels: not looked into
    }
    const bool loops_over_batch = MentionsAny(outer);
    if (!reads_batch && !loops_over_batch) return UsesNoBatchDim(stage);
    // Everything must run with the batch as its outermost axis.
    if (!RowsOf(outer, symbol_).has_value()) return false;
    if (!UsesNoBatchDim(stage)) return false;
    const DimExpr rows = *RowsOf(outer, symbol_);
    if (!LoadsStayInRow(stage, rows) || !WritesStayInRow(stage, rows)) return false;
    for (ValueId output : stage.outputs) batched_[static_cast<size_t>(stages_.Root(output))] = true;
    return true;
  }

  bool MentionsAny(const Shape& shape) const {
    return std::any_of(shape.begin(), shape.end(),
                       [&](const DimExpr& d) { return Mentions(d, symbol_); });
  }

  // No value depends on how many rows there are.
  bool UsesNoBatchDim(const Stage& stage) const {
    bool none = true;
    ForEachExpr(stage.body, [&](const Expr& expr) {
      expr.Visit([&](const Expr& e) {
        if (e.op() == ExprOp::kDim && Mentions(e.dim(), symbol_)) none = false;
      });
    });
    return none;
  }

  // The leading coordinate of an access to a tensor whose leading dim is batch * rows: row b's part
  // is [b * rows, (b + 1) * rows). The loop's axis 0 has batch * loop_rows.
  bool InRow(const Expr& leading, const DimExpr& rows, const DimExpr& loop_rows) const {
    if (leading.op() == ExprOp::kCoord && leading.index() == 0) return rows == loop_rows;
    const Expr axis = Expr::Coord(0);
    // coordinate / loop_rows: from many loop rows to one.
    if (rows.IsConstant(1) &&
        leading == Expr::Binary(ExprOp::kFloorDiv, axis, Expr::Dim(loop_rows))) {
      return true;
    }
    // axis * rows + inner, 0 <= inner < rows: from one loop row to many, as flattening makes it.
    if (!loop_rows.IsConstant(1) || leading.op() != ExprOp::kAdd) return false;
    const Expr& product = leading.operands()[0];
    const Expr& inner = leading.operands()[1];
    if (!(product == axis * Expr::Dim(rows))) return false;
    return inner.op() == ExprOp::kCoord && inner.index() > 0;
  }

  bool LoadsStayInRow(const Stage& stage, const DimExpr& loop_rows) const {
    bool stay = true;
    const auto check = [&](const Expr& expr) {
      expr.Visit([&](const Expr& e) {
        if (!IsLoad(e)) return;
        const ValueId value = stage.operands[static_cast<size_t>(e.index())];
        if (!Batched(value)) return;
        const std::optional<DimExpr> rows = RowsOf(stages_.value(value).shape, symbol_);
        stay &= rows.has_value() && InRow(LoadCoordinates(e)[0], *rows, loop_rows);
      });
    };
    ForEachExpr(stage.body, check);
    return stay;
  }

  bool WritesStayInRow(const Stage& stage, const DimExpr& loop_rows) const {
    const std::vector<Expr>* at = nullptr;
    const Operand* output = nullptr;
    if (const auto* nest = std::get_if<Nest>(&stage.body)) {
      at = &nest->output_coordinates;
      output = &nest->output;
    } else {
      const auto& contraction = std::get<Contraction>(stage.body);
      at = &contraction.output_coordinates;
      output = &contraction.output;
    }
    const std::optional<DimExpr> rows = RowsOf(output->shape, symbol_);
    if (!rows.has_value()) return false;
    return InRow(at->empty() ? Expr::Coord(0) : (*at)[0], *rows, loop_rows);
  }

  const StageGraph& stages_;
  const std::string symbol_;
  std::vector<bool> batched_;
};

}  // namespace

BatchingProof ProveBatching(const StageGraph& stages) {
  if (stages.inputs.empty()) return {.symbol = "", .reason = "the model has no inputs"};
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
