#include "graph/block_layout.h"

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "graph/dtype.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

Tensor RandomRows(BlockFormat format, int64_t rows, int64_t blocks) {
  Tensor tensor = *Tensor::Allocate(DType::kU8, {rows, blocks * FactsOf(format).bytes});
  std::mt19937 random(7);
  for (std::byte& byte : tensor.mutable_bytes()) byte = std::byte(random() & 255);
  return tensor;
}

TEST(BlockLayoutTest, PackedRunsAreTheElementsOfTheFile) {
  for (int i = 0; i < kBlockFormatCount; ++i) {
    const auto format = static_cast<BlockFormat>(i);
    const BlockFacts& facts = FactsOf(format);
    for (const int64_t panel : {4, 8, 16}) {
      constexpr int64_t kRows = 19, kBlocks = 3;
      const Tensor rows = RandomRows(format, kRows, kBlocks);
      const Tensor packed = *PackBlocks(rows, format, panel);
      const BlockLayout layout = LayoutOf(format, panel);
      ASSERT_EQ(packed.shape()[0], (kRows + panel - 1) / panel);
      ASSERT_EQ(packed.shape()[1], kBlocks * layout.block_bytes);
      std::vector<float> values(static_cast<size_t>(facts.elements));
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t block = 0; block < kBlocks; ++block) {
          DecodeBlock(
              format,
              rows.bytes().subspan(static_cast<size_t>((row * kBlocks + block) * facts.bytes),
                                   static_cast<size_t>(facts.bytes)),
              values.data());
          for (int64_t k = 0; k < facts.elements; ++k) {
            const std::byte* at = packed.bytes().data() + row / panel * packed.shape()[1];
            const int64_t number = (block * facts.elements + k) / facts.run;
            const BlockRun run = ReadRun(layout, at, row % panel, number);
            const float product =
                run.scale * static_cast<float>(run.numbers[static_cast<size_t>(k % facts.run)]);
            const float value = facts.has_minimum ? product + run.minimum : product;
            const float want = values[static_cast<size_t>(k)];
            ASSERT_TRUE(value == want || (std::isnan(value) && std::isnan(want)))
                << facts.name << " panel " << panel << " row " << row << " element " << k;
          }
        }
      }
    }
  }
}

TEST(BlockLayoutTest, PackedFormsTakeHardlyMoreThanFiles) {
  for (int i = 0; i < kBlockFormatCount; ++i) {
    const auto format = static_cast<BlockFormat>(i);
    const double bytes = static_cast<double>(LayoutOf(format, 16).block_bytes) / 16;
    EXPECT_LE(bytes, 1.04 * static_cast<double>(FactsOf(format).bytes)) << Name(format);
  }
  EXPECT_EQ(LayoutOf(BlockFormat::kQ4_1, 16).block_bytes, 20 * 16);
  EXPECT_EQ(LayoutOf(BlockFormat::kQ4_K, 16).block_bytes, 148 * 16);
  EXPECT_EQ(LayoutOf(BlockFormat::kQ6_K, 8).block_bytes, 210 * 8);
}

TEST(BlockLayoutTest, NibblesOfAGroupMeetTheirQuads) {
  Tensor rows = *Tensor::Allocate(DType::kU8, {1, 18});
  // Element 5 is the second of quad 1, element 21 the second of quad 5.
  rows.mutable_values<uint8_t>()[2 + 5] = 0xb3;
  const Tensor packed = *PackBlocks(rows, BlockFormat::kQ4_0, 8);
  EXPECT_EQ(packed.values<uint8_t>()[16 + 1 * 32 + 1], 0xb3);
}

TEST(BlockLayoutTest, RowsThatAreNoWholeBlocksAreRefused) {
  const Tensor rows = *Tensor::Allocate(DType::kU8, {2, 19});
  EXPECT_EQ(PackBlocks(rows, BlockFormat::kQ4_0, 8).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stampmill
