// Block formats: how quantised weights of GGUF files are stored. A row of a matrix is a sequence of
// blocks; a block holds integers of a few bits and what they are multiplied by.
//
// All formats are one scheme: an element is `scale * (code - zero) + minimum` in f32, where code
// is an unsigned integer, or what a table of 16 has for it, and scale and minimum are those of its
// run of neighbouring elements: f16 numbers of the block, maybe times small integers of the run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/strings/string_view.h"

namespace stampmill {

// The numbers are part of canonical bytes (graph/nest.h): append only.
enum class BlockFormat : uint8_t {
  kQ4_0 = 0,
  kQ4_1 = 1,
  kQ5_0 = 2,
  kQ5_1 = 3,
  kQ8_0 = 4,
  kQ2_K = 5,
  kQ3_K = 6,
  kQ4_K = 7,
  kQ5_K = 8,
  kQ6_K = 9,
  kIQ4_NL = 10,
  kIQ4_XS = 11,
  kMXFP4 = 12,
};
inline constexpr int kBlockFormatCount = 13;

// Elements of the longest block.
inline constexpr int64_t kBlockElementsMax = 256;

struct BlockFacts {
  absl::string_view name;           // "q4_1", "iq4_nl"
  int32_t ggml_type = 0;            // its number in files
  int64_t elements = 0;             // of a block: 32 or 256
  int64_t bytes = 0;                // of a block in a file
  int64_t run = 0;                  // elements that share scale and minimum: 16 or 32
  int64_t bits = 0;                 // of a code: 2 to 6, or 8
  int64_t zero = 0;                 // what is subtracted from codes; with a table, from its entries
  bool has_sub_scales = false;      // runs multiply the block's scale by an integer
  bool has_minimum = false;         // of the block, f16
  std::span<const uint8_t> values;  // 16 entries that codes stand for; empty: for themselves
};
const BlockFacts& FactsOf(BlockFormat format);

absl::string_view Name(BlockFormat format);
std::optional<BlockFormat> BlockFormatFromName(absl::string_view name);
std::optional<BlockFormat> BlockFormatFromGgmlType(int64_t ggml_type);

// A block taken apart.
struct BlockContents {
  std::array<uint8_t, kBlockElementsMax> codes;  // by element
  std::array<uint8_t, 2> scale_bits;             // f16, little-endian; MXFP4: an exponent, then 0
  std::array<uint8_t, 2> minimum_bits;           // f16: added (sub-scales: subtracted)
  std::array<int8_t, kBlockElementsMax / 16> sub_scales;  // by run
  std::array<uint8_t, kBlockElementsMax / 16> sub_minimums;
};
// REQUIRES: as many bytes as FactsOf(format).bytes.
BlockContents TakeApart(BlockFormat format, std::span<const std::byte> block);

// The value of an MXFP4 block's exponent: half the power of two that it names, since the entries of
// its table are doubled.
float ExponentScale(uint8_t exponent);

// The elements of one block, as the format defines them, each operation rounded to f32.
// REQUIRES: as many bytes as FactsOf(format).bytes, and `out` has room for its elements.
void DecodeBlock(BlockFormat format, std::span<const std::byte> block, float* out);

}  // namespace stampmill
