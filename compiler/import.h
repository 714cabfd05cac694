// From a model file of any format to a Graph.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/onnx/importer.h"

namespace stampmill {

// FOLDER/config.json stands for a folder of Hugging Face's layout; a GGUF file is known by its
// first bytes; what is neither is taken for ONNX. Errors are the importers'.
absl::StatusOr<ImportedModel> ImportModel(const std::string& path);

}  // namespace stampmill
