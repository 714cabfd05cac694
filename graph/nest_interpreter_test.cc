#include "graph/nest_interpreter.h"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "graph/block_layout.h"
#include "graph/testing/stages.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

std::optional<int64_t> NoSymbols(absl::string_view) { return std::nullopt; }

Tensor Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  Tensor tensor = *Tensor::Allocate(DType::kF32, std::move(shape));
  std::copy(values.begin(), values.end(), tensor.mutable_values<float>().begin());
  return tensor;
}

TEST(NestInterpreterTest, SoftmaxReducesAndWritesPerElement) {
  const Tensor x = Floats({2, 3}, {1, 2, 3, -1, 0, 100});
  Tensor y = *Tensor::Allocate(DType::kF32, {2, 3});
  const auto symbols = [](absl::string_view) { return std::optional<int64_t>(2); };
  const absl::Status status = Interpret(SoftmaxNest(DimExpr::Symbol("N"), 3), {&x, 1}, y, symbols);
  ASSERT_TRUE(status.ok()) << status;
  const double sum = std::exp(-2.0) + std::exp(-1.0) + 1;
  EXPECT_FLOAT_EQ(y.values<float>()[0], static_cast<float>(std::exp(-2.0) / sum));
  EXPECT_FLOAT_EQ(y.values<float>()[2], static_cast<float>(1 / sum));
  EXPECT_FLOAT_EQ(y.values<float>()[5], 1);
}

TEST(NestInterpreterTest, GuardedLoadsReadOnlyInside) {
  Tensor x = *Tensor::Allocate(DType::kI8, {2, 1, 2});
  for (int64_t i = 0; i < 4; ++i) x.SetFromInt64(i, i + 1);
  Tensor y = *Tensor::Allocate(DType::kI32, {2, 3, 4});
  const absl::Status status = Interpret(PadNest(2, 1, 2), {&x, 1}, y, NoSymbols);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<int32_t> expected = {-7, -7, -7, -7, -7, 1, 2, -7, -7, -7, -7, -7,
                                         -7, -7, -7, -7, -7, 3, 4, -7, -7, -7, -7, -7};
  const auto values = y.values<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(values.begin(), values.end()), expected);
}

TEST(NestInterpreterTest, ContractionMultipliesPanelsAndRunsItsEpilogue) {
  const int64_t m = 3, n = 5, k = 4, panel = 2;
  Tensor a = *Tensor::Allocate(DType::kF32, {m, k});
  Tensor b = *Tensor::Allocate(DType::kF32, {3, k, panel});
  for (int64_t i = 0; i < m * k; ++i) a.SetFromDouble(i, static_cast<double>(i - 5));
  const auto b_at = [](int64_t row, int64_t column) { return 2 * row - column; };
  for (int64_t row = 0; row < k; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      b.SetFromInt64((column / panel * k + row) * panel + column % panel, b_at(row, column));
    }
  }
  Tensor y = *Tensor::Allocate(DType::kF32, {m, n});
  const Tensor operands[] = {a, b};
  const absl::Status status = Interpret(MatMulContraction(m, n, k, panel), operands, y, NoSymbols);
  ASSERT_TRUE(status.ok()) << status;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t x = 0; x < k; ++x) sum += (i * k + x - 5) * b_at(x, j);
      EXPECT_EQ(y.ValueAsInt64(i * n + j), std::max<int64_t>(sum, 0)) << i << " " << j;
    }
  }
}

// 1 + 2^-8 is halfway between two numbers of bf16, and is rounded to the even one, 1.
TEST(NestInterpreterTest, PairsAreRoundedAndTheLaterIsAddedFirst) {
  const Tensor a = Floats({1, 3}, {1.0f + 0x1p-8f, 0x1p30f, -0x1p30f});
  Tensor b = *Tensor::Allocate(DType::kU32, {1, 2, 2});
  const auto pair = [](float first, float second) {
    return int64_t{FloatToBFloat16(first)} | int64_t{FloatToBFloat16(second)} << 16;
  };
  b.SetFromInt64(0, pair(3, 1));
  b.SetFromInt64(1, pair(5, 0.5f));
  b.SetFromInt64(2, pair(1, 0));
  b.SetFromInt64(3, pair(0.25f, 0));
  Tensor y = *Tensor::Allocate(DType::kF32, {1, 2});
  const Tensor operands[] = {a, b};
  const absl::Status status = Interpret(PairMatMulContraction(1, 2, 3, 2), operands, y, NoSymbols);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(y.ValueAsDouble(0), 0);  // 2^30 swallows 3
  EXPECT_EQ(y.ValueAsDouble(1), 0x1p28);
}

TEST(NestInterpreterTest, PairsOfWordsWrapInTheirSum) {
  const auto pair = [](int16_t first, int16_t second) {
    return int64_t{static_cast<uint16_t>(first)} | int64_t{static_cast<uint16_t>(second)} << 16;
  };
  Tensor a = *Tensor::Allocate(DType::kI16, {1, 3});
  for (int64_t i = 0; i < 3; ++i) a.SetFromInt64(i, i == 2 ? 7 : -32768);
  Tensor b = *Tensor::Allocate(DType::kU32, {1, 2, 2});
  b.SetFromInt64(0, pair(-32768, -32768));
  b.SetFromInt64(1, pair(2, -3));
  b.SetFromInt64(2, pair(1, 0));
  b.SetFromInt64(3, pair(-5, 0));
  Tensor y = *Tensor::Allocate(DType::kI32, {1, 2});
  const Tensor operands[] = {a, b};
  const absl::Status status = Interpret(WordMatMulContraction(1, 2, 3, 2), operands, y, NoSymbols);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(y.ValueAsInt64(0), INT32_MIN + 7);  // 2^31 + 7
  EXPECT_EQ(y.ValueAsInt64(1), 32768 - 35);
}

// Every element of the weights is 2 halves.
TEST(NestInterpreterTest, RowsOfBlocksAreRoundedInTheirGroupOrStayExact) {
  Tensor rows = *Tensor::Allocate(DType::kU8, {1, 34});
  for (int64_t i = 0; i < 34; ++i) rows.SetFromInt64(i, i == 1 ? 0x38 : i == 0 ? 0 : 2);
  const Tensor b = *PackBlocks(rows, BlockFormat::kQ8_0, 4);
  std::vector<float> x(32);
  x[0] = 127;  // the greatest: a scale of 1
  x[5] = 1.5f;
  x[6] = 0.5f;
  x[31] = 0.25f;
  Contraction contraction = BlockMatMulContraction(1, 1, 32, BlockFormat::kQ8_0, 4);
  Tensor y = *Tensor::Allocate(DType::kF32, {1, 1});
  const Tensor operands[] = {Floats({1, 32}, x), b};
  ASSERT_TRUE(Interpret(contraction, operands, y, NoSymbols).ok());
  EXPECT_EQ(y.ValueAsDouble(0), 129);
  contraction.exact_rows = true;
  ASSERT_TRUE(Interpret(contraction, operands, y, NoSymbols).ok());
  EXPECT_EQ(y.ValueAsDouble(0), 129.25);
}

TEST(NestInterpreterTest, BatchedContractionUsesItsOwnPanels) {
  Contraction c = MatMulContraction(2, 3, 4, 4);
  c.batch = {2};
  c.b_batched = true;
  c.accumulator = DType::kI32;
  c.operands = {{DType::kI8, {2, 2, 4}}, {DType::kI32, {2, 1, 4, 4}}};
  c.a = Expr::Cast(DType::kI32,
                   Expr::Load(DType::kI8, 0, {Expr::Coord(0), Expr::Coord(1), Expr::Coord(2)}));
  c.result = Expr::Accumulator(DType::kI32, 0) + Expr::Cast(DType::kI32, Expr::Coord(2));
  c.output = {DType::kI32, {2, 2, 3}};
  Tensor a = *Tensor::Allocate(DType::kI8, {2, 2, 4});
  Tensor b = *Tensor::Allocate(DType::kI32, {2, 1, 4, 4});
  for (int64_t i = 0; i < 16; ++i) a.SetFromInt64(i, i % 5);
  for (int64_t i = 0; i < 32; ++i) b.SetFromInt64(i, i % 7 - 3);
  Tensor y = *Tensor::Allocate(DType::kI32, {2, 2, 3});
  const Tensor operands[] = {a, b};
  const absl::Status status = Interpret(c, operands, y, NoSymbols);
  ASSERT_TRUE(status.ok()) << status;
  for (int64_t batch = 0; batch < 2; ++batch) {
    for (int64_t m = 0; m < 2; ++m) {
      for (int64_t n = 0; n < 3; ++n) {
        int64_t sum = n;
        for (int64_t k = 0; k < 4; ++k) {
          sum += ((batch * 2 + m) * 4 + k) % 5 * (((batch * 4 + k) * 4 + n) % 7 - 3);
        }
        EXPECT_EQ(y.ValueAsInt64((batch * 2 + m) * 3 + n), sum);
      }
    }
  }
}

TEST(NestInterpreterTest, LoadsAndStoresOutOfRangeNameTheOperand) {
  const Tensor x = Floats({4}, {1, 2, 3, 4});
  Tensor y = *Tensor::Allocate(DType::kF32, {4});
  const Expr next = Expr::Coord(0) + Expr::ConstantInt(DType::kI64, 1);
  absl::Status status =
      Interpret(MapNest(4, Expr::Load(DType::kF32, 0, {next})), {&x, 1}, y, NoSymbols);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "load of operand 0: coordinate 0 is 4, shape [4]");
  Nest store = MapNest(4, Expr::Load(DType::kF32, 0, {Expr::Coord(0)}));
  store.output_coordinates = {Expr::Coord(0) - Expr::ConstantInt(DType::kI64, 1)};
  status = Interpret(store, {&x, 1}, y, NoSymbols);
  EXPECT_EQ(status.message(), "store to the output: coordinate 0 is -1, shape [4]");
  EXPECT_EQ(Interpret(MapNest(5, next), {&x, 1}, y, NoSymbols).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Interpret(MapNest(DimExpr::Symbol("N"), next), {&x, 1}, y, NoSymbols).code(),
            absl::StatusCode::kNotFound);
}

TEST(NestInterpreterTest, EveryLevelOfALoopNestSeesItsOwnCoordinates) {
  // out[i, j] = sum over r, s of (1000 i + 100 j + 10 r + s), from subexpressions of every level.
  const Expr i = Expr::Coord(0) * Expr::ConstantInt(DType::kI64, 1000);
  const Expr ij = i + Expr::Coord(1) * Expr::ConstantInt(DType::kI64, 100);
  const Expr ijr = ij + Expr::Coord(2) * Expr::ConstantInt(DType::kI64, 10);
  const Expr accumulator = Expr::Accumulator(DType::kI64, 0);
  Nest nest;
  nest.kept = {2, 3};
  nest.reduced = {2, 4};
  nest.reductions = {{.init = {Expr::ConstantInt(DType::kI64, 0)},
                      .update = {accumulator + (ijr + Expr::Coord(3))},
                      .merge = {accumulator + Expr::Accumulator(DType::kI64, 1)},
                      .result = accumulator + i}};
  nest.result = Expr::Reduced(DType::kI64, 0) + ij;
  nest.output = {DType::kI64, {2, 3}};
  Tensor y = *Tensor::Allocate(DType::kI64, {2, 3});
  ASSERT_TRUE(Interpret(nest, {}, y, NoSymbols).ok());
  for (int64_t a = 0; a < 2; ++a) {
    for (int64_t b = 0; b < 3; ++b) {
      int64_t sum = a * 1000 + a * 1000 + b * 100;
      for (int64_t r = 0; r < 2; ++r) {
        for (int64_t s = 0; s < 4; ++s) sum += a * 1000 + b * 100 + r * 10 + s;
      }
      EXPECT_EQ(y.ValueAsInt64(a * 3 + b), sum);
    }
  }
}

TEST(NestInterpreterTest, EmptyLoopsWriteNothingAndEmptyReductionsGiveTheirStart) {
  Tensor x = *Tensor::Allocate(DType::kF32, {0, 3});
  Tensor y = *Tensor::Allocate(DType::kF32, {0, 3});
  EXPECT_TRUE(Interpret(SoftmaxNest(0, 3), {&x, 1}, y, NoSymbols).ok());
  Nest sum;
  sum.kept = {2};
  sum.reduced = {0};
  sum.operands = {{DType::kF32, {2, 0}}};
  const Expr accumulator = Expr::Accumulator(DType::kF32, 0);
  sum.reductions = {
      {.init = {Expr::Constant(DType::kF32, 5)},
       .update = {accumulator + Expr::Load(DType::kF32, 0, {Expr::Coord(0), Expr::Coord(1)})},
       .merge = {accumulator + Expr::Accumulator(DType::kF32, 1)},
       .result = accumulator}};
  sum.result = Expr::Reduced(DType::kF32, 0);
  sum.output = {DType::kF32, {2}};
  x = *Tensor::Allocate(DType::kF32, {2, 0});
  y = *Tensor::Allocate(DType::kF32, {2});
  ASSERT_TRUE(Interpret(sum, {&x, 1}, y, NoSymbols).ok());
  EXPECT_EQ(y.values<float>()[1], 5);
}

TEST(NestInterpreterTest, LibraryStagesAreNotInterpreted) {
  for (const StageBody& body : ExampleStages()) {
    if (!std::holds_alternative<Library>(body)) continue;
    EXPECT_EQ(InterpretStage(body, {}, {}, NoSymbols).code(), absl::StatusCode::kUnimplemented);
  }
}

// A parsed stage does what the stage did that was written.
TEST(NestInterpreterTest, ParsedStagesComputeTheSame) {
  const absl::flat_hash_map<std::string, int64_t> values = {{"N", 4}, {"M", 6}};
  const auto symbols = [&values](absl::string_view name) -> std::optional<int64_t> {
    return values.at(name);
  };
  for (const StageBody& body : ExampleStages()) {
    if (std::holds_alternative<Library>(body)) continue;
    std::vector<DimExpr> dims;
    const absl::StatusOr<StageBody> parsed = ParseCanonicalBytes(CanonicalBytes(body, &dims));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const auto parameters = [&](absl::string_view name) -> std::optional<int64_t> {
      return *dims[static_cast<size_t>(std::stoi(std::string(name.substr(1))))].Evaluate(symbols);
    };
    const auto make = [&symbols](const Operand& operand) {
      std::vector<int64_t> shape;
      for (const DimExpr& dim : operand.shape) shape.push_back(*dim.Evaluate(symbols));
      Tensor tensor = *Tensor::Allocate(operand.dtype, shape);
      for (int64_t i = 0; i < tensor.element_count(); ++i) {
        tensor.SetFromDouble(i, static_cast<double>((i * 7) % 11) - 5);
      }
      return tensor;
    };
    const auto run = [&](const StageBody& stage, const DimExpr::SymbolValue& names) {
      std::vector<Tensor> operands;
      Tensor output;
      std::visit(
          [&](const auto& original) {
            if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(original)>, Library>) {
              for (const Operand& operand : original.operands) operands.push_back(make(operand));
              output = make(original.output);
            }
          },
          body);
      const absl::Status status = InterpretStage(stage, operands, {&output, 1}, names);
      EXPECT_TRUE(status.ok()) << status << ToString(stage);
      return std::vector<std::byte>(output.bytes().begin(), output.bytes().end());
    };
    EXPECT_EQ(run(body, symbols), run(*parsed, parameters)) << ToString(body);
  }
}

}  // namespace
}  // namespace stampmill
