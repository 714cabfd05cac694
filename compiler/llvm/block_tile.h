// BlockTile: a function that multiplies some rows by one or two panels of quantised weights
// (graph/block_layout.h), the innermost loops of a contraction of blocks. Lane i of every vector is
// row i of a panel: codes are taken apart in registers, and sums never run across lanes.
#pragma once

#include <cstdint>

#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/ir.h"
#include "graph/block_layout.h"

namespace stampmill {

struct BlockTileShape {
  int64_t rows = 1;
  int64_t panels = 1;  // neighbours
};

// `void tile(rows, panel, ahead, sums)`: for packed rows (BlockSchedule) at `rows`, a constant
// distance apart, sums[row][panels * panel] f32. `ahead` is where what is wanted after this lies,
// to be fetched meanwhile; null: nothing. `k`: elements of a row.
llvm::Function* EmitBlockTile(Ir& ir, const std::string& name, const BlockLayout& layout,
                              const BlockSchedule& schedule, int64_t k, BlockTileShape shape);

// a * b + c rounded once, f32, on every target.
llvm::Value* EmitExactFma(Ir& ir, llvm::Value* a, llvm::Value* b, llvm::Value* c);

}  // namespace stampmill
