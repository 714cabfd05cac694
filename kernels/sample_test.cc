// The choice of the next token. What is drawn is compared with how often it should be.
#include "kernels/sample.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "graph/dtype.h"
#include "graph/tensor.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/skeletons/skeletons.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

// Parameters of one row; neutral unless set.
struct Row {
  double temperature = 0, top_p = 1, min_p = 0, typical_p = 1;
  double repetition = 1, presence = 0, frequency = 0;
  int top_k = 0, mask = -1, forced = -1;
  bool wants_logprobs = true;
  std::vector<double> history;                    // triples
  std::vector<std::pair<double, double>> biases;  // token, value
};

class Rows {
 public:
  Rows(int64_t vocabulary, std::vector<Row> rows, std::vector<double> ranks = {0, 1, 2})
      : vocabulary_(vocabulary), rows_(std::move(rows)), ranks_(std::move(ranks)) {}

  std::vector<double> masks;  // words
  int64_t seed = 7;

  std::vector<Tensor> Inputs(const Tensor& logits) const {
    const auto count = static_cast<int64_t>(rows_.size());
    std::vector<double> reals, integers, seeds, history_ends, history, bias_ends, tokens, values;
    for (int64_t i = 0; i < count; ++i) {
      const Row& r = rows_[static_cast<size_t>(i)];
      for (const double real : {r.temperature, r.top_p, r.min_p, r.typical_p, r.repetition,
                                r.presence, r.frequency, 0.0}) {
        reals.push_back(real);
      }
      for (const int integer : {r.top_k, r.mask, r.forced, r.wants_logprobs ? 1 : 0}) {
        integers.push_back(integer);
      }
      seeds.insert(seeds.end(), {static_cast<double>(seed), static_cast<double>(i)});
      history.insert(history.end(), r.history.begin(), r.history.end());
      history_ends.push_back(static_cast<double>(history.size() / 3));
      for (const auto& [token, value] : r.biases) {
        tokens.push_back(token);
        values.push_back(value);
      }
      bias_ends.push_back(static_cast<double>(tokens.size()));
    }
    const int64_t words = (vocabulary_ + 31) / 32;
    const auto size = [](const std::vector<double>& list) {
      return static_cast<int64_t>(list.size());
    };
    return {logits,
            Values(DType::kF32, {count, kSampleReals}, reals),
            Values(DType::kI32, {count, kSampleIntegers}, integers),
            Values(DType::kI64, {count, 2}, seeds),
            Values(DType::kI32, {count}, history_ends),
            Values(DType::kI32, {size(history) / 3, 3}, history),
            Values(DType::kI32, {count}, bias_ends),
            Values(DType::kI32, {size(tokens)}, tokens),
            Values(DType::kF32, {size(values)}, values),
            Values(DType::kI32, {size(masks) / words, words}, masks),
            Values(DType::kI32, {size(ranks_)}, ranks_)};
  }

  OpCase Case(const Tensor& logits) const {
    return {.op_type = "Sample",
            .domain = "stampmill",
            .inputs = Inputs(logits),
            .output_count = 5,
            .shared_symbols = false,
            .tolerance = {.relative = 1e-5, .absolute = 2e-5}};
  }

  // The tokens that the skeleton chooses.
  std::vector<int64_t> Draw(const Tensor& logits) const {
    const std::vector<Tensor> inputs = Inputs(logits);
    const auto count = static_cast<int64_t>(rows_.size());
    const auto ranks = static_cast<int64_t>(ranks_.size());
    Library library = {.skeleton = "sample",
                       .configuration = {},
                       .dims = {vocabulary_, ranks},
                       .tasks = count,
                       .scratch_bytes = (vocabulary_ + 16) * 4 + vocabulary_ * 16};
    std::vector<Tensor> outputs = {
        *Tensor::Allocate(DType::kI32, {count}), *Tensor::Allocate(DType::kF32, {count}),
        *Tensor::Allocate(DType::kI32, {count}), *Tensor::Allocate(DType::kI32, {count, ranks}),
        *Tensor::Allocate(DType::kF32, {count, ranks})};
    for (const Tensor& input : inputs) library.operands.push_back({input.dtype(), {}});
    for (const Tensor& output : outputs) library.outputs.push_back({output.dtype(), {}});
    EXPECT_TRUE(RunSkeleton(library, inputs, outputs, {}).ok());
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(outputs[0].ValueAsInt64(i));
    return tokens;
  }

 private:
  const int64_t vocabulary_;
  const std::vector<Row> rows_;
  const std::vector<double> ranks_;
};

TEST(Sample, TheLikeliestTokenUnderBiasPenaltiesAndMasks) {
  const int64_t vocabulary = 70;
  std::vector<Row> rows(7);
  rows[1].biases = {{5, 100}, {69, -100}};
  rows[2].history = {3, 1, 0, 11, 0, 4, 12, 1, 1};
  rows[2].repetition = 1.7;
  rows[2].presence = 0.5;
  rows[2].frequency = 0.3;
  rows[3].mask = 1;
  rows[4].forced = 33;
  rows[5].mask = 0;
  rows[5].biases = {{2, 50}};  // which the mask rules out
  rows[6].wants_logprobs = false;
  Rows all(vocabulary, rows);
  all.masks = {1, 0, 32, 0x0f0f0f0f, 255, 1};
  ExpectLoweringMatchesReference(all.Case(Random(DType::kF32, {7, vocabulary}, 4)));
}

TEST(Sample, EqualScoresAreTakenInOrder) {
  const Tensor logits = Values(DType::kF32, {1, 5}, {1, 3, 3, 2, 3});
  ExpectReference(Rows(5, {Row()}).Case(logits), Values(DType::kI32, {1}, {1}));
  ExpectLoweringMatchesReference(Rows(5, {Row()}, {0, 1, 2, 3, 4}).Case(logits));
}

TEST(Sample, RanksBeyondTheVocabularyAreNoTokens) {
  ExpectLoweringMatchesReference(
      Rows(3, {Row()}, {0, 2, 3, 9}).Case(Random(DType::kF32, {1, 3}, 4)));
}

// --- Draws ---

constexpr int64_t kDraws = 20000;

const std::vector<double>& Weights() {
  static const auto* const weights =
      new std::vector<double>{0.30, 0.02, 0.20, 0.08, 0.05, 0.15, 0.10, 0.04, 0.05, 0.01};
  return *weights;
}

std::vector<int64_t> DrawMany(const Row& row, int64_t seed = 7) {
  std::vector<double> logits;
  for (int64_t i = 0; i < kDraws; ++i) {
    for (const double weight : Weights()) logits.push_back(std::log(weight) + 1);
  }
  const auto vocabulary = static_cast<int64_t>(Weights().size());
  Rows rows(vocabulary, std::vector<Row>(kDraws, row), {0});
  rows.seed = seed;
  return rows.Draw(Values(DType::kF32, {kDraws, vocabulary}, logits));
}

// Within five standard deviations, for each token; those of weight 0 never.
void ExpectFrequencies(const std::vector<int64_t>& drawn, std::vector<double> weights) {
  double total = 0;
  for (const double weight : weights) total += weight;
  std::vector<int64_t> counts(weights.size());
  for (const int64_t token : drawn) ++counts.at(static_cast<size_t>(token));
  for (size_t i = 0; i < weights.size(); ++i) {
    const double p = weights[i] / total, n = static_cast<double>(drawn.size());
    EXPECT_NEAR(static_cast<double>(counts[i]), n * p, 5 * std::sqrt(n * p * (1 - p))) << i;
  }
}

TEST(Sample, DrawsFollowTheDistribution) {
  ExpectFrequencies(DrawMany({.temperature = 1}), Weights());
  std::vector<double> squares;
  for (const double weight : Weights()) squares.push_back(weight * weight);
  ExpectFrequencies(DrawMany({.temperature = 0.5}), squares);
}

TEST(Sample, TopKTopPAndMinPLeaveOnlyTheLikely) {
  ExpectFrequencies(DrawMany({.temperature = 1, .top_k = 3}),
                    {0.30, 0, 0.20, 0, 0, 0.15, 0, 0, 0, 0});
  ExpectFrequencies(DrawMany({.temperature = 1, .top_p = 0.6}),
                    {0.30, 0, 0.20, 0, 0, 0.15, 0, 0, 0, 0});
  ExpectFrequencies(DrawMany({.temperature = 1, .min_p = 0.3}),
                    {0.30, 0, 0.20, 0, 0, 0.15, 0.10, 0, 0, 0});
  // Of what top_k leaves: 0.3 of 0.65 is less than half, with 0.2 it is more.
  ExpectFrequencies(DrawMany({.temperature = 1, .top_p = 0.5, .top_k = 3}),
                    {0.30, 0, 0.20, 0, 0, 0, 0, 0, 0, 0});
  ExpectFrequencies(DrawMany({.temperature = 1, .top_p = 1e-6}), {1, 0, 0, 0, 0, 0, 0, 0, 0, 0});
}

TEST(Sample, TypicalLeavesWhatIsNearTheExpectedSurprise) {
  double expected = 0;
  for (const double weight : Weights()) expected -= weight * std::log(weight);
  std::vector<size_t> order;
  for (size_t i = 0; i < Weights().size(); ++i) order.push_back(i);
  std::ranges::sort(order, {},
                    [&](size_t i) { return std::abs(-std::log(Weights()[i]) - expected); });
  std::vector<double> kept(Weights().size());
  double sum = 0;
  for (size_t i = 0; i < order.size() && sum < 0.5; ++i) {
    sum += kept[order[i]] = Weights()[order[i]];
  }
  ExpectFrequencies(DrawMany({.temperature = 1, .typical_p = 0.5}), kept);
}

TEST(Sample, ADrawDependsOnSeedAndPositionAlone) {
  const std::vector<int64_t> first = DrawMany({.temperature = 1});
  EXPECT_EQ(first, DrawMany({.temperature = 1}));
  const std::vector<int64_t> other = DrawMany({.temperature = 1}, 8);
  EXPECT_NE(first, other);
  // Row 5 alone, at its position.
  Row row{.temperature = 1, .top_p = 0.9};
  std::vector<double> logits;
  for (int i = 0; i < 6; ++i) {
    for (const double weight : Weights()) logits.push_back(std::log(weight) * (i + 1));
  }
  const auto vocabulary = static_cast<int64_t>(Weights().size());
  const Rows together(vocabulary, std::vector<Row>(6, row), {0});
  const std::vector<int64_t> all = together.Draw(Values(DType::kF32, {6, vocabulary}, logits));
  std::vector<Row> others(6, Row{.temperature = 3});
  others[5] = row;
  for (size_t i = 0; i < 50; ++i) logits[i] = static_cast<double>(i % 7);
  const Rows beside(vocabulary, others, {0, 1});
  EXPECT_EQ(all[5], beside.Draw(Values(DType::kF32, {6, vocabulary}, logits))[5]);
}

TEST(Sample, LargeVocabulariesAreDrawnFromWhole) {
  // Flat, but for one token: tokens beyond any first look must come up.
  const int64_t vocabulary = 5000, draws = 400;
  std::vector<double> logits(static_cast<size_t>(vocabulary * draws), -20);
  for (int64_t i = 0; i < draws; ++i) logits[static_cast<size_t>(i * vocabulary + 17)] = -4;
  for (const Row& row : {Row{.temperature = 1}, Row{.temperature = 1, .top_p = 0.9999999},
                         Row{.temperature = 4, .top_k = 4999}}) {
    const Rows rows(vocabulary, std::vector<Row>(draws, row), {0});
    const std::vector<int64_t> drawn = rows.Draw(Values(DType::kF32, {draws, vocabulary}, logits));
    std::map<int64_t, int> counts;
    for (const int64_t token : drawn) ++counts[token];
    EXPECT_GT(counts[17], row.temperature == 1 ? 390 : 0);
    if (row.temperature == 4) {
      EXPECT_GT(counts.size(), 100u);
    }
  }
}

TEST(Sample, ScoresThatAreNoNumbersEnd) {
  const Tensor logits = Values(DType::kF32, {1, 4}, {NAN, NAN, NAN, NAN});
  for (const Row& row : {Row(), Row{.temperature = 1}, Row{.temperature = 1, .top_k = 2}}) {
    EXPECT_EQ(Rows(4, {row}).Draw(logits), (std::vector<int64_t>{0}));
  }
}

}  // namespace
}  // namespace stampmill
