#include "graph/block_format.h"

#include <bit>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

struct Known {
  BlockFormat format;
  std::vector<size_t> high_bytes;  // of f16 numbers
  float first, last;               // elements of the first block
  uint64_t hash;                   // FNV-1a of all elements' bytes
};

// What gguf.quants.dequantize of the Python package gguf 0.19 says of the blocks that Random makes.
const std::vector<Known>& KnownBlocks() {
  static const auto& known = *new std::vector<Known>{
      {BlockFormat::kQ4_0, {1}, -0x1.d28p-13f, -0x1.37p-13f, 0x6352619cd0341cac},
      {BlockFormat::kQ4_1, {1, 3}, -0x1.90238p-5f, -0x1.98a48p-5f, 0x6213709d4cf75b34},
      {BlockFormat::kQ5_0, {1}, 0x1.f96p-11f, 0x1.37p-14f, 0xe72c1d2202059439},
      {BlockFormat::kQ5_1, {1, 3}, -0x1.8975p-5f, -0x1.959bp-5f, 0xc4441cbea2bc4f3e},
      {BlockFormat::kQ8_0, {1}, 0x1.eaccp-8f, 0x1.176ap-7f, 0xb5058715d0c07f4c},
      {BlockFormat::kQ2_K, {81, 83}, -0x1.d3ap-3f, -0x1.6c38p-1f, 0xaf68a1359b24bd04},
      {BlockFormat::kQ3_K, {109}, 0x1.13ap+0f, 0x1.f02p-1f, 0x2084ab6f2fea22fe},
      {BlockFormat::kQ4_K, {1, 3}, 0x1.51cfc4p+0f, 0x1.7851p-2f, 0x7d2f5c6db9bc7e97},
      {BlockFormat::kQ5_K, {1, 3}, 0x1.58df74p+0f, 0x1.6c2bp-2f, 0xa6363d9dc2f40da3},
      {BlockFormat::kQ6_K, {209}, -0x1.4bac4p+11f, 0x1.e99ccp+7f, 0xcda32e794de78001},
      {BlockFormat::kIQ4_NL, {1}, -0x1.5428p-9f, -0x1.abap-10f, 0xa6f8f582ee80f178},
      {BlockFormat::kIQ4_XS, {1}, -0x1.e5fp-10f, -0x1.0b44p-7f, 0x9ae7918c401907e4},
      {BlockFormat::kMXFP4, {}, 0x1p+94f, 0x1.8p+95f, 0x1462beaa0bcbabdf},
  };
  return known;
}

// Blocks of random bytes, but for f16 numbers, which are finite.
std::vector<std::byte> RandomBlocks(const Known& known, size_t blocks) {
  std::vector<std::byte> bytes;
  uint32_t state = 12345;
  const auto block_bytes = static_cast<size_t>(FactsOf(known.format).bytes);
  for (size_t i = 0; i < blocks * block_bytes; ++i) {
    state = state * 1103515245u + 12345u;
    bytes.push_back(std::byte(state >> 16 & 255));
  }
  for (size_t block = 0; block < blocks; ++block) {
    for (const size_t at : known.high_bytes) bytes[block * block_bytes + at] &= std::byte{0xbf};
  }
  return bytes;
}

TEST(BlockFormatTest, ElementsAreThoseOfTheGgufPackageBitForBit) {
  constexpr size_t kBlocks = 16;
  EXPECT_EQ(KnownBlocks().size(), static_cast<size_t>(kBlockFormatCount));
  for (const Known& known : KnownBlocks()) {
    const BlockFacts& facts = FactsOf(known.format);
    const std::vector<std::byte> bytes = RandomBlocks(known, kBlocks);
    const auto block_bytes = static_cast<size_t>(facts.bytes);
    const auto elements = static_cast<size_t>(facts.elements);
    std::vector<float> values(kBlocks * elements);
    for (size_t i = 0; i < kBlocks; ++i) {
      DecodeBlock(known.format, std::span(bytes).subspan(i * block_bytes, block_bytes),
                  values.data() + i * elements);
    }
    EXPECT_EQ(values[0], known.first) << facts.name;
    EXPECT_EQ(values[elements - 1], known.last) << facts.name;
    uint64_t hash = 0xcbf29ce484222325;
    for (const float value : values) {
      const auto bits = std::bit_cast<uint32_t>(value);
      for (int i = 0; i < 4; ++i) hash = (hash ^ (bits >> (8 * i) & 255)) * 0x100000001b3;
    }
    EXPECT_EQ(hash, known.hash) << facts.name;
  }
}

TEST(BlockFormatTest, EveryNameAndNumberFindsItsFormat) {
  for (int i = 0; i < kBlockFormatCount; ++i) {
    const auto format = static_cast<BlockFormat>(i);
    EXPECT_EQ(BlockFormatFromName(Name(format)), format);
    EXPECT_EQ(BlockFormatFromGgmlType(FactsOf(format).ggml_type), format);
  }
  EXPECT_EQ(BlockFormatFromGgmlType(12), BlockFormat::kQ4_K);
  EXPECT_FALSE(BlockFormatFromName("q4_2").has_value());
  EXPECT_FALSE(BlockFormatFromGgmlType(4).has_value());
  EXPECT_FALSE(BlockFormatFromGgmlType(-1).has_value());
}

TEST(BlockFormatTest, TheLeastExponentsAreBelowNormalNumbers) {
  EXPECT_EQ(ExponentScale(0), 0x1p-128f);
  EXPECT_EQ(ExponentScale(1), 0x1p-127f);
  EXPECT_EQ(ExponentScale(2), 0x1p-126f);
  EXPECT_EQ(ExponentScale(128), 1.0f);
  EXPECT_EQ(ExponentScale(255), 0x1p127f);
}

}  // namespace
}  // namespace stampmill
