#include "runtime/testing/toy_language_model.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "compiler/program/program.h"
#include "devices/testing/test_kernels.h"
#include "devices/testing/toy_language.h"
#include "graph/dim.h"
#include "graph/dtype.h"

namespace stampmill {
namespace {

// Symbols, which are the first dims.
enum Symbol : int32_t {
  kTokens,
  kSequences,
  kColumns,
  kOutputs,
  kHistory,
  kBiases,
  kMasks,
  kRanks,
  kBlocks,
  kSymbols,
};
constexpr const char* kSymbolNames[kSymbols] = {
    "tokens", "sequences", "columns", "outputs", "history", "biases", "masks", "ranks", "blocks"};

struct Like {
  const char* name;
  DType dtype;
  Symbol rows;
  int64_t columns = 0;  // 0: of rank 1; below: the symbol -columns
};
constexpr Like kInputs[] = {{"tokens", DType::kI32, kTokens},
                            {"positions", DType::kI32, kTokens},
                            {"sequences", DType::kI32, kTokens},
                            {"tables", DType::kI32, kSequences, -kColumns},
                            {"outputs", DType::kI32, kOutputs},
                            {"reals", DType::kF32, kOutputs, 8},
                            {"integers", DType::kI32, kOutputs, 4},
                            {"seeds", DType::kI64, kOutputs, 2},
                            {"history_ends", DType::kI32, kOutputs},
                            {"history", DType::kI32, kHistory, 3},
                            {"bias_ends", DType::kI32, kOutputs},
                            {"bias_tokens", DType::kI32, kBiases},
                            {"bias_values", DType::kF32, kBiases},
                            {"masks", DType::kI32, kMasks, (kToyVocabulary + 31) / 32},
                            {"ranks", DType::kI32, kRanks},
                            {"keys", DType::kI64, kBlocks, kBlockTokens}};
constexpr Like kResults[] = {{"next_tokens", DType::kI32, kOutputs},
                             {"logprobs", DType::kF32, kOutputs},
                             {"token_ranks", DType::kI32, kOutputs},
                             {"top_tokens", DType::kI32, kOutputs, -kRanks},
                             {"top_logprobs", DType::kF32, kOutputs, -kRanks}};

class ToyProgram {
 public:
  Program Make(bool steps_at_once) {
    program_.model_name = "toy";
    program_.target = "cpu:x86-64";
    program_.batch_reason = "it computes several sequences as it is";
    program_.artifacts = {Sha256({})};
    for (int32_t s = 0; s < kSymbols; ++s) {
      program_.symbols.emplace_back(kSymbolNames[s]);
      program_.dims.push_back({.kind = DimExpr::Kind::kSymbol, .value = s});
    }
    ProgramCommand step{.artifact = 0, .entry = "language", .label = "Language"};
    for (const Like& like : kInputs) step.buffers.push_back(Add(like, true));
    for (const Like& like : kResults) step.buffers.push_back(Add(like, false));
    program_.states = 1;
    step.dims = {kTokens, kColumns, kRanks, Constant(kToyVocabulary), kOutputs};
    step.tasks_place = Constant(1);
    if (steps_at_once) step.flops_place = Constant(1);
    program_.commands = {std::move(step)};
    program_.segments = {{.device_kind = "cpu", .first_command = 0, .command_count = 1}};
    return std::move(program_);
  }

 private:
  int32_t Constant(int64_t value) {
    program_.dims.push_back({.kind = DimExpr::Kind::kConstant, .value = value});
    return static_cast<int32_t>(program_.dims.size()) - 1;
  }
  int32_t Times(int32_t a, int32_t b) {
    program_.dims.push_back({.kind = DimExpr::Kind::kMul, .a = a, .b = b});
    return static_cast<int32_t>(program_.dims.size()) - 1;
  }

  // Its buffer.
  int32_t Add(const Like& like, bool is_input) {
    std::vector<ProgramTensor>& list = is_input ? program_.inputs : program_.outputs;
    const auto buffer = static_cast<int32_t>(program_.buffers.size());
    std::vector<ProgramDim> shape = {{.place = like.rows}};
    int32_t size = Times(like.rows, Constant(static_cast<int64_t>(SizeBytes(like.dtype))));
    if (like.columns > 0) {
      shape.push_back({.fixed = like.columns});
      size = Times(size, Constant(like.columns));
    } else if (like.columns < 0) {
      shape.push_back({.place = static_cast<int32_t>(-like.columns)});
      size = Times(size, static_cast<int32_t>(-like.columns));
    }
    program_.buffers.push_back(
        {.kind = is_input ? ProgramBuffer::Kind::kInput : ProgramBuffer::Kind::kOutput,
         .size_place = size,
         .index = static_cast<int32_t>(list.size())});
    list.push_back({.name = like.name, .dtype = like.dtype, .dims = shape, .buffer = buffer});
    return buffer;
  }

  Program program_;
};

}  // namespace

absl::StatusOr<ModelImage> MakeToyLanguageModel(bool steps_at_once) {
  ModelImage image;
  image.program = ToyProgram().Make(steps_at_once);
  ASSIGN_OR_RETURN(Artifact kernels, TestKernels());
  image.artifacts.push_back(std::move(kernels));
  return image;
}

ToyText ExpectedToyText(std::span<const int32_t> prompt, const SamplingParameters& sampling,
                        const StopConditions& stop) {
  const auto prompt_size = static_cast<int32_t>(prompt.size());
  ToyText text = {.tokens = {prompt.begin(), prompt.end()}, .logprobs = {}};
  std::map<int32_t, std::pair<int32_t, int32_t>> seen;  // in the prompt, times generated
  for (const int32_t token : prompt) seen[token] = {1, 0};
  std::string tail;
  uint64_t context = 0;
  for (int32_t at = 0;; ++at) {
    const int32_t last = text.tokens[static_cast<size_t>(at)];
    const uint64_t key = ToyKey(context, last);
    context = ToyFold(context, key);
    const uint64_t plain = ToyState(key, last, sampling.temperature > 0, sampling.seed, at + 1);
    if (at + 1 < prompt_size) {
      text.logprobs.push_back(ToyScore(plain, text.tokens[static_cast<size_t>(at) + 1]));
      continue;
    }
    const int32_t generated = at + 1 - prompt_size;
    const auto stops = [&](int32_t token) {
      return std::ranges::find(stop.tokens, token) != stop.tokens.end();
    };
    uint64_t state = plain;
    if (sampling.HasPenalties()) {
      for (const auto& [token, times] : seen) {
        state = ToySeen(state, token, times.first, times.second);
      }
    }
    int32_t next = -1;
    for (int32_t token = 0; token < kToyVocabulary; ++token) {
      if (generated < stop.tokens_min && stops(token)) continue;
      if (next < 0 || ToyScore(state, token) > ToyScore(state, next)) next = token;
    }
    ++seen[next].second;
    text.tokens.push_back(next);
    text.logprobs.push_back(ToyScore(plain, next));
    tail += static_cast<char>('a' + next);
    const bool may_stop = generated + 1 > stop.tokens_min;
    if (may_stop && stops(next)) {
      text.reason = FinishReason::kStopToken;
      return text;
    }
    for (const std::string& wanted : stop.texts) {
      if (may_stop && tail.ends_with(wanted)) {
        text.reason = FinishReason::kStopText;
        return text;
      }
    }
    if (generated + 1 >= stop.tokens_max) {
      text.reason = FinishReason::kLength;
      return text;
    }
  }
}

}  // namespace stampmill
