// From a GGUF file to a language model's source and graph.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/gguf/reader.h"
#include "compiler/language/source.h"

namespace stampmill {

// Facts and weights under the names that architectures use; weights are views into the file, which
// they keep alive. UNIMPLEMENTED for a weight of a type that Stampmill does not know, by number.
absl::StatusOr<LanguageModelSource> SourceOf(std::shared_ptr<const GgufFile> file);

}  // namespace stampmill
