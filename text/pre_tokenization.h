// Cuts a text into the pieces that the model of a tokenizer encodes one by one: what the list of
// PreTokenizers in its spec says, one after the other, each on the pieces of the one before.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/regex.h"
#include "text/tokenizer_spec.h"

namespace stampmill {

// Immutable, thread-safe.
class PreTokenization {
 public:
  using Sink = absl::FunctionRef<void(absl::string_view piece)>;

  // More steps than real tokenizers have; they call each other.
  static constexpr size_t kStepsMax = 32;

  // Errors of Regex::Compile, with the step's number.
  static absl::StatusOr<PreTokenization> Create(const std::vector<PreTokenizer>& steps);

  // Calls `sink` with each piece of `text`, which is not empty, in order; a piece is valid during
  // the call. `first`: the text begins the input. RESOURCE_EXHAUSTED where a pattern reads the text
  // too often (Regex::Search::spent).
  absl::Status Split(absl::string_view text, bool first, Sink sink) const;

 private:
  struct Step {
    PreTokenizer spec;
    std::unique_ptr<const Regex> regex;
  };
  struct Segment {
    size_t begin;
    size_t end;
    bool match;
  };

  absl::Status Run(size_t step, absl::string_view piece, bool first, Sink sink) const;
  absl::Status RunSplit(size_t step, absl::string_view piece, bool first, Sink sink) const;
  absl::Status RunMarkSpaces(size_t step, absl::string_view piece, bool first, Sink sink) const;

  std::vector<Step> steps_;
};

}  // namespace stampmill
