// ContractionFrame: what the expressions of a contraction refer to within one of the functions that
// a kernel consists of, and what its sums become there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/llvm/expr_emitter.h"
#include "compiler/llvm/kernel_function.h"
#include "graph/expr.h"
#include "graph/nest.h"

namespace stampmill {

class ContractionFrame {
 public:
  // Reads operands and extents at the function's entry. Both must outlive the frame.
  ContractionFrame(KernelFunction& function, const Contraction& contraction);
  ContractionFrame(const ContractionFrame&) = delete;
  ContractionFrame& operator=(const ContractionFrame&) = delete;

  const Ir::Values& batch_extents() const { return batch_extents_; }
  const Ir::Values& m_extents() const { return m_extents_; }
  const BufferView& b() const { return operands_[static_cast<size_t>(contraction_.b)]; }

  // The flat index of batch that scopes are for from now on.
  void SetBatch(llvm::Value* batch);
  // A row, with as many axes after its own. The frame must outlive it.
  Scope RowScope(const Ir::Values& m, size_t axes) const;
  // Writes what `lanes` sums, of columns `column` on, become. `row` has one axis after its own.
  void WriteResult(const Scope& row, llvm::Value* column, llvm::Value* sums, int64_t lanes) const;

 private:
  KernelFunction& function_;
  const Contraction& contraction_;
  std::vector<BufferView> operands_;
  BufferView output_;
  std::vector<Expr> output_coordinates_;
  Ir::Values batch_extents_, m_extents_;
  Ir::Values batch_;
};

}  // namespace stampmill
