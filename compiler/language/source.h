// LanguageModelSource: a language model as a file has it, whatever the format: facts and weights by
// name. The names are those of GGUF: facts without the architecture's prefix ("block_count",
// "attention.head_count"), weights as "token_embd.weight", "blk.0.attn_q.weight". Readers of other
// formats translate theirs, so that an architecture is written once (architectures.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "graph/block_format.h"
#include "graph/dtype.h"

namespace stampmill {

// Rows of a matrix are its outputs: [outputs, inputs]. The bytes belong to `owner`.
struct SourceWeight {
  std::vector<int64_t> shape;
  std::variant<DType, BlockFormat> type;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

using SourceFact = std::variant<int64_t, double, bool, std::string, std::vector<double>>;

struct LanguageModelSource {
  std::string architecture;  // GGUF's name: "llama", "qwen2"
  std::string name;          // of the model, for people
  absl::flat_hash_map<std::string, SourceFact> facts;
  absl::flat_hash_map<std::string, SourceWeight> weights;
  int64_t vocabulary = 0;  // rows of the embedding
  // Rows of queries and keys are in the order of Hugging Face's files, in which rotation pairs
  // element i with i + half; GGUF files of some architectures have 2i and 2i + 1 instead.
  bool pairs_halves = false;
};

}  // namespace stampmill
