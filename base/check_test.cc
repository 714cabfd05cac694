#include "base/check.h"

#include <cstddef>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(Check, PassesWithoutEvaluatingItsMessage) {
  int evaluated = 0;
  CHECK(true) << ++evaluated;
  CHECK_EQ(1, 1) << ++evaluated;
  CHECK_OK(absl::OkStatus()) << ++evaluated;
  CHECK_OK(absl::StatusOr<int>(3)) << ++evaluated;
  EXPECT_EQ(evaluated, 0);
}

TEST(Check, EvaluatesItsArgumentsOnce) {
  int a = 0;
  CHECK(++a > 0);
  CHECK_EQ(++a, 2);
  EXPECT_EQ(a, 2);
}

TEST(Check, IsOneStatementInAnUnbracedIf) {
  bool other = false;
  if (other)
    CHECK(false);
  else
    other = true;
  EXPECT_TRUE(other);
  if (!other)
    CHECK_EQ(1, 2);
  else
    other = false;
  EXPECT_FALSE(other);
}

TEST(Check, ComparesIntegersOfDifferentSignByValue) {
  const std::vector<int> values = {1, 2};
  CHECK_EQ(values.size(), 2);
  CHECK_LT(-1, values.size());
  CHECK_GT(size_t{0}, -1);
  CHECK_NE(-1, ~size_t{0});
}

TEST(CheckDeathTest, NamesFileLineExpressionAndMessage) {
  EXPECT_DEATH(CHECK(1 > 2) << "more " << 7, "check_test.cc:[0-9]+: CHECK failed: 1 > 2 more 7");
}

TEST(CheckDeathTest, ShowsBothValues) {
  enum class Color { kRed = 3 };
  struct Opaque {
    bool operator==(const Opaque&) const { return false; }
  };
  const int a = 1;
  EXPECT_DEATH(CHECK_EQ(a, 2), "a == 2 \\(1 vs. 2\\)");
  EXPECT_DEATH(CHECK_LE(std::string("b"), "a"), "\\(b vs. a\\)");
  EXPECT_DEATH(CHECK_NE(Color::kRed, Color::kRed), "\\(3 vs. 3\\)");
  EXPECT_DEATH(CHECK_EQ(static_cast<unsigned char>(65), 66), "\\(65 vs. 66\\)");
  EXPECT_DEATH(CHECK_EQ(Opaque(), Opaque()), "no text form");
}

TEST(CheckDeathTest, ShowsTheStatus) {
  EXPECT_DEATH(CHECK_OK(absl::NotFoundError("no such thing")), "NOT_FOUND: no such thing");
  EXPECT_DEATH(CHECK_OK(absl::StatusOr<int>(absl::InternalError("x"))), "INTERNAL: x");
}

}  // namespace
}  // namespace stampmill
