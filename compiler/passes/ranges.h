// Ranges: between which numbers the expressions of one stage lie.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "compiler/passes/stage_graph.h"
#include "graph/expr.h"

namespace stampmill {

// Between which numbers a value lies. Where both are known it is an ordinary number; where neither
// is it may be NaN too.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double greatest = std::numeric_limits<double>::infinity();
  // Far from where f32 ends, rounding included.
  bool is_known() const { return least > -1e30 && greatest < 1e30; }
};

class Ranges {
 public:
  // Both are referred to.
  Ranges(const StageGraph& stages, const Stage& stage) : stages_(stages), stage_(stage) {}

  Range Of(const Expr& e);

 private:
  Range Compute(const Expr& e);
  Range OfSelect(const Expr& e);
  Range OfConstant(const Expr& load) const;

  const StageGraph& stages_;
  const Stage& stage_;
  // The expressions are kept: an id is one only as long as its node lives.
  absl::flat_hash_map<const void*, std::pair<Expr, Range>> known_;
};

}  // namespace stampmill
