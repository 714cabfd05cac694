#include "runtime/prompt_lookup.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

std::vector<int32_t> Drafts(const std::vector<int32_t>& text, size_t most) {
  std::vector<int32_t> drafts = {99};
  LookUpDrafts(text, most, drafts);
  return drafts;
}

using Tokens = std::vector<int32_t>;

TEST(PromptLookupTest, FindsWhatFollowedTheLastTokensBefore) {
  EXPECT_EQ(Drafts({1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, 8), (Tokens{4, 5, 6}));
  EXPECT_EQ(Drafts({1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, 1), (Tokens{4}));
  EXPECT_EQ(Drafts({1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4}, 8), (Tokens{5, 6, 7, 8}));
}

TEST(PromptLookupTest, AsksForThreeTokensThatMatch) {
  EXPECT_EQ(Drafts({1, 2, 3, 4, 9, 2, 3}, 3), Tokens{});
  EXPECT_EQ(Drafts({}, 3), Tokens{});
  EXPECT_EQ(Drafts({1}, 3), Tokens{});
  EXPECT_EQ(Drafts({1, 1, 1}, 3), Tokens{});
  EXPECT_EQ(Drafts({1, 2, 3, 4}, 3), Tokens{});
  EXPECT_EQ(Drafts({1, 2, 3, 1, 2, 3}, 0), Tokens{});
}

TEST(PromptLookupTest, PrefersTheLongerMatchAndThenTheLater) {
  EXPECT_EQ(Drafts({7, 1, 2, 3, 5, 8, 1, 2, 3, 6, 7, 1, 2, 3}, 1), (Tokens{5}));
  EXPECT_EQ(Drafts({1, 2, 3, 5, 1, 2, 3, 6, 9, 1, 2, 3}, 1), (Tokens{6}));
}

TEST(PromptLookupTest, GoesRoundWhereTheTextEnds) {
  EXPECT_EQ(Drafts({4, 1, 2, 3, 1, 2, 3, 1, 2, 3}, 5), (Tokens{1, 2, 3, 1, 2}));
  EXPECT_EQ(Drafts({5, 5, 5, 5, 5}, 4), (Tokens{5, 5, 5, 5}));
}

}  // namespace
}  // namespace stampmill
