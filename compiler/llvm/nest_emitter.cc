// How ends that are no multiple of the lanes are met, without masks and without reading past the
// end: a map does its last vector again, shifted to end with the row (each lane is independent, so
// both give the same bits); a reduction along lanes does the same with the lanes that were counted
// already left as they are. Rows shorter than a vector take a narrower body.
//
// Windows are written out for several rows at once, place by place: what several of them read is
// loaded once, and each row's sum stays in registers.
//
// Tiles (NestSchedule) are gone through in strips, so that what is read beside a tile is still in a
// cache when the next tile of the strip reads it.
#include "compiler/llvm/nest_emitter.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"
#include "compiler/codegen/access.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/expr_emitter.h"
#include "compiler/llvm/guards.h"
#include "compiler/llvm/transpose.h"
#include "llvm/IR/Constants.h"

namespace stampmill {
namespace {

// Reduced coordinates that are written out one after the other instead of looped over.
constexpr int64_t kUnrolledTrips = 32;
// Updates that cost more than this, a power or two exponentials, are not: the copies would take
// minutes to compile and save nothing.
constexpr int64_t kUnrolledCost = 40;
// Places of a window whose guards are asked for all at once.
constexpr int64_t kWindowPlaces = 64;
constexpr int64_t kLineBytes = 64;

// Narrow floats that are only moved are moved as integers: nothing is converted, and every NaN
// keeps its bits.
bool OnlyMoves(const Nest& nest, DType dtype) {
  bool moves = true;
  for (const Expr& e : Expressions(nest)) {
    e.Visit([&](const Expr& node) {
      bool touches = node.dtype() == dtype;
      for (const Expr& operand : node.operands()) touches = touches || operand.dtype() == dtype;
      if (!touches || node.op() == ExprOp::kLoad) return;
      moves = moves && (node.op() == ExprOp::kSelect || node.op() == ExprOp::kBitCast ||
                        node.op() == ExprOp::kConstant);
    });
  }
  return moves && nest.reductions.empty();
}

Nest WithMovesAsIntegers(Nest nest) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    if (!OnlyMoves(nest, dtype)) continue;
    auto rewritten = [&](const Expr& e) {
      return e.Rewrite([&](const Expr& node) {
        if (node.op() == ExprOp::kBitCast && node.operands()[0].dtype() == DType::kU16) {
          return Expr::BitCast(node.dtype() == dtype ? DType::kU16 : node.dtype(),
                               node.operands()[0]);
        }
        if (node.dtype() != dtype) return node;
        std::vector<Expr> operands(node.operands().begin(), node.operands().end());
        switch (node.op()) {
          case ExprOp::kConstant:
            return Expr::ConstantBits(DType::kU16, node.constant_bits());
          case ExprOp::kLoad:
            return Expr::Load(DType::kU16, node.index(), operands);
          case ExprOp::kBitCast:
            return Expr::BitCast(DType::kU16, operands[0]);
          default:
            return node;  // a select rebuilds itself over its operands
        }
      });
    };
    for (Operand& operand : nest.operands) {
      if (operand.dtype == dtype) operand.dtype = DType::kU16;
    }
    if (nest.output.dtype == dtype) nest.output.dtype = DType::kU16;
    nest.result = rewritten(nest.result);
    for (Expr& e : nest.output_coordinates) e = rewritten(e);
  }
  return nest;
}

class NestEmitter {
 public:
  NestEmitter(KernelFunction& kernel, const Nest& nest, const Target& target);
  void Run();

 private:
  using Values = Ir::Values;
  // Code at one reduced coordinate, carrying accumulators.
  using Step = std::function<Values(const Scope& scope, const Values& accumulators)>;

  void EmitRows(int64_t lanes);
  void EmitRow(const Values& row, int64_t lanes);
  void EmitRowGroups(int64_t lanes);
  void EmitKeptLanes(const std::vector<Values>& rows, int64_t lanes, bool guards_hold);
  void EmitStrip(const Values& row, int64_t lanes);
  void EmitTile(const Values& row, llvm::Value* first_row, llvm::Value* first_lane, int64_t lanes);
  std::vector<Values> LoadTile(const Values& row, llvm::Value* first_row, llvm::Value* first_lane,
                               int64_t lanes);
  // For each of several rows, which go through the reduced coordinates together.
  void EmitReductions(std::vector<Scope>& rows);
  std::vector<Lane> EmitReduction(const std::vector<Scope>& rows, const Reduction& reduction);
  Lane EmitMerged(const Scope& kept, const Reduction& reduction, Values accumulators);
  Values EmitUpdates(const Scope& scope, const Reduction& reduction, const Values& accumulators);
  void EmitResult(const Scope& scope);
  void StoreResult(ExprEmitter emitter);
  // Runs `step` over all reduced coordinates; lanes along the innermost axis when that is the lane
  // axis: `overlap` says that doing elements again is harmless, else they are masked.
  Values ForReduced(const Scope& kept, Values carried, bool overlap, const Step& step);
  Values ForReducedAxis(Scope& scope, size_t axis, Values carried, bool overlap, const Step& step);
  Values ForLaneAxis(Scope& scope, Values carried, bool overlap, const Step& step);
  int64_t UnrollFrom(size_t axis) const;
  Scope ScopeAt(const Values& row, int64_t lanes);

  KernelFunction& kernel_;
  Ir& ir_;
  const Nest nest_;
  NestSchedule schedule_;
  std::vector<BufferView> operands_;
  BufferView output_;
  std::vector<Expr> output_coordinates_;
  Values extents_;  // of all axes
  Values row_extents_;
  llvm::Value* lane_extent_ = nullptr;
  Window window_;
  std::vector<Expr> guards_;      // empty: loads are always guarded
  std::vector<Expr> transposed_;  // the loads of tiles
  // Of the current task.
  llvm::Value* row_begin_ = nullptr;
  llvm::Value* row_end_ = nullptr;
  llvm::Value* lane_begin_ = nullptr;
  llvm::Value* lane_end_ = nullptr;
};

NestEmitter::NestEmitter(KernelFunction& kernel, const Nest& nest, const Target& target)
    : kernel_(kernel),
      ir_(kernel.ir()),
      nest_(WithMovesAsIntegers(nest)),
      schedule_(ScheduleNest(nest, target)) {
  for (size_t n = 0; n < nest_.operands.size(); ++n) {
    operands_.push_back(kernel.Buffer(static_cast<int64_t>(n), nest_.operands[n]));
  }
  output_ = kernel.Buffer(static_cast<int64_t>(nest_.operands.size()), nest_.output);
  output_.constant = false;
  extents_ = kernel.Dims(nest.kept);
  for (llvm::Value* extent : kernel.Dims(nest.reduced)) extents_.push_back(extent);
  row_extents_ = kernel.Dims(schedule_.row_shape);
  lane_extent_ = kernel.Dim(schedule_.lane_extent);
  const std::optional<int64_t> places = ElementCount(nest_.reduced).constant();
  if (places.has_value() && *places > 1 && *places <= kWindowPlaces && IsConstant(nest_.reduced)) {
    window_ = {nest_.kept.size(), ConstantShape(nest_.reduced)};
    guards_ = FindGuards(Expressions(nest_), window_, static_cast<int32_t>(schedule_.lane_axis));
  }
  if (schedule_.tile_axis >= 0) {
    transposed_ = TransposedLoads(nest_.result, schedule_.lane_axis, schedule_.tile_axis);
  }
  output_coordinates_ = nest.output_coordinates;
  if (output_coordinates_.empty()) {
    size_t rank = nest.kept.size() + (nest.per_element ? nest.reduced.size() : 0);
    for (size_t n = 0; n < rank; ++n) {
      output_coordinates_.push_back(Expr::Coord(static_cast<int32_t>(n)));
    }
  }
}

void NestEmitter::Run() {
  llvm::Value* chunks = kernel_.Dim(schedule_.chunks);
  llvm::Value* chunk = kernel_.Dim(schedule_.chunk);
  llvm::Value* rows = kernel_.Dim(schedule_.rows);
  llvm::Value* rows_per_task = kernel_.Dim(schedule_.rows_per_task);
  kernel_.ForEachTask([&](llvm::Value* task) {
    Values at = {task, ir_.Int(0)};
    lane_begin_ = ir_.Int(0);
    lane_end_ = lane_extent_;
    if (!Ir::IsInt(chunks, 1)) {
      at = ir_.Decompose(task, {kernel_.Dim(schedule_.row_blocks), chunks});
      lane_begin_ = ir_.Mul(at[1], chunk);
      llvm::Value* is_last = ir_.b().CreateICmpEQ(ir_.Add(at[1], ir_.Int(1)), chunks);
      lane_end_ = ir_.b().CreateSelect(is_last, lane_extent_, ir_.Add(lane_begin_, chunk));
    }
    row_begin_ = ir_.Mul(at[0], rows_per_task);
    row_end_ = ir_.Min(ir_.Add(row_begin_, rows_per_task), rows);
    llvm::Value* room = lane_extent_;
    if (schedule_.tile_axis >= 0) {
      room = ir_.Min(room, extents_[static_cast<size_t>(schedule_.tile_axis)]);
    }
    std::function<void(size_t)> choose = [&](size_t n) {
      int64_t lanes = schedule_.lanes[n];
      if (n + 1 == schedule_.lanes.size()) {
        EmitRows(lanes);
        return;
      }
      ir_.If(
          ir_.b().CreateICmpSGE(room, ir_.Int(lanes)), [&] { EmitRows(lanes); },
          [&] { choose(n + 1); });
    };
    choose(0);
  });
}

Scope NestEmitter::ScopeAt(const Values& row, int64_t lanes) {
  Scope scope;
  scope.kernel = &kernel_;
  scope.operands = operands_;
  scope.lanes = lanes;
  scope.coordinates.resize(extents_.size());
  for (size_t n = 0; n < row.size(); ++n) {
    scope.coordinates[static_cast<size_t>(schedule_.row_axes[n])] = {row[n]};
  }
  return scope;
}

void NestEmitter::EmitRows(int64_t lanes) {
  if (schedule_.rows_together > 1 && lanes == schedule_.lanes.front()) {
    EmitRowGroups(lanes);
    return;
  }
  ir_.Walk(row_begin_, row_end_, row_extents_,
           [&](llvm::Value*, const Values& row) { EmitRow(row, lanes); });
}

void NestEmitter::EmitRow(const Values& row, int64_t lanes) {
  if (schedule_.tile_axis >= 0) {
    EmitStrip(row, lanes);
    return;
  }
  if (!schedule_.lane_reduced && !guards_.empty()) {
    ir_.If(
        EmitGuardsHold(guards_, window_, ScopeAt(row, 1)),
        [&] { EmitKeptLanes({row}, lanes, true); }, [&] { EmitKeptLanes({row}, lanes, false); });
    return;
  }
  if (!schedule_.lane_reduced) {
    EmitKeptLanes({row}, lanes, false);
    return;
  }
  std::vector<Scope> scopes = {ScopeAt(row, lanes)};
  EmitReductions(scopes);
  EmitResult(scopes[0]);
}

// Line by line of the innermost row axis. Rows at its ends, and those of which a window reaches
// over the border, go alone.
void NestEmitter::EmitRowGroups(int64_t lanes) {
  llvm::IRBuilder<>& b = ir_.b();
  Values outer(row_extents_.begin(), row_extents_.end() - 1);
  llvm::Value* extent = ir_.Max(row_extents_.back(), ir_.Int(1));
  llvm::Value* count = ir_.Int(schedule_.rows_together);
  llvm::Value* first = b.CreateUDiv(row_begin_, extent);
  llvm::Value* last = b.CreateUDiv(ir_.Add(row_end_, ir_.Sub(extent, ir_.Int(1))), extent);
  ir_.Walk(first, last, outer, [&](llvm::Value* line, const Values& at) {
    llvm::Value* line_begin = ir_.Mul(line, extent);
    llvm::Value* begin = ir_.Max(ir_.Sub(row_begin_, line_begin), ir_.Int(0));
    llvm::Value* end = ir_.Min(ir_.Sub(row_end_, line_begin), extent);
    ir_.While(begin, end, [&](llvm::Value* i) {
      std::vector<Values> rows;
      for (int64_t n = 0; n < schedule_.rows_together; ++n) {
        rows.push_back(at);
        rows.back().push_back(ir_.Add(i, ir_.Int(n)));
      }
      llvm::Value* together = b.CreateICmpSGE(ir_.Sub(end, i), count);
      for (const Values& row : rows) {
        if (guards_.empty()) break;
        together = b.CreateAnd(together, EmitGuardsHold(guards_, window_, ScopeAt(row, 1)));
      }
      ir_.If(
          together, [&] { EmitKeptLanes(rows, lanes, !guards_.empty()); },
          [&] { EmitRow(rows[0], lanes); });
      return ir_.Add(i, b.CreateSelect(together, count, ir_.Int(1)));
    });
  });
}

void NestEmitter::EmitKeptLanes(const std::vector<Values>& rows, int64_t lanes, bool guards_hold) {
  auto emit = [&](llvm::Value* at) {
    std::vector<Scope> scopes;
    for (const Values& row : rows) {
      scopes.push_back(ScopeAt(row, lanes));
      scopes.back().guards_hold = guards_hold;
      if (at == nullptr) continue;
      scopes.back().coordinates[static_cast<size_t>(schedule_.lane_axis)] = {
          at, lanes == 1 ? nullptr : ir_.Int(1)};
    }
    EmitReductions(scopes);
    for (const Scope& scope : scopes) EmitResult(scope);
  };
  if (schedule_.lane_axis < 0) {
    emit(nullptr);
    return;
  }
  std::optional<int64_t> extent = schedule_.lane_extent.constant();
  bool whole = lanes == 1 || (extent.has_value() && *extent % lanes == 0);
  ir_.For(lane_begin_, lane_end_, lanes, [&](llvm::Value* i) {
    emit(whole ? i : ir_.Min(i, ir_.Sub(lane_end_, ir_.Int(lanes))));
  });
}

void NestEmitter::EmitStrip(const Values& row, int64_t lanes) {
  auto last = [&](llvm::Value* i, llvm::Value* end) {
    return lanes == 1 ? i : ir_.Min(i, ir_.Sub(end, ir_.Int(lanes)));
  };
  llvm::Value* begin = ir_.Mul(row.back(), ir_.Int(kTileRows));
  llvm::Value* is_last = ir_.b().CreateICmpEQ(ir_.Add(row.back(), ir_.Int(1)), row_extents_.back());
  llvm::Value* end =
      ir_.b().CreateSelect(is_last, extents_[static_cast<size_t>(schedule_.tile_axis)],
                           ir_.Add(begin, ir_.Int(kTileRows)));
  // All of a line that is written before the next row's: it may be gone from the first-level cache
  // when the next tile of its row comes.
  int64_t line = std::max(kLineBytes / static_cast<int64_t>(SizeBytes(nest_.output.dtype)), lanes);
  ir_.For(lane_begin_, lane_end_, line, [&](llvm::Value* first) {
    llvm::Value* line_end = ir_.Min(ir_.Add(first, ir_.Int(line)), lane_end_);
    ir_.For(begin, end, lanes, [&](llvm::Value* i) {
      auto tile = [&](llvm::Value* lane) {
        EmitTile(row, last(i, end), last(lane, lane_end_), lanes);
      };
      if (line == lanes) {
        tile(first);
      } else {
        ir_.For(first, line_end, lanes, tile);
      }
    });
  });
}

// The loads of transposed_, as lanes along the lane axis, for each row of the tile.
std::vector<NestEmitter::Values> NestEmitter::LoadTile(const Values& row, llvm::Value* first_row,
                                                       llvm::Value* first_lane, int64_t lanes) {
  std::vector<Values> loaded(transposed_.size());
  for (int64_t n = 0; n < lanes; ++n) {
    Scope scope = ScopeAt(row, lanes);
    scope.coordinates[static_cast<size_t>(schedule_.tile_axis)] = {first_row, ir_.Int(1)};
    scope.coordinates[static_cast<size_t>(schedule_.lane_axis)] = {ir_.Add(first_lane, ir_.Int(n))};
    ExprEmitter emitter(scope);
    for (size_t load = 0; load < transposed_.size(); ++load) {
      loaded[load].push_back(emitter.EmitLanes(transposed_[load]));
    }
  }
  for (size_t load = 0; load < transposed_.size(); ++load) {
    bool is_bool = transposed_[load].dtype() == DType::kBool;
    llvm::Type* bits = Ir::Vector(ir_.b().getInt1Ty(), lanes);
    llvm::Type* bytes = Ir::Vector(ir_.b().getInt8Ty(), lanes);
    Values& values = loaded[load];
    if (is_bool) {
      for (llvm::Value*& value : values) value = ir_.b().CreateZExt(value, bytes);
    }
    values = EmitTransposed(ir_, std::move(values));
    if (is_bool) {
      for (llvm::Value*& value : values) value = ir_.b().CreateTrunc(value, bits);
    }
  }
  return loaded;
}

void NestEmitter::EmitTile(const Values& row, llvm::Value* first_row, llvm::Value* first_lane,
                           int64_t lanes) {
  std::vector<Values> loaded;
  if (lanes > 1) loaded = LoadTile(row, first_row, first_lane, lanes);
  for (int64_t n = 0; n < lanes; ++n) {
    Scope scope = ScopeAt(row, lanes);
    scope.coordinates[static_cast<size_t>(schedule_.tile_axis)] = {ir_.Add(first_row, ir_.Int(n))};
    scope.coordinates[static_cast<size_t>(schedule_.lane_axis)] = {
        first_lane, lanes == 1 ? nullptr : ir_.Int(1)};
    ExprEmitter emitter(scope);
    for (size_t load = 0; load < loaded.size(); ++load) {
      emitter.Provide(transposed_[load], {loaded[load][static_cast<size_t>(n)]});
    }
    StoreResult(std::move(emitter));
  }
}

void NestEmitter::EmitReductions(std::vector<Scope>& rows) {
  for (const Reduction& reduction : nest_.reductions) {
    std::vector<Lane> results = EmitReduction(rows, reduction);
    for (size_t n = 0; n < rows.size(); ++n) rows[n].reduced.push_back(results[n]);
  }
}

std::vector<Lane> NestEmitter::EmitReduction(const std::vector<Scope>& rows,
                                             const Reduction& reduction) {
  Values accumulators;
  for (const Scope& row : rows) {
    ExprEmitter start(row);
    for (const Expr& init : reduction.init) accumulators.push_back(start.EmitLanes(init));
  }
  const auto count = static_cast<std::ptrdiff_t>(reduction.init.size());
  const auto kept = static_cast<std::ptrdiff_t>(nest_.kept.size());
  accumulators =
      ForReduced(rows[0], accumulators, false, [&](const Scope& at, const Values& current) {
        Values next;
        auto part = current.begin();
        for (const Scope& row : rows) {
          Scope scope = row;
          std::copy(at.coordinates.begin() + kept, at.coordinates.end(),
                    scope.coordinates.begin() + kept);
          Values updated = EmitUpdates(scope, reduction, Values(part, part + count));
          next.insert(next.end(), updated.begin(), updated.end());
          part += count;
        }
        return next;
      });
  if (schedule_.lane_reduced) return {EmitMerged(rows[0], reduction, accumulators)};
  std::vector<Lane> results;
  auto part = accumulators.begin();
  for (const Scope& row : rows) {
    Scope scope = row;
    for (auto end = part + count; part != end; ++part) scope.accumulators.push_back({*part});
    results.push_back({ExprEmitter(scope).EmitLanes(reduction.result)});
  }
  return results;
}

NestEmitter::Values NestEmitter::EmitUpdates(const Scope& scope, const Reduction& reduction,
                                             const Values& accumulators) {
  Scope inner = scope;
  inner.accumulators.clear();
  for (llvm::Value* value : accumulators) inner.accumulators.push_back({value});
  ExprEmitter emitter(inner);
  Values next;
  for (const Expr& update : reduction.update) {
    next.push_back(emitter.ToLanes(emitter.EmitUpdate(update)));
  }
  return next;
}

// Halves the lanes until one is left: a fixed tree.
Lane NestEmitter::EmitMerged(const Scope& kept, const Reduction& reduction, Values accumulators) {
  Scope scope = kept;
  for (int64_t lanes = kept.lanes / 2; lanes >= 1; lanes /= 2) {
    scope.lanes = lanes;
    scope.accumulators.clear();
    for (int64_t half = 0; half < 2; ++half) {
      for (llvm::Value* value : accumulators) {
        llvm::Value* part = nullptr;
        if (lanes == 1) {
          part = ir_.b().CreateExtractElement(value, static_cast<uint64_t>(half));
        } else {
          std::vector<int> picks;
          for (int64_t n = 0; n < lanes; ++n) picks.push_back(static_cast<int>(half * lanes + n));
          part = ir_.b().CreateShuffleVector(value, picks);
        }
        scope.accumulators.push_back({part});
      }
    }
    ExprEmitter emitter(scope);
    Values merged;
    for (const Expr& merge : reduction.merge) merged.push_back(emitter.EmitLanes(merge));
    accumulators = merged;
  }
  scope.lanes = 1;
  scope.accumulators.clear();
  for (llvm::Value* value : accumulators) scope.accumulators.push_back({value});
  return ExprEmitter(scope).Emit(reduction.result);
}

void NestEmitter::EmitResult(const Scope& scope) {
  if (!nest_.per_element) {
    Scope one = scope;
    if (schedule_.lane_reduced) one.lanes = 1;
    StoreResult(ExprEmitter(one));
    return;
  }
  ForReduced(scope, {}, true, [&](const Scope& inner, const Values&) {
    StoreResult(ExprEmitter(inner));
    return Values();
  });
}

void NestEmitter::StoreResult(ExprEmitter emitter) {
  Lane value = emitter.Emit(nest_.result);
  std::vector<Lane> coordinates;
  for (const Expr& coordinate : output_coordinates_) {
    coordinates.push_back(emitter.Emit(coordinate));
  }
  emitter.Store(output_, coordinates, value);
}

// Trips of `axis` to write out: all when it and the axes inside it are small constants.
int64_t NestEmitter::UnrollFrom(size_t axis) const {
  for (const Reduction& reduction : nest_.reductions) {
    if (CostOf(reduction.update) > kUnrolledCost) return 1;
  }
  int64_t product = 1;
  for (size_t n = axis; n < nest_.reduced.size(); ++n) {
    std::optional<int64_t> extent = nest_.reduced[n].constant();
    if (!extent.has_value() || *extent > kUnrolledTrips) return 1;
    product *= *extent;
    if (product > kUnrolledTrips) return 1;
  }
  return nest_.reduced[axis].constant().value_or(1);
}

NestEmitter::Values NestEmitter::ForReduced(const Scope& kept, Values carried, bool overlap,
                                            const Step& step) {
  Scope scope = kept;
  return ForReducedAxis(scope, 0, std::move(carried), overlap, step);
}

NestEmitter::Values NestEmitter::ForReducedAxis(Scope& scope, size_t axis, Values carried,
                                                bool overlap, const Step& step) {
  if (axis == nest_.reduced.size()) return step(scope, carried);
  if (schedule_.lane_reduced && axis + 1 == nest_.reduced.size()) {
    return ForLaneAxis(scope, std::move(carried), overlap, step);
  }
  size_t number = nest_.kept.size() + axis;
  return ir_.For(
      ir_.Int(0), extents_[number], 1, std::move(carried),
      [&](llvm::Value* i, const Values& current) {
        scope.coordinates[number] = {i};
        return ForReducedAxis(scope, axis + 1, current, overlap, step);
      },
      UnrollFrom(axis));
}

NestEmitter::Values NestEmitter::ForLaneAxis(Scope& scope, Values carried, bool overlap,
                                             const Step& step) {
  size_t number = extents_.size() - 1;
  int64_t lanes = scope.lanes;
  llvm::Value* extent = extents_[number];
  auto at = [&](llvm::Value* first) {
    scope.coordinates[number] = {first, lanes == 1 ? nullptr : ir_.Int(1)};
  };
  if (lanes == 1 || overlap) {
    return ir_.For(ir_.Int(0), extent, lanes, std::move(carried),
                   [&](llvm::Value* i, const Values& current) {
                     at(lanes == 1 ? i : ir_.Min(i, ir_.Sub(extent, ir_.Int(lanes))));
                     return step(scope, current);
                   });
  }
  llvm::Value* rest = ir_.b().CreateAnd(extent, ir_.Int(lanes - 1));
  llvm::Value* whole = ir_.Sub(extent, rest);
  carried = ir_.For(ir_.Int(0), whole, lanes, std::move(carried),
                    [&](llvm::Value* i, const Values& current) {
                      at(i);
                      return step(scope, current);
                    });
  // Once, or not at all.
  return ir_.For(whole, extent, lanes, carried, [&](llvm::Value*, const Values& current) {
    at(ir_.Sub(extent, ir_.Int(lanes)));
    Values next = step(scope, current);
    std::vector<llvm::Constant*> numbers;
    for (int64_t n = 0; n < lanes; ++n) numbers.push_back(ir_.Int(n));
    llvm::Value* fresh = ir_.b().CreateICmpSGE(llvm::ConstantVector::get(numbers),
                                               ir_.Splat(ir_.Sub(ir_.Int(lanes), rest), lanes));
    for (size_t n = 0; n < next.size(); ++n) {
      next[n] = ir_.b().CreateSelect(fresh, next[n], current[n]);
    }
    return next;
  });
}

}  // namespace

void EmitNest(KernelFunction& kernel, const Nest& nest, const Target& target) {
  NestEmitter(kernel, nest, target).Run();
}

}  // namespace stampmill
