// Elementary functions on f32 and f64 values, scalars or vectors, as straight-line IR without
// calls. Errors: at most 4 ulp in f32, 1e-13 relative in f64, over the whole range; infinities,
// NaN, zeros and subnormal arguments as IEEE 754 and C have them. Where an identity costs no
// accuracy, f32 is computed in f32. Sine, cosine and tangent of f64 arguments beyond 2^30 lose
// accuracy with their size; those of f32 do not.
//
// Methods: range reduction after Cody and Waite ("Software Manual for the Elementary Functions",
// 1980) and Muller ("Elementary Functions", 3rd ed., 2016); polynomials are minimax fits computed
// for the reduced ranges (compiler/llvm/math_tables.py makes them).
#pragma once

#include "compiler/llvm/ir.h"
#include "graph/expr.h"

namespace stampmill {

// REQUIRES: `op` is one of kExp ... kErf; x is float or double (or vectors of them).
llvm::Value* EmitMathUnary(Ir& ir, ExprOp op, llvm::Value* x);
llvm::Value* EmitPow(Ir& ir, llvm::Value* x, llvm::Value* y);
llvm::Value* EmitAtan2(Ir& ir, llvm::Value* y, llvm::Value* x);
// C's fmod: exact.
llvm::Value* EmitFmod(Ir& ir, llvm::Value* x, llvm::Value* y);

// Rounding without library calls on targets that lack the instruction.
llvm::Value* EmitRoundEven(Ir& ir, llvm::Value* x);
llvm::Value* EmitFloor(Ir& ir, llvm::Value* x);
llvm::Value* EmitTrunc(Ir& ir, llvm::Value* x);

}  // namespace stampmill
