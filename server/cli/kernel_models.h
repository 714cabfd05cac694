// Small ONNX models of one operator each, written to order: what `bench kernel` compiles and runs,
// so that it measures the product's own path from model file to launch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/block_format.h"
#include "graph/dtype.h"

namespace stampmill {

struct KernelModelTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

struct KernelModel {
  std::string name;  // "matmul 512x512x512"
  std::string op_type;
  DType dtype = DType::kF32;
  std::vector<KernelModelTensor> inputs;   // of the model, in the operator's order
  std::vector<KernelModelTensor> weights;  // initialisers with random contents, after the inputs
  std::vector<std::string> attributes;     // "axis=i:-1", "kernel_shape=is:3,3"
  // The model's first input and its output have four dims, the channels last, as between the
  // operators of a compiled network; transposes stand around the operator, for the compiler to
  // drop.
  bool channels_last = false;
  // The weights are rows of blocks of this format, and the operator a product with each row.
  std::optional<BlockFormat> blocks;
  double flops = 0;  // 0: memory decides
  double bytes = 0;  // read and written at least once
};

// The table of `bench kernel`.
std::vector<KernelModel> AllKernelModels();

// The bytes of an ONNX file (IR version 8, opset 17, with our own operators for blocks). Weights
// follow from `seed`.
std::string SerializeKernelModel(const KernelModel& model, uint64_t seed);

}  // namespace stampmill
