// Fusion: fewer, larger stages that compute the same values. It knows no operators: a stage is
// moved into another by substituting expressions, when the index spaces allow it and the work does
// not grow.
#pragma once

#include "compiler/passes/stage_graph.h"

namespace stampmill {

// Applies these rules until none does:
//   inline    a map disappears into the loads of its readers: always when it only moves data and
//             rows stay contiguous; with arithmetic when every reader reads each element once;
//   epilogue  a map over the result of a contraction or reduction becomes part of what that writes;
//   rows      a reduction joins its one reader when both run over the same rows (softmax and layer
//             norm as exporters spell them out become one nest).
// Values that are graph outputs are always written.
void FuseStages(StageGraph& stages);

}  // namespace stampmill
