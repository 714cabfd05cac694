// Transposing a square tile that is held in registers.
#pragma once

#include "compiler/llvm/ir.h"

namespace stampmill {

// The columns of a tile of which `rows` are the rows: as many vectors as each has elements, a power
// of two, of one type that is not i1.
Ir::Values EmitTransposed(Ir& ir, Ir::Values rows);

}  // namespace stampmill
