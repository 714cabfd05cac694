#include "graph/row_records.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace stampmill {
namespace {

constexpr int64_t kLineBytes = 64;

// Where the byte of element i is.
int64_t Place(const RowRecords& records, int64_t i) {
  constexpr int64_t kOrder[] = {0, 2, 1, 3};
  return records.wide ? 2 * (i / 4 * 4 + kOrder[i % 4]) : i;
}

template <typename T>
void Write(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(value));
}

}  // namespace

int64_t RowRecords::row_bytes(int64_t k) const {
  const int64_t lines = (k / kBlockGroup * record_bytes() + kLineBytes - 1) / kLineBytes;
  return (lines | 1) * kLineBytes;
}

RowRecords RecordsFor(BlockFormat format, bool wide) {
  const BlockFacts& facts = FactsOf(format);
  return {.run = facts.run, .zero = facts.zero, .has_minimum = facts.has_minimum, .wide = wide};
}

void RoundGroup(const RowRecords& records, std::span<const float> group, std::byte* record) {
  // As integers the bits of magnitudes are in order, what is no number last.
  uint32_t greatest = 0;
  for (const float x : group) {
    greatest = std::max(greatest, std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  }
  const auto most = std::bit_cast<float>(greatest);
  const float scale = most / 127.0f;
  const float factor = 127.0f / most;
  std::byte* extras = record + records.extras_at();
  int32_t sum = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    const float scaled = group[i] * factor;
    const auto byte = static_cast<int8_t>(std::isfinite(scaled) ? std::nearbyint(scaled) : 0.0f);
    std::byte* to = record + Place(records, static_cast<int64_t>(i));
    if (records.wide) {
      Write(int16_t{byte}, to);
    } else {
      Write(byte, to);
    }
    sum += byte;
    if ((static_cast<int64_t>(i) + 1) % records.run != 0) continue;
    if (records.has_minimum) {
      Write(scale * static_cast<float>(sum), extras);
    } else {
      Write(static_cast<int32_t>(-records.zero) * sum, extras);
    }
    extras += 4;
    sum = 0;
  }
  Write(scale, record + records.scale_at());
}

float ScaleOf(const RowRecords& records, const std::byte* record) {
  float scale;
  std::memcpy(&scale, record + records.scale_at(), sizeof(scale));
  return scale;
}

int8_t ByteOf(const RowRecords& records, const std::byte* record, int64_t i) {
  return static_cast<int8_t>(record[Place(records, i)]);
}

}  // namespace stampmill
