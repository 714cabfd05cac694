#include "compiler/llvm/row_fetcher.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/codegen/access.h"
#include "compiler/llvm/expr_emitter.h"
#include "llvm/IR/Intrinsics.h"

namespace stampmill {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kLinesATurnMax = 4;
// More of them are not the rows of a window but channels before space.
constexpr int64_t kPiecesMax = 16;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What `a` reads, as a plain load; invalid when it is more than one load and what converts it, or
// when its places are loaded themselves.
Expr PlainLoad(const Expr& a) {
  const Expr inner = a.op() == ExprOp::kCast ? a.operands()[0] : a;
  if (!IsLoad(inner)) return Expr();
  const std::span<const Expr> coordinates = LoadCoordinates(inner);
  bool is_plain = true;
  for (const Expr& coordinate : coordinates) {
    coordinate.Visit([&](const Expr& node) { is_plain = is_plain && !IsLoad(node); });
  }
  if (!is_plain) return Expr();
  return Expr::Load(inner.dtype(), inner.index(), {coordinates.begin(), coordinates.end()});
}

}  // namespace

void EmitFetch(Ir& ir, llvm::Value* address, int locality) {
  llvm::IRBuilder<>& b = ir.b();
  b.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {b.getPtrTy()},
      {address, b.getInt32(0), b.getInt32(static_cast<uint32_t>(locality)), b.getInt32(1)});
}

RowFetcher::RowFetcher(KernelFunction& kernel, const ContractionFrame& frame,
                       const Contraction& contraction, const ContractionSchedule& schedule,
                       int64_t tiles)
    : kernel_(kernel),
      ir_(kernel.ir()),
      frame_(frame),
      load_(PlainLoad(contraction.a)),
      k_axes_(contraction.k.size()),
      tiles_(tiles),
      block_rows_(schedule.block_rows) {
  if (schedule.direct_a || !load_.valid() || contraction.m.empty()) return;
  const size_t k_axis = contraction.batch.size() + contraction.m.size() + k_axes_ - 1;
  if (WalkOf(load_.operands(), static_cast<int32_t>(k_axis)) != AxisWalk::kUnit) return;
  step_bytes_ = static_cast<int64_t>(SizeBytes(load_.dtype())) * schedule.group;
  if (k_axes_ == 1) {
    PlanRows(schedule);
  } else if (schedule.pack_whole_k) {
    PlanPieces(contraction, schedule);
  }
}

int64_t RowFetcher::LinesATurn(int64_t wanted, int64_t each,
                               const ContractionSchedule& schedule) const {
  const int64_t panels = schedule.panels_per_task.constant().value_or(1);
  return std::clamp<int64_t>(CeilDivide(wanted, tiles_ * panels * each), 1, kLinesATurnMax);
}

// A tile's turns go over one line of each of its rows, then over the next line.
void RowFetcher::PlanRows(const ContractionSchedule& schedule) {
  const int64_t rows_a_line = kLineBytes / step_bytes_ / kTurnSteps;
  if (rows_a_line == 0) return;
  lines_ = LinesATurn(block_rows_, rows_a_line, schedule);
  tile_rows_ = rows_a_line * lines_;
}

void RowFetcher::PlanPieces(const Contraction& contraction, const ContractionSchedule& schedule) {
  const Shape& shape = contraction.operands[static_cast<size_t>(load_.index())].shape;
  const auto row_axis = static_cast<int32_t>(contraction.batch.size() + contraction.m.size()) - 1;
  const std::optional<int64_t> apart = AddressFactor(load_, shape, row_axis);
  const int64_t elements = *schedule.k.constant();
  const size_t outer = k_axes_ - RunAxesOfK(contraction);
  piece_extents_.assign(contraction.k.begin(), contraction.k.begin() + outer);
  const int64_t pieces = *ElementCount(piece_extents_).constant();
  if (!apart.has_value() || *apart <= 0 || pieces > kPiecesMax || elements < kTurnSteps) return;
  if (*apart > elements / pieces) return;  // rows do not overlap
  pieces_ = pieces;
  const int64_t bytes = block_rows_ * *apart * static_cast<int64_t>(SizeBytes(load_.dtype()));
  piece_lines_ = CeilDivide(bytes, kLineBytes);
  const int64_t turns = std::min(*schedule.steps.constant(), schedule.block_k) / kTurnSteps;
  if (turns == 0) return;
  lines_ = LinesATurn(pieces_ * piece_lines_, turns, schedule);
  tile_lines_ = turns * lines_;
}

llvm::Value* RowFetcher::AddressAt(llvm::Value* row, llvm::Value* k, llvm::Value* piece) const {
  Scope scope = frame_.RowScope(ir_.Decompose(row, frame_.m_extents()), k_axes_);
  const size_t first = scope.coordinates.size() - k_axes_;
  for (size_t n = 0; n < k_axes_; ++n) scope.coordinates[first + n] = {ir_.Int(0)};
  scope.coordinates.back() = {k};
  const Ir::Values at = ir_.Decompose(piece, kernel_.Dims(piece_extents_));
  for (size_t n = 0; n < at.size(); ++n) scope.coordinates[first + n] = {at[n]};
  return ExprEmitter(scope).AddressOf(load_);
}

void RowFetcher::SetNext(llvm::Value* row, llvm::Value* k) {
  llvm::IRBuilder<>& b = ir_.b();
  row_ = row;
  k_ = k;
  row_bytes_ = ir_.Int(0);
  if (pieces_ > 0) return;
  // Of the innermost axis: rows are neighbours along it but at its ends.
  Ir::Values at = ir_.Decompose(row, frame_.m_extents());
  const auto address = [&] {
    Scope scope = frame_.RowScope(at, 1);
    scope.coordinates.back() = {k};
    return b.CreatePtrToInt(ExprEmitter(scope).AddressOf(load_), b.getInt64Ty());
  };
  llvm::Value* first = address();
  at.back() = ir_.Add(at.back(), ir_.Int(1));
  row_bytes_ = ir_.Sub(address(), first);
}

// The last panels' tiles do it, so that what they fetch is not gone again when it is wanted.
llvm::Value* RowFetcher::StartOf(llvm::Value* panel, llvm::Value* panels, llvm::Value* tile) {
  llvm::IRBuilder<>& b = ir_.b();
  const int64_t a_tile = pieces_ > 0 ? tile_lines_ : tile_rows_;
  const int64_t all = pieces_ > 0 ? pieces_ * piece_lines_ : block_rows_;
  llvm::Value* needed = ir_.Int(CeilDivide(all, a_tile * tiles_));
  llvm::Value* first = ir_.Max(ir_.Sub(panels, needed), ir_.Int(0));
  llvm::Value* number = ir_.Add(ir_.Mul(ir_.Sub(panel, first), ir_.Int(tiles_)), tile);
  number = ir_.Min(ir_.Mul(number, ir_.Int(a_tile)), ir_.Int(all - a_tile));
  number = ir_.Max(number, ir_.Int(0));
  if (pieces_ == 0) return AddressAt(ir_.Add(row_, number), k_, ir_.Int(0));
  llvm::Value* piece = b.CreateUDiv(number, ir_.Int(piece_lines_));
  llvm::Value* line = ir_.Sub(number, ir_.Mul(piece, ir_.Int(piece_lines_)));
  return b.CreateGEP(b.getInt8Ty(), AddressAt(row_, k_, piece), ir_.Mul(line, ir_.Int(kLineBytes)));
}

void RowFetcher::EmitTurn(Ir& ir, llvm::Value* start, llvm::Value* row_bytes,
                          llvm::Value* k) const {
  llvm::IRBuilder<>& b = ir.b();
  const auto fetch = [&](llvm::Value* offset) {
    EmitFetch(ir, b.CreateGEP(b.getInt8Ty(), start, offset), 2);
  };
  if (pieces_ > 0) {
    llvm::Value* base = ir.Mul(k, ir.Int(lines_ * kLineBytes / kTurnSteps));
    for (int64_t n = 0; n < lines_; ++n) fetch(ir.Add(base, ir.Int(n * kLineBytes)));
    return;
  }
  llvm::Value* turn = b.CreateAnd(k, ir.Int(kLineBytes / step_bytes_ - 1));
  llvm::Value* column = ir.Mul(ir.Sub(k, turn), ir.Int(step_bytes_));
  llvm::Value* row = b.CreateUDiv(turn, ir.Int(kTurnSteps));
  for (int64_t n = 0; n < lines_; ++n) {
    llvm::Value* number = ir.Add(row, ir.Int(n * tile_rows_ / lines_));
    fetch(ir.Add(ir.Mul(number, row_bytes), column));
  }
}

}  // namespace stampmill
