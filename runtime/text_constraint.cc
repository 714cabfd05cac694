#include "runtime/text_constraint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

std::vector<std::string> Spellings(const Tokenizer& tokenizer) {
  std::vector<std::string> spellings(static_cast<size_t>(tokenizer.vocabulary_size()));
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (tokenizer.EndsGeneration(id)) continue;
    std::string& spelling = spellings[static_cast<size_t>(id)];
    if (tokenizer.IsSpecial(id)) {
      const absl::string_view text = tokenizer.TokenText(id);
      if (!text.empty()) spelling = absl::StrCat(absl::string_view(&kSpecialMark, 1), text);
      continue;
    }
    const absl::string_view bytes = tokenizer.TokenBytes(id);
    // No text begins with the mark, but it would spell special tokens.
    if (!bytes.empty() && bytes[0] != kSpecialMark) spelling = std::string(bytes);
  }
  return spellings;
}

absl::Status Failed(absl::string_view what) { return absl::FailedPreconditionError(what); }

}  // namespace

ConstraintVocabulary::ConstraintVocabulary(const Tokenizer* tokenizer)
    : tokenizer_(*tokenizer), trie_(Spellings(*tokenizer)) {}

std::string ConstraintVocabulary::Spelling(absl::string_view token_text) const {
  const std::optional<int32_t> token = tokenizer_.Find(token_text);
  const bool special = token.has_value() && tokenizer_.IsSpecial(*token);
  return absl::StrCat(special ? absl::string_view(&kSpecialMark, 1) : "", token_text);
}

absl::StatusOr<bool> ConstraintVocabulary::Accept(int32_t token, GrammarMatcher& matcher) const {
  if (!tokenizer_.IsSpecial(token)) return matcher.Accept(tokenizer_.TokenBytes(token));
  ASSIGN_OR_RETURN(const bool marked, matcher.Accept(absl::string_view(&kSpecialMark, 1)));
  return marked ? matcher.Accept(tokenizer_.TokenText(token)) : false;
}

TextConstraint::TextConstraint(std::shared_ptr<const Grammar> grammar,
                               const ConstraintVocabulary* vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(*vocabulary),
      matcher_(*grammar_, vocabulary->trie()) {}

absl::Status TextConstraint::Begin(FreePart free) {
  matcher_.Reset();
  tokens_ = 0;
  free_ = std::move(free);
  is_free_ = !free_.text.empty();
  tail_.clear();
  return FindMask();
}

void TextConstraint::Rest() {
  mask_ = {};
  matcher_.Reset();
}

absl::Status TextConstraint::TakeFree(int32_t token) {
  const absl::string_view text = vocabulary_.Text(token);
  tail_.append(text.data(), text.size());
  const size_t at = tail_.find(free_.text);
  if (at == std::string::npos) {
    const size_t kept = free_.text.size() - 1;
    if (tail_.size() > kept) tail_.erase(0, tail_.size() - kept);
    return absl::OkStatus();
  }
  is_free_ = false;
  // What the token has behind the free part begins the grammar's.
  absl::string_view rest = absl::string_view(tail_).substr(at + free_.text.size());
  rest = absl::StripLeadingAsciiWhitespace(rest);
  const absl::StatusOr<bool> accepted = matcher_.Accept(rest);
  if (!accepted.ok()) return Failed(accepted.status().message());
  if (!*accepted) {
    return Failed(absl::StrCat("grammar: the answer goes on with '", absl::CHexEscape(rest),
                               "' behind ", free_.text, ", which is not allowed"));
  }
  return FindMask();
}

absl::Status TextConstraint::Take(int32_t token) {
  ++tokens_;
  if (is_free_) return TakeFree(token);
  const absl::StatusOr<bool> accepted = vocabulary_.Accept(token, matcher_);
  if (!accepted.ok()) return Failed(accepted.status().message());
  if (!*accepted) {
    return Failed(absl::StrCat("grammar: token ", token, ", the answer's ", tokens_,
                               ". one, was not allowed"));
  }
  return FindMask();
}

absl::Status TextConstraint::FindMask() {
  complete_ = false;
  const absl::StatusOr<std::span<const uint64_t>> mask = matcher_.Mask();
  if (!mask.ok()) return Failed(mask.status().message());
  mask_ = *mask;
  if (std::ranges::any_of(mask_, [](uint64_t word) { return word != 0; })) return absl::OkStatus();
  complete_ = matcher_.can_end();
  if (complete_) return absl::OkStatus();
  return Failed(absl::StrCat("grammar: no token of the model continues the answer behind ", tokens_,
                             " tokens"));
}

void TextConstraint::AppendMask(std::span<const int32_t> ends, int64_t words,
                                std::vector<int32_t>& masks) const {
  const size_t begin = masks.size();
  masks.resize(begin + static_cast<size_t>(words), 0);
  const std::span<int32_t> row(masks.data() + begin, static_cast<size_t>(words));
  const auto set = [&](int32_t token, bool allowed) {
    const auto word = static_cast<size_t>(token) / 32;
    if (word >= row.size()) return;
    const auto bit = static_cast<int32_t>(uint32_t{1} << (token % 32));
    row[word] = allowed ? row[word] | bit : row[word] & ~bit;
  };
  if (is_free_) {
    std::ranges::fill(row, -1);
    for (const int32_t token : ends) {
      if (!free_.may_end && !vocabulary_.HasBytes(token)) set(token, false);
    }
    return;
  }
  for (size_t i = 0; i < std::min(row.size(), 2 * mask_.size()); ++i) {
    row[i] = static_cast<int32_t>(static_cast<uint32_t>(mask_[i / 2] >> (32 * (i % 2))));
  }
  if (!matcher_.can_end()) return;
  for (const int32_t token : ends) {
    // One that has bytes is part of the text, which is the grammar's to allow.
    if (!vocabulary_.HasBytes(token)) set(token, true);
  }
}

}  // namespace stampmill
