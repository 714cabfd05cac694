// How a node test becomes a model that can be compiled: node tests feed at run time what models
// have as constants, and say all dims. A case is tried with all of its inputs as inputs of the
// model first; where an operator must know contents or dims when it is compiled, with more of them
// fixed.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/dim.h"
#include "graph/graph.h"
#include "graph/tensor.h"

namespace stampmill {

using Symbols = std::map<std::string, int64_t>;
DimExpr::SymbolValue ValuesOf(const Symbols& symbols);

// Runs one form of a case. `fold`: constant nodes may be folded.
using FormExecutor = std::function<absl::StatusOr<std::vector<Tensor>>(
    Graph graph, std::span<const Tensor> inputs, const Symbols& symbols, bool fold)>;

struct AttemptOptions {
  // A symbol for every extent but 1 of all inputs, or where that does not do of the first one; else
  // the shapes of the case.
  bool is_symbolic = false;
  // With that: a symbol of its own for every extent, 1 too, so that what broadcasts is known only
  // when the model runs.
  bool own_symbols = false;
  // Try without folding first: where all inputs are constants folding leaves nothing to lower.
  bool without_folding = true;
};

// The first result that is neither UNIMPLEMENTED nor INVALID_ARGUMENT: wrong answers and errors of
// ours are not tried again.
absl::StatusOr<std::vector<Tensor>> RunForms(const Graph& graph, std::span<const Tensor> inputs,
                                             const AttemptOptions& options,
                                             const FormExecutor& executor);

}  // namespace stampmill
