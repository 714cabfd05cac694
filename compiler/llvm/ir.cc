#include "compiler/llvm/ir.h"

#include <string>

#include "base/check.h"
#include "compiler/codegen/launch_plan.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace stampmill {

CpuFacts FactsOf(const Target& target) {
  CpuFacts facts;
  facts.vector_bytes = VectorBytes(target);
  facts.fma = target.has_avx2();
  facts.f16c = target.has_avx2();
  facts.avx512 = target.has_avx512();
  facts.features = "+sse2,+cx8,+fxsr,+mmx";
  if (target.has_avx2()) {
    facts.features +=
        ",+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+sahf,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,"
        "+lzcnt,+movbe,+xsave";
  }
  if (target.has_avx512()) {
    facts.features += ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,-prefer-256-bit";
  }
  if (target.has_vnni()) facts.features += ",+avx512vnni";
  if (target.has_bf16()) facts.features += ",+avx512bf16";
  return facts;
}

Ir::Ir(llvm::Function* function, const CpuFacts& facts)
    : function_(function), facts_(facts), builder_(function->getContext()) {
  llvm::BasicBlock* entry = llvm::BasicBlock::Create(context(), "entry", function);
  llvm::BasicBlock* start = llvm::BasicBlock::Create(context(), "start", function);
  builder_.SetInsertPoint(entry);
  builder_.CreateBr(start);
  builder_.SetInsertPoint(start);
}

llvm::Type* Ir::ValueType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return builder_.getInt1Ty();
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
      return builder_.getFloatTy();
    case DType::kF64:
      return builder_.getDoubleTy();
    default:
      return builder_.getIntNTy(static_cast<unsigned>(SizeBytes(dtype) * 8));
  }
}

llvm::Type* Ir::MemoryType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
      return ValueType(dtype);
    default:
      return builder_.getIntNTy(static_cast<unsigned>(SizeBytes(dtype) * 8));
  }
}

llvm::Type* Ir::Vector(llvm::Type* element, int64_t lanes) {
  if (lanes == 1) return element;
  return llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}

int64_t Ir::Lanes(const llvm::Value* value) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector == nullptr ? 1 : vector->getNumElements();
}

llvm::Value* Ir::Splat(llvm::Value* scalar, int64_t lanes) {
  if (lanes == 1) return scalar;
  return builder_.CreateVectorSplat(static_cast<unsigned>(lanes), scalar);
}

llvm::Value* Ir::Constant(const llvm::Value* like, double value) {
  llvm::Type* type = like->getType();
  if (type->isFPOrFPVectorTy()) return llvm::ConstantFP::get(type, value);
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(static_cast<int64_t>(value)), true);
}

bool Ir::IsInt(const llvm::Value* value, int64_t constant) {
  auto* number = llvm::dyn_cast<llvm::ConstantInt>(value);
  return number != nullptr && number->getSExtValue() == constant;
}

llvm::Value* Ir::Add(llvm::Value* a, llvm::Value* b) {
  if (IsInt(a, 0)) return b;
  if (IsInt(b, 0)) return a;
  return builder_.CreateAdd(a, b);
}

llvm::Value* Ir::Sub(llvm::Value* a, llvm::Value* b) {
  if (IsInt(b, 0)) return a;
  return builder_.CreateSub(a, b);
}

llvm::Value* Ir::Mul(llvm::Value* a, llvm::Value* b) {
  if (IsInt(a, 1)) return b;
  if (IsInt(b, 1)) return a;
  if (IsInt(a, 0)) return a;
  if (IsInt(b, 0)) return b;
  return builder_.CreateMul(a, b);
}

llvm::Value* Ir::Min(llvm::Value* a, llvm::Value* b) {
  return builder_.CreateSelect(builder_.CreateICmpSLT(a, b), a, b);
}

llvm::Value* Ir::Max(llvm::Value* a, llvm::Value* b) {
  return builder_.CreateSelect(builder_.CreateICmpSGT(a, b), a, b);
}

llvm::Value* Ir::FloorDiv(llvm::Value* a, llvm::Value* b) {
  if (IsInt(b, 1)) return a;
  llvm::Value* zero = Int(0);
  llvm::Value* none = builder_.CreateICmpEQ(b, zero);
  llvm::Value* divisor = builder_.CreateSelect(none, Int(1), b);
  llvm::Value* quotient = builder_.CreateSDiv(a, divisor);
  llvm::Value* rest = builder_.CreateSub(a, builder_.CreateMul(quotient, divisor));
  llvm::Value* low =
      builder_.CreateAnd(builder_.CreateICmpNE(rest, zero),
                         builder_.CreateICmpSLT(builder_.CreateXor(rest, divisor), zero));
  quotient = builder_.CreateSub(quotient, builder_.CreateZExt(low, builder_.getInt64Ty()));
  return builder_.CreateSelect(none, zero, quotient);
}

llvm::Value* Ir::FloorMod(llvm::Value* a, llvm::Value* b) {
  llvm::Value* none = builder_.CreateICmpEQ(b, Int(0));
  return builder_.CreateSelect(none, Int(0), Sub(a, Mul(FloorDiv(a, b), b)));
}

Ir::Values Ir::For(llvm::Value* begin, llvm::Value* end, int64_t step, Values carried,
                   const CarriedBody& body, int64_t unroll) {
  auto* first = llvm::dyn_cast<llvm::ConstantInt>(begin);
  auto* last = llvm::dyn_cast<llvm::ConstantInt>(end);
  if (first != nullptr && last != nullptr) {
    int64_t i = first->getSExtValue();
    int64_t stop = last->getSExtValue();
    if (stop <= i || (stop - i + step - 1) / step <= unroll) {
      for (; i < stop; i += step) carried = body(Int(i), carried);
      return carried;
    }
  }
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(context(), "loop", function_);
  llvm::BasicBlock* done = llvm::BasicBlock::Create(context(), "done", function_);
  builder_.CreateCondBr(builder_.CreateICmpSLT(begin, end), loop, done);
  builder_.SetInsertPoint(loop);
  llvm::PHINode* i = builder_.CreatePHI(builder_.getInt64Ty(), 2);
  i->addIncoming(begin, before);
  std::vector<llvm::PHINode*> phis;
  Values current;
  for (llvm::Value* value : carried) {
    phis.push_back(builder_.CreatePHI(value->getType(), 2));
    phis.back()->addIncoming(value, before);
    current.push_back(phis.back());
  }
  Values next = body(i, current);
  CHECK_EQ(next.size(), carried.size());
  llvm::Value* following = builder_.CreateNSWAdd(i, Int(step));
  llvm::BasicBlock* latch = builder_.GetInsertBlock();
  builder_.CreateCondBr(builder_.CreateICmpSLT(following, end), loop, done);
  i->addIncoming(following, latch);
  builder_.SetInsertPoint(done);
  Values result;
  for (size_t n = 0; n < next.size(); ++n) {
    phis[n]->addIncoming(next[n], latch);
    llvm::PHINode* out = builder_.CreatePHI(next[n]->getType(), 2);
    out->addIncoming(carried[n], before);
    out->addIncoming(next[n], latch);
    result.push_back(out);
  }
  return result;
}

void Ir::For(llvm::Value* begin, llvm::Value* end, int64_t step,
             const std::function<void(llvm::Value* i)>& body, int64_t unroll) {
  For(
      begin, end, step, Values(),
      [&](llvm::Value* i, const Values&) {
        body(i);
        return Values();
      },
      unroll);
}

void Ir::While(llvm::Value* begin, llvm::Value* end,
               const std::function<llvm::Value*(llvm::Value*)>& body) {
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(context(), "while", function_);
  llvm::BasicBlock* done = llvm::BasicBlock::Create(context(), "done", function_);
  builder_.CreateCondBr(builder_.CreateICmpSLT(begin, end), loop, done);
  builder_.SetInsertPoint(loop);
  llvm::PHINode* i = builder_.CreatePHI(builder_.getInt64Ty(), 2);
  i->addIncoming(begin, before);
  llvm::Value* next = body(i);
  i->addIncoming(next, builder_.GetInsertBlock());
  builder_.CreateCondBr(builder_.CreateICmpSLT(next, end), loop, done);
  builder_.SetInsertPoint(done);
}

void Ir::If(llvm::Value* condition, const std::function<void()>& then,
            const std::function<void()>& otherwise) {
  if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
    if (known->isOne()) {
      then();
    } else if (otherwise != nullptr) {
      otherwise();
    }
    return;
  }
  llvm::BasicBlock* yes = llvm::BasicBlock::Create(context(), "then", function_);
  llvm::BasicBlock* no = llvm::BasicBlock::Create(context(), "else", function_);
  llvm::BasicBlock* done = llvm::BasicBlock::Create(context(), "endif", function_);
  builder_.CreateCondBr(condition, yes, no);
  builder_.SetInsertPoint(yes);
  then();
  builder_.CreateBr(done);
  builder_.SetInsertPoint(no);
  if (otherwise != nullptr) otherwise();
  builder_.CreateBr(done);
  builder_.SetInsertPoint(done);
}

Ir::Values Ir::Decompose(llvm::Value* flat, const Values& extents) {
  Values coordinates(extents.size());
  for (size_t n = extents.size(); n-- > 0;) {
    if (n == 0) {
      coordinates[0] = flat;
      break;
    }
    // An extent of 0 means that nothing is walked: 1 keeps the division defined.
    llvm::Value* divisor = Max(extents[n], Int(1));
    llvm::Value* quotient = builder_.CreateUDiv(flat, divisor);
    coordinates[n] = Sub(flat, Mul(quotient, divisor));
    flat = quotient;
  }
  return coordinates;
}

Ir::Values Ir::Next(const Values& coordinates, const Values& extents) {
  Values next(coordinates.size());
  llvm::Value* carry = builder_.getTrue();
  for (size_t n = coordinates.size(); n-- > 0;) {
    llvm::Value* raised = Add(coordinates[n], builder_.CreateZExt(carry, builder_.getInt64Ty()));
    if (n == 0) {
      next[0] = raised;
      break;
    }
    carry = builder_.CreateICmpEQ(raised, extents[n]);
    next[n] = builder_.CreateSelect(carry, Int(0), raised);
  }
  return next;
}

void Ir::Walk(llvm::Value* begin, llvm::Value* end, const Values& extents,
              const std::function<void(llvm::Value*, const Values&)>& body) {
  For(begin, end, 1, Decompose(begin, extents), [&](llvm::Value* flat, const Values& coordinates) {
    body(flat, coordinates);
    return Next(coordinates, extents);
  });
}

Ir::Values Ir::MadeTogether(const Values& values) {
  std::string constraints;
  std::vector<llvm::Type*> types;
  for (llvm::Value* value : values) {
    constraints += types.empty() ? "=v" : ",=v";
    types.push_back(value->getType());
  }
  for (size_t n = 0; n < values.size(); ++n) constraints += "," + std::to_string(n);
  auto* result = llvm::StructType::get(context(), types);
  auto* type = llvm::FunctionType::get(result, types, false);
  llvm::Value* all =
      builder_.CreateCall(llvm::InlineAsm::get(type, "", constraints, false), values);
  Values made;
  for (size_t n = 0; n < values.size(); ++n) {
    made.push_back(builder_.CreateExtractValue(all, static_cast<unsigned>(n)));
  }
  return made;
}

llvm::Value* Ir::MultiplyPairs(llvm::Value* a, llvm::Value* b) {
  const int64_t bits = a->getType()->getPrimitiveSizeInBits();
  const llvm::Intrinsic::ID products = bits == 512   ? llvm::Intrinsic::x86_avx512_pmaddw_d_512
                                       : bits == 256 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                                                     : llvm::Intrinsic::x86_sse2_pmadd_wd;
  llvm::Type* pairs = Vector(builder_.getInt16Ty(), bits / 16);
  return builder_.CreateIntrinsic(
      products, {}, {builder_.CreateBitCast(a, pairs), builder_.CreateBitCast(b, pairs)});
}

void Ir::AtEntry(const std::function<void()>& emit) {
  llvm::IRBuilder<>::InsertPointGuard guard(builder_);
  builder_.SetInsertPoint(function_->getEntryBlock().getTerminator());
  emit();
}

}  // namespace stampmill
