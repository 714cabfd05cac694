// Fourier transforms, windows, n-grams, recurrences over matrices, determinants.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

TEST(Dft, AgreesWithReferenceForLengthsOfAllKinds) {
  for (const int64_t length : {1, 2, 7, 8, 12, 30, 49, 64}) {
    for (const int64_t inverse : {0, 1}) {
      ExpectLoweringMatchesReference({.op_type = "DFT",
                                      .inputs = {Random(DType::kF32, {2, length, 2}, 1)},
                                      .attributes = {{"inverse", inverse}},
                                      .shared_symbols = false,
                                      .tolerance = {.relative = 1e-3, .absolute = 1e-4}});
    }
    ExpectLoweringMatchesReference(
        {.op_type = "DFT",
         .inputs = {Random(DType::kF64, {length, 3, 1}, 1), Tensor(), Values(DType::kI64, {}, {0})},
         .attributes = {{"onesided", int64_t{1}}},
         .constants = {2},
         .tolerance = {.relative = 1e-6, .absolute = 1e-6}});
  }
}

TEST(Dft, CutsAndFillsToTheLengthAskedFor) {
  for (const int64_t length : {3, 8, 13}) {
    ExpectLoweringMatchesReference(
        {.op_type = "DFT",
         .inputs = {Random(DType::kF32, {2, 9, 1}, 1), Values(DType::kI64, {}, {double(length)})},
         .constants = {1},
         .tolerance = {.relative = 1e-3, .absolute = 1e-4}});
  }
}

TEST(Dft, ARealSignalComesBackFromHalfItsSpectrum) {
  for (const int64_t length : {8, 9}) {
    ExpectLoweringMatchesReference(
        {.op_type = "DFT",
         .inputs = {Random(DType::kF32, {3, length / 2 + 1, 2}, 1),
                    Values(DType::kI64, {}, {double(length)})},
         .attributes = {{"onesided", int64_t{1}}, {"inverse", int64_t{1}}},
         .constants = {1},
         .shared_symbols = false,
         .tolerance = {.relative = 1e-3, .absolute = 1e-4}});
  }
}

TEST(Stft, AgreesWithReference) {
  for (const int64_t onesided : {0, 1}) {
    ExpectLoweringMatchesReference(
        {.op_type = "STFT",
         .inputs = {Random(DType::kF32, {2, 40, 1}, 1), Values(DType::kI64, {}, {5}),
                    Random(DType::kF32, {12}, 2)},
         .attributes = {{"onesided", onesided}},
         .constants = {1},
         .tolerance = {.relative = 1e-3, .absolute = 1e-4}});
  }
}

TEST(Windows, AgreeWithReference) {
  for (const std::string op : {"HannWindow", "HammingWindow", "BlackmanWindow"}) {
    for (const int64_t periodic : {0, 1}) {
      for (const int64_t type : {1, 10, 11}) {
        ExpectLoweringMatchesReference(
            {.op_type = op,
             .inputs = {Values(DType::kI64, {}, {17})},
             .attributes = {{"periodic", periodic}, {"output_datatype", type}},
             .constants = {0},
             .tolerance = {.relative = 2e-3, .absolute = 1e-4}});
      }
    }
  }
}

TEST(TfIdf, CountsGramsAtAllDistances) {
  for (const std::string mode : {"TF", "IDF", "TFIDF"}) {
    ExpectLoweringMatchesReference(
        {.op_type = "TfIdfVectorizer",
         .inputs = {Values(DType::kI64, {3, 6},
                           {1, 2, 3, 1, 2, 3, 3, 3, 1, 1, 2, 2, 2, 1, 3, 2, 1, 1})},
         .attributes = {{"mode", mode},
                        {"min_gram_length", int64_t{1}},
                        {"max_gram_length", int64_t{3}},
                        {"max_skip_count", int64_t{2}},
                        {"ngram_counts", std::vector<int64_t>{0, 3, 7}},
                        {"ngram_indexes", std::vector<int64_t>{2, 0, 1, 5, 4, 4}},
                        {"pool_int64s", std::vector<int64_t>{1, 2, 3, 1, 2, 3, 1, 1, 2, 3}},
                        {"weights", std::vector<float>{0.5f, 2, 3, 4, 5, 6}}}});
  }
}

TEST(LinearAttention, AgreesWithReferenceForAllRules) {
  for (const std::string rule : {"linear", "gated", "delta", "gated_delta"}) {
    for (const int64_t width : {2, 6}) {
      const bool gated = rule.starts_with("gated"), delta = rule.ends_with("delta");
      ExpectLoweringMatchesReference(
          {.op_type = "LinearAttention",
           .inputs = {Random(DType::kF32, {2, 5, 12}, 1, 1), Random(DType::kF32, {2, 5, 6}, 2, 0.5),
                      Random(DType::kF32, {2, 5, 8}, 3, 1), Random(DType::kF32, {2, 2, 3, 4}, 4, 1),
                      gated ? Random(DType::kF32, {2, 5, width}, 5, 1) : Tensor(),
                      delta ? Random(DType::kF32, {2, 5, width == 2 ? 2 : 1}, 6, 1) : Tensor()},
           .attributes = {{"update_rule", rule},
                          {"q_num_heads", int64_t{4}},
                          {"kv_num_heads", int64_t{2}}},
           .output_count = 2,
           .shared_symbols = false,
           .tolerance = {.relative = 1e-3, .absolute = 1e-4}});
    }
  }
}

TEST(Det, AgreesWithReference) {
  ExpectReference({.op_type = "Det", .inputs = {Values(DType::kF32, {2, 2}, {0, 2, 3, 4})}},
                  Values(DType::kF32, {}, {-6}));
  for (const int64_t rows : {0, 1, 2, 7}) {
    ExpectLoweringMatchesReference({.op_type = "Det",
                                    .inputs = {Random(DType::kF32, {3, rows, rows}, 1)},
                                    .tolerance = {.relative = 1e-3, .absolute = 1e-4}});
  }
  ExpectLoweringMatchesReference(
      {.op_type = "Det", .inputs = {Values(DType::kF64, {2, 2}, {1, 2, 2, 4})}});
}

}  // namespace
}  // namespace stampmill
