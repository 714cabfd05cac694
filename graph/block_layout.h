// BlockLayout: how kernels find quantised weights. `panel` rows lie interleaved, so that a vector
// has as many rows in its lanes: no sum runs across lanes, and a matrix is one stream of bytes.
//
// A panel is its blocks along k, one after the other. A block of R rows is
//   scales           R f16 (MXFP4: R exponents of 8 bits)
//   minimums         R f16, where the format has them
//   sub-scales       for each group of 32 elements, for each of its runs R i8; then, likewise, R u8
//                    sub-minimums. Where both are nibbles they share a byte, the minimum above
//   codes            for each group of 32 elements its planes: the low bits, then the high ones
// A group is 8 quads of 4 neighbours along k. A plane of b bits is b vectors of 4 R bytes: byte
// 4 i + e of vector v has element e of row i of quads v, v + b, v + 2b, ..., the first in its
// lowest b bits. Codes of 2, 4 and 8 bits are one plane, of 3, 5 and 6 bits one of 2 or 4 and a
// high one. Rows past the last one are zeros.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "graph/block_format.h"
#include "graph/tensor.h"

namespace stampmill {

inline constexpr int64_t kBlockGroup = 32;  // elements along k
inline constexpr int64_t kBlockQuads = kBlockGroup / 4;
inline constexpr int64_t kBlockPanelMax = 64;

struct BlockLayout {
  BlockFormat format = BlockFormat::kQ4_0;
  int64_t panel = 0;         // rows
  int64_t low_bits = 0;      // of a code, in the first plane
  int64_t high_bits = 0;     // in the second; 0: there is none
  bool nibble_subs = false;  // a sub-scale and a sub-minimum share a byte
  // Bytes within a block.
  int64_t minimums_at = 0;
  int64_t subs_at = 0;
  int64_t sub_minimums_at = 0;  // within a group's sub-scales
  int64_t group_subs_bytes = 0;
  int64_t codes_at = 0;
  int64_t group_codes_bytes = 0;
  int64_t block_bytes = 0;

  const BlockFacts& facts() const { return FactsOf(format); }
  int64_t groups_per_block() const { return facts().elements / kBlockGroup; }
  int64_t runs_per_group() const { return kBlockGroup / facts().run; }
  int64_t plane_bytes(int64_t bits) const { return bits * 4 * panel; }
};
// REQUIRES: 0 < panel <= kBlockPanelMax.
BlockLayout LayoutOf(BlockFormat format, int64_t panel);

// u8[panels, bytes of a panel] of the rows of a file, u8[rows, bytes of a row], whole blocks each.
// RESOURCE_EXHAUSTED without memory, INVALID_ARGUMENT for rows that are no whole blocks.
absl::StatusOr<Tensor> PackBlocks(const Tensor& rows, BlockFormat format, int64_t panel);

// Neighbours along k that share scale and minimum.
struct BlockRun {
  float scale = 0;
  bool has_minimum = false;
  float minimum = 0;                         // what is added, if the format has it
  std::array<int16_t, kBlockGroup> numbers;  // codes less zero, FactsOf(format).run of them
};
// Run `number`, counted along k, of row `row` of a panel.
BlockRun ReadRun(const BlockLayout& layout, const std::byte* panel, int64_t row, int64_t number);

}  // namespace stampmill
