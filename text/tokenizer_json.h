// Tokenizers of Hugging Face's `tokenizers` library: the file tokenizer.json, as a TokenizerSpec.
//
// Everything that changes ids is honoured or refused by name: normalizers, pre-tokenizers, models
// (BPE, Unigram, WordPiece), post-processors, added tokens. Truncation and padding are the caller's
// business and are not read.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/tokenizer_spec.h"

namespace stampmill {

// The largest known file has 33 MB.
inline constexpr size_t kTokenizerJsonBytesMax = size_t{256} << 20;

// INVALID_ARGUMENT: no JSON, or fields of the wrong type, with their path. UNIMPLEMENTED: a kind or
// an option that is not known, by name.
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(absl::string_view json);

// Adds what tokenizer_config.json, beside it, says: which tokens are bos, eos and padding, each a
// text or an object with `content`. INVALID_ARGUMENT also for one that is no token.
absl::Status ParseTokenizerConfigJson(absl::string_view json, TokenizerSpec* spec);

}  // namespace stampmill
