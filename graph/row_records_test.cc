#include "graph/row_records.h"

#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

std::vector<float> Ramp() {
  std::vector<float> group(32);
  for (size_t i = 0; i < group.size(); ++i) group[i] = static_cast<float>(i) - 16;
  group[31] = 127;
  return group;
}

template <typename T>
T Read(const std::vector<std::byte>& record, int64_t at) {
  T value;
  std::memcpy(&value, record.data() + at, sizeof(value));
  return value;
}

TEST(RowRecordsTest, HoldBytesScaleAndWhatRunsNeed) {
  const RowRecords records = RecordsFor(BlockFormat::kQ4_0, false);
  EXPECT_EQ(records.record_bytes(), 32 + 4 + 4);
  std::vector<std::byte> record(static_cast<size_t>(records.record_bytes()));
  RoundGroup(records, Ramp(), record.data());
  EXPECT_EQ(ScaleOf(records, record.data()), 1);
  int32_t sum = 0;
  for (int64_t i = 0; i < 32; ++i) {
    EXPECT_EQ(ByteOf(records, record.data(), i), i == 31 ? 127 : i - 16);
    sum += ByteOf(records, record.data(), i);
  }
  EXPECT_EQ(Read<int32_t>(record, records.extras_at()), -8 * sum);
}

TEST(RowRecordsTest, MinimumsNeedSumsOfTheirRunsByTheScale) {
  const RowRecords records = RecordsFor(BlockFormat::kQ2_K, false);
  EXPECT_EQ(records.record_bytes(), 32 + 4 + 8);
  std::vector<float> group = Ramp();
  for (float& x : group) x *= 0.5f;
  std::vector<std::byte> record(static_cast<size_t>(records.record_bytes()));
  RoundGroup(records, group, record.data());
  EXPECT_EQ(ScaleOf(records, record.data()), 0.5f);
  EXPECT_EQ(Read<float>(record, records.extras_at()), 0.5f * (-16 * 17 / 2));
  EXPECT_EQ(Read<float>(record, records.extras_at() + 4), 0.5f * (14 * 15 / 2 + 127));
}

TEST(RowRecordsTest, WideOnesHoldEvenPlacesOfAFourFirst) {
  const RowRecords records = RecordsFor(BlockFormat::kQ8_0, true);
  std::vector<std::byte> record(static_cast<size_t>(records.record_bytes()));
  RoundGroup(records, Ramp(), record.data());
  EXPECT_EQ(Read<int16_t>(record, 0), -16);
  EXPECT_EQ(Read<int16_t>(record, 2), -14);
  EXPECT_EQ(Read<int16_t>(record, 4), -15);
  EXPECT_EQ(Read<int16_t>(record, 6), -13);
  for (int64_t i = 0; i < 31; ++i) EXPECT_EQ(ByteOf(records, record.data(), i), i - 16);
}

TEST(RowRecordsTest, WhatIsNoFiniteNumberAfterScalingIsZero) {
  const RowRecords records = RecordsFor(BlockFormat::kQ5_0, false);
  std::vector<std::byte> record(static_cast<size_t>(records.record_bytes()));
  std::vector<float> group(32);
  const auto expect_zeros = [&] {
    RoundGroup(records, group, record.data());
    for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(ByteOf(records, record.data(), i), 0);
  };
  expect_zeros();
  group[3] = 1e-40f;  // 127 / 1e-40 is no f32
  expect_zeros();
  group[3] = std::numeric_limits<float>::infinity();
  group[4] = 1;
  expect_zeros();
  group[3] = std::numeric_limits<float>::quiet_NaN();
  expect_zeros();
}

TEST(RowRecordsTest, RowsAreAnOddNumberOfCacheLines) {
  const RowRecords records = RecordsFor(BlockFormat::kQ4_1, false);
  EXPECT_EQ(records.row_bytes(32), 64);
  EXPECT_EQ(records.row_bytes(64), 192);
  EXPECT_EQ(records.row_bytes(0), 64);
}

TEST(RowRecordsTest, FormatsShareThemWhenTheyNeedTheSame) {
  EXPECT_NE(RecordsFor(BlockFormat::kQ4_0, false), RecordsFor(BlockFormat::kQ5_0, false));
  EXPECT_EQ(RecordsFor(BlockFormat::kQ4_1, false), RecordsFor(BlockFormat::kQ5_1, false));
}

}  // namespace
}  // namespace stampmill
