#include "compiler/passes/fuse.h"

#include "compiler/passes/fusion.h"

namespace stampmill {
namespace {

using Rule = bool (*)(Fusion&, int32_t);

bool ApplyEverywhere(Rule rule, Fusion& fusion) {
  bool changed = false;
  for (int32_t s = 0; s < fusion.size(); ++s) {
    while (!fusion.stage(s).removed && rule(fusion, s)) {
      changed = true;
      fusion.Index();
    }
  }
  return changed;
}

}  // namespace

void FuseStages(StageGraph& stages) {
  InlineScalars(stages);
  Fusion fusion(stages);
  // What a map joins decides how well it fuses: first the map or product before it, then its row;
  // only what is left goes into the loops that read it.
  constexpr Rule kFirst[] = {FoldEpilogue, InlineMovement, JoinMaps, FoldEpilogue, JoinRows};
  ApplyEverywhere(InlineConstants, fusion);
  for (bool changed = true; changed;) {
    changed = false;
    for (Rule rule : kFirst) changed |= ApplyEverywhere(rule, fusion);
    if (!changed) changed = ApplyEverywhere(InlineIntoLoops, fusion);
  }
  SimplifyRoundings(stages);
  FoldCodes(stages);
  stages.DropRemoved();
}

}  // namespace stampmill
