#include "runtime/language_step.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/dtype.h"
#include "kernels/sample.h"

namespace stampmill {
namespace {

// Inputs of the program in its order, before the states.
enum : size_t {
  kTokens,
  kPositions,
  kSequences,
  kTables,
  kOutputs,
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
constexpr std::array<absl::string_view, kInputCount> kInputNames = {
    "tokens",    "positions",   "sequences",   "tables",       "outputs",
    "reals",     "integers",    "seeds",       "history_ends", "history",
    "bias_ends", "bias_tokens", "bias_values", "masks",        "ranks"};
enum : size_t { kNextTokens, kLogprobs, kTokenRanks, kTopTokens, kTopLogprobs, kOutputCount };
constexpr std::array<absl::string_view, kOutputCount> kOutputNames = {
    "next_tokens", "logprobs", "token_ranks", "top_tokens", "top_logprobs"};

template <typename T>
BufferRef Ref(std::span<T> values) {
  return {reinterpret_cast<uint64_t>(values.data()), values.size_bytes()};
}

// Elements of a state in one block: the product of its dims but the first.
absl::StatusOr<int64_t> BlockElements(const ModelTensor& state) {
  int64_t elements = 1;
  for (size_t d = 1; d < state.dims.size(); ++d) {
    if (state.dims[d] <= 0 || __builtin_mul_overflow(elements, state.dims[d], &elements)) {
      return absl::InvalidArgumentError(
          absl::StrCat("state '", state.name, "': dim ", d, ": got ", state.dims[d]));
    }
  }
  return elements;
}

}  // namespace

absl::StatusOr<HostPages> HostPages::Map(size_t size_bytes) {
  void* const memory = mmap(nullptr, std::max<size_t>(size_bytes, 1), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cache of keys and values: no memory for ", size_bytes, " bytes"));
  }
  // Huge pages would be taken whole for a few blocks each.
  madvise(memory, size_bytes, MADV_NOHUGEPAGE);
  return HostPages({static_cast<std::byte*>(memory), size_bytes});
}

HostPages::~HostPages() {
  if (bytes_.data() != nullptr) munmap(bytes_.data(), std::max<size_t>(bytes_.size(), 1));
}

void SamplingRows::Clear() {
  reals.clear();
  integers.clear();
  seeds.clear();
  history_ends.clear();
  history.clear();
  bias_ends.clear();
  bias_tokens.clear();
  bias_values.clear();
  masks.clear();
  ranks.clear();
}

absl::StatusOr<LanguageStep::Facts> LanguageStep::FactsOf(const Model& model) {
  const auto states = static_cast<size_t>(model.program().states);
  const auto error = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("not a language model: ", what));
  };
  if (states == 0 || model.inputs().size() != kInputCount + states ||
      model.outputs().size() != kOutputCount) {
    return error("its inputs, states or outputs are others");
  }
  for (size_t i = 0; i < kInputCount; ++i) {
    if (model.inputs()[i].name != kInputNames[i]) {
      return error(absl::StrCat("input '", model.inputs()[i].name, "'"));
    }
  }
  for (size_t i = 0; i < kOutputCount; ++i) {
    if (model.outputs()[i].name != kOutputNames[i]) {
      return error(absl::StrCat("output '", model.outputs()[i].name, "'"));
    }
  }
  Facts facts{.mask_words = model.inputs()[kMasks].dims[1]};
  for (size_t i = kInputCount; i < model.inputs().size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t elements, BlockElements(model.inputs()[i]));
    facts.kv_bytes_of_block += elements * static_cast<int64_t>(SizeBytes(model.inputs()[i].dtype));
  }
  return facts;
}

absl::StatusOr<std::unique_ptr<LanguageStep>> LanguageStep::Create(const Model* model,
                                                                   int64_t kv_blocks) {
  ASSIGN_OR_RETURN(const Facts facts, FactsOf(*model));
  auto step = std::unique_ptr<LanguageStep>(new LanguageStep(facts));
  ASSIGN_OR_RETURN(step->states_, CacheStates::Allocate(*model, kInputCount, kv_blocks));
  step->shapes_.resize(kInputCount);
  for (const TensorShape& shape : step->states_->shapes()) step->shapes_.push_back(shape);
  for (TensorShape& shape : step->shapes_) step->shape_pointers_.push_back(&shape);
  step->inputs_.resize(kInputCount);
  ASSIGN_OR_RETURN(step->step_, ModelStep::Create(model, 0, nullptr));
  return step;
}

absl::StatusOr<std::unique_ptr<CacheStates>> CacheStates::Allocate(const Model& model, size_t first,
                                                                   int64_t kv_blocks) {
  auto states = std::make_unique<CacheStates>();
  Device& device = *model.device();
  for (size_t i = first; i < model.inputs().size(); ++i) {
    const ModelTensor& state = model.inputs()[i];
    std::vector<int64_t> dims = state.dims;
    dims[0] = kv_blocks;
    ASSIGN_OR_RETURN(states->shapes_.emplace_back(), TensorShape::From(dims));
    ASSIGN_OR_RETURN(const int64_t elements, BlockElements(state));
    const auto block_bytes = static_cast<size_t>(elements) * SizeBytes(state.dtype);
    const size_t bytes = block_bytes * static_cast<size_t>(kv_blocks);
    if (device.info().host_memory) {
      ASSIGN_OR_RETURN(HostPages pages, HostPages::Map(bytes));
      ASSIGN_OR_RETURN(Buffer buffer, device.Import(pages.bytes(), true));
      states->pages_.push_back(std::move(pages));
      states->buffers_.push_back(std::move(buffer));
    } else {
      ASSIGN_OR_RETURN(Buffer buffer, device.Allocate(bytes));
      states->buffers_.push_back(std::move(buffer));
    }
  }
  return states;
}

void CacheStates::Bind(ModelStep& step, size_t first) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    step.BindInput(static_cast<int32_t>(first + i),
                   {buffers_[i].address(), buffers_[i].size_bytes()});
  }
}

absl::Status LanguageStep::Begin(const StepTokens& tokens, const SamplingRows& rows,
                                 LanguageResults& results) {
  const auto bind = [&](size_t input, const auto& values, int64_t columns) -> absl::Status {
    const auto count = static_cast<int64_t>(values.size());
    // Rank 1 has no columns.
    if (columns == 0) {
      ASSIGN_OR_RETURN(shapes_[input], TensorShape::From({{count}}));
    } else {
      ASSIGN_OR_RETURN(shapes_[input], TensorShape::From({{count / columns, columns}}));
    }
    inputs_[input] = Ref(std::span(values));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(bind(kTokens, tokens.tokens, 0));
  RETURN_IF_ERROR(bind(kPositions, tokens.positions, 0));
  RETURN_IF_ERROR(bind(kSequences, tokens.sequences, 0));
  RETURN_IF_ERROR(bind(kTables, tokens.tables, std::max<int64_t>(tokens.blocks_per_row, 1)));
  RETURN_IF_ERROR(bind(kOutputs, tokens.outputs, 0));
  RETURN_IF_ERROR(bind(kReals, rows.reals, kSampleReals));
  RETURN_IF_ERROR(bind(kIntegers, rows.integers, kSampleIntegers));
  RETURN_IF_ERROR(bind(kSeeds, rows.seeds, 2));
  RETURN_IF_ERROR(bind(kHistoryEnds, rows.history_ends, 0));
  RETURN_IF_ERROR(bind(kHistory, rows.history, 3));
  RETURN_IF_ERROR(bind(kBiasEnds, rows.bias_ends, 0));
  RETURN_IF_ERROR(bind(kBiasTokens, rows.bias_tokens, 0));
  RETURN_IF_ERROR(bind(kBiasValues, rows.bias_values, 0));
  RETURN_IF_ERROR(bind(kMasks, rows.masks, facts_.mask_words));
  RETURN_IF_ERROR(bind(kRanks, rows.ranks, 0));
  RETURN_IF_ERROR(step_->Begin(shape_pointers_));
  for (size_t i = 0; i < kInputCount; ++i) {
    step_->BindInput(static_cast<int32_t>(i), inputs_[i]);
  }
  states_->Bind(*step_, kInputCount);
  const size_t count = tokens.outputs.size();
  const auto take = [&](size_t output, auto& values, size_t size) {
    values.resize(size);
    step_->BindOutput(static_cast<int32_t>(output), Ref(std::span(values)));
  };
  take(kNextTokens, results.tokens, count);
  take(kLogprobs, results.logprobs, count);
  take(kTokenRanks, results.token_ranks, count);
  take(kTopTokens, results.top_tokens, count * rows.ranks.size());
  take(kTopLogprobs, results.top_logprobs, count * rows.ranks.size());
  return absl::OkStatus();
}

absl::Status LanguageStep::Submit(Queue& queue, uint64_t signal_value) {
  return step_->Submit(queue, signal_value);
}

}  // namespace stampmill
