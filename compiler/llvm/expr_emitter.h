// ExprEmitter: straight-line code for expressions over `lanes` neighbouring values of one loop
// axis.
//
// A value is a Lane: the same for all lanes (uniform), i64 and growing by a constant step from lane
// to lane (linear), or a vector. Addresses stay uniform or linear as long as they can: a load whose
// address grows by one element is one vector load, one that does not grow is a splat, one that
// grows or shrinks by a few is as many vector loads; every other one gathers. No branches are
// emitted: a guarded load that is not to happen reads a block of zeros instead, or is masked. Nodes
// are computed once for each emitter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/llvm/ir.h"
#include "compiler/llvm/kernel_function.h"
#include "graph/expr.h"

namespace stampmill {

struct Lane {
  llvm::Value* value = nullptr;  // scalar: of lane 0; vector: of each lane
  llvm::Value* step = nullptr;   // i64 scalar: growth from lane to lane; null: none
};

// What expressions refer to at one point of the generated code.
struct Scope {
  KernelFunction* kernel = nullptr;
  std::span<const BufferView> operands;
  int64_t lanes = 1;
  std::vector<Lane> coordinates;  // by axis
  std::vector<Lane> reduced;      // by reduction
  std::vector<Lane> accumulators;
  bool guards_hold = false;  // the conditions of guarded loads are known to be true
};

class ExprEmitter {
 public:
  explicit ExprEmitter(const Scope& scope);

  Lane Emit(const Expr& e);
  // Takes `lane` for the value of `e` from now on.
  void Provide(const Expr& e, Lane lane) { memo_[e.id()] = lane; }
  // With one element for each lane (a scalar when lanes == 1).
  llvm::Value* EmitLanes(const Expr& e);
  // Writes `value` to `output` at the given coordinates.
  void Store(const BufferView& output, std::span<const Lane> coordinates, Lane value);
  // acc + a * b with one rounding where the target has it: for updates of accumulators.
  Lane EmitUpdate(const Expr& e);

  // Where a plain load reads; its coordinates must be uniform.
  llvm::Value* AddressOf(const Expr& load);

  llvm::Value* ToLanes(Lane lane);
  Lane Offset(const BufferView& view, std::span<const Lane> coordinates);

 private:
  Lane EmitNode(const Expr& e);
  Lane EmitIndexArithmetic(const Expr& e, Lane a, Lane b);
  Lane EmitLoad(const Expr& e);
  Lane EmitGuardedLoad(const Expr& e);
  llvm::Value* LoadAt(const BufferView& view, llvm::Value* address, int64_t lanes);
  llvm::Value* LoadStrided(const BufferView& view, llvm::Value* offset, int64_t stride);
  llvm::Value* Gather(const BufferView& view, Lane offset, llvm::Value* mask);
  llvm::Value* FromMemory(DType dtype, llvm::Value* raw);
  llvm::Value* ToMemory(DType dtype, llvm::Value* value);
  llvm::Value* Element(const BufferView& view, llvm::Value* offset);

  const Scope& scope_;
  Ir& ir_;
  llvm::IRBuilder<>& b_;
  absl::flat_hash_map<const void*, Lane> memo_;
};

// The blocks of zeros that suppressed loads read.
inline constexpr int64_t kZeroBlockBytes = 1024;

}  // namespace stampmill
