#include "compiler/language/architectures.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/language/decoder.h"
#include "compiler/language/transformer.h"

namespace stampmill {
namespace {

using Architecture = ValueId (*)(TransformerBuilder&);

// By the names of GGUF.
constexpr std::pair<absl::string_view, Architecture> kArchitectures[] = {
    {"gemma", BuildGemma},   {"gemma2", BuildGemma2},   {"gemma3", BuildGemma3},
    {"gpt2", BuildGpt2},     {"granite", BuildLlama},   {"llama", BuildLlama},
    {"mistral", BuildLlama}, {"phi3", BuildPhi3},       {"qwen2", BuildQwen2},
    {"qwen3", BuildQwen3},   {"smollm3", BuildSmolLm3}, {"starcoder2", BuildStarcoder2},
};

}  // namespace

absl::StatusOr<Graph> BuildLanguageModel(const LanguageModelSource& source) {
  for (const auto& [name, build] : kArchitectures) {
    if (name != source.architecture) continue;
    TransformerBuilder builder(source);
    const ValueId logits = build(builder);
    return std::move(builder).Finish(logits);
  }
  return absl::UnimplementedError(absl::StrCat(
      "architecture '", source.architecture,
      "' is not supported; those that are: ", absl::StrJoin(KnownArchitectures(), ", ")));
}

std::vector<std::string> KnownArchitectures() {
  std::vector<std::string> names;
  for (const auto& [name, build] : kArchitectures) names.emplace_back(name);
  return names;
}

}  // namespace stampmill
