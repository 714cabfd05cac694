// Contractions of bytes through the whole code generator: for every class that this machine runs,
// bit for bit what the reference interpreter computes.
#include "compiler/llvm/byte_contraction_emitter.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/kernel_harness.h"
#include "graph/tensor.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

constexpr DType kI32 = DType::kI32;

Expr C(int32_t axis) { return Expr::Coord(axis); }
DimExpr S(const char* name) { return DimExpr::Symbol(name); }
Expr Number(int64_t value) { return Expr::ConstantInt(DType::kI64, value); }

int64_t WidestPanel(const DimExpr& n) {
  return PanelWidth(n, kI32, *Target::Parse("cpu:x86-64-v4"));
}

Operand Panels(const DimExpr& n, const DimExpr& k, int64_t panel) {
  return {DType::kI8, {CeilDiv(n, panel), CeilDiv(k, kByteGroup), panel, kByteGroup}};
}

// u8[M, K] by i8[K, N].
Contraction MatMul(DimExpr m, DimExpr n, DimExpr k, int64_t panel) {
  Contraction c;
  c.m = {m};
  c.n = n;
  c.k = {k};
  c.accumulator = kI32;
  c.panel = panel;
  c.operands = {{DType::kU8, {m, k}}, Panels(n, k, panel), {kI32, {n}}};
  c.a = Expr::Load(DType::kU8, 0, {C(0), C(1)});
  c.b = 1;
  c.result = Expr::Accumulator(kI32, 0) + Expr::Load(kI32, 2, {C(1)});
  c.output = {kI32, {m, n}};
  return c;
}

// Zero points of rows: the sums of rows come in.
Contraction WithRowSums(Contraction c) {
  c.result = c.result - Expr::Accumulator(kI32, 1) * Expr::ConstantInt(kI32, 7);
  return c;
}

// Random panels, zero past k.
Tensor RandomPanels(const Contraction& c, const std::map<std::string, int64_t>& symbols) {
  const DimExpr::SymbolValue values = SymbolValues(symbols);
  const Operand& b = c.operands[static_cast<size_t>(c.b)];
  std::vector<int64_t> shape;
  for (const DimExpr& dim : b.shape) shape.push_back(*dim.Evaluate(values));
  const Tensor random = RandomTensor(DType::kI8, shape, 3);
  Tensor panels = *Tensor::Allocate(DType::kI8, random.shape());
  const int64_t k = *ElementCount(c.k).Evaluate(values);
  const int64_t steps = shape[shape.size() - 3];
  for (int64_t i = 0; i < random.element_count(); ++i) {
    const int64_t step = i / (c.panel * kByteGroup) % std::max<int64_t>(steps, 1);
    if (step * kByteGroup + i % kByteGroup < k) panels.SetFromInt64(i, random.ValueAsInt64(i));
  }
  return panels;
}

void ExpectRight(const Contraction& c, const std::map<std::string, int64_t>& symbols) {
  std::vector<Tensor> operands(c.operands.size());
  operands[static_cast<size_t>(c.b)] = RandomPanels(c, symbols);
  const absl::Status status = CheckStage(c, symbols, operands, 5, {0, 0});
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(ByteContractionEmitterTest, MultipliesDynamicSizes) {
  const Contraction c = MatMul(S("M"), S("N"), S("K"), WidestPanel(S("N")));
  for (int64_t m : {0, 1, 2, 5, 13, 100}) ExpectRight(c, {{"M", m}, {"N", 70}, {"K", 33}});
  for (int64_t n : {0, 1, 15, 32, 65}) ExpectRight(c, {{"M", 9}, {"N", n}, {"K", 20}});
  for (int64_t k : {0, 1, 4, 515, 1030}) {
    ExpectRight(c, {{"M", 11}, {"N", 40}, {"K", k}});
    ExpectRight(WithRowSums(c), {{"M", 11}, {"N", 40}, {"K", k}});
  }
}

TEST(ByteContractionEmitterTest, MultipliesByConstantWeights) {
  for (int64_t n : {1, 16, 33, 64}) {
    for (int64_t k : {1, 3, 8, 64, 100, 1024, 2052}) {
      const Contraction c = MatMul(S("M"), n, k, WidestPanel(n));
      ExpectRight(c, {{"M", 13}});
      ExpectRight(WithRowSums(c), {{"M", 30}});
    }
  }
}

TEST(ByteContractionEmitterTest, SeveralBlocksOfRowsAndGroupsOfPanels) {
  const Contraction c = MatMul(S("M"), 300, 5000, WidestPanel(300));
  for (int64_t m : {97, 203}) ExpectRight(WithRowSums(c), {{"M", m}});
}

TEST(ByteContractionEmitterTest, UsesThePanelOfEachTarget) {
  for (const Target& target : RunnableTargets()) {
    const Contraction c = MatMul(S("M"), 50, 24, PanelWidth(50, kI32, target));
    ASSERT_TRUE(CompiledStage::Compile(c, target).ok());
    ExpectRight(c, {{"M", 15}});
  }
}

// What quantises a row is part of its packing.
TEST(ByteContractionEmitterTest, QuantisesRowsAsItPacksThem) {
  Contraction c = MatMul(S("M"), 40, 75, WidestPanel(40));
  c.operands[0].dtype = DType::kF32;
  const Expr x = Expr::Load(DType::kF32, 0, {C(0), C(1)}) * Expr::Constant(DType::kF32, 40);
  c.a = Expr::Cast(DType::kU8, Expr::Unary(ExprOp::kRound, x) + Expr::Constant(DType::kF32, 128));
  ExpectRight(WithRowSums(c), {{"M", 17}});
}

TEST(ByteContractionEmitterTest, MultipliesBatches) {
  Contraction c;
  c.batch = {S("B"), 3};
  c.m = {S("M")};
  c.n = S("N");
  c.k = {16};
  c.accumulator = kI32;
  c.panel = 32;
  c.operands = {{DType::kU8, {S("B"), S("M"), 3, 16}},
                {DType::kI8, {S("B"), 3, CeilDiv(S("N"), 32), 4, 32, 4}}};
  c.a = Expr::Load(DType::kU8, 0, {C(0), C(2), C(1), C(3)});
  c.b = 1;
  c.b_batched = true;
  c.result = Expr::Cast(DType::kF32, Expr::Accumulator(kI32, 0));
  c.output = {DType::kF32, {S("B"), 3, S("M"), S("N")}};
  ExpectRight(c, {{"B", 2}, {"M", 17}, {"N", 45}});
  ExpectRight(c, {{"B", 1}, {"M", 1}, {"N", 7}});
}

// A window with a zero point in its padding, requantised.
Contraction Convolution(DimExpr height, DimExpr width, int64_t channels, int64_t filters) {
  Contraction c;
  c.m = {2, height, width};
  c.n = filters;
  c.k = {3, 3, channels};
  c.accumulator = kI32;
  c.panel = WidestPanel(filters);
  c.operands = {{DType::kU8, {2, height, width, channels}}, Panels(filters, 9 * channels, c.panel)};
  const Expr y = C(1) + C(3) - Number(1);
  const Expr x = C(2) + C(4) - Number(1);
  auto within = [&](const Expr& e, const DimExpr& limit) {
    return Expr::Binary(ExprOp::kBitAnd, Expr::Binary(ExprOp::kGe, e, Number(0)),
                        Expr::Binary(ExprOp::kLt, e, Expr::Dim(limit)));
  };
  c.a = Expr::GuardedLoad(DType::kU8, 0, {C(0), y, x, C(5)},
                          Expr::Binary(ExprOp::kBitAnd, within(y, height), within(x, width)),
                          Expr::ConstantInt(DType::kU8, 113));
  c.b = 1;
  const Expr scaled =
      Expr::Cast(DType::kF32, Expr::Accumulator(kI32, 0)) * Expr::Constant(DType::kF32, 1.0 / 4096);
  c.result = Expr::Cast(DType::kI8, Expr::Unary(ExprOp::kRound, scaled));
  c.output = {DType::kI8, {2, height, width, filters}};
  return c;
}

TEST(ByteContractionEmitterTest, Convolves) {
  ExpectRight(Convolution(S("H"), S("W"), 3, 10), {{"H", 6}, {"W", 9}});
  ExpectRight(Convolution(S("H"), S("W"), 20, 32), {{"H", 5}, {"W", 4}});
  ExpectRight(Convolution(S("H"), S("W"), 64, 40), {{"H", 3}, {"W", 4}});
}

TEST(ByteContractionEmitterTest, PacksSeveralDynamicAxesOfK) {
  Contraction c = MatMul(S("M"), 20, S("K") * S("L"), 32);
  c.k = {S("K"), S("L")};
  c.operands[0].shape = {S("M"), S("L"), S("K")};
  c.a = Expr::Load(DType::kU8, 0, {C(0), C(2), C(1)});
  ExpectRight(c, {{"M", 5}, {"K", 30}, {"L", 20}});
}

}  // namespace
}  // namespace stampmill
