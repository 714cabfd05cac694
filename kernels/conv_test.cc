// Convolutions and pools in both layouts: lowering against reference, layouts against each other,
// values by hand.
#include "graph/nest.h"
#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

using Attributes = absl::flat_hash_map<std::string, Attribute>;

std::vector<int64_t> ChannelsLastShape(std::vector<int64_t> shape) {
  shape.push_back(shape[1]);
  shape.erase(shape.begin() + 1);
  return shape;
}

// [N, C, space...] to [N, space..., C].
Tensor ToChannelsLast(const Tensor& tensor) {
  absl::StatusOr<Tensor> result =
      Tensor::Allocate(tensor.dtype(), ChannelsLastShape(tensor.shape()));
  const int64_t channels = tensor.shape()[1];
  int64_t space = 1;
  for (size_t i = 2; i < tensor.shape().size(); ++i) space *= tensor.shape()[i];
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    const int64_t n = i / (channels * space), c = i / space % channels, s = i % space;
    result->SetFromDouble((n * space + s) * channels + c, tensor.ValueAsDouble(i));
  }
  return *std::move(result);
}

// The case in both layouts: each lowering against its reference, and the references alike.
void ExpectInBothLayouts(OpCase test) {
  ExpectLoweringMatchesReference(test);
  const absl::StatusOr<std::vector<Tensor>> first = RunReference(test);
  ASSERT_TRUE(first.ok()) << first.status();
  test.domain = "stampmill";
  test.inputs[0] = ToChannelsLast(test.inputs[0]);
  ExpectLoweringMatchesReference(test);
  const absl::StatusOr<std::vector<Tensor>> last = RunReference(test);
  ASSERT_TRUE(last.ok()) << last.status();
  for (size_t i = 0; i < first->size(); ++i) {
    EXPECT_EQ(Difference((*last)[i], ToChannelsLast((*first)[i]), {}), "") << test.op_type;
  }
}

struct ConvShape {
  std::vector<int64_t> x, w;
  Attributes attributes;
};

std::vector<ConvShape> ConvShapes() {
  const auto ints = [](std::vector<int64_t> values) { return Attribute(std::move(values)); };
  return {
      {{2, 3, 5, 6}, {4, 3, 3, 3}, {}},
      {{2, 3, 5, 6}, {4, 3, 1, 1}, {}},
      {{1, 3, 7, 8}, {5, 3, 3, 2}, {{"pads", ints({1, 0, 2, 1})}, {"strides", ints({2, 3})}}},
      {{1, 2, 9, 9}, {3, 2, 3, 3}, {{"dilations", ints({2, 3})}, {"pads", ints({2, 2, 2, 2})}}},
      {{2, 3, 7}, {4, 3, 3}, {{"auto_pad", std::string("SAME_UPPER")}, {"strides", ints({2})}}},
      {{2, 3, 6, 7}, {4, 3, 2, 2}, {{"auto_pad", std::string("SAME_LOWER")}}},
      {{2, 3, 7}, {4, 3, 3}, {{"auto_pad", std::string("VALID")}}},
      {{1, 2, 4, 5, 3}, {3, 2, 2, 3, 2}, {{"pads", ints({0, 1, 0, 1, 1, 1})}}},
      // Depthwise, with a multiplier, thin groups, thick groups, one output channel.
      {{2, 4, 6, 5}, {4, 1, 3, 3}, {{"group", int64_t{4}}, {"pads", ints({1, 1, 1, 1})}}},
      {{2, 4, 6, 5}, {8, 1, 3, 3}, {{"group", int64_t{4}}}},
      {{2, 4, 5, 5}, {6, 2, 3, 3}, {{"group", int64_t{2}}}},
      {{2, 8, 4, 4}, {18, 4, 3, 3}, {{"group", int64_t{2}}, {"pads", ints({1, 1, 1, 1})}}},
      {{2, 3, 5, 6}, {1, 3, 3, 3}, {}},
      {{1, 1, 20}, {6, 1, 8}, {{"strides", ints({4})}}},
  };
}

TEST(Conv, AgreesWithReferenceInBothLayouts) {
  for (const ConvShape& shape : ConvShapes()) {
    for (const std::vector<size_t>& constants : {std::vector<size_t>{1, 2}, {}}) {
      ExpectInBothLayouts(
          {.op_type = "Conv",
           .inputs = {Random(DType::kF32, shape.x, 1), Random(DType::kF32, shape.w, 2),
                      Random(DType::kF32, {shape.w[0]}, 3)},
           .attributes = shape.attributes,
           .constants = constants,
           .shared_symbols = !constants.empty(),
           .own_symbols = !constants.empty(),
           .tolerance = {.relative = 1e-4, .absolute = 1e-4}});
    }
  }
}

// Of sizes at which they are transformed: along two axes, one, and the second of them.
TEST(Conv, LargeOnesAgreeWithReference) {
  const auto ints = [](std::vector<int64_t> values) { return Attribute(std::move(values)); };
  const std::vector<ConvShape> shapes = {
      {{2, 32, 12, 16}, {32, 32, 3, 3}, {{"pads", ints({1, 1, 1, 1})}}},
      {{1, 33, 11, 18}, {40, 33, 3, 3}, {{"pads", ints({0, 2, 1, 1})}}},
      {{1, 32, 17, 14}, {32, 32, 3, 3}, {{"auto_pad", std::string("SAME_LOWER")}}},
      {{2, 32, 23}, {48, 32, 5}, {}},
      {{1, 32, 6, 20}, {32, 32, 2, 4}, {{"pads", ints({0, 1, 1, 0})}, {"strides", ints({2, 1})}}},
      {{1, 16, 4, 9, 10}, {32, 16, 2, 3, 3}, {{"pads", ints({0, 1, 0, 1, 1, 1})}}},
  };
  for (const ConvShape& shape : shapes) {
    ExpectInBothLayouts(
        {.op_type = "Conv",
         .inputs = {Random(DType::kF32, shape.x, 1, 1), Random(DType::kF32, shape.w, 2, 0.2),
                    Random(DType::kF32, {shape.w[0]}, 3)},
         .attributes = shape.attributes,
         .constants = {1, 2},
         .own_symbols = true,
         .tolerance = {.relative = 1e-4, .absolute = 1e-4}});
  }
}

// Both sides rounded to bf16, what is added is not; sums of up to 200 terms in f32.
TEST(Conv, RoundsProductsToBf16) {
  const auto ints = [](std::vector<int64_t> values) { return Attribute(std::move(values)); };
  const std::vector<ConvShape> shapes = {
      {{2, 7, 5, 6}, {12, 7, 1, 1}, {}},
      {{1, 20, 9, 8}, {40, 20, 3, 3}, {{"pads", ints({1, 1, 1, 1})}, {"strides", ints({2, 2})}}},
      {{2, 3, 11}, {5, 3, 3}, {{"dilations", ints({2})}}},
      {{2, 8, 6, 6}, {18, 4, 3, 3}, {{"group", int64_t{2}}, {"pads", ints({1, 1, 1, 1})}}},
      {{1, 3, 9, 9}, {16, 3, 3, 3}, {{"strides", ints({2, 2})}}},
      {{2, 32, 12, 16}, {32, 32, 3, 3}, {{"pads", ints({1, 1, 1, 1})}}},  // in f32 by Winograd
  };
  for (const ConvShape& shape : shapes) {
    for (const std::vector<size_t>& constants : {std::vector<size_t>{1, 2}, {}}) {
      ExpectInBothLayouts(
          {.op_type = "Conv",
           .inputs = {Random(DType::kF32, shape.x, 1), Random(DType::kF32, shape.w, 2),
                      Random(DType::kF32, {shape.w[0]}, 3)},
           .attributes = shape.attributes,
           .constants = constants,
           .shared_symbols = !constants.empty(),
           .tolerance = {.relative = 1e-5, .absolute = 1e-3},
           .bf16_products = true,
           .rounded = {0, 1}});
    }
  }
}

// One channel at a time is no matrix product.
TEST(Conv, DepthwiseOnesKeepF32) {
  ExpectInBothLayouts(
      {.op_type = "Conv",
       .inputs = {Random(DType::kF32, {2, 4, 6, 5}, 1), Random(DType::kF32, {4, 1, 3, 3}, 2)},
       .attributes = {{"group", int64_t{4}}},
       .constants = {1},
       .bf16_products = true});
}

TEST(Conv, AgreesWithReferenceInEveryType) {
  for (const DType dtype : kFloatTypes) {
    ExpectInBothLayouts({.op_type = "Conv",
                         .inputs = {Random(dtype, {1, 3, 5, 5}, 1), Random(dtype, {4, 3, 3, 3}, 2)},
                         .attributes = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}},
                         .constants = {1},
                         .tolerance = {.relative = 0.02, .absolute = 0.02}});
  }
}

TEST(Conv, ByHand) {
  ExpectReference(
      {.op_type = "Conv",
       .inputs = {Values(DType::kF32, {1, 1, 4}, {1, 2, 3, 4}),
                  Values(DType::kF32, {1, 1, 3}, {1, 0, -1}), Values(DType::kF32, {1}, {10})},
       .attributes = {{"pads", std::vector<int64_t>{1, 1}}}},
      Values(DType::kF32, {1, 1, 4}, {8, 8, 8, 13}));
}

TEST(Conv, RefusesWhatDoesNotFit) {
  const auto build = [](std::vector<int64_t> x, std::vector<int64_t> w, Attributes attributes) {
    return BuildCase({.op_type = "Conv",
                      .inputs = {Random(DType::kF32, x, 1), Random(DType::kF32, w, 2)},
                      .attributes = std::move(attributes)},
                     CaseDims::kFixed)
        .ok();
  };
  EXPECT_TRUE(build({1, 2, 4}, {3, 2, 3}, {}));
  EXPECT_FALSE(build({1, 3, 4}, {3, 2, 3}, {}));
  EXPECT_FALSE(build({1, 2, 4}, {3, 2, 5}, {}));
  EXPECT_FALSE(build({1, 2, 4}, {3, 2, 3}, {{"group", int64_t{2}}}));
  EXPECT_FALSE(build({1, 2, 4}, {3, 2, 3}, {{"group", int64_t{0}}}));
  EXPECT_FALSE(build({1, 2, 4}, {3, 2, 3}, {{"strides", std::vector<int64_t>{0}}}));
  EXPECT_FALSE(build({1, 2, 4}, {3, 2, 3}, {{"pads", std::vector<int64_t>{1}}}));
  EXPECT_FALSE(build({1, 2, 4}, {3, 2, 3}, {{"kernel_shape", std::vector<int64_t>{2}}}));
  EXPECT_FALSE(build({1, 2}, {3, 2}, {}));
}

TEST(ConvInteger, AgreesWithReference) {
  for (const ConvShape& shape : ConvShapes()) {
    const Tensor x = Random(DType::kU8, shape.x, 1, 255), w = Random(DType::kI8, shape.w, 2, 127);
    for (const std::vector<size_t>& constants : {std::vector<size_t>{1, 3}, {1}, {}}) {
      ExpectInBothLayouts(
          {.op_type = "ConvInteger",
           .inputs = {x, w, Values(DType::kU8, {}, {9}), Random(DType::kI8, {shape.w[0]}, 3, 20)},
           .attributes = shape.attributes,
           .constants = constants,
           .shared_symbols = false});
    }
    ExpectInBothLayouts({.op_type = "ConvInteger",
                         .inputs = {x, w},
                         .attributes = shape.attributes,
                         .constants = {1}});
  }
}

OpCase LargeConvInteger(const ConvShape& shape, Tensor w) {
  return {.op_type = "ConvInteger",
          .domain = "stampmill",
          .inputs = {ToChannelsLast(Random(DType::kU8, shape.x, 1, 255)), std::move(w),
                     Values(DType::kU8, {}, {9})},
          .attributes = shape.attributes,
          .constants = {1, 3},
          .shared_symbols = false,
          .own_symbols = true};
}

// The axes along which the case's contraction is transformed.
size_t TransformedAxes(const OpCase& test) {
  const std::vector<Contraction> contractions = LoweredContractions(test);
  EXPECT_EQ(contractions.size(), 1);
  EXPECT_EQ(contractions[0].a.dtype(), contractions[0].batch.empty() ? DType::kU8 : DType::kI16);
  return contractions[0].batch.size();
}

// Difference allows sums no tolerance.
TEST(ConvInteger, IsTransformedExactlyWhereTheTargetDoesNotMultiplyBytes) {
  const auto ints = [](std::vector<int64_t> values) { return Attribute(std::move(values)); };
  const std::vector<std::pair<ConvShape, size_t>> shapes = {
      {{{1, 64, 24, 23}, {64, 64, 3, 3}, {{"pads", ints({1, 1, 1, 1})}}}, 2},
      {{{1, 47, 14, 32}, {40, 47, 3, 3}, {{"pads", ints({0, 2, 1, 1})}}}, 1},
      {{{1, 128, 202}, {128, 128, 3}, {}}, 1},
      {{{1, 64, 20, 40}, {64, 64, 2, 3}, {{"pads", ints({0, 1, 1, 0})}, {"strides", ints({2, 1})}}},
       1},
      {{{1, 128, 202}, {128, 128, 5}, {}}, 0},
  };
  for (const auto& [shape, axes] : shapes) {
    OpCase test = LargeConvInteger(shape, Random(DType::kI8, shape.w, 2, 127));
    EXPECT_EQ(TransformedAxes(test), axes);
    ExpectLoweringMatchesReference(test);
    test.has_byte_products = true;
    EXPECT_EQ(TransformedAxes(test), 0);
    ExpectLoweringMatchesReference(test);
  }
}

// x of i8 less -128, w of u8 less a zero point for each channel.
TEST(ConvInteger, IsTransformedExactlyWhateverTheZeroPoints) {
  const ConvShape shape = {{1, 64, 18, 18}, {64, 64, 3, 3}, {}};
  OpCase test = LargeConvInteger(shape, Random(DType::kU8, shape.w, 2, 255));
  test.inputs[0] = ToChannelsLast(Random(DType::kI8, shape.x, 1, 127));
  test.inputs[2] = Values(DType::kI8, {}, {-128});
  test.inputs.push_back(Random(DType::kU8, {64}, 3, 255));
  EXPECT_GE(TransformedAxes(test), 1);
  ExpectLoweringMatchesReference(test);
}

// Two transformed axes leave 26 bits of a sum, of which each product may take 255 * 127.
TEST(ConvInteger, IsTransformedOnlyAsFarAsSumsFit) {
  const auto transformed_axes = [](int64_t channels) {
    const std::vector<int64_t> w = {64, channels, 3, 3};
    const std::vector<double> greatest(static_cast<size_t>(64 * channels * 9), 127);
    return TransformedAxes(
        LargeConvInteger({{1, channels, 34, 34}, w, {}}, Values(DType::kI8, w, greatest)));
  };
  EXPECT_EQ(transformed_axes(115), 2);
  EXPECT_EQ(transformed_axes(116), 1);
}

// The greatest sums of either sign come out right.
TEST(ConvInteger, TransformsTheGreatestSums) {
  const std::vector<int64_t> x = {1, 10, 18, 115}, w = {64, 115, 3, 3};
  std::vector<double> values(static_cast<size_t>(64 * 115 * 9), 127);
  for (size_t i = values.size() / 2; i < values.size(); ++i) values[i] = -127;
  OpCase test = LargeConvInteger({{1, 115, 10, 18}, w, {}}, Values(DType::kI8, w, values));
  test.inputs[0] =
      Values(DType::kU8, x, std::vector<double>(static_cast<size_t>(10 * 18 * 115), 255));
  test.inputs.resize(2);
  EXPECT_EQ(TransformedAxes(test), 2);
  ExpectLoweringMatchesReference(test);
}

TEST(QLinearConv, AgreesWithReference) {
  for (const ConvShape& shape : ConvShapes()) {
    ExpectInBothLayouts(
        {.op_type = "QLinearConv",
         .inputs = {Random(DType::kU8, shape.x, 1, 255), Values(DType::kF32, {}, {0.5}),
                    Values(DType::kU8, {}, {100}), Random(DType::kI8, shape.w, 2, 127),
                    Values(DType::kF32, {shape.w[0]}, std::vector<double>(shape.w[0], 0.25)),
                    Values(DType::kI8, {shape.w[0]}, std::vector<double>(shape.w[0], 1)),
                    Values(DType::kF32, {}, {16}), Values(DType::kU8, {}, {128}),
                    Random(DType::kI32, {shape.w[0]}, 3, 1000)},
         .attributes = shape.attributes,
         .constants = {3, 4, 5, 8}});
  }
}

TEST(ConvTranspose, AgreesWithReferenceInBothLayouts) {
  const auto ints = [](std::vector<int64_t> values) { return Attribute(std::move(values)); };
  for (const ConvShape& shape : std::vector<ConvShape>{
           {{2, 3, 4, 5}, {3, 4, 2, 2}, {{"strides", ints({2, 2})}}},
           {{2, 4, 3, 3}, {4, 3, 2, 3}, {{"strides", ints({2, 3})}, {"group", int64_t{2}}}},
           {{2, 3, 4, 5}, {3, 11, 2, 3}, {{"strides", ints({2, 3})}}},
           {{2, 4, 3, 7}, {4, 24, 1, 2}, {{"strides", ints({1, 2})}, {"group", int64_t{2}}}},
           {{1, 2, 3, 3, 2}, {2, 8, 2, 2, 2}, {{"strides", ints({2, 2, 2})}}},
           {{1, 3, 4, 5}, {3, 4, 3, 3}, {}},
           {{1, 3, 4, 5}, {3, 5, 3, 3}, {{"strides", ints({2, 3})}, {"pads", ints({1, 0, 1, 2})}}},
           {{1, 2, 4}, {2, 3, 3}, {{"strides", ints({3})}, {"output_padding", ints({1})}}},
           {{1, 2, 5}, {2, 3, 3}, {{"dilations", ints({2})}, {"strides", ints({2})}}},
           {{1, 2, 5}, {2, 3, 3}, {{"strides", ints({2})}, {"output_shape", ints({10})}}},
           {{1, 2, 3, 3},
            {2, 2, 3, 3},
            {{"strides", ints({2, 2})}, {"auto_pad", std::string("SAME_UPPER")}}},
           {{1, 2, 3, 3},
            {2, 2, 3, 3},
            {{"strides", ints({2, 2})}, {"auto_pad", std::string("SAME_LOWER")}}},
           {{1, 4, 3, 3}, {4, 1, 3, 3}, {{"group", int64_t{4}}, {"strides", ints({2, 2})}}},
           {{1, 2, 2, 3, 2}, {2, 2, 2, 2, 2}, {{"strides", ints({2, 2, 2})}}}}) {
    const int64_t groups =
        shape.attributes.contains("group") ? std::get<int64_t>(shape.attributes.at("group")) : 1;
    for (const std::vector<size_t>& constants : {std::vector<size_t>{1, 2}, {}}) {
      ExpectInBothLayouts(
          {.op_type = "ConvTranspose",
           .inputs = {Random(DType::kF32, shape.x, 1), Random(DType::kF32, shape.w, 2),
                      Random(DType::kF32, {shape.w[1] * groups}, 3)},
           .attributes = shape.attributes,
           .constants = constants,
           .shared_symbols = !constants.empty(),
           .tolerance = {.relative = 1e-4, .absolute = 1e-4}});
    }
  }
}

TEST(ConvTranspose, ByHand) {
  ExpectReference({.op_type = "ConvTranspose",
                   .inputs = {Values(DType::kF32, {1, 1, 3}, {1, 2, 3}),
                              Values(DType::kF32, {1, 1, 3}, {1, 10, 100})},
                   .attributes = {{"strides", std::vector<int64_t>{2}}}},
                  Values(DType::kF32, {1, 1, 7}, {1, 10, 102, 20, 203, 30, 300}));
}

TEST(Pool, AgreesWithReferenceInBothLayouts) {
  const auto ints = [](std::vector<int64_t> values) { return Attribute(std::move(values)); };
  for (const ConvShape& shape : std::vector<ConvShape>{
           {{2, 3, 7, 6}, {3, 2}, {}},
           {{2, 3, 7, 6}, {3, 2}, {{"strides", ints({2, 3})}, {"pads", ints({1, 0, 2, 1})}}},
           {{2, 3, 7, 6}, {3, 3}, {{"strides", ints({2, 2})}, {"ceil_mode", int64_t{1}}}},
           {{1, 2, 8, 8},
            {3, 3},
            {{"strides", ints({3, 3})}, {"pads", ints({1, 1, 1, 1})}, {"ceil_mode", int64_t{1}}}},
           {{1, 2, 9, 9}, {2, 3}, {{"dilations", ints({3, 2})}, {"pads", ints({1, 2, 1, 2})}}},
           {{1, 2, 9}, {4}, {{"strides", ints({3})}, {"auto_pad", std::string("SAME_UPPER")}}},
           {{1, 2, 9}, {4}, {{"strides", ints({3})}, {"auto_pad", std::string("SAME_LOWER")}}},
           {{1, 2, 4, 4, 5}, {2, 2, 2}, {{"pads", ints({0, 1, 0, 1, 0, 1})}}}}) {
    Attributes attributes = shape.attributes;
    attributes["kernel_shape"] = shape.w;
    const Tensor x = Random(DType::kF32, shape.x, 1);
    ExpectInBothLayouts({.op_type = "MaxPool", .inputs = {x}, .attributes = attributes});
    // Own symbols leave every branch of the counting to run time.
    for (const int64_t include : {0, 1}) {
      attributes["count_include_pad"] = include;
      ExpectInBothLayouts(
          {.op_type = "AveragePool", .inputs = {x}, .attributes = attributes, .own_symbols = true});
    }
    attributes.erase("count_include_pad");
    for (const int64_t p : {1, 2, 3}) {
      attributes["p"] = p;
      ExpectInBothLayouts({.op_type = "LpPool", .inputs = {x}, .attributes = attributes});
    }
    attributes.erase("p");
    for (const int64_t order : {0, 1}) {
      attributes["storage_order"] = order;
      ExpectInBothLayouts({.op_type = "MaxPool",
                           .inputs = {Random(DType::kF32, shape.x, 1, 2)},
                           .attributes = attributes,
                           .output_count = 2});
    }
  }
  for (const DType dtype : {DType::kI8, DType::kU8, DType::kF16}) {
    ExpectInBothLayouts(
        {.op_type = "MaxPool",
         .inputs = {Random(dtype, {1, 2, 5, 5}, 1, 100)},
         .attributes = {{"kernel_shape", ints({3, 3})}, {"pads", ints({1, 1, 1, 1})}}});
  }
}

TEST(Pool, IndicesAreOfTheWholeTensor) {
  const OpCase test{.op_type = "MaxPool",
                    .inputs = {Values(DType::kF32, {1, 2, 2, 2}, {1, 4, 3, 2, 8, 5, 6, 7})},
                    .attributes = {{"kernel_shape", std::vector<int64_t>{2, 2}}},
                    .output_count = 2};
  const auto got = RunReference(test);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(Difference((*got)[0], Values(DType::kF32, {1, 2, 1, 1}, {4, 8}), {}), "");
  EXPECT_EQ(Difference((*got)[1], Values(DType::kI64, {1, 2, 1, 1}, {1, 4}), {}), "");
}

TEST(Pool, AverageCountsWhatItIsToldTo) {
  OpCase test{.op_type = "AveragePool",
              .inputs = {Values(DType::kF32, {1, 1, 2}, {2, 4})},
              .attributes = {{"kernel_shape", std::vector<int64_t>{2}},
                             {"pads", std::vector<int64_t>{1, 0}}}};
  ExpectReference(test, Values(DType::kF32, {1, 1, 2}, {2, 3}));
  test.attributes["count_include_pad"] = int64_t{1};
  ExpectReference(test, Values(DType::kF32, {1, 1, 2}, {1, 3}));
}

TEST(Pool, GlobalFormsAgreeWithReference) {
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"}) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{2, 3, 4, 5}, {2, 3, 6}, {1, 2, 3, 2, 2}}) {
      ExpectInBothLayouts(
          {.op_type = op, .inputs = {Random(DType::kF32, shape, 1)}, .own_symbols = true});
    }
  }
}

}  // namespace
}  // namespace stampmill
