// What a GGUF file says of its tokenizer (the keys `tokenizer.ggml.*`), and the spec that follows
// from it: which defaults a kind of model has, how the pre-tokenizer that it names cuts texts,
// which tokens end a generation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/tokenizer_spec.h"

namespace stampmill {

// The keys of one file, each under its own name.
struct GgufVocabulary {
  std::string model;  // "gpt2", "llama", "bert", "t5"
  std::string pre;    // empty where the file has no such key
  TextPool tokens;
  std::vector<float> scores;        // as many as tokens, or none
  std::vector<int32_t> token_type;  // as many as tokens, or none
  TextPool merges;                  // "left right" each
  std::optional<int32_t> bos_token_id, eos_token_id, eot_token_id, eom_token_id, unknown_token_id,
      seperator_token_id, padding_token_id, cls_token_id, mask_token_id;
  std::optional<bool> add_bos_token, add_eos_token, add_sep_token, add_space_prefix,
      remove_extra_whitespaces;
  std::string precompiled_charsmap;
};

// INVALID_ARGUMENT: counts that differ, a token type or merge that is none. UNIMPLEMENTED: a model
// or a pre-tokenizer that is not known, by name.
absl::StatusOr<TokenizerSpec> SpecOfGguf(GgufVocabulary vocabulary);

// How `tokenizer.ggml.pre` cuts texts.
struct GgufPreTokenizer {
  std::vector<absl::string_view> patterns;  // of EcmaScript's dialect, one on the pieces of another
  bool whole_words = false;                 // a piece that is a token needs no merges
  bool adds_bos = false;                    // where the file does not say
  bool adds_separator = false;
};
absl::StatusOr<GgufPreTokenizer> GgufPreTokenizerNamed(absl::string_view name);

}  // namespace stampmill
