#include "graph/dim.h"

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

class DimTest : public testing::Test {
 protected:
  const DimExpr n = DimExpr::Symbol("N");
  const DimExpr s = DimExpr::Symbol("S");
  const DimExpr w = DimExpr::Symbol("W");
};

DimExpr::SymbolValue Values(const absl::flat_hash_map<std::string, int64_t>& values) {
  return [&values](absl::string_view name) -> std::optional<int64_t> {
    const auto it = values.find(name);
    if (it == values.end()) return std::nullopt;
    return it->second;
  };
}

TEST_F(DimTest, EqualPolynomialsAreEqualAndHashAlike) {
  const DimExpr a = (n + 2) * (s - 1);
  const DimExpr b = n * s - n + 2 * s - 2;
  EXPECT_EQ(a, b);
  EXPECT_EQ(absl::HashOf(a), absl::HashOf(b));
  EXPECT_EQ(a.ToString(), "N*S - N + 2*S - 2");
  EXPECT_FALSE(a < b || b < a);
  EXPECT_NE(a, b + 1);
  EXPECT_TRUE((n - n).IsConstant(0));
  EXPECT_TRUE((n * s - s * n).IsConstant(0));
}

TEST_F(DimTest, PrintsAsPeopleWrite) {
  EXPECT_EQ((2 * n * s + 4).ToString(), "2*N*S + 4");
  EXPECT_EQ((DimExpr(0) - n).ToString(), "-N");
  EXPECT_EQ(FloorDiv(w + 1, 2).ToString(), "floordiv(W + 1, 2)");
  EXPECT_EQ(ToString(Shape{n, 128}), "[N, 128]");
  EXPECT_EQ(DimExpr().ToString(), "0");
  EXPECT_EQ((n * n).ToString(), "N*N");
}

TEST_F(DimTest, DivisionCancelsCommonFactors) {
  EXPECT_EQ(FloorDiv(6 * n * s, 3 * n), 2 * s);
  EXPECT_EQ(FloorDiv(n * s * 12, n * s), DimExpr(12));
  EXPECT_EQ(FloorDiv(4 * n + 6, 2), 2 * n + 3);
  EXPECT_EQ(FloorDiv(4 * n * s + 2 * s, 6 * s), FloorDiv(2 * n + 1, 3));
  EXPECT_EQ(FloorDiv(n * s + n, s + 1), n);
  EXPECT_EQ(FloorDiv((n + 1) * (n + s + 3) * 5, n + s + 3), 5 * n + 5);
  EXPECT_EQ(Mod(6 * n * s, 3 * n), DimExpr(0));
  EXPECT_EQ(Mod((n + 1) * (s + 2), s + 2), DimExpr(0));
  EXPECT_EQ(Mod(4 * n + 6, 4), DimExpr(2));
  EXPECT_EQ(Mod(4 * n + 2 * s, 8), 2 * Mod(2 * n + s, 4));
}

TEST_F(DimTest, DivisionSplitsOffWholeParts) {
  EXPECT_EQ(FloorDiv(8 * n + 3, 8), n);
  EXPECT_EQ(FloorDiv(n * s + 0, s), n);
  EXPECT_EQ(FloorDiv(8 * n + Mod(s, 8), 8), n);
  EXPECT_EQ(FloorDiv(s * n + Mod(w, s), s), n);
  EXPECT_EQ(Mod(8 * n + 3, 8), DimExpr(3));
  EXPECT_EQ(Mod(s * n + Mod(w, s), s), Mod(w, s));
  EXPECT_EQ(FloorDiv(w - 3, 2) + 2, FloorDiv(w + 1, 2));
  EXPECT_EQ(Mod(Mod(w, 12), 4), Mod(w, 4));
}

TEST_F(DimTest, NestedDivisionsBecomeOne) {
  EXPECT_EQ(FloorDiv(FloorDiv(w, 2), 3), FloorDiv(w, 6));
  EXPECT_EQ(FloorDiv(FloorDiv(w + 1, 2) + 1, 2), FloorDiv(w + 3, 4));
  EXPECT_EQ(FloorDiv(FloorDiv(w, n), s), FloorDiv(w, n * s));
  EXPECT_EQ(CeilDiv(CeilDiv(w, 2), 2), CeilDiv(w, 4));
  EXPECT_EQ(FloorDiv(2 * w + 3, 4), FloorDiv(w + 1, 2));
}

TEST_F(DimTest, ExtremesDropWhatCannotWin) {
  EXPECT_EQ(Max(n + 1, 1), n + 1);
  EXPECT_EQ(Min(n, n + 3), n);
  EXPECT_EQ(Max(n, FloorDiv(n, 2)), n);
  EXPECT_EQ(Min(FloorDiv(n + 1, 2), n + 1), FloorDiv(n + 1, 2));
  EXPECT_EQ(Max(Max(n, s), n), Max(s, n));
  EXPECT_EQ(Max(Max(n, 3), 5), Max(n, 5));
  EXPECT_EQ(Min(Max(n, s), n), n);
  EXPECT_EQ(Max(n, s).ToString(), "max(N, S)");
}

TEST_F(DimTest, BoundsFollowFromSymbolsBeingNaturalNumbers) {
  EXPECT_EQ((n + 3).LowerBound(), 3);
  EXPECT_EQ((n - 3).LowerBound(), -3);
  EXPECT_FALSE((n + 3).UpperBound().has_value());
  EXPECT_EQ((5 - n).UpperBound(), 5);
  EXPECT_FALSE((n - s).LowerBound().has_value());
  EXPECT_EQ(Mod(n, 7).UpperBound(), 6);
  EXPECT_EQ(Min(n, 9).UpperBound(), 9);
  EXPECT_EQ((n - FloorDiv(n, 2)).LowerBound(), 0);
  EXPECT_EQ((2 * FloorDiv(n, 2) - n).LowerBound(), -1);
  EXPECT_EQ((n - Min(n, s)).LowerBound(), 0);
  EXPECT_EQ((n + s - Max(n, s)).LowerBound(), 0);
}

TEST_F(DimTest, DivisionByZeroAndOverflowFailInEvaluateOnly) {
  const absl::flat_hash_map<std::string, int64_t> values = {{"N", int64_t{1} << 40}};
  EXPECT_EQ(FloorDiv(n, 0).Evaluate(Values(values)).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Mod(5, DimExpr(0)).Evaluate(Values(values)).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ((n * n).Evaluate(Values(values)).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(s.Evaluate(Values(values)).status().code(), absl::StatusCode::kNotFound);
  const DimExpr big = int64_t{1} << 40;
  const DimExpr overflow = big * big;
  EXPECT_FALSE(overflow.is_constant());
  EXPECT_EQ((overflow + n).Evaluate(Values(values)).status().code(), absl::StatusCode::kOutOfRange);
  const DimExpr least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(FloorDiv(least, -1).Evaluate(Values(values)).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(Mod(least, -1).IsConstant(0));
  EXPECT_TRUE(FloorDiv(n + least, least).Evaluate(Values(values)).ok());
}

TEST_F(DimTest, HugeExpressionsFailInsteadOfGrowing) {
  DimExpr e = n;
  for (int i = 0; i < 1000; ++i) e = Max(FloorDiv(e, s + i), Mod(e, w + i)) * e + i;
  EXPECT_LE(e.ToString().size(), 100000u);
  const absl::flat_hash_map<std::string, int64_t> values = {{"N", 5}, {"S", 1}, {"W", 2}};
  EXPECT_FALSE(e.Evaluate(Values(values)).ok());
}

TEST_F(DimTest, SubstitutionSimplifiesAgain) {
  const DimExpr e = FloorDiv(n * s + w, 4);
  EXPECT_EQ(e.Substitute({{"S", 8}, {"W", DimExpr(3)}}), 2 * n);
  EXPECT_EQ(e.Substitute({{"N", s}}), FloorDiv(s * s + w, 4));
  EXPECT_EQ(e.Symbols(), (std::vector<std::string>{"N", "S", "W"}));
}

TEST_F(DimTest, ShapesHaveCountsAndStrides) {
  const Shape shape = {n, 3, s};
  EXPECT_EQ(ElementCount(shape), 3 * n * s);
  EXPECT_EQ(RowMajorStrides(shape), (Shape{3 * s, s, 1}));
  EXPECT_EQ(ElementCount(Shape{}), DimExpr(1));
  EXPECT_FALSE(IsConstant(shape));
  EXPECT_EQ(ConstantShape(Shape{2, 3}), (std::vector<int64_t>{2, 3}));
}

TEST_F(DimTest, TableHoldsEachExpressionOnceAndEvaluatesAll) {
  DimTable table({"N", "S"});
  const int32_t a = table.Add(3 * n * s + FloorDiv(n + 1, 2));
  const int32_t b = table.Add(FloorDiv(n + 1, 2));
  const size_t size = table.size();
  EXPECT_LT(b, a);
  EXPECT_EQ(table.Add(FloorDiv(n + 1, 2)), b);
  EXPECT_LT(table.Add(3 * n * s), a);
  EXPECT_EQ(table.size(), size);
  EXPECT_EQ(table.Add(n + w), -1);
  EXPECT_EQ(table.expr(a), 3 * n * s + FloorDiv(n + 1, 2));
  EXPECT_FALSE(table.Find(w).has_value());
  std::vector<int64_t> values(table.size());
  values[0] = 5;
  values[1] = 7;
  ASSERT_EQ(EvaluateDims(table.instructions(), table.symbol_count(), values), -1);
  EXPECT_EQ(values[static_cast<size_t>(a)], 108);
  EXPECT_EQ(values[static_cast<size_t>(b)], 3);
  values[0] = int64_t{1} << 62;
  EXPECT_GE(EvaluateDims(table.instructions(), table.symbol_count(), values), 2);
}

// Builds the same random expression as a DimExpr and as a number.
struct Random {
  std::mt19937 generator;
  absl::flat_hash_map<std::string, int64_t> values;

  int Below(int end) { return static_cast<int>(generator() % static_cast<unsigned>(end)); }

  // `value` is empty where it is undefined.
  DimExpr Build(int depth, std::optional<int64_t>* value) {
    if (depth == 0 || Below(5) == 0) {
      if (Below(2) == 0) {
        *value = Below(9) - 3;
        return DimExpr(**value);
      }
      const std::string name(1, static_cast<char>('a' + Below(3)));
      *value = values[name];
      return DimExpr::Symbol(name);
    }
    std::optional<int64_t> x, y;
    const DimExpr a = Build(depth - 1, &x);
    const DimExpr b = Build(depth - 1, &y);
    const int operation = Below(7);
    *value = std::nullopt;
    static constexpr DimExpr::Kind kKinds[] = {DimExpr::Kind::kAdd,      DimExpr::Kind::kMul,
                                               DimExpr::Kind::kFloorDiv, DimExpr::Kind::kMod,
                                               DimExpr::Kind::kMin,      DimExpr::Kind::kMax};
    if (x.has_value() && y.has_value()) {
      int64_t result = 0;
      const bool defined = operation == 6
                               ? !__builtin_sub_overflow(*x, *y, &result)
                               : EvaluateDimOperation(kKinds[operation], *x, *y, &result);
      if (defined) *value = result;
    }
    switch (operation) {
      case 0:
        return a + b;
      case 1:
        return a * b;
      case 2:
        return FloorDiv(a, b);
      case 3:
        return Mod(a, b);
      case 4:
        return Min(a, b);
      case 5:
        return Max(a, b);
      default:
        return a - b;
    }
  }
};

TEST_F(DimTest, SimplificationKeepsValuesAndBoundsHold) {
  int compared = 0;
  for (int seed = 0; seed < 6000; ++seed) {
    Random random = {std::mt19937(static_cast<unsigned>(seed)), {}};
    for (const char* name : {"a", "b", "c"}) random.values[name] = random.Below(12);
    std::optional<int64_t> expected;
    const DimExpr e = random.Build(4, &expected);
    if (!expected.has_value()) continue;
    const absl::StatusOr<int64_t> actual = e.Evaluate(Values(random.values));
    if (!actual.ok()) continue;  // a division by a symbol that is 0, moved by simplification
    ++compared;
    ASSERT_EQ(*actual, *expected) << seed << ": " << e.ToString();
    if (e.LowerBound().has_value()) ASSERT_LE(*e.LowerBound(), *expected) << e.ToString();
    if (e.UpperBound().has_value()) ASSERT_GE(*e.UpperBound(), *expected) << e.ToString();
    // Rebuilding a canonical form gives the same form.
    ASSERT_EQ(e.Substitute({}), e) << seed << ": " << e.ToString();
  }
  EXPECT_GT(compared, 2000);
}

}  // namespace
}  // namespace stampmill
