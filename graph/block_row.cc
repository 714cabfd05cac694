#include "graph/block_row.h"

#include <bit>
#include <cmath>

namespace stampmill {

void BlockRow::Assign(std::span<const uint64_t> row, bool exact) {
  exact_ = exact;
  numbers_.clear();
  scales_.clear();
  for (const uint64_t bits : row) {
    numbers_.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  if (exact) return;
  // Any format's records have the bytes and the scale.
  const RowRecords records = RecordsFor(BlockFormat::kQ4_0, false);
  std::vector<std::byte> record(static_cast<size_t>(records.record_bytes()));
  for (size_t begin = 0; begin < numbers_.size(); begin += kBlockGroup) {
    const std::span<float> group = std::span(numbers_).subspan(begin, kBlockGroup);
    RoundGroup(records, group, record.data());
    Read(records, record.data(), group);
  }
}

void BlockRow::Assign(const RowRecords& records, const std::byte* row, int64_t k) {
  exact_ = false;
  numbers_.resize(static_cast<size_t>(k));
  scales_.clear();
  for (size_t begin = 0; begin < numbers_.size(); begin += kBlockGroup) {
    Read(records, row, std::span(numbers_).subspan(begin, kBlockGroup));
    row += records.record_bytes();
  }
}

float BlockRow::Dot(const BlockLayout& layout, const std::byte* panel, int64_t row) const {
  const auto length = static_cast<size_t>(layout.facts().run);
  float sum = 0;
  for (size_t begin = 0; begin < numbers_.size(); begin += length) {
    const BlockRun run = ReadRun(layout, panel, row, static_cast<int64_t>(begin / length));
    sum = exact_ ? AddExact(run, begin, length, sum) : AddRounded(run, begin, length, sum);
  }
  return sum;
}

void BlockRow::Read(const RowRecords& records, const std::byte* record, std::span<float> group) {
  scales_.push_back(ScaleOf(records, record));
  for (size_t i = 0; i < group.size(); ++i) {
    group[i] = ByteOf(records, record, static_cast<int64_t>(i));
  }
}

float BlockRow::AddRounded(const BlockRun& run, size_t begin, size_t length, float sum) const {
  const float scale = scales_[begin / kBlockGroup];
  int64_t products = 0, bytes = 0;
  for (size_t i = 0; i < length; ++i) {
    const auto byte = static_cast<int64_t>(numbers_[begin + i]);
    products += byte * run.numbers[i];
    bytes += byte;
  }
  sum = std::fma(static_cast<float>(products), run.scale * scale, sum);
  if (!run.has_minimum) return sum;
  return std::fma(run.minimum, scale * static_cast<float>(bytes), sum);
}

float BlockRow::AddExact(const BlockRun& run, size_t begin, size_t length, float sum) const {
  for (size_t i = 0; i < length; ++i) {
    const float product = run.scale * static_cast<float>(run.numbers[i]);
    const float element = run.has_minimum ? product + run.minimum : product;
    sum = std::fma(numbers_[begin + i], element, sum);
  }
  return sum;
}

}  // namespace stampmill
