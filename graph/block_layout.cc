#include "graph/block_layout.h"

#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/dtype.h"

namespace stampmill {
namespace {

// Of a code of so many bits: how many are in the low plane.
int64_t LowBits(int64_t bits) {
  if (bits == 8) return 8;
  return bits >= 4 ? 4 : 2;
}

// The planes of 32 codes: `target` is the first byte of a row.
void WritePlane(const uint8_t* codes, int64_t shift, int64_t bits, int64_t vector_bytes,
                uint8_t* target) {
  const int mask = (1 << bits) - 1;
  for (int64_t v = 0; v < bits; ++v) {
    for (int64_t e = 0; e < 4; ++e) {
      int byte = 0;
      for (int64_t quad = v; quad < kBlockQuads; quad += bits) {
        byte |= (codes[4 * quad + e] >> shift & mask) << (quad - v);
      }
      target[v * vector_bytes + e] = static_cast<uint8_t>(byte);
    }
  }
}

void WriteSubs(const BlockLayout& layout, const BlockContents& block, int64_t row,
               uint8_t* target) {
  const int64_t runs = layout.runs_per_group();
  for (int64_t g = 0; g < layout.groups_per_block(); ++g) {
    uint8_t* group = target + layout.subs_at + g * layout.group_subs_bytes;
    for (int64_t r = 0; r < runs; ++r) {
      const auto scale = static_cast<uint8_t>(block.sub_scales[static_cast<size_t>(g * runs + r)]);
      const uint8_t minimum = block.sub_minimums[static_cast<size_t>(g * runs + r)];
      uint8_t* at = group + r * layout.panel + row;
      *at = layout.nibble_subs ? static_cast<uint8_t>(scale | minimum << 4) : scale;
      if (layout.facts().has_minimum && !layout.nibble_subs) at[layout.sub_minimums_at] = minimum;
    }
  }
}

// One block of one row.
void WriteBlock(const BlockLayout& layout, const BlockContents& block, int64_t row,
                uint8_t* target) {
  const BlockFacts& facts = layout.facts();
  const int64_t scale_bytes = layout.minimums_at / layout.panel;
  std::memcpy(target + row * scale_bytes, block.scale_bits.data(),
              static_cast<size_t>(scale_bytes));
  if (facts.has_minimum) {
    std::memcpy(target + layout.minimums_at + 2 * row, block.minimum_bits.data(), 2);
  }
  if (facts.has_sub_scales) WriteSubs(layout, block, row, target);
  for (int64_t g = 0; g < layout.groups_per_block(); ++g) {
    const uint8_t* codes = block.codes.data() + g * kBlockGroup;
    uint8_t* at = target + layout.codes_at + g * layout.group_codes_bytes + 4 * row;
    WritePlane(codes, 0, layout.low_bits, 4 * layout.panel, at);
    if (layout.high_bits == 0) continue;
    WritePlane(codes, layout.low_bits, layout.high_bits, 4 * layout.panel,
               at + layout.plane_bytes(layout.low_bits));
  }
}

// Element `e` of quad `quad` in a plane that begins at `plane`.
int ReadPlane(const uint8_t* plane, int64_t bits, int64_t vector_bytes, int64_t quad, int64_t e) {
  return plane[quad % bits * vector_bytes + e] >> (quad / bits * bits) & ((1 << bits) - 1);
}

float HalfAt(const uint8_t* bytes) {
  return HalfToFloat(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
}

}  // namespace

BlockLayout LayoutOf(BlockFormat format, int64_t panel) {
  const BlockFacts& facts = FactsOf(format);
  BlockLayout layout;
  layout.format = format;
  layout.panel = panel;
  layout.low_bits = LowBits(facts.bits);
  layout.high_bits = facts.bits - layout.low_bits;
  layout.nibble_subs = format == BlockFormat::kQ2_K;
  layout.minimums_at = format == BlockFormat::kMXFP4 ? panel : 2 * panel;
  layout.subs_at = layout.minimums_at + (facts.has_minimum ? 2 * panel : 0);
  if (facts.has_sub_scales) {
    layout.sub_minimums_at = layout.runs_per_group() * panel;
    const bool two = facts.has_minimum && !layout.nibble_subs;
    layout.group_subs_bytes = layout.sub_minimums_at * (two ? 2 : 1);
  }
  layout.codes_at = layout.subs_at + layout.groups_per_block() * layout.group_subs_bytes;
  layout.group_codes_bytes =
      layout.plane_bytes(layout.low_bits) + layout.plane_bytes(layout.high_bits);
  layout.block_bytes = layout.codes_at + layout.groups_per_block() * layout.group_codes_bytes;
  return layout;
}

absl::StatusOr<Tensor> PackBlocks(const Tensor& rows, BlockFormat format, int64_t panel) {
  const BlockFacts& facts = FactsOf(format);
  if (rows.dtype() != DType::kU8 || rows.rank() != 2 || rows.shape()[1] % facts.bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", Name(format), ": got ",
                                                   Name(rows.dtype()), " of rank ", rows.rank(),
                                                   ", want u8, ", facts.bytes, " bytes a block"));
  }
  const BlockLayout layout = LayoutOf(format, panel);
  const int64_t count = rows.shape()[0];
  const int64_t blocks = rows.shape()[1] / facts.bytes;
  const int64_t panel_bytes = blocks * layout.block_bytes;
  ASSIGN_OR_RETURN(Tensor packed,
                   Tensor::Allocate(DType::kU8, {(count + panel - 1) / panel, panel_bytes}));
  auto* target = reinterpret_cast<uint8_t*>(packed.mutable_bytes().data());
  for (int64_t row = 0; row < count; ++row) {
    uint8_t* to = target + row / panel * panel_bytes;
    for (int64_t block = 0; block < blocks; ++block) {
      const auto at = static_cast<size_t>((row * blocks + block) * facts.bytes);
      const BlockContents contents =
          TakeApart(format, rows.bytes().subspan(at, static_cast<size_t>(facts.bytes)));
      WriteBlock(layout, contents, row % panel, to + block * layout.block_bytes);
    }
  }
  return packed;
}

BlockRun ReadRun(const BlockLayout& layout, const std::byte* panel, int64_t row, int64_t number) {
  const BlockFacts& facts = layout.facts();
  const int64_t runs = layout.runs_per_group();
  const int64_t group = number / runs % layout.groups_per_block();
  const int64_t block = number / runs / layout.groups_per_block();
  const auto* bytes = reinterpret_cast<const uint8_t*>(panel) + block * layout.block_bytes;
  BlockRun run;
  run.scale =
      layout.format == BlockFormat::kMXFP4 ? ExponentScale(bytes[row]) : HalfAt(bytes + 2 * row);
  run.has_minimum = facts.has_minimum;
  if (facts.has_minimum) run.minimum = HalfAt(bytes + layout.minimums_at + 2 * row);
  if (facts.has_sub_scales) {
    const uint8_t* sub = bytes + layout.subs_at + group * layout.group_subs_bytes +
                         number % runs * layout.panel + row;
    const int scale = layout.nibble_subs ? *sub & 15 : static_cast<int8_t>(*sub);
    run.scale = run.scale * static_cast<float>(scale);
    if (facts.has_minimum) {
      const int minimum = layout.nibble_subs ? *sub >> 4 : sub[layout.sub_minimums_at];
      run.minimum = -(run.minimum * static_cast<float>(minimum));
    }
  }
  const uint8_t* low = bytes + layout.codes_at + group * layout.group_codes_bytes + 4 * row;
  const uint8_t* high = low + layout.plane_bytes(layout.low_bits);
  for (int64_t i = 0; i < facts.run; ++i) {
    const int64_t element = number % runs * facts.run + i;
    const int64_t quad = element / 4, e = element % 4;
    int code = ReadPlane(low, layout.low_bits, 4 * layout.panel, quad, e);
    if (layout.high_bits > 0) {
      code |= ReadPlane(high, layout.high_bits, 4 * layout.panel, quad, e) << layout.low_bits;
    }
    const int value = facts.values.empty() ? code : facts.values[static_cast<size_t>(code)];
    run.numbers[static_cast<size_t>(i)] = static_cast<int16_t>(value - facts.zero);
  }
  return run;
}

}  // namespace stampmill
