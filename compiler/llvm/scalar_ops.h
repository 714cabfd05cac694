// One operation of graph/expr.h on LLVM values, scalars or vectors alike: the meaning of every
// ExprOp that is not a leaf. The same instructions at every width, so results do not depend on it.
#pragma once

#include "compiler/llvm/ir.h"
#include "graph/dtype.h"
#include "graph/expr.h"

namespace stampmill {

// `dtype` is that of the operands (comparisons give i1).
llvm::Value* EmitUnary(Ir& ir, ExprOp op, DType dtype, llvm::Value* a);
llvm::Value* EmitBinary(Ir& ir, ExprOp op, DType dtype, llvm::Value* a, llvm::Value* b);
llvm::Value* EmitCast(Ir& ir, DType from, DType to, llvm::Value* a);
llvm::Value* EmitBitCast(Ir& ir, DType from, DType to, llvm::Value* a);
// a * b + c, with one rounding where the target has FMA (floats; integers wrap).
llvm::Value* EmitMultiplyAdd(Ir& ir, llvm::Value* a, llvm::Value* b, llvm::Value* c);

// Between f32 that holds a narrow float's value and its 16 bits.
llvm::Value* NarrowBits(Ir& ir, DType dtype, llvm::Value* f32);  // rounds to nearest even
llvm::Value* WidenBits(Ir& ir, DType dtype, llvm::Value* i16);

}  // namespace stampmill
