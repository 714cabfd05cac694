// Contractions of pairs, of bf16 and of i16, through the whole code generator: for every class that
// this machine runs, with BF16 instructions and without, bit for bit what the reference interpreter
// computes.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/kernel_harness.h"
#include "graph/dtype.h"
#include "graph/tensor.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kI32 = DType::kI32;
// What pairs add up in.
constexpr DType kAccumulators[] = {kF32, kI32};

Expr C(int32_t axis) { return Expr::Coord(axis); }
DimExpr S(const char* name) { return DimExpr::Symbol(name); }
Expr Number(int64_t value) { return Expr::ConstantInt(DType::kI64, value); }

int64_t WidestPanel(const DimExpr& n) {
  return PanelWidth(n, kF32, *Target::Parse("cpu:x86-64-v4"));
}

Operand Panels(const DimExpr& n, const DimExpr& k, int64_t panel) {
  return {DType::kU32, {CeilDiv(n, panel), CeilDiv(k, kPairGroup), panel}};
}

// f32[M, K], rounded, or i16[M, K], by [K, N], with a bias and a residual added in the epilogue.
Contraction MatMul(DimExpr m, DimExpr n, DimExpr k, int64_t panel, DType accumulator = kF32) {
  Contraction c;
  c.m = {m};
  c.n = n;
  c.k = {k};
  c.panel = panel;
  const DType dtype = accumulator == kF32 ? kF32 : DType::kI16;
  c.accumulator = accumulator;
  c.operands = {{dtype, {m, k}}, Panels(n, k, panel), {accumulator, {n}}, {accumulator, {m, n}}};
  c.a = Expr::Load(dtype, 0, {C(0), C(1)});
  if (accumulator == kF32) c.a = Expr::Cast(DType::kBF16, c.a);
  c.b = 1;
  c.result = Expr::Accumulator(accumulator, 0) + Expr::Load(accumulator, 2, {C(1)}) +
             Expr::Load(accumulator, 3, {C(0), C(1)});
  c.output = {accumulator, {m, n}};
  return c;
}

// Random pairs, zero past k.
Tensor RandomPanels(const Contraction& c, const std::map<std::string, int64_t>& symbols) {
  const DimExpr::SymbolValue values = SymbolValues(symbols);
  const Operand& b = c.operands[static_cast<size_t>(c.b)];
  std::vector<int64_t> shape;
  for (const DimExpr& dim : b.shape) shape.push_back(*dim.Evaluate(values));
  Tensor panels = *Tensor::Allocate(DType::kU32, shape);
  const bool floats = c.accumulator == kF32;
  const Tensor random =
      RandomTensor(floats ? kF32 : DType::kI16, {panels.element_count() * kPairGroup}, 3);
  const int64_t k = *ElementCount(c.k).Evaluate(values);
  const int64_t steps = shape[shape.size() - 2];
  for (int64_t i = 0; i < panels.element_count(); ++i) {
    const int64_t step = i / c.panel % std::max<int64_t>(steps, 1);
    int64_t pair = 0;
    for (int64_t n = 0; n < kPairGroup && step * kPairGroup + n < k; ++n) {
      const double number = random.ValueAsDouble(i * kPairGroup + n);
      const uint16_t bits = floats ? FloatToBFloat16(static_cast<float>(number))
                                   : static_cast<uint16_t>(static_cast<int64_t>(number));
      pair |= int64_t{bits} << (16 * n);
    }
    panels.SetFromInt64(i, pair);
  }
  return panels;
}

void ExpectRight(const Contraction& c, const std::map<std::string, int64_t>& symbols) {
  std::vector<Tensor> operands(c.operands.size());
  operands[static_cast<size_t>(c.b)] = RandomPanels(c, symbols);
  const absl::Status status = CheckStage(c, symbols, operands, 5, {0, 0});
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(PairContractionTest, MultipliesDynamicSizes) {
  for (DType accumulator : kAccumulators) {
    const Contraction c = MatMul(S("M"), S("N"), S("K"), WidestPanel(S("N")), accumulator);
    for (int64_t m : {0, 1, 2, 5, 13, 100}) ExpectRight(c, {{"M", m}, {"N", 70}, {"K", 33}});
    for (int64_t n : {0, 1, 15, 32, 65}) ExpectRight(c, {{"M", 9}, {"N", n}, {"K", 20}});
    for (int64_t k : {0, 1, 4, 515, 1030, 2049}) {
      ExpectRight(c, {{"M", 11}, {"N", 40}, {"K", k}});
    }
  }
}

TEST(PairContractionTest, MultipliesByConstantWeights) {
  for (DType accumulator : kAccumulators) {
    for (int64_t n : {1, 3, 16, 33, 64}) {
      for (int64_t k : {1, 2, 9, 48, 101}) {
        ExpectRight(MatMul(S("M"), n, k, WidestPanel(n), accumulator), {{"M", 13}});
      }
    }
    const Contraction deep = MatMul(S("M"), 33, 2501, WidestPanel(33), accumulator);
    for (int64_t m : {1, 3, 8, 20}) ExpectRight(deep, {{"M", m}});
  }
}

TEST(PairContractionTest, SeveralBlocksOfRowsAndGroupsOfPanels) {
  for (DType accumulator : kAccumulators) {
    const Contraction c = MatMul(S("M"), 300, 2100, WidestPanel(300), accumulator);
    for (int64_t m : {97, 203}) ExpectRight(c, {{"M", m}});
  }
}

TEST(PairContractionTest, UsesThePanelOfEachTarget) {
  for (DType accumulator : kAccumulators) {
    for (const Target& target : RunnableTargets()) {
      const Contraction c =
          MatMul(S("M"), 50, 24, PanelWidth(50, accumulator, target), accumulator);
      ASSERT_TRUE(CompiledStage::Compile(c, target).ok());
      ExpectRight(c, {{"M", 15}});
    }
    for (int64_t panel : {2, 4, 8, 12}) {
      ExpectRight(MatMul(S("M"), 30, 7, panel, accumulator), {{"M", 5}});
    }
  }
}

// Rows that are bf16 or i16 already are read in place, where their pairs are whole.
TEST(PairContractionTest, ReadsRowsOfPairs) {
  for (DType accumulator : kAccumulators) {
    const DType number = accumulator == kF32 ? DType::kBF16 : DType::kI16;
    for (int64_t k : {64, 65, 600}) {
      Contraction c = MatMul(S("M"), 40, k, WidestPanel(40), accumulator);
      c.operands[0] = {number, {S("M"), k + 8}};
      c.a = Expr::Load(number, 0, {C(0), C(1) + Number(3)});
      for (int64_t m : {1, 3, 30}) ExpectRight(c, {{"M", m}});
    }
  }
}

TEST(PairContractionTest, RoundsHalves) {
  Contraction c = MatMul(S("M"), 40, 1024, WidestPanel(40));
  c.operands[0].dtype = DType::kF16;
  c.a = Expr::Cast(DType::kBF16, Expr::Load(DType::kF16, 0, {C(0), C(1)}));
  for (int64_t m : {1, 30, 110}) ExpectRight(c, {{"M", m}});
}

// What a row is made of is part of its packing.
TEST(PairContractionTest, ComputesRowsAsItPacksThem) {
  Contraction c = MatMul(S("M"), 40, 75, WidestPanel(40));
  const Expr x = Expr::Load(kF32, 0, {C(0), C(1)});
  c.a = Expr::Cast(DType::kBF16, Expr::Binary(ExprOp::kMax, x + Expr::Constant(kF32, 1),
                                              Expr::Constant(kF32, 0)));
  ExpectRight(c, {{"M", 17}});
  c = MatMul(S("M"), 40, 75, WidestPanel(40), kI32);
  c.operands[0].dtype = DType::kU8;
  c.a = Expr::Cast(DType::kI16, Expr::Load(DType::kU8, 0, {C(0), C(1)})) -
        Expr::ConstantInt(DType::kI16, 99);
  ExpectRight(c, {{"M", 17}});
}

TEST(PairContractionTest, MultipliesBatches) {
  Contraction c;
  c.batch = {S("B"), 3};
  c.m = {S("M")};
  c.n = S("N");
  c.k = {17};
  c.panel = 32;
  c.operands = {{kF32, {S("B"), S("M"), 3, 17}},
                {DType::kU32, {S("B"), 3, CeilDiv(S("N"), 32), 9, 32}}};
  c.a = Expr::Cast(DType::kBF16, Expr::Load(kF32, 0, {C(0), C(2), C(1), C(3)}));
  c.b = 1;
  c.b_batched = true;
  c.result = Expr::Accumulator(kF32, 0);
  c.output = {kF32, {S("B"), 3, S("M"), S("N")}};
  ExpectRight(c, {{"B", 2}, {"M", 17}, {"N", 45}});
  ExpectRight(c, {{"B", 1}, {"M", 1}, {"N", 7}});
}

Contraction Convolution(DimExpr height, DimExpr width, int64_t channels, int64_t filters) {
  Contraction c;
  c.m = {2, height, width};
  c.n = filters;
  c.k = {3, 3, channels};
  c.panel = WidestPanel(filters);
  c.operands = {{kF32, {2, height, width, channels}}, Panels(filters, 9 * channels, c.panel)};
  const Expr y = C(1) + C(3) - Number(1);
  const Expr x = C(2) + C(4) - Number(1);
  auto within = [&](const Expr& e, const DimExpr& limit) {
    return Expr::Binary(ExprOp::kBitAnd, Expr::Binary(ExprOp::kGe, e, Number(0)),
                        Expr::Binary(ExprOp::kLt, e, Expr::Dim(limit)));
  };
  const Expr inside = Expr::Binary(ExprOp::kBitAnd, within(y, height), within(x, width));
  c.a = Expr::Cast(DType::kBF16,
                   Expr::GuardedLoad(kF32, 0, {C(0), y, x, C(5)}, inside, Expr::Constant(kF32, 0)));
  c.b = 1;
  c.result = Expr::Binary(ExprOp::kMax, Expr::Accumulator(kF32, 0), Expr::Constant(kF32, 0));
  c.output = {kF32, {2, height, width, filters}};
  return c;
}

TEST(PairContractionTest, Convolves) {
  ExpectRight(Convolution(S("H"), S("W"), 3, 10), {{"H", 6}, {"W", 9}});
  ExpectRight(Convolution(S("H"), S("W"), 20, 32), {{"H", 5}, {"W", 4}});
  ExpectRight(Convolution(S("H"), S("W"), 150, 40), {{"H", 3}, {"W", 4}});
}

TEST(PairContractionTest, PacksSeveralDynamicAxesOfK) {
  Contraction c = MatMul(S("M"), 20, S("K") * S("L"), 32);
  c.k = {S("K"), S("L")};
  c.operands[0].shape = {S("M"), S("L"), S("K")};
  c.a = Expr::Cast(DType::kBF16, Expr::Load(kF32, 0, {C(0), C(2), C(1)}));
  ExpectRight(c, {{"M", 5}, {"K", 31}, {"L", 21}});
}

TEST(PairContractionTest, RowsKeepTheirBitsForEveryM) {
  constexpr int64_t kN = 48;
  for (const Target& target : RunnableTargets()) {
    for (int64_t k : {40, 701, 2048}) {
      const Contraction c = MatMul(S("M"), kN, k, PanelWidth(kN, kF32, target));
      const CompiledStage stage = *CompiledStage::Compile(c, target);
      const Tensor all = RandomTensor(kF32, {64, k}, 1);
      const Tensor b = RandomPanels(c, {{"M", 1}});
      const Tensor bias = RandomTensor(kF32, {kN}, 3);
      const Tensor residual = RandomTensor(kF32, {64, kN}, 4);
      auto first_rows = [](const Tensor& of, int64_t rows) {
        const std::vector<int64_t> shape = {rows, of.shape()[1]};
        return *Tensor::View(kF32, shape,
                             of.bytes().first(static_cast<size_t>(rows * shape[1]) * 4), nullptr);
      };
      auto run = [&](int64_t m) {
        const std::vector<Tensor> operands = {first_rows(all, m), b, bias, first_rows(residual, m)};
        Tensor output = *Tensor::Allocate(kF32, {m, kN});
        CHECK_OK(stage.Run(operands, {&output, 1}, SymbolValues({{"M", m}}), {}));
        return output;
      };
      const Tensor whole = run(64);
      for (int64_t m : {1, 2, 3, 4, 5, 7, 11, 13, 40}) {
        const Tensor part = run(m);
        EXPECT_EQ(memcmp(part.bytes().data(), whole.bytes().data(), part.bytes().size()), 0)
            << target.ToString() << " m " << m << " k " << k;
      }
    }
  }
}

}  // namespace
}  // namespace stampmill
