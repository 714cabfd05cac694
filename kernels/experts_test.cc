// Operators on mixtures of experts.
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/block_format.h"
#include "graph/block_layout.h"
#include "graph/tensor.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

constexpr int64_t kExperts = 5, kTokens = 7, kUsed = 2;

// Expert 3 has none, expert 1 all tokens.
Tensor Chosen() {
  return Values(DType::kI64, {kTokens, kUsed}, {1, 0, 1, 4, 2, 1, 1, 0, 4, 1, 1, 2, 0, 1});
}

Tensor Pairs() {
  const std::vector<std::vector<double>> lists = {
      {1, 7, 12}, {0, 2, 5, 6, 9, 10, 13}, {4, 11}, {}, {3, 8}};
  std::vector<double> values;
  for (std::vector<double> list : lists) {
    list.resize(kTokens);
    values.insert(values.end(), list.begin(), list.end());
  }
  return Values(DType::kI32, {kExperts, kTokens}, values);
}

Tensor Counts() { return Values(DType::kI32, {kExperts}, {3, 7, 2, 0, 2}); }

TEST(Experts, PairsStandInTheRowsOfTheirExperts) {
  OpCase test{.op_type = "GroupByExpert",
              .domain = "stampmill",
              .inputs = {Chosen()},
              .attributes = {{"experts", kExperts}},
              .output_count = 2};
  ExpectLoweringMatchesReference(test);
  ExpectReference(test, Pairs());
  const absl::StatusOr<std::vector<Tensor>> outputs = RunReference(test);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    EXPECT_EQ((*outputs)[1].ValueAsInt64(expert), Counts().ValueAsInt64(expert));
  }
  test.inputs[0] = Values(DType::kI32, {kTokens, 1}, {0, 4, 4, 4, 0, 2, 3});
  ExpectLoweringMatchesReference(test);
}

TEST(Experts, ProductsAreThoseOfEachPairsExpert) {
  for (const int64_t n : {19, 32}) {
    OpCase test{.op_type = "ExpertMatMul",
                .domain = "stampmill",
                .inputs = {Random(DType::kF32, {kTokens, 24}, 1),
                           Random(DType::kF32, {kExperts, n, 24}, 2), Pairs(), Counts()},
                .attributes = {{"used", kUsed}},
                .constants = {1},
                .shared_symbols = false,
                .tolerance = {.relative = 1e-5, .absolute = 1e-5}};
    ExpectLoweringMatchesReference(test);
    // A row of its own for each pair.
    test.inputs[0] = Random(DType::kF32, {kTokens, kUsed, 24}, 3);
    ExpectLoweringMatchesReference(test);
  }
}

TEST(Experts, ProductsOfPanelsAreThoseOfTheirElements) {
  constexpr int64_t kPanel = 8;
  for (const BlockFormat format : {BlockFormat::kQ4_0, BlockFormat::kQ8_0}) {
    const BlockFacts& facts = FactsOf(format);
    const int64_t k = 4 * facts.elements;
    std::vector<std::byte> bytes;
    std::vector<int64_t> shape;
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      Tensor rows = *Tensor::Allocate(DType::kU8, {19, 4 * facts.bytes});
      const Tensor codes = Random(DType::kU8, rows.shape(), 10 + static_cast<int>(expert), 200);
      for (size_t at = 0; at < codes.bytes().size(); ++at) {
        // The scale of each block is 2^-10 in f16.
        const size_t within = at % static_cast<size_t>(facts.bytes);
        rows.mutable_bytes()[at] = within == 0   ? std::byte{0}
                                   : within == 1 ? std::byte{0x14}
                                                 : codes.bytes()[at];
      }
      const Tensor packed = *PackBlocks(rows, format, kPanel);
      bytes.insert(bytes.end(), packed.bytes().begin(), packed.bytes().end());
      shape = {kExperts, packed.shape()[0], packed.shape()[1]};
    }
    Tensor weights = *Tensor::Allocate(DType::kU8, shape);
    std::copy(bytes.begin(), bytes.end(), weights.mutable_bytes().begin());
    OpCase test{.op_type = "ExpertMatMulPanels",
                .domain = "stampmill",
                .inputs = {Random(DType::kF32, {kTokens, k}, 3), weights, Pairs(), Counts()},
                .attributes = {{"format", std::string(Name(format))},
                               {"panel", kPanel},
                               {"rows", int64_t{19}},
                               {"used", kUsed}},
                .constants = {1},
                .shared_symbols = false,
                .tolerance = {1e-4, 1e-4},
                .exact_rows = true};
    ExpectLoweringMatchesReference(test);
    test.inputs[0] = Random(DType::kF32, {kTokens, kUsed, k}, 4);
    ExpectLoweringMatchesReference(test);
    test.exact_rows = false;
    test.tolerance = {0.01, 0.5};
    ExpectLoweringMatchesReference(test);
  }
}

TEST(Experts, ShapesThatDoNotFitAreRefused) {
  const OpCase test{.op_type = "ExpertMatMul",
                    .domain = "stampmill",
                    .inputs = {Random(DType::kF32, {kTokens, 24}, 1),
                               Random(DType::kF32, {kExperts + 1, 8, 24}, 2), Pairs(), Counts()},
                    .attributes = {{"used", kUsed}}};
  const absl::StatusOr<CaseGraph> graph = BuildCase(test, CaseDims::kFixed);
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument) << graph.status();
}

}  // namespace
}  // namespace stampmill
