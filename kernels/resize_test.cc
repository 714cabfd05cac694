// Resize and the quantising operators: lowering against reference, and values by hand.
#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

using Attributes = absl::flat_hash_map<std::string, Attribute>;

constexpr const char* kCoordinateModes[] = {"half_pixel",         "half_pixel_symmetric",
                                            "pytorch_half_pixel", "align_corners",
                                            "asymmetric",         "tf_half_pixel_for_nn"};

Tensor Floats(const std::vector<double>& values) {
  return Values(DType::kF32, {static_cast<int64_t>(values.size())}, values);
}

// The weights of f32 coordinates differ from the reference's in the last bits.
constexpr CaseTolerance kClose = {.relative = 1e-4, .absolute = 1e-4};

TEST(Resize, AgreesWithReferenceInAllModes) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* coordinate : kCoordinateModes) {
      for (const std::vector<double>& scales :
           {std::vector<double>{1, 1, 2, 2}, {1, 1, 0.6, 1.7}, {1, 1, 2.5, 0.3}}) {
        ExpectLoweringMatchesReference(
            {.op_type = "Resize",
             .inputs = {Random(DType::kF32, {1, 2, 5, 7}, 1), Tensor(), Floats(scales)},
             .attributes = {{"mode", std::string(mode)},
                            {"coordinate_transformation_mode", std::string(coordinate)}},
             .constants = {2},
             .tolerance = kClose});
      }
    }
  }
}

TEST(Resize, OneElementOfPytorchHalfPixelIsTheFirst) {
  const OpCase test{
      .op_type = "Resize",
      .inputs = {Floats({1, 2, 5, 9}), Tensor(), Tensor(), Ints({1})},
      .attributes = {{"mode", std::string("cubic")},
                     {"coordinate_transformation_mode", std::string("pytorch_half_pixel")}},
      .constants = {3}};
  ExpectReference(test, Floats({1}));
  ExpectLoweringMatchesReference(test);
}

TEST(Resize, AgreesWithReferenceForAllRoundings) {
  for (const char* rounding : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
    for (const char* coordinate : kCoordinateModes) {
      for (const double scale : {2.0, 3.0, 0.5, 1.3}) {
        ExpectLoweringMatchesReference(
            {.op_type = "Resize",
             .inputs = {Random(DType::kF32, {2, 6}, 1), Tensor(), Floats({1, scale})},
             .attributes = {{"nearest_mode", std::string(rounding)},
                            {"coordinate_transformation_mode", std::string(coordinate)}},
             .constants = {2}});
      }
    }
  }
}

TEST(Resize, AgreesWithReferenceWhenAntialiasing) {
  for (const char* mode : {"linear", "cubic"}) {
    for (const int64_t exclude : {0, 1}) {
      const Attributes attributes = {
          {"mode", std::string(mode)}, {"antialias", int64_t{1}}, {"exclude_outside", exclude}};
      ExpectLoweringMatchesReference(
          {.op_type = "Resize",
           .inputs = {Random(DType::kF32, {1, 1, 9, 8}, 1), Tensor(), Floats({1, 1, 0.4, 1.5})},
           .attributes = attributes,
           .constants = {2},
           .tolerance = kClose});
      ExpectLoweringMatchesReference(
          {.op_type = "Resize",
           .inputs = {Random(DType::kF32, {1, 1, 9, 8}, 1), Tensor(), Tensor(), Ints({1, 1, 4, 5})},
           .attributes = attributes,
           .constants = {3},
           .tolerance = kClose});
    }
  }
}

TEST(Resize, TakesSizesAxesAndRegions) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    ExpectLoweringMatchesReference(
        {.op_type = "Resize",
         .inputs = {Random(DType::kF32, {2, 5, 7}, 1), Tensor(), Tensor(), Ints({8, 3})},
         .attributes = {{"mode", std::string(mode)}, {"axes", std::vector<int64_t>{2, 1}}},
         .constants = {3},
         .tolerance = kClose});
    ExpectLoweringMatchesReference(
        {.op_type = "Resize",
         .inputs = {Random(DType::kF32, {1, 6, 6}, 1), Floats({0, 0.4, 0.2, 1, 0.9, 1.3}), Tensor(),
                    Ints({1, 4, 5})},
         .attributes = {{"mode", std::string(mode)},
                        {"coordinate_transformation_mode", std::string("tf_crop_and_resize")},
                        {"extrapolation_value", 7.0f}},
         .constants = {1, 3},
         .tolerance = kClose});
  }
  for (const char* policy : {"not_larger", "not_smaller"}) {
    ExpectLoweringMatchesReference(
        {.op_type = "Resize",
         .inputs = {Random(DType::kF32, {4, 6}, 1), Tensor(), Tensor(), Ints({7, 8})},
         .attributes = {{"keep_aspect_ratio_policy", std::string(policy)}},
         .constants = {3},
         .shared_symbols = false});
  }
}

TEST(Resize, AgreesWithReferenceInOtherTypes) {
  for (const DType dtype : {DType::kU8, DType::kI8, DType::kI32, DType::kF16, DType::kF64}) {
    for (const char* mode : {"nearest", "linear"}) {
      ExpectLoweringMatchesReference(
          {.op_type = "Resize",
           .inputs = {Random(dtype, {4, 6}, 1, 100), Tensor(), Floats({1.5, 2})},
           .attributes = {{"mode", std::string(mode)}},
           .constants = {2}});
    }
  }
}

TEST(Resize, ByHand) {
  const Tensor x = Values(DType::kF32, {4}, {1, 2, 3, 4});
  ExpectReference({.op_type = "Resize",
                   .inputs = {x, Tensor(), Floats({2})},
                   .attributes = {{"mode", std::string("linear")}}},
                  Values(DType::kF32, {8}, {1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4}));
  ExpectReference({.op_type = "Resize",
                   .inputs = {x, Tensor(), Floats({2})},
                   .attributes = {{"nearest_mode", std::string("floor")},
                                  {"coordinate_transformation_mode", std::string("asymmetric")}}},
                  Values(DType::kF32, {8}, {1, 1, 2, 2, 3, 3, 4, 4}));
}

TEST(Resize, RefusesWhatItCannotRead) {
  const Tensor x = Random(DType::kF32, {2, 2}, 1);
  const auto build = [&](OpCase test) {
    test.op_type = "Resize";
    return BuildCase(test, CaseDims::kFixed).ok();
  };
  EXPECT_FALSE(build({.inputs = {x}}));
  EXPECT_FALSE(build({.inputs = {x, Tensor(), Floats({2})}, .constants = {2}}));
  EXPECT_FALSE(build({.inputs = {x, Tensor(), Floats({0, 1})}, .constants = {2}}));
  EXPECT_FALSE(build({.inputs = {x, Tensor(), Floats({2, 1})}}));
  EXPECT_FALSE(build({.inputs = {x, Tensor(), Floats({2, 1})},
                      .attributes = {{"mode", std::string("magic")}},
                      .constants = {2}}));
}

TEST(Quantize, AgreesWithReferenceForAllGranularities) {
  for (const DType dtype : {DType::kU8, DType::kI8, DType::kU16, DType::kI16}) {
    for (const DType real : {DType::kF32, DType::kF16}) {
      const Tensor x = Random(real, {3, 4, 5}, 1, 1000);
      const Tensor quantised = Random(dtype, {3, 4, 5}, 2, 120);
      const auto both = [&](const Tensor& scale, const Tensor& zero, const Attributes& attributes) {
        ExpectLoweringMatchesReference(
            {.op_type = "QuantizeLinear", .inputs = {x, scale, zero}, .attributes = attributes});
        ExpectLoweringMatchesReference({.op_type = "DequantizeLinear",
                                        .inputs = {quantised, scale, zero},
                                        .attributes = attributes});
      };
      both(Values(real, {}, {2.5}), Values(dtype, {}, {3}), {});
      both(Values(real, {}, {2.5}), Tensor(), {});
      both(Values(real, {4}, {2.5, 1, 8, 0.5}), Values(dtype, {4}, {3, 0, 7, 9}), {});
      both(Values(real, {5}, {2.5, 1, 8, 0.5, 3}), Tensor(), {{"axis", int64_t{-1}}});
      both(Values(real, {3, 2, 5}, std::vector<double>(30, 4)), Tensor(),
           {{"block_size", int64_t{3}}});
    }
  }
}

TEST(Quantize, RoundsToEvenAndSaturates) {
  ExpectReference({.op_type = "QuantizeLinear",
                   .inputs = {Values(DType::kF32, {6}, {1, 3, 5, -1000, 1000, 0}),
                              Values(DType::kF32, {}, {2}), Values(DType::kU8, {}, {10})}},
                  Values(DType::kU8, {6}, {10, 12, 12, 0, 255, 10}));
  ExpectReference({.op_type = "DequantizeLinear",
                   .inputs = {Values(DType::kI8, {3}, {-128, 0, 127}),
                              Values(DType::kF32, {}, {0.5}), Values(DType::kI8, {}, {1})}},
                  Values(DType::kF32, {3}, {-64.5, -0.5, 63}));
}

TEST(DynamicQuantize, AgreesWithReference) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 4}, {}, {1}, {0}}) {
    ExpectLoweringMatchesReference({.op_type = "DynamicQuantizeLinear",
                                    .inputs = {Random(DType::kF32, shape, 1, 10)},
                                    .output_count = 3});
  }
  ExpectReference({.op_type = "DynamicQuantizeLinear",
                   .inputs = {Values(DType::kF32, {4}, {0, 51, 102, 255})},
                   .output_count = 3},
                  Values(DType::kU8, {4}, {0, 51, 102, 255}));
}

}  // namespace
}  // namespace stampmill
