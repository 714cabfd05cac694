// The architectures of language models: from a source to a graph. Each is one small file, a
// function that says in the words of TransformerBuilder what the model computes; the table is in
// architectures.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/language/source.h"
#include "graph/graph.h"

namespace stampmill {

// UNIMPLEMENTED for an architecture that is not in the table, with those that are;
// INVALID_ARGUMENT for facts and weights that are missing, do not fit, or that the architecture has
// no use for.
absl::StatusOr<Graph> BuildLanguageModel(const LanguageModelSource& source);

// Names in the table, sorted.
std::vector<std::string> KnownArchitectures();

}  // namespace stampmill
