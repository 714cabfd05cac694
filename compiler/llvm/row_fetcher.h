// RowFetcher: what a contraction packs next, fetched while its tiles compute. Packing reads rows
// that lie far away faster than memory brings them, and nothing else hides the way.
//
// Rows of one run each are fetched by their numbers, some of them by each tile. Rows of windows
// overlap, so that those of a block are, for each place of the outer axes of the window, one piece
// of memory: pieces are fetched line by line. Where a block goes on in another line of the image
// the guess is wrong, and harmless.
#pragma once

#include <cstdint>

#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/contraction_frame.h"
#include "compiler/llvm/kernel_function.h"
#include "graph/expr.h"
#include "graph/nest.h"

namespace stampmill {

class RowFetcher {
 public:
  // Steps of k in one turn of a tile's loop, in which it calls EmitTurn.
  static constexpr int64_t kTurnSteps = 4;

  // `tiles` of a block of rows take part.
  RowFetcher(KernelFunction& kernel, const ContractionFrame& frame, const Contraction& contraction,
             const ContractionSchedule& schedule, int64_t tiles);

  // Whether anything is fetched.
  bool is_active() const { return lines_ > 0; }

  // In the kernel, before the panels of a block of k: what follows begins at this row and number of
  // k.
  void SetNext(llvm::Value* row, llvm::Value* k);
  // In the kernel, for one tile of one of `panels` panels: where it begins to fetch.
  llvm::Value* StartOf(llvm::Value* panel, llvm::Value* panels, llvm::Value* tile);
  // From one row to the next in memory.
  llvm::Value* row_bytes() const { return row_bytes_; }

  // In a tile, at step k, a multiple of kTurnSteps.
  void EmitTurn(Ir& ir, llvm::Value* start, llvm::Value* row_bytes, llvm::Value* k) const;

 private:
  void PlanRows(const ContractionSchedule& schedule);
  void PlanPieces(const Contraction& contraction, const ContractionSchedule& schedule);
  // Lines a turn, so that the tiles of so many panels fetch `wanted` with `each` a turn.
  int64_t LinesATurn(int64_t wanted, int64_t each, const ContractionSchedule& schedule) const;
  llvm::Value* AddressAt(llvm::Value* row, llvm::Value* k, llvm::Value* piece) const;

  KernelFunction& kernel_;
  Ir& ir_;
  const ContractionFrame& frame_;
  Expr load_;            // of `a`, without its guard
  Shape piece_extents_;  // of the axes of k that pieces stand for
  size_t k_axes_ = 0;
  int64_t tiles_;
  int64_t block_rows_;
  int64_t lines_ = 0;  // fetched in one turn
  int64_t step_bytes_ = 0;
  // Rows: of how many a tile fetches a block of k.
  int64_t tile_rows_ = 0;
  // Pieces: how many, lines of one, and lines that a tile fetches.
  int64_t pieces_ = 0, piece_lines_ = 0, tile_lines_ = 0;
  llvm::Value* row_ = nullptr;
  llvm::Value* k_ = nullptr;
  llvm::Value* row_bytes_ = nullptr;
};

// Asks for the line at `address`; `locality` as of llvm.prefetch.
void EmitFetch(Ir& ir, llvm::Value* address, int locality);

}  // namespace stampmill
