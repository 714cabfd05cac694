// Reductions, ArgMax and kin, scans and TopK: lowering against reference, and values by hand.
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr const char* kReductions[] = {
    "ReduceSum", "ReduceMean", "ReduceProd",      "ReduceMax",       "ReduceMin",
    "ReduceL1",  "ReduceL2",   "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"};

TEST(Reduce, AgreesWithReferenceOverAnyAxes) {
  for (const char* op : kReductions) {
    for (const std::vector<int64_t>& axes :
         {std::vector<int64_t>{1}, {0, 2}, {-1}, {0, 1, 2}, {2, 1}}) {
      for (const int64_t keepdims : {0, 1}) {
        // LogSum of negative sums is NaN on both sides; positive inputs say more.
        Tensor data = Random(DType::kF32, {3, 4, 5}, 1);
        for (float& x : data.mutable_values<float>()) x = std::fabs(x) + 0.1f;
        ExpectLoweringMatchesReference({.op_type = op,
                                        .inputs = {data, Ints(axes)},
                                        .attributes = {{"keepdims", keepdims}},
                                        .constants = {1},
                                        .own_symbols = true});
      }
    }
  }
}

TEST(Reduce, AgreesWithReferenceInEveryType) {
  for (const char* op : kReductions) {
    for (const DType dtype : kAllTypes) {
      const bool order = std::string(op) == "ReduceMax" || std::string(op) == "ReduceMin";
      if (dtype == DType::kBool && !order) continue;
      ExpectLoweringMatchesReference({.op_type = op,
                                      .inputs = {Random(dtype, {4, 6}, 2), Ints({1})},
                                      .constants = {1},
                                      .shared_symbols = false});
    }
  }
}

TEST(Reduce, WithoutAxesReducesAllOrNothing) {
  const Tensor data = Random(DType::kF32, {2, 3}, 3);
  for (const char* op : kReductions) {
    ExpectLoweringMatchesReference({.op_type = op, .inputs = {data}});
    ExpectLoweringMatchesReference(
        {.op_type = op, .inputs = {data}, .attributes = {{"noop_with_empty_axes", int64_t{1}}}});
  }
  ExpectReference({.op_type = "ReduceSumSquare",
                   .inputs = {Values(DType::kF32, {2}, {2, -3})},
                   .attributes = {{"noop_with_empty_axes", int64_t{1}}}},
                  Values(DType::kF32, {2}, {4, 9}));
}

TEST(Reduce, OfNothingIsTheIdentity) {
  const Tensor empty = Random(DType::kF32, {2, 0, 3}, 1);
  const std::pair<const char*, double> cases[] = {
      {"ReduceSum", 0},    {"ReduceProd", 1},       {"ReduceMax", -kInf},
      {"ReduceMin", kInf}, {"ReduceLogSum", -kInf}, {"ReduceLogSumExp", -kInf},
      {"ReduceL2", 0}};
  for (const auto& [op, value] : cases) {
    const OpCase test{.op_type = op, .inputs = {empty, Ints({1})}, .constants = {1}};
    ExpectLoweringMatchesReference(test);
    ExpectReference(test, Values(DType::kF32, {2, 1, 3}, std::vector<double>(6, value)));
  }
  ExpectReference({.op_type = "ReduceMax",
                   .inputs = {Random(DType::kI8, {0}, 1), Ints({0})},
                   .attributes = {{"keepdims", int64_t{0}}}},
                  Values(DType::kI8, {}, {-128}));
}

TEST(Reduce, LogSumExpStandsLargeAndInfiniteInputs) {
  const OpCase test{
      .op_type = "ReduceLogSumExp",
      .inputs = {Values(DType::kF32, {3, 2}, {1000, 1000, -kInf, -kInf, kInf, 1}), Ints({1})},
      .attributes = {{"keepdims", int64_t{0}}},
      .constants = {1}};
  ExpectLoweringMatchesReference(test);
  ExpectReference(test, Values(DType::kF32, {3}, {1000 + std::log(2.0), -kInf, kInf}));
}

TEST(Reduce, RefusesAnAxisThatIsNotThere) {
  EXPECT_FALSE(BuildCase({.op_type = "ReduceSum",
                          .inputs = {Random(DType::kF32, {2}, 1), Ints({1})},
                          .constants = {1}},
                         CaseDims::kFixed)
                   .ok());
  EXPECT_FALSE(BuildCase({.op_type = "ReduceSum",
                          .inputs = {Random(DType::kF32, {2, 2}, 1), Ints({1, -1})},
                          .constants = {1}},
                         CaseDims::kFixed)
                   .ok());
}

TEST(Arg, AgreesWithReference) {
  for (const char* op : {"ArgMax", "ArgMin"}) {
    for (const int64_t axis : {0, 1, -1}) {
      for (const int64_t last : {0, 1}) {
        for (const int64_t keepdims : {0, 1}) {
          for (const DType dtype : {DType::kF32, DType::kF16, DType::kI8, DType::kU64}) {
            // Few distinct values: many ties.
            ExpectLoweringMatchesReference(
                {.op_type = op,
                 .inputs = {Random(dtype, {3, 5, 4}, 4, 2)},
                 .attributes = {
                     {"axis", axis}, {"keepdims", keepdims}, {"select_last_index", last}}});
          }
        }
      }
    }
  }
}

TEST(Arg, TakesTheFirstOfEqualsAndNanBeforeAll) {
  const Tensor data = Values(DType::kF32, {4, 4},
                             {1, 3, 3, 2, kNan, 5, kNan, 1,  //
                              -kInf, -kInf, -kInf, -kInf, 2, 2, 1, kInf});
  const auto test = [&](const char* op, int64_t last) {
    return OpCase{.op_type = op,
                  .inputs = {data},
                  .attributes = {
                      {"axis", int64_t{1}}, {"keepdims", int64_t{0}}, {"select_last_index", last}}};
  };
  ExpectReference(test("ArgMax", 0), Ints({1, 0, 0, 3}));
  ExpectReference(test("ArgMax", 1), Ints({2, 2, 3, 3}));
  ExpectReference(test("ArgMin", 0), Ints({0, 0, 0, 2}));
  for (const int64_t last : {0, 1}) {
    ExpectLoweringMatchesReference(test("ArgMax", last));
    ExpectLoweringMatchesReference(test("ArgMin", last));
  }
}

TEST(Hardmax, MarksTheFirstMaximum) {
  for (const int64_t axis : {0, 1, -1}) {
    ExpectLoweringMatchesReference({.op_type = "Hardmax",
                                    .inputs = {Random(DType::kF32, {3, 4, 2}, 5)},
                                    .attributes = {{"axis", axis}}});
  }
  ExpectReference({.op_type = "Hardmax", .inputs = {Values(DType::kF32, {1, 4}, {1, 3, 3, 2})}},
                  Values(DType::kF32, {1, 4}, {0, 1, 0, 0}));
}

TEST(Scan, AgreesWithReferenceShortAndLong) {
  for (const char* op : {"CumSum", "CumProd"}) {
    for (const int64_t exclusive : {0, 1}) {
      for (const int64_t reverse : {0, 1}) {
        const absl::flat_hash_map<std::string, Attribute> attributes = {{"exclusive", exclusive},
                                                                        {"reverse", reverse}};
        for (const int64_t length : {1, 5, 31, 32, 200}) {
          ExpectLoweringMatchesReference(
              {.op_type = op,
               .inputs = {Random(DType::kF32, {2, length, 3}, 6, 1.1), Ints({1})},
               .attributes = attributes,
               .constants = {1},
               .tolerance = {.relative = 1e-4, .absolute = 1e-4}});
        }
        ExpectLoweringMatchesReference({.op_type = op,
                                        .inputs = {Random(DType::kI32, {150}, 7), Ints({-1})},
                                        .attributes = attributes,
                                        .constants = {1}});
      }
    }
  }
  ExpectReference({.op_type = "CumSum",
                   .inputs = {Values(DType::kF64, {4}, {1, 2, 3, 4}), Ints({0})},
                   .attributes = {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}},
                  Values(DType::kF64, {4}, {9, 7, 4, 0}));
}

TEST(TopK, AgreesWithReference) {
  for (const int64_t largest : {0, 1}) {
    for (const int64_t axis : {0, 1, 2}) {
      for (const DType dtype : {DType::kF32, DType::kI64, DType::kU8, DType::kF16}) {
        ExpectLoweringMatchesReference({.op_type = "TopK",
                                        .inputs = {Random(dtype, {4, 6, 5}, 8, 2), Ints({3})},
                                        .attributes = {{"axis", axis}, {"largest", largest}},
                                        .output_count = 2,
                                        .constants = {1}});
      }
    }
  }
}

TEST(TopK, OrdersNanAboveAllAndEqualsByIndex) {
  const OpCase test{.op_type = "TopK",
                    .inputs = {Values(DType::kF32, {6}, {2, kNan, 2, kInf, kNan, -1}), Ints({5})},
                    .output_count = 2,
                    .constants = {1}};
  ExpectReference(test, Values(DType::kF32, {5}, {kNan, kNan, kInf, 2, 2}));
  const auto got = RunReference(test);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(Difference((*got)[1], Ints({1, 4, 3, 0, 2}), {}), "");
  ExpectLoweringMatchesReference(test);
}

TEST(TopK, RefusesMoreThanThereIs) {
  EXPECT_FALSE(BuildCase({.op_type = "TopK",
                          .inputs = {Random(DType::kF32, {3}, 1), Ints({4})},
                          .output_count = 2,
                          .constants = {1}},
                         CaseDims::kFixed)
                   .ok());
}

}  // namespace
}  // namespace stampmill
