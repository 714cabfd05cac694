// Finds a regular expression's matches in a text, in time linear in the text.
//
// The expression becomes a deterministic automaton over classes of characters that it does not tell
// apart, when it is compiled: a match is one table look-up a character. Of several matches at a
// place the one that a backtracking engine would find first is taken: states keep the order in
// which it would try, and drop what comes after a match. Looking at one character ahead is part of
// the step over it; a state knows the class of the character behind where the expression asks.
//
// Where attempts from many places run far and fail, a search from all places at once takes over
// (threads in order, each with its start), so that no text makes the search quadratic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/regex_syntax.h"
#include "text/utf8.h"

namespace stampmill {

// Immutable, thread-safe.
class Regex {
 public:
  struct Match {
    size_t begin;
    size_t end;
  };

  // Errors of ParseRegex; INVALID_ARGUMENT where the automaton has more than kStatesMax states.
  static absl::StatusOr<std::unique_ptr<const Regex>> Compile(absl::string_view pattern,
                                                              RegexDialect dialect);

  // One pass over a text from left to right. Bytes that are no UTF-8 count as U+FFFD.
  class Search {
   public:
    // Borrows both.
    Search(const Regex& regex, absl::string_view text) : regex_(regex), text_(text) {}

    // The next match that begins at or after the end of the one before; an empty one only where no
    // match ended. Nothing: there are no more, or the search was given up (see spent()).
    std::optional<Match> Next();

    // True where the expression looked again and again at the same long stretch of text: more than
    // kStepsPerByte steps a byte. Nothing is found after that.
    bool spent() const { return spent_; }

   private:
    std::optional<Match> Attempt(size_t begin);
    std::optional<Match> SearchAll(size_t begin);

    const Regex& regex_;
    const absl::string_view text_;
    size_t at_ = 0;             // where the next match may begin
    bool after_match_ = false;  // a match ended at at_
    uint64_t steps_ = 0;        // characters looked at in vain
    bool spent_ = false;
  };

  static constexpr size_t kStatesMax = 4096;
  static constexpr uint64_t kStepsPerByte = 256;

 private:
  // A class of characters; the last one, end_class(), is what follows the text and precedes it.
  using Class = uint8_t;
  static constexpr char32_t kPageBits = 8;

  // What a state does at a character of a class.
  struct Transition {
    uint16_t next;     // 0: nothing can match any more
    uint16_t matches;  // a match ends before the character
  };

  // A list of instructions in order of preference; where the expression looks behind, also the
  // class of the character before.
  struct State {
    std::vector<uint32_t> seeds;
    Class previous;
    bool operator==(const State&) const = default;
  };
  class Builder;

  Regex() = default;
  absl::Status FindClasses();
  Class ClassOf(char32_t code_point) const {
    return classes_[pages_[code_point >> kPageBits] + (code_point & 0xFF)];
  }
  Class end_class() const { return class_count_ - 1; }
  Class ClassBefore(absl::string_view text, size_t at) const;
  bool Holds(const RegexInstruction& assertion, Class previous, Class next) const {
    const Class seen = assertion.kind == RegexInstruction::Kind::kLookAhead ? next : previous;
    return IsMember(assertion.set, seen) != assertion.negated;
  }
  bool IsMember(uint32_t set, Class of) const { return members_[set * class_count_ + of]; }

  RegexProgram program_;
  bool looks_behind_ = false;
  size_t class_count_ = 0;
  std::vector<uint32_t> pages_;  // by code point / 256: where in classes_
  std::vector<Class> classes_;
  std::vector<bool> members_;            // [set][class]
  std::vector<Transition> transitions_;  // [state][class]
  std::vector<uint16_t> starts_;         // by class of the character before
};

}  // namespace stampmill
