// Optimising, emitting and linking one module for an x86-64 class: from IR to the bytes of an ELF
// shared object.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/llvm/ir.h"
#include "devices/target.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace stampmill {

// UNIMPLEMENTED when this LLVM has no x86-64 back end.
absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine(const Target& target,
                                                                       const CpuFacts& facts);

// Inlines what must be, folds what became constant by it and drops what is not called then: of
// functions for many types those for one are left, before anything is spent on the others.
void Specialise(llvm::Module& module, llvm::TargetMachine& machine);
void Optimize(llvm::Module& module, llvm::TargetMachine& machine);
// An ELF object, or assembly text.
std::string EmitCode(llvm::Module& module, llvm::TargetMachine& machine, bool assembly);
// A shared object without undefined symbols; INTERNAL with the linker's words. lld keeps global
// state: links run one at a time (a lock inside).
absl::StatusOr<std::string> LinkSharedObject(const std::string& object);

}  // namespace stampmill
