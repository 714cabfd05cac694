// Softmax and the normalisations: lowering against reference, and values by hand.
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

TEST(Softmax, AgreesWithReferenceOverAnyAxis) {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    for (const int64_t axis : {0, 1, 2, -1}) {
      for (const DType dtype : kFloatTypes) {
        ExpectLoweringMatchesReference({.op_type = op,
                                        .inputs = {Random(dtype, {3, 4, 5}, 1)},
                                        .attributes = {{"axis", axis}},
                                        .own_symbols = true});
      }
    }
    ExpectLoweringMatchesReference({.op_type = op, .inputs = {Random(DType::kF32, {}, 1)}});
    ExpectLoweringMatchesReference({.op_type = op, .inputs = {Random(DType::kF32, {2, 0}, 1)}});
  }
}

TEST(Softmax, StandsLargeInputsAndMasks) {
  const double inf = std::numeric_limits<double>::infinity();
  const OpCase test{.op_type = "Softmax",
                    .inputs = {Values(DType::kF32, {2, 3}, {1e4, 1e4, -1e4, -inf, 0, -inf})}};
  ExpectReference(test, Values(DType::kF32, {2, 3}, {0.5, 0.5, 0, 0, 1, 0}));
  ExpectLoweringMatchesReference(test);
}

TEST(LayerNormalization, AgreesWithReference) {
  for (const DType dtype : kFloatTypes) {
    for (const int64_t axis : {1, 2, -1}) {
      const std::vector<int64_t> tail =
          axis == 1 ? std::vector<int64_t>{4, 5} : std::vector<int64_t>{5};
      for (const int outputs : {1, 3}) {
        ExpectLoweringMatchesReference({.op_type = "LayerNormalization",
                                        .inputs = {Random(dtype, {3, 4, 5}, 1),
                                                   Random(dtype, tail, 2), Random(dtype, tail, 3)},
                                        .attributes = {{"axis", axis}, {"epsilon", 1e-3f}},
                                        .output_count = outputs,
                                        .own_symbols = true});
      }
      ExpectLoweringMatchesReference(
          {.op_type = "RMSNormalization",
           .inputs = {Random(dtype, {3, 4, 5}, 1), Random(dtype, tail, 2)},
           .attributes = {{"axis", axis}}});
    }
  }
}

TEST(LayerNormalization, KeepsSmallVarianceBesideALargeMean) {
  const OpCase test{.op_type = "LayerNormalization",
                    .inputs = {Values(DType::kF32, {1, 2}, {100001, 100003}),
                               Values(DType::kF32, {2}, {2, 2}), Values(DType::kF32, {2}, {1, 1})},
                    .attributes = {{"epsilon", 0.0f}}};
  ExpectReference(test, Values(DType::kF32, {1, 2}, {-1, 3}));
  ExpectLoweringMatchesReference(test);
}

TEST(GroupNormalization, AgreesWithReferenceInBothLayouts) {
  for (const char* domain : {"", "stampmill"}) {
    const Tensor x = domain[0] == 0 ? Random(DType::kF32, {2, 6, 3, 4}, 1)
                                    : Random(DType::kF32, {2, 3, 4, 6}, 1);
    const Tensor scale = Random(DType::kF32, {6}, 2), bias = Random(DType::kF32, {6}, 3);
    ExpectLoweringMatchesReference({.op_type = "GroupNormalization",
                                    .domain = domain,
                                    .inputs = {x, scale, bias},
                                    .attributes = {{"num_groups", int64_t{3}}}});
    ExpectLoweringMatchesReference({.op_type = "InstanceNormalization",
                                    .domain = domain,
                                    .inputs = {x, scale, bias},
                                    .own_symbols = true});
  }
}

TEST(BatchNormalization, AgreesWithReferenceWithFixedAndGivenStatistics) {
  Tensor variance = Random(DType::kF32, {4}, 5);
  for (float& v : variance.mutable_values<float>()) v = std::fabs(v) + 0.5f;
  for (const char* domain : {"", "stampmill"}) {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      const Tensor x =
          domain[0] == 0 ? Random(dtype, {2, 4, 3, 5}, 1) : Random(dtype, {2, 3, 5, 4}, 1);
      for (const std::vector<size_t>& constants : {std::vector<size_t>{}, {1, 2, 3, 4}}) {
        ExpectLoweringMatchesReference(
            {.op_type = "BatchNormalization",
             .domain = domain,
             .inputs = {x, Random(DType::kF32, {4}, 2), Random(DType::kF32, {4}, 3),
                        Random(DType::kF32, {4}, 4), variance},
             .constants = constants});
      }
    }
  }
}

TEST(BatchNormalization, RefusesTraining) {
  const Tensor one = Values(DType::kF32, {1}, {1});
  EXPECT_EQ(BuildCase({.op_type = "BatchNormalization",
                       .inputs = {Random(DType::kF32, {2, 1}, 1), one, one, one, one},
                       .attributes = {{"training_mode", int64_t{1}}}},
                      CaseDims::kFixed)
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
}

TEST(LpNormalization, AgreesWithReferenceAndKeepsZeroRows) {
  for (const int64_t p : {1, 2}) {
    for (const int64_t axis : {0, -1}) {
      ExpectLoweringMatchesReference({.op_type = "LpNormalization",
                                      .inputs = {Random(DType::kF32, {3, 4}, 1)},
                                      .attributes = {{"p", p}, {"axis", axis}}});
    }
  }
  const OpCase test{.op_type = "LpNormalization",
                    .inputs = {Values(DType::kF32, {2, 2}, {0, 0, 3, 4})}};
  ExpectReference(test, Values(DType::kF32, {2, 2}, {0, 0, 0.6, 0.8}));
  ExpectLoweringMatchesReference(test);
}

TEST(MeanVarianceNormalization, AgreesWithReference) {
  ExpectLoweringMatchesReference(
      {.op_type = "MeanVarianceNormalization", .inputs = {Random(DType::kF32, {2, 3, 4, 5}, 1)}});
  ExpectLoweringMatchesReference({.op_type = "MeanVarianceNormalization",
                                  .inputs = {Random(DType::kF32, {2, 3, 4}, 1)},
                                  .attributes = {{"axes", std::vector<int64_t>{-1}}}});
}

TEST(Lrn, AgreesWithReferenceInBothLayouts) {
  for (const char* domain : {"", "stampmill"}) {
    for (const int64_t size : {1, 3, 4}) {
      ExpectLoweringMatchesReference(
          {.op_type = "LRN",
           .domain = domain,
           .inputs = {Random(DType::kF32, {2, 5, 3, 4}, 1)},
           .attributes = {{"size", size}, {"alpha", 0.5f}, {"beta", 0.75f}, {"bias", 2.0f}}});
    }
  }
}

}  // namespace
}  // namespace stampmill
