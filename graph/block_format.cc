#include "graph/block_format.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "graph/dtype.h"

namespace stampmill {
namespace {

// Tables are kept as unsigned numbers, moved by `zero`.
constexpr uint8_t kNonLinear[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                    129, 141, 153, 166, 181, 197, 217, 241};
constexpr int64_t kNonLinearZero = 128;
// Twice the values of the 4-bit float with 2 bits of exponent.
constexpr uint8_t kFloat4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
constexpr int64_t kFloat4Zero = 12;

constexpr BlockFacts kFacts[kBlockFormatCount] = {
    // name, ggml type, elements, bytes, run, bits, zero, sub-scales, minimum, values
    {"q4_0", 2, 32, 18, 32, 4, 8, false, false, {}},
    {"q4_1", 3, 32, 20, 32, 4, 0, false, true, {}},
    {"q5_0", 6, 32, 22, 32, 5, 16, false, false, {}},
    {"q5_1", 7, 32, 24, 32, 5, 0, false, true, {}},
    {"q8_0", 8, 32, 34, 32, 8, 128, false, false, {}},
    {"q2_k", 10, 256, 84, 16, 2, 0, true, true, {}},
    {"q3_k", 11, 256, 110, 16, 3, 4, true, false, {}},
    {"q4_k", 12, 256, 144, 32, 4, 0, true, true, {}},
    {"q5_k", 13, 256, 176, 32, 5, 0, true, true, {}},
    {"q6_k", 14, 256, 210, 16, 6, 32, true, false, {}},
    {"iq4_nl", 20, 32, 18, 32, 4, kNonLinearZero, false, false, kNonLinear},
    {"iq4_xs", 23, 256, 136, 32, 4, kNonLinearZero, true, false, kNonLinear},
    {"mxfp4", 39, 32, 17, 32, 4, kFloat4Zero, false, false, kFloat4},
};

using Bytes = const uint8_t*;

// 32 codes of four bits: byte i has those of elements i and i + 16.
void TakeNibbles(Bytes bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 15;
    codes[i + 16] = bytes[i] >> 4;
  }
}

// 64 codes of four bits: byte i has those of elements i and i + 32.
void TakeWideNibbles(Bytes bytes, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) {
    codes[i] = bytes[i] & 15;
    codes[i + 32] = bytes[i] >> 4;
  }
}

// 128 fields of two bits: byte i has those of elements i, i + 32, i + 64 and i + 96.
void AddPairsOfBits(Bytes bytes, int shift, uint8_t* codes) {
  for (int part = 0; part < 4; ++part) {
    for (int i = 0; i < 32; ++i) {
      codes[32 * part + i] |= static_cast<uint8_t>((bytes[i] >> (2 * part) & 3) << shift);
    }
  }
}

// 256 single bits: byte i has those of elements i, i + 32, ...
void AddBitPlanes(Bytes bytes, int shift, uint8_t* codes) {
  for (int part = 0; part < 8; ++part) {
    for (int i = 0; i < 32; ++i) {
      codes[32 * part + i] |= static_cast<uint8_t>((bytes[i] >> part & 1) << shift);
    }
  }
}

// The fifth bits of 32 elements, in order.
void AddFifthBits(Bytes bytes, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) {
    codes[i] |= static_cast<uint8_t>((bytes[i / 8] >> (i % 8) & 1) << 4);
  }
}

// Eight scales and eight minimums of six bits: the first four of each are the low bits of bytes 0-3
// and 4-7, the others are nibbles of bytes 8-11 and the high bits of the former.
void TakeSixBits(Bytes bytes, BlockContents& block) {
  for (size_t i = 0; i < 4; ++i) {
    block.sub_scales[i] = static_cast<int8_t>(bytes[i] & 63);
    block.sub_minimums[i] = bytes[i + 4] & 63;
    block.sub_scales[i + 4] = static_cast<int8_t>((bytes[i + 8] & 15) | (bytes[i] >> 6 << 4));
    block.sub_minimums[i + 4] =
        static_cast<uint8_t>((bytes[i + 8] >> 4) | (bytes[i + 4] >> 6 << 4));
  }
}

void TakeQ2K(Bytes bytes, BlockContents& block) {
  for (size_t run = 0; run < 16; ++run) {
    block.sub_scales[run] = static_cast<int8_t>(bytes[run] & 15);
    block.sub_minimums[run] = bytes[run] >> 4;
  }
  AddPairsOfBits(bytes + 16, 0, block.codes.data());
  AddPairsOfBits(bytes + 48, 0, block.codes.data() + 128);
  std::memcpy(block.scale_bits.data(), bytes + 80, 2);
  std::memcpy(block.minimum_bits.data(), bytes + 82, 2);
}

void TakeQ3K(Bytes bytes, BlockContents& block) {
  AddPairsOfBits(bytes + 32, 0, block.codes.data());
  AddPairsOfBits(bytes + 64, 0, block.codes.data() + 128);
  AddBitPlanes(bytes, 2, block.codes.data());
  Bytes scales = bytes + 96;
  for (size_t run = 0; run < 16; ++run) {
    const int low = scales[run % 8] >> (run < 8 ? 0 : 4) & 15;
    const int high = scales[8 + run % 4] >> (2 * (run / 4)) & 3;
    block.sub_scales[run] = static_cast<int8_t>((low | high << 4) - 32);
  }
  std::memcpy(block.scale_bits.data(), bytes + 108, 2);
}

void TakeQ45K(BlockFormat format, Bytes bytes, BlockContents& block) {
  const bool five = format == BlockFormat::kQ5_K;
  std::memcpy(block.scale_bits.data(), bytes, 2);
  std::memcpy(block.minimum_bits.data(), bytes + 2, 2);
  TakeSixBits(bytes + 4, block);
  Bytes nibbles = bytes + (five ? 48 : 16);
  for (int part = 0; part < 4; ++part) {
    TakeWideNibbles(nibbles + 32 * part, block.codes.data() + 64 * part);
  }
  if (five) AddBitPlanes(bytes + 16, 4, block.codes.data());
}

void TakeQ6K(Bytes bytes, BlockContents& block) {
  for (int half = 0; half < 2; ++half) {
    uint8_t* codes = block.codes.data() + 128 * half;
    Bytes nibbles = bytes + 64 * half;
    for (int i = 0; i < 64; ++i) {
      codes[i] = nibbles[i] & 15;
      codes[i + 64] = nibbles[i] >> 4;
    }
    AddPairsOfBits(bytes + 128 + 32 * half, 4, codes);
  }
  std::memcpy(block.sub_scales.data(), bytes + 192, 16);
  std::memcpy(block.scale_bits.data(), bytes + 208, 2);
}

void TakeIQ4XS(Bytes bytes, BlockContents& block) {
  std::memcpy(block.scale_bits.data(), bytes, 2);
  for (size_t run = 0; run < 8; ++run) {
    const int low = bytes[4 + run / 2] >> (4 * (run % 2)) & 15;
    const int high = bytes[2 + run / 4] >> (2 * (run % 4)) & 3;
    block.sub_scales[run] = static_cast<int8_t>((low | high << 4) - 32);
    TakeNibbles(bytes + 8 + 16 * run, block.codes.data() + 32 * run);
  }
}

// The formats of 32 elements: scale, minimum, fifth bits, codes.
void TakeSmall(BlockFormat format, Bytes bytes, BlockContents& block) {
  const BlockFacts& facts = FactsOf(format);
  const size_t scale_bytes = format == BlockFormat::kMXFP4 ? 1 : 2;
  std::memcpy(block.scale_bits.data(), bytes, scale_bytes);
  bytes += scale_bytes;
  if (facts.has_minimum) {
    std::memcpy(block.minimum_bits.data(), bytes, 2);
    bytes += 2;
  }
  if (facts.bits == 8) {
    for (int i = 0; i < 32; ++i) block.codes[static_cast<size_t>(i)] = bytes[i] ^ 0x80;
    return;
  }
  TakeNibbles(bytes + (facts.bits == 5 ? 4 : 0), block.codes.data());
  if (facts.bits == 5) AddFifthBits(bytes, block.codes.data());
}

float HalfAt(const std::array<uint8_t, 2>& bits) {
  return HalfToFloat(static_cast<uint16_t>(bits[0] | bits[1] << 8));
}

}  // namespace

const BlockFacts& FactsOf(BlockFormat format) { return kFacts[static_cast<size_t>(format)]; }

absl::string_view Name(BlockFormat format) { return FactsOf(format).name; }

std::optional<BlockFormat> BlockFormatFromName(absl::string_view name) {
  for (int i = 0; i < kBlockFormatCount; ++i) {
    if (kFacts[i].name == name) return static_cast<BlockFormat>(i);
  }
  return std::nullopt;
}

std::optional<BlockFormat> BlockFormatFromGgmlType(int64_t ggml_type) {
  for (int i = 0; i < kBlockFormatCount; ++i) {
    if (kFacts[i].ggml_type == ggml_type) return static_cast<BlockFormat>(i);
  }
  return std::nullopt;
}

BlockContents TakeApart(BlockFormat format, std::span<const std::byte> block) {
  CHECK(block.size() == static_cast<size_t>(FactsOf(format).bytes)) << Name(format);
  const auto* bytes = reinterpret_cast<const uint8_t*>(block.data());
  BlockContents contents = {};
  switch (format) {
    case BlockFormat::kQ2_K:
      TakeQ2K(bytes, contents);
      break;
    case BlockFormat::kQ3_K:
      TakeQ3K(bytes, contents);
      break;
    case BlockFormat::kQ4_K:
    case BlockFormat::kQ5_K:
      TakeQ45K(format, bytes, contents);
      break;
    case BlockFormat::kQ6_K:
      TakeQ6K(bytes, contents);
      break;
    case BlockFormat::kIQ4_XS:
      TakeIQ4XS(bytes, contents);
      break;
    default:
      TakeSmall(format, bytes, contents);
  }
  return contents;
}

float ExponentScale(uint8_t exponent) {
  // The two least are below the least normal number.
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent
                                           : static_cast<uint32_t>(exponent - 1) << 23);
}

void DecodeBlock(BlockFormat format, std::span<const std::byte> block, float* out) {
  const BlockFacts& facts = FactsOf(format);
  const BlockContents contents = TakeApart(format, block);
  const bool is_exponent = format == BlockFormat::kMXFP4;
  const float scale =
      is_exponent ? ExponentScale(contents.scale_bits[0]) : HalfAt(contents.scale_bits);
  const float minimum = HalfAt(contents.minimum_bits);
  for (int64_t i = 0; i < facts.elements; ++i) {
    const auto run = static_cast<size_t>(i / facts.run);
    const uint8_t code = contents.codes[static_cast<size_t>(i)];
    const int64_t number = (facts.values.empty() ? code : facts.values[code]) - facts.zero;
    const float run_scale = facts.has_sub_scales ? scale * contents.sub_scales[run] : scale;
    out[i] = run_scale * static_cast<float>(number);
    if (!facts.has_minimum) continue;
    const float run_minimum =
        facts.has_sub_scales ? -(minimum * contents.sub_minimums[run]) : minimum;
    out[i] = out[i] + run_minimum;
  }
}

}  // namespace stampmill
