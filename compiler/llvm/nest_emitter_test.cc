// Nests through the whole code generator, against the reference interpreter, on every class of CPU
// code that this machine runs.
#include "compiler/llvm/nest_emitter.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/kernel_harness.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

Expr C(int32_t axis) { return Expr::Coord(axis); }
Expr F32(double value) { return Expr::Constant(DType::kF32, value); }
DimExpr S(const char* name) { return DimExpr::Symbol(name); }

Expr Load(const Nest& nest, int32_t operand, std::vector<Expr> coordinates) {
  return Expr::Load(nest.operands[static_cast<size_t>(operand)].dtype, operand,
                    std::move(coordinates));
}

void ExpectRight(const StageBody& body, const std::map<std::string, int64_t>& symbols,
                 std::vector<Tensor> operands = {}, Tolerance tolerance = {}) {
  absl::Status status = CheckStage(body, symbols, std::move(operands), 17, tolerance);
  EXPECT_TRUE(status.ok()) << status.message();
}

Nest AddNest(DimExpr size) {
  Nest nest;
  nest.kept = {size};
  nest.operands = {{DType::kF32, {size}}, {DType::kF32, {size}}};
  nest.result = Load(nest, 0, {C(0)}) + Load(nest, 1, {C(0)});
  nest.output = {DType::kF32, nest.kept};
  return nest;
}

TEST(NestEmitterTest, AddsTensorsOfAnyDynamicSize) {
  for (int64_t size : {0, 1, 3, 4, 15, 16, 17, 31, 33, 1000, 200000}) {
    ExpectRight(AddNest(S("N")), {{"N", size}});
  }
}

TEST(NestEmitterTest, AddsTensorsOfAnyConstantSize) {
  for (int64_t size : {0, 1, 2, 3, 7, 16, 31, 64, 100}) ExpectRight(AddNest(size), {});
}

TEST(NestEmitterTest, BroadcastsAndMixesTypes) {
  Nest nest;
  nest.kept = {S("N"), 3, S("M")};
  nest.operands = {{DType::kF32, {S("N"), 3, S("M")}},
                   {DType::kU8, {3, 1}},
                   {DType::kF16, {S("M")}},
                   {DType::kBool, {S("N"), 1, S("M")}}};
  Expr zero = Expr::ConstantInt(DType::kI64, 0);
  Expr sum =
      Load(nest, 0, {C(0), C(1), C(2)}) * Expr::Cast(DType::kF32, Load(nest, 1, {C(1), zero})) +
      Expr::Cast(DType::kF32, Load(nest, 2, {C(2)}));
  nest.result = Expr::Select(Load(nest, 3, {C(0), zero, C(2)}), sum, F32(-1));
  nest.output = {DType::kF32, nest.kept};
  ExpectRight(nest, {{"N", 2}, {"M", 77}});
  ExpectRight(nest, {{"N", 5}, {"M", 3}});
}

TEST(NestEmitterTest, Transposes) {
  for (DType dtype : {DType::kF32, DType::kU8, DType::kI64, DType::kBF16, DType::kBool}) {
    Nest nest;
    nest.kept = {S("B"), S("W"), S("H")};
    nest.operands = {{dtype, {S("B"), S("H"), S("W")}}};
    nest.result = Load(nest, 0, {C(0), C(2), C(1)});
    nest.output = {dtype, nest.kept};
    ExpectRight(nest, {{"B", 2}, {"H", 37}, {"W", 53}});
    ExpectRight(nest, {{"B", 1}, {"H", 3}, {"W", 130}});
    ExpectRight(nest, {{"B", 1}, {"H", 300}, {"W", 2}});
    ExpectRight(nest, {{"B", 3}, {"H", 5}, {"W", 4}});
    ExpectRight(nest, {{"B", 1}, {"H", 1}, {"W", 1}});
    ExpectRight(nest, {{"B", 2}, {"H", 0}, {"W", 9}});
    ExpectRight(nest, {{"B", 2}, {"H", 70}, {"W", 0}});
    // Several tasks along either axis, the last one larger than the others.
    ExpectRight(nest, {{"B", 1}, {"H", 131}, {"W", 4099}});
    ExpectRight(nest, {{"B", 1}, {"H", 9001}, {"W", 66}});
  }
}

TEST(NestEmitterTest, TransposesConstantSizes) {
  for (int64_t height : {1, 3, 4, 15, 16, 17, 64, 130}) {
    for (int64_t width : {1, 5, 16, 33, 64}) {
      Nest nest;
      nest.kept = {width, height};
      nest.operands = {{DType::kF32, {height, width}}};
      nest.result = Load(nest, 0, {C(1), C(0)});
      nest.output = {DType::kF32, nest.kept};
      ExpectRight(nest, {});
    }
  }
}

TEST(NestEmitterTest, PermutesEveryOrderOfFourAxes) {
  const Shape shape = {S("A"), 5, S("C"), 19};
  std::vector<size_t> order = {0, 1, 2, 3};
  do {
    Nest nest;
    std::vector<Expr> at(4);
    for (size_t n = 0; n < 4; ++n) {
      nest.kept.push_back(shape[order[n]]);
      at[order[n]] = C(static_cast<int32_t>(n));
    }
    nest.operands = {{DType::kF32, shape}};
    nest.result = Load(nest, 0, at);
    nest.output = {DType::kF32, nest.kept};
    ExpectRight(nest, {{"A", 6}, {"C", 23}});
  } while (std::next_permutation(order.begin(), order.end()));
}

// Of one stage some loads are transposed, others are not.
TEST(NestEmitterTest, ComputesWithTransposedOperands) {
  Nest nest;
  nest.kept = {S("H"), S("W")};
  nest.operands = {{DType::kF32, {S("W"), S("H")}},
                   {DType::kF16, {S("W"), S("H")}},
                   {DType::kF32, {S("H"), S("W")}},
                   {DType::kBool, {S("W"), S("H")}},
                   {DType::kF32, {S("W")}}};
  Expr sum = Load(nest, 0, {C(1), C(0)}) * Expr::Cast(DType::kF32, Load(nest, 1, {C(1), C(0)})) +
             Load(nest, 2, {C(0), C(1)});
  nest.result = Expr::Select(Load(nest, 3, {C(1), C(0)}), sum, Load(nest, 4, {C(1)})) +
                Expr::Cast(DType::kF32, C(0));
  nest.output = {DType::kF32, nest.kept};
  ExpectRight(nest, {{"H", 37}, {"W", 70}});
  ExpectRight(nest, {{"H", 2}, {"W", 70}});
  ExpectRight(nest, {{"H", 100}, {"W", 6}});
}

TEST(NestEmitterTest, TransposesIntoAPartOfTheOutput) {
  Nest nest;
  nest.kept = {S("H"), S("W")};
  nest.operands = {{DType::kF32, {S("W"), S("H")}}};
  nest.result = Load(nest, 0, {C(1), C(0)});
  nest.output = {DType::kF32, {S("H"), S("W") + 7}};
  nest.output_coordinates = {C(0), C(1) + Expr::ConstantInt(DType::kI64, 7)};
  ExpectRight(nest, {{"H", 37}, {"W", 53}});
}

TEST(NestEmitterTest, TransposesRowsThatAnIndexNames) {
  Tensor index = *Tensor::Allocate(DType::kI64, {41});
  for (int64_t n = 0; n < 41; ++n) index.SetFromInt64(n, (n * 7) % 11);
  Nest nest;
  nest.kept = {S("D"), S("I")};
  nest.operands = {{DType::kF32, {11, S("D")}}, {DType::kI64, {S("I")}}};
  nest.result = Load(nest, 0, {Load(nest, 1, {C(1)}), C(0)});
  nest.output = {DType::kF32, nest.kept};
  ExpectRight(nest, {{"I", 41}, {"D", 50}}, {Tensor(), index});
  ExpectRight(nest, {{"I", 41}, {"D", 3}}, {Tensor(), index});
}

TEST(NestEmitterTest, WritesAlongAnotherAxisThanTheInnermost) {
  Nest nest;
  nest.kept = {S("H"), S("W")};
  nest.operands = {{DType::kF32, {S("H"), S("W")}}};
  nest.result = Load(nest, 0, {C(0), C(1)}) * F32(2);
  nest.output = {DType::kF32, {S("W"), S("H")}};
  nest.output_coordinates = {C(1), C(0)};
  ExpectRight(nest, {{"H", 45}, {"W", 70}});
}

TEST(NestEmitterTest, ConcatenatesIntoAPartOfTheOutput) {
  Nest nest;
  nest.kept = {S("N"), 10};
  nest.operands = {{DType::kF32, {S("N"), 10}}};
  nest.result = Load(nest, 0, {C(0), C(1)});
  nest.output = {DType::kF32, {S("N"), 25}};
  nest.output_coordinates = {C(0), C(1) + Expr::ConstantInt(DType::kI64, 15)};
  ExpectRight(nest, {{"N", 9}});
}

TEST(NestEmitterTest, GathersRowsAndElements) {
  Tensor index = *Tensor::Allocate(DType::kI64, {21});
  for (int64_t n = 0; n < 21; ++n) index.SetFromInt64(n, (n * 7) % 11);
  Nest rows;
  rows.kept = {S("I"), S("D")};
  rows.operands = {{DType::kF32, {11, S("D")}}, {DType::kI64, {S("I")}}};
  rows.result = Load(rows, 0, {Load(rows, 1, {C(0)}), C(1)});
  rows.output = {DType::kF32, rows.kept};
  ExpectRight(rows, {{"I", 21}, {"D", 50}}, {Tensor(), index});
  for (DType dtype : {DType::kF32, DType::kI8, DType::kF64}) {
    Nest elements;
    elements.kept = {S("D"), S("I")};
    elements.operands = {{dtype, {S("D"), 11}}, {DType::kI64, {S("I")}}};
    elements.result = Load(elements, 0, {C(0), Load(elements, 1, {C(1)})});
    elements.output = {dtype, elements.kept};
    ExpectRight(elements, {{"I", 21}, {"D", 5}}, {Tensor(), index});
  }
}

TEST(NestEmitterTest, PadsInBothAxes) {
  auto within = [](const Expr& e, const DimExpr& limit) {
    return Expr::Binary(ExprOp::kBitAnd,
                        Expr::Binary(ExprOp::kGe, e, Expr::ConstantInt(DType::kI64, 0)),
                        Expr::Binary(ExprOp::kLt, e, Expr::Dim(limit)));
  };
  for (DType dtype : {DType::kF32, DType::kU8, DType::kF64}) {
    Nest nest;
    nest.kept = {S("H") + 4, S("W") + 6};
    nest.operands = {{dtype, {S("H"), S("W")}}};
    Expr y = C(0) - Expr::ConstantInt(DType::kI64, 1);
    Expr x = C(1) - Expr::ConstantInt(DType::kI64, 3);
    nest.result = Expr::GuardedLoad(
        dtype, 0, {y, x}, Expr::Binary(ExprOp::kBitAnd, within(y, S("H")), within(x, S("W"))),
        Expr::Constant(dtype, 9));
    nest.output = {dtype, nest.kept};
    ExpectRight(nest, {{"H", 5}, {"W", 61}});
    ExpectRight(nest, {{"H", 2}, {"W", 1}});
    ExpectRight(nest, {{"H", 3}, {"W", 0}});
  }
}

// Columns and channels become one axis, padded by whole columns.
TEST(NestEmitterTest, PadsPicturesOfFewChannels) {
  for (int64_t channels : {1, 3, 4}) {
    for (DType dtype : {DType::kF32, DType::kU8}) {
      Nest nest;
      nest.kept = {S("H"), S("W") + S("P") + 2, channels};
      nest.operands = {{dtype, {S("H"), S("W"), channels}}};
      const Expr x = C(1) - Expr::Dim(S("P"));
      const Expr within = Expr::Binary(
          ExprOp::kBitAnd, Expr::Binary(ExprOp::kLe, Expr::ConstantInt(DType::kI64, 0), x),
          Expr::Binary(ExprOp::kLt, x, Expr::Dim(S("W"))));
      nest.result = Expr::GuardedLoad(dtype, 0, {C(0), x, C(2)}, within, Expr::Constant(dtype, 9));
      nest.output = {dtype, nest.kept};
      for (int64_t width : {0, 1, 40}) {
        ExpectRight(nest, {{"H", 5}, {"W", width}, {"P", 3}});
        ExpectRight(nest, {{"H", 2}, {"W", width}, {"P", 0}});
      }
    }
  }
}

TEST(NestEmitterTest, PadsWhatItTransposes) {
  auto within = [](const Expr& e, const DimExpr& limit) {
    return Expr::Binary(ExprOp::kBitAnd,
                        Expr::Binary(ExprOp::kGe, e, Expr::ConstantInt(DType::kI64, 0)),
                        Expr::Binary(ExprOp::kLt, e, Expr::Dim(limit)));
  };
  for (DType dtype : {DType::kF32, DType::kU8}) {
    Nest nest;
    nest.kept = {S("W") + 6, S("H") + 4};
    nest.operands = {{dtype, {S("H"), S("W")}}};
    Expr y = C(1) - Expr::ConstantInt(DType::kI64, 1);
    Expr x = C(0) - Expr::ConstantInt(DType::kI64, 3);
    nest.result = Expr::GuardedLoad(
        dtype, 0, {y, x}, Expr::Binary(ExprOp::kBitAnd, within(y, S("H")), within(x, S("W"))),
        Expr::Constant(dtype, 9));
    nest.output = {dtype, nest.kept};
    ExpectRight(nest, {{"H", 40}, {"W", 61}});
    ExpectRight(nest, {{"H", 3}, {"W", 0}});
  }
}

// Every other element along what is then a column, padded at the end: how pairs are packed.
TEST(NestEmitterTest, TransposesEveryOtherElement) {
  for (DType dtype : {DType::kF32, DType::kU8, DType::kI64}) {
    Nest nest;
    nest.kept = {S("W"), S("H") + 5};
    nest.operands = {{dtype, {S("H"), S("W") * 2}}};
    Expr within = Expr::Binary(ExprOp::kLt, C(1), Expr::Dim(S("H")));
    Expr place = C(0) * Expr::ConstantInt(DType::kI64, 2);
    Expr next = place + Expr::ConstantInt(DType::kI64, 1);
    for (double otherwise : {0, 9}) {
      Expr other = Expr::Constant(dtype, otherwise);
      nest.result = Expr::GuardedLoad(dtype, 0, {C(1), place}, within, other) -
                    Expr::GuardedLoad(dtype, 0, {C(1), next}, within, other);
      nest.output = {dtype, nest.kept};
      ExpectRight(nest, {{"H", 40}, {"W", 61}});
      ExpectRight(nest, {{"H", 17}, {"W", 16}});
      ExpectRight(nest, {{"H", 3}, {"W", 1}});
    }
  }
}

TEST(NestEmitterTest, CopiesWithStridesForwardsAndBackwards) {
  for (DType dtype : {DType::kF32, DType::kU8, DType::kF16, DType::kI64, DType::kBool}) {
    for (int64_t stride : {-5, -4, -3, -2, -1, 2, 3, 4, 5}) {
      int64_t apart = std::abs(stride);
      Nest nest;
      nest.kept = {S("M"), S("N")};
      // The last element that is wanted is the operand's last, or first.
      nest.operands = {{dtype, {S("M"), (S("N") + -1) * apart + 1}}};
      Expr at = C(1) * Expr::ConstantInt(DType::kI64, stride);
      if (stride < 0) at = at + Expr::Dim((S("N") + -1) * apart);
      nest.result = Load(nest, 0, {C(0), at});
      nest.output = {dtype, nest.kept};
      for (int64_t size : {1, 3, 4, 16, 63, 64, 200}) ExpectRight(nest, {{"M", 3}, {"N", size}});
    }
  }
}

TEST(NestEmitterTest, UsesCoordinatesAsValuesAndStrides) {
  Nest nest;
  nest.kept = {S("N")};
  nest.operands = {{DType::kF32, {S("N") * 3}}};
  Expr three = Expr::ConstantInt(DType::kI64, 3);
  Expr half = Expr::Binary(ExprOp::kFloorDiv, C(0), Expr::ConstantInt(DType::kI64, 2));
  nest.result =
      Load(nest, 0, {C(0) * three}) + Load(nest, 0, {half}) + Expr::Cast(DType::kF32, C(0) * C(0));
  nest.output = {DType::kF32, nest.kept};
  ExpectRight(nest, {{"N", 100}});
}

Reduction Sum(Expr element) {
  DType dtype = element.dtype();
  Expr accumulator = Expr::Accumulator(dtype, 0);
  return {.init = {Expr::Constant(dtype, 0)},
          .update = {accumulator + element},
          .merge = {accumulator + Expr::Accumulator(dtype, 1)},
          .result = accumulator};
}

Reduction Maximum(Expr element) {
  DType dtype = element.dtype();
  Expr accumulator = Expr::Accumulator(dtype, 0);
  return {.init = {Expr::Constant(dtype, -1e30)},
          .update = {Expr::Binary(ExprOp::kMax, accumulator, element)},
          .merge = {Expr::Binary(ExprOp::kMax, accumulator, Expr::Accumulator(dtype, 1))},
          .result = accumulator};
}

TEST(NestEmitterTest, SumsAlongTheInnermostAxis) {
  for (int64_t size : {0, 1, 2, 5, 15, 16, 31, 32, 33, 100, 1000}) {
    for (bool constant : {true, false}) {
      Nest nest;
      DimExpr k = constant ? DimExpr(size) : S("K");
      nest.kept = {S("N")};
      nest.reduced = {k};
      nest.operands = {{DType::kF32, {S("N"), k}}};
      nest.reductions = {Sum(Load(nest, 0, {C(0), C(1)}))};
      nest.result = Expr::Reduced(DType::kF32, 0) * F32(0.5);
      nest.output = {DType::kF32, nest.kept};
      ExpectRight(nest, {{"N", 7}, {"K", size}}, {}, {1e-4, 1e-4});
    }
  }
}

TEST(NestEmitterTest, SumsAlongTheOutermostAxis) {
  for (int64_t size : {1, 3, 16, 50, 128}) {
    Nest nest;
    nest.kept = {S("N")};
    nest.reduced = {S("K"), 3};
    nest.operands = {{DType::kF64, {S("K"), 3, S("N")}}};
    nest.reductions = {Sum(Load(nest, 0, {C(1), C(2), C(0)}))};
    nest.result = Expr::Reduced(DType::kF64, 0);
    nest.output = {DType::kF64, nest.kept};
    ExpectRight(nest, {{"N", size}, {"K", 40}});
  }
}

TEST(NestEmitterTest, MultipliesMatricesAsReductions) {
  for (bool transposed : {false, true}) {
    Nest nest;
    nest.kept = {S("M"), S("N")};
    nest.reduced = {S("K")};
    nest.operands = {{DType::kF32, {S("M"), S("K")}},
                     {DType::kF32, transposed ? Shape{S("N"), S("K")} : Shape{S("K"), S("N")}}};
    Expr b = transposed ? Load(nest, 1, {C(1), C(2)}) : Load(nest, 1, {C(2), C(1)});
    nest.reductions = {Sum(Load(nest, 0, {C(0), C(2)}) * b)};
    nest.result = Expr::Reduced(DType::kF32, 0);
    nest.output = {DType::kF32, nest.kept};
    ExpectRight(nest, {{"M", 5}, {"N", 35}, {"K", 77}}, {}, {1e-4, 1e-4});
  }
}

TEST(NestEmitterTest, FindsTheLargestAndItsPlace) {
  Nest nest;
  nest.kept = {S("N")};
  nest.reduced = {S("K")};
  nest.operands = {{DType::kF32, {S("N"), S("K")}}};
  Expr best = Expr::Accumulator(DType::kF32, 0);
  Expr place = Expr::Accumulator(DType::kI64, 1);
  auto better = [](Expr value, Expr at, Expr old_value, Expr old_at) {
    Expr equal = Expr::Binary(ExprOp::kEq, value, old_value);
    Expr earlier = Expr::Binary(ExprOp::kLt, at, old_at);
    return Expr::Binary(ExprOp::kBitOr, Expr::Binary(ExprOp::kGt, value, old_value),
                        Expr::Binary(ExprOp::kBitAnd, equal, earlier));
  };
  Expr x = Load(nest, 0, {C(0), C(1)});
  Expr take = better(x, C(1), best, place);
  Expr other = Expr::Accumulator(DType::kF32, 2);
  Expr other_place = Expr::Accumulator(DType::kI64, 3);
  Expr take_other = better(other, other_place, best, place);
  nest.reductions = {{.init = {F32(-1e30), Expr::ConstantInt(DType::kI64, 1 << 30)},
                      .update = {Expr::Select(take, x, best), Expr::Select(take, C(1), place)},
                      .merge = {Expr::Select(take_other, other, best),
                                Expr::Select(take_other, other_place, place)},
                      .result = place}};
  nest.result = Expr::Reduced(DType::kI64, 0);
  nest.output = {DType::kI64, nest.kept};
  for (int64_t k : {1, 7, 32, 45, 300}) ExpectRight(nest, {{"N", 6}, {"K", k}});
}

// softmax over `axis` of [N, K, M].
Nest Softmax(int axis, DimExpr n, DimExpr k, DimExpr m) {
  Nest nest;
  Shape shape = {n, k, m};
  nest.operands = {{DType::kF32, shape}};
  std::vector<Expr> at(3);
  int32_t next = 0;
  for (int n_axis = 0; n_axis < 3; ++n_axis) {
    if (n_axis == axis) continue;
    nest.kept.push_back(shape[static_cast<size_t>(n_axis)]);
    at[static_cast<size_t>(n_axis)] = C(next++);
  }
  nest.reduced = {shape[static_cast<size_t>(axis)]};
  at[static_cast<size_t>(axis)] = C(2);
  Expr x = Load(nest, 0, at);
  Expr e = Expr::Unary(ExprOp::kExp, x - Expr::Reduced(DType::kF32, 0));
  nest.reductions = {Maximum(x), Sum(e)};
  nest.result = e / Expr::Reduced(DType::kF32, 1);
  nest.per_element = true;
  nest.output = {DType::kF32, shape};
  nest.output_coordinates = at;
  return nest;
}

TEST(NestEmitterTest, ComputesSoftmaxOverEachAxis) {
  for (int axis = 0; axis < 3; ++axis) {
    Nest nest = Softmax(axis, S("N"), S("K"), S("M"));
    ExpectRight(nest, {{"N", 3}, {"K", 40}, {"M", 65}}, {}, {1e-5, 1e-7});
    ExpectRight(nest, {{"N", 2}, {"K", 1}, {"M", 5}}, {}, {1e-5, 1e-7});
  }
  ExpectRight(Softmax(2, S("N"), 3, 128), {{"N", 4}}, {}, {1e-5, 1e-7});
}

TEST(NestEmitterTest, NormalisesRows) {
  Nest nest;
  nest.kept = {S("N")};
  nest.reduced = {384};
  nest.operands = {{DType::kF32, {S("N"), 384}}, {DType::kF32, {384}}};
  Expr x = Load(nest, 0, {C(0), C(1)});
  Expr scale = F32(1.0 / 384);
  Expr mean = Expr::Reduced(DType::kF32, 0);
  nest.reductions = {Sum(x), Sum((x - mean) * (x - mean))};
  nest.reductions[0].result = Expr::Accumulator(DType::kF32, 0) * scale;
  Expr variance = Expr::Reduced(DType::kF32, 1) * scale + F32(1e-5);
  nest.result = (x - mean) / Expr::Unary(ExprOp::kSqrt, variance) * Load(nest, 1, {C(1)});
  nest.per_element = true;
  nest.output = {DType::kF32, {S("N"), 384}};
  ExpectRight(nest, {{"N", 9}}, {}, {1e-4, 1e-5});
}

TEST(NestEmitterTest, ConvolvesDepthwise) {
  Nest nest;
  nest.kept = {S("H"), S("W"), 40};
  nest.reduced = {3, 3};
  nest.operands = {{DType::kF32, {S("H"), S("W"), 40}}, {DType::kF32, {3, 3, 40}}};
  Expr one = Expr::ConstantInt(DType::kI64, 1);
  Expr zero = Expr::ConstantInt(DType::kI64, 0);
  Expr y = C(0) + C(3) - one;
  Expr x = C(1) + C(4) - one;
  auto within = [&](Expr e, const char* limit) {
    return Expr::Binary(ExprOp::kBitAnd, Expr::Binary(ExprOp::kGe, e, zero),
                        Expr::Binary(ExprOp::kLt, e, Expr::Dim(S(limit))));
  };
  Expr inside = Expr::Binary(ExprOp::kBitAnd, within(y, "H"), within(x, "W"));
  Expr pixel = Expr::GuardedLoad(DType::kF32, 0, {y, x, C(2)}, inside, F32(0));
  nest.reductions = {Sum(pixel * Load(nest, 1, {C(3), C(4), C(2)}))};
  nest.result = Expr::Binary(ExprOp::kMax, Expr::Reduced(DType::kF32, 0), F32(0));
  nest.output = {DType::kF32, nest.kept};
  ExpectRight(nest, {{"H", 6}, {"W", 7}}, {}, {1e-4, 1e-4});
  for (int64_t width : {0, 1, 2, 3, 4, 5, 6, 23}) {
    ExpectRight(nest, {{"H", 3}, {"W", width}}, {}, {1e-4, 1e-4});
  }
  // Tasks end within lines, and after several.
  ExpectRight(nest, {{"H", 2}, {"W", 3000}}, {}, {1e-4, 1e-4});
  ExpectRight(nest, {{"H", 500}, {"W", 11}}, {}, {1e-4, 1e-4});
}

// Channels first: conditions differ from lane to lane.
TEST(NestEmitterTest, ConvolvesDepthwiseAlongTheImage) {
  Nest nest;
  nest.kept = {3, S("H"), S("W")};
  nest.reduced = {3, 3};
  nest.operands = {{DType::kF32, {3, S("H"), S("W")}}, {DType::kF32, {3, 3, 3}}};
  Expr one = Expr::ConstantInt(DType::kI64, 1);
  Expr zero = Expr::ConstantInt(DType::kI64, 0);
  Expr y = C(1) + C(3) - one;
  Expr x = C(2) + C(4) - one;
  auto within = [&](Expr e, const char* limit) {
    return Expr::Binary(ExprOp::kBitAnd, Expr::Binary(ExprOp::kGe, e, zero),
                        Expr::Binary(ExprOp::kLt, e, Expr::Dim(S(limit))));
  };
  Expr inside = Expr::Binary(ExprOp::kBitAnd, within(y, "H"), within(x, "W"));
  Expr pixel = Expr::GuardedLoad(DType::kF32, 0, {C(0), y, x}, inside, F32(0));
  nest.reductions = {Sum(pixel * Load(nest, 1, {C(0), C(3), C(4)}))};
  nest.result = Expr::Reduced(DType::kF32, 0);
  nest.output = {DType::kF32, nest.kept};
  ExpectRight(nest, {{"H", 10}, {"W", 67}}, {}, {1e-4, 1e-4});
  ExpectRight(nest, {{"H", 3}, {"W", 5}}, {}, {1e-4, 1e-4});
}

// Windows without guards, with strides and gaps between what they read.
TEST(NestEmitterTest, PoolsOverlappingWindows) {
  for (int64_t stride : {1, 2, 3}) {
    for (int64_t gap : {1, 2}) {
      Nest nest;
      nest.kept = {S("H"), S("W"), S("C")};
      nest.reduced = {3, 2};
      DimExpr height = S("H") * stride + 2 * gap;
      DimExpr width = S("W") * stride + gap;
      nest.operands = {{DType::kF32, {height, width, S("C")}}};
      Expr step = Expr::ConstantInt(DType::kI64, stride);
      Expr apart = Expr::ConstantInt(DType::kI64, gap);
      nest.reductions = {
          Maximum(Load(nest, 0, {C(0) * step + C(3) * apart, C(1) * step + C(4) * apart, C(2)}))};
      nest.result = Expr::Reduced(DType::kF32, 0);
      nest.output = {DType::kF32, nest.kept};
      ExpectRight(nest, {{"H", 3}, {"W", 13}, {"C", 40}});
      ExpectRight(nest, {{"H", 2}, {"W", 4}, {"C", 3}});
    }
  }
}

// Rows that share weights are computed together; one alone has the same bits.
TEST(NestEmitterTest, RowsKeepTheirBitsWhateverGoesTogether) {
  constexpr int64_t kK = 7, kN = 37;
  Nest nest;
  nest.kept = {S("M"), kN};
  nest.reduced = {kK};
  nest.operands = {{DType::kF32, {S("M"), kK}}, {DType::kF32, {kK, kN}}};
  nest.reductions = {Sum(Load(nest, 0, {C(0), C(2)}) * Load(nest, 1, {C(2), C(1)}))};
  nest.result = Expr::Reduced(DType::kF32, 0);
  nest.output = {DType::kF32, nest.kept};
  Tensor all = RandomTensor(DType::kF32, {64, kK}, 1);
  Tensor weights = RandomTensor(DType::kF32, {kK, kN}, 2);
  for (const Target& target : RunnableTargets()) {
    ASSERT_GT(ScheduleNest(nest, target).rows_together, 1);
    CompiledStage stage = *CompiledStage::Compile(nest, target);
    auto run = [&](int64_t m) {
      std::vector<Tensor> operands = {
          *Tensor::View(DType::kF32, {m, kK}, all.bytes().first(static_cast<size_t>(m * kK) * 4),
                        nullptr),
          weights};
      Tensor output = *Tensor::Allocate(DType::kF32, {m, kN});
      CHECK_OK(stage.Run(operands, {&output, 1}, SymbolValues({{"M", m}}), {}));
      return output;
    };
    Tensor whole = run(64);
    for (int64_t m : {1, 2, 3, 5, 7}) {
      Tensor part = run(m);
      EXPECT_EQ(memcmp(part.bytes().data(), whole.bytes().data(), part.bytes().size()), 0)
          << target.ToString() << " m " << m;
    }
  }
}

TEST(NestEmitterTest, ReducesEverythingToOneElement) {
  Nest nest;
  nest.reduced = {S("N"), S("M")};
  nest.operands = {{DType::kI32, {S("N"), S("M")}}};
  nest.reductions = {Sum(Load(nest, 0, {C(0), C(1)}))};
  nest.result = Expr::Reduced(DType::kI32, 0);
  nest.output = {DType::kI32, {}};
  ExpectRight(nest, {{"N", 13}, {"M", 37}});
  ExpectRight(nest, {{"N", 1}, {"M", 1}});
}

TEST(NestEmitterTest, PoolsWithStride) {
  Nest nest;
  nest.kept = {2, S("H"), S("W")};
  nest.reduced = {2, 2};
  nest.operands = {{DType::kF32, {2, S("H") * 2, S("W") * 2}}};
  Expr two = Expr::ConstantInt(DType::kI64, 2);
  nest.reductions = {Maximum(Load(nest, 0, {C(0), C(1) * two + C(3), C(2) * two + C(4)}))};
  nest.result = Expr::Reduced(DType::kF32, 0);
  nest.output = {DType::kF32, nest.kept};
  ExpectRight(nest, {{"H", 5}, {"W", 37}});
}

TEST(NestEmitterTest, RowsKeepTheirBitsInOtherBatches) {
  for (const Target& target : RunnableTargets()) {
    Nest nest = Softmax(2, S("N"), S("K"), S("M"));
    CompiledStage stage = *CompiledStage::Compile(nest, target);
    Tensor all = RandomTensor(DType::kF32, {64, 2, 45}, 3);
    auto run = [&](int64_t n) {
      Tensor input = *Tensor::View(DType::kF32, {n, 2, 45},
                                   all.bytes().first(static_cast<size_t>(n) * 2 * 45 * 4), nullptr);
      Tensor output = *Tensor::Allocate(DType::kF32, {n, 2, 45});
      CHECK_OK(
          stage.Run({&input, 1}, {&output, 1}, SymbolValues({{"N", n}, {"K", 2}, {"M", 45}}), {}));
      return output;
    };
    Tensor whole = run(64);
    for (int64_t n : {1, 2, 7}) {
      Tensor part = run(n);
      EXPECT_EQ(memcmp(part.bytes().data(), whole.bytes().data(), part.bytes().size()), 0);
    }
  }
}

}  // namespace
}  // namespace stampmill
