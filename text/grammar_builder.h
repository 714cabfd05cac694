// Puts a Grammar together from pieces: bytes, sequences, choices, repetitions, rules.
//
// Pieces form a tree; rules are named, and may be used before they are defined. Build turns each
// rule into its automaton and refuses what a matcher could not run: rules without definition, and
// rules that begin with themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/grammar.h"

namespace stampmill {

class GrammarBuilder {
 public:
  using Piece = uint32_t;
  using Rule = uint32_t;

  static constexpr int64_t kUnbounded = -1;

  // Inclusive ranges of code points.
  using CodePoints = std::vector<std::pair<char32_t, char32_t>>;

  Piece Empty() { return Add({.kind = Kind::kSequence}); }
  Piece Literal(absl::string_view bytes);
  Piece Bytes(const ByteSet& set);
  // One character; with `negated`, one that is in none of the ranges.
  Piece Characters(CodePoints ranges, bool negated);
  Piece Sequence(std::vector<Piece> pieces);
  Piece Choice(std::vector<Piece> pieces);
  // REQUIRES: 0 <= least; most is kUnbounded or >= least.
  Piece Repeat(Piece piece, int64_t least, int64_t most);

  // A finite automaton over pieces: each state is `piece`, then state `next`; or, without a piece,
  // any of `next` and `other`, or nothing more.
  struct State {
    std::optional<Piece> piece;
    bool is_end = false;
    uint32_t next = 0;
    uint32_t other = 0;
  };
  // REQUIRES: no piece is empty or has a call in it.
  Piece Automaton(std::vector<State> states, uint32_t start);

  Rule RuleNamed(const std::string& name);
  Piece Call(Rule rule) { return Add({.kind = Kind::kCall, .rule = rule}); }
  // False if the rule has been defined before.
  bool Define(Rule rule, Piece body);

  // The grammar whose texts are those of `root`. INVALID_ARGUMENT names the rule or the bound.
  absl::StatusOr<std::unique_ptr<const Grammar>> Build(Rule root);

 private:
  enum class Kind : uint8_t { kBytes, kSequence, kChoice, kRepeat, kCall, kAutomaton };
  struct Tree {
    Kind kind = Kind::kSequence;
    uint32_t set = 0;
    Rule rule = 0;
    int64_t least = 0;
    int64_t most = 0;
    std::vector<Piece> pieces;
    std::vector<State> states;
    uint32_t start = 0;
  };
  struct Definition {
    std::string name;
    bool is_defined = false;
    Piece body = 0;
    uint32_t start = 0;
  };

  Piece Add(Tree tree);
  uint32_t SetNumber(const ByteSet& set);
  uint32_t NewNode(GrammarNode node);
  // The node where `piece` begins that goes on with node `next`.
  uint32_t Emit(Piece piece, uint32_t next);
  uint32_t EmitRepeat(const Tree& tree, uint32_t next);
  uint32_t EmitAutomaton(const Tree& tree, uint32_t next);
  absl::Status CheckLeftRecursion() const;

  std::vector<Tree> trees_;
  std::vector<Definition> rules_;
  absl::flat_hash_map<std::string, Rule> rules_by_name_;
  absl::flat_hash_map<std::string, uint32_t> sets_by_bits_;
  std::unique_ptr<Grammar> grammar_ = std::unique_ptr<Grammar>(new Grammar());
  bool too_large_ = false;
};

}  // namespace stampmill
