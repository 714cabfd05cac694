// MatMul, Gemm, MatMulInteger, Einsum and the packing of weights.
#include "gtest/gtest.h"
#include "kernels/packing.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

struct Shapes {
  std::vector<int64_t> a, b;
};

TEST(MatMul, AgreesWithReferenceForAllShapes) {
  for (const Shapes& shapes : std::vector<Shapes>{{{3, 4}, {4, 5}},
                                                  {{4}, {4, 5}},
                                                  {{3, 4}, {4}},
                                                  {{4}, {4}},
                                                  {{1, 4}, {4, 1}},
                                                  {{2, 3, 4}, {4, 6}},
                                                  {{2, 3, 4}, {2, 4, 6}},
                                                  {{2, 1, 3, 4}, {5, 4, 7}},
                                                  {{3, 4}, {2, 4, 8}},
                                                  {{2, 3, 4}, {4}},
                                                  {{4}, {2, 4, 6}},
                                                  {{6, 3, 4}, {1, 4, 6}},
                                                  {{3, 0}, {0, 5}},
                                                  {{0, 4}, {4, 5}}}) {
    for (const std::vector<size_t>& constants : {std::vector<size_t>{}, {1}}) {
      ExpectLoweringMatchesReference(
          {.op_type = "MatMul",
           .inputs = {Random(DType::kF32, shapes.a, 1), Random(DType::kF32, shapes.b, 2)},
           .constants = constants,
           .own_symbols = true});
    }
  }
}

TEST(MatMul, AgreesWithReferenceInEveryType) {
  for (const DType dtype : kAllTypes) {
    if (dtype == DType::kBool) continue;
    for (const std::vector<size_t>& constants : {std::vector<size_t>{}, {1}}) {
      ExpectLoweringMatchesReference(
          {.op_type = "MatMul",
           .inputs = {Random(dtype, {3, 5}, 1, 100), Random(dtype, {5, 6}, 2, 100)},
           .constants = constants,
           .tolerance = {.relative = IsFloat(dtype) ? 0.02 : 0, .absolute = -1}});
    }
  }
}

// Both sides rounded to bf16, sums in f32 against those of the reference: some 200 terms of up to
// 9, so 1e-3 is a tenth of what one operand's rounding would be.
constexpr CaseTolerance kBf16Tolerance = {.relative = 1e-5, .absolute = 1e-3};

TEST(Bf16Products, MatMulRoundsBothSides) {
  for (const Shapes& shapes : std::vector<Shapes>{{{3, 4}, {4, 5}},
                                                  {{1, 201}, {201, 33}},
                                                  {{50, 64}, {64, 100}},
                                                  {{4}, {4, 5}},
                                                  {{2, 3, 7}, {2, 7, 6}},
                                                  {{2, 1, 3, 16}, {5, 16, 70}},
                                                  {{3, 5}, {2, 5, 8}},
                                                  {{3, 0}, {0, 5}},
                                                  {{0, 4}, {4, 5}}}) {
    for (const std::vector<size_t>& constants : {std::vector<size_t>{}, {1}}) {
      for (const DType dtype : {DType::kF32, DType::kF16}) {
        CaseTolerance tolerance = kBf16Tolerance;
        if (dtype == DType::kF16) tolerance = {.relative = 2e-3, .absolute = 2e-3};
        ExpectLoweringMatchesReference(
            {.op_type = "MatMul",
             .inputs = {Random(dtype, shapes.a, 1), Random(dtype, shapes.b, 2)},
             .constants = constants,
             .own_symbols = true,
             .tolerance = tolerance,
             .bf16_products = true,
             .rounded = {0, 1}});
      }
    }
  }
}

TEST(Bf16Products, OtherTypesAreLeftAlone) {
  for (const DType dtype : {DType::kF64, DType::kI32}) {
    const Tensor a = Random(dtype, {3, 5}, 1, 100), b = Random(dtype, {5, 6}, 2, 100);
    ExpectLoweringMatchesReference({.op_type = "MatMul", .inputs = {a, b}, .bf16_products = true});
  }
}

TEST(Bf16Products, GemmDoesNotRoundWhatItAdds) {
  for (const int64_t transposed : {0, 1}) {
    for (const std::vector<size_t>& constants : {std::vector<size_t>{}, {1}}) {
      ExpectLoweringMatchesReference({.op_type = "Gemm",
                                      .inputs = {Random(DType::kF32, {9, 35}, 1),
                                                 Random(DType::kF32,
                                                        transposed ? std::vector<int64_t>{40, 35}
                                                                   : std::vector<int64_t>{35, 40},
                                                        2),
                                                 Random(DType::kF32, {40}, 3)},
                                      .attributes = {{"transB", transposed}},
                                      .constants = constants,
                                      .tolerance = kBf16Tolerance,
                                      .bf16_products = true,
                                      .rounded = {0, 1}});
    }
  }
}

TEST(Bf16Products, Einsum) {
  for (const char* equation : {"bij,bjk->bik", "bij,bkj->ikb"}) {
    ExpectLoweringMatchesReference(
        {.op_type = "Einsum",
         .inputs = {Random(DType::kF32, {3, 5, 7}, 1), Random(DType::kF32, {3, 7, 7}, 2)},
         .attributes = {{"equation", std::string(equation)}},
         .tolerance = kBf16Tolerance,
         .bf16_products = true,
         .rounded = {0, 1}});
  }
}

TEST(MatMul, ByHand) {
  ExpectReference(
      {.op_type = "MatMul",
       .inputs = {Values(DType::kF32, {2, 2}, {1, 2, 3, 4}), Values(DType::kF32, {2, 1}, {5, 6})}},
      Values(DType::kF32, {2, 1}, {17, 39}));
}

TEST(MatMul, RefusesInnerDimsThatDiffer) {
  EXPECT_FALSE(
      BuildCase({.op_type = "MatMul",
                 .inputs = {Random(DType::kF32, {2, 3}, 1), Random(DType::kF32, {4, 2}, 2)}},
                CaseDims::kFixed)
          .ok());
}

TEST(Gemm, AgreesWithReference) {
  for (const int64_t transpose_a : {0, 1}) {
    for (const int64_t transpose_b : {0, 1}) {
      for (const std::vector<int64_t>& c : {std::vector<int64_t>{}, {6}, {1, 6}, {3, 1}, {3, 6}}) {
        for (const std::vector<size_t>& constants : {std::vector<size_t>{}, {1}}) {
          ExpectLoweringMatchesReference(
              {.op_type = "Gemm",
               .inputs = {Random(
                              DType::kF32,
                              transpose_a ? std::vector<int64_t>{4, 3} : std::vector<int64_t>{3, 4},
                              1),
                          Random(
                              DType::kF32,
                              transpose_b ? std::vector<int64_t>{6, 4} : std::vector<int64_t>{4, 6},
                              2),
                          Random(DType::kF32, c, 3)},
               .attributes = {{"transA", transpose_a},
                              {"transB", transpose_b},
                              {"alpha", 0.5f},
                              {"beta", 2.0f}},
               .constants = constants});
        }
      }
    }
  }
  for (const DType dtype : {DType::kF16, DType::kF64, DType::kI32, DType::kI64}) {
    ExpectLoweringMatchesReference(
        {.op_type = "Gemm",
         .inputs = {Random(dtype, {3, 4}, 1), Random(dtype, {4, 5}, 2), Random(dtype, {5}, 3)}});
    ExpectLoweringMatchesReference(
        {.op_type = "Gemm", .inputs = {Random(dtype, {3, 4}, 1), Random(dtype, {4, 1}, 2)}});
  }
}

TEST(MatMulInteger, AgreesWithReferenceWithAllZeroPoints) {
  for (const DType a : {DType::kI8, DType::kU8}) {
    for (const DType b : {DType::kI8, DType::kU8}) {
      for (const std::vector<size_t>& constants : {std::vector<size_t>{}, {1}, {1, 3}}) {
        const Tensor x = Random(a, {2, 3, 5}, 1, 127), y = Random(b, {5, 6}, 2, 127);
        ExpectLoweringMatchesReference(
            {.op_type = "MatMulInteger", .inputs = {x, y}, .constants = constants});
        ExpectLoweringMatchesReference({.op_type = "MatMulInteger",
                                        .inputs = {x, y, Values(a, {}, {3}), Values(b, {1}, {7})},
                                        .constants = constants});
        ExpectLoweringMatchesReference(
            {.op_type = "MatMulInteger",
             .inputs = {x, y, Random(a, {3}, 3, 100), Random(b, {6}, 4, 100)},
             .constants = constants});
      }
    }
  }
}

TEST(QLinearMatMul, AgreesWithReference) {
  for (const std::vector<int64_t>& b : {std::vector<int64_t>{5, 6}, {5, 1}, {5}}) {
    const int64_t columns = b.size() > 1 ? b[1] : 1;
    for (const std::vector<size_t>& constants : {std::vector<size_t>{}, {3, 4, 5}}) {
      ExpectLoweringMatchesReference(
          {.op_type = "QLinearMatMul",
           .inputs = {Random(DType::kU8, {2, 3, 5}, 1, 255), Values(DType::kF32, {}, {0.5}),
                      Values(DType::kU8, {}, {100}), Random(DType::kI8, b, 2, 127),
                      Values(DType::kF32, {columns}, std::vector<double>(columns, 0.25)),
                      Random(DType::kI8, {columns}, 3, 9), Values(DType::kF32, {1}, {16}),
                      Values(DType::kI8, {1}, {-3})},
           .constants = constants});
    }
  }
}

TEST(Einsum, AgreesWithReference) {
  struct Case {
    const char* equation;
    std::vector<std::vector<int64_t>> shapes;
  };
  for (const Case& c : std::vector<Case>{{"ij,jk->ik", {{3, 4}, {4, 5}}},
                                         {"ij,jk", {{3, 4}, {4, 5}}},
                                         {"ij,kj->ki", {{3, 4}, {5, 4}}},
                                         {"bhqd,bhkd->bhqk", {{2, 3, 4, 5}, {2, 3, 6, 5}}},
                                         {"bqhd,bkhd->bhqk", {{2, 4, 3, 5}, {2, 6, 3, 5}}},
                                         {"abc,cde->abde", {{2, 3, 4}, {4, 5, 6}}},
                                         {"abc,dec->bdae", {{2, 3, 4}, {5, 6, 4}}},
                                         {"ii->i", {{4, 4}}},
                                         {"ii", {{4, 4}}},
                                         {"ij->", {{3, 4}}},
                                         {"ij->ji", {{3, 4}}},
                                         {"i,j->ij", {{3}, {4}}},
                                         {"i,i", {{5}, {5}}},
                                         {"...ij,...jk->...ik", {{2, 3, 4}, {2, 4, 5}}},
                                         {"...ij,jk->...ik", {{7, 2, 3, 4}, {4, 5}}},
                                         {"...i->...", {{2, 3, 4}}},
                                         {"b...i,i->b...", {{2, 3, 4}, {4}}},
                                         {"ij,ik,il->jkl", {{3, 2}, {3, 4}, {3, 5}}},
                                         {"ij, jk, kl -> il", {{2, 3}, {3, 4}, {4, 6}}},
                                         {"ijk,ij->ij", {{2, 3, 4}, {2, 3}}},
                                         {"iij,jk->ik", {{3, 3, 4}, {4, 5}}},
                                         {"ij,kl->il", {{2, 3}, {4, 5}}}}) {
    OpCase test{.op_type = "Einsum", .attributes = {{"equation", std::string(c.equation)}}};
    for (size_t i = 0; i < c.shapes.size(); ++i) {
      test.inputs.push_back(Random(DType::kF32, c.shapes[i], i + 1));
    }
    test.tolerance = {.relative = 1e-4, .absolute = 1e-4};
    ExpectLoweringMatchesReference(test);
    if (c.shapes.size() != 2) continue;
    test.constants = {1};
    ExpectLoweringMatchesReference(test);
  }
  ExpectReference({.op_type = "Einsum",
                   .inputs = {Values(DType::kF32, {2, 2}, {1, 2, 3, 4})},
                   .attributes = {{"equation", std::string("ii")}}},
                  Values(DType::kF32, {}, {5}));
}

TEST(Einsum, RefusesBadEquations) {
  for (const char* equation : {"ij,jk->ik", "i->j", "i", "i2->i", "ij->ii", "ij->i->j", ""}) {
    EXPECT_FALSE(BuildCase({.op_type = "Einsum",
                            .inputs = {Random(DType::kF32, {2, 3}, 1)},
                            .attributes = {{"equation", std::string(equation)}}},
                           CaseDims::kFixed)
                     .ok())
        << equation;
  }
}

TEST(Packing, WritesPanelsAndFillsTheLastWithZeros) {
  // b is [k 2, n 3]; panels of 2 columns.
  const Tensor source = Values(DType::kF16, {2, 3}, {1, 2, 3, 4, 5, 6});
  const auto packed =
      PackPanels(source, {.k = {{2, 3}}, .n = {{3, 1}}, .panel = 2, .dtype = DType::kF32});
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(Difference(*packed, Values(DType::kF32, {2, 2, 2}, {1, 2, 4, 5, 3, 0, 6, 0}), {}), "");
}

TEST(Packing, ReadsTransposedAndRepeatedSources) {
  // b is [n 3, k 2], seen by two batches.
  const Tensor source = Values(DType::kI8, {3, 2}, {1, 4, 2, 5, 3, 6});
  const auto packed = PackPanels(
      source, {.batch = {{2, 0}}, .k = {{2, 1}}, .n = {{3, 2}}, .panel = 4, .dtype = DType::kI32});
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(
      Difference(
          *packed,
          Values(DType::kI32, {2, 1, 2, 4}, {1, 2, 3, 0, 4, 5, 6, 0, 1, 2, 3, 0, 4, 5, 6, 0}), {}),
      "");
}

TEST(Packing, PairsOfTwoRowsShareAWord) {
  // b is [k 3, n 3]; panels of 2 columns. 1.00390625 is halfway between two numbers of bf16.
  const Tensor source = Values(DType::kF32, {3, 3}, {1.00390625, 2, 3, 4, 5, 6, 7, 8, -0.5});
  const auto packed =
      PackPairs(source, {.k = {{3, 3}}, .n = {{3, 1}}, .panel = 2, .dtype = DType::kBF16});
  ASSERT_TRUE(packed.ok());
  const auto pair = [](float first, float second) {
    return double(FloatToBFloat16(first)) + 65536.0 * FloatToBFloat16(second);
  };
  EXPECT_EQ(Difference(*packed,
                       Values(DType::kU32, {2, 2, 2},
                              {pair(1, 4), pair(2, 5), pair(7, 0), pair(8, 0), pair(3, 6), 0,
                               pair(-0.5f, 0), 0}),
                       {}),
            "");
}

TEST(Packing, PairsOfWordsKeepTheirSigns) {
  const Tensor source = Values(DType::kI32, {3, 2}, {1, -2, -30000, 4, 32767, -32768});
  const auto packed =
      PackPairs(source, {.k = {{3, 2}}, .n = {{2, 1}}, .panel = 2, .dtype = DType::kI16});
  ASSERT_TRUE(packed.ok());
  const auto pair = [](int16_t first, int16_t second) {
    return double(static_cast<uint16_t>(first)) + 65536.0 * static_cast<uint16_t>(second);
  };
  EXPECT_EQ(Difference(*packed,
                       Values(DType::kU32, {1, 2, 2},
                              {pair(1, -30000), pair(-2, 4), pair(32767, 0), pair(-32768, 0)}),
                       {}),
            "");
}

TEST(Packing, BytesOfFourRowsLieSideBySide) {
  // b is [k 5, n 3], less zero points: a column that reaches beyond i8 is moved into it.
  std::vector<double> values;
  for (int row = 0; row < 5; ++row) {
    for (const int column : {1, 200, -250}) values.push_back(column + row);
  }
  const Tensor source = Values(DType::kI32, {5, 3}, values);
  const auto packed =
      PackBytes(source, {.k = {{5, 3}}, .n = {{3, 1}}, .panel = 2, .dtype = DType::kI8});
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(
      Difference(packed->panels,
                 Values(DType::kI8, {2, 2, 2, 4}, {1,    2,    3,    4,    123, 124, 125, 126,  //
                                                   5,    0,    0,    0,    127, 0,   0,   0,    //
                                                   -128, -127, -126, -125, 0,   0,   0,   0,    //
                                                   -124, 0,    0,    0,    0,   0,   0,   0}),
                 {}),
      "");
  ASSERT_TRUE(packed->shifts.has_value());
  EXPECT_EQ(Difference(*packed->shifts, Values(DType::kI32, {3}, {0, 77, -122}), {}), "");
  EXPECT_EQ(Difference(packed->sums, Values(DType::kI32, {3}, {15, 625, -630}), {}), "");
  const Tensor wide = Values(DType::kI32, {2, 1}, {-200, 100});
  EXPECT_EQ(PackBytes(wide, {.k = {{2, 1}}, .n = {{1, 1}}, .panel = 4, .dtype = DType::kI8})
                .status()
                .code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace stampmill
