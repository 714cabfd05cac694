// Code of one Contraction: register tiles over panels of b, rows of a packed on the fly or read in
// place, the epilogue applied to each tile while it is in the first-level cache.
//
// Every output element is one chain of multiply-adds in the order of k, whatever the tile, the
// block of k, the task or m: rows do not depend on each other.
#pragma once

#include "compiler/llvm/kernel_function.h"
#include "devices/target.h"
#include "graph/nest.h"

namespace stampmill {

// `contraction` has dims that are constants or symbols "d<i>". Completes the function.
void EmitContraction(KernelFunction& kernel, const Contraction& contraction, const Target& target);

}  // namespace stampmill
