// Operators that find how much they give.
#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "graph/dtype.h"
#include "graph/tensor.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

void ExpectError(const OpCase& test, const std::string& part) {
  const auto built = BuildCase(test, CaseDims::kFixed);
  ASSERT_TRUE(absl::IsInvalidArgument(built.status())) << built.status();
  EXPECT_TRUE(absl::StrContains(built.status().message(), "node 'test'")) << built.status();
  EXPECT_TRUE(absl::StrContains(built.status().message(), part)) << built.status();
}

TEST(Counted, NonZeroFindsPlacesInEveryType) {
  for (const DType dtype : kAllTypes) {
    ExpectLoweringMatchesReference(
        {.op_type = "NonZero",
         .inputs = {Values(dtype, {2, 3, 2}, {0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0})}});
  }
}

TEST(Counted, NonZeroOfAnyRankAndOfNothing) {
  ExpectReference({.op_type = "NonZero", .inputs = {Values(DType::kI32, {2, 2}, {3, 0, 0, -1})}},
                  Values(DType::kI64, {2, 2}, {0, 1, 0, 1}));
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{}, {7}, {0}, {3, 0, 2}, {2, 3, 4, 5}}) {
    OpCase test{.op_type = "NonZero", .inputs = {Random(DType::kI8, shape, 3, 1)}};
    test.own_symbols = true;
    ExpectLoweringMatchesReference(test);
  }
  // NaN is not 0, both zeros are.
  ExpectLoweringMatchesReference(
      {.op_type = "NonZero", .inputs = {Values(DType::kF32, {4}, {NAN, -0.0, 0, INFINITY})}});
  ExpectLoweringMatchesReference(
      {.op_type = "NonZero", .inputs = {Values(DType::kF32, {3}, {0, 0, 0})}});
}

TEST(Counted, CompressKeepsWhereTheConditionHolds) {
  for (const std::vector<size_t>& constants : std::vector<std::vector<size_t>>{{}, {1}}) {
    for (const DType dtype : {DType::kF32, DType::kU8, DType::kF64, DType::kBF16, DType::kBool}) {
      for (const int64_t axis : {0, -1}) {
        OpCase test{.op_type = "Compress",
                    .inputs = {Random(dtype, {3, 3}, 1), Values(DType::kBool, {3}, {0, 1, 1})},
                    .constants = constants};
        test.attributes["axis"] = axis;
        test.own_symbols = true;
        ExpectLoweringMatchesReference(test);
      }
      ExpectLoweringMatchesReference(
          {.op_type = "Compress",
           .inputs = {Random(dtype, {3, 4}, 2), Values(DType::kBool, {5}, {0, 1, 0, 0, 1})},
           .constants = constants});
      ExpectLoweringMatchesReference(
          {.op_type = "Compress",
           .inputs = {Random(dtype, {3, 4}, 2), Values(DType::kBool, {2}, {0, 0})},
           .constants = constants});
    }
  }
}

TEST(Counted, CompressRefusesConditionsThatDoNotFit) {
  OpCase test{.op_type = "Compress",
              .inputs = {Random(DType::kF32, {3, 4}, 1), Values(DType::kBool, {4}, {0, 1, 1, 1})}};
  test.attributes["axis"] = int64_t{0};
  ExpectError(test, "condition: got 4 elements, limit 3");
  test.constants = {1};
  ExpectError(test, "condition names element 3 of 3");
  test.inputs[1] = Values(DType::kI32, {2}, {1, 1});
  ExpectError(test, "condition: got i32 of rank 1, want bool of rank 1");
  test.inputs[1] = Values(DType::kBool, {1, 2}, {1, 1});
  ExpectError(test, "condition: got bool of rank 2");
  test.attributes["axis"] = int64_t{2};
  test.inputs[1] = Values(DType::kBool, {2}, {1, 1});
  ExpectError(test, "axis");
}

TEST(Counted, UniqueGivesGroupsFirstsInverseAndCounts) {
  for (const DType dtype : {DType::kBool, DType::kI8, DType::kU64, DType::kF16, DType::kF64}) {
    OpCase test{.op_type = "Unique",
                .inputs = {Values(dtype, {2, 4}, {2, 1, 1, 3, 4, 3, 1, 0})},
                .output_count = 4};
    test.fixed_dims = dtype == DType::kF64;
    ExpectLoweringMatchesReference(test);
    test.attributes["sorted"] = int64_t{0};
    ExpectLoweringMatchesReference(test);
  }
  ExpectLoweringMatchesReference(
      {.op_type = "Unique",
       .inputs = {Values(DType::kF32, {7}, {NAN, 0, -0.0, NAN, -INFINITY, 2, 0})},
       .output_count = 4});
  ExpectLoweringMatchesReference(
      {.op_type = "Unique", .inputs = {Random(DType::kI64, {300}, 5, 60)}, .output_count = 4});
  ExpectLoweringMatchesReference(
      {.op_type = "Unique", .inputs = {Random(DType::kI64, {0}, 5)}, .output_count = 4});
}

TEST(Counted, UniqueAlongAnAxis) {
  for (const int64_t axis : {0, 1, -1}) {
    for (const int64_t sorted : {0, 1}) {
      for (const int outputs : {2, 4}) {
        if (axis < 0 && outputs == 4) continue;
        OpCase test{.op_type = "Unique",
                    .inputs = {Values(DType::kI32, {3, 2, 3},
                                      {1, 0, 1, 0, 0, 0, 0, 5, 0, 2, 3, 2, 1, 0, 1, 0, 0, 0})},
                    .output_count = outputs};
        test.attributes["axis"] = axis;
        test.attributes["sorted"] = sorted;
        test.fixed_dims = axis < 0;
        ExpectLoweringMatchesReference(test);
      }
    }
  }
}

TEST(Counted, UniqueRefusesAnAxisThatThereIsNot) {
  OpCase test{.op_type = "Unique", .inputs = {Random(DType::kF32, {3, 4}, 1)}};
  test.attributes["axis"] = int64_t{2};
  ExpectError(test, "axis");
  test.attributes = {{"sorted", int64_t{7}}};
  ExpectError(test, "sorted: got 7");
}

// Boxes in a square, many of which overlap.
Tensor Boxes(int64_t batch, int64_t count, uint64_t seed) {
  const Tensor random = Random(DType::kF32, {batch, count, 4}, seed, 1);
  Tensor boxes = *Tensor::Allocate(DType::kF32, {batch, count, 4});
  for (int64_t i = 0; i < batch * count * 4; i += 4) {
    for (int64_t d = 0; d < 2; ++d) {
      const double middle = random.ValueAsDouble(i + d);
      const double size = 0.3 + random.ValueAsDouble(i + 2 + d) / 8;
      // Any two opposite corners.
      boxes.SetFromDouble(i + d, d == 0 ? middle - size : middle + size);
      boxes.SetFromDouble(i + 2 + d, d == 0 ? middle + size : middle - size);
    }
  }
  return boxes;
}

OpCase Suppression(int64_t batch, int64_t classes, int64_t count, int64_t most, double overlap,
                   double least) {
  return {.op_type = "NonMaxSuppression",
          .inputs = {Boxes(batch, count, 1), Random(DType::kF32, {batch, classes, count}, 2),
                     Ints({most}), Values(DType::kF32, {1}, {overlap}),
                     Values(DType::kF32, {}, {least})}};
}

TEST(Counted, NonMaxSuppressionKeepsTheBestOfEveryClass) {
  for (const int64_t most : {0, 1, 3, 1000, -1}) {
    for (const double overlap : {0.0, 0.3, 1.0}) {
      OpCase test = Suppression(2, 3, 20, most, overlap, 0.1);
      test.own_symbols = true;
      ExpectLoweringMatchesReference(test);
      test.constants = {2, 3, 4};
      ExpectLoweringMatchesReference(test);
    }
  }
  ExpectReference(
      {.op_type = "NonMaxSuppression",
       .inputs = {Values(DType::kF32, {1, 3, 4}, {0, 0, 1, 1, 0, 0.1, 1, 1.1, 0, 10, 1, 11}),
                  Values(DType::kF32, {1, 1, 3}, {0.5, 0.9, 0.7}), Ints({3}),
                  Values(DType::kF32, {1}, {0.5}), Values(DType::kF32, {1}, {0})}},
      Values(DType::kI64, {2, 3}, {0, 0, 1, 0, 0, 2}));
}

TEST(Counted, NonMaxSuppressionWithoutItsLimits) {
  OpCase test = Suppression(1, 2, 9, 4, 0.5, 0);
  for (size_t left_out = 5; left_out-- > 2;) {
    test.inputs.resize(left_out);
    ExpectLoweringMatchesReference(test);
  }
  // Equal scores go by their order; a score that is no number is none.
  test.inputs = {Boxes(1, 4, 4), Values(DType::kF32, {1, 1, 4}, {1, NAN, 1, -INFINITY}), Ints({9}),
                 Values(DType::kF32, {1}, {1})};
  ExpectLoweringMatchesReference(test);
  test.attributes["center_point_box"] = int64_t{1};
  test.inputs[0] = Values(DType::kF32, {1, 4, 4}, {1, 1, 2, 2, 1, 1, 2, 3, 1, 2, 2, 2, 9, 9, 1, 1});
  test.inputs[3] = Values(DType::kF32, {1}, {0.25});
  ExpectLoweringMatchesReference(test);
}

TEST(Counted, NonMaxSuppressionOfNoBoxes) {
  ExpectLoweringMatchesReference(Suppression(1, 2, 0, 4, 0.5, 0));
  ExpectLoweringMatchesReference(Suppression(0, 2, 3, 4, 0.5, 0));
  ExpectLoweringMatchesReference(Suppression(1, 0, 3, 4, 0.5, 0));
  ExpectLoweringMatchesReference(Suppression(1, 1, 3, 4, 0.5, 100));
}

TEST(Counted, NonMaxSuppressionRefusesWhatDoesNotFit) {
  OpCase test = Suppression(1, 2, 9, 4, 1.5, 0);
  test.constants = {3};
  ExpectError(test, "iou_threshold: got 1.5, limits 0 and 1");
  test.inputs[3] = Values(DType::kF32, {1}, {NAN});
  ExpectError(test, "iou_threshold: got nan");
  test.inputs[3] = Values(DType::kF64, {1}, {0.5});
  ExpectError(test, "iou_threshold: got f64, want f32");
  test = Suppression(1, 2, 9, 4, 0.5, 0);
  test.inputs[2] = Values(DType::kI32, {1}, {4});
  ExpectError(test, "max_output_boxes_per_class: got i32, want i64");
  test.inputs[2] = Ints({4, 4});
  ExpectError(test, "elements of max_output_boxes_per_class");
  test = Suppression(1, 2, 9, 4, 0.5, 0);
  test.inputs[0] = Values(DType::kF32, {1, 8, 4}, std::vector<double>(32));
  ExpectError(test, "numbers of boxes and scores");
  test.inputs[0] = Values(DType::kF32, {1, 9, 5}, std::vector<double>(45));
  ExpectError(test, "numbers of a box");
  test.inputs[0] = Values(DType::kF16, {1, 9, 4}, std::vector<double>(36));
  ExpectError(test, "boxes: got f16 of rank 3, want f32 of rank 3");
  test = Suppression(1, 2, 9, 4, 0.5, 0);
  test.attributes["center_point_box"] = int64_t{2};
  ExpectError(test, "center_point_box: got 2, want 0 or 1");
}

}  // namespace
}  // namespace stampmill
