#include "compiler/language/architectures.h"

#include <iterator>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compiler/language/decoder.h"
#include "compiler/language/transformer.h"

namespace stampmill {
namespace {

using Build = ValueId (*)(TransformerBuilder&);

struct Architecture {
  absl::string_view name;  // GGUF's
  Build build;
  bool is_encoder = false;  // made to embed texts
};

constexpr Architecture kArchitectures[] = {
    {"bert", BuildBert, true},
    {"gemma", BuildGemma},
    {"gemma2", BuildGemma2},
    {"gemma3", BuildGemma3},
    {"gpt2", BuildGpt2},
    {"granite", BuildLlama},
    {"llama", BuildLlama},
    {"mistral", BuildLlama},
    {"nomic-bert", BuildNomicBert, true},
    {"phi3", BuildPhi3},
    {"qwen2", BuildQwen2},
    {"qwen2moe", BuildQwen2Moe},
    {"qwen3", BuildQwen3},
    {"qwen3moe", BuildQwen3Moe},
    {"smollm3", BuildSmolLm3},
    {"starcoder2", BuildStarcoder2},
};

// By GGUF's number of what becomes of the rows of a text's tokens; TransformerBuilder has the
// names.
constexpr absl::string_view kPoolings[] = {"each", "mean", "first", "last"};
constexpr int64_t kPoolingRank = 4;

template <typename T>
absl::StatusOr<T> FactOr(const LanguageModelSource& source, absl::string_view name, T otherwise) {
  const auto found = source.facts.find(name);
  if (found == source.facts.end()) return otherwise;
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  return absl::InvalidArgumentError(absl::StrCat("fact ", name, ": has the wrong type"));
}

absl::StatusOr<ModelTask> TaskOf(const LanguageModelSource& source, bool is_encoder) {
  ASSIGN_OR_RETURN(const int64_t pooling, FactOr<int64_t>(source, "pooling_type", 0));
  ASSIGN_OR_RETURN(const bool causal, FactOr<bool>(source, "attention.causal", !is_encoder));
  if (pooling == kPoolingRank) {
    return absl::UnimplementedError(
        "fact pooling_type: got 4 (rank), supported are 0 (none), 1 (mean), 2 (cls), 3 (last)");
  }
  if (pooling < 0 || pooling >= std::ssize(kPoolings)) {
    return absl::InvalidArgumentError(
        absl::StrCat("fact pooling_type: got ", pooling, ", limit ", std::ssize(kPoolings) - 1));
  }
  return ModelTask{.embeds = is_encoder || pooling != 0 || !causal,
                   .sees_all = !causal,
                   .pooling = kPoolings[pooling]};
}

}  // namespace

absl::StatusOr<Graph> BuildLanguageModel(const LanguageModelSource& source) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name != source.architecture) continue;
    ASSIGN_OR_RETURN(const ModelTask task, TaskOf(source, architecture.is_encoder));
    TransformerBuilder builder(source, task);
    const ValueId result = architecture.build(builder);
    return std::move(builder).Finish(result);
  }
  return absl::UnimplementedError(absl::StrCat(
      "architecture '", source.architecture,
      "' is not supported; those that are: ", absl::StrJoin(KnownArchitectures(), ", ")));
}

std::vector<std::string> KnownArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

}  // namespace stampmill
