// Regular expressions as tokenizers write them, read into a program of few instructions.
//
// The syntax is what ECMAScript (GGUF's patterns) and Oniguruma (Hugging Face's) share: literals,
// classes with ranges, nesting and `&&`, `\p{...}`, groups, `(?i:...)`, alternation, greedy and
// lazy repetition, and assertions that look at one character: `^`, `$`, `\b`, `(?!\S)` and the
// like. What needs more than a finite automaton with one character of context (back references,
// longer assertions, possessive repetition) is refused by name.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/code_point_set.h"

namespace stampmill {

enum class RegexDialect : uint8_t {
  kEcmaScript,  // `^` and `$` are the ends of the text
  kOniguruma,   // `^` and `$` are the ends of a line
  kConstraint,  // as kEcmaScript, and `\d`, `\w`, `\s` are ASCII's: every engine takes these
};

struct RegexInstruction {
  enum class Kind : uint8_t {
    kCharacter,   // one of set `set`, then `next`
    kLookAhead,   // the next character is (not: `negated`) of `set`; none is of no set
    kLookBehind,  // the previous one
    kSplit,       // `next`, or `other` where that fails
    kMatch,
  };
  Kind kind = Kind::kMatch;
  bool negated = false;
  uint32_t set = 0;
  uint32_t next = 0;
  uint32_t other = 0;
};

struct RegexProgram {
  std::vector<RegexInstruction> instructions;  // begins at `start`
  std::vector<CodePointSet> sets;              // without duplicates
  uint32_t start = 0;
};

// Bounds: patterns of real tokenizers have under 3,000 bytes, 20 sets and 300 instructions.
inline constexpr size_t kRegexBytesMax = 64 * 1024;
inline constexpr size_t kRegexInstructionsMax = 20'000;
inline constexpr size_t kRegexSetsMax = 256;

// INVALID_ARGUMENT: not well formed. UNIMPLEMENTED: well formed but more than this syntax; the
// message has the construct.
absl::StatusOr<RegexProgram> ParseRegex(absl::string_view pattern, RegexDialect dialect);

}  // namespace stampmill
