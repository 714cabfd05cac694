#include "compiler/llvm/math.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <span>
#include <vector>

#include "base/check.h"
#include "compiler/llvm/math_tables.h"
#include "compiler/llvm/scalar_ops.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/Module.h"

namespace stampmill {
namespace {

using llvm::Value;

// A float value (scalar or vector) with arithmetic, so that formulas read as such.
struct F {
  Ir* ir;
  Value* v;

  llvm::IRBuilder<>& b() const { return ir->b(); }
  F Of(Value* value) const { return {ir, value}; }
  F Number(double value) const { return Of(Ir::Constant(v, value)); }
  bool wide() const { return v->getType()->getScalarType()->isDoubleTy(); }
  // Integers of the same size and lanes.
  llvm::Type* IntegerType() const {
    return Ir::Vector(wide() ? b().getInt64Ty() : b().getInt32Ty(), Ir::Lanes(v));
  }
  Value* Bits() const { return b().CreateBitCast(v, IntegerType()); }
  F FromBits(Value* bits) const { return Of(b().CreateBitCast(bits, v->getType())); }
  Value* Integer(int64_t value) const {
    return llvm::ConstantInt::get(IntegerType(), static_cast<uint64_t>(value), true);
  }
  F Infinity() const { return Of(llvm::ConstantFP::getInfinity(v->getType())); }
  F Nan() const { return Of(llvm::ConstantFP::getNaN(v->getType())); }
};

F operator+(F a, F b) { return a.Of(a.b().CreateFAdd(a.v, b.v)); }
F operator-(F a, F b) { return a.Of(a.b().CreateFSub(a.v, b.v)); }
F operator*(F a, F b) { return a.Of(a.b().CreateFMul(a.v, b.v)); }
F operator/(F a, F b) { return a.Of(a.b().CreateFDiv(a.v, b.v)); }
F operator-(F a) { return a.Of(a.b().CreateFNeg(a.v)); }
F operator+(F a, double b) { return a + a.Number(b); }
F operator-(F a, double b) { return a - a.Number(b); }
F operator*(F a, double b) { return a * a.Number(b); }
Value* Less(F a, F b) { return a.b().CreateFCmpOLT(a.v, b.v); }
Value* Less(F a, double b) { return Less(a, a.Number(b)); }
Value* Greater(F a, F b) { return a.b().CreateFCmpOGT(a.v, b.v); }
Value* Greater(F a, double b) { return Greater(a, a.Number(b)); }
Value* Equal(F a, F b) { return a.b().CreateFCmpOEQ(a.v, b.v); }
Value* Equal(F a, double b) { return Equal(a, a.Number(b)); }
Value* IsNan(F a) { return a.b().CreateFCmpUNO(a.v, a.v); }
F Select(Value* condition, F a, F b) { return a.Of(a.b().CreateSelect(condition, a.v, b.v)); }
F Abs(F a) { return a.Of(a.b().CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a.v)); }
F Sqrt(F a) { return a.Of(a.b().CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a.v)); }
F CopySign(F a, F sign) {
  return a.Of(a.b().CreateBinaryIntrinsic(llvm::Intrinsic::copysign, a.v, sign.v));
}
F MultiplyAdd(F a, F b, F c) { return a.Of(EmitMultiplyAdd(*a.ir, a.v, b.v, c.v)); }
F RoundEven(F a) { return a.Of(EmitRoundEven(*a.ir, a.v)); }

template <size_t kCount>
F Polynomial(F x, const double (&coefficients)[kCount]) {
  F result = x.Number(coefficients[kCount - 1]);
  for (size_t n = kCount - 1; n-- > 0;) {
    result = MultiplyAdd(result, x, x.Number(coefficients[n]));
  }
  return result;
}

// 2^n for an integer-valued n within the exponents of normal numbers.
F PowerOfTwo(F n) {
  llvm::IRBuilder<>& b = n.b();
  Value* exponent = b.CreateFPToSI(n.v, n.IntegerType());
  exponent = b.CreateAdd(exponent, n.Integer(n.wide() ? 1023 : 127));
  return n.FromBits(b.CreateShl(exponent, n.Integer(n.wide() ? 52 : 23)));
}

// --- What only AVX-512 has, for f32: sixteen lanes at a time, whatever the number of lanes is. ---

constexpr int64_t kWideLanes = 16;

bool HasWideLanes(F x) { return !x.wide() && x.ir->facts().avx512; }

// function(pieces of the values), joined.
Value* InWideLanes(llvm::IRBuilder<>& b, std::span<Value* const> values,
                   const std::function<Value*(std::span<Value* const>)>& function) {
  const int64_t lanes = Ir::Lanes(values[0]);
  const int64_t pieces = (lanes + kWideLanes - 1) / kWideLanes;
  Value* joined = nullptr;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    std::vector<Value*> parts;
    for (Value* value : values) {
      if (lanes == 1) {
        Value* none = llvm::PoisonValue::get(Ir::Vector(value->getType(), kWideLanes));
        parts.push_back(b.CreateInsertElement(none, value, uint64_t{0}));
        continue;
      }
      std::vector<int> mask(kWideLanes, llvm::PoisonMaskElem);
      for (int64_t n = 0; n < std::min(kWideLanes, lanes); ++n) {
        mask[static_cast<size_t>(n)] = static_cast<int>(piece * kWideLanes + n);
      }
      parts.push_back(lanes == kWideLanes ? value : b.CreateShuffleVector(value, mask));
    }
    Value* result = function(parts);
    if (lanes == 1) return b.CreateExtractElement(result, uint64_t{0});
    if (lanes == kWideLanes) return result;
    // Behind what is joined already: shuffles want both of one size.
    std::vector<int> mask(static_cast<size_t>(lanes), llvm::PoisonMaskElem);
    for (int64_t n = 0; n < std::min(kWideLanes, lanes); ++n) {
      mask[static_cast<size_t>(piece * kWideLanes + n)] = static_cast<int>(n);
    }
    Value* placed = b.CreateShuffleVector(result, mask);
    if (joined == nullptr) {
      joined = placed;
      continue;
    }
    for (int64_t n = 0; n < lanes; ++n) {
      mask[static_cast<size_t>(n)] = static_cast<int>(n < piece * kWideLanes ? n : lanes + n);
    }
    joined = b.CreateShuffleVector(joined, placed, mask);
  }
  return joined;
}

// numbers[index modulo 16] of each lane.
F LookUp(F like, const double (&numbers)[kWideLanes], Value* index) {
  llvm::IRBuilder<>& b = like.b();
  std::vector<llvm::Constant*> elements;
  for (const double number : numbers) {
    elements.push_back(llvm::ConstantFP::get(b.getFloatTy(), number));
  }
  llvm::Constant* table = llvm::ConstantVector::get(elements);
  return like.Of(InWideLanes(b, {{index}}, [&](std::span<Value* const> parts) -> Value* {
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {table, parts[0]});
  }));
}

// x * 2^n for an integer-valued n, rounded once.
F Scale(F x, F n) {
  llvm::IRBuilder<>& b = x.b();
  return x.Of(InWideLanes(b, {{x.v, n.v}}, [&](std::span<Value* const> parts) -> Value* {
    constexpr uint32_t kCurrentRounding = 4;
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                             {parts[0], parts[1], llvm::PoisonValue::get(parts[0]->getType()),
                              b.getInt16(0xffff), b.getInt32(kCurrentRounding)});
  }));
}

// x = n * ln 2 + r, |r| <= ln 2 / 2, n integer.
struct Reduced {
  F n, r;
};
Reduced ReduceByLn2(F x) {
  F n = RoundEven(x * 1.4426950408889634);
  F r = MultiplyAdd(n, x.Number(x.wide() ? -0x1.62e42fec00000p-1 : -0.693115234375), x);
  r = MultiplyAdd(n, x.Number(x.wide() ? -0x1.d1cf79abc9e3bp-32 : -0.000031946184945309417232), r);
  return {n, r};
}

F Expm1Reduced(F r) {
  F tail = r.wide() ? Polynomial(r, math::kExpF64) : Polynomial(r, math::kExpF32);
  return MultiplyAdd(r * r, tail, r);
}

// e^x * (1 + correction).
F Exp(F x, F correction) {
  // Past these every result is infinite or zero; NaN passes both selects.
  double most = x.wide() ? 710.5 : 89.5;
  double least = x.wide() ? -746.0 : -104.5;
  F bounded = Select(Greater(x, most), x.Number(most), x);
  bounded = Select(Less(bounded, least), x.Number(least), bounded);
  Reduced reduced = ReduceByLn2(bounded);
  F p = Expm1Reduced(reduced.r);
  if (correction.v != nullptr) p = MultiplyAdd(p + 1.0, correction, p);
  if (HasWideLanes(x)) return Scale(p + 1.0, reduced.n);
  // Two steps: 2^n alone would leave the range of normal numbers.
  F half = RoundEven(reduced.n * 0.5);
  F result = (p + 1.0) * PowerOfTwo(half) * PowerOfTwo(reduced.n - half);
  return Select(IsNan(x), x, result);
}
F Exp(F x) { return Exp(x, {x.ir, nullptr}); }

// e^x - 1.
F Expm1(F x) {
  double most = x.wide() ? 709.7 : 88.7;
  F bounded = Select(Greater(x, most), x.Number(most), x);
  bounded = Select(Less(bounded, -60), x.Number(-60), bounded);
  Reduced reduced = ReduceByLn2(bounded);
  F p = Expm1Reduced(reduced.r);
  F scale = PowerOfTwo(reduced.n);
  F result = MultiplyAdd(scale, p, scale - 1.0);
  result = Select(Greater(x, most), x.Infinity(), result);
  return Select(IsNan(x), x, result);
}

// log(x) = high + low for finite x > 0, after fdlibm's e_log.c (Sun Microsystems, 1993).
struct Pair {
  F high, low;
};
Pair LogParts(F x) {
  llvm::IRBuilder<>& b = x.b();
  int64_t mantissa_bits = x.wide() ? 52 : 23;
  // Subnormal numbers are scaled into range first.
  Value* tiny = Less(x, x.wide() ? 0x1p-1022 : 0x1p-126);
  F scaled = Select(tiny, x * (x.wide() ? 0x1p54 : 0x1p24), x);
  Value* bits = scaled.Bits();
  int64_t root_half = x.wide() ? 0x3fe6a09e667f3bcdLL : 0x3f3504f3;
  Value* exponent = b.CreateAShr(b.CreateSub(bits, x.Integer(root_half)), x.Integer(mantissa_bits));
  F m = x.FromBits(b.CreateSub(bits, b.CreateShl(exponent, x.Integer(mantissa_bits))));
  F e = x.Of(b.CreateSIToFP(exponent, x.v->getType()));
  e = Select(tiny, e - (x.wide() ? 54.0 : 24.0), e);
  F f = m - 1.0;
  F s = f / (f + 2.0);
  F z = s * s;
  F r = z * (x.wide() ? Polynomial(z, math::kLogF64) : Polynomial(z, math::kLogF32));
  F half_square = f * f * 0.5;
  // log(1 + f) = f - (half_square - s * (half_square + r)).
  F tail = s * (half_square + r) - half_square;
  F high = MultiplyAdd(e, x.Number(x.wide() ? 0x1.62e42fec00000p-1 : 0.693115234375), x.Number(0));
  F low =
      MultiplyAdd(e, x.Number(x.wide() ? 0x1.d1cf79abc9e3bp-32 : 0.000031946184945309417232), tail);
  // |e ln 2| is 0 or larger than |f|: their sum's error is exact.
  F sum = high + f;
  F error = f - (sum - high);
  F rest = error + low;
  F total = sum + rest;
  return {total, rest - (total - sum)};
}

F LogOfSpecial(F x, F result) {
  result = Select(Equal(x, 0.0), -x.Infinity(), result);
  result = Select(Equal(x, x.Infinity()), x, result);
  return Select(x.b().CreateOr(Less(x, 0.0), IsNan(x)), x.Nan(), result);
}

F Log(F x) { return LogOfSpecial(x, LogParts(x).high); }

// log(1 + x), after Kahan: the rounding of 1 + x is divided out.
F Log1p(F x) {
  F u = x + 1.0;
  F exact = Log(u) * (x / (u - 1.0));
  F result = Select(Equal(u, 1.0), x, exact);
  return Select(Equal(u, u.Infinity()), u, result);
}

F Tanh(F x) {
  F bounded = Abs(x);
  bounded = Select(Greater(bounded, 22.0), x.Number(22.0), bounded);
  F e = Expm1(bounded * 2.0);
  return Select(IsNan(x), x, CopySign(e / (e + 2.0), x));
}

// e^|x| / 2 without overflow before the result does.
F HalfExpLarge(F x) {
  F root = Exp(x * 0.5);
  return root * 0.5 * root;
}

F Sinh(F x) {
  F a = Abs(x);
  F e = Expm1(a);
  F result = (e + e / (e + 1.0)) * 0.5;
  result = Select(Greater(a, 30.0), HalfExpLarge(a), result);
  return CopySign(result, x);
}

F Cosh(F x) {
  F a = Abs(x);
  F e = Exp(a);
  F result = (e + x.Number(1.0) / e) * 0.5;
  return Select(Greater(a, 30.0), HalfExpLarge(a), result);
}

F Asinh(F x) {
  F a = Abs(x);
  F square = a * a;
  F result = Log1p(a + square / (Sqrt(square + 1.0) + 1.0));
  result = Select(Greater(a, 0x1p30), Log(a) + 0.6931471805599453, result);
  return CopySign(result, x);
}

F Acosh(F x) {
  F t = x - 1.0;
  F result = Log1p(t + Sqrt(t * (t + 2.0)));
  result = Select(Greater(x, 0x1p30), Log(x) + 0.6931471805599453, result);
  return Select(Less(x, 1.0), x.Nan(), result);
}

F Atanh(F x) {
  F a = Abs(x);
  F result = Log1p(a * 2.0 / (x.Number(1.0) - a)) * 0.5;
  return CopySign(Select(Greater(a, 1.0), x.Nan(), result), x);
}

// By pieces: a quarter's multiple n / 4 + r, |r| <= 1/8. NaN passes as r; past the last piece it is
// 1.
F ErfByPieces(F x) {
  constexpr double kQuarters = 0x1p21;  // numbers from here on are whole quarters
  constexpr double kMost = 3.8749998;
  F t = Abs(x);
  t = Select(Greater(t, kMost), x.Number(kMost), t);
  F shifted = t + kQuarters;
  F r = t - (shifted - kQuarters);
  constexpr size_t kTerms = std::size(math::kErfPiecesF32);
  F result = LookUp(x, math::kErfPiecesF32[kTerms - 1], shifted.Bits());
  for (size_t n = kTerms - 1; n-- > 0;) {
    result = MultiplyAdd(result, r, LookUp(x, math::kErfPiecesF32[n], shifted.Bits()));
  }
  return CopySign(result, x);
}

// erf(x) = 1 - 2^y for x >= 0. In f32 y = -x P(x) = n + r, and -(2^n (2^r - 1) + 2^n - 1) keeps
// small results exact; past 4 it is 1. NaN passes: as r.
F Erf(F x) {
  if (HasWideLanes(x)) return ErfByPieces(x);
  F a = Abs(x);
  F result = x;
  if (x.wide()) {
    F z = a * a;
    F t = Select(Greater(a, 6.0), x.Number(6.0), a);
    F q = Polynomial((t - 3.5) * (1 / 2.5), math::kErfTailF64);
    F large = x.Number(1.0) - Exp(-(q + t * t));
    result = Select(Less(a, 1.0), a * Polynomial(z, math::kErfSmallF64), large);
    return Select(IsNan(x), x, CopySign(result, x));
  }
  F t = Select(Greater(a, 4.0), x.Number(4.0), a);
  F y = -(t * Polynomial(t, math::kErfF32));
  F n = RoundEven(y);
  F r = y - n;
  F scale = -PowerOfTwo(Select(IsNan(n), x.Number(0.0), n));
  result = MultiplyAdd(scale, r * Polynomial(r, math::kExp2F32), scale + 1.0);
  return CopySign(result, x);
}

// --- Trigonometry: reduced by multiples of pi/2 in f64 for both types. ---

// x (f64) = n * pi/2 + r: Cody and Waite in four parts, exact products for |n| < 2^31.
Reduced ReduceByHalfPi(F x) {
  F n = RoundEven(x * 0.6366197723675813);
  F r = x - n * 0x1.921fbp+0;
  r = r - n * 0x1.5110b00000000p-22;
  r = r - n * 0x1.1846980000000p-44;
  r = r - n * 0x1.3198a2e037073p-69;
  return {n, r};
}

// The same for f32 numbers of any size, as f64: x = m * 2^e with an integer m below 2^24, and
// m * (2^e * 2/pi mod 4) is taken modulo 4 in exact parts (Payne and Hanek, 1983).
Reduced ReduceLarge(F x) {
  llvm::IRBuilder<>& b = x.b();
  Ir& ir = *x.ir;
  llvm::Type* f64 = b.getDoubleTy();
  llvm::Module& module = ir.module();
  llvm::GlobalVariable* table = module.getGlobalVariable("stampmill_two_over_pi", true);
  if (table == nullptr) {
    llvm::Constant* numbers =
        llvm::ConstantDataArray::get(module.getContext(), llvm::ArrayRef<double>(math::kTwoOverPi));
    table = new llvm::GlobalVariable(module, numbers->getType(), true,
                                     llvm::GlobalValue::InternalLinkage, numbers,
                                     "stampmill_two_over_pi");
  }
  constexpr int64_t kRows = sizeof(math::kTwoOverPi) / sizeof(double) / 3;
  Value* bits = b.CreateAnd(x.Bits(), x.Integer(0x7fffffffffffffffLL));
  Value* exponent = b.CreateSub(b.CreateLShr(bits, x.Integer(52)), x.Integer(1023 + 23));
  exponent = b.CreateSelect(b.CreateICmpSLT(exponent, x.Integer(0)), x.Integer(0), exponent);
  exponent =
      b.CreateSelect(b.CreateICmpSGE(exponent, x.Integer(kRows)), x.Integer(kRows - 1), exponent);
  F m = x * x.FromBits(b.CreateShl(b.CreateSub(x.Integer(1023), exponent), x.Integer(52)));
  int64_t lanes = Ir::Lanes(x.v);
  std::array<F, 3> parts = {x, x, x};
  for (int64_t part = 0; part < 3; ++part) {
    Value* result = lanes == 1 ? nullptr : llvm::PoisonValue::get(x.v->getType());
    for (int64_t lane = 0; lane < lanes; ++lane) {
      Value* row =
          lanes == 1 ? exponent : b.CreateExtractElement(exponent, static_cast<uint64_t>(lane));
      Value* place = ir.Add(ir.Mul(row, ir.Int(3)), ir.Int(part));
      Value* number = b.CreateLoad(f64, b.CreateGEP(f64, table, place));
      result =
          lanes == 1 ? number : b.CreateInsertElement(result, number, static_cast<uint64_t>(lane));
    }
    parts[static_cast<size_t>(part)] = x.Of(result);
  }
  F high = m * parts[0];
  high = high - RoundEven(high * 0.25) * 4.0;
  F middle = m * parts[1];
  F low = m * parts[2];
  F sum = high + middle;
  F error = middle - (sum - high);
  F n = RoundEven(sum);
  F fraction = (sum - n) + (error + low);
  return {n, fraction * 1.5707963267948966};
}

Reduced ReduceF32(F x) {
  llvm::IRBuilder<>& b = x.b();
  F wide = x.Of(b.CreateFPExt(x.v, Ir::Vector(b.getDoubleTy(), Ir::Lanes(x.v))));
  Value* large = Greater(Abs(wide), 0x1p23);
  Value* any = Ir::Lanes(x.v) == 1 ? large : b.CreateOrReduce(large);
  Reduced plain = ReduceByHalfPi(wide);
  // Rare: a loop of at most one turn.
  Ir::Values chosen =
      x.ir->For(x.ir->Int(0), b.CreateZExt(any, b.getInt64Ty()), 1, {plain.n.v, plain.r.v},
                [&](Value*, const Ir::Values&) -> Ir::Values {
                  Reduced careful = ReduceLarge(wide);
                  return {Select(large, careful.n, plain.n).v, Select(large, careful.r, plain.r).v};
                });
  return {wide.Of(chosen[0]), wide.Of(chosen[1])};
}

struct SinCos {
  F sin, cos;      // of the reduced argument
  Value* swapped;  // odd quadrant
  Value* negated;  // quadrant 2 or 3
  Value* next_negated;
};

SinCos EmitSinCos(F x) {
  llvm::IRBuilder<>& b = x.b();
  Reduced reduced = x.wide() ? ReduceByHalfPi(x) : ReduceF32(x);
  // n modulo 4 in floats: n may be larger than an integer register holds.
  F quarter = reduced.n - RoundEven(reduced.n * 0.25 - 0.375) * 4.0;
  F r = x.wide() ? reduced.r : x.Of(b.CreateFPTrunc(reduced.r.v, x.v->getType()));
  F z = r * r;
  F s = x.wide() ? Polynomial(z, math::kSinF64) : Polynomial(z, math::kSinF32);
  F c = x.wide() ? Polynomial(z, math::kCosF64) : Polynomial(z, math::kCosF32);
  F sine = MultiplyAdd(r * z, s, r);
  F cosine = MultiplyAdd(z * z, c, x.Number(1.0) - z * 0.5);
  Value* one = Equal(quarter, 1.0);
  Value* three = Equal(quarter, 3.0);
  Value* two = Equal(quarter, 2.0);
  return {sine, cosine, b.CreateOr(one, three), b.CreateOr(two, three), b.CreateOr(one, two)};
}

F NanUnlessFinite(F x, F result) { return Select(Less(Abs(x), x.Infinity()), result, x.Nan()); }

F Sin(F x) {
  SinCos parts = EmitSinCos(x);
  F value = Select(parts.swapped, parts.cos, parts.sin);
  value = Select(parts.negated, -value, value);
  // The reduction loses the sign of zero.
  return NanUnlessFinite(x, Select(Equal(x, 0.0), x, value));
}

F Cos(F x) {
  SinCos parts = EmitSinCos(x);
  F value = Select(parts.swapped, parts.sin, parts.cos);
  return NanUnlessFinite(x, Select(parts.next_negated, -value, value));
}

F Tan(F x) {
  SinCos parts = EmitSinCos(x);
  F top = Select(parts.swapped, -parts.cos, parts.sin);
  F bottom = Select(parts.swapped, parts.sin, parts.cos);
  return NanUnlessFinite(x, Select(Equal(x, 0.0), x, top / bottom));
}

// |t| <= tan(pi/8).
F AtanSmall(F t) {
  F z = t * t;
  F p = t.wide() ? Polynomial(z, math::kAtanF64) : Polynomial(z, math::kAtanF32);
  return MultiplyAdd(t * z, p, t);
}

// Of a >= 0.
F AtanPositive(F a) {
  Value* large = Greater(a, 2.414213562373095);
  Value* middle = Greater(a, 0.41421356237309503);
  F top = Select(large, a.Number(-1.0), Select(middle, a - 1.0, a));
  F bottom = Select(large, a, Select(middle, a + 1.0, a.Number(1.0)));
  F base = Select(large, a.Number(1.5707963267948966),
                  Select(middle, a.Number(0.7853981633974483), a.Number(0.0)));
  F result = base + AtanSmall(top / bottom);
  return Select(Equal(a, a.Infinity()), a.Number(1.5707963267948966), result);
}

F Atan(F x) { return Select(IsNan(x), x, CopySign(AtanPositive(Abs(x)), x)); }

F Atan2(F y, F x) {
  F ay = Abs(y);
  F ax = Abs(x);
  Value* steep = Greater(ay, ax);
  F small = Select(steep, ax, ay);
  F large = Select(steep, ay, ax);
  F ratio = small / large;
  ratio = Select(Equal(large, 0.0), x.Number(0.0), ratio);
  ratio = Select(Equal(small, small.Infinity()), x.Number(1.0), ratio);
  F angle = AtanPositive(ratio);
  angle = Select(steep, x.Number(1.5707963267948966) - angle, angle);
  // By the sign bit: atan2(+0, -0) is pi.
  Value* left = Less(CopySign(x.Number(1.0), x), 0.0);
  angle = Select(left, x.Number(3.141592653589793) - angle, angle);
  F result = CopySign(angle, y);
  return Select(x.b().CreateFCmpUNO(x.v, y.v), x.Nan(), result);
}

F AsinSmall(F x) {
  F z = x * x;
  F p = x.wide() ? Polynomial(z, math::kAsinF64) : Polynomial(z, math::kAsinF32);
  return MultiplyAdd(x * z, p, x);
}

// asin and acos share: |x| <= 1/2 directly, else through 2 asin(sqrt((1 - |x|) / 2)).
F Asin(F x) {
  F a = Abs(x);
  Value* large = Greater(a, 0.5);
  F root = Sqrt((x.Number(1.0) - a) * 0.5);
  F small = AsinSmall(Select(large, root, a));
  F result = Select(large, x.Number(1.5707963267948966) - small * 2.0, small);
  return CopySign(result, x);
}

F Acos(F x) {
  F a = Abs(x);
  Value* large = Greater(a, 0.5);
  F root = Sqrt((x.Number(1.0) - a) * 0.5);
  F small = AsinSmall(Select(large, root, x));
  F outer = Select(Less(x, 0.0), x.Number(3.141592653589793) - small * 2.0, small * 2.0);
  return Select(large, outer, x.Number(1.5707963267948966) - small);
}

// The product y * (high + low) as a pair, for pow: a relative error of 1e-16 in the logarithm
// would be multiplied by up to 700.
Pair MultiplyPair(F y, Pair x) {
  F p = y * x.high;
  F error = p;
  if (y.ir->facts().fma) {
    error = MultiplyAdd(y, x.high, -p);
  } else {
    // Dekker's product with Veltkamp's split.
    auto split = [](F value) {
      F c = value * 134217729.0;
      F high = c - (c - value);
      return Pair{high, value - high};
    };
    Pair a = split(y);
    Pair b = split(x.high);
    error = ((a.high * b.high - p) + a.high * b.low + a.low * b.high) + a.low * b.low;
  }
  return {p, error + y * x.low};
}

F Pow(F x, F y) {
  llvm::IRBuilder<>& b = x.b();
  F a = Abs(x);
  Pair log = LogParts(a);
  log.high = LogOfSpecial(a, log.high);
  Pair product = MultiplyPair(y, log);
  // The low part only matters, and is only a number, where the high part is in range.
  F low = Select(Less(Abs(product.high), 800.0), product.low, x.Number(0.0));
  F result = Exp(product.high, low);
  result = Select(b.CreateOr(Equal(y, 0.0), Equal(a, 1.0)), x.Number(1.0), result);
  F floor = x.Of(EmitFloor(*x.ir, y.v));
  Value* whole = Equal(floor, y);
  F half = y * 0.5;
  Value* odd = b.CreateAnd(whole, b.CreateFCmpUNE(half.v, EmitFloor(*x.ir, half.v)));
  Value* negative = Less(CopySign(x.Number(1.0), x), 0.0);
  result = Select(b.CreateAnd(negative, odd), -result, result);
  Value* no_root =
      b.CreateAnd(b.CreateAnd(Less(x, 0.0), b.CreateNot(whole)), Less(a, a.Infinity()));
  result = Select(no_root, x.Nan(), result);
  // NaN in, NaN out, but for pow(1, NaN) and pow(NaN, 0).
  Value* number = b.CreateOr(Equal(x, 1.0), Equal(y, 0.0));
  Value* nan = b.CreateAnd(b.CreateFCmpUNO(x.v, y.v), b.CreateNot(number));
  return Select(nan, x.Nan(), result);
}

F MathUnary(ExprOp op, F x) {
  switch (op) {
    case ExprOp::kExp:
      return Exp(x);
    case ExprOp::kLog:
      return Log(x);
    case ExprOp::kSin:
      return Sin(x);
    case ExprOp::kCos:
      return Cos(x);
    case ExprOp::kTan:
      return Tan(x);
    case ExprOp::kAsin:
      return Asin(x);
    case ExprOp::kAcos:
      return Acos(x);
    case ExprOp::kAtan:
      return Atan(x);
    case ExprOp::kSinh:
      return Sinh(x);
    case ExprOp::kCosh:
      return Cosh(x);
    case ExprOp::kTanh:
      return Tanh(x);
    case ExprOp::kAsinh:
      return Asinh(x);
    case ExprOp::kAcosh:
      return Acosh(x);
    case ExprOp::kAtanh:
      return Atanh(x);
    case ExprOp::kErf:
      return Erf(x);
    default:
      CHECK(false) << "no function: " << static_cast<int>(op);
      return x;
  }
}

// Functions whose f32 form is computed in f64: rare, and the identities they rest on cost ulps.
bool IsComputedWide(ExprOp op) {
  switch (op) {
    case ExprOp::kSinh:
    case ExprOp::kCosh:
    case ExprOp::kAsinh:
    case ExprOp::kAcosh:
    case ExprOp::kAtanh:
      return true;
    default:
      return false;
  }
}

F Widen(F x) {
  return x.Of(x.b().CreateFPExt(x.v, Ir::Vector(x.b().getDoubleTy(), Ir::Lanes(x.v))));
}

Value* Narrow(F x) {
  return x.b().CreateFPTrunc(x.v, Ir::Vector(x.b().getFloatTy(), Ir::Lanes(x.v)));
}

// Small constant powers that models use; null for others.
Value* EmitConstantPow(F x, const llvm::APFloat& y) {
  if (y.isExactlyValue(1.0)) return x.v;
  if (y.isExactlyValue(2.0)) return (x * x).v;
  if (y.isExactlyValue(-1.0)) return (x.Number(1.0) / x).v;
  return nullptr;
}

}  // namespace

Value* EmitMathUnary(Ir& ir, ExprOp op, Value* x) {
  F value = {&ir, x};
  if (!value.wide() && IsComputedWide(op)) return Narrow(MathUnary(op, Widen(value)));
  return MathUnary(op, value).v;
}

Value* EmitPow(Ir& ir, Value* x, Value* y) {
  F base = {&ir, x};
  F exponent = {&ir, y};
  auto* constant = llvm::dyn_cast<llvm::Constant>(y);
  if (constant != nullptr && constant->getType()->isVectorTy()) {
    constant = constant->getSplatValue();
  }
  if (auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant)) {
    if (Value* simple = EmitConstantPow(base, number->getValueAPF())) return simple;
  }
  if (base.wide()) return Pow(base, exponent).v;
  return Narrow(Pow(Widen(base), Widen(exponent)));
}

Value* EmitAtan2(Ir& ir, Value* y, Value* x) {
  F top = {&ir, y};
  F bottom = {&ir, x};
  if (top.wide()) return Atan2(top, bottom).v;
  return Narrow(Atan2(Widen(top), Widen(bottom)));
}

Value* EmitRoundEven(Ir& ir, Value* x) {
  if (ir.facts().vector_bytes >= 32) {
    return ir.b().CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
  }
  // Adding and taking away 2^52 (2^23) rounds in the current mode, which is to nearest even.
  F value = {&ir, x};
  double magic = value.wide() ? 0x1p52 : 0x1p23;
  F a = Abs(value);
  F rounded = (a + magic) - magic;
  return Select(Less(a, magic), CopySign(rounded, value), value).v;
}

Value* EmitFloor(Ir& ir, Value* x) {
  if (ir.facts().vector_bytes >= 32) {
    return ir.b().CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
  }
  F value = {&ir, x};
  F rounded = RoundEven(value);
  F lowered = Select(Greater(rounded, value), rounded - 1.0, rounded);
  return CopySign(lowered, value).v;
}

Value* EmitTrunc(Ir& ir, Value* x) {
  if (ir.facts().vector_bytes >= 32) {
    return ir.b().CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
  }
  F value = {&ir, x};
  F a = Abs(value);
  F rounded = RoundEven(a);
  return CopySign(Select(Greater(rounded, a), rounded - 1.0, rounded), value).v;
}

// Long division of the mantissas, bit by bit, after the method of musl's fmod; f32 is exact in f64.
Value* EmitFmod(Ir& ir, Value* x, Value* y) {
  F top = {&ir, x};
  if (!top.wide()) return Narrow({&ir, EmitFmod(ir, Widen(top).v, Widen({&ir, y}).v)});
  llvm::IRBuilder<>& b = ir.b();
  F bottom = {&ir, y};
  struct Parts {
    Value* mantissa;  // normalised: bit 52 set, unless the number is zero
    Value* exponent;
  };
  auto take_apart = [&](F value) -> Parts {
    Value* bits = Abs(value).Bits();
    Value* exponent = b.CreateLShr(bits, value.Integer(52));
    Value* fraction = b.CreateAnd(bits, value.Integer((int64_t{1} << 52) - 1));
    Value* normal = b.CreateICmpNE(exponent, value.Integer(0));
    Value* zeros = b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, fraction, b.getFalse());
    Value* shift = b.CreateSub(zeros, value.Integer(11));
    shift = b.CreateAnd(shift, value.Integer(63));
    Value* full = b.CreateOr(fraction, value.Integer(int64_t{1} << 52));
    return {b.CreateSelect(normal, full, b.CreateShl(fraction, shift)),
            b.CreateSelect(normal, exponent, b.CreateSub(value.Integer(1), shift))};
  };
  Parts a = take_apart(top);
  Parts d = take_apart(bottom);
  auto subtract = [&](Value* mantissa) {
    Value* less = b.CreateSub(mantissa, d.mantissa);
    return b.CreateSelect(b.CreateICmpSLT(less, top.Integer(0)), mantissa, less);
  };
  Value* distance = b.CreateSub(a.exponent, d.exponent);
  Value* turns = Ir::Lanes(x) == 1 ? distance : b.CreateIntMaxReduce(distance, true);
  Ir::Values rest = ir.For(ir.Int(0), turns, 1, {a.mantissa, distance},
                           [&](Value*, const Ir::Values& now) -> Ir::Values {
                             Value* active = b.CreateICmpSGT(now[1], top.Integer(0));
                             Value* next = b.CreateShl(subtract(now[0]), top.Integer(1));
                             return {b.CreateSelect(active, next, now[0]),
                                     b.CreateSub(now[1], b.CreateZExt(active, now[1]->getType()))};
                           });
  Value* mantissa = subtract(rest[0]);
  // mantissa * 2^(exponent - 1075), in two exact steps for subnormal results.
  F number = top.Of(b.CreateSIToFP(mantissa, x->getType()));
  F exponent = top.Of(b.CreateSIToFP(d.exponent, x->getType())) - 1075.0;
  F half = top.Of(EmitFloor(ir, (exponent * 0.5).v));
  F result = number * PowerOfTwo(half) * PowerOfTwo(exponent - half);
  result = Select(Less(Abs(top), Abs(bottom)), top, CopySign(result, top));
  Value* defined =
      b.CreateAnd(Less(Abs(top), top.Infinity()), b.CreateFCmpONE(bottom.v, top.Number(0.0).v));
  return Select(defined, result, top.Nan()).v;
}

}  // namespace stampmill
