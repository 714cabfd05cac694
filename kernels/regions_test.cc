// Operators that read and write regions of maps: GridSample, AffineGrid, DeformConv, Col2Im,
// MaxUnpool, RoiAlign.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

TEST(GridSample, AgreesWithReferenceInAllModes) {
  for (const std::string mode : {"nearest", "linear", "cubic"}) {
    for (const std::string padding : {"zeros", "border", "reflection"}) {
      for (const int64_t align : {0, 1}) {
        ExpectLoweringMatchesReference(
            {.op_type = "GridSample",
             .inputs = {Random(DType::kF32, {2, 3, 5, 4}, 1), Random(DType::kF32, {2, 6, 7, 2}, 2)},
             .attributes = {{"mode", mode}, {"padding_mode", padding}, {"align_corners", align}},
             .tolerance = {.relative = 1e-3, .absolute = 1e-3}});
      }
    }
  }
}

TEST(GridSample, TakesMapsOfOneAndThreeAxesAndOfOneElement) {
  for (const auto& [map, grid] : std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{
           {{1, 2, 6}, {1, 5, 1}},
           {{1, 2, 3, 4, 2}, {1, 2, 3, 4, 3}},
           {{1, 1, 1, 1}, {1, 3, 3, 2}}}) {
    for (const std::string padding : {"border", "reflection"}) {
      ExpectLoweringMatchesReference(
          {.op_type = "GridSample",
           .inputs = {Random(DType::kF32, map, 1), Random(DType::kF32, grid, 2, 2)},
           .attributes = {{"padding_mode", padding}, {"align_corners", int64_t{1}}},
           .tolerance = {.relative = 1e-3, .absolute = 1e-3}});
    }
  }
}

TEST(GridSample, PointsFarAwayOrWithoutANumberReadNothingOutside) {
  ExpectLoweringMatchesReference(
      {.op_type = "GridSample",
       .inputs = {Random(DType::kF32, {1, 1, 3, 3}, 1),
                  Values(DType::kF32, {1, 1, 3, 2}, {NAN, 0, INFINITY, 0, 1e30, -1e30})}});
}

TEST(AffineGrid, AgreesWithReference) {
  for (const int64_t align : {0, 1}) {
    ExpectLoweringMatchesReference(
        {.op_type = "AffineGrid",
         .inputs = {Random(DType::kF32, {2, 2, 3}, 1), Ints({2, 3, 4, 1})},
         .attributes = {{"align_corners", align}},
         .constants = {1}});
    ExpectLoweringMatchesReference(
        {.op_type = "AffineGrid",
         .inputs = {Random(DType::kF64, {2, 3, 4}, 1), Ints({2, 3, 4, 5, 2})},
         .attributes = {{"align_corners", align}},
         .constants = {1}});
  }
}

TEST(DeformConv, AgreesWithReferenceForGroups) {
  for (const auto& [group, sets] : {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2)}) {
    ExpectLoweringMatchesReference(
        {.op_type = "DeformConv",
         .inputs = {Random(DType::kF32, {2, 4, 6, 5}, 1),
                    Random(DType::kF32, {6, 4 / group, 3, 2}, 2),
                    Random(DType::kF32, {2, 12 * sets, 3, 4}, 3, 2), Random(DType::kF32, {6}, 4),
                    Random(DType::kF32, {2, 6 * sets, 3, 4}, 5)},
         .attributes = {{"group", int64_t{group}},
                        {"offset_group", int64_t{sets}},
                        {"strides", std::vector<int64_t>{2, 1}},
                        {"pads", std::vector<int64_t>{1, 0, 1, 0}}},
         .constants = {1},
         .tolerance = {.relative = 1e-3, .absolute = 1e-3}});
  }
}

TEST(Col2Im, AgreesWithReference) {
  // 5 by 6 with pads 1, windows of 2 by 3 dilated by 2, steps of 2 and 1: 3 by 4 places.
  for (const DType dtype : {DType::kF32, DType::kI8, DType::kF16}) {
    ExpectLoweringMatchesReference(
        {.op_type = "Col2Im",
         .inputs = {Random(dtype, {2, 18, 12}, 1), Ints({5, 6}), Ints({2, 3})},
         .attributes = {{"pads", std::vector<int64_t>{1, 1, 1, 1}},
                        {"dilations", std::vector<int64_t>{2, 2}},
                        {"strides", std::vector<int64_t>{2, 1}}},
         .constants = {1, 2},
         .tolerance = {.relative = 0.01, .absolute = 0.02}});
  }
}

TEST(MaxUnpool, PutsElementsBackAndLeavesOutWhatHasNoPlace) {
  const Tensor x = Values(DType::kF32, {1, 1, 2, 2}, {1, 2, 3, 4});
  const Tensor places = Values(DType::kI64, {1, 1, 2, 2}, {5, 7, 16, -1});
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 1, 4, 4}, {1, 1, 5, 6}}) {
    ExpectLoweringMatchesReference({.op_type = "MaxUnpool",
                                    .inputs = {x, places, Ints(shape)},
                                    .attributes = {{"kernel_shape", std::vector<int64_t>{2, 2}},
                                                   {"strides", std::vector<int64_t>{2, 2}}},
                                    .constants = {2}});
  }
}

TEST(RoiAlign, AgreesWithReference) {
  const Tensor boxes =
      Values(DType::kF32, {4, 4}, {0, 0, 7, 5, 2, 1, 3, 2, -3, -4, 9, 20, 6, 6, 2, 2});
  for (const std::string mode : {"avg", "max"}) {
    for (const std::string corners : {"half_pixel", "output_half_pixel"}) {
      for (const int64_t ratio : {0, 2}) {
        ExpectLoweringMatchesReference({.op_type = "RoiAlign",
                                        .inputs = {Random(DType::kF32, {2, 3, 6, 8}, 1), boxes,
                                                   Values(DType::kI64, {4}, {0, 1, 1, 0})},
                                        .attributes = {{"mode", mode},
                                                       {"coordinate_transformation_mode", corners},
                                                       {"sampling_ratio", ratio},
                                                       {"spatial_scale", 0.7f},
                                                       {"output_height", int64_t{3}},
                                                       {"output_width", int64_t{2}}},
                                        .tolerance = {.relative = 1e-3, .absolute = 1e-3}});
      }
    }
  }
}

}  // namespace
}  // namespace stampmill
