// Library stages: the kernel calls a skeleton (kernels/skeletons), whose bitcode is linked into the
// module and inlined, so that its configuration is made of constants there.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "compiler/llvm/kernel_function.h"
#include "graph/nest.h"

namespace stampmill {

// UNIMPLEMENTED when there is no such skeleton.
absl::Status EmitLibrary(KernelFunction& kernel, const Library& library);

// Brings in the bodies of the skeletons that kernels of the module call, as functions of its own.
absl::Status LinkSkeletons(llvm::Module& module);

}  // namespace stampmill
