// The tokenizer of a GGUF file, for tests and benchmarks of tokenizers, which stand below the
// reader that serves models. Trusts the file: what is malformed ends the program.
#pragma once

#include <string>

#include "text/gguf_vocabulary.h"

namespace stampmill {

GgufVocabulary ReadGgufVocabulary(const std::string& path);

}  // namespace stampmill
