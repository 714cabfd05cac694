// From a folder of a language model in Hugging Face's layout (config.json, *.safetensors) to a
// source: facts and weights under GGUF's names, so that the same architectures serve both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/language/source.h"

namespace stampmill {

struct HuggingFaceModel {
  LanguageModelSource source;
  std::vector<std::string> files;  // read besides config.json, in the folder, sorted
};

// What config.json says.
struct HuggingFaceConfig {
  LanguageModelSource source;  // without weights but for those that follow from numbers in there
  bool is_tied = false;        // the output matrix is the embedding's
  int64_t context_tokens = 0;  // 0: not said
  std::vector<int32_t> end_tokens;  // that end a text
};

// INVALID_ARGUMENT and UNIMPLEMENTED as below; errors do not name the file.
absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(absl::string_view text);
absl::StatusOr<HuggingFaceConfig> ReadHuggingFaceConfig(const std::string& folder);

// UNIMPLEMENTED for a model_type that is not known, with those that are; INVALID_ARGUMENT for what
// is wrong with a file, which it names.
absl::StatusOr<HuggingFaceModel> ReadHuggingFaceFolder(const std::string& folder);

}  // namespace stampmill
