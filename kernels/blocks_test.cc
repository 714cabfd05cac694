// Operators over block-quantised weights against their references, for every format.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "graph/block_format.h"
#include "graph/block_layout.h"
#include "graph/row_records.h"
#include "graph/tensor.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

// Random codes with scales of about 1 / 100.
Tensor RandomRows(BlockFormat format, int64_t rows, int64_t blocks) {
  const BlockFacts& facts = FactsOf(format);
  Tensor tensor = *Tensor::Allocate(DType::kU8, {rows, blocks * facts.bytes});
  std::mt19937 random(7);
  for (std::byte& byte : tensor.mutable_bytes()) byte = std::byte(random() & 255);
  std::vector<int64_t> high_bytes = {1};
  if (facts.has_minimum) high_bytes.push_back(3);
  if (format == BlockFormat::kQ2_K) high_bytes = {81, 83};
  if (format == BlockFormat::kQ3_K) high_bytes = {109};
  if (format == BlockFormat::kQ6_K) high_bytes = {209};
  for (int64_t block = 0; block < rows * blocks; ++block) {
    std::byte* at = tensor.mutable_bytes().data() + block * facts.bytes;
    if (format == BlockFormat::kMXFP4) {
      at[0] = std::byte(120 + (random() & 3));
      continue;
    }
    for (const int64_t high : high_bytes) at[high] = std::byte(0x20 + (random() & 3));
  }
  return tensor;
}

// The greatest magnitude among the elements.
double Greatest(const Tensor& rows, BlockFormat format) {
  const OpCase test{.op_type = "DequantizeBlocks",
                    .domain = "stampmill",
                    .inputs = {rows},
                    .attributes = {{"format", std::string(Name(format))}}};
  const Tensor values = (*RunReference(test))[0];
  double greatest = 0;
  for (const float value : values.values<float>()) {
    greatest = std::max(greatest, std::abs(static_cast<double>(value)));
  }
  return greatest;
}

template <typename Check>
void ForEachFormat(const Check& check) {
  for (int i = 0; i < kBlockFormatCount; ++i) {
    const auto format = static_cast<BlockFormat>(i);
    SCOPED_TRACE(Name(format));
    check(format);
  }
}

TEST(BlocksTest, DequantizedRowsAreTheElementsOfTheFileExactly) {
  ForEachFormat([](BlockFormat format) {
    OpCase test{.op_type = "DequantizeBlocks",
                .domain = "stampmill",
                .inputs = {RandomRows(format, 19, 2)},
                .attributes = {{"format", std::string(Name(format))}},
                .constants = {0},
                .tolerance = {0, 0}};
    ExpectLoweringMatchesReference(test);
    test.inputs[0] = *test.inputs[0].Reshaped({1, 19, test.inputs[0].shape()[1]});
    ExpectLoweringMatchesReference(test);
  });
}

TEST(BlocksTest, ProductsOfPanelsAreThoseOfTheirElements) {
  ForEachFormat([](BlockFormat format) {
    constexpr int64_t kPanel = 8;
    const int64_t blocks = FactsOf(format).elements == 32 ? 4 : 2;
    const int64_t k = blocks * FactsOf(format).elements;
    const Tensor rows = RandomRows(format, 19, blocks);
    OpCase test{.op_type = "MatMulPanels",
                .domain = "stampmill",
                .inputs = {Random(DType::kF32, {5, k}, 3), *PackBlocks(rows, format, kPanel)},
                .attributes = {{"format", std::string(Name(format))},
                               {"panel", kPanel},
                               {"rows", int64_t{19}}},
                .constants = {1},
                .tolerance = {1e-4, 1e-4},
                .exact_rows = true};
    ExpectLoweringMatchesReference(test);
    test.inputs[0] = Random(DType::kF32, {k}, 4);
    ExpectLoweringMatchesReference(test);
    test.inputs[0] = Random(DType::kF32, {2, 3, k}, 5);
    ExpectLoweringMatchesReference(test);
    // Rows of bytes are up to half a 127th of their greatest number off.
    test.exact_rows = false;
    test.tolerance = {0.01, 0.02 * std::sqrt(static_cast<double>(k)) * Greatest(rows, format)};
    ExpectLoweringMatchesReference(test);
  });
}

TEST(BlocksTest, RowsAreRoundedToTheirRecordsExactly) {
  ForEachFormat([](BlockFormat format) {
    for (const int64_t wide : {0, 1}) {
      OpCase test{
          .op_type = "RoundRows",
          .domain = "stampmill",
          .inputs = {Random(DType::kF32, {5, 96}, 3)},
          .attributes = {{"format", std::string(Name(format))}, {"wide", wide}, {"k", int64_t{96}}},
          .tolerance = {0, 0}};
      std::span<float> x = test.inputs[0].mutable_values<float>();
      for (size_t i = 32; i < 64; ++i) x[i] = 0;
      x[70] = std::numeric_limits<float>::infinity();
      x[100] = std::numeric_limits<float>::quiet_NaN();
      for (size_t i = 192; i < 224; ++i) x[i] *= 1e-41f;
      ExpectLoweringMatchesReference(test);
      test.inputs[0] = Random(DType::kF32, {2, 40, 96}, 4);
      ExpectLoweringMatchesReference(test);
      test.inputs[0] = Random(DType::kF32, {96}, 5);
      ExpectLoweringMatchesReference(test);
    }
  });
}

TEST(BlocksTest, ProductsTakeRoundedRows) {
  ForEachFormat([](BlockFormat format) {
    constexpr int64_t kPanel = 8, kK = 512;
    const Tensor weights = RandomRows(format, 19, kK / FactsOf(format).elements);
    for (const bool wide : {false, true}) {
      const RowRecords records = RecordsFor(format, wide);
      const DType dtype = wide ? DType::kI16 : DType::kU8;
      const Tensor x = Random(DType::kF32, {5, kK}, 3);
      Tensor rows = *Tensor::Allocate(
          dtype, {5, records.row_bytes(kK) / static_cast<int64_t>(SizeBytes(dtype))});
      for (int64_t row = 0; row < 5; ++row) {
        for (int64_t at = 0; at < kK; at += kBlockGroup) {
          RoundGroup(records,
                     x.values<float>().subspan(static_cast<size_t>(row * kK + at), kBlockGroup),
                     rows.mutable_bytes().data() + row * records.row_bytes(kK) +
                         at / kBlockGroup * records.record_bytes());
        }
      }
      ExpectLoweringMatchesReference({.op_type = "MatMulPanels",
                                      .domain = "stampmill",
                                      .inputs = {rows, *PackBlocks(weights, format, kPanel)},
                                      .attributes = {{"format", std::string(Name(format))},
                                                     {"panel", kPanel},
                                                     {"rows", int64_t{19}}},
                                      .constants = {1},
                                      .tolerance = {1e-4, 1e-4}});
    }
  });
}

TEST(BlocksTest, RowsOfAnotherLengthAreNotRounded) {
  const OpCase test{.op_type = "RoundRows",
                    .domain = "stampmill",
                    .inputs = {Random(DType::kF32, {2, 64}, 3)},
                    .attributes = {{"format", std::string("q4_0")}, {"k", int64_t{96}}}};
  EXPECT_EQ(BuildCase(test, CaseDims::kFixed).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BlocksTest, RowsThatAreNoBlocksAreRefused) {
  const OpCase test{.op_type = "DequantizeBlocks",
                    .domain = "stampmill",
                    .inputs = {*Tensor::Allocate(DType::kU8, {2, 19})},
                    .attributes = {{"format", std::string("q4_0")}}};
  const absl::StatusOr<CaseGraph> graph = BuildCase(test, CaseDims::kFixed);
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(graph.status().message().find("a block of q4_0 has 18"), absl::string_view::npos)
      << graph.status();
}

TEST(BlocksTest, UnknownFormatsAreRefused) {
  const OpCase test{.op_type = "DequantizeBlocks",
                    .domain = "stampmill",
                    .inputs = {*Tensor::Allocate(DType::kU8, {2, 18})},
                    .attributes = {{"format", std::string("q4_2")}}};
  const absl::StatusOr<CaseGraph> graph = BuildCase(test, CaseDims::kFixed);
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
}

// The weights of a model would be eight times as large.
TEST(BlocksTest, DequantizedConstantsAreNotFolded) {
  Graph graph;
  const ValueId w = graph.AddConstant("w", RandomRows(BlockFormat::kQ4_1, 4, 2));
  const ValueId y =
      graph.Op("DequantizeBlocks", "stampmill", {w}, {{"format", std::string("q4_1")}});
  graph.SetOutputs({y});
  ASSERT_TRUE(InferShapes(graph, {}).ok());
  EXPECT_FALSE(graph.value(y).constant.has_value());
  EXPECT_EQ(*graph.value(y).shape, (Shape{4, 64}));
}

}  // namespace
}  // namespace stampmill
