// Where batch, channels and space lie in an activation. ONNX puts channels before space. The
// operators of domain "stampmill" that have the name of an ONNX operator (Conv, MaxPool, ...) are
// that operator on tensors with channels last: same attributes, same weights, other activations.
// The layout pass swaps one for the other; both forms share shape rule, reference and lowering.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "graph/graph.h"

namespace stampmill {

inline constexpr absl::string_view kOwnDomain = "stampmill";

inline bool ChannelsLast(const Node& node) { return node.domain == kOwnDomain; }

// Axes of an activation [N, C, space...] or [N, space..., C]. REQUIRES: rank >= 2.
struct ActivationAxes {
  size_t rank = 2;
  bool channels_last = false;

  size_t spatial_rank() const { return rank - 2; }
  size_t channel() const { return channels_last ? rank - 1 : 1; }
  size_t spatial(size_t i) const { return channels_last ? 1 + i : 2 + i; }

  // One value for each axis, put in the layout's order.
  template <typename T>
  std::vector<T> Arrange(const T& batch, const T& channel_value,
                         const std::vector<T>& space) const {
    std::vector<T> all = {batch};
    if (!channels_last) all.push_back(channel_value);
    all.insert(all.end(), space.begin(), space.end());
    if (channels_last) all.push_back(channel_value);
    return all;
  }
  // The values at the spatial axes.
  template <typename T>
  std::vector<T> Space(const std::vector<T>& all) const {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(spatial(0));
    return std::vector<T>(first, first + static_cast<std::ptrdiff_t>(spatial_rank()));
  }
};

}  // namespace stampmill
