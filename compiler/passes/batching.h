// Whether requests may be put together along dim 0: proved on the stages, where every
// operator has become loops and loads, so that it holds for what will run and needs no list of
// operators.
#pragma once

#include <string>

#include "compiler/passes/stage_graph.h"

namespace stampmill {

struct BatchingProof {
  std::string symbol;  // of dim 0 of every input and output; empty: not proved
  std::string reason;  // why not
};

// A value carries the batch when row b of it - the b-th of `batch` equal parts of its bytes -
// depends on row b of the inputs alone. Proved stage by stage: what is written in row b is computed
// from values that carry no batch and from loads within row b.
BatchingProof ProveBatching(const StageGraph& stages);

}  // namespace stampmill
