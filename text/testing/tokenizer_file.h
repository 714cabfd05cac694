// Specs of tokenizers from files, for tests and benchmarks, which stand below the readers that
// serve models.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "text/tokenizer_spec.h"

namespace stampmill {

// A GGUF file, which is trusted: a malformed one ends the program; or a tokenizer.json. `pre` is
// used instead of the pre-tokenizer that the GGUF file names, unless it is empty.
absl::StatusOr<TokenizerSpec> ReadTokenizerFile(const std::string& path, const std::string& pre);

}  // namespace stampmill
