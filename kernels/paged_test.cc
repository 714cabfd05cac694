// Operators on the paged cache of keys and values.
#include "kernels/paged.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "graph/dtype.h"
#include "graph/tensor.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

constexpr float kScale = 0.3F;

// Tokens of three sequences: one in the middle of a long one, one that begins, one token alone.
struct Places {
  std::vector<double> positions, sequences;
  std::vector<double> tables;
  int64_t rows = 3, columns = 4;

  int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
  Tensor Positions() const { return Values(DType::kI32, {tokens()}, positions); }
  Tensor Sequences() const { return Values(DType::kI32, {tokens()}, sequences); }
  Tensor Tables() const { return Values(DType::kI32, {rows, columns}, tables); }
};

Places Mixed() {
  Places places;
  for (int i = 0; i < 9; ++i) {
    places.positions.push_back(43 + i);
    places.sequences.push_back(1);
  }
  for (int i = 0; i < 5; ++i) {
    places.positions.push_back(i);
    places.sequences.push_back(0);
  }
  places.positions.push_back(16);
  places.sequences.push_back(2);
  // Blocks in no order; those that a sequence does not have yet are 0.
  places.tables = {7, 0, 0, 0, 3, 8, 1, 5, 2, 6, 0, 0};
  return places;
}

constexpr int64_t kBlocks = 9;

OpCase Attention(int64_t heads, int64_t kv_heads, int64_t size, int64_t value_size) {
  const Places places = Mixed();
  const int64_t padded = (value_size + kKvValueGroup - 1) / kKvValueGroup * kKvValueGroup;
  return {.op_type = "PagedAttention",
          .domain = "stampmill",
          .inputs = {Random(DType::kF32, {places.tokens(), heads * size}, 1),
                     Random(DType::kF16, {kBlocks, kv_heads, size, kKvBlockTokens}, 2, 1),
                     Random(DType::kF16, {kBlocks, kv_heads, kKvBlockTokens, padded}, 3),
                     places.Positions(), places.Sequences(), places.Tables()},
          .attributes = {{"q_num_heads", heads}, {"value_size", value_size}, {"scale", kScale}},
          // The model fixes heads and their sizes.
          .shared_symbols = false,
          .tolerance = {.relative = 1e-5, .absolute = 1e-5}};
}

TEST(Paged, AttentionReadsEachTokensOwnBlocks) {
  for (const int64_t size : {16, 64, 80})
    ExpectLoweringMatchesReference(Attention(6, 2, size, size));
}

TEST(Paged, AttentionOfAnyGroupOfHeads) {
  ExpectLoweringMatchesReference(Attention(1, 1, 16, 16));
  ExpectLoweringMatchesReference(Attention(7, 1, 32, 32));
  ExpectLoweringMatchesReference(Attention(9, 3, 32, 32));
  ExpectLoweringMatchesReference(Attention(8, 1, 16, 16));
}

TEST(Paged, AttentionOfSizesThatFillNoVector) {
  ExpectLoweringMatchesReference(Attention(3, 1, 20, 20));
  ExpectLoweringMatchesReference(Attention(4, 2, 5, 33));
}

TEST(Paged, AttentionThroughAWindow) {
  for (const int64_t window : {1, 3, 16, 17, 40, 1000}) {
    OpCase test = Attention(4, 2, 16, 16);
    test.attributes["window"] = window;
    ExpectLoweringMatchesReference(test);
  }
}

TEST(Paged, AttentionUnderASoftCap) {
  OpCase test = Attention(4, 2, 64, 64);
  test.attributes["softcap"] = 2.0F;
  ExpectLoweringMatchesReference(test);
}

TEST(Paged, WritesTouchTheTokensPlacesOnly) {
  const Places places = Mixed();
  for (const bool keys : {true, false}) {
    const std::vector<int64_t> cache = keys ? std::vector<int64_t>{kBlocks, 2, 20, kKvBlockTokens}
                                            : std::vector<int64_t>{kBlocks, 2, kKvBlockTokens, 32};
    ExpectLoweringMatchesReference(
        {.op_type = "KvWrite",
         .domain = "stampmill",
         .inputs = {Random(DType::kF16, cache, 4), Random(DType::kF32, {places.tokens(), 40}, 5),
                    places.Positions(), places.Sequences(), places.Tables()},
         .attributes = {{"keys", int64_t{keys ? 1 : 0}}},
         .shared_symbols = false});
  }
}

TEST(Paged, AttentionOfOneKeyIsItsValue) {
  OpCase test = Attention(1, 1, 16, 1);
  test.inputs[0] = Random(DType::kF32, {1, 16}, 1);
  test.inputs[3] = Values(DType::kI32, {1}, {0});
  test.inputs[4] = Values(DType::kI32, {1}, {0});
  const double value = test.inputs[2].ValueAsDouble(7 * kKvBlockTokens * kKvValueGroup);
  ExpectReference(test, Values(DType::kF32, {1, 1}, {value}));
}

TEST(Paged, CachesOfOtherShapesAreRefused) {
  OpCase test = Attention(4, 2, 16, 16);
  test.attributes["q_num_heads"] = int64_t{3};
  const auto built = BuildCase(test, CaseDims::kFixed);
  ASSERT_TRUE(absl::IsInvalidArgument(built.status())) << built.status();
  EXPECT_TRUE(absl::StrContains(built.status().message(), "elements of the queries"))
      << built.status();
  test = Attention(4, 2, 16, 16);
  test.inputs[1] = Random(DType::kF16, {kBlocks, 2, 16, 8}, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(BuildCase(test, CaseDims::kFixed).status()));
}

}  // namespace
}  // namespace stampmill
