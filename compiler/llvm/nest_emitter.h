// Code of one Nest: the loops of compiler/codegen/launch_plan.h's NestSchedule around the nest's
// expressions.
#pragma once

#include "compiler/llvm/kernel_function.h"
#include "devices/target.h"
#include "graph/nest.h"

namespace stampmill {

// `nest` has dims that are constants or symbols "d<i>". Completes the function.
void EmitNest(KernelFunction& kernel, const Nest& nest, const Target& target);

}  // namespace stampmill
