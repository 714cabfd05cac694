// Emits contractions of block-quantised weights (Contraction::blocks in graph/nest.h).
#pragma once

#include "compiler/llvm/kernel_function.h"
#include "devices/target.h"
#include "graph/nest.h"

namespace stampmill {

// REQUIRES: Verify(contraction) is OK and contraction.blocks has a value.
void EmitBlockContraction(KernelFunction& kernel, const Contraction& contraction,
                          const Target& target);

}  // namespace stampmill
