// Panels of quantised weights (graph/block_layout.h) as attributes of operators: `format`, `panel`,
// `rows`. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/block_layout.h"
#include "graph/dim.h"
#include "graph/graph.h"

namespace stampmill {

struct Panels {
  BlockLayout layout;
  int64_t rows = 0;
  int64_t k = 0;
  int64_t panel_bytes = 0;
};

// What the attributes and the shape [panels, bytes] say of the panels of a node.
absl::StatusOr<Panels> ReadPanels(const Node& node, const Shape& shape);

// f32 [rows, k].
std::vector<float> UnpackPanels(const Panels& panels, const std::byte* bytes);

}  // namespace stampmill
