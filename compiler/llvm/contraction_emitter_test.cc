// Contractions through the whole code generator, against the reference interpreter.
#include "compiler/llvm/contraction_emitter.h"

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/kernel_harness.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

Expr C(int32_t axis) { return Expr::Coord(axis); }
DimExpr S(const char* name) { return DimExpr::Symbol(name); }

// The panel is that of a class; every class can run every multiple of its vectors.
int64_t WidestPanel(const DimExpr& n, DType dtype) {
  return PanelWidth(n, dtype, *Target::Parse("cpu:x86-64-v4"));
}

// [M, K] x [K, N] with a bias and a residual added in the epilogue.
Contraction MatMul(DType dtype, DimExpr m, DimExpr n, DimExpr k, int64_t panel) {
  Contraction c;
  c.m = {m};
  c.n = n;
  c.k = {k};
  c.accumulator = dtype;
  c.panel = panel;
  c.operands = {
      {dtype, {m, k}}, {dtype, {CeilDiv(n, panel), k, panel}}, {dtype, {n}}, {dtype, {m, n}}};
  c.a = Expr::Load(dtype, 0, {C(0), C(1)});
  c.b = 1;
  c.result = Expr::Accumulator(dtype, 0) + Expr::Load(dtype, 2, {C(1)}) +
             Expr::Load(dtype, 3, {C(0), C(1)});
  c.output = {dtype, {m, n}};
  return c;
}

void ExpectRight(const StageBody& body, const std::map<std::string, int64_t>& symbols) {
  absl::Status status = CheckStage(body, symbols, {}, 5, {1e-4, 2e-4});
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(ContractionEmitterTest, MultipliesDynamicSizes) {
  Contraction c = MatMul(DType::kF32, S("M"), S("N"), S("K"), WidestPanel(S("N"), DType::kF32));
  for (int64_t m : {0, 1, 2, 5, 13, 100}) ExpectRight(c, {{"M", m}, {"N", 70}, {"K", 33}});
  for (int64_t n : {0, 1, 15, 32, 65}) ExpectRight(c, {{"M", 9}, {"N", n}, {"K", 20}});
  for (int64_t k : {0, 1, 4, 515, 1030}) ExpectRight(c, {{"M", 11}, {"N", 40}, {"K", k}});
}

TEST(ContractionEmitterTest, MultipliesByConstantWeights) {
  for (int64_t n : {1, 3, 16, 32, 48, 64, 100}) {
    for (int64_t k : {1, 8, 48, 100}) {
      Contraction c = MatMul(DType::kF32, S("M"), n, k, WidestPanel(n, DType::kF32));
      ExpectRight(c, {{"M", 13}});
    }
  }
  Contraction deep = MatMul(DType::kF32, S("M"), 33, 1200, WidestPanel(33, DType::kF32));
  for (int64_t m : {1, 3, 8, 20}) ExpectRight(deep, {{"M", m}});
}

// Rows of which a tile would take too many ways of the first-level cache are packed: blocks of
// rows, of k and groups of panels follow each other, and each fetches what comes next.
TEST(ContractionEmitterTest, MultipliesRowsThatLieAPageApart) {
  for (int64_t k : {1024, 2048}) {
    Contraction c = MatMul(DType::kF32, S("M"), 300, k, WidestPanel(300, DType::kF32));
    for (int64_t m : {0, 1, 12, 97, 203}) ExpectRight(c, {{"M", m}});
  }
  Contraction doubles = MatMul(DType::kF64, S("M"), 70, 1024, WidestPanel(70, DType::kF64));
  for (int64_t m : {7, 110}) ExpectRight(doubles, {{"M", m}});
}

TEST(ContractionEmitterTest, MultipliesPartsOfRows) {
  Contraction c = MatMul(DType::kF32, S("M"), 40, 600, WidestPanel(40, DType::kF32));
  c.operands[0].shape = {S("M"), 1024};
  c.a = Expr::Load(DType::kF32, 0, {C(0), C(1) + Expr::ConstantInt(DType::kI64, 424)});
  for (int64_t m : {1, 30, 100}) ExpectRight(c, {{"M", m}});
}

TEST(ContractionEmitterTest, MultipliesRowsThatAnIndexNames) {
  Contraction c = MatMul(DType::kF32, S("M"), 40, 1024, WidestPanel(40, DType::kF32));
  c.operands[0].shape = {11, 1024};
  c.operands.push_back({DType::kI64, {S("M")}});
  c.a = Expr::Load(DType::kF32, 0, {Expr::Load(DType::kI64, 4, {C(0)}), C(1)});
  for (int64_t m : {1, 30, 100}) {
    Tensor index = *Tensor::Allocate(DType::kI64, {m});
    for (int64_t n = 0; n < m; ++n) index.SetFromInt64(n, (n * 7) % 11);
    absl::Status status =
        CheckStage(c, {{"M", m}}, {Tensor(), Tensor(), Tensor(), Tensor(), index}, 5, {1e-4, 2e-4});
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(ContractionEmitterTest, MultipliesOtherTypes) {
  for (DType dtype : {DType::kF64, DType::kI32}) {
    Contraction c = MatMul(dtype, S("M"), 37, 50, WidestPanel(37, dtype));
    for (int64_t m : {1, 7, 30}) ExpectRight(c, {{"M", m}});
  }
}

TEST(ContractionEmitterTest, UsesThePanelOfEachTarget) {
  for (const Target& target : RunnableTargets()) {
    Contraction c = MatMul(DType::kF32, S("M"), 50, 24, PanelWidth(50, DType::kF32, target));
    ASSERT_TRUE(CompiledStage::Compile(c, target).ok());
    ExpectRight(c, {{"M", 15}});
  }
}

// softmax(q k) v of attention: both sides change, heads are a batch axis of a strided operand.
TEST(ContractionEmitterTest, MultipliesBatches) {
  Contraction c;
  c.batch = {S("B"), 3};
  c.m = {S("M")};
  c.n = S("N");
  c.k = {16};
  c.panel = 32;
  c.operands = {{DType::kF32, {S("B"), S("M"), 3, 16}},
                {DType::kF32, {S("B"), 3, CeilDiv(S("N"), 32), 16, 32}}};
  c.a = Expr::Load(DType::kF32, 0, {C(0), C(2), C(1), C(3)});
  c.b = 1;
  c.b_batched = true;
  c.result = Expr::Accumulator(DType::kF32, 0) * Expr::Constant(DType::kF32, 0.25);
  c.output = {DType::kF32, {S("B"), 3, S("M"), S("N")}};
  ExpectRight(c, {{"B", 2}, {"M", 17}, {"N", 45}});
  ExpectRight(c, {{"B", 1}, {"M", 1}, {"N", 7}});
  c.b_batched = false;
  c.operands[1].shape = {CeilDiv(S("N"), 32), 16, 32};
  ExpectRight(c, {{"B", 2}, {"M", 5}, {"N", 45}});
  c.output.shape = {S("B"), S("M"), 3, S("N")};
  c.output_coordinates = {C(0), C(2), C(1), C(3)};
  ExpectRight(c, {{"B", 2}, {"M", 5}, {"N", 45}});
}

// Whole tiles make their results while they are in registers, shorter ones and long results from
// memory: both with the coordinates of each row and column, after one block of k or several.
TEST(ContractionEmitterTest, ResultsKnowTheirRowAndColumn) {
  for (int64_t n : {12, 16, 24, 32, 40, 48, 64}) {
    for (int64_t k : {5, 1024}) {
      Contraction c;
      c.batch = {2};
      c.m = {S("H"), S("W")};
      c.n = n;
      c.k = {k};
      c.panel = WidestPanel(n, DType::kF32);
      c.operands = {{DType::kF32, {2, S("W"), S("H"), k}},
                    {DType::kF32, {2, CeilDiv(c.n, c.panel), k, c.panel}},
                    {DType::kF32, {S("H"), 2, n}},
                    {DType::kF32, {2, n, S("W")}}};
      c.a = Expr::Load(DType::kF32, 0, {C(0), C(2), C(1), C(3)});
      c.b = 1;
      c.b_batched = true;
      c.result =
          Expr::Accumulator(DType::kF32, 0) * Expr::Load(DType::kF32, 2, {C(1), C(0), C(3)}) +
          Expr::Load(DType::kF32, 3, {C(0), C(3), C(2)});
      c.output = {DType::kF32, {S("W"), 2, S("H"), n}};
      c.output_coordinates = {C(2), C(0), C(1), C(3)};
      ExpectRight(c, {{"H", 7}, {"W", 5}});
      ExpectRight(c, {{"H", 3}, {"W", 40}});
      c.result = Expr::Unary(ExprOp::kTanh, Expr::Unary(ExprOp::kErf, c.result));
      ExpectRight(c, {{"H", 7}, {"W", 5}});
    }
  }
}

Contraction Convolution(DimExpr height, DimExpr width, int64_t channels, int64_t filters) {
  Contraction c;
  c.batch = {};
  c.m = {2, height, width};
  c.n = filters;
  c.k = {3, 3, channels};
  c.panel = WidestPanel(filters, DType::kF32);
  c.operands = {{DType::kF32, {2, height, width, channels}},
                {DType::kF32, {CeilDiv(c.n, c.panel), 9 * channels, c.panel}}};
  Expr one = Expr::ConstantInt(DType::kI64, 1);
  Expr zero = Expr::ConstantInt(DType::kI64, 0);
  Expr y = C(1) + C(3) - one;
  Expr x = C(2) + C(4) - one;
  auto within = [&](Expr e, const DimExpr& limit) {
    return Expr::Binary(ExprOp::kBitAnd, Expr::Binary(ExprOp::kGe, e, zero),
                        Expr::Binary(ExprOp::kLt, e, Expr::Dim(limit)));
  };
  c.a = Expr::GuardedLoad(DType::kF32, 0, {C(0), y, x, C(5)},
                          Expr::Binary(ExprOp::kBitAnd, within(y, height), within(x, width)),
                          Expr::Constant(DType::kF32, 0));
  c.b = 1;
  c.result =
      Expr::Binary(ExprOp::kMax, Expr::Accumulator(DType::kF32, 0), Expr::Constant(DType::kF32, 0));
  c.output = {DType::kF32, {2, height, width, filters}};
  return c;
}

TEST(ContractionEmitterTest, Convolves) {
  ExpectRight(Convolution(S("H"), S("W"), 3, 10), {{"H", 6}, {"W", 9}});
  ExpectRight(Convolution(S("H"), S("W"), 20, 32), {{"H", 5}, {"W", 4}});
  ExpectRight(Convolution(S("H"), S("W"), 80, 40), {{"H", 3}, {"W", 4}});
}

// What windows read next is fetched in pieces, past the ends of lines, of the image and of what
// there is to fetch.
TEST(ContractionEmitterTest, ConvolvesManyRows) {
  for (int64_t channels : {1, 3, 24, 130}) {
    ExpectRight(Convolution(13, 21, channels, 24), {});
    ExpectRight(Convolution(13, S("W"), channels, 100), {{"W", 21}});
  }
}

// Every other row and column of an image, by one block of k or several.
TEST(ContractionEmitterTest, MultipliesStridedRows) {
  for (int64_t k : {7, 256, 1024}) {
    Contraction c = MatMul(DType::kF32, 14 * S("W"), 70, k, WidestPanel(70, DType::kF32));
    const Expr two = Expr::ConstantInt(DType::kI64, 2);
    c.m = {14, S("W")};
    c.operands[0].shape = {28, 2 * S("W"), k};
    c.operands[3].shape = {14, S("W"), 70};
    c.a = Expr::Load(DType::kF32, 0, {C(0) * two, C(1) * two, C(2)});
    c.result = Expr::Accumulator(DType::kF32, 0) + Expr::Load(DType::kF32, 2, {C(2)}) +
               Expr::Load(DType::kF32, 3, {C(0), C(1), C(2)});
    c.output.shape = {14, S("W"), 70};
    for (int64_t w : {1, 14}) ExpectRight(c, {{"W", w}});
  }
}

TEST(ContractionEmitterTest, PacksSeveralDynamicAxesOfK) {
  Contraction c = MatMul(DType::kF32, S("M"), 20, S("K") * S("L"), 32);
  c.k = {S("K"), S("L")};
  c.operands[0].shape = {S("M"), S("L"), S("K")};
  c.a = Expr::Load(DType::kF32, 0, {C(0), C(2), C(1)});
  ExpectRight(c, {{"M", 5}, {"K", 30}, {"L", 20}});
}

TEST(ContractionEmitterTest, RowsKeepTheirBitsForEveryM) {
  constexpr int64_t kN = 48;
  for (const Target& target : RunnableTargets()) {
    for (int64_t k : {40, 700, 1024}) {
      Contraction c = MatMul(DType::kF32, S("M"), kN, k, PanelWidth(kN, DType::kF32, target));
      CompiledStage stage = *CompiledStage::Compile(c, target);
      Tensor all = RandomTensor(DType::kF32, {64, k}, 1);
      Tensor b = RandomTensor(DType::kF32, {(kN + c.panel - 1) / c.panel, k, c.panel}, 2);
      Tensor bias = RandomTensor(DType::kF32, {kN}, 3);
      Tensor residual = RandomTensor(DType::kF32, {64, kN}, 4);
      auto run = [&](int64_t m) {
        size_t a_bytes = static_cast<size_t>(m * k) * 4;
        size_t residual_bytes = static_cast<size_t>(m * kN) * 4;
        std::vector<Tensor> operands = {
            *Tensor::View(DType::kF32, {m, k}, all.bytes().first(a_bytes), nullptr), b, bias,
            *Tensor::View(DType::kF32, {m, kN}, residual.bytes().first(residual_bytes), nullptr)};
        Tensor output = *Tensor::Allocate(DType::kF32, {m, kN});
        CHECK_OK(stage.Run(operands, {&output, 1}, SymbolValues({{"M", m}}), {}));
        return output;
      };
      Tensor whole = run(64);
      for (int64_t m : {1, 2, 3, 4, 5, 7, 11, 13, 40}) {
        Tensor part = run(m);
        EXPECT_EQ(memcmp(part.bytes().data(), whole.bytes().data(), part.bytes().size()), 0)
            << target.ToString() << " m " << m << " k " << k;
      }
    }
  }
}

}  // namespace
}  // namespace stampmill
