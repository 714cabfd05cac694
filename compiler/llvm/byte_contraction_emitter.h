// Code of contractions of bytes (Contraction::of_bytes): exact on every target.
#pragma once

#include "compiler/llvm/kernel_function.h"
#include "devices/target.h"
#include "graph/nest.h"

namespace stampmill {

// Emits the whole of `kernel`. REQUIRES: contraction.of_bytes().
void EmitByteContraction(KernelFunction& kernel, const Contraction& contraction,
                         const Target& target);

}  // namespace stampmill
