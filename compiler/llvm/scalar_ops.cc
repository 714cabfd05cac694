#include "compiler/llvm/scalar_ops.h"

#include <cmath>

#include "base/check.h"
#include "compiler/llvm/math.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Intrinsics.h"

namespace stampmill {
namespace {

using llvm::Value;

bool IsNarrowFloat(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
bool IsSigned(DType dtype) { return IsSignedInteger(dtype); }

Value* I32(Ir& ir, Value* like, uint32_t constant) {
  return llvm::ConstantInt::get(Ir::Vector(ir.b().getInt32Ty(), Ir::Lanes(like)), constant);
}

Value* IsNan(Ir& ir, Value* a) { return ir.b().CreateFCmpUNO(a, a); }

Value* EmitMinMax(Ir& ir, bool max, DType dtype, Value* a, Value* b) {
  llvm::IRBuilder<>& builder = ir.b();
  if (IsFloat(dtype)) {
    Value* better = max ? builder.CreateFCmpOGT(a, b) : builder.CreateFCmpOLT(a, b);
    // The comparison yields b when either is NaN; that is right unless only a is.
    Value* chosen = builder.CreateSelect(better, a, b);
    return builder.CreateSelect(IsNan(ir, a), a, chosen);
  }
  llvm::CmpInst::Predicate predicate =
      IsSigned(dtype) ? (max ? llvm::CmpInst::ICMP_SGT : llvm::CmpInst::ICMP_SLT)
                      : (max ? llvm::CmpInst::ICMP_UGT : llvm::CmpInst::ICMP_ULT);
  return builder.CreateSelect(builder.CreateICmp(predicate, a, b), a, b);
}

// Quotient toward zero and remainder, with x / 0 = 0, x % 0 = 0 and INT_MIN / -1 wrapping.
struct Division {
  Value* quotient;
  Value* remainder;
};

Division EmitDivision(Ir& ir, DType dtype, Value* a, Value* b) {
  llvm::IRBuilder<>& builder = ir.b();
  Value* zero = Ir::Constant(b, 0);
  Value* one = Ir::Constant(b, 1);
  Value* none = builder.CreateICmpEQ(b, zero);
  if (!IsSigned(dtype)) {
    Value* divisor = builder.CreateSelect(none, one, b);
    Value* quotient = builder.CreateUDiv(a, divisor);
    Value* remainder = builder.CreateSub(a, builder.CreateMul(quotient, divisor));
    return {builder.CreateSelect(none, zero, quotient),
            builder.CreateSelect(none, zero, remainder)};
  }
  Value* negate = builder.CreateICmpEQ(b, Ir::Constant(b, -1));
  Value* divisor = builder.CreateSelect(builder.CreateOr(none, negate), one, b);
  Value* quotient = builder.CreateSDiv(a, divisor);
  Value* remainder = builder.CreateSub(a, builder.CreateMul(quotient, divisor));
  quotient = builder.CreateSelect(negate, builder.CreateNeg(a), quotient);
  return {builder.CreateSelect(none, zero, quotient), builder.CreateSelect(none, zero, remainder)};
}

Value* EmitIntegerFloor(Ir& ir, ExprOp op, DType dtype, Value* a, Value* b) {
  llvm::IRBuilder<>& builder = ir.b();
  Division division = EmitDivision(ir, dtype, a, b);
  bool quotient = op == ExprOp::kFloorDiv;
  if (!IsSigned(dtype)) return quotient ? division.quotient : division.remainder;
  Value* zero = Ir::Constant(a, 0);
  Value* low =
      builder.CreateAnd(builder.CreateICmpNE(division.remainder, zero),
                        builder.CreateICmpSLT(builder.CreateXor(division.remainder, b), zero));
  if (quotient) {
    return builder.CreateSelect(low, builder.CreateSub(division.quotient, Ir::Constant(a, 1)),
                                division.quotient);
  }
  return builder.CreateSelect(low, builder.CreateAdd(division.remainder, b), division.remainder);
}

Value* EmitFloatFloorMod(Ir& ir, Value* a, Value* b) {
  llvm::IRBuilder<>& builder = ir.b();
  Value* rest = EmitFmod(ir, a, b);
  Value* zero = Ir::Constant(a, 0);
  Value* other_sign =
      builder.CreateXor(builder.CreateFCmpOLT(rest, zero), builder.CreateFCmpOLT(b, zero));
  Value* wrong = builder.CreateAnd(builder.CreateFCmpONE(rest, zero), other_sign);
  return builder.CreateSelect(wrong, builder.CreateFAdd(rest, b), rest);
}

// Integer powers by squaring, wrapping; a negative exponent gives the integer part of the result.
Value* EmitIntegerPow(Ir& ir, DType dtype, Value* a, Value* b) {
  llvm::IRBuilder<>& builder = ir.b();
  Value* zero = Ir::Constant(a, 0);
  Value* one = Ir::Constant(a, 1);
  int64_t bits = static_cast<int64_t>(SizeBytes(dtype) * 8);
  Ir::Values done = ir.For(
      ir.Int(0), ir.Int(bits), 1, {one, a, b}, [&](Value*, const Ir::Values& now) -> Ir::Values {
        Value* odd = builder.CreateICmpNE(builder.CreateAnd(now[2], one), zero);
        Value* product = builder.CreateMul(now[0], now[1]);
        return {builder.CreateSelect(odd, product, now[0]), builder.CreateMul(now[1], now[1]),
                builder.CreateLShr(now[2], one)};
      });
  if (!IsSigned(dtype)) return done[0];
  Value* minus_one = Ir::Constant(a, -1);
  Value* odd = builder.CreateICmpNE(builder.CreateAnd(b, one), zero);
  Value* inverse =
      builder.CreateSelect(builder.CreateICmpEQ(a, one), one,
                           builder.CreateSelect(builder.CreateICmpEQ(a, minus_one),
                                                builder.CreateSelect(odd, minus_one, one), zero));
  return builder.CreateSelect(builder.CreateICmpSLT(b, zero), inverse, done[0]);
}

Value* EmitShift(Ir& ir, ExprOp op, DType dtype, Value* a, Value* b) {
  llvm::IRBuilder<>& builder = ir.b();
  double bits = static_cast<double>(SizeBytes(dtype) * 8);
  Value* over = builder.CreateICmpUGE(b, Ir::Constant(b, bits));
  Value* amount = builder.CreateSelect(over, Ir::Constant(b, bits - 1), b);
  if (op == ExprOp::kShiftRight && IsSigned(dtype)) return builder.CreateAShr(a, amount);
  Value* shifted =
      op == ExprOp::kShiftLeft ? builder.CreateShl(a, amount) : builder.CreateLShr(a, amount);
  return builder.CreateSelect(over, Ir::Constant(a, 0), shifted);
}

Value* EmitCompare(Ir& ir, ExprOp op, DType dtype, Value* a, Value* b) {
  using Cmp = llvm::CmpInst;
  struct Predicates {
    ExprOp op;
    Cmp::Predicate floats, signed_integers, unsigned_integers;
  };
  static constexpr Predicates kTable[] = {
      {ExprOp::kEq, Cmp::FCMP_OEQ, Cmp::ICMP_EQ, Cmp::ICMP_EQ},
      {ExprOp::kNe, Cmp::FCMP_UNE, Cmp::ICMP_NE, Cmp::ICMP_NE},
      {ExprOp::kLt, Cmp::FCMP_OLT, Cmp::ICMP_SLT, Cmp::ICMP_ULT},
      {ExprOp::kLe, Cmp::FCMP_OLE, Cmp::ICMP_SLE, Cmp::ICMP_ULE},
      {ExprOp::kGt, Cmp::FCMP_OGT, Cmp::ICMP_SGT, Cmp::ICMP_UGT},
      {ExprOp::kGe, Cmp::FCMP_OGE, Cmp::ICMP_SGE, Cmp::ICMP_UGE},
  };
  for (const Predicates& row : kTable) {
    if (row.op != op) continue;
    if (IsFloat(dtype)) return ir.b().CreateFCmp(row.floats, a, b);
    return ir.b().CreateICmp(IsSigned(dtype) ? row.signed_integers : row.unsigned_integers, a, b);
  }
  CHECK(false) << "no comparison: " << static_cast<int>(op);
  return nullptr;
}

Value* EmitFloatBinary(Ir& ir, ExprOp op, Value* a, Value* b) {
  llvm::IRBuilder<>& builder = ir.b();
  switch (op) {
    case ExprOp::kAdd:
      return builder.CreateFAdd(a, b);
    case ExprOp::kSub:
      return builder.CreateFSub(a, b);
    case ExprOp::kMul:
      return builder.CreateFMul(a, b);
    case ExprOp::kDiv:
      return builder.CreateFDiv(a, b);
    case ExprOp::kRemainder:
      return EmitFmod(ir, a, b);
    case ExprOp::kFloorDiv:
      return EmitFloor(ir, builder.CreateFDiv(a, b));
    case ExprOp::kFloorMod:
      return EmitFloatFloorMod(ir, a, b);
    case ExprOp::kPow:
      return EmitPow(ir, a, b);
    case ExprOp::kAtan2:
      return EmitAtan2(ir, a, b);
    default:
      CHECK(false) << "no float operation: " << static_cast<int>(op);
      return nullptr;
  }
}

Value* EmitIntegerBinary(Ir& ir, ExprOp op, DType dtype, Value* a, Value* b) {
  llvm::IRBuilder<>& builder = ir.b();
  switch (op) {
    case ExprOp::kAdd:
      return builder.CreateAdd(a, b);
    case ExprOp::kSub:
      return builder.CreateSub(a, b);
    case ExprOp::kMul:
      return builder.CreateMul(a, b);
    case ExprOp::kDiv:
      return EmitDivision(ir, dtype, a, b).quotient;
    case ExprOp::kRemainder:
      return EmitDivision(ir, dtype, a, b).remainder;
    case ExprOp::kFloorDiv:
    case ExprOp::kFloorMod:
      return EmitIntegerFloor(ir, op, dtype, a, b);
    case ExprOp::kPow:
      return EmitIntegerPow(ir, dtype, a, b);
    case ExprOp::kBitAnd:
      return builder.CreateAnd(a, b);
    case ExprOp::kBitOr:
      return builder.CreateOr(a, b);
    case ExprOp::kBitXor:
      return builder.CreateXor(a, b);
    case ExprOp::kShiftLeft:
    case ExprOp::kShiftRight:
      return EmitShift(ir, op, dtype, a, b);
    default:
      CHECK(false) << "no integer operation: " << static_cast<int>(op);
      return nullptr;
  }
}

Value* RoundNarrow(Ir& ir, DType dtype, Value* f32) {
  return IsNarrowFloat(dtype) ? WidenBits(ir, dtype, NarrowBits(ir, dtype, f32)) : f32;
}

// f32 to f16 without the instruction, after Giesen, "Float->half variants" (2016, public domain).
Value* HalfBits(Ir& ir, Value* f32) {
  llvm::IRBuilder<>& b = ir.b();
  llvm::Type* i32 = Ir::Vector(b.getInt32Ty(), Ir::Lanes(f32));
  Value* bits = b.CreateBitCast(f32, i32);
  Value* sign = b.CreateAnd(bits, I32(ir, f32, 0x80000000u));
  Value* magnitude = b.CreateXor(bits, sign);
  Value* nan = b.CreateICmpUGT(magnitude, I32(ir, f32, 0x7f800000u));
  Value* large = b.CreateSelect(nan, I32(ir, f32, 0x7e00), I32(ir, f32, 0x7c00));
  constexpr uint32_t kMagic = ((127 - 15) + (23 - 10) + 1) << 23;
  Value* magic = b.CreateBitCast(I32(ir, f32, kMagic), f32->getType());
  Value* aligned = b.CreateFAdd(b.CreateBitCast(magnitude, f32->getType()), magic);
  Value* small = b.CreateSub(b.CreateBitCast(aligned, i32), I32(ir, f32, kMagic));
  Value* odd = b.CreateAnd(b.CreateLShr(magnitude, I32(ir, f32, 13)), I32(ir, f32, 1));
  constexpr uint32_t kRebias = (static_cast<uint32_t>(15 - 127) << 23) + 0xfff;
  Value* normal = b.CreateAdd(b.CreateAdd(magnitude, I32(ir, f32, kRebias)), odd);
  normal = b.CreateLShr(normal, I32(ir, f32, 13));
  Value* result =
      b.CreateSelect(b.CreateICmpULT(magnitude, I32(ir, f32, 113u << 23)), small, normal);
  result =
      b.CreateSelect(b.CreateICmpUGE(magnitude, I32(ir, f32, (127u + 16) << 23)), large, result);
  result = b.CreateOr(result, b.CreateLShr(sign, I32(ir, f32, 16)));
  return b.CreateTrunc(result, Ir::Vector(b.getInt16Ty(), Ir::Lanes(f32)));
}

Value* HalfToF32(Ir& ir, Value* i16) {
  llvm::IRBuilder<>& b = ir.b();
  llvm::Type* f32 = Ir::Vector(b.getFloatTy(), Ir::Lanes(i16));
  Value* wide = b.CreateZExt(i16, Ir::Vector(b.getInt32Ty(), Ir::Lanes(i16)));
  Value* sign = b.CreateShl(b.CreateAnd(wide, I32(ir, i16, 0x8000)), I32(ir, i16, 16));
  Value* bits = b.CreateShl(b.CreateAnd(wide, I32(ir, i16, 0x7fff)), I32(ir, i16, 13));
  constexpr uint32_t kExponent = 0x7c00u << 13;
  Value* exponent = b.CreateAnd(bits, I32(ir, i16, kExponent));
  Value* base = b.CreateAdd(bits, I32(ir, i16, (127u - 15) << 23));
  Value* special = b.CreateAdd(base, I32(ir, i16, (128u - 16) << 23));
  Value* shifted = b.CreateAdd(base, I32(ir, i16, 1u << 23));
  Value* subnormal =
      b.CreateFSub(b.CreateBitCast(shifted, f32), b.CreateBitCast(I32(ir, i16, 113u << 23), f32));
  Value* result = b.CreateSelect(b.CreateICmpEQ(exponent, I32(ir, i16, kExponent)), special, base);
  result = b.CreateSelect(b.CreateICmpEQ(exponent, I32(ir, i16, 0)),
                          b.CreateBitCast(subnormal, wide->getType()), result);
  return b.CreateBitCast(b.CreateOr(result, sign), f32);
}

// Toward zero, saturating, to an integer of 8 or 16 bits. LLVM's own saturating conversion to these
// takes vectors apart.
Value* CastToNarrowInteger(Ir& ir, DType to, Value* a) {
  llvm::IRBuilder<>& b = ir.b();
  const double bits = static_cast<double>(SizeBytes(to) * 8);
  const double least = IsSigned(to) ? -std::exp2(bits - 1) : 0;
  const double greatest = std::exp2(IsSigned(to) ? bits - 1 : bits) - 1;
  // A comparison with NaN fails: it becomes the least value, which is to be 0.
  if (IsSigned(to)) a = b.CreateSelect(b.CreateFCmpORD(a, a), a, Ir::Constant(a, 0));
  Value* limit = Ir::Constant(a, least);
  a = b.CreateSelect(b.CreateFCmpOGT(a, limit), a, limit);
  limit = Ir::Constant(a, greatest);
  a = b.CreateSelect(b.CreateFCmpOLT(a, limit), a, limit);
  Value* wide = b.CreateFPToSI(a, Ir::Vector(b.getInt32Ty(), Ir::Lanes(a)));
  return b.CreateTrunc(wide, Ir::Vector(ir.ValueType(to), Ir::Lanes(a)));
}

Value* CastFromFloat(Ir& ir, DType from, DType to, Value* a) {
  llvm::IRBuilder<>& b = ir.b();
  if (to == DType::kBool) return b.CreateFCmpUNE(a, Ir::Constant(a, 0));
  llvm::Type* type = Ir::Vector(ir.ValueType(to), Ir::Lanes(a));
  if (IsFloat(to)) {
    if (to == DType::kF64) return from == DType::kF64 ? a : b.CreateFPExt(a, type);
    Value* f32 = from == DType::kF64 ? b.CreateFPTrunc(a, type) : a;
    return RoundNarrow(ir, to, f32);
  }
  if (SizeBytes(to) <= 2) return CastToNarrowInteger(ir, to, a);
  llvm::Intrinsic::ID convert =
      IsSigned(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
  return b.CreateIntrinsic(convert, {type, a->getType()}, {a});
}

}  // namespace

Value* NarrowBits(Ir& ir, DType dtype, Value* f32) {
  llvm::IRBuilder<>& b = ir.b();
  llvm::Type* i16 = Ir::Vector(b.getInt16Ty(), Ir::Lanes(f32));
  if (dtype == DType::kF16) {
    if (!ir.facts().f16c) return HalfBits(ir, f32);
    return b.CreateBitCast(b.CreateFPTrunc(f32, Ir::Vector(b.getHalfTy(), Ir::Lanes(f32))), i16);
  }
  Value* bits = b.CreateBitCast(f32, Ir::Vector(b.getInt32Ty(), Ir::Lanes(f32)));
  Value* high = b.CreateLShr(bits, I32(ir, f32, 16));
  Value* odd = b.CreateAnd(high, I32(ir, f32, 1));
  Value* rounded =
      b.CreateLShr(b.CreateAdd(b.CreateAdd(bits, I32(ir, f32, 0x7fff)), odd), I32(ir, f32, 16));
  Value* quiet = b.CreateOr(high, I32(ir, f32, 0x40));
  return b.CreateTrunc(b.CreateSelect(IsNan(ir, f32), quiet, rounded), i16);
}

Value* WidenBits(Ir& ir, DType dtype, Value* i16) {
  llvm::IRBuilder<>& b = ir.b();
  llvm::Type* f32 = Ir::Vector(b.getFloatTy(), Ir::Lanes(i16));
  if (dtype == DType::kF16) {
    if (!ir.facts().f16c) return HalfToF32(ir, i16);
    return b.CreateFPExt(b.CreateBitCast(i16, Ir::Vector(b.getHalfTy(), Ir::Lanes(i16))), f32);
  }
  Value* wide = b.CreateZExt(i16, Ir::Vector(b.getInt32Ty(), Ir::Lanes(i16)));
  return b.CreateBitCast(b.CreateShl(wide, I32(ir, i16, 16)), f32);
}

Value* EmitMultiplyAdd(Ir& ir, Value* a, Value* b, Value* c) {
  llvm::IRBuilder<>& builder = ir.b();
  if (!a->getType()->isFPOrFPVectorTy()) return builder.CreateAdd(builder.CreateMul(a, b), c);
  if (!ir.facts().fma) return builder.CreateFAdd(builder.CreateFMul(a, b), c);
  return builder.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

Value* EmitUnary(Ir& ir, ExprOp op, DType dtype, Value* a) {
  llvm::IRBuilder<>& b = ir.b();
  bool is_float = IsFloat(dtype);
  switch (op) {
    case ExprOp::kNeg:
      return is_float ? b.CreateFNeg(a) : b.CreateNeg(a);
    case ExprOp::kAbs:
      if (is_float) return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
      if (!IsSigned(dtype)) return a;
      return b.CreateSelect(b.CreateICmpSLT(a, Ir::Constant(a, 0)), b.CreateNeg(a), a);
    case ExprOp::kNot:
      return b.CreateNot(a);
    case ExprOp::kFloor:
      return is_float ? EmitFloor(ir, a) : a;
    case ExprOp::kCeil:
      return is_float ? b.CreateFNeg(EmitFloor(ir, b.CreateFNeg(a))) : a;
    case ExprOp::kRound:
      return is_float ? EmitRoundEven(ir, a) : a;
    case ExprOp::kTrunc:
      return is_float ? EmitTrunc(ir, a) : a;
    case ExprOp::kSqrt:
      return RoundNarrow(ir, dtype, b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a));
    case ExprOp::kIsNan:
      if (!is_float) return llvm::ConstantInt::getFalse(Ir::Vector(b.getInt1Ty(), Ir::Lanes(a)));
      return IsNan(ir, a);
    case ExprOp::kIsInf: {
      if (!is_float) return llvm::ConstantInt::getFalse(Ir::Vector(b.getInt1Ty(), Ir::Lanes(a)));
      Value* magnitude = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
      return b.CreateFCmpOEQ(magnitude, llvm::ConstantFP::getInfinity(a->getType()));
    }
    default:
      return RoundNarrow(ir, dtype, EmitMathUnary(ir, op, a));
  }
}

Value* EmitBinary(Ir& ir, ExprOp op, DType dtype, Value* a, Value* b) {
  if (op >= ExprOp::kEq && op <= ExprOp::kGe) return EmitCompare(ir, op, dtype, a, b);
  if (op == ExprOp::kMin || op == ExprOp::kMax) {
    return EmitMinMax(ir, op == ExprOp::kMax, dtype, a, b);
  }
  if (IsFloat(dtype)) return RoundNarrow(ir, dtype, EmitFloatBinary(ir, op, a, b));
  return EmitIntegerBinary(ir, op, dtype, a, b);
}

Value* EmitCast(Ir& ir, DType from, DType to, Value* a) {
  if (from == to) return a;
  if (IsFloat(from)) return CastFromFloat(ir, from, to, a);
  llvm::IRBuilder<>& b = ir.b();
  if (to == DType::kBool) return b.CreateICmpNE(a, Ir::Constant(a, 0));
  llvm::Type* type = Ir::Vector(ir.ValueType(to), Ir::Lanes(a));
  if (IsFloat(to)) {
    Value* wide = IsSigned(from) ? b.CreateSIToFP(a, type) : b.CreateUIToFP(a, type);
    return RoundNarrow(ir, to, wide);
  }
  return IsSigned(from) ? b.CreateSExtOrTrunc(a, type) : b.CreateZExtOrTrunc(a, type);
}

Value* EmitBitCast(Ir& ir, DType from, DType to, Value* a) {
  llvm::IRBuilder<>& b = ir.b();
  if (IsNarrowFloat(from)) a = NarrowBits(ir, from, a);
  if (from == DType::kBool) a = b.CreateZExt(a, Ir::Vector(b.getInt8Ty(), Ir::Lanes(a)));
  if (to == DType::kBool) return b.CreateICmpNE(a, Ir::Constant(a, 0));
  if (IsNarrowFloat(to)) return WidenBits(ir, to, a);
  return b.CreateBitCast(a, Ir::Vector(ir.ValueType(to), Ir::Lanes(a)));
}

}  // namespace stampmill
