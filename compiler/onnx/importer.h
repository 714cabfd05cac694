// From an ONNX model file to a Graph.
//
// Operators come in the form of the newest opset (upgrade.h). Constant nodes and initialisers are
// constant values that share the file's mapping; Identity is gone; calls of the model's own
// functions are replaced by what is in them; bodies of If, Loop and Scan are graphs in attributes
// whose captures are explicit (graph/graph.h). An initialiser that is listed as an input too is a
// constant. Named dims are symbols, the same name the same symbol; a dim without name or size is a
// symbol of its own, "input.axis". Shapes that the file declares for anything but graph inputs are
// not used: they are often wrong.
//
// A file is not trusted. INVALID_ARGUMENT says what is wrong with it and where; UNIMPLEMENTED names
// what Stampmill lacks: element types, sequences, sparse tensors, opsets. Operators are not judged
// here: shape inference knows which there are.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace stampmill {

struct ImportedModel {
  Graph graph;
  // Files that weights were found in, relative to the folder of the model file, sorted.
  std::vector<std::string> external_files;
};

// The file stays mapped as long as a constant of the graph lives.
absl::StatusOr<ImportedModel> ImportOnnx(const std::string& path);

// From memory, kept alive by `owner`. External data is INVALID_ARGUMENT: there is no folder.
absl::StatusOr<ImportedModel> ImportOnnxBytes(std::span<const std::byte> bytes,
                                              std::shared_ptr<const void> owner);

// The tensor in a file that holds one TensorProto (test data of the ONNX project).
absl::StatusOr<Tensor> ReadOnnxTensorFile(const std::string& path);

}  // namespace stampmill
