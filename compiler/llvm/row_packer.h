// RowPacker: emits the evaluation of a contraction's `a` along one row, lanes of neighbours at a
// time; what is done with them is the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/llvm/expr_emitter.h"
#include "compiler/llvm/guards.h"
#include "compiler/llvm/kernel_function.h"
#include "graph/nest.h"

namespace stampmill {

class RowPacker {
 public:
  // `values` are those of `a` from place `k` of the flattened row on: `lanes` of them, a scalar for
  // one. Some places are handed over twice.
  using Store = std::function<void(llvm::Value* k, llvm::Value* values, int64_t lanes)>;

  // `value` is evaluated: `a`, or what it rounds.
  RowPacker(KernelFunction& kernel, const Contraction& contraction, const Expr& value,
            int64_t lanes);

  // All of k. `row` has the coordinates of batch and m.
  void Pack(const Scope& row, const Store& store);
  // Places `begin` to `end` of the flattened row. Meant for one axis of k: several are walked
  // element by element.
  void PackPart(const Scope& row, llvm::Value* begin, llvm::Value* end, const Store& store);

 private:
  bool HasConstantK() const;
  void PackAxes(Scope& scope, size_t axis, llvm::Value* flat, size_t run_axes, const Store& store);
  void PackRun(Scope scope, llvm::Value* begin, llvm::Value* end, llvm::Value* flat, int64_t lanes,
               const Store& store);
  void PackScattered(const Scope& row, llvm::Value* begin, llvm::Value* end, const Store& store);
  Scope WithAxesOfK(const Scope& row) const;

  KernelFunction& kernel_;
  Ir& ir_;
  const Contraction& contraction_;
  Expr value_;
  int64_t lanes_;
  size_t first_axis_;         // of k
  std::vector<Expr> guards_;  // of the loads of a; empty when they cannot be told at once
  Window window_;             // all of k
  bool has_guards_ = false;
};

}  // namespace stampmill
