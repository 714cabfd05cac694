#include "text/grammar_builder.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

struct ByteRange {
  uint8_t low;
  uint8_t high;
};

using ByteRanges = std::vector<ByteRange>;

ByteSet SetOf(ByteRange range) {
  ByteSet set;
  for (int byte = range.low; byte <= range.high; ++byte) set.set(static_cast<size_t>(byte));
  return set;
}

// The characters from `low` to `high`, which take equally many bytes, as sequences of ranges: split
// where only a part of the last bytes is meant.
void SplitByBytes(char32_t low, char32_t high, std::vector<ByteRanges>* out) {
  std::string first, last;
  AppendUtf8(low, &first);
  AppendUtf8(high, &last);
  for (size_t tail = 1; tail < first.size(); ++tail) {
    const char32_t block = char32_t{1} << (6 * tail);
    if (low / block == high / block) continue;
    if (low % block != 0) {
      const char32_t end = low - low % block + block - 1;
      SplitByBytes(low, end, out);
      SplitByBytes(end + 1, high, out);
      return;
    }
    if (high % block != block - 1) {
      const char32_t begin = high - high % block;
      SplitByBytes(low, begin - 1, out);
      SplitByBytes(begin, high, out);
      return;
    }
  }
  ByteRanges ranges;
  for (size_t i = 0; i < first.size(); ++i) {
    ranges.push_back({static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])});
  }
  out->push_back(std::move(ranges));
}

// Sorted, without overlap, without surrogates.
GrammarBuilder::CodePoints Normalized(GrammarBuilder::CodePoints ranges, bool negated) {
  std::sort(ranges.begin(), ranges.end());
  GrammarBuilder::CodePoints merged;
  for (const auto& [low, high] : ranges) {
    if (!merged.empty() && low <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, high);
    } else if (low <= high) {
      merged.emplace_back(low, high);
    }
  }
  if (!negated) return merged;
  GrammarBuilder::CodePoints rest;
  char32_t next = 0;
  for (const auto& [low, high] : merged) {
    if (low > next) rest.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= kCodePointMax) rest.emplace_back(next, kCodePointMax);
  return rest;
}

}  // namespace

GrammarBuilder::Piece GrammarBuilder::Add(Tree tree) {
  if (trees_.size() >= Grammar::kNodesMax) too_large_ = true;
  trees_.push_back(std::move(tree));
  return static_cast<Piece>(trees_.size() - 1);
}

uint32_t GrammarBuilder::SetNumber(const ByteSet& set) {
  const auto [at, is_new] =
      sets_by_bits_.try_emplace(set.to_string(), static_cast<uint32_t>(grammar_->sets_.size()));
  if (is_new) grammar_->sets_.push_back(set);
  return at->second;
}

GrammarBuilder::Piece GrammarBuilder::Bytes(const ByteSet& set) {
  return Add({.kind = Kind::kBytes, .set = SetNumber(set)});
}

GrammarBuilder::Piece GrammarBuilder::Literal(absl::string_view bytes) {
  std::vector<Piece> pieces;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    pieces.push_back(Bytes(SetOf({byte, byte})));
  }
  return Sequence(std::move(pieces));
}

GrammarBuilder::Piece GrammarBuilder::Characters(CodePoints ranges, bool negated) {
  // Where the number of bytes changes, and around the surrogates.
  static constexpr std::array<std::pair<char32_t, char32_t>, 5> kLengths = {
      {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kCodePointMax}}};
  std::vector<ByteRanges> sequences;
  for (const auto& [low, high] : Normalized(std::move(ranges), negated)) {
    for (const auto& [first, last] : kLengths) {
      if (std::max(low, first) <= std::min(high, last)) {
        SplitByBytes(std::max(low, first), std::min(high, last), &sequences);
      }
    }
  }
  // Single bytes are one set; a choice of thousands of them would be as many nodes.
  ByteSet single;
  std::vector<Piece> choices;
  for (const ByteRanges& sequence : sequences) {
    if (sequence.size() == 1) {
      single |= SetOf(sequence[0]);
      continue;
    }
    std::vector<Piece> pieces;
    for (const ByteRange range : sequence) pieces.push_back(Bytes(SetOf(range)));
    choices.push_back(Sequence(std::move(pieces)));
  }
  if (single.any() || choices.empty()) choices.push_back(Bytes(single));
  return Choice(std::move(choices));
}

GrammarBuilder::Piece GrammarBuilder::Sequence(std::vector<Piece> pieces) {
  return pieces.size() == 1 ? pieces.front()
                            : Add({.kind = Kind::kSequence, .pieces = std::move(pieces)});
}

GrammarBuilder::Piece GrammarBuilder::Choice(std::vector<Piece> pieces) {
  return pieces.size() == 1 ? pieces.front()
                            : Add({.kind = Kind::kChoice, .pieces = std::move(pieces)});
}

GrammarBuilder::Piece GrammarBuilder::Repeat(Piece piece, int64_t least, int64_t most) {
  return Add({.kind = Kind::kRepeat, .least = least, .most = most, .pieces = {piece}});
}

GrammarBuilder::Piece GrammarBuilder::Automaton(std::vector<State> states, uint32_t start) {
  return Add({.kind = Kind::kAutomaton, .states = std::move(states), .start = start});
}

GrammarBuilder::Rule GrammarBuilder::RuleNamed(const std::string& name) {
  const auto [at, is_new] = rules_by_name_.try_emplace(name, static_cast<Rule>(rules_.size()));
  if (is_new) rules_.push_back({.name = name});
  return at->second;
}

bool GrammarBuilder::Define(Rule rule, Piece body) {
  if (rules_[rule].is_defined) return false;
  rules_[rule].is_defined = true;
  rules_[rule].body = body;
  return true;
}

uint32_t GrammarBuilder::NewNode(GrammarNode node) {
  std::vector<GrammarNode>& nodes = grammar_->nodes_;
  if (nodes.size() >= Grammar::kNodesMax) {
    too_large_ = true;
    return 0;
  }
  nodes.push_back(node);
  return static_cast<uint32_t>(nodes.size() - 1);
}

uint32_t GrammarBuilder::Emit(Piece piece, uint32_t next) {
  if (too_large_) return next;
  const Tree& tree = trees_[piece];
  switch (tree.kind) {
    case Kind::kBytes:
      return NewNode({.kind = GrammarNode::Kind::kBytes, .next = next, .argument = tree.set});
    case Kind::kCall:
      // Until all rules have been emitted, the argument is the rule's number.
      return NewNode({.kind = GrammarNode::Kind::kCall, .next = next, .argument = tree.rule});
    case Kind::kSequence:
      for (size_t i = tree.pieces.size(); i-- > 0;) next = Emit(tree.pieces[i], next);
      return next;
    case Kind::kChoice: {
      uint32_t begin = Emit(tree.pieces.back(), next);
      for (size_t i = tree.pieces.size() - 1; i-- > 0;) {
        const uint32_t choice = Emit(tree.pieces[i], next);
        begin = NewNode({.kind = GrammarNode::Kind::kSplit, .next = choice, .argument = begin});
      }
      return begin;
    }
    case Kind::kRepeat:
      return EmitRepeat(tree, next);
    case Kind::kAutomaton:
      return EmitAutomaton(tree, next);
  }
  return next;
}

uint32_t GrammarBuilder::EmitRepeat(const Tree& tree, uint32_t next) {
  uint32_t begin = next;
  if (tree.most == kUnbounded) {
    begin = NewNode({.kind = GrammarNode::Kind::kSplit, .next = next, .argument = next});
    const uint32_t body = Emit(tree.pieces[0], begin);
    if (!too_large_) grammar_->nodes_[begin].argument = body;
  }
  for (int64_t i = tree.least; i < tree.most && !too_large_; ++i) {
    const uint32_t body = Emit(tree.pieces[0], begin);
    begin = NewNode({.kind = GrammarNode::Kind::kSplit, .next = body, .argument = next});
  }
  for (int64_t i = 0; i < tree.least && !too_large_; ++i) begin = Emit(tree.pieces[0], begin);
  return begin;
}

uint32_t GrammarBuilder::EmitAutomaton(const Tree& tree, uint32_t next) {
  const auto split = [](uint32_t a, uint32_t b) {
    return GrammarNode{.kind = GrammarNode::Kind::kSplit, .next = a, .argument = b};
  };
  // Which states lead to an end: a text must not run into others, where it could not end.
  std::vector<bool> leads(tree.states.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < tree.states.size(); ++i) {
      const State& state = tree.states[i];
      const Tree* const piece = state.piece.has_value() ? &trees_[*state.piece] : nullptr;
      const bool passes =
          piece == nullptr || piece->kind != Kind::kBytes || grammar_->sets_[piece->set].any();
      const bool now = state.is_end || (passes && (leads[state.next] || leads[state.other]));
      changed = changed || now != leads[i];
      leads[i] = now;
    }
  }
  // A node for each state that can be reached, made when it is first gone on with: states may go
  // on with any other.
  static constexpr uint32_t kNone = ~uint32_t{0};
  std::vector<uint32_t> nodes(tree.states.size(), kNone);
  std::vector<uint32_t> open;
  const auto node_of = [&](uint32_t state) {
    if (nodes[state] == kNone) {
      nodes[state] = NewNode(split(next, next));
      open.push_back(state);
    }
    return nodes[state];
  };
  const uint32_t begin = node_of(tree.start);
  while (!open.empty() && !too_large_) {
    const uint32_t at = open.back();
    open.pop_back();
    const State& state = tree.states[at];
    if (state.is_end) continue;
    if (!leads[at]) {
      grammar_->nodes_[nodes[at]] = {
          .kind = GrammarNode::Kind::kBytes, .next = next, .argument = SetNumber(ByteSet())};
      continue;
    }
    if (!state.piece.has_value() && !(leads[state.next] && leads[state.other])) {
      const uint32_t only = node_of(leads[state.next] ? state.next : state.other);
      grammar_->nodes_[nodes[at]] = split(only, only);
      continue;
    }
    uint32_t first = node_of(state.next), second = node_of(state.other);
    if (state.piece.has_value()) first = second = Emit(*state.piece, first);
    grammar_->nodes_[nodes[at]] = split(first, second);
  }
  return begin;
}

absl::StatusOr<std::unique_ptr<const Grammar>> GrammarBuilder::Build(Rule root) {
  if (rules_.size() > Grammar::kRulesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("grammar: got ", rules_.size(), " rules, limit ", Grammar::kRulesMax));
  }
  for (Definition& rule : rules_) {
    if (!rule.is_defined) {
      return absl::InvalidArgumentError(
          absl::StrCat("grammar: rule '", rule.name, "' is not defined"));
    }
    rule.start = Emit(rule.body, NewNode({}));
  }
  if (too_large_) {
    return absl::InvalidArgumentError(
        absl::StrCat("grammar: got more than ", Grammar::kNodesMax, " states"));
  }
  for (GrammarNode& node : grammar_->nodes_) {
    if (node.kind == GrammarNode::Kind::kCall) node.argument = rules_[node.argument].start;
  }
  grammar_->start_ = rules_[root].start;
  RETURN_IF_ERROR(CheckLeftRecursion());
  return std::unique_ptr<const Grammar>(std::move(grammar_));
}

absl::Status GrammarBuilder::CheckLeftRecursion() const {
  const std::vector<GrammarNode>& nodes = grammar_->nodes_;
  // Nodes from which the end of their rule can be reached without a byte, to a fixed point. Nodes
  // are mostly written after what they go on with, so few rounds are needed.
  std::vector<bool> nullable(nodes.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const GrammarNode& node = nodes[i];
      bool is_nullable = node.kind == GrammarNode::Kind::kReturn;
      if (node.kind == GrammarNode::Kind::kSplit) {
        is_nullable = nullable[node.next] || nullable[node.argument];
      } else if (node.kind == GrammarNode::Kind::kCall) {
        is_nullable = nullable[node.argument] && nullable[node.next];
      }
      if (is_nullable && !nullable[i]) nullable[i] = changed = true;
    }
  }
  // A walk over what comes before the first byte, calls among them: one that meets a call which it
  // is within is left recursion. `mark`: 0 new, 1 within, 2 done. Loops within a body are none.
  std::vector<uint8_t> mark(rules_.size());
  absl::flat_hash_map<uint32_t, Rule> rule_at;
  for (Rule rule = 0; rule < rules_.size(); ++rule) rule_at.emplace(rules_[rule].start, rule);
  // Rules called before the first byte of each rule.
  std::vector<std::vector<Rule>> first_calls(rules_.size());
  std::vector<uint32_t> seen(nodes.size());  // by the walk from which rule, plus one
  for (Rule rule = 0; rule < rules_.size(); ++rule) {
    std::vector<uint32_t> open = {rules_[rule].start};
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      if (seen[at] == rule + 1) continue;
      seen[at] = rule + 1;
      const GrammarNode& node = nodes[at];
      if (node.kind == GrammarNode::Kind::kSplit) {
        open.insert(open.end(), {node.next, node.argument});
      } else if (node.kind == GrammarNode::Kind::kCall) {
        first_calls[rule].push_back(rule_at.at(node.argument));
        if (nullable[node.argument]) open.push_back(node.next);
      }
    }
  }
  for (Rule begin = 0; begin < rules_.size(); ++begin) {
    std::vector<std::pair<Rule, size_t>> within;
    if (mark[begin] == 0) within.emplace_back(begin, 0);
    while (!within.empty()) {
      auto& [rule, next_call] = within.back();
      mark[rule] = 1;
      if (next_call == first_calls[rule].size()) {
        mark[rule] = 2;
        within.pop_back();
        continue;
      }
      const Rule callee = first_calls[rule][next_call++];
      if (mark[callee] == 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("grammar: rule '", rules_[callee].name, "' begins with itself"));
      }
      if (mark[callee] == 0) within.emplace_back(callee, 0);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Grammar>> Grammar::FromChoice(
    std::span<const std::string> texts) {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  if (texts.empty()) return absl::InvalidArgumentError("choice: got no texts");
  if (bytes > kSourceBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("choice: got ", bytes, " bytes, limit ", kSourceBytesMax));
  }
  GrammarBuilder builder;
  std::vector<GrammarBuilder::Piece> pieces;
  for (const std::string& text : texts) {
    if (text.empty()) return absl::InvalidArgumentError("choice: got an empty text");
    pieces.push_back(builder.Literal(text));
  }
  const GrammarBuilder::Rule root = builder.RuleNamed("root");
  builder.Define(root, builder.Choice(std::move(pieces)));
  return builder.Build(root);
}

}  // namespace stampmill
