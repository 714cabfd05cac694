// Inputs of a model from the command line: .npy files by name, or random values that a seed repeats
// on every machine.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/tensor.h"
#include "runtime/model.h"

namespace stampmill {

struct InputFlags {
  std::vector<std::string> inputs;  // NAME=FILE.npy
  std::vector<std::string> shapes;  // NAME=1x3x224x224
  bool random = false;
  uint64_t seed = 0;
  int64_t random_int_max = 1;
};

void AddInputFlags(CLI::App& app, InputFlags& flags);

// One tensor for each input of the model, in its order. Inputs without a file are random if that
// was asked for: floats uniform in [-1, 1), integers in [0, random_int_max], dims that the model
// leaves open from `shapes`, else 1. INVALID_ARGUMENT names the input; what is wrong with the flags
// and not with a file is marked FromFlags.
absl::StatusOr<std::vector<Tensor>> MakeInputs(const InputFlags& flags, const Model& model);

// "1x3x224x224"; "" is a scalar.
absl::StatusOr<std::vector<int64_t>> ParseShape(absl::string_view text);
std::string ShapeText(const std::vector<int64_t>& shape);

// Random contents for a tensor of that type and shape.
absl::StatusOr<Tensor> RandomTensor(DType dtype, const std::vector<int64_t>& shape, uint64_t seed,
                                    int64_t int_max);

}  // namespace stampmill
