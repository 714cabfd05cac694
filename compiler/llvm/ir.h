// Ir: what all emitters share: an IRBuilder at the point of emission, the target's facts, types of
// element types, loops and lane vectors. One for each generated function.
//
// Values of a DType within a kernel: bool is i1, integers are themselves, f16 and bf16 are f32
// that hold a value of the narrow type, f32 and f64 are themselves. In memory bool is i8 and the
// narrow floats are i16. A vector of one lane is a scalar.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "devices/target.h"
#include "graph/dtype.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace stampmill {

struct CpuFacts {
  int64_t vector_bytes = 16;
  bool fma = false;
  bool f16c = false;
  bool avx512 = false;
  std::string features;  // for the TargetMachine
};
CpuFacts FactsOf(const Target& target);

class Ir {
 public:
  Ir(llvm::Function* function, const CpuFacts& facts);

  llvm::IRBuilder<>& b() { return builder_; }
  llvm::LLVMContext& context() { return builder_.getContext(); }
  llvm::Module& module() { return *function_->getParent(); }
  llvm::Function* function() { return function_; }
  const CpuFacts& facts() const { return facts_; }

  llvm::Type* ValueType(DType dtype);
  llvm::Type* MemoryType(DType dtype);
  static llvm::Type* Vector(llvm::Type* element, int64_t lanes);
  static int64_t Lanes(const llvm::Value* value);
  llvm::Value* Splat(llvm::Value* scalar, int64_t lanes);
  // A constant of the type of `like`, scalar or vector, float or integer.
  static llvm::Value* Constant(const llvm::Value* like, double value);
  llvm::ConstantInt* Int(int64_t value) { return builder_.getInt64(static_cast<uint64_t>(value)); }
  static bool IsInt(const llvm::Value* value, int64_t constant);

  // i64 arithmetic that folds 0 and 1.
  llvm::Value* Add(llvm::Value* a, llvm::Value* b);
  llvm::Value* Sub(llvm::Value* a, llvm::Value* b);
  llvm::Value* Mul(llvm::Value* a, llvm::Value* b);
  llvm::Value* Min(llvm::Value* a, llvm::Value* b);
  llvm::Value* Max(llvm::Value* a, llvm::Value* b);
  // Toward minus infinity; a divisor of 0 gives 0.
  llvm::Value* FloorDiv(llvm::Value* a, llvm::Value* b);
  llvm::Value* FloorMod(llvm::Value* a, llvm::Value* b);

  // for (i = begin; i < end; i += step), carrying values; `body` returns the new ones. Straight
  // code when the bounds are constants and the trip count is at most `unroll`.
  using Values = std::vector<llvm::Value*>;
  using CarriedBody = std::function<Values(llvm::Value* i, const Values& carried)>;
  Values For(llvm::Value* begin, llvm::Value* end, int64_t step, Values carried,
             const CarriedBody& body, int64_t unroll = 1);
  void For(llvm::Value* begin, llvm::Value* end, int64_t step,
           const std::function<void(llvm::Value* i)>& body, int64_t unroll = 1);
  // while (i < end) i = body(i), from `begin`; `body` returns a larger i.
  void While(llvm::Value* begin, llvm::Value* end,
             const std::function<llvm::Value*(llvm::Value* i)>& body);
  void If(llvm::Value* condition, const std::function<void()>& then,
          const std::function<void()>& otherwise = nullptr);

  // Walks row-major coordinates over `extents`, from flat index `begin` to `end`: one division
  // each at the start, carries afterwards.
  void Walk(llvm::Value* begin, llvm::Value* end, const Values& extents,
            const std::function<void(llvm::Value* flat, const Values& coordinates)>& body);
  // The same vectors, two or more of one type, as far as the order of instructions goes made all at
  // once: an empty piece of assembly wants all and gives all.
  Values MadeTogether(const Values& values);
  // a0 * b0 + a1 * b1 of each pair of i16 in two registers full of them, as i32; wraps.
  llvm::Value* MultiplyPairs(llvm::Value* a, llvm::Value* b);
  // Row-major coordinates of the element after that at `coordinates`.
  Values Next(const Values& coordinates, const Values& extents);
  // Row-major coordinates of one flat index.
  Values Decompose(llvm::Value* flat, const Values& extents);

  // Code that is emitted once, in the function's entry block.
  void AtEntry(const std::function<void()>& emit);

 private:
  llvm::Function* function_;
  const CpuFacts& facts_;
  llvm::IRBuilder<> builder_;
};

}  // namespace stampmill
