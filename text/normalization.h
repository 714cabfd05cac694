// What a tokenizer does to a text before it is cut: the list of Normalizers in its spec, in order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/character_map.h"
#include "text/regex.h"
#include "text/tokenizer_spec.h"

namespace stampmill {

// Immutable, thread-safe.
class Normalization {
 public:
  static constexpr size_t kStepsMax = 32;
  // The normal form of a text, and what replacements make of it, in all.
  static constexpr size_t kBytesMax = size_t{64} << 20;

  // Errors of Regex::Compile and CharacterMap::Create.
  static absl::StatusOr<Normalization> Create(const std::vector<Normalizer>& steps);

  // RESOURCE_EXHAUSTED: more than kBytesMax, or a pattern that reads the text over and over.
  absl::StatusOr<std::string> Apply(absl::string_view text) const;

 private:
  struct Step {
    Normalizer spec;
    std::unique_ptr<const Regex> regex;       // kReplace
    std::unique_ptr<const CharacterMap> map;  // kCharacterMap
  };

  static absl::StatusOr<std::string> Replace(const Step& step, absl::string_view text);
  static absl::StatusOr<std::string> ApplyStep(const Step& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace stampmill
