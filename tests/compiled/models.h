// Blocks of networks as people serve them, with symbolic dims: what tests of compiled models run.
// All weights are random and fixed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/tensor.h"

namespace stampmill {

struct BlockModel {
  std::string name;
  std::function<Graph()> make;
  // Random inputs of `batch` rows; `length` is the other dim that a request chooses.
  std::function<std::vector<Tensor>(int64_t batch, int64_t length)> inputs;
};

// - TransformerBlock: x [N, S, 24] and mask [N, S]; masked attention of 3 heads, GELU, residuals.
// - ConvolutionBlock: x [N, 3, L, L]; stem, depthwise, squeeze and excitation, residual,
// classifier.
// - NormalizationChain: x [N, L]; softmax, layer normalisation and means over rows, no product.
std::vector<BlockModel> BlockModels();

}  // namespace stampmill
