// KernelFunction: one generated function of the kernel ABI (devices/artifact.h) and what its code
// reads: the buffers and dims of KernelArgs, loaded once in the entry block, and values of
// DimExprs over them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/llvm/ir.h"
#include "graph/dim.h"
#include "graph/nest.h"

namespace stampmill {

// An operand or an output as code sees it.
struct BufferView {
  DType dtype = DType::kInvalid;
  llvm::Value* address = nullptr;
  std::vector<llvm::Value*> strides;  // elements
  bool constant = true;               // not written while the kernel runs
};

class KernelFunction {
 public:
  // Adds `int32_t name(args, task_begin, task_end)` to the module. `dims` are the parameters in the
  // order of CanonicalBytes, as symbols d0, d1, ...
  KernelFunction(llvm::Module& module, const std::string& name, const CpuFacts& facts);
  // A part of a kernel in an empty function of its own, whose first parameter is the kernel's.
  KernelFunction(llvm::Function* function, const CpuFacts& facts);

  Ir& ir() { return ir_; }
  llvm::Function* function() { return ir_.function(); }

  // The value of `dim`, an expression over the symbols "d<i>". Computed in the entry block.
  llvm::Value* Dim(const DimExpr& dim);
  std::vector<llvm::Value*> Dims(std::span<const DimExpr> shape);
  BufferView Buffer(int64_t index, const Operand& operand);
  llvm::Value* Scratch();

  // Runs `task` for each task of the call, then returns 0. Emitted last.
  void ForEachTask(const std::function<void(llvm::Value* task)>& task);

 private:
  llvm::Value* EmitDim(const DimExpr& dim);

  Ir ir_;
  absl::flat_hash_map<DimExpr, llvm::Value*> dims_;
};

}  // namespace stampmill
