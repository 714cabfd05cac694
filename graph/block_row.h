// BlockRow: a row that block-quantised weights multiply, as the reference interpreter computes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/block_layout.h"
#include "graph/row_records.h"

namespace stampmill {

class BlockRow {
 public:
  // From the bits of its f32 numbers: as they are, or rounded to bytes.
  void Assign(std::span<const uint64_t> row, bool exact);
  // Of `k` elements, from its records.
  void Assign(const RowRecords& records, const std::byte* row, int64_t k);

  // With row `row` of a panel, in the order and rounding of graph/nest.h.
  float Dot(const BlockLayout& layout, const std::byte* panel, int64_t row) const;

 private:
  void Read(const RowRecords& records, const std::byte* record, std::span<float> group);
  float AddRounded(const BlockRun& run, size_t begin, size_t length, float sum) const;
  float AddExact(const BlockRun& run, size_t begin, size_t length, float sum) const;

  bool exact_ = false;
  std::vector<float> numbers_;  // or bytes
  std::vector<float> scales_;   // by group
};

}  // namespace stampmill
