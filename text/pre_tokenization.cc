#include "text/pre_tokenization.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"

namespace stampmill {

absl::StatusOr<PreTokenization> PreTokenization::Create(const std::vector<PreTokenizer>& steps) {
  PreTokenization result;
  if (steps.size() > kStepsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("pre-tokenizers: got ", steps.size(), ", limit ", kStepsMax));
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    Step step = {.spec = steps[i], .regex = nullptr};
    if (steps[i].kind == PreTokenizer::Kind::kSplit) {
      auto regex = Regex::Compile(steps[i].pattern, steps[i].dialect);
      if (!regex.ok()) {
        return absl::Status(regex.status().code(),
                            absl::StrCat("pre-tokenizer ", i, ": ", regex.status().message()));
      }
      step.regex = *std::move(regex);
    }
    result.steps_.push_back(std::move(step));
  }
  return result;
}

absl::Status PreTokenization::Split(absl::string_view text, bool first, Sink sink) const {
  return Run(0, text, first, sink);
}

absl::Status PreTokenization::Run(size_t step, absl::string_view piece, bool first,
                                  Sink sink) const {
  if (piece.empty()) return absl::OkStatus();
  if (step == steps_.size()) {
    sink(piece);
    return absl::OkStatus();
  }
  switch (steps_[step].spec.kind) {
    case PreTokenizer::Kind::kSplit:
      return RunSplit(step, piece, first, sink);
    case PreTokenizer::Kind::kPrependSpace:
      if (piece[0] == ' ') return Run(step + 1, piece, first, sink);
      return Run(step + 1, absl::StrCat(" ", piece), first, sink);
    case PreTokenizer::Kind::kMarkSpaces:
      return RunMarkSpaces(step, piece, first, sink);
  }
  return absl::OkStatus();
}

absl::Status PreTokenization::RunSplit(size_t step, absl::string_view piece, bool first,
                                       Sink sink) const {
  using Behavior = PreTokenizer::Behavior;
  const PreTokenizer& spec = steps_[step].spec;
  const auto emit = [&](size_t begin, size_t end) {
    return Run(step + 1, piece.substr(begin, end - begin), first && begin == 0, sink);
  };
  const bool whole = spec.behavior == Behavior::kIsolated || spec.behavior == Behavior::kRemoved;
  std::vector<Segment> segments;  // where neighbours decide
  Regex::Search search(*steps_[step].regex, piece);
  const auto add = [&](size_t begin, size_t end, bool match) {
    match = match != spec.inverted;
    if (!whole) {
      segments.push_back({begin, end, match});
      return absl::OkStatus();
    }
    if (begin == end || (match && spec.behavior == Behavior::kRemoved)) return absl::OkStatus();
    return emit(begin, end);
  };
  size_t at = 0;
  while (const std::optional<Regex::Match> match = search.Next()) {
    if (match->begin > at) RETURN_IF_ERROR(add(at, match->begin, false));
    RETURN_IF_ERROR(add(match->begin, match->end, true));
    at = match->end;
  }
  if (search.spent()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("pre-tokenizer ", step, ": its pattern reads the text over and over"));
  }
  if (at < piece.size()) RETURN_IF_ERROR(add(at, piece.size(), false));
  if (whole) return absl::OkStatus();

  for (size_t i = 0; i < segments.size();) {
    size_t end = i + 1;  // of those that are one piece
    const auto is_match = [&](size_t index) { return segments[index].match; };
    if (spec.behavior == Behavior::kContiguous) {
      while (end < segments.size() && is_match(end) == is_match(i)) ++end;
    } else if (spec.behavior == Behavior::kMergedWithPrevious) {
      if (!is_match(i) && end < segments.size() && is_match(end)) ++end;
    } else if (is_match(i) && end < segments.size() && !is_match(end)) {
      ++end;
    }
    RETURN_IF_ERROR(emit(segments[i].begin, segments[end - 1].end));
    i = end;
  }
  return absl::OkStatus();
}

absl::Status PreTokenization::RunMarkSpaces(size_t step, absl::string_view piece, bool first,
                                            Sink sink) const {
  using Prepend = PreTokenizer::Prepend;
  const PreTokenizer& spec = steps_[step].spec;
  std::string marked = absl::StrReplaceAll(piece, {{" ", spec.content}});
  const bool wanted =
      spec.prepend == Prepend::kAlways || (spec.prepend == Prepend::kFirst && first);
  if (spec.prepend == Prepend::kAnyway || (wanted && !absl::StartsWith(marked, spec.content))) {
    marked.insert(0, spec.content);
  }
  const absl::string_view text = marked;
  size_t begin = 0;
  if (spec.split) {
    for (size_t at = text.find(spec.content, 1); at != absl::string_view::npos;
         at = text.find(spec.content, at + 1)) {
      RETURN_IF_ERROR(Run(step + 1, text.substr(begin, at - begin), first && begin == 0, sink));
      begin = at;
    }
  }
  return Run(step + 1, text.substr(begin), first && begin == 0, sink);
}

}  // namespace stampmill
