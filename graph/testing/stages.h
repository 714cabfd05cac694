// Small stages of each form, for tests of what reads, writes and runs stages.
#pragma once

#include <vector>

#include "graph/nest.h"

namespace stampmill {

// out[i] = value, over one f32 operand of shape [n].
Nest MapNest(const DimExpr& n, const Expr& value);

// Softmax over the last axis of f32[rows, columns]: two reductions, written per element.
Nest SoftmaxNest(const DimExpr& rows, const DimExpr& columns);

// out[m, n] = max(0, sum over k of a[m, k] * b[k, n]) of f32, a operand 0, b operand 1 in panels.
Contraction MatMulContraction(const DimExpr& m, const DimExpr& n, const DimExpr& k, int64_t panel);
// The same over rows of blocks.
Contraction BlockMatMulContraction(const DimExpr& m, int64_t n, int64_t k, BlockFormat format,
                                   int64_t panel);
// A product of blocks whose `a` is a plain load, with the same rows as records.
Contraction WithRecords(Contraction contraction, bool wide);
// The same with operands rounded to bf16, b in pairs.
Contraction PairMatMulContraction(const DimExpr& m, const DimExpr& n, const DimExpr& k,
                                  int64_t panel);
// The same sums of i32, of operands of i16.
Contraction WordMatMulContraction(const DimExpr& m, const DimExpr& n, const DimExpr& k,
                                  int64_t panel);

// out[c, y, x] of i32: a guarded load from i8[c, h, w], one element of padding around.
Nest PadNest(const DimExpr& channels, const DimExpr& height, const DimExpr& width);

// One or more of each form of stage and of each kind of expression.
std::vector<StageBody> ExampleStages();

}  // namespace stampmill
