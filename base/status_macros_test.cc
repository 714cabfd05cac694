#include "base/status_macros.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::InvalidArgumentError("value: got negative");
  return std::make_unique<int>(value);
}

absl::Status Verify(int value) {
  RETURN_IF_ERROR(value > 9 ? absl::OutOfRangeError("value: too large") : absl::OkStatus());
  return absl::OkStatus();
}

absl::StatusOr<int> Sum(int a, int b) {
  RETURN_IF_ERROR(Verify(a));
  ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Make(a));
  std::unique_ptr<int> second;
  ASSIGN_OR_RETURN(second, Make(b));
  return *first + *second;
}

TEST(StatusMacros, ContinueWhenAllIsWell) {
  const absl::StatusOr<int> sum = Sum(2, 3);
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(*sum, 5);
}

TEST(StatusMacros, ReturnTheFirstError) {
  EXPECT_EQ(Sum(10, -1).status(), absl::OutOfRangeError("value: too large"));
  EXPECT_EQ(Sum(-1, 1).status(), absl::InvalidArgumentError("value: got negative"));
  EXPECT_EQ(Sum(1, -1).status(), absl::InvalidArgumentError("value: got negative"));
}

absl::StatusOr<std::map<int, std::string>> MakeMap() {
  return std::map<int, std::string>{{1, "one"}};
}

absl::StatusOr<std::string> First() {
  ASSIGN_OR_RETURN((const std::map<int, std::string> map), MakeMap());
  return map.begin()->second;
}

TEST(StatusMacros, TakeALeftHandSideWithCommasInParentheses) { EXPECT_EQ(*First(), "one"); }

}  // namespace
}  // namespace stampmill
