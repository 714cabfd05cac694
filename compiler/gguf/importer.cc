#include "compiler/gguf/importer.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

// Longest list of numbers that is a fact: one for each layer.
constexpr uint64_t kListMax = 4096;

absl::StatusOr<std::optional<SourceFact>> FactOf(const GgufFile& file, absl::string_view key) {
  const GgufValue& value = *file.Find(key);
  switch (value.type) {
    case GgufType::kString: {
      ASSIGN_OR_RETURN(const std::optional<absl::string_view> text, file.String(key));
      return SourceFact(std::string(*text));
    }
    case GgufType::kBool: {
      ASSIGN_OR_RETURN(const std::optional<bool> flag, file.Bool(key));
      return SourceFact(*flag);
    }
    case GgufType::kF32:
    case GgufType::kF64: {
      ASSIGN_OR_RETURN(const std::optional<double> real, file.Float(key));
      return SourceFact(*real);
    }
    case GgufType::kArray: {
      if (value.element == GgufType::kString || value.count > kListMax) return std::nullopt;
      std::vector<double> numbers;
      if (value.element == GgufType::kF32 || value.element == GgufType::kF64) {
        ASSIGN_OR_RETURN(const auto floats, file.Floats(key));
        numbers.assign(floats->begin(), floats->end());
      } else {
        ASSIGN_OR_RETURN(const auto ints, file.Ints(key));
        numbers.assign(ints->begin(), ints->end());
      }
      return SourceFact(std::move(numbers));
    }
    default: {
      ASSIGN_OR_RETURN(const std::optional<int64_t> integer, file.Int(key));
      return SourceFact(*integer);
    }
  }
}

absl::StatusOr<std::variant<DType, BlockFormat>> TypeOf(const GgufTensor& tensor) {
  if (const std::optional<DType> dtype = DTypeFromGgmlType(tensor.type)) return *dtype;
  if (const std::optional<BlockFormat> format = BlockFormatFromGgmlType(tensor.type)) {
    return *format;
  }
  std::string known = "f32, f16, bf16";
  for (int i = 0; i < kBlockFormatCount; ++i) {
    absl::StrAppend(&known, ", ", Name(static_cast<BlockFormat>(i)));
  }
  return absl::UnimplementedError(absl::StrCat("tensor ", tensor.name, ": ggml type ", tensor.type,
                                               " is not supported; those that are: ", known));
}

}  // namespace

absl::StatusOr<LanguageModelSource> SourceOf(std::shared_ptr<const GgufFile> file) {
  LanguageModelSource source;
  ASSIGN_OR_RETURN(const std::optional<absl::string_view> architecture,
                   file->String("general.architecture"));
  if (!architecture.has_value()) {
    return absl::InvalidArgumentError("metadata general.architecture: missing");
  }
  source.architecture = std::string(*architecture);
  ASSIGN_OR_RETURN(const std::optional<absl::string_view> name, file->String("general.name"));
  source.name = std::string(name.value_or(""));
  const std::string prefix = absl::StrCat(source.architecture, ".");
  for (const absl::string_view key : file->keys()) {
    absl::string_view fact = key;
    if (!absl::ConsumePrefix(&fact, prefix)) continue;
    ASSIGN_OR_RETURN(std::optional<SourceFact> value, FactOf(*file, key));
    if (value.has_value()) source.facts.emplace(std::string(fact), *std::move(value));
  }
  for (const GgufTensor& tensor : file->tensors()) {
    ASSIGN_OR_RETURN(const auto type, TypeOf(tensor));
    source.weights.emplace(
        std::string(tensor.name),
        SourceWeight{.shape = tensor.shape, .type = type, .bytes = tensor.bytes, .owner = file});
  }
  const GgufTensor* embedding = file->FindTensor("token_embd.weight");
  source.vocabulary = embedding == nullptr ? 0 : embedding->shape[0];
  return source;
}

}  // namespace stampmill
