// Contractions of quantised weights through the whole code generator: for every class that this
// machine runs, bit for bit what the reference interpreter computes.
#include "compiler/llvm/block_contraction_emitter.h"

#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/kernel_harness.h"
#include "graph/block_layout.h"
#include "graph/nest_interpreter.h"
#include "graph/row_records.h"
#include "graph/tensor.h"
#include "graph/testing/stages.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

constexpr DType kF32 = DType::kF32;

Expr C(int32_t axis) { return Expr::Coord(axis); }
DimExpr S(const char* name) { return DimExpr::Symbol(name); }

// x[M, K] by the transpose of rows [N, K], plus a bias.
Contraction MatMul(BlockFormat format, int64_t panel, DimExpr m, int64_t n, int64_t k) {
  const BlockLayout layout = LayoutOf(format, panel);
  Contraction c;
  c.m = {m};
  c.n = n;
  c.k = {k};
  c.panel = panel;
  c.blocks = format;
  c.operands = {
      {kF32, {m, k}},
      {DType::kU8, {(n + panel - 1) / panel, k / layout.facts().elements * layout.block_bytes}},
      {kF32, {n}}};
  c.a = Expr::Load(kF32, 0, {C(0), C(1)});
  c.b = 1;
  c.result = Expr::Accumulator(kF32, 0) + Expr::Load(kF32, 2, {C(1)});
  c.output = {kF32, {m, n}};
  return c;
}

// Random codes; scales that no product takes beyond f32.
Tensor RandomPanels(const Contraction& c) {
  const BlockLayout layout = LayoutOf(*c.blocks, c.panel);
  const std::vector<int64_t> shape = ConstantShape(c.operands[static_cast<size_t>(c.b)].shape);
  Tensor panels = *Tensor::Allocate(DType::kU8, shape);
  std::mt19937 random(11);
  std::span<uint8_t> bytes = panels.mutable_values<uint8_t>();
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const auto block_bytes = static_cast<size_t>(layout.block_bytes);
  const bool is_exponent = *c.blocks == BlockFormat::kMXFP4;
  for (size_t block = 0; block < bytes.size(); block += block_bytes) {
    for (size_t i = 0; i < static_cast<size_t>(layout.subs_at); ++i) {
      if (is_exponent) bytes[block + i] = static_cast<uint8_t>(random() % 20 + 110);
      if (!is_exponent && i % 2 == 1) bytes[block + i] &= 0xbf;  // exponent below 16
    }
  }
  return panels;
}

void ExpectRight(const Contraction& c, const std::map<std::string, int64_t>& symbols) {
  std::vector<Tensor> operands(c.operands.size());
  operands[static_cast<size_t>(c.b)] = RandomPanels(c);
  const absl::Status status = CheckStage(c, symbols, operands, 5, {0, 0});
  EXPECT_TRUE(status.ok()) << status.message();
}

class BlockContractionTest : public testing::TestWithParam<int> {
 protected:
  BlockFormat format() const { return static_cast<BlockFormat>(GetParam()); }
  int64_t elements() const { return FactsOf(format()).elements; }
};

TEST_P(BlockContractionTest, MultipliesAnyNumberOfRows) {
  const Contraction c = MatMul(format(), 16, S("M"), 70, 2 * elements());
  for (int64_t m : {0, 1, 2, 3, 7, 13, 64, 150}) ExpectRight(c, {{"M", m}});
}

TEST_P(BlockContractionTest, MultipliesPanelsOfAnyWidth) {
  for (const int64_t panel : {4, 8}) {
    const Contraction c = MatMul(format(), panel, S("M"), 21, elements());
    for (int64_t m : {1, 5, 30}) ExpectRight(c, {{"M", m}});
  }
}

TEST_P(BlockContractionTest, MultipliesExactRows) {
  Contraction c = MatMul(format(), 16, S("M"), 37, elements());
  c.exact_rows = true;
  for (int64_t m : {1, 6, 15}) ExpectRight(c, {{"M", m}});
}

// What the contraction takes as `a`, of rows of x.
Tensor RoundedRows(const Tensor& x, const RowRecords& records, const Operand& operand) {
  Tensor rows = *Tensor::Allocate(operand.dtype, {x.shape()[0], *operand.shape.back().constant()});
  const std::span<const float> numbers = x.values<float>();
  std::byte* row = rows.mutable_bytes().data();
  const auto k = static_cast<size_t>(x.shape()[1]);
  for (size_t m = 0; m < numbers.size(); m += k, row += records.row_bytes(x.shape()[1])) {
    std::byte* record = row;
    for (size_t at = m; at < m + k; at += kBlockGroup, record += records.record_bytes()) {
      RoundGroup(records, numbers.subspan(at, kBlockGroup), record);
    }
  }
  return rows;
}

TEST_P(BlockContractionTest, MultipliesRowsThatWereRoundedBefore) {
  const Contraction plain = MatMul(format(), 16, S("M"), 70, 2 * elements());
  std::vector<Target> targets = RunnableTargets();
  targets.push_back(Target::HostCpu());
  for (const Target& target : targets) {
    SCOPED_TRACE(target.ToString());
    const Contraction c = WithRecords(plain, HasWideRows(format(), target));
    ASSERT_TRUE(Verify(c).ok()) << Verify(c);
    const absl::StatusOr<CompiledStage> stage = CompiledStage::Compile(c, target);
    ASSERT_TRUE(stage.ok()) << stage.status();
    for (const int64_t m : {1, 13, 64}) {
      const Tensor x = RandomTensor(kF32, {m, 2 * elements()}, 3);
      const Tensor operands[] = {RoundedRows(x, RecordsOf(c), c.operands[0]), RandomPanels(c),
                                 RandomTensor(kF32, {70}, 4)};
      Tensor got[] = {*Tensor::Allocate(kF32, {m, 70})};
      Tensor want[] = {*Tensor::Allocate(kF32, {m, 70})};
      const DimExpr::SymbolValue symbols = SymbolValues({{"M", m}});
      ASSERT_TRUE(stage->Run(operands, got, symbols, {.tasks_per_call = 2}).ok());
      ASSERT_TRUE(InterpretStage(c, operands, want, symbols).ok());
      EXPECT_TRUE(CompareTensors(got[0], want[0], {0, 0}).ok());
      // As if they were rounded within.
      const Tensor from[] = {x, operands[1], operands[2]};
      ASSERT_TRUE(InterpretStage(plain, from, want, symbols).ok());
      EXPECT_TRUE(CompareTensors(got[0], want[0], {0, 0}).ok());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockContractionTest, testing::Range(0, kBlockFormatCount),
                         [](const auto& info) {
                           const auto format = static_cast<BlockFormat>(info.param);
                           return std::string(Name(format));
                         });

TEST(BlockContractionEmitterTest, PacksRowsThatAreComputed) {
  Contraction c = MatMul(BlockFormat::kQ4_1, 16, S("M"), 48, 96);
  const Expr x = c.a;
  c.a = x / (Expr::Constant(kF32, 1) + Expr::Unary(ExprOp::kExp, -x));
  std::vector<Tensor> operands(3);
  operands[1] = RandomPanels(c);
  // The exponential differs in its last bit from the interpreter's.
  const absl::Status status = CheckStage(c, {{"M", 9}}, operands, 5, {1e-2, 1e-2});
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(BlockContractionEmitterTest, MultipliesRowsOfSeveralAxes) {
  Contraction c = MatMul(BlockFormat::kQ8_0, 16, 1, 33, 64);
  c.m = {S("B"), S("M")};
  c.operands[0].shape = {S("M"), S("B"), 64};
  c.a = Expr::Load(kF32, 0, {C(1), C(0), C(2)});
  c.result = Expr::Accumulator(kF32, 0) * Expr::Load(kF32, 2, {C(2)});
  c.output = {kF32, {S("B"), S("M"), 33}};
  ExpectRight(c, {{"B", 3}, {"M", 11}});
}

TEST(BlockContractionEmitterTest, MultipliesBatches) {
  Contraction c = MatMul(BlockFormat::kQ4_K, 16, 1, 40, 256);
  c.batch = {3};
  c.m = {S("M")};
  c.operands[0].shape = {3, S("M"), 256};
  c.operands[1].shape.insert(c.operands[1].shape.begin(), 3);
  c.a = Expr::Load(kF32, 0, {C(0), C(1), C(2)});
  c.b_batched = true;
  c.result = Expr::Accumulator(kF32, 0);
  c.output = {kF32, {3, S("M"), 40}};
  c.operands.pop_back();
  ExpectRight(c, {{"M", 1}});
  ExpectRight(c, {{"M", 14}});
}

// Zeros, numbers too small to divide by, infinities and what is no number.
TEST(BlockContractionEmitterTest, RoundsRowsOfUnusualNumbers) {
  const Contraction c = MatMul(BlockFormat::kQ5_0, 16, 6, 16, 64);
  Tensor x = *Tensor::Allocate(kF32, {6, 64});
  std::span<float> values = x.mutable_values<float>();
  for (size_t i = 64; i < values.size(); ++i) values[i] = static_cast<float>(i % 37) - 18;
  for (size_t i = 128; i < 192; ++i) values[i] *= 1e-40f;
  values[200] = std::numeric_limits<float>::infinity();
  values[300] = std::numeric_limits<float>::quiet_NaN();
  values[340] = std::numeric_limits<float>::max();
  const absl::Status status = CheckStage(c, {}, {x, RandomPanels(c)}, 5, {0, 0});
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace stampmill
