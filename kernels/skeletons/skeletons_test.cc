// Skeletons that no operator's test reaches: lists whose length the data decides.
#include "kernels/skeletons/skeletons.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "graph/dtype.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

Tensor Numbers(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
  Tensor tensor = *Tensor::Allocate(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    tensor.SetFromDouble(static_cast<int64_t>(i), values[i]);
  }
  return tensor;
}

Tensor Ints(std::vector<int64_t> shape, const std::vector<int64_t>& values) {
  return Tensor::FromInt64(std::move(shape), values);
}

std::vector<int64_t> ValuesOf(const Tensor& tensor) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < tensor.element_count(); ++i) values.push_back(tensor.ValueAsInt64(i));
  return values;
}

Operand OperandOf(const Tensor& tensor) {
  return {.dtype = tensor.dtype(), .shape = Shape(tensor.shape().begin(), tensor.shape().end())};
}

// Runs a skeleton whose outputs are all i64 and of these numbers of elements.
std::vector<std::vector<int64_t>> RunOn(Library library, const std::vector<Tensor>& operands,
                                        const std::vector<int64_t>& outputs) {
  std::vector<Tensor> results;
  for (const Tensor& operand : operands) library.operands.push_back(OperandOf(operand));
  for (const int64_t count : outputs) {
    results.push_back(*Tensor::Allocate(DType::kI64, {count}));
    library.outputs.push_back(OperandOf(results.back()));
  }
  const absl::Status status = RunSkeleton(library, operands, results, {});
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::vector<int64_t>> values;
  for (const Tensor& result : results) values.push_back(ValuesOf(result));
  return values;
}

using Lists = std::vector<std::vector<int64_t>>;

TEST(SkeletonsTest, NonzeroListsPlaces) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI8, DType::kU64}) {
    EXPECT_EQ(
        RunOn({.skeleton = "nonzero", .configuration = {static_cast<int64_t>(dtype)}, .dims = {5}},
              {Numbers(dtype, {5}, {0, 3, 0, 0, 1})}, {5, 1}),
        (Lists{{1, 4, 0, 0, 0}, {2}}));
  }
  EXPECT_EQ(RunOn({.skeleton = "nonzero", .configuration = {12}, .dims = {3}},
                  {Numbers(DType::kF32, {3}, {-0.0, NAN, 0})}, {3, 1}),
            (Lists{{1, 0, 0}, {1}}));
}

TEST(SkeletonsTest, UniqueGroupsEqualElements) {
  const Tensor x = Numbers(DType::kF32, {6}, {2, 1, 1, 3, 4, 3});
  Library library{.skeleton = "unique", .configuration = {12, 1}, .dims = {1, 6, 1}};
  library.scratch_bytes = 96;
  // Firsts, inverse, counts and the number of groups.
  EXPECT_EQ(RunOn(library, {x}, {6, 6, 6, 1}),
            (Lists{{1, 0, 3, 4, 0, 0}, {1, 0, 0, 2, 3, 2}, {2, 1, 2, 1, 0, 0}, {4}}));
  library.configuration[1] = 0;
  EXPECT_EQ(RunOn(library, {x}, {6, 6, 6, 1}),
            (Lists{{0, 1, 3, 4, 0, 0}, {0, 1, 1, 2, 3, 2}, {1, 2, 2, 1, 0, 0}, {4}}));
}

TEST(SkeletonsTest, UniqueGroupsEqualSlices) {
  // Columns (1, 0), (0, 0), (1, 0).
  Library library{.skeleton = "unique", .configuration = {12, 1}, .dims = {2, 3, 1}};
  library.scratch_bytes = 48;
  EXPECT_EQ(RunOn(library, {Numbers(DType::kF32, {2, 3}, {1, 0, 1, 0, 0, 0})}, {3, 3, 3, 1}),
            (Lists{{1, 0, 0}, {1, 0, 1}, {1, 2, 0}, {2}}));
}

TEST(SkeletonsTest, SuppressKeepsTheBestOfBoxesThatOverlap) {
  const Tensor boxes = Numbers(DType::kF32, {1, 4, 4},
                               {0, 0, 1, 1, 0, 0.1, 1, 1.1, 1, 1, 0, 0,  //
                                0, 10, 1, 11});
  const Tensor scores = Numbers(DType::kF32, {1, 2, 4}, {0.9, 0.75, 0.6, 0.95, 0.1, 0.3, 0.2, 0.3});
  Library library{.skeleton = "suppress", .configuration = {0, 1}, .dims = {4, 2, 4}, .tasks = 2};
  library.scratch_bytes = 4 * 32;
  const auto run = [&](int64_t most, double overlap, double least) {
    return RunOn(library,
                 {boxes, scores, Ints({1}, {most}), Numbers(DType::kF32, {1}, {overlap}),
                  Numbers(DType::kF32, {1}, {least})},
                 {8, 2});
  };
  EXPECT_EQ(run(4, 0.5, 0), (Lists{{3, 0, 0, 0, 1, 3, 0, 0}, {2, 2}}));
  EXPECT_EQ(run(1, 0.5, 0), (Lists{{3, 0, 0, 0, 1, 0, 0, 0}, {1, 1}}));
  EXPECT_EQ(run(4, 1, 0.25), (Lists{{3, 0, 1, 2, 1, 3, 0, 0}, {4, 2}}));
  EXPECT_EQ(run(0, 0.5, 0), (Lists{{0, 0, 0, 0, 0, 0, 0, 0}, {0, 0}}));
  // Without a least score; no more than there are places for.
  library.configuration[1] = 0;
  library.dims[2] = 1;
  EXPECT_EQ(run(4, 0.5, 5), (Lists{{3, 1, 0, 0, 0, 0, 0, 0}, {1, 1}}));
}

TEST(SkeletonsTest, JoinListsNamesBatchListAndElement) {
  EXPECT_EQ(RunOn({.skeleton = "join_lists", .dims = {2, 2, 4}},
                  {Ints({4, 2}, {7, 0, 0, 0, 5, 6, 9, 0}), Ints({4}, {1, 0, 2, 1})}, {24, 1}),
            (Lists{{0, 0, 7, 1, 0, 5, 1, 0, 6, 1, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {4}}));
}

TEST(SkeletonsTest, WhatThereIsNotIsAnError) {
  std::vector<Tensor> none;
  EXPECT_FALSE(RunSkeleton({.skeleton = "bake"}, {}, none, {}).ok());
}

}  // namespace
}  // namespace stampmill
