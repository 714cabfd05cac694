// Sample, of domain stampmill: the next token of each row of logits, by its own parameters.
//
//   inputs   logits f32 [rows, vocabulary], reals f32 [rows, kSampleReals], integers i32 [rows,
//            kSampleIntegers] (sample.h), seeds i64 [rows, 2]: the key and the counter of the
//            random number; history_ends i32 [rows], history i32 [entries, 3]: a token that was
//            there before, 1 if in the prompt, how often it was generated; bias_ends i32 [rows],
//            bias_tokens i32 [entries], bias_values f32 [entries]; masks i32 [masks, words]: a bit
//            for each token that may be chosen; ranks i32 [ranks]: which of the likeliest to tell
//   outputs  tokens i32 [rows]; logprobs f32 [rows], token_ranks i32 [rows]: of these tokens, under
//            the logits as they came; top_tokens i32 [rows, ranks], top_logprobs f32 [rows, ranks]
//
// Row i's entries of a list lie between its end and that of the row before. The order: bias,
// penalties, mask, temperature, then what min_p, top_k, top_p and typical_p leave, in this order.
#include "kernels/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"

namespace stampmill {
namespace {

enum : size_t {
  kLogits,
  kReals,
  kIntegers,
  kSeeds,
  kHistoryEnds,
  kHistory,
  kBiasEnds,
  kBiasTokens,
  kBiasValues,
  kMasks,
  kRanks,
  kInputCount,
};

struct InputRule {
  absl::string_view name;
  DType dtype;
  size_t rank;
  int64_t columns;  // of rank 2; -1: any
  bool by_row;      // dim 0 is the rows'
};
constexpr std::array<InputRule, kInputCount> kRules = {{
    {"logits", DType::kF32, 2, -1, true},
    {"reals", DType::kF32, 2, kSampleReals, true},
    {"integers", DType::kI32, 2, kSampleIntegers, true},
    {"seeds", DType::kI64, 2, 2, true},
    {"history_ends", DType::kI32, 1, -1, true},
    {"history", DType::kI32, 2, 3, false},
    {"bias_ends", DType::kI32, 1, -1, true},
    {"bias_tokens", DType::kI32, 1, -1, false},
    {"bias_values", DType::kF32, 1, -1, false},
    {"masks", DType::kI32, 2, -1, false},
    {"ranks", DType::kI32, 1, -1, false},
}};

absl::Status InferSample(InferContext& context) {
  ASSIGN_OR_RETURN(const Shape logits, context.InputShape(kLogits));
  for (size_t i = 0; i < kInputCount; ++i) {
    const InputRule& rule = kRules[i];
    ASSIGN_OR_RETURN(const Shape shape, context.InputShape(i));
    ASSIGN_OR_RETURN(const DType dtype, context.InputDType(i));
    if (dtype != rule.dtype || shape.size() != rule.rank) {
      return context.Error(absl::StrCat(rule.name, ": got ", Name(dtype), ToString(shape),
                                        ", want rank ", rule.rank, " of ", Name(rule.dtype)));
    }
    if (rule.columns >= 0) {
      RETURN_IF_ERROR(
          RequireEqual(context, shape[1], rule.columns, absl::StrCat(rule.name, ": columns")));
    }
    if (rule.by_row) {
      RETURN_IF_ERROR(
          RequireEqual(context, shape[0], logits[0], absl::StrCat(rule.name, ": rows")));
    }
  }
  ASSIGN_OR_RETURN(const Shape masks, context.InputShape(kMasks));
  ASSIGN_OR_RETURN(const Shape tokens, context.InputShape(kBiasTokens));
  ASSIGN_OR_RETURN(const Shape values, context.InputShape(kBiasValues));
  ASSIGN_OR_RETURN(const Shape ranks, context.InputShape(kRanks));
  RETURN_IF_ERROR(RequireEqual(context, masks[1], CeilDiv(logits[1], 32), "masks: words"));
  RETURN_IF_ERROR(RequireEqual(context, tokens[0], values[0], "bias_tokens and bias_values"));
  RETURN_IF_ERROR(context.SetOutput(0, DType::kI32, {logits[0]}));
  RETURN_IF_ERROR(context.SetOutput(1, DType::kF32, {logits[0]}));
  RETURN_IF_ERROR(context.SetOutput(2, DType::kI32, {logits[0]}));
  RETURN_IF_ERROR(context.SetOutput(3, DType::kI32, {logits[0], ranks[0]}));
  return context.SetOutput(4, DType::kF32, {logits[0], ranks[0]});
}

// What the scores of a row are and which tokens may be drawn, in f64; drawing itself is the
// skeleton's, whose random numbers the reference does not repeat: rows must be greedy or forced.
class SampleReference {
 public:
  explicit SampleReference(const ReferenceArguments& arguments)
      : arguments_(arguments),
        rows_(Input(kLogits).shape()[0]),
        vocabulary_(Input(kLogits).shape()[1]),
        ranks_(Int64Values(Input(kRanks))) {}

  References Run() const {
    const auto count = static_cast<int64_t>(ranks_.size());
    std::vector<Tensor> outputs(5);
    ASSIGN_OR_RETURN(outputs[0], Tensor::Allocate(DType::kI32, {rows_}));
    ASSIGN_OR_RETURN(outputs[1], Tensor::Allocate(DType::kF32, {rows_}));
    ASSIGN_OR_RETURN(outputs[2], Tensor::Allocate(DType::kI32, {rows_}));
    ASSIGN_OR_RETURN(outputs[3], Tensor::Allocate(DType::kI32, {rows_, count}));
    ASSIGN_OR_RETURN(outputs[4], Tensor::Allocate(DType::kF32, {rows_, count}));
    for (int64_t row = 0; row < rows_; ++row) {
      int64_t token = Integer(row, SampleInteger::kForced);
      if (token < 0) {
        if (Real(row, SampleReal::kTemperature) >= 1e-5) {
          return ReferenceError(arguments_, "rows with a temperature are not followed");
        }
        const std::vector<double> scores = Scores(row);
        token = std::ranges::max_element(scores) - scores.begin();
      }
      outputs[0].SetFromInt64(row, token);
      Tell(row, token, outputs);
    }
    return outputs;
  }

 private:
  const Tensor& Input(size_t i) const { return arguments_.inputs[i]; }
  double Real(int64_t row, SampleReal column) const {
    return Input(kReals).ValueAsDouble(row * kSampleReals + static_cast<int64_t>(column));
  }
  int64_t Integer(int64_t row, SampleInteger column) const {
    return Input(kIntegers).ValueAsInt64(row * kSampleIntegers + static_cast<int64_t>(column));
  }
  double Logit(int64_t row, int64_t token) const {
    return Input(kLogits).ValueAsDouble(row * vocabulary_ + token);
  }
  std::pair<int64_t, int64_t> Entries(size_t ends, int64_t row) const {
    return {row == 0 ? 0 : Input(ends).ValueAsInt64(row - 1), Input(ends).ValueAsInt64(row)};
  }

  std::vector<double> Scores(int64_t row) const {
    std::vector<double> scores(static_cast<size_t>(vocabulary_));
    for (int64_t i = 0; i < vocabulary_; ++i) scores[static_cast<size_t>(i)] = Logit(row, i);
    const auto [bias, bias_end] = Entries(kBiasEnds, row);
    for (int64_t i = bias; i < bias_end; ++i) {
      scores[static_cast<size_t>(Input(kBiasTokens).ValueAsInt64(i))] +=
          Input(kBiasValues).ValueAsDouble(i);
    }
    const auto [entry, end] = Entries(kHistoryEnds, row);
    for (int64_t i = entry; i < end; ++i) {
      double& score = scores[static_cast<size_t>(Input(kHistory).ValueAsInt64(3 * i))];
      const int64_t times = Input(kHistory).ValueAsInt64(3 * i + 2);
      const double repetition = Real(row, SampleReal::kRepetition);
      score = score > 0 ? score / repetition : score * repetition;
      score -= Real(row, SampleReal::kFrequency) * static_cast<double>(times);
      if (times > 0) score -= Real(row, SampleReal::kPresence);
    }
    const int64_t mask = Integer(row, SampleInteger::kMaskRow);
    for (int64_t i = 0; mask >= 0 && i < vocabulary_; ++i) {
      const int64_t word = Input(kMasks).ValueAsInt64(mask * ((vocabulary_ + 31) / 32) + i / 32);
      if ((word >> (i % 32) & 1) == 0) scores[static_cast<size_t>(i)] = -3.4e38;
    }
    return scores;
  }

  void Tell(int64_t row, int64_t token, std::vector<Tensor>& outputs) const {
    const auto count = static_cast<int64_t>(ranks_.size());
    const bool wanted = Integer(row, SampleInteger::kWantsLogprobs) != 0;
    std::vector<int64_t> order(static_cast<size_t>(vocabulary_));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](int64_t a, int64_t b) {
      return Logit(row, a) != Logit(row, b) ? Logit(row, a) > Logit(row, b) : a < b;
    });
    const double most = Logit(row, order[0]);
    double sum = 0;
    for (int64_t i = 0; i < vocabulary_; ++i) sum += std::exp(Logit(row, i) - most);
    const auto logprob = [&](int64_t i) { return Logit(row, i) - most - std::log(sum); };
    int64_t rank = 0;
    for (int64_t i = 0; i < vocabulary_; ++i) rank += Logit(row, i) > Logit(row, token) ? 1 : 0;
    outputs[1].SetFromDouble(row, wanted ? logprob(token) : 0);
    outputs[2].SetFromInt64(row, wanted ? rank : 0);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = ranks_[static_cast<size_t>(i)];
      const bool there = wanted && at >= 0 && at < vocabulary_;
      const int64_t top = there ? order[static_cast<size_t>(at)] : -1;
      outputs[3].SetFromInt64(row * count + i, top);
      outputs[4].SetFromDouble(row * count + i, there ? logprob(top) : -3.4e38);
    }
  }

  const ReferenceArguments& arguments_;
  const int64_t rows_, vocabulary_;
  const std::vector<int64_t> ranks_;
};

References RunSampleReference(const ReferenceArguments& arguments) {
  return SampleReference(arguments).Run();
}

absl::Status LowerSample(LowerContext& context) {
  const Node& node = context.node();
  const DimExpr rows = context.InputShape(kLogits)[0];
  const DimExpr vocabulary = context.InputShape(kLogits)[1];
  constexpr int64_t kLanes = 16, kScoreBytes = 4, kCandidateBytes = 8;
  Library library = {.skeleton = "sample",
                     .dims = {vocabulary, context.InputShape(kRanks)[0]},
                     .tasks = rows,
                     .scratch_bytes = CeilDiv(vocabulary, kLanes) * (kLanes * kScoreBytes) +
                                      vocabulary * (2 * kCandidateBytes)};
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    library.operands.push_back({.dtype = context.input(i).dtype, .shape = context.InputShape(i)});
  }
  std::vector<ValueId> outputs;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Value& output = context.output(i);
    library.outputs.push_back({.dtype = output.dtype, .shape = *output.shape});
    outputs.push_back(node.outputs[i]);
  }
  context.EmitLibrary(std::move(library), node.inputs, std::move(outputs));
  return absl::OkStatus();
}

}  // namespace

std::span<const OpDefinition> SampleOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "Sample",
       .domain = "stampmill",
       .min_inputs = kInputCount,
       .max_inputs = kInputCount,
       .min_outputs = 5,
       .max_outputs = 5,
       .infer = InferSample,
       .reference = RunSampleReference,
       .variants = kNest<LowerSample>},
  };
  return kOps;
}

}  // namespace stampmill
