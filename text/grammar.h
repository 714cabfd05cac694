// Grammar: a language that generated text must stay in, byte for byte.
//
// Every way to ask for structure becomes the same thing: rules whose bodies are small automata over
// bytes, in which an edge may also be a whole rule. That is a pushdown automaton; a GrammarMatcher
// (grammar_matcher.h) runs it over bytes and says which tokens keep it alive. Compiling is bounded,
// and done once a request, away from the engine's thread.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

using ByteSet = std::bitset<256>;

// A place in a rule's body. Bodies are written with `next` last, so a chain ends in kReturn.
struct GrammarNode {
  enum class Kind : uint8_t {
    kBytes,   // a byte of set `argument`, then `next`
    kCall,    // what begins at node `argument`, then `next`
    kSplit,   // `next` or `argument`
    kReturn,  // the end of the rule: on behind the call; of the first rule: of the text
  };
  Kind kind = Kind::kReturn;
  uint32_t next = 0;
  uint32_t argument = 0;
};

// Immutable, thread-safe.
class Grammar {
 public:
  static constexpr size_t kSourceBytesMax = size_t{1} << 18;
  static constexpr size_t kNodesMax = size_t{1} << 17;
  static constexpr size_t kRulesMax = 4096;
  static constexpr int kDepthMax = 100;
  static constexpr int64_t kRepeatMax = 4096;

  // llama.cpp's notation: `name ::= "text" [a-z] . (a | b)? c* d+ e{2,3}`, comments from `#`; the
  // text is what `root` derives. INVALID_ARGUMENT, with the line: what does not parse, names that
  // have no rule, a rule that begins with itself, more than the bounds.
  static absl::StatusOr<std::unique_ptr<const Grammar>> FromGbnf(absl::string_view source);

  // One of `texts`. INVALID_ARGUMENT if there are none or one is empty.
  static absl::StatusOr<std::unique_ptr<const Grammar>> FromChoice(
      std::span<const std::string> texts);

  // For GrammarMatcher.
  std::span<const GrammarNode> nodes() const { return nodes_; }
  const ByteSet& set(uint32_t index) const { return sets_[index]; }
  uint32_t start() const { return start_; }

 private:
  friend class GrammarBuilder;
  Grammar() = default;

  std::vector<GrammarNode> nodes_;
  std::vector<ByteSet> sets_;
  uint32_t start_ = 0;
};

}  // namespace stampmill
