// TextConstraint: keeps the answer of a language model within a Grammar: which tokens may come
// next, and, once one was chosen, how far the answer has come.
//
// A grammar is about bytes. Special tokens, which add none to a text, have a spelling of their own
// that no text has (kSpecialMark), so that a grammar can ask for one and never gets one unasked.
// Tokens that end a text are no part of it: they may come where the grammar may end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/grammar.h"
#include "text/grammar_matcher.h"
#include "text/token_trie.h"
#include "text/tokenizer.h"

namespace stampmill {

// Begins the spelling of a special token; its text follows. No byte of UTF-8.
inline constexpr char kSpecialMark = '\xFF';

// What a model's tokens add to a text, as grammars see it. Immutable, thread-safe.
class ConstraintVocabulary {
 public:
  // Borrows the tokenizer.
  explicit ConstraintVocabulary(const Tokenizer* tokenizer);

  const TokenTrie& trie() const { return trie_; }
  // As a grammar has to write the token of this text: with the mark where it is special.
  std::string Spelling(absl::string_view token_text) const;
  // The text of a token, special ones' too.
  absl::string_view Text(int32_t token) const {
    return tokenizer_.IsSpecial(token) ? tokenizer_.TokenText(token) : tokenizer_.TokenBytes(token);
  }
  int32_t size() const { return tokenizer_.vocabulary_size(); }
  // Whether a token adds bytes to a text.
  bool HasBytes(int32_t token) const {
    return !tokenizer_.EndsGeneration(token) && !tokenizer_.IsSpecial(token) &&
           !tokenizer_.TokenBytes(token).empty();
  }
  // Goes on by a token. REQUIRES: the matcher's trie is this one.
  absl::StatusOr<bool> Accept(int32_t token, GrammarMatcher& matcher) const;

 private:
  const Tokenizer& tokenizer_;
  const TokenTrie trie_;
};

// Owned by one thread at a time.
class TextConstraint {
 public:
  // `vocabulary` is borrowed.
  TextConstraint(std::shared_ptr<const Grammar> grammar, const ConstraintVocabulary* vocabulary);

  // What comes before the grammar's text: anything up to and including `text`, and white space
  // in the token that ends it. Empty: nothing does.
  struct FreePart {
    std::string text;
    bool may_end = false;  // the answer may end there
  };

  // To the beginning of an answer; what is known of the grammar by now stays. FAILED_PRECONDITION:
  // no token of the model begins a text of the grammar, or it takes more than the bounds of
  // GrammarMatcher to tell.
  absl::Status Begin() { return Begin(FreePart()); }
  absl::Status Begin(FreePart free);
  // Nothing is asked of it for a while: gives memory back.
  void Rest();
  // Goes on by a token that was allowed. FAILED_PRECONDITION as above, of what continues the text.
  absl::Status Take(int32_t token);

  // After Begin or Take: nothing may follow but the end.
  bool complete() const { return complete_; }
  // Appends the tokens that may come next as a row of `words` words of 32 bits, least first; among
  // them `ends` if the text may end here. REQUIRES: Begin was OK, and every Take.
  void AppendMask(std::span<const int32_t> ends, int64_t words, std::vector<int32_t>& masks) const;

  const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }

 private:
  absl::Status FindMask();
  absl::Status TakeFree(int32_t token);

  const std::shared_ptr<const Grammar> grammar_;
  const ConstraintVocabulary& vocabulary_;
  GrammarMatcher matcher_;
  std::span<const uint64_t> mask_;  // in matcher_
  bool complete_ = false;
  int64_t tokens_ = 0;
  FreePart free_;
  bool is_free_ = false;
  std::string tail_;  // of the free part, as much as its end may begin in
};

}  // namespace stampmill
