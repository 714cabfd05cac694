// RowRecords: how kernels find rows that block-quantised weights multiply, once they are rounded to
// bytes (graph/nest.h says how): for each group of 32 elements of a row a record, then room up to
// an odd number of cache lines, so that rows which are read together spread over all sets of a
// cache.
//
// A record is
//   bytes    32 i8; wide: 32 i16, of each four the first and third, then the second and fourth
//   scale    f32
//   extras   for each run of the format: if it has minimums, f32, the scale times the sum of bytes;
//            else i32, that sum times minus the format's zero
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/block_format.h"
#include "graph/block_layout.h"

namespace stampmill {

struct RowRecords {
  int64_t run = kBlockGroup;  // elements of a run
  int64_t zero = 0;
  bool has_minimum = false;
  bool wide = false;

  bool operator==(const RowRecords&) const = default;
  int64_t scale_at() const { return wide ? 2 * kBlockGroup : kBlockGroup; }
  int64_t extras_at() const { return scale_at() + 4; }
  int64_t record_bytes() const { return extras_at() + 4 * (kBlockGroup / run); }
  // REQUIRES: k is whole groups.
  int64_t row_bytes(int64_t k) const;
};
RowRecords RecordsFor(BlockFormat format, bool wide);

// Writes the record of 32 elements.
void RoundGroup(const RowRecords& records, std::span<const float> group, std::byte* record);
// What a record says: element i is about scale * byte i.
float ScaleOf(const RowRecords& records, const std::byte* record);
int8_t ByteOf(const RowRecords& records, const std::byte* record, int64_t i);

}  // namespace stampmill
