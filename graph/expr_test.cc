#include "graph/expr.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

Expr I64(int64_t value) { return Expr::ConstantInt(DType::kI64, value); }
Expr F32(double value) { return Expr::Constant(DType::kF32, value); }
Expr LoadF32() { return Expr::Load(DType::kF32, 0, {Expr::Coord(0)}); }

TEST(ExprTest, ConstantsFold) {
  EXPECT_EQ(I64(3) + I64(4), I64(7));
  EXPECT_EQ(Expr::Binary(ExprOp::kLt, F32(1), F32(2)), Expr::ConstantInt(DType::kBool, 1));
  EXPECT_EQ(Expr::Cast(DType::kU8, F32(300)).constant_int(), 255);
  EXPECT_EQ(Expr::ConstantInt(DType::kI64, INT64_MAX).constant_int(), INT64_MAX);
  EXPECT_EQ(Expr::Dim(12), I64(12));
  EXPECT_EQ(Expr::ConstantBits(DType::kI8, 0x1ff).constant_int(), -1);
}

TEST(ExprTest, IntegerIdentitiesSimplify) {
  const Expr c = Expr::Coord(1);
  EXPECT_EQ((c + I64(0)).id(), c.id());
  EXPECT_EQ((I64(1) * c).id(), c.id());
  EXPECT_EQ(c * I64(0), I64(0));
  EXPECT_EQ(c - c, I64(0));
  EXPECT_EQ((c + I64(2)) + I64(3), c + I64(5));
  EXPECT_EQ((c - I64(2)) + I64(2), c);
  EXPECT_EQ(Expr::Binary(ExprOp::kFloorMod, c, I64(1)), I64(0));
  EXPECT_EQ(Expr::Binary(ExprOp::kGe, c, I64(0)), Expr::ConstantInt(DType::kBool, 1));
  const DimExpr n = DimExpr::Symbol("N");
  EXPECT_EQ(Expr::Dim(n) * I64(2) + Expr::Dim(n), Expr::Dim(3 * n));
}

TEST(ExprTest, FloatSimplificationsNeverChangeAValue) {
  const Expr x = LoadF32();
  EXPECT_EQ((x * F32(1)).id(), x.id());
  EXPECT_EQ((x + F32(-0.0)).id(), x.id());
  EXPECT_EQ((x - F32(0)).id(), x.id());
  EXPECT_NE((x + F32(0)), x);  // -0 + 0 is +0
  EXPECT_NE(x * F32(0), F32(0));
  EXPECT_NE(x - x, F32(0));
  EXPECT_NE(F32(0), F32(-0.0));
}

TEST(ExprTest, SelectsAndGuardsOnConstantsVanish) {
  const Expr yes = Expr::ConstantInt(DType::kBool, 1);
  const Expr no = Expr::ConstantInt(DType::kBool, 0);
  const Expr x = LoadF32();
  EXPECT_EQ(Expr::Select(yes, x, F32(2)), x);
  EXPECT_EQ(Expr::Select(no, x, F32(2)), F32(2));
  EXPECT_EQ(Expr::GuardedLoad(DType::kF32, 0, {Expr::Coord(0)}, yes, F32(9)), x);
  EXPECT_EQ(Expr::GuardedLoad(DType::kF32, 0, {Expr::Coord(0)}, no, F32(9)), F32(9));
  const Expr condition = Expr::Binary(ExprOp::kLt, x, F32(3));
  EXPECT_EQ(Expr::Binary(ExprOp::kBitAnd, yes, condition), condition);
  EXPECT_EQ(Expr::Binary(ExprOp::kBitAnd, condition, no), no);
  EXPECT_EQ(Expr::Unary(ExprOp::kNot, Expr::Unary(ExprOp::kNot, condition)), condition);
}

TEST(ExprTest, EqualityIsStructural) {
  const auto build = [](double slope) {
    const Expr x = LoadF32();
    return Expr::Select(Expr::Binary(ExprOp::kLt, x, F32(0)), x * F32(slope), x);
  };
  EXPECT_EQ(build(0.1), build(0.1));
  EXPECT_EQ(build(0.1).hash(), build(0.1).hash());
  EXPECT_NE(build(0.1), build(0.2));
  EXPECT_NE(build(0.1), Expr());
  EXPECT_EQ(build(0.1).ToString(), "%0 = load0[c0]; select(lt(%0, 0f32), mul(%0, 0.1f32), %0)");
}

TEST(ExprTest, RewriteDoesNotReplaceTwiceWhatSimplificationLeaves) {
  // With c0 = 0 the sum is c1 alone, which has become c0 already.
  const Expr e = Expr::Coord(0) * Expr::ConstantInt(DType::kI64, 3) + Expr::Coord(1);
  const Expr dropped = e.Rewrite([](const Expr& node) {
    if (node.op() != ExprOp::kCoord) return node;
    return node.index() == 0 ? Expr::ConstantInt(DType::kI64, 0) : Expr::Coord(node.index() - 1);
  });
  EXPECT_TRUE(dropped == Expr::Coord(0)) << dropped.ToString();
}

TEST(ExprTest, RewriteSeesSharedNodesOnceAndSimplifiesAgain) {
  const Expr x = LoadF32();
  const Expr sum = x + F32(5);
  const Expr e = sum * sum;
  int loads = 0;
  const Expr replaced = e.Rewrite([&loads](const Expr& node) {
    if (node.op() != ExprOp::kLoad) return node;
    ++loads;
    return F32(1);
  });
  EXPECT_EQ(loads, 1);
  EXPECT_EQ(replaced, F32(36));
  EXPECT_EQ(e.Rewrite([](const Expr& node) { return node; }).id(), e.id());
  EXPECT_EQ(e.NodeCount(), 5);
}

TEST(ExprTest, LongAndDoublingChainsAreCheap) {
  Expr deep = LoadF32();
  Expr twin = LoadF32();
  for (int i = 0; i < 50000; ++i) {
    deep = Expr::Unary(ExprOp::kAbs, deep + deep);
    if (i < 20000) twin = Expr::Unary(ExprOp::kAbs, twin + twin);
  }
  EXPECT_EQ(deep.NodeCount(), 100002);
  EXPECT_NE(deep, twin);
  Expr again = LoadF32();
  for (int i = 0; i < 20000; ++i) again = Expr::Unary(ExprOp::kAbs, again + again);
  EXPECT_EQ(twin, again);
  EXPECT_LT(twin.ToString().size(), 10000000u);
  EXPECT_TRUE(deep.Rewrite([](const Expr& e) { return e.op() == ExprOp::kLoad ? F32(0) : e; })
                  .IsConstant());
}

TEST(ExprTest, ScalarsEvaluate) {
  const Expr n = Expr::Dim(DimExpr::Symbol("N"));
  const Expr e = Expr::Select(Expr::Binary(ExprOp::kGt, n, I64(10)), n * I64(2),
                              Expr::Binary(ExprOp::kFloorDiv, n, I64(3)));
  const auto with = [](int64_t value) {
    return [value](absl::string_view) { return std::optional<int64_t>(value); };
  };
  EXPECT_EQ(*EvaluateScalar(e, with(20)), 40u);
  EXPECT_EQ(*EvaluateScalar(e, with(9)), 3u);
  EXPECT_EQ(EvaluateScalar(LoadF32(), with(1)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      EvaluateScalar(n, [](absl::string_view) { return std::optional<int64_t>(); }).status().code(),
      absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stampmill
