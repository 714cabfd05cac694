// RNN, GRU and LSTM: lowering against reference, and values by hand.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

using Attributes = absl::flat_hash_map<std::string, Attribute>;

struct Sizes {
  int64_t steps = 3, batch = 2, inputs = 4, hidden = 5;
};

// A case with every input but the lengths, which are Tensor() or of i32.
OpCase Case(const std::string& op, const std::string& direction, const Sizes& s, DType dtype,
            const Tensor& lengths, Attributes attributes) {
  const int64_t d = direction == "bidirectional" ? 2 : 1;
  const int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  const bool batch_first = attributes.contains("layout");
  const std::vector<int64_t> state = batch_first ? std::vector<int64_t>{s.batch, d, s.hidden}
                                                 : std::vector<int64_t>{d, s.batch, s.hidden};
  attributes["direction"] = direction;
  attributes["hidden_size"] = s.hidden;
  OpCase test{.op_type = op, .attributes = std::move(attributes), .constants = {1, 2, 3}};
  test.inputs = {Random(dtype,
                        batch_first ? std::vector<int64_t>{s.batch, s.steps, s.inputs}
                                    : std::vector<int64_t>{s.steps, s.batch, s.inputs},
                        1, 1),
                 Random(dtype, {d, gates * s.hidden, s.inputs}, 2, 0.5),
                 Random(dtype, {d, gates * s.hidden, s.hidden}, 3, 0.5),
                 Random(dtype, {d, 2 * gates * s.hidden}, 4, 0.5),
                 lengths,
                 Random(dtype, state, 5, 0.5)};
  if (op == "LSTM") {
    test.inputs.push_back(Random(dtype, state, 6, 0.5));
    test.inputs.push_back(Random(dtype, {d, 3 * s.hidden}, 7, 0.5));
  }
  test.output_count = op == "LSTM" ? 3 : 2;
  test.tolerance = dtype == DType::kF16 ? CaseTolerance{.relative = 5e-3, .absolute = 5e-3}
                                        : CaseTolerance{.relative = 1e-4, .absolute = 1e-5};
  return test;
}

TEST(Recurrent, AgreesWithReferenceInAllDirections) {
  for (const char* op : {"RNN", "GRU", "LSTM"}) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      for (const Sizes& sizes : {Sizes{}, Sizes{.steps = 1}, Sizes{.steps = 5, .batch = 1}}) {
        ExpectLoweringMatchesReference(Case(op, direction, sizes, DType::kF32, Tensor(), {}));
        ExpectLoweringMatchesReference(
            Case(op, direction, sizes, DType::kF32, Tensor(), {{"layout", int64_t{1}}}));
      }
      ExpectLoweringMatchesReference(Case(op, direction, {}, DType::kF16, Tensor(), {}));
    }
  }
}

TEST(Recurrent, EndsEachSequenceAtItsLength) {
  for (const char* op : {"RNN", "GRU", "LSTM"}) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      ExpectLoweringMatchesReference(Case(op, direction, {.steps = 4, .batch = 3}, DType::kF32,
                                          Values(DType::kI32, {3}, {2, 4, 0}), {}));
    }
  }
}

TEST(Recurrent, TakesItsAttributes) {
  ExpectLoweringMatchesReference(Case("GRU", "bidirectional", {}, DType::kF32, Tensor(),
                                      {{"linear_before_reset", int64_t{1}}, {"clip", 0.3f}}));
  ExpectLoweringMatchesReference(
      Case("LSTM", "forward", {}, DType::kF32, Tensor(), {{"input_forget", int64_t{1}}}));
  for (const char* name : {"Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu",
                           "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"}) {
    ExpectLoweringMatchesReference(Case("RNN", "bidirectional", {}, DType::kF32, Tensor(),
                                        {{"activations", std::vector<std::string>{name, "Tanh"}}}));
  }
}

TEST(Recurrent, WorksWithoutOptionalInputs) {
  for (const char* op : {"RNN", "GRU", "LSTM"}) {
    OpCase test = Case(op, "forward", {}, DType::kF32, Tensor(), {});
    test.inputs.resize(3);
    test.constants = {};
    test.shared_symbols = false;  // weights of the request say the size of the state
    ExpectLoweringMatchesReference(test);
  }
}

TEST(Recurrent, ByHand) {
  // h = tanh(x + h), twice.
  OpCase test{.op_type = "RNN",
              .inputs = {Values(DType::kF64, {2, 1, 1}, {0.5, 0.25}),
                         Values(DType::kF64, {1, 1, 1}, {1}), Values(DType::kF64, {1, 1, 1}, {1})},
              .attributes = {{"hidden_size", int64_t{1}}},
              .output_count = 2};
  const double first = std::tanh(0.5);
  ExpectReference(test, Values(DType::kF64, {2, 1, 1, 1}, {first, std::tanh(0.25 + first)}));
}

TEST(Recurrent, RefusesWhatDoesNotFit) {
  OpCase test = Case("LSTM", "forward", {}, DType::kF32, Tensor(), {});
  test.attributes["hidden_size"] = int64_t{4};
  EXPECT_FALSE(BuildCase(test, CaseDims::kFixed).ok());
  test.attributes["hidden_size"] = int64_t{5};
  EXPECT_TRUE(BuildCase(test, CaseDims::kFixed).ok());
  test.attributes["direction"] = std::string("sideways");
  EXPECT_FALSE(BuildCase(test, CaseDims::kFixed).ok());
  test.attributes["direction"] = std::string("forward");
  test.attributes["activations"] = std::vector<std::string>{"Tanh", "Tanh", "Magic"};
  EXPECT_FALSE(BuildCase(test, CaseDims::kFixed).ok());
}

}  // namespace
}  // namespace stampmill
