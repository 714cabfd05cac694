// From a folder of a language model in Hugging Face's layout (config.json, *.safetensors) to a
// source: facts and weights under GGUF's names, so that the same architectures serve both.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/language/source.h"

namespace stampmill {

struct HuggingFaceModel {
  LanguageModelSource source;
  std::vector<std::string> files;  // read besides config.json, in the folder, sorted
};

// UNIMPLEMENTED for a model_type that is not known, with those that are; INVALID_ARGUMENT for what
// is wrong with a file, which it names.
absl::StatusOr<HuggingFaceModel> ReadHuggingFaceFolder(const std::string& folder);

}  // namespace stampmill
