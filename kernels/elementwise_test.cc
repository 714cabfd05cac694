// Elementwise operators: lowerings against references in every type, broadcast in every way, at the
// values where functions have corners.
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

OpCase Unary(const std::string& op, Tensor x) { return {.op_type = op, .inputs = {std::move(x)}}; }

OpCase Binary(const std::string& op, Tensor a, Tensor b) {
  return {.op_type = op, .inputs = {std::move(a), std::move(b)}, .own_symbols = true};
}

TEST(Elementwise, FloatFunctionsAgreeInEveryFloatType) {
  for (const char* op :
       {"Sin",       "Cos",        "Tan",      "Atan",  "Sinh",    "Cosh",
        "Tanh",      "Asinh",      "Erf",      "Floor", "Ceil",    "Round",
        "Exp",       "Reciprocal", "Neg",      "Abs",   "Sign",    "Relu",
        "LeakyRelu", "Elu",        "Selu",     "Celu",  "Sigmoid", "HardSigmoid",
        "HardSwish", "Softplus",   "Softsign", "Mish",  "Swish",   "ThresholdedRelu",
        "Shrink",    "Gelu",       "IsNaN",    "IsInf", "Identity"}) {
    for (const DType dtype : kFloatTypes) {
      ExpectLoweringMatchesReference(Unary(op, Random(dtype, {3, 5, 7}, 1)));
    }
  }
}

TEST(Elementwise, FunctionsWithADomainAgreeWithinIt) {
  for (const char* op : {"Asin", "Acos", "Atanh"}) {
    ExpectLoweringMatchesReference(Unary(op, Random(DType::kF32, {31}, 2, 0.99)));
  }
  for (const char* op : {"Sqrt", "Log"}) {
    ExpectLoweringMatchesReference(
        Unary(op, Values(DType::kF32, {5}, {0, 1e-30, 0.5, 7, kInfinity})));
  }
  ExpectLoweringMatchesReference(Unary("Acosh", Values(DType::kF64, {3}, {1, 1.5, 1e10})));
}

TEST(Elementwise, InfinitiesAndNanPassThroughLikeTheReference) {
  const std::vector<double> corners = {0.0, -0.0, 1, -1, kInfinity, -kInfinity, kNan, 100, -100};
  for (const char* op :
       {"Exp", "Tanh", "Erf", "Abs", "Sign", "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid",
        "HardSigmoid", "Softplus", "Floor", "Round", "IsNaN", "IsInf", "ThresholdedRelu", "Neg"}) {
    ExpectLoweringMatchesReference(Unary(op, Values(DType::kF32, {9}, corners)));
    ExpectLoweringMatchesReference(Unary(op, Values(DType::kF64, {9}, corners)));
  }
}

TEST(Elementwise, AttributesChangeBothAlike) {
  OpCase test = Unary("LeakyRelu", Random(DType::kF32, {17}, 3));
  test.attributes["alpha"] = 0.3f;
  ExpectLoweringMatchesReference(test);
  for (const char* op : {"Elu", "Celu", "Swish", "ThresholdedRelu", "Selu", "HardSigmoid"}) {
    OpCase other = Unary(op, Random(DType::kF32, {17}, 4));
    other.attributes["alpha"] = 0.7f;
    if (std::string(op) == "Selu") other.attributes["gamma"] = 2.5f;
    if (std::string(op) == "HardSigmoid") other.attributes["beta"] = 0.1f;
    ExpectLoweringMatchesReference(other);
  }
  OpCase gelu = Unary("Gelu", Random(DType::kF32, {17}, 5));
  gelu.attributes["approximate"] = std::string("tanh");
  ExpectLoweringMatchesReference(gelu);
  OpCase inf = Unary("IsInf", Values(DType::kF32, {3}, {kInfinity, -kInfinity, 1}));
  inf.attributes["detect_negative"] = int64_t{0};
  ExpectLoweringMatchesReference(inf);
}

TEST(Elementwise, IntegerFunctionsAgreeInEveryIntegerType) {
  for (const DType dtype : kIntegerTypes) {
    const Tensor x = Random(dtype, {4, 9}, 6, 100);
    for (const char* op : {"Neg", "Abs", "Sign", "BitwiseNot", "Shrink"}) {
      ExpectLoweringMatchesReference(Unary(op, x));
    }
    if (IsSignedInteger(dtype)) ExpectLoweringMatchesReference(Unary("Relu", x));
  }
}

TEST(Elementwise, LeastIntegersWrapWithoutTrapping) {
  for (const DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
    Tensor least = Random(dtype, {1}, 1);
    least.SetFromInt64(0, dtype == DType::kI64 ? std::numeric_limits<int64_t>::min()
                                               : -(int64_t{1} << (8 * SizeBytes(dtype) - 1)));
    Tensor minus_one = Random(dtype, {1}, 1);
    minus_one.SetFromInt64(0, -1);
    ExpectLoweringMatchesReference(Unary("Neg", least));
    ExpectLoweringMatchesReference(Unary("Abs", least));
    ExpectLoweringMatchesReference(Binary("Div", least, minus_one));
    ExpectLoweringMatchesReference(Binary("Mod", least, minus_one));
    Tensor zero = Random(dtype, {1}, 1);
    zero.SetFromInt64(0, 0);
    ExpectLoweringMatchesReference(Binary("Div", least, zero));
    ExpectLoweringMatchesReference(Binary("Mod", least, zero));
  }
}

TEST(Elementwise, ArithmeticAgreesInEveryNumericType) {
  for (const DType dtype : kAllTypes) {
    if (dtype == DType::kBool) continue;
    const Tensor a = Random(dtype, {2, 3, 4}, 7, 50);
    const Tensor b = Random(dtype, {3, 1}, 8, 50);
    for (const char* op : {"Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Equal", "Less",
                           "LessOrEqual", "Greater", "GreaterOrEqual"}) {
      ExpectLoweringMatchesReference(Binary(op, a, b));
    }
    if (!IsFloat(dtype)) ExpectLoweringMatchesReference(Binary("Mod", a, b));
  }
}

TEST(Elementwise, BroadcastsEveryWay) {
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> shapes = {
      {{}, {}},         {{5}, {}},           {{}, {2, 3}},          {{1}, {7}},
      {{2, 1}, {1, 3}}, {{4, 1, 3}, {5, 1}}, {{2, 3}, {2, 3}},      {{0}, {1}},
      {{2, 0}, {1}},    {{1, 1}, {1, 1}},    {{3, 1, 1}, {1, 2, 4}}};
  for (const auto& [left, right] : shapes) {
    OpCase test = Binary("Sub", Random(DType::kF32, left, 9), Random(DType::kF32, right, 10));
    // An empty dim beside a 1 is served only where one of them is known.
    for (const int64_t dim : left) test.own_symbols = test.own_symbols && dim != 0;
    ExpectLoweringMatchesReference(test);
  }
}

TEST(Elementwise, ModKeepsTheSignItShould) {
  const Tensor a = Values(DType::kI32, {6}, {-4, 7, 5, 4, -7, 8});
  const Tensor b = Values(DType::kI32, {6}, {2, -3, 8, -2, 3, 5});
  ExpectLoweringMatchesReference(Binary("Mod", a, b));
  OpCase like_c = Binary("Mod", a, b);
  like_c.attributes["fmod"] = int64_t{1};
  ExpectLoweringMatchesReference(like_c);
  const Tensor x = Values(DType::kF32, {6}, {-4.3, 7.2, 5.0, 4.3, -7.2, 8.0});
  const Tensor y = Values(DType::kF32, {6}, {2.1, -3.4, 8.0, -2.1, 3.4, 5.0});
  ExpectLoweringMatchesReference(Binary("Mod", x, y));
  OpCase floats = Binary("Mod", x, y);
  floats.attributes["fmod"] = int64_t{1};
  ExpectLoweringMatchesReference(floats);
}

TEST(Elementwise, PowTakesOtherExponentTypes) {
  const Tensor base = Values(DType::kF32, {4}, {1, 2, 3, 0.5});
  for (const DType dtype : {DType::kF32, DType::kI32, DType::kI64, DType::kF64, DType::kU8}) {
    ExpectLoweringMatchesReference(Binary("Pow", base, Values(dtype, {4}, {0, 1, 2, 3})));
  }
  ExpectLoweringMatchesReference(
      Binary("Pow", Values(DType::kI32, {3}, {1, 2, 3}), Values(DType::kF32, {3}, {4, 5, 6})));
  for (const double exponent : {-1.0, 0.5, 1.0, 2.0, 3.0, 2.5}) {
    OpCase test =
        Binary("Pow", Random(DType::kF32, {3, 4}, 11, 2), Values(DType::kF32, {}, {exponent}));
    for (int64_t i = 0; i < 12; ++i) {
      test.inputs[0].SetFromDouble(i, std::fabs(test.inputs[0].ValueAsDouble(i)));
    }
    test.constants = {1};
    ExpectLoweringMatchesReference(test);
  }
}

TEST(Elementwise, LogicAndBitsAgree) {
  const Tensor a = Random(DType::kBool, {4, 5}, 12);
  const Tensor b = Random(DType::kBool, {5}, 13);
  for (const char* op : {"And", "Or", "Xor", "Equal"}) {
    ExpectLoweringMatchesReference(Binary(op, a, b));
  }
  ExpectLoweringMatchesReference(Unary("Not", a));
  for (const DType dtype : kIntegerTypes) {
    for (const char* op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"}) {
      ExpectLoweringMatchesReference(
          Binary(op, Random(dtype, {3, 4}, 14, 100), Random(dtype, {4}, 15, 100)));
    }
    for (const char* direction : {"LEFT", "RIGHT"}) {
      std::vector<double> counts = {0, 1, 7, 8, 63, 64, 100};
      if (IsSignedInteger(dtype)) counts[6] = -1;
      OpCase shift = Binary("BitShift", Random(dtype, {7}, 16, 100), Values(dtype, {7}, counts));
      shift.attributes["direction"] = std::string(direction);
      ExpectLoweringMatchesReference(shift);
    }
  }
}

TEST(Elementwise, VariadicOperatorsTakeOneToManyInputs) {
  for (const char* op : {"Max", "Min", "Sum", "Mean"}) {
    OpCase test{.op_type = op, .inputs = {Random(DType::kF32, {2, 3}, 17)}};
    ExpectLoweringMatchesReference(test);
    test.inputs.push_back(Random(DType::kF32, {3}, 18));
    test.inputs.push_back(Random(DType::kF32, {2, 1}, 19));
    test.own_symbols = true;
    ExpectLoweringMatchesReference(test);
  }
}

TEST(Elementwise, WhereAndClipAgreeInEveryType) {
  for (const DType dtype : kAllTypes) {
    OpCase where{.op_type = "Where",
                 .inputs = {Random(DType::kBool, {3, 1}, 20), Random(dtype, {2, 3, 4}, 21),
                            Random(dtype, {4}, 22)},
                 .own_symbols = true};
    ExpectLoweringMatchesReference(where);
    if (dtype == DType::kBool) continue;
    const Tensor x = Random(dtype, {5, 6}, 23, 10);
    const Tensor low = Values(dtype, {}, {1});
    const Tensor high = Values(dtype, {}, {4});
    for (const std::vector<Tensor>& inputs :
         {std::vector<Tensor>{x}, {x, low}, {x, Tensor(), high}, {x, low, high}, {x, high, low}}) {
      ExpectLoweringMatchesReference({.op_type = "Clip", .inputs = inputs});
    }
  }
}

TEST(Elementwise, PReluBroadcastsItsSlope) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI32}) {
    ExpectLoweringMatchesReference(
        {.op_type = "PRelu", .inputs = {Random(dtype, {2, 3, 4}, 24), Random(dtype, {3, 1}, 25)}});
  }
}

TEST(Elementwise, CastsBetweenAllTypes) {
  for (const DType from : kAllTypes) {
    for (const DType to : kAllTypes) {
      OpCase cast{.op_type = "Cast", .inputs = {Random(from, {6, 7}, 26, 100)}};
      cast.attributes["to"] = int64_t{OnnxDataType(to)};
      ExpectLoweringMatchesReference(cast);
      ExpectLoweringMatchesReference(
          {.op_type = "CastLike", .inputs = {Random(from, {6}, 27, 100), Random(to, {2}, 28)}});
    }
  }
}

TEST(Elementwise, FloatsOutOfRangeSaturateWhenCast) {
  for (const DType to : kIntegerTypes) {
    OpCase cast{.op_type = "Cast",
                .inputs = {Values(DType::kF64, {8},
                                  {kNan, kInfinity, -kInfinity, 1e30, -1e30, 255.9, -1.5,
                                   9.223372036854775e18})}};
    cast.attributes["to"] = int64_t{OnnxDataType(to)};
    ExpectLoweringMatchesReference(cast);
  }
}

TEST(Elementwise, BitCastKeepsTheBytes) {
  const std::pair<DType, DType> pairs[] = {{DType::kF32, DType::kI32},
                                           {DType::kI64, DType::kF64},
                                           {DType::kF16, DType::kU16},
                                           {DType::kU8, DType::kBool},
                                           {DType::kI8, DType::kU8}};
  for (const auto& [from, to] : pairs) {
    OpCase cast{.op_type = "BitCast", .inputs = {Random(from, {4, 3}, 29)}};
    cast.attributes["to"] = int64_t{OnnxDataType(to)};
    ExpectLoweringMatchesReference(cast);
  }
}

TEST(Elementwise, DropoutPassesDataOnAndMasksNothing) {
  ExpectLoweringMatchesReference(
      {.op_type = "Dropout", .inputs = {Random(DType::kF32, {3, 4}, 30)}, .output_count = 2});
}

TEST(Elementwise, RefusesWhatDoesNotBroadcast) {
  const OpCase test = Binary("Add", Random(DType::kF32, {3}, 1), Random(DType::kF32, {4}, 1));
  const auto built = BuildCase(test, CaseDims::kFixed);
  ASSERT_FALSE(built.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(built.status()));
  EXPECT_NE(std::string(built.status().message()).find("must be equal or 1"), std::string::npos)
      << built.status();
}

TEST(Elementwise, LeavesACheckWhereBroadcastingDependsOnTheRequest) {
  const OpCase test = Binary("Add", Random(DType::kF32, {3}, 1), Random(DType::kF32, {4}, 1));
  const auto built = BuildCase(test, CaseDims::kOwnSymbols);
  ASSERT_TRUE(built.ok()) << built.status();
  ASSERT_EQ(built->graph.checks().size(), 1u);
  const DimCheck& check = built->graph.checks()[0];
  const auto holds = [&](int64_t a, int64_t b) {
    return *check.nonzero.Evaluate([&](absl::string_view name) -> std::optional<int64_t> {
      return name == "D0_0" ? a : b;
    }) != 0;
  };
  EXPECT_TRUE(holds(3, 3));
  EXPECT_TRUE(holds(1, 3));
  EXPECT_TRUE(holds(3, 1));
  EXPECT_TRUE(holds(0, 0));
  EXPECT_FALSE(holds(3, 4));
  EXPECT_FALSE(holds(0, 1));
  EXPECT_FALSE(holds(2, 0));
}

TEST(Elementwise, RefusesMixedTypes) {
  const OpCase test = Binary("Add", Random(DType::kF32, {3}, 1), Random(DType::kF64, {3}, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(BuildCase(test, CaseDims::kFixed).status()));
}

}  // namespace
}  // namespace stampmill
