// Operators that move elements: lowerings against references on ordinary, empty and one-element
// shapes, with bounds from the front, the back and far outside.
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

Tensor Numbers(std::vector<int64_t> shape) { return Random(DType::kF32, std::move(shape), 1); }

TEST(Move, TransposesAnyRankAndType) {
  for (const DType dtype : kAllTypes) {
    ExpectLoweringMatchesReference(
        {.op_type = "Transpose", .inputs = {Random(dtype, {2, 3, 4}, 1)}});
  }
  for (const std::vector<int64_t>& perm :
       {std::vector<int64_t>{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 3, 1}, {1, 0, 3, 2}}) {
    OpCase test{.op_type = "Transpose", .inputs = {Numbers({2, 3, 1, 5})}};
    test.attributes["perm"] = perm;
    ExpectLoweringMatchesReference(test);
  }
  ExpectLoweringMatchesReference({.op_type = "Transpose", .inputs = {Numbers({})}});
  ExpectLoweringMatchesReference({.op_type = "Transpose", .inputs = {Numbers({0, 3})}});
}

TEST(Move, ConcatenatesNothing) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 3}, {2, 0}}) {
    ExpectLoweringMatchesReference({.op_type = "Concat",
                                    .inputs = {Random(DType::kF32, shape, 1)},
                                    .attributes = {{"axis", int64_t{0}}}});
    ExpectLoweringMatchesReference(
        {.op_type = "Concat",
         .inputs = {Random(DType::kF32, shape, 1), Random(DType::kF32, shape, 1)},
         .attributes = {{"axis", int64_t{0}}}});
  }
}

TEST(Move, ConcatenatesAlongEveryAxis) {
  for (const int64_t axis : {0, 1, 2, -1, -3}) {
    std::vector<int64_t> a = {2, 3, 4};
    std::vector<int64_t> b = a;
    std::vector<int64_t> c = a;
    const size_t place = static_cast<size_t>(axis < 0 ? axis + 3 : axis);
    b[place] = 1;
    c[place] = 0;
    OpCase test{.op_type = "Concat", .inputs = {Numbers(a), Numbers(b), Numbers(c), Numbers(a)}};
    test.attributes["axis"] = axis;
    ExpectLoweringMatchesReference(test);
    OpCase one{.op_type = "Concat", .inputs = {Numbers(a)}};
    one.attributes["axis"] = axis;
    ExpectLoweringMatchesReference(one);
  }
}

TEST(Move, SplitsEquallyUnequallyAndAsTold) {
  OpCase equal{.op_type = "Split", .inputs = {Numbers({2, 6})}, .output_count = 3};
  equal.attributes["axis"] = int64_t{1};
  ExpectLoweringMatchesReference(equal);
  OpCase ragged{.op_type = "Split", .inputs = {Numbers({7, 2})}, .output_count = 4};
  ragged.attributes["num_outputs"] = int64_t{4};
  ExpectLoweringMatchesReference(ragged);
  OpCase told{.op_type = "Split",
              .inputs = {Numbers({2, 6}), Ints({1, 0, 5})},
              .output_count = 3,
              .constants = {1}};
  told.attributes["axis"] = int64_t{-1};
  ExpectLoweringMatchesReference(told);
}

TEST(Move, TilesInnerAndOuterDims) {
  for (const std::vector<int64_t>& repeats :
       {std::vector<int64_t>{1, 1, 1}, {2, 1, 1}, {1, 2, 3}, {3, 1, 2}, {1, 1, 0}}) {
    ExpectLoweringMatchesReference(
        {.op_type = "Tile", .inputs = {Numbers({2, 3, 4}), Ints(repeats)}, .constants = {1}});
    ExpectLoweringMatchesReference(
        {.op_type = "Tile", .inputs = {Numbers({2, 1, 1}), Ints(repeats)}, .constants = {1}});
  }
}

OpCase SliceCase(std::vector<int64_t> shape, const std::vector<int64_t>& starts,
                 const std::vector<int64_t>& ends, const std::vector<int64_t>& axes,
                 const std::vector<int64_t>& steps) {
  return {.op_type = "Slice",
          .inputs = {Numbers(std::move(shape)), Ints(starts), Ints(ends), Ints(axes), Ints(steps)},
          .constants = {1, 2, 3, 4}};
}

TEST(Move, SlicesLikePython) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  for (const int64_t start :
       {int64_t{0}, int64_t{1}, int64_t{-2}, int64_t{9}, int64_t{-9}, kMax, kMin}) {
    for (const int64_t end : {int64_t{0}, int64_t{3}, int64_t{-1}, int64_t{1000}, int64_t{-1000},
                              int64_t{2147483647}, kMax, kMin}) {
      for (const int64_t step : {int64_t{1}, int64_t{2}, int64_t{-1}, int64_t{-3}, kMax, kMin}) {
        ExpectLoweringMatchesReference(SliceCase({2, 7}, {start}, {end}, {1}, {step}));
      }
    }
  }
  ExpectLoweringMatchesReference(
      SliceCase({5, 6, 7}, {1, -3, 0}, {4, kMax, -1}, {0, -1, 1}, {1, 1, 2}));
}

// The specification, other than Python, clamps a start before the axis to its first element.
TEST(Move, SliceBackwardsFromBeforeTheAxisBeginsAtItsFirstElement) {
  OpCase test = SliceCase({1, 3}, {-20}, {-20}, {1}, {-1});
  test.inputs[0] = Values(DType::kF32, {1, 3}, {7, 8, 9});
  ExpectReference(test, Values(DType::kF32, {1, 1}, {7}));
  ExpectLoweringMatchesReference(test);
  ExpectReference(SliceCase({0, 3}, {-20}, {-20}, {0}, {-1}), Values(DType::kF32, {0, 3}, {}));
}

TEST(Move, PadRepeatsWhatItsCutsLeave) {
  const Tensor data = Values(DType::kF32, {6}, {0, 1, 2, 3, 4, 5});
  OpCase test{.op_type = "Pad", .inputs = {data, Ints({-1, 4})}, .constants = {1}};
  test.attributes["mode"] = std::string("wrap");
  ExpectReference(test, Values(DType::kF32, {9}, {1, 2, 3, 4, 5, 1, 2, 3, 4}));
  ExpectLoweringMatchesReference(test);
  test.inputs[1] = Ints({3, -2});
  ExpectReference(test, Values(DType::kF32, {7}, {1, 2, 3, 0, 1, 2, 3}));
  ExpectLoweringMatchesReference(test);
  test.inputs[1] = Ints({-7, 4});
  EXPECT_FALSE(RunReference(test).ok());
}

TEST(Move, PadIgnoresItsValueWhereItRepeats) {
  OpCase test{
      .op_type = "Pad",
      .inputs = {Values(DType::kU32, {3}, {4, 5, 6}), Ints({1, 0}), Values(DType::kU32, {}, {9})},
      .constants = {1}};
  test.attributes["mode"] = std::string("wrap");
  ExpectReference(test, Values(DType::kU32, {4}, {6, 4, 5, 6}));
  ExpectLoweringMatchesReference(test);
}

TEST(Move, SliceTakesTheFirstOrLastOfADimAsOne) {
  const auto first = BuildCase(SliceCase({5, 4}, {0}, {1}, {0}, {1}), CaseDims::kSharedSymbols);
  ASSERT_TRUE(first.ok()) << first.status();
  const Node& node = first->graph.node(first->graph.Order()[0]);
  EXPECT_EQ(ToString(*first->graph.value(node.outputs[0]).shape), "[1, E4]");
  EXPECT_EQ(first->graph.checks().size(), 1u);  // the dim is not 0
}

TEST(Move, PadsInEveryMode) {
  for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
    for (const std::vector<int64_t>& pads :
         {std::vector<int64_t>{0, 0, 0, 0}, {1, 2, 1, 2}, {0, 3, 0, 1}, {0, -1, 1, -1}}) {
      OpCase test{.op_type = "Pad", .inputs = {Numbers({3, 5}), Ints(pads)}, .constants = {1}};
      test.attributes["mode"] = std::string(mode);
      ExpectLoweringMatchesReference(test);
    }
  }
  OpCase longer{.op_type = "Pad", .inputs = {Numbers({4}), Ints({9, 11})}, .constants = {1}};
  for (const char* mode : {"reflect", "wrap"}) {
    longer.attributes["mode"] = std::string(mode);
    ExpectLoweringMatchesReference(longer);
  }
  OpCase single{.op_type = "Pad", .inputs = {Numbers({1}), Ints({2, 3})}, .constants = {1}};
  single.attributes["mode"] = std::string("reflect");
  ExpectLoweringMatchesReference(single);
}

TEST(Move, PadTakesItsValueAndAxesFromInputs) {
  for (const DType dtype : kAllTypes) {
    for (const bool known : {false, true}) {
      OpCase test{.op_type = "Pad",
                  .inputs = {Random(dtype, {2, 3, 4}, 2), Ints({1, 2, 3, 0}),
                             Values(dtype, {}, {1}), Ints({-1, 0})},
                  .constants = {1, 3}};
      if (known) test.constants.push_back(2);
      ExpectLoweringMatchesReference(test);
    }
  }
}

TEST(Move, CenterCropPadCutsAndFills) {
  for (const std::vector<int64_t>& to :
       {std::vector<int64_t>{5, 6}, {2, 3}, {8, 3}, {4, 9}, {0, 1}}) {
    ExpectLoweringMatchesReference(
        {.op_type = "CenterCropPad", .inputs = {Numbers({5, 6}), Ints(to)}, .constants = {1}});
  }
  OpCase axes{
      .op_type = "CenterCropPad", .inputs = {Numbers({5, 6, 3}), Ints({4})}, .constants = {1}};
  axes.attributes["axes"] = std::vector<int64_t>{-2};
  ExpectLoweringMatchesReference(axes);
}

TEST(Move, ReversesSequencesOfTheirOwnLengths) {
  for (const int64_t batch : {0, 1}) {
    OpCase test{.op_type = "ReverseSequence", .inputs = {Numbers({4, 4, 2}), Ints({4, 0, 1, 3})}};
    test.attributes["batch_axis"] = batch;
    test.attributes["time_axis"] = 1 - batch;
    ExpectLoweringMatchesReference(test);
  }
}

TEST(Move, BlocksGoBetweenDepthAndSpace) {
  for (const char* mode : {"DCR", "CRD"}) {
    OpCase test{.op_type = "DepthToSpace", .inputs = {Numbers({2, 8, 3, 5})}};
    test.attributes["blocksize"] = int64_t{2};
    test.attributes["mode"] = std::string(mode);
    ExpectLoweringMatchesReference(test);
    OpCase back{.op_type = "SpaceToDepth", .inputs = {Numbers({2, 3, 4, 6})}};
    back.attributes["blocksize"] = int64_t{2};
    back.attributes["mode"] = std::string(mode);
    ExpectLoweringMatchesReference(back);
  }
}

TEST(Move, GathersWithIndicesFromBothEnds) {
  for (const int64_t axis : {0, 1, -1}) {
    OpCase test{.op_type = "Gather",
                .inputs = {Numbers({4, 4, 4}), Values(DType::kI32, {2, 3}, {0, 3, -1, -4, 1, 2})}};
    test.attributes["axis"] = axis;
    ExpectLoweringMatchesReference(test);
    OpCase one{.op_type = "Gather", .inputs = {Numbers({4, 4, 4}), Values(DType::kI64, {}, {-2})}};
    one.attributes["axis"] = axis;
    ExpectLoweringMatchesReference(one);
    one.constants = {1};
    ExpectLoweringMatchesReference(one);
  }
  for (const DType dtype : kAllTypes) {
    ExpectLoweringMatchesReference(
        {.op_type = "Gather", .inputs = {Random(dtype, {5, 2}, 3), Ints({4, 0, -5})}});
  }
}

TEST(Move, GatherFromAnEmptyAxisReadsNothing) {
  ExpectLoweringMatchesReference({.op_type = "Gather", .inputs = {Numbers({0, 3}), Ints({})}});
  ExpectLoweringMatchesReference({.op_type = "Gather", .inputs = {Numbers({3, 0}), Ints({1, 2})}});
}

TEST(Move, GatherElementsAndNDAgree) {
  OpCase elements{
      .op_type = "GatherElements",
      .inputs = {Numbers({3, 4}), Values(DType::kI64, {2, 4}, {0, 1, 2, -1, -2, 0, 1, -3})}};
  ExpectLoweringMatchesReference(elements);
  OpCase last{.op_type = "GatherElements",
              .inputs = {Numbers({3, 4}), Values(DType::kI64, {3, 2}, {0, 3, -1, -4, 2, 1})}};
  last.attributes["axis"] = int64_t{1};
  ExpectLoweringMatchesReference(last);

  ExpectLoweringMatchesReference(
      {.op_type = "GatherND",
       .inputs = {Numbers({3, 4, 5}), Values(DType::kI64, {3, 2}, {0, 3, -1, -4, 2, 1})},
       .shared_symbols = false});
  OpCase batched{
      .op_type = "GatherND",
      .inputs = {Numbers({3, 4, 5}), Values(DType::kI64, {3, 2, 1}, {0, 3, -1, -4, 2, 1})}};
  batched.attributes["batch_dims"] = int64_t{1};
  batched.shared_symbols = false;  // the length of index tuples must be fixed
  ExpectLoweringMatchesReference(batched);
}

TEST(Move, ScattersWithEveryReduction) {
  for (const char* reduction : {"none", "add", "mul", "min", "max"}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kI32, DType::kU8, DType::kF64}) {
      OpCase elements{
          .op_type = "ScatterElements",
          .inputs = {Random(dtype, {4, 5}, 4), Values(DType::kI64, {2, 3}, {0, 1, -1, 0, 3, -4}),
                     Random(dtype, {2, 3}, 5)}};
      elements.attributes["reduction"] = std::string(reduction);
      ExpectLoweringMatchesReference(elements);
      OpCase last = elements;
      last.attributes["axis"] = int64_t{1};
      last.inputs[1] = Values(DType::kI32, {2, 3}, {0, 0, -5, 4, 4, 4});
      ExpectLoweringMatchesReference(last);

      OpCase nd{.op_type = "ScatterND",
                .inputs = {Random(dtype, {4, 5, 2}, 6),
                           Values(DType::kI64, {2, 2, 2}, {0, 1, -1, 0, 0, 1, 3, -5}),
                           Random(dtype, {2, 2, 2}, 7)},
                .shared_symbols = false};
      nd.attributes["reduction"] = std::string(reduction);
      ExpectLoweringMatchesReference(nd);
      nd.inputs[1] = Values(DType::kI64, {1}, {2});
      nd.inputs[2] = Random(dtype, {5, 2}, 8);
      ExpectLoweringMatchesReference(nd);
    }
  }
  ExpectLoweringMatchesReference(
      {.op_type = "ScatterElements",
       .inputs = {Random(DType::kBool, {4}, 9), Ints({1, -1}), Random(DType::kBool, {2}, 10)}});
}

TEST(Move, TensorScatterWritesRowsOfACache) {
  for (const char* mode : {"linear", "circular"}) {
    OpCase test{.op_type = "TensorScatter",
                .inputs = {Numbers({2, 3, 6, 4}), Random(DType::kF32, {2, 3, 2, 4}, 11),
                           Ints({1, std::string(mode) == "linear" ? 4 : 5})}};
    test.attributes["mode"] = std::string(mode);
    ExpectLoweringMatchesReference(test);
  }
  ExpectLoweringMatchesReference(
      {.op_type = "TensorScatter",
       .inputs = {Numbers({2, 6, 4}), Random(DType::kF32, {2, 2, 4}, 12)}});
}

TEST(Move, ExpandsBothWays) {
  ExpectLoweringMatchesReference(
      {.op_type = "Expand", .inputs = {Numbers({3, 1}), Ints({2, 1, 6})}, .constants = {1}});
  ExpectLoweringMatchesReference(
      {.op_type = "Expand", .inputs = {Numbers({3, 4}), Ints({1})}, .constants = {1}});
}

TEST(Move, GeneratorsAgree) {
  OpCase fill{.op_type = "ConstantOfShape", .inputs = {Ints({2, 3})}, .constants = {0}};
  ExpectLoweringMatchesReference(fill);
  fill.attributes["value"] = Values(DType::kI32, {1}, {7});
  ExpectLoweringMatchesReference(fill);
  ExpectLoweringMatchesReference(
      {.op_type = "Range",
       .inputs = {Values(DType::kF32, {}, {1}), Values(DType::kF32, {}, {5.5}),
                  Values(DType::kF32, {}, {1.5})},
       .constants = {0, 1, 2}});
  for (const int64_t delta : {1, 3, -2}) {
    const double start = delta > 0 ? 2 : 900;
    const double limit = delta > 0 ? 900 : 2;
    ExpectLoweringMatchesReference(
        {.op_type = "Range",
         .inputs = {Values(DType::kI64, {}, {start}), Values(DType::kI64, {}, {limit}),
                    Values(DType::kI64, {}, {double(delta)})},
         .constants = {0, 1, 2}});
  }
  for (const int64_t k : {0, 1, -2}) {
    OpCase eye{.op_type = "EyeLike", .inputs = {Random(DType::kI32, {4, 5}, 13)}};
    eye.attributes["k"] = k;
    ExpectLoweringMatchesReference(eye);
    eye.attributes["dtype"] = int64_t{OnnxDataType(DType::kF64)};
    ExpectLoweringMatchesReference(eye);
    for (const int64_t upper : {0, 1}) {
      OpCase trilu{.op_type = "Trilu",
                   .inputs = {Numbers({2, 4, 5}), Values(DType::kI64, {}, {double(k)})}};
      trilu.attributes["upper"] = upper;
      ExpectLoweringMatchesReference(trilu);
    }
  }
  for (const int64_t axis : {-1, 0, 1}) {
    OpCase hot{.op_type = "OneHot",
               .inputs = {Values(DType::kI64, {2, 3}, {0, 2, -1, 5, -4, 3}),
                          Values(DType::kI64, {}, {4}), Values(DType::kF32, {2}, {-1, 3})},
               .constants = {1}};
    hot.attributes["axis"] = axis;
    hot.shared_symbols = false;  // two values, not E2
    ExpectLoweringMatchesReference(hot);
  }
}

}  // namespace
}  // namespace stampmill
