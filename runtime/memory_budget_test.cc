#include "runtime/memory_budget.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(MemoryBudgetTest, RefusesWhatDoesNotFitWithThePlan) {
  MemoryBudget budget("cpu", 100 * kMiB);
  EXPECT_TRUE(budget.Reserve(MemoryBudget::Kind::kWeights, "a", 60 * kMiB).ok());
  const absl::Status status = budget.Reserve(MemoryBudget::Kind::kWeights, "b", 41 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_NE(status.message().find("weights of 'b': got 42991616 bytes, limit 41943040"),
            absl::string_view::npos)
      << status;
  EXPECT_NE(status.message().find("weights a: 60 MiB"), absl::string_view::npos) << status;
  EXPECT_TRUE(budget.Reserve(MemoryBudget::Kind::kWorkspace, "b", 40 * kMiB).ok());
  EXPECT_EQ(budget.reserved_bytes(), 100 * kMiB);
}

TEST(MemoryBudgetTest, ASecondReservationReplacesTheFirst) {
  MemoryBudget budget("cpu", 100);
  EXPECT_TRUE(budget.Reserve(MemoryBudget::Kind::kPool, "p", 90).ok());
  EXPECT_TRUE(budget.Reserve(MemoryBudget::Kind::kPool, "p", 100).ok());
  const absl::Status pool = budget.Reserve(MemoryBudget::Kind::kPool, "p", 101);
  EXPECT_NE(pool.message().find("limit 100 (--device-memory-budget, --pinned-memory-pool-byte"),
            absl::string_view::npos)
      << pool;
  EXPECT_EQ(budget.reserved_bytes(), 100u);
  EXPECT_TRUE(budget.Reserve(MemoryBudget::Kind::kPool, "p", 1).ok());
  budget.Release(MemoryBudget::Kind::kPool, "p");
  EXPECT_EQ(budget.reserved_bytes(), 0u);
}

TEST(MemoryBudgetTest, FlagsAreBytesOrPerCent) {
  const auto parse = [](absl::string_view text) { return MemoryBudget::ParseFlag(text, 1000); };
  EXPECT_EQ(*parse("90%"), 900u);
  EXPECT_EQ(*parse("12.5 %"), 125u);
  EXPECT_EQ(*parse("77"), 77u);
  EXPECT_EQ(*parse("2KiB"), 2048u);
  EXPECT_EQ(*parse("3GiB"), uint64_t{3} << 30);
  for (const char* bad : {"", "x", "0", "-1", "101%", "0%", "nan%", "1XiB", "99999999999999999999",
                          "18446744073709551615GiB"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(parse(bad).status())) << bad;
  }
  EXPECT_GT(MemoryBudget::AvailableHostBytes(), kMiB);
}

}  // namespace
}  // namespace stampmill
