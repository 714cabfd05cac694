#include "text/regex_grammar.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "text/grammar_builder.h"
#include "text/regex_syntax.h"

namespace stampmill {
namespace {

// Every instruction is a state in four variants: whether nothing stands before it, and whether
// nothing may follow. So anchors need no look at a neighbour.
class RegexAutomaton {
 public:
  RegexAutomaton(const RegexProgram& program, GrammarBuilder& builder)
      : program_(program), builder_(builder), states_(4 * program.instructions.size() + 1) {}

  absl::StatusOr<GrammarBuilder::Piece> Run(
      const std::function<GrammarBuilder::Piece(const CodePointSet&)>& character) {
    std::vector<GrammarBuilder::Piece> sets;
    for (const CodePointSet& set : program_.sets) sets.push_back(character(set));
    // What nothing leads on from: a character that there is not.
    const auto dead = static_cast<uint32_t>(states_.size() - 1);
    states_[dead] = {.piece = builder_.Bytes(ByteSet()), .next = dead, .other = dead};
    for (uint32_t at = 0; at < program_.instructions.size(); ++at) {
      const RegexInstruction& i = program_.instructions[at];
      for (const bool first : {false, true}) {
        for (const bool last : {false, true}) {
          GrammarBuilder::State& state = states_[StateOf(at, first, last)];
          const auto go = [&](uint32_t next, bool is_first, bool is_last) {
            state.next = state.other = StateOf(next, is_first, is_last);
          };
          const bool any = i.kind == RegexInstruction::Kind::kLookAhead ||
                           i.kind == RegexInstruction::Kind::kLookBehind;
          if (any && !(i.negated && program_.sets[i.set] == CodePointSet::All())) {
            return absl::UnimplementedError(
                "regex: an assertion other than at the ends of the text is not supported");
          }
          switch (i.kind) {
            case RegexInstruction::Kind::kCharacter:
              state.next = state.other = last ? dead : StateOf(i.next, false, false);
              if (!last) state.piece = sets[i.set];
              break;
            case RegexInstruction::Kind::kLookAhead:
              go(i.next, first, true);
              break;
            case RegexInstruction::Kind::kLookBehind:
              if (first) go(i.next, true, last);
              if (!first) state.next = state.other = dead;
              break;
            case RegexInstruction::Kind::kSplit:
              state.next = StateOf(i.next, first, last);
              state.other = StateOf(i.other, first, last);
              break;
            case RegexInstruction::Kind::kMatch:
              state.is_end = true;
              break;
          }
        }
      }
    }
    return builder_.Automaton(std::move(states_), StateOf(program_.start, true, false));
  }

 private:
  static uint32_t StateOf(uint32_t at, bool first, bool last) {
    return 4 * at + (first ? 2 : 0) + (last ? 1 : 0);
  }

  const RegexProgram& program_;
  GrammarBuilder& builder_;
  std::vector<GrammarBuilder::State> states_;
};

}  // namespace

absl::StatusOr<GrammarBuilder::Piece> AddRegex(
    absl::string_view pattern,
    const std::function<GrammarBuilder::Piece(const CodePointSet&)>& character,
    GrammarBuilder& builder) {
  ASSIGN_OR_RETURN(const RegexProgram program, ParseRegex(pattern, RegexDialect::kConstraint));
  return RegexAutomaton(program, builder).Run(character);
}

absl::StatusOr<std::unique_ptr<const Grammar>> GrammarOfRegex(absl::string_view pattern) {
  GrammarBuilder builder;
  const auto character = [&](const CodePointSet& set) {
    GrammarBuilder::CodePoints ranges;
    for (const CodePointRange& range : set.ranges()) ranges.emplace_back(range.first, range.last);
    return builder.Characters(std::move(ranges), /*negated=*/false);
  };
  ASSIGN_OR_RETURN(const GrammarBuilder::Piece piece, AddRegex(pattern, character, builder));
  const GrammarBuilder::Rule root = builder.RuleNamed("root");
  builder.Define(root, piece);
  return builder.Build(root);
}

}  // namespace stampmill
