#include "compiler/llvm/block_tile.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "compiler/llvm/scalar_ops.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace stampmill {
namespace {

using Dot = BlockSchedule::Dot;
using Values = Ir::Values;

constexpr int64_t kLineBytes = 64;
// A tile of one row reads a stream and fetches so far ahead of itself.
constexpr int64_t kStreamAhead = 4096;

// Scales and minimums of a run, for each panel.
struct RunFactors {
  Values scales, minimums;
};

class BlockTile {
 public:
  BlockTile(Ir& ir, const BlockLayout& layout, const BlockSchedule& schedule, int64_t k,
            BlockTileShape shape)
      : ir_(ir),
        b_(ir.b()),
        layout_(layout),
        facts_(layout.facts()),
        schedule_(schedule),
        shape_(shape),
        blocks_(k / facts_.elements),
        panel_bytes_(blocks_ * layout.block_bytes) {}

  void Emit();

 private:
  // Of one group: where its row records and its panels' blocks and codes lie.
  struct Place {
    llvm::Value* record = nullptr;  // offset in bytes from a row's beginning
    llvm::Value* block = nullptr;   // offsets from a panel's beginning
    llvm::Value* subs = nullptr;
    llvm::Value* codes = nullptr;
  };
  Values Group(const Place& place, const RunFactors& block, const Values& sums);
  void AddRun(const Place& place, int64_t run, const RunFactors& factors, Values& sums);
  void AddRunExactly(const Place& place, int64_t run, const RunFactors& factors, Values& sums);
  Values DotFours(const Place& place, int64_t run);
  Values DotBytes(const Place& place, int64_t run);
  Values DotPairs(const Place& place, int64_t run);

  RunFactors BlockFactors(llvm::Value* block);
  RunFactors FactorsOfRun(const Place& place, int64_t run, const RunFactors& block);
  llvm::Value* Codes(const Place& place, int64_t panel, int64_t quad);
  llvm::Value* Field(const Place& place, int64_t panel, int64_t quad, int64_t at, int64_t bits);
  llvm::Value* LookUp(llvm::Value* codes);
  void Fetch(llvm::Value* place);

  llvm::Value* At(llvm::Value* base, llvm::Value* offset) {
    return b_.CreateGEP(b_.getInt8Ty(), base, offset);
  }
  llvm::Value* InPanel(int64_t panel, llvm::Value* offset) {
    return At(panel_, ir_.Add(offset, ir_.Int(panel * panel_bytes_)));
  }
  llvm::Value* InRow(int64_t row, llvm::Value* record, int64_t offset) {
    return At(rows_, ir_.Add(record, ir_.Int(row * schedule_.row_bytes + offset)));
  }
  llvm::Value* Load(llvm::Type* type, llvm::Value* address) {
    return b_.CreateAlignedLoad(type, address, llvm::Align(1));
  }
  // Four bytes of a row for all lanes, as bytes.
  llvm::Value* SplatWord(llvm::Value* address) {
    return ir_.Splat(Load(b_.getInt32Ty(), address), lanes());
  }
  llvm::Value* SplatFloat(llvm::Value* address) {
    return ir_.Splat(Load(b_.getFloatTy(), address), lanes());
  }
  int64_t lanes() const { return layout_.panel; }
  llvm::Type* Words() { return Ir::Vector(b_.getInt32Ty(), lanes()); }
  llvm::Type* Halves() { return Ir::Vector(b_.getInt16Ty(), 2 * lanes()); }
  llvm::Type* Bytes() { return Ir::Vector(b_.getInt8Ty(), 4 * lanes()); }
  llvm::Type* Floats() { return Ir::Vector(b_.getFloatTy(), lanes()); }

  // An intrinsic of whole registers on vectors of any number of them; by width in bytes.
  struct ByWidth {
    llvm::Intrinsic::ID of16, of32, of64;
  };
  llvm::Value* Apply(const ByWidth& ids, const Values& operands);
  llvm::Value* Piece(llvm::Value* vector, int64_t number, int64_t count);
  llvm::Value* MultiplyPairs(llvm::Value* a, llvm::Value* b) {
    return Apply({llvm::Intrinsic::x86_sse2_pmadd_wd, llvm::Intrinsic::x86_avx2_pmadd_wd,
                  llvm::Intrinsic::x86_avx512_pmaddw_d_512},
                 {a, b});
  }

  // Offset of a record's scale, and of what its runs have beside it.
  int64_t ScaleAt() const { return kBlockGroup * (schedule_.dot == Dot::kPairs ? 2 : 1); }
  int64_t ExtraAt(int64_t run) const { return ScaleAt() + 4 + 4 * run; }
  int64_t QuadsOfRun() const { return facts_.run / 4; }
  size_t Sum(int64_t row, int64_t panel) const {
    return static_cast<size_t>(row * shape_.panels + panel);
  }

  Ir& ir_;
  llvm::IRBuilder<>& b_;
  const BlockLayout& layout_;
  const BlockFacts& facts_;
  const BlockSchedule& schedule_;
  const BlockTileShape shape_;
  const int64_t blocks_;
  const int64_t panel_bytes_;
  llvm::Value* rows_ = nullptr;
  llvm::Value* panel_ = nullptr;
  llvm::Value* ahead_ = nullptr;
};

void BlockTile::Emit() {
  rows_ = ir_.function()->getArg(0);
  panel_ = ir_.function()->getArg(1);
  ahead_ = ir_.function()->getArg(2);
  llvm::Value* out = ir_.function()->getArg(3);
  const int64_t groups = layout_.groups_per_block();
  Values sums(static_cast<size_t>(shape_.rows * shape_.panels),
              llvm::Constant::getNullValue(Floats()));
  sums = ir_.For(ir_.Int(0), ir_.Int(blocks_), 1, sums, [&](llvm::Value* n, const Values& now) {
    Place place;
    place.block = ir_.Mul(n, ir_.Int(layout_.block_bytes));
    const RunFactors factors = BlockFactors(place.block);
    llvm::Value* first = ir_.Mul(n, ir_.Int(groups * schedule_.record_bytes));
    return ir_.For(ir_.Int(0), ir_.Int(groups), 1, now, [&](llvm::Value* g, const Values& inner) {
      place.record = ir_.Add(first, ir_.Mul(g, ir_.Int(schedule_.record_bytes)));
      place.subs = ir_.Add(ir_.Add(place.block, ir_.Int(layout_.subs_at)),
                           ir_.Mul(g, ir_.Int(layout_.group_subs_bytes)));
      place.codes = ir_.Add(ir_.Add(place.block, ir_.Int(layout_.codes_at)),
                            ir_.Mul(g, ir_.Int(layout_.group_codes_bytes)));
      // Even pieces of the block.
      Fetch(ir_.Add(place.block, ir_.Mul(g, ir_.Int(layout_.block_bytes / groups))));
      return Group(place, factors, inner);
    });
  });
  for (size_t n = 0; n < sums.size(); ++n) {
    llvm::Value* to = At(out, ir_.Int(static_cast<int64_t>(n) * lanes() * 4));
    b_.CreateAlignedStore(sums[n], to, llvm::Align(4));
  }
  b_.CreateRetVoid();
}

// One row reads memory: its own panel, on. More rows compute: the panels after these, if their
// caller wants it.
void BlockTile::Fetch(llvm::Value* place) {
  const auto fetch = [&](llvm::Value* base, int64_t bytes, uint32_t locality) {
    for (int64_t at = 0; at < bytes; at += kLineBytes) {
      b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                         {At(base, ir_.Add(place, ir_.Int(at))), b_.getInt32(0),
                          b_.getInt32(locality), b_.getInt32(1)});
    }
  };
  const int64_t bytes = layout_.block_bytes / layout_.groups_per_block();
  if (shape_.rows == 1) {
    fetch(At(panel_, ir_.Int(kStreamAhead)), bytes, 0);
    return;
  }
  llvm::Value* wanted = b_.CreateIsNotNull(ahead_);
  ir_.If(wanted, [&] {
    for (int64_t panel = 0; panel < shape_.panels; ++panel) {
      fetch(At(ahead_, ir_.Int(panel * panel_bytes_)), bytes, 3);
    }
  });
}

Values BlockTile::Group(const Place& place, const RunFactors& block, const Values& sums) {
  Values result = sums;
  for (int64_t run = 0; run < layout_.runs_per_group(); ++run) {
    const RunFactors factors = FactorsOfRun(place, run, block);
    if (schedule_.dot == Dot::kExact) {
      AddRunExactly(place, run, factors, result);
    } else {
      AddRun(place, run, factors, result);
    }
  }
  return result;
}

void BlockTile::AddRun(const Place& place, int64_t run, const RunFactors& factors, Values& sums) {
  const Values dots = schedule_.dot == Dot::kFours   ? DotFours(place, run)
                      : schedule_.dot == Dot::kBytes ? DotBytes(place, run)
                                                     : DotPairs(place, run);
  for (int64_t row = 0; row < shape_.rows; ++row) {
    llvm::Value* scale = SplatFloat(InRow(row, place.record, ScaleAt()));
    llvm::Value* sum_scale = nullptr;
    if (facts_.has_minimum) sum_scale = SplatFloat(InRow(row, place.record, ExtraAt(run)));
    for (int64_t panel = 0; panel < shape_.panels; ++panel) {
      llvm::Value*& sum = sums[Sum(row, panel)];
      llvm::Value* dot = b_.CreateSIToFP(dots[Sum(row, panel)], Floats());
      const auto p = static_cast<size_t>(panel);
      sum = EmitExactFma(ir_, dot, b_.CreateFMul(factors.scales[p], scale), sum);
      if (facts_.has_minimum) sum = EmitExactFma(ir_, factors.minimums[p], sum_scale, sum);
    }
  }
}

// Weights become f32; each is added on its own.
void BlockTile::AddRunExactly(const Place& place, int64_t run, const RunFactors& factors,
                              Values& sums) {
  for (int64_t quad = run * QuadsOfRun(); quad < (run + 1) * QuadsOfRun(); ++quad) {
    Values codes;
    for (int64_t panel = 0; panel < shape_.panels; ++panel) {
      codes.push_back(b_.CreateBitCast(Codes(place, panel, quad), Words()));
    }
    for (int64_t e = 0; e < 4; ++e) {
      for (int64_t panel = 0; panel < shape_.panels; ++panel) {
        const auto p = static_cast<size_t>(panel);
        llvm::Value* code = codes[p];
        if (e > 0)
          code = b_.CreateLShr(code, llvm::ConstantInt::get(Words(), 8 * static_cast<uint64_t>(e)));
        code = b_.CreateAnd(code, llvm::ConstantInt::get(Words(), 255));
        code =
            b_.CreateSub(code, llvm::ConstantInt::get(Words(), static_cast<uint64_t>(facts_.zero)));
        llvm::Value* w = b_.CreateFMul(b_.CreateSIToFP(code, Floats()), factors.scales[p]);
        if (facts_.has_minimum) w = b_.CreateFAdd(w, factors.minimums[p]);
        for (int64_t row = 0; row < shape_.rows; ++row) {
          llvm::Value* a = SplatFloat(InRow(row, place.record, 4 * (4 * quad + e)));
          llvm::Value*& sum = sums[Sum(row, panel)];
          sum = EmitExactFma(ir_, a, w, sum);
        }
      }
    }
  }
}

// --- Sums of products of integers ---

Values BlockTile::DotFours(const Place& place, int64_t run) {
  static constexpr ByWidth kProducts = {llvm::Intrinsic::x86_avx512_vpdpbusd_128,
                                        llvm::Intrinsic::x86_avx512_vpdpbusd_256,
                                        llvm::Intrinsic::x86_avx512_vpdpbusd_512};
  Values dots;
  for (int64_t row = 0; row < shape_.rows; ++row) {
    llvm::Value* start = facts_.zero == 0 ? llvm::Constant::getNullValue(Words())
                                          : SplatWord(InRow(row, place.record, ExtraAt(run)));
    dots.insert(dots.end(), static_cast<size_t>(shape_.panels), start);
  }
  for (int64_t quad = run * QuadsOfRun(); quad < (run + 1) * QuadsOfRun(); ++quad) {
    Values codes;
    for (int64_t panel = 0; panel < shape_.panels; ++panel) {
      codes.push_back(b_.CreateBitCast(Codes(place, panel, quad), Words()));
    }
    for (int64_t row = 0; row < shape_.rows; ++row) {
      llvm::Value* word = SplatWord(InRow(row, place.record, 4 * quad));
      for (int64_t panel = 0; panel < shape_.panels; ++panel) {
        llvm::Value*& dot = dots[Sum(row, panel)];
        dot = Apply(kProducts, {dot, codes[static_cast<size_t>(panel)], word});
      }
    }
  }
  return dots;
}

// Pairs of products are added in i16 as long as they fit.
Values BlockTile::DotBytes(const Place& place, int64_t run) {
  static constexpr ByWidth kProducts = {llvm::Intrinsic::x86_ssse3_pmadd_ub_sw_128,
                                        llvm::Intrinsic::x86_avx2_pmadd_ub_sw,
                                        llvm::Intrinsic::x86_avx512_pmaddubs_w_512};
  const int64_t together = BlockSumsInI16(layout_.format);
  llvm::Constant* ones = llvm::ConstantInt::get(Halves(), 1);
  Values dots, partial(static_cast<size_t>(shape_.rows * shape_.panels), nullptr);
  for (int64_t row = 0; row < shape_.rows; ++row) {
    llvm::Value* start =
        facts_.zero == 0 ? nullptr : SplatWord(InRow(row, place.record, ExtraAt(run)));
    dots.insert(dots.end(), static_cast<size_t>(shape_.panels), start);
  }
  for (int64_t n = 0; n < QuadsOfRun(); ++n) {
    const int64_t quad = run * QuadsOfRun() + n;
    Values codes;
    for (int64_t panel = 0; panel < shape_.panels; ++panel) {
      codes.push_back(Codes(place, panel, quad));
    }
    const bool ends = (n + 1) % together == 0 || n + 1 == QuadsOfRun();
    for (int64_t row = 0; row < shape_.rows; ++row) {
      llvm::Value* word = b_.CreateBitCast(SplatWord(InRow(row, place.record, 4 * quad)), Bytes());
      for (int64_t panel = 0; panel < shape_.panels; ++panel) {
        llvm::Value* pairs = Apply(kProducts, {codes[static_cast<size_t>(panel)], word});
        llvm::Value*& sum = partial[Sum(row, panel)];
        sum = sum == nullptr ? pairs : b_.CreateAdd(sum, pairs);
        if (!ends) continue;
        llvm::Value*& dot = dots[Sum(row, panel)];
        llvm::Value* wide = MultiplyPairs(sum, ones);
        dot = dot == nullptr ? wide : b_.CreateAdd(dot, wide);
        sum = nullptr;
      }
    }
  }
  return dots;
}

// The bytes at even places of each four, then those at odd ones, as i16.
Values BlockTile::DotPairs(const Place& place, int64_t run) {
  Values dots;
  for (int64_t row = 0; row < shape_.rows; ++row) {
    llvm::Value* start = facts_.zero == 0 ? llvm::Constant::getNullValue(Words())
                                          : SplatWord(InRow(row, place.record, ExtraAt(run)));
    dots.insert(dots.end(), static_cast<size_t>(shape_.panels), start);
  }
  for (int64_t quad = run * QuadsOfRun(); quad < (run + 1) * QuadsOfRun(); ++quad) {
    for (int64_t panel = 0; panel < shape_.panels; ++panel) {
      llvm::Value* codes = b_.CreateBitCast(Codes(place, panel, quad), Halves());
      llvm::Value* halves[] = {b_.CreateAnd(codes, llvm::ConstantInt::get(Halves(), 255)),
                               b_.CreateLShr(codes, llvm::ConstantInt::get(Halves(), 8))};
      for (int64_t row = 0; row < shape_.rows; ++row) {
        llvm::Value*& dot = dots[Sum(row, panel)];
        for (int64_t odd = 0; odd < 2; ++odd) {
          llvm::Value* word = SplatWord(InRow(row, place.record, 8 * quad + 4 * odd));
          llvm::Value* products = MultiplyPairs(b_.CreateBitCast(word, Halves()), halves[odd]);
          dot = b_.CreateAdd(dot, products);
        }
      }
    }
  }
  return dots;
}

// --- What panels hold ---

// f32 of the block's scales and minimums.
RunFactors BlockTile::BlockFactors(llvm::Value* block) {
  RunFactors factors;
  const auto halves = [&](int64_t panel, int64_t at) {
    llvm::Type* type = Ir::Vector(b_.getInt16Ty(), lanes());
    llvm::Value* bits = Load(type, InPanel(panel, ir_.Add(block, ir_.Int(at))));
    return WidenBits(ir_, DType::kF16, bits);
  };
  for (int64_t panel = 0; panel < shape_.panels; ++panel) {
    if (layout_.format == BlockFormat::kMXFP4) {
      llvm::Value* bytes = Load(Ir::Vector(b_.getInt8Ty(), lanes()), InPanel(panel, block));
      llvm::Value* exponent = b_.CreateZExt(bytes, Words());
      const auto number = [&](uint64_t value) { return llvm::ConstantInt::get(Words(), value); };
      llvm::Value* small = b_.CreateShl(number(0x00200000), b_.CreateAnd(exponent, number(1)));
      llvm::Value* normal = b_.CreateShl(b_.CreateSub(exponent, number(1)), number(23));
      llvm::Value* bits = b_.CreateSelect(b_.CreateICmpULT(exponent, number(2)), small, normal);
      factors.scales.push_back(b_.CreateBitCast(bits, Floats()));
      continue;
    }
    factors.scales.push_back(halves(panel, 0));
    if (facts_.has_minimum) factors.minimums.push_back(halves(panel, layout_.minimums_at));
  }
  return factors;
}

RunFactors BlockTile::FactorsOfRun(const Place& place, int64_t run, const RunFactors& block) {
  if (!facts_.has_sub_scales) return block;
  RunFactors factors;
  llvm::Type* bytes = Ir::Vector(b_.getInt8Ty(), lanes());
  const auto number = [&](uint64_t value) { return llvm::ConstantInt::get(bytes, value); };
  for (int64_t panel = 0; panel < shape_.panels; ++panel) {
    const auto p = static_cast<size_t>(panel);
    llvm::Value* at = ir_.Add(place.subs, ir_.Int(run * lanes()));
    llvm::Value* sub = Load(bytes, InPanel(panel, at));
    llvm::Value* scale = layout_.nibble_subs ? b_.CreateAnd(sub, number(15)) : sub;
    llvm::Value* real = b_.CreateSIToFP(b_.CreateSExt(scale, Words()), Floats());
    factors.scales.push_back(b_.CreateFMul(block.scales[p], real));
    if (!facts_.has_minimum) continue;
    llvm::Value* minimum =
        layout_.nibble_subs
            ? b_.CreateLShr(sub, number(4))
            : Load(bytes, InPanel(panel, ir_.Add(at, ir_.Int(layout_.sub_minimums_at))));
    llvm::Value* wide = b_.CreateSIToFP(b_.CreateZExt(minimum, Words()), Floats());
    factors.minimums.push_back(b_.CreateFNeg(b_.CreateFMul(block.minimums[p], wide)));
  }
  return factors;
}

// Codes of a quad, or what they stand for: unsigned bytes, four a lane.
llvm::Value* BlockTile::Codes(const Place& place, int64_t panel, int64_t quad) {
  llvm::Value* codes = Field(place, panel, quad, 0, layout_.low_bits);
  if (layout_.high_bits > 0) {
    llvm::Value* high =
        Field(place, panel, quad, layout_.plane_bytes(layout_.low_bits), layout_.high_bits);
    // What is moved stays within its byte.
    llvm::Value* moved =
        b_.CreateShl(b_.CreateBitCast(high, Halves()),
                     llvm::ConstantInt::get(Halves(), static_cast<uint64_t>(layout_.low_bits)));
    codes = b_.CreateOr(codes, b_.CreateBitCast(moved, Bytes()));
  }
  return facts_.values.empty() ? codes : LookUp(codes);
}

// The bits that one plane has of a quad's codes.
llvm::Value* BlockTile::Field(const Place& place, int64_t panel, int64_t quad, int64_t at,
                              int64_t bits) {
  llvm::Value* offset = ir_.Add(place.codes, ir_.Int(at + quad % bits * 4 * lanes()));
  llvm::Value* vector = Load(Bytes(), InPanel(panel, offset));
  if (bits == 8) return vector;
  const auto shift = static_cast<uint64_t>(quad / bits * bits);
  if (shift > 0) {
    llvm::Value* halves = b_.CreateBitCast(vector, Halves());
    halves = b_.CreateLShr(halves, llvm::ConstantInt::get(Halves(), shift));
    vector = b_.CreateBitCast(halves, Bytes());
  }
  return b_.CreateAnd(vector, llvm::ConstantInt::get(Bytes(), (uint64_t{1} << bits) - 1));
}

llvm::Value* BlockTile::LookUp(llvm::Value* codes) {
  if (ir_.facts().vector_bytes == 16) {  // no instruction that looks up bytes
    llvm::Value* result = llvm::ConstantInt::get(Bytes(), facts_.values[0]);
    for (uint64_t code = 1; code < 16; ++code) {
      llvm::Value* is = b_.CreateICmpEQ(codes, llvm::ConstantInt::get(Bytes(), code));
      result = b_.CreateSelect(is, llvm::ConstantInt::get(Bytes(), facts_.values[code]), result);
    }
    return result;
  }
  static constexpr ByWidth kShuffle = {llvm::Intrinsic::x86_ssse3_pshuf_b_128,
                                       llvm::Intrinsic::x86_avx2_pshuf_b,
                                       llvm::Intrinsic::x86_avx512_pshuf_b_512};
  std::vector<uint8_t> table;
  for (int64_t n = 0; n < 4 * lanes(); ++n) {
    table.push_back(facts_.values[static_cast<size_t>(n % 16)]);
  }
  return Apply(kShuffle, {llvm::ConstantDataVector::get(ir_.context(), table), codes});
}

llvm::Value* BlockTile::Piece(llvm::Value* vector, int64_t number, int64_t count) {
  const int64_t length = Ir::Lanes(vector) / count;
  std::vector<int> picks;
  for (int64_t n = 0; n < length; ++n) picks.push_back(static_cast<int>(number * length + n));
  return b_.CreateShuffleVector(vector, picks);
}

llvm::Value* BlockTile::Apply(const ByWidth& ids, const Values& operands) {
  const int64_t bytes = 4 * lanes();
  const int64_t width = std::min(bytes, ir_.facts().vector_bytes);
  const llvm::Intrinsic::ID id = width == 64 ? ids.of64 : width == 32 ? ids.of32 : ids.of16;
  const int64_t count = bytes / width;
  Values pieces;
  for (int64_t n = 0; n < count; ++n) {
    Values parts;
    for (llvm::Value* operand : operands) {
      parts.push_back(count == 1 ? operand : Piece(operand, n, count));
    }
    pieces.push_back(b_.CreateIntrinsic(id, {}, parts));
  }
  while (pieces.size() > 1) {
    Values joined;
    for (size_t n = 0; n < pieces.size(); n += 2) {
      std::vector<int> picks;
      for (int i = 0; i < 2 * static_cast<int>(Ir::Lanes(pieces[n])); ++i) picks.push_back(i);
      joined.push_back(b_.CreateShuffleVector(pieces[n], pieces[n + 1], picks));
    }
    pieces = std::move(joined);
  }
  return pieces[0];
}

}  // namespace

llvm::Function* EmitBlockTile(Ir& ir, const std::string& name, const BlockLayout& layout,
                              const BlockSchedule& schedule, int64_t k, BlockTileShape shape) {
  llvm::Type* pointer = ir.b().getPtrTy();
  auto* type =
      llvm::FunctionType::get(ir.b().getVoidTy(), {pointer, pointer, pointer, pointer}, false);
  auto* function =
      llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, ir.module());
  function->addFnAttr(llvm::Attribute::NoInline);
  for (llvm::Argument& argument : function->args()) {
    argument.addAttr(llvm::Attribute::NoCapture);
  }
  // The sums are scratch: nothing else is written, and nobody else reads them meanwhile.
  function->getArg(3)->addAttr(llvm::Attribute::NoAlias);
  Ir body(function, ir.facts());
  BlockTile(body, layout, schedule, k, shape).Emit();
  return function;
}

// Without the instruction the product is exact in f64, and the sum is rounded to odd there:
// rounding it to f32 then gives what one rounding gives.
llvm::Value* EmitExactFma(Ir& ir, llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  llvm::IRBuilder<>& builder = ir.b();
  if (ir.facts().fma) {
    return builder.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
  }
  const int64_t lanes = Ir::Lanes(a);
  llvm::Type* wide = Ir::Vector(builder.getDoubleTy(), lanes);
  llvm::Type* bits = Ir::Vector(builder.getInt64Ty(), lanes);
  llvm::Value* product =
      builder.CreateFMul(builder.CreateFPExt(a, wide), builder.CreateFPExt(b, wide));
  llvm::Value* addend = builder.CreateFPExt(c, wide);
  llvm::Value* sum = builder.CreateFAdd(product, addend);
  // What rounding took away.
  llvm::Value* part = builder.CreateFSub(sum, product);
  llvm::Value* rest = builder.CreateFAdd(builder.CreateFSub(product, builder.CreateFSub(sum, part)),
                                         builder.CreateFSub(addend, part));
  llvm::Value* zero = llvm::Constant::getNullValue(wide);
  llvm::Value* number = builder.CreateBitCast(sum, bits);
  llvm::Constant* one = llvm::ConstantInt::get(bits, 1);
  llvm::Value* is_even =
      builder.CreateICmpEQ(builder.CreateAnd(number, one), llvm::Constant::getNullValue(bits));
  llvm::Value* is_rounded = builder.CreateFCmpONE(rest, zero);
  llvm::Value* away =
      builder.CreateICmpEQ(builder.CreateFCmpOGT(rest, zero), builder.CreateFCmpOGT(sum, zero));
  llvm::Value* odd =
      builder.CreateSelect(away, builder.CreateAdd(number, one), builder.CreateSub(number, one));
  number = builder.CreateSelect(builder.CreateAnd(is_even, is_rounded), odd, number);
  return builder.CreateFPTrunc(builder.CreateBitCast(number, wide), a->getType());
}

}  // namespace stampmill
