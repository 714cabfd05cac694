// LanguageStep: binds one step of a language model (compiler/language/transformer.h says what the
// program takes and gives) to a command list, and owns the memory of the cache of keys and values.
//
// A step computes tokens of several sequences, one sequence's after the other's. Where each token's
// keys and values go, and where those before it lie, is said by block tables; whose block is whose
// is the caller's affair.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/device.h"
#include "runtime/model.h"
#include "runtime/model_step.h"
#include "runtime/request.h"

namespace stampmill {

// The tokens of a step. All of it is borrowed until its work is done.
struct StepTokens {
  // By token.
  std::span<const int32_t> tokens;
  std::span<const int32_t> positions;  // within its sequence, from 0
  std::span<const int32_t> sequences;  // row of `tables`
  // Blocks of each sequence in the order of its positions, `blocks_per_row` columns a row.
  std::span<const int32_t> tables;
  int64_t blocks_per_row = 0;
  std::span<const int32_t> outputs;  // indices of tokens whose results are wanted, ascending
};

// How the next token is chosen behind each output (kernels/sample.h and .cc).
struct SamplingRows {
  std::vector<float> reals;
  std::vector<int32_t> integers;
  std::vector<int64_t> seeds;
  std::vector<int32_t> history_ends, history;
  std::vector<int32_t> bias_ends, bias_tokens;
  std::vector<float> bias_values;
  std::vector<int32_t> masks;  // rows of words
  std::vector<int32_t> ranks;  // which of the likeliest tokens are told

  void Clear();  // keeps capacities
};

// What a step gives, by output.
struct LanguageResults {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<int32_t> token_ranks;
  std::vector<int32_t> top_tokens;  // [outputs, ranks]
  std::vector<float> top_logprobs;  // likewise
};

// Anonymous memory of zeros, a page of it taken when it is first written. Move-only.
class HostPages {
 public:
  static absl::StatusOr<HostPages> Map(size_t size_bytes);
  HostPages(HostPages&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  HostPages& operator=(HostPages&&) = delete;
  ~HostPages();
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit HostPages(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

// The memory of a model's states, in blocks of the cache. On devices that share the host's memory
// in a mapping of its own, whose pages are there once they are written to, and no more of them than
// are.
class CacheStates {
 public:
  // States are the model's inputs from `first` on. RESOURCE_EXHAUSTED when there is not so much
  // memory, INVALID_ARGUMENT for states that are no cache.
  static absl::StatusOr<std::unique_ptr<CacheStates>> Allocate(const Model& model, size_t first,
                                                               int64_t kv_blocks);

  const std::vector<TensorShape>& shapes() const { return shapes_; }
  // As inputs from `first` on.
  void Bind(ModelStep& step, size_t first) const;

 private:
  std::vector<TensorShape> shapes_;
  std::vector<HostPages> pages_;
  std::vector<Buffer> buffers_;
};

// Owned by one thread. One step at a time.
class LanguageStep {
 public:
  // What a program of a language model is like. INVALID_ARGUMENT for another program.
  struct Facts {
    int64_t mask_words = 0;         // of one row of SamplingRows::masks
    int64_t kv_bytes_of_block = 0;  // of the cache, in all layers
  };
  static absl::StatusOr<Facts> FactsOf(const Model& model);

  // `model` is borrowed. A cache of `kv_blocks` blocks, of which memory is taken when it is written
  // to. RESOURCE_EXHAUSTED when there is not so much.
  static absl::StatusOr<std::unique_ptr<LanguageStep>> Create(const Model* model,
                                                              int64_t kv_blocks);

  // Binds a step. `rows` must stay as they are until its work is done; `results` are sized here and
  // written by it. REQUIRES: tokens are within the vocabulary, blocks within the cache, rows are as
  // many as outputs.
  absl::Status Begin(const StepTokens& tokens, const SamplingRows& rows, LanguageResults& results);
  absl::Status Submit(Queue& queue, uint64_t signal_value);

  const Facts& facts() const { return facts_; }
  ModelStep& step() { return *step_; }

 private:
  explicit LanguageStep(Facts facts) : facts_(facts) {}

  const Facts facts_;
  std::unique_ptr<CacheStates> states_;
  std::unique_ptr<ModelStep> step_;
  std::vector<TensorShape> shapes_;
  std::vector<const TensorShape*> shape_pointers_;
  std::vector<BufferRef> inputs_;
};

}  // namespace stampmill
