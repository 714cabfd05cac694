#include "graph/nest.h"

#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/testing/stages.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

bool Mentions(const absl::Status& status, absl::string_view text) {
  return status.message().find(text) != absl::string_view::npos;
}

TEST(NestTest, StagesOfEachKindVerifyAndPrint) {
  for (const StageBody& body : ExampleStages()) {
    EXPECT_TRUE(Verify(body).ok()) << Verify(body) << "\n" << ToString(body);
    EXPECT_FALSE(ToString(body).empty());
  }
}

TEST(NestTest, VerifyNamesWhatIsWrong) {
  const Nest good = SoftmaxNest(DimExpr::Symbol("N"), 8);
  Nest nest = good;
  nest.result = nest.result + Expr::Load(DType::kF32, 3, {Expr::Coord(0), Expr::Coord(1)});
  EXPECT_TRUE(Mentions(Verify(nest), "loads operand 3 of 1")) << Verify(nest);
  nest = good;
  nest.result = Expr::Load(DType::kF32, 0, {Expr::Coord(0)});
  EXPECT_TRUE(Mentions(Verify(nest), "has 1 coordinates, rank 2")) << Verify(nest);
  nest = good;
  nest.result = Expr::Load(DType::kF32, 0, {Expr::Coord(0), Expr::Coord(2)});
  EXPECT_TRUE(Mentions(Verify(nest), "axis 2, limit 2")) << Verify(nest);
  nest = good;
  nest.per_element = false;
  EXPECT_TRUE(Mentions(Verify(nest), "axis 1, limit 1")) << Verify(nest);
  nest = good;
  nest.result = Expr::Cast(DType::kF64, nest.result);
  EXPECT_TRUE(Mentions(Verify(nest), "dtype f64, need f32")) << Verify(nest);
  nest = good;
  nest.result = nest.result + Expr::Accumulator(DType::kF32, 0);
  EXPECT_TRUE(Mentions(Verify(nest), "accumulator 0, limit 0")) << Verify(nest);
  nest = good;
  nest.reductions[0].update[0] = nest.reductions[0].update[0] + Expr::Reduced(DType::kF32, 0);
  EXPECT_TRUE(Mentions(Verify(nest), "reduced 0, limit 0")) << Verify(nest);
  nest = good;
  nest.reductions[0].merge.clear();
  EXPECT_TRUE(Mentions(Verify(nest), "0 merges")) << Verify(nest);
  nest = good;
  nest.output.shape = {DimExpr::Symbol("N")};
  EXPECT_TRUE(Mentions(Verify(nest), "output shape [N]")) << Verify(nest);
  nest = good;
  nest.result = Expr();
  EXPECT_EQ(Verify(nest).code(), absl::StatusCode::kInternal);

  Contraction contraction = MatMulContraction(DimExpr::Symbol("M"), 20, 7, 16);
  contraction.operands[1].shape[0] = 3;
  EXPECT_TRUE(Mentions(Verify(contraction), "b has shape [3, 7, 16]")) << Verify(contraction);
  contraction.b = 2;
  EXPECT_TRUE(Mentions(Verify(contraction), "b is operand 2 of 2")) << Verify(contraction);

  contraction = PairMatMulContraction(DimExpr::Symbol("M"), 20, 7, 16);
  contraction.operands[1].shape[1] = 7;
  EXPECT_TRUE(Mentions(Verify(contraction), "need [..., 2, 4, 16]")) << Verify(contraction);
  contraction = PairMatMulContraction(DimExpr::Symbol("M"), 20, 7, 16);
  contraction.a = Expr::Cast(DType::kF32, contraction.a);
  EXPECT_TRUE(Mentions(Verify(contraction), "need bf16")) << Verify(contraction);
  contraction.accumulator = DType::kI32;
  EXPECT_TRUE(Mentions(Verify(contraction), "need i16")) << Verify(contraction);
  contraction.accumulator = DType::kF64;
  EXPECT_TRUE(Mentions(Verify(contraction), "b has dtype u32")) << Verify(contraction);
}

TEST(NestTest, BlocksAreWholeAndFitTheirPanels) {
  const DimExpr m = DimExpr::Symbol("M");
  Contraction contraction = BlockMatMulContraction(m, 20, 256, BlockFormat::kQ4_K, 16);
  EXPECT_TRUE(Verify(contraction).ok()) << Verify(contraction);
  contraction.operands[1].shape[1] = 2367;
  EXPECT_TRUE(Mentions(Verify(contraction), "need [..., 2, 2368]")) << Verify(contraction);
  contraction = BlockMatMulContraction(m, 20, 256, BlockFormat::kQ4_K, 16);
  contraction.k = {128};
  EXPECT_TRUE(Mentions(Verify(contraction), "blocks of 256")) << Verify(contraction);
  contraction.k = {DimExpr::Symbol("K")};
  EXPECT_TRUE(Mentions(Verify(contraction), "blocks of 256")) << Verify(contraction);
  contraction = BlockMatMulContraction(m, 20, 256, BlockFormat::kQ4_K, 16);
  contraction.panel = 65;
  EXPECT_TRUE(Mentions(Verify(contraction), "panel 65 of blocks")) << Verify(contraction);
  contraction = MatMulContraction(m, 20, 7, 16);
  contraction.exact_rows = true;
  EXPECT_TRUE(Mentions(Verify(contraction), "without blocks")) << Verify(contraction);
}

TEST(NestTest, RecordsArePlainLoadsOfWholeRows) {
  const DimExpr m = DimExpr::Symbol("M");
  const Contraction records =
      WithRecords(BlockMatMulContraction(m, 20, 256, BlockFormat::kQ4_K, 16), false);
  EXPECT_TRUE(Verify(records).ok()) << Verify(records);
  Contraction contraction = records;
  contraction.operands[0].shape[1] = 256;
  EXPECT_TRUE(Mentions(Verify(contraction), "records of shape [M, 320]")) << Verify(contraction);
  contraction = records;
  contraction.a = Expr::Load(DType::kU8, 0, {Expr::Coord(1), Expr::Coord(0)});
  EXPECT_TRUE(Mentions(Verify(contraction), "no plain load")) << Verify(contraction);
  contraction = records;
  contraction.exact_rows = true;
  EXPECT_TRUE(Mentions(Verify(contraction), "no plain load")) << Verify(contraction);
}

TEST(NestTest, CanonicalBytesForgetNamesAndSharing) {
  const auto bytes_of = [](const StageBody& body, std::vector<DimExpr>* dims) {
    return CanonicalBytes(body, dims);
  };
  std::vector<DimExpr> dims, other;
  const std::string bytes = bytes_of(SoftmaxNest(DimExpr::Symbol("N"), 8), &dims);
  EXPECT_EQ(bytes, bytes_of(SoftmaxNest(DimExpr::Symbol("batch") * 3, 8), &other));
  EXPECT_EQ(dims, (std::vector<DimExpr>{DimExpr::Symbol("N")}));
  EXPECT_EQ(other, (std::vector<DimExpr>{DimExpr::Symbol("batch") * 3}));
  EXPECT_NE(bytes, bytes_of(SoftmaxNest(DimExpr::Symbol("N"), 9), &other));
  EXPECT_NE(bytes, bytes_of(SoftmaxNest(4, 8), &other));

  const auto square = [](bool share) {
    const Expr a = Expr::Load(DType::kF32, 0, {Expr::Coord(0)});
    const Expr b = Expr::Load(DType::kF32, 0, {Expr::Coord(0)});
    return MapNest(DimExpr::Symbol("N"), share ? a * a : a * b);
  };
  EXPECT_EQ(bytes_of(square(true), &dims), bytes_of(square(false), &dims));
}

TEST(NestTest, CanonicalBytesSurviveTheRoundTrip) {
  for (const StageBody& body : ExampleStages()) {
    std::vector<DimExpr> dims, parsed_dims;
    const std::string bytes = CanonicalBytes(body, &dims);
    const absl::StatusOr<StageBody> parsed = ParseCanonicalBytes(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status() << ToString(body);
    EXPECT_EQ(CanonicalBytes(*parsed, &parsed_dims), bytes) << ToString(*parsed);
    ASSERT_EQ(parsed_dims.size(), dims.size());
    for (size_t i = 0; i < dims.size(); ++i) {
      EXPECT_EQ(parsed_dims[i].ToString(), "d" + std::to_string(i));
    }
  }
}

TEST(NestTest, DamagedBytesAreRefusedOrStillVerify) {
  std::mt19937 random(7);
  for (const StageBody& body : ExampleStages()) {
    std::vector<DimExpr> dims;
    const std::string bytes = CanonicalBytes(body, &dims);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_EQ(ParseCanonicalBytes(absl::string_view(bytes).substr(0, size)).status().code(),
                absl::StatusCode::kInvalidArgument);
    }
    for (int i = 0; i < 2000; ++i) {
      std::string damaged = bytes;
      damaged[random() % damaged.size()] = static_cast<char>(random());
      const absl::StatusOr<StageBody> parsed = ParseCanonicalBytes(damaged);
      if (parsed.ok()) {
        EXPECT_TRUE(Verify(*parsed).ok());
      } else {
        EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
      }
    }
  }
}

}  // namespace
}  // namespace stampmill
