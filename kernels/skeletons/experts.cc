// Which tokens chose an expert, by expert.
#include "kernels/skeletons/skeleton.h"

namespace stampmill {

// Configuration: experts, 1 for choices of i64 (0: i32). Dims: tokens, choices of one. Buffers:
// chosen [tokens, choices], pairs i32 [experts, tokens], counts i32 [experts]. One task.
STAMPMILL_SKELETON(group_by_expert) {
  const int64_t experts = configuration[0], tokens = dims[0];
  auto* pairs = static_cast<int32_t*>(buffers[1]);
  auto* counts = static_cast<int32_t*>(buffers[2]);
  for (int64_t expert = 0; expert < experts; ++expert) counts[expert] = 0;
  for (int64_t i = 0; i < experts * tokens; ++i) pairs[i] = 0;
  for (int64_t pair = 0; pair < tokens * dims[1]; ++pair) {
    const int64_t expert = configuration[1] != 0 ? static_cast<const int64_t*>(buffers[0])[pair]
                                                 : static_cast<const int32_t*>(buffers[0])[pair];
    if (expert < 0 || expert >= experts || counts[expert] == tokens) continue;
    pairs[expert * tokens + counts[expert]++] = static_cast<int32_t>(pair);
  }
}

}  // namespace stampmill
