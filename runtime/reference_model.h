// ReferenceModel: a model file read and interpreted in this process, with plain loops and without
// compiler or cache: what `run --verify` compares with and `inspect` describes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/dtype.h"
#include "graph/graph.h"
#include "graph/tensor.h"
#include "kernels/op.h"

namespace stampmill {

// Owned by one thread.
class ReferenceModel {
 public:
  // NOT_FOUND, INVALID_ARGUMENT and UNIMPLEMENTED as the importer and the shape rules say.
  static absl::StatusOr<ReferenceModel> Open(const std::string& path);

  const Graph& graph() const { return graph_; }
  const std::vector<std::string>& external_files() const { return external_files_; }

  // One inference: inputs by name, all of them; results in the order of the model's outputs, under
  // output_names(). INVALID_ARGUMENT names an input that is missing.
  absl::StatusOr<std::vector<Tensor>> Run(const std::map<std::string, Tensor>& inputs,
                                          const InterpretOptions& options = {}) const;
  const std::vector<std::string>& output_names() const { return graph_.output_names(); }

 private:
  Graph graph_;
  std::vector<std::string> external_files_;
};

struct InspectedTensor {
  std::string name;
  std::string dtype;
  std::vector<std::string> shape;  // numbers and symbols
};
struct InspectedOperator {
  std::string domain;  // "" is ai.onnx
  std::string op_type;
  int64_t count = 0;
  bool supported = false;
  std::string reason;  // why not
};
struct ModelInspection {
  std::string name, producer;
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets;
  std::vector<InspectedTensor> inputs, outputs;
  std::vector<InspectedOperator> operators;
  int64_t parameters = 0;  // elements of initialisers
  uint64_t parameter_bytes = 0;
  std::vector<std::string> external_files;
  // Of the compiled form; only when `problem` is empty.
  std::string problem;  // why the model cannot be compiled
  int64_t kernels = 0;
  int64_t launches = 0;
  uint64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;  // for one request with every open dim 1
  std::string batch_symbol;     // requests can be put together along it
  std::string batch_reason;     // why not
};

// Reads the model and runs the passes for `target` and with `options`, as ParsePassOptions has
// them, generating no code. A model with operators that are not supported is described all the
// same.
absl::StatusOr<ModelInspection> InspectModel(const std::string& path, absl::string_view target,
                                             absl::string_view options);

}  // namespace stampmill
