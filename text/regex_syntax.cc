#include "text/regex_syntax.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

constexpr int kDepthMax = 100;
constexpr int kRepeatMax = 1000;

// What was read, before it becomes instructions: repetition copies its operand.
struct Node {
  enum class Kind : uint8_t { kSet, kLookAhead, kLookBehind, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  bool negated = false;  // of assertions
  bool lazy = false;     // of repetition
  int min = 0, max = 0;  // of repetition; max -1: no end
  CodePointSet set;      // of sets and assertions
  std::vector<Node> children;
};

Node SetNode(CodePointSet set) { return {.kind = Node::Kind::kSet, .set = std::move(set)}; }

Node AssertionNode(Node::Kind kind, bool negated, CodePointSet set) {
  return {.kind = kind, .negated = negated, .set = std::move(set)};
}

class Parser {
 public:
  Parser(absl::string_view pattern, RegexDialect dialect)
      : pattern_(pattern), rest_(pattern), dialect_(dialect) {}

  absl::StatusOr<Node> Parse() {
    if (pattern_.size() > kRegexBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("regex: got ", pattern_.size(), " bytes, limit ", kRegexBytesMax));
    }
    ASSIGN_OR_RETURN(Node node, Choice(0));
    if (!rest_.empty()) return Wrong("unmatched )");
    return node;
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("regex: ", what, " at byte ", At(), " of '",
                                                   absl::CHexEscape(pattern_.substr(0, 200)), "'"));
  }
  absl::Status Unsupported(absl::string_view what) const {
    return absl::UnimplementedError(absl::StrCat("regex: ", what, " at byte ", At(), " of '",
                                                 absl::CHexEscape(pattern_.substr(0, 200)),
                                                 "' is not supported"));
  }
  size_t At() const { return pattern_.size() - rest_.size(); }

  bool Take(absl::string_view text) {
    if (rest_.substr(0, text.size()) != text) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  bool Sees(char c) const { return !rest_.empty() && rest_[0] == c; }
  char32_t TakeCharacter() {
    const Utf8Character character = DecodeUtf8(rest_.data(), rest_.data() + rest_.size());
    rest_.remove_prefix(character.size_bytes);
    return character.code_point;
  }
  // The text before `end`, which is taken too.
  absl::StatusOr<absl::string_view> TakeUntil(char end) {
    const size_t size = rest_.find(end);
    if (size == absl::string_view::npos) return Wrong(absl::StrCat("no ", std::string(1, end)));
    const absl::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size + 1);
    return text;
  }

  absl::StatusOr<Node> Choice(int depth);
  absl::StatusOr<Node> Sequence(int depth);
  absl::StatusOr<Node> Atom(int depth);
  absl::StatusOr<Node> Group(int depth);
  absl::StatusOr<Node> Flags(int depth);
  absl::StatusOr<Node> Assertion(int depth, Node::Kind kind, bool negated);
  absl::StatusOr<Node> EscapeOutside();
  absl::Status Quantifiers(Node* node);
  absl::StatusOr<std::optional<std::pair<int, int>>> Count();

  absl::StatusOr<CodePointSet> Class(int depth);
  absl::StatusOr<CodePointSet> ClassItem(int depth);
  absl::StatusOr<CodePointSet> Escape();
  absl::StatusOr<CodePointSet> Property(bool negated);
  absl::StatusOr<CodePointSet> Posix();
  absl::StatusOr<char32_t> Hexadecimal(absl::string_view digits);

  CodePointSet WithCases(CodePointSet set) const {
    if (ignores_case_) set.AddOtherCases();
    return set;
  }

  const absl::string_view pattern_;
  absl::string_view rest_;
  const RegexDialect dialect_;
  bool ignores_case_ = false;
};

CodePointSet Single(char32_t code_point) {
  CodePointSet set;
  set.Add(code_point, code_point);
  return set;
}

CodePointSet Negated(CodePointSet set) {
  set.Complement();
  return set;
}

CodePointSet Categories(absl::string_view name) {
  return CodePointSet::OfCategories(CategoriesNamed(name));
}

CodePointSet Digits() { return Categories("Nd"); }
CodePointSet Space() { return CodePointSet::Of(WhiteSpaceRanges()); }
// Oniguruma's: alphabetic characters, marks, digits, and the numbers of Latin-1.
CodePointSet Word() {
  CodePointSet set = CodePointSet::OfCategories(CategoriesNamed("L") | CategoriesNamed("M") |
                                                CategoriesNamed("Nd") | CategoriesNamed("Nl") |
                                                CategoriesNamed("Pc"));
  constexpr CodePointRange kOthers[] = {{0xB2, 0xB3},      {0xB9, 0xB9},       {0xBC, 0xBE},
                                        {0x24B6, 0x24E9},  {0x1F130, 0x1F149}, {0x1F150, 0x1F169},
                                        {0x1F170, 0x1F189}};
  set.Add(CodePointSet::Of(kOthers));
  return set;
}

CodePointSet Ascii(CodePointSet set) {
  set.Intersect(CodePointSet::Of({{{0, 0x7F}}}));
  return set;
}

absl::StatusOr<Node> Parser::Choice(int depth) {
  if (depth > kDepthMax) return Unsupported(absl::StrCat("nesting deeper than ", kDepthMax));
  Node node = {.kind = Node::Kind::kChoice};
  do {
    ASSIGN_OR_RETURN(Node branch, Sequence(depth));
    node.children.push_back(std::move(branch));
  } while (Take("|"));
  return node;
}

absl::StatusOr<Node> Parser::Sequence(int depth) {
  Node node = {.kind = Node::Kind::kSequence};
  while (!rest_.empty() && !Sees('|') && !Sees(')')) {
    ASSIGN_OR_RETURN(Node atom, Atom(depth));
    RETURN_IF_ERROR(Quantifiers(&atom));
    node.children.push_back(std::move(atom));
  }
  return node;
}

absl::StatusOr<std::optional<std::pair<int, int>>> Parser::Count() {
  const absl::string_view before = rest_;
  std::optional<std::pair<int, int>> none;
  const auto number = [&]() -> std::optional<int> {
    int value = 0;
    bool any = false;
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
      value = std::min(value * 10 + (rest_[0] - '0'), kRepeatMax + 1);
      any = true;
      rest_.remove_prefix(1);
    }
    return any ? std::optional<int>(value) : std::nullopt;
  };
  if (!Take("{")) return none;
  const std::optional<int> min = number();
  const bool comma = Take(",");
  const std::optional<int> max = comma ? number() : min;
  if (!Take("}") || (!min && !max)) {
    rest_ = before;  // a brace that is no count stands for itself
    return none;
  }
  if (min.value_or(0) > kRepeatMax || max.value_or(0) > kRepeatMax) {
    return Unsupported(absl::StrCat("a count above ", kRepeatMax));
  }
  if (max && min.value_or(0) > *max) return Wrong("a count whose bounds are reversed");
  return std::optional(std::pair(min.value_or(0), max.value_or(-1)));
}

absl::Status Parser::Quantifiers(Node* node) {
  for (;;) {
    std::pair<int, int> count;
    if (Take("*")) {
      count = {0, -1};
    } else if (Take("+")) {
      count = {1, -1};
    } else if (Take("?")) {
      count = {0, 1};
    } else {
      ASSIGN_OR_RETURN(const auto counted, Count());
      if (!counted) return absl::OkStatus();
      count = *counted;
    }
    if (node->kind == Node::Kind::kLookAhead || node->kind == Node::Kind::kLookBehind) {
      return Unsupported("a repeated assertion");
    }
    Node repeat = {.kind = Node::Kind::kRepeat, .min = count.first, .max = count.second};
    if (Sees('+')) return Unsupported("possessive repetition");
    repeat.lazy = Take("?");
    repeat.children.push_back(std::move(*node));
    *node = std::move(repeat);
  }
}

absl::StatusOr<Node> Parser::Atom(int depth) {
  const CodePointSet newline = Single('\n');
  if (Take("(")) return Group(depth + 1);
  if (Take("[")) {
    ASSIGN_OR_RETURN(CodePointSet set, Class(depth + 1));
    return SetNode(std::move(set));
  }
  if (Take("\\")) return EscapeOutside();
  if (Take(".")) {
    CodePointSet ends = newline;
    if (dialect_ != RegexDialect::kOniguruma) {
      ends.Add('\r', '\r');
      ends.Add(0x2028, 0x2029);
    }
    return SetNode(Negated(ends));
  }
  const bool lines = dialect_ == RegexDialect::kOniguruma;
  const CodePointSet inner = lines ? Negated(newline) : CodePointSet::All();
  if (Take("^")) return AssertionNode(Node::Kind::kLookBehind, /*negated=*/true, inner);
  if (Take("$")) return AssertionNode(Node::Kind::kLookAhead, /*negated=*/true, inner);
  if (Sees('*') || Sees('+') || Sees('?')) return Wrong("nothing to repeat");
  return SetNode(WithCases(Single(TakeCharacter())));
}

absl::StatusOr<Node> Parser::Group(int depth) {
  if (Take("?=")) return Assertion(depth, Node::Kind::kLookAhead, false);
  if (Take("?!")) return Assertion(depth, Node::Kind::kLookAhead, true);
  if (Take("?<=")) return Assertion(depth, Node::Kind::kLookBehind, false);
  if (Take("?<!")) return Assertion(depth, Node::Kind::kLookBehind, true);
  if (Take("?>")) return Unsupported("an atomic group");
  if (Take("?#")) {
    RETURN_IF_ERROR(TakeUntil(')').status());
    return Node{};
  }
  if (Take("?<") || Take("?P<")) {
    RETURN_IF_ERROR(TakeUntil('>').status());
  } else if (Take("?")) {
    return Flags(depth);
  }
  const bool ignored_case = ignores_case_;
  ASSIGN_OR_RETURN(Node node, Choice(depth));
  ignores_case_ = ignored_case;
  if (!Take(")")) return Wrong("no )");
  return node;
}

// After "(?": flags, then ":" and a group or ")" and the rest of the group around.
absl::StatusOr<Node> Parser::Flags(int depth) {
  const bool ignored_case = ignores_case_;
  bool on = true;
  while (!Sees(':') && !Sees(')')) {
    if (Take("-")) {
      on = false;
    } else if (Take("i")) {
      ignores_case_ = on;
    } else {
      return Unsupported(absl::StrCat("the group '(?", rest_.substr(0, 1), "'"));
    }
  }
  if (Take(")")) {
    // Up to the end of the group around; which ends where Choice meets its parenthesis.
    ASSIGN_OR_RETURN(Node node, Choice(depth));
    ignores_case_ = ignored_case;
    return node;
  }
  Take(":");
  ASSIGN_OR_RETURN(Node node, Choice(depth));
  ignores_case_ = ignored_case;
  if (!Take(")")) return Wrong("no )");
  return node;
}

// The one set that a node stands for, where it is one character.
std::optional<CodePointSet> AsSet(const Node& node) {
  if (node.kind == Node::Kind::kSet) return node.set;
  if (node.kind == Node::Kind::kSequence && node.children.size() == 1) {
    return AsSet(node.children[0]);
  }
  if (node.kind != Node::Kind::kChoice) return std::nullopt;
  CodePointSet all;
  for (const Node& child : node.children) {
    const std::optional<CodePointSet> set = AsSet(child);
    if (!set) return std::nullopt;
    all.Add(*set);
  }
  return all;
}

absl::StatusOr<Node> Parser::Assertion(int depth, Node::Kind kind, bool negated) {
  ASSIGN_OR_RETURN(const Node node, Choice(depth));
  if (!Take(")")) return Wrong("no )");
  std::optional<CodePointSet> set = AsSet(node);
  if (!set) return Unsupported("an assertion on more than one character");
  return AssertionNode(kind, negated, *std::move(set));
}

// After a backslash, outside of a class: assertions, or what a class may hold too.
absl::StatusOr<Node> Parser::EscapeOutside() {
  const auto ahead = [](bool negated, const CodePointSet& set) {
    return AssertionNode(Node::Kind::kLookAhead, negated, set);
  };
  const auto behind = [](bool negated, const CodePointSet& set) {
    return AssertionNode(Node::Kind::kLookBehind, negated, set);
  };
  if (Take("A")) return behind(true, CodePointSet::All());
  if (Take("z")) return ahead(true, CodePointSet::All());
  if (Sees('b') || Sees('B')) {
    const bool border = Sees('b');
    rest_.remove_prefix(1);
    const CodePointSet word = Word();
    Node node = {.kind = Node::Kind::kChoice};
    for (const bool before : {false, true}) {
      Node side = {.kind = Node::Kind::kSequence};
      side.children.push_back(behind(!before, word));
      side.children.push_back(ahead(before == border, word));
      node.children.push_back(std::move(side));
    }
    return node;
  }
  if (!rest_.empty() && rest_[0] >= '1' && rest_[0] <= '9') return Unsupported("a back reference");
  ASSIGN_OR_RETURN(CodePointSet set, Escape());
  return SetNode(WithCases(std::move(set)));
}

absl::StatusOr<char32_t> Parser::Hexadecimal(absl::string_view digits) {
  char32_t value = 0;
  if (digits.empty() || digits.size() > 8) return Wrong("no hexadecimal number");
  for (const char digit : digits) {
    if (!absl::ascii_isxdigit(digit)) return Wrong("no hexadecimal number");
    value = value * 16 + (digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
  }
  if (value > kCodePointMax) return Wrong("a number above U+10FFFF");
  return value;
}

// After a backslash: a set, in a class or outside.
absl::StatusOr<CodePointSet> Parser::Escape() {
  if (rest_.empty()) return Wrong("a backslash at the end");
  const std::pair<char, char32_t> controls[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'},
                                                {'v', '\v'}, {'a', '\a'}, {'e', 0x1B}, {'0', 0}};
  for (const auto& [letter, code_point] : controls) {
    if (Take(absl::string_view(&letter, 1))) return Single(code_point);
  }
  // ASCII's alone in constraints, but what is none is none of Unicode's.
  const bool narrow = dialect_ == RegexDialect::kConstraint;
  if (Take("d")) return narrow ? Ascii(Digits()) : Digits();
  if (Take("D")) return Negated(Digits());
  if (Take("s")) return narrow ? Ascii(Space()) : Space();
  if (Take("S")) return Negated(Space());
  if (Take("w")) return narrow ? Ascii(Word()) : Word();
  if (Take("W")) return Negated(Word());
  if (Take("p")) return Property(false);
  if (Take("P")) return Property(true);
  if (Take("x") || Sees('u')) {
    const size_t size = Take("u") ? 4 : 2;
    absl::string_view digits = rest_.substr(0, size);
    if (Take("{")) {
      ASSIGN_OR_RETURN(digits, TakeUntil('}'));
    } else {
      if (digits.size() < size) return Wrong("no hexadecimal number");
      rest_.remove_prefix(size);
    }
    ASSIGN_OR_RETURN(const char32_t code_point, Hexadecimal(digits));
    return Single(code_point);
  }
  if (absl::ascii_isalnum(rest_[0])) {
    return Unsupported(absl::StrCat("the escape '\\", rest_.substr(0, 1), "'"));
  }
  return Single(TakeCharacter());
}

// After "\p": {Name}, {^Name} or one letter.
absl::StatusOr<CodePointSet> Parser::Property(bool negated) {
  absl::string_view name = rest_.substr(0, 1);
  if (Take("{")) {
    ASSIGN_OR_RETURN(name, TakeUntil('}'));
  } else if (!name.empty()) {
    rest_.remove_prefix(1);
  }
  if (!name.empty() && name[0] == '^') {
    negated = !negated;
    name.remove_prefix(1);
  }
  for (const absl::string_view prefix : {"Script=", "sc=", "IsScript="}) {
    if (name.substr(0, prefix.size()) == prefix) name.remove_prefix(prefix.size());
  }
  const std::pair<absl::string_view, absl::string_view> long_names[] = {
      {"Letter", "L"}, {"Mark", "M"},  {"Number", "N"},   {"Punctuation", "P"},
      {"Symbol", "S"}, {"Other", "C"}, {"Separator", "Z"}};
  for (const auto& [long_name, short_name] : long_names) {
    if (name == long_name) name = short_name;
  }
  CodePointSet set;
  if (const CategorySet categories = CategoriesNamed(name); categories != 0) {
    set = CodePointSet::OfCategories(categories);
  } else if (const auto ranges = ScriptRanges(name); !ranges.empty()) {
    set = CodePointSet::Of(ranges);
  } else if (name == "White_Space" || name == "Space") {
    set = Space();
  } else {
    return Unsupported(absl::StrCat("the property '", name, "'"));
  }
  if (negated) set.Complement();
  return set;
}

// After "[:": a name of POSIX, up to ":]".
absl::StatusOr<CodePointSet> Parser::Posix() {
  const bool negated = Take("^");
  ASSIGN_OR_RETURN(const absl::string_view name, TakeUntil(':'));
  if (!Take("]")) return Wrong("no :]");
  CodePointSet set;
  if (name == "alpha") {
    set = Categories("L");
  } else if (name == "digit") {
    set = Digits();
  } else if (name == "space") {
    set = Space();
  } else if (name == "punct") {
    set = Categories("P");
  } else if (name == "upper") {
    set = Categories("Lu");
  } else if (name == "lower") {
    set = Categories("Ll");
  } else {
    return Unsupported(absl::StrCat("the class '[:", name, ":]'"));
  }
  if (negated) set.Complement();
  return set;
}

absl::StatusOr<CodePointSet> Parser::ClassItem(int depth) {
  if (Take("[:")) return Posix();
  if (Take("[")) return Class(depth + 1);
  if (Take("\\")) {
    if (Take("b")) return Single('\b');
    return Escape();
  }
  return Single(TakeCharacter());
}

// After "[".
absl::StatusOr<CodePointSet> Parser::Class(int depth) {
  if (depth > kDepthMax) return Unsupported(absl::StrCat("nesting deeper than ", kDepthMax));
  const bool negated = Take("^");
  std::optional<CodePointSet> before;  // the operands of && so far
  std::vector<CodePointRange> ranges;
  const auto intersect = [&] {
    CodePointSet set = CodePointSet::Of(ranges);
    if (before) set.Intersect(*before);
    before = std::move(set);
    ranges.clear();
  };
  for (bool first = true; first || !Sees(']'); first = false) {
    if (rest_.empty()) return Wrong("no ]");
    if (Take("&&")) {
      intersect();
      continue;
    }
    ASSIGN_OR_RETURN(const CodePointSet item, ClassItem(depth));
    const auto single = [](const CodePointSet& set) {
      return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
    };
    if (single(item) && rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
      Take("-");
      ASSIGN_OR_RETURN(const CodePointSet end, ClassItem(depth));
      if (!single(end)) return Wrong("a range that ends in a class");
      const CodePointRange range = {item.ranges()[0].first, end.ranges()[0].first};
      if (range.first > range.last) return Wrong("a range whose ends are reversed");
      ranges.push_back(range);
    } else {
      ranges.insert(ranges.end(), item.ranges().begin(), item.ranges().end());
    }
  }
  Take("]");
  intersect();
  CodePointSet set = WithCases(*std::move(before));
  if (negated) set.Complement();
  return set;
}

// Nodes to instructions, from the end to the front: what follows is known.
class Writer {
 public:
  explicit Writer(RegexProgram* program) : program_(program) {}

  // Instructions of `node`, then `next`; returns the first.
  absl::StatusOr<uint32_t> Write(const Node& node, uint32_t next) {
    switch (node.kind) {
      case Node::Kind::kSet:
        return WriteSet(RegexInstruction::Kind::kCharacter, node, next);
      case Node::Kind::kLookAhead:
        return WriteSet(RegexInstruction::Kind::kLookAhead, node, next);
      case Node::Kind::kLookBehind:
        return WriteSet(RegexInstruction::Kind::kLookBehind, node, next);
      case Node::Kind::kSequence:
        for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
          ASSIGN_OR_RETURN(next, Write(*child, next));
        }
        return next;
      case Node::Kind::kChoice: {
        ASSIGN_OR_RETURN(uint32_t choice, Write(node.children.back(), next));
        for (size_t i = node.children.size() - 1; i-- > 0;) {
          ASSIGN_OR_RETURN(const uint32_t branch, Write(node.children[i], next));
          ASSIGN_OR_RETURN(choice, Split(branch, choice));
        }
        return choice;
      }
      case Node::Kind::kRepeat:
        return WriteRepeat(node, next);
    }
    return next;
  }

  absl::StatusOr<uint32_t> Emit(RegexInstruction instruction) {
    if (program_->instructions.size() >= kRegexInstructionsMax) {
      return absl::InvalidArgumentError(absl::StrCat("regex: more than ", kRegexInstructionsMax,
                                                     " instructions when repetition is expanded"));
    }
    program_->instructions.push_back(instruction);
    return static_cast<uint32_t>(program_->instructions.size() - 1);
  }

 private:
  absl::StatusOr<uint32_t> Split(uint32_t next, uint32_t other) {
    return Emit({.kind = RegexInstruction::Kind::kSplit, .next = next, .other = other});
  }

  absl::StatusOr<uint32_t> WriteSet(RegexInstruction::Kind kind, const Node& node, uint32_t next) {
    const auto found = std::find(program_->sets.begin(), program_->sets.end(), node.set);
    const uint32_t set = found - program_->sets.begin();
    if (found == program_->sets.end()) {
      if (program_->sets.size() >= kRegexSetsMax) {
        return absl::InvalidArgumentError(
            absl::StrCat("regex: more than ", kRegexSetsMax, " different sets of characters"));
      }
      program_->sets.push_back(node.set);
    }
    return Emit({.kind = kind, .negated = node.negated, .set = set, .next = next});
  }

  absl::StatusOr<uint32_t> WriteRepeat(const Node& node, uint32_t next) {
    const Node& operand = node.children[0];
    const auto choose = [&](uint32_t again, uint32_t leave) {
      return node.lazy ? Split(leave, again) : Split(again, leave);
    };
    if (node.max < 0) {
      ASSIGN_OR_RETURN(const uint32_t loop, Split(0, 0));
      ASSIGN_OR_RETURN(const uint32_t again, Write(operand, loop));
      RegexInstruction& split = program_->instructions[loop];
      split.next = node.lazy ? next : again;
      split.other = node.lazy ? again : next;
      next = loop;
    } else {
      const uint32_t leave = next;
      for (int i = node.min; i < node.max; ++i) {
        ASSIGN_OR_RETURN(const uint32_t again, Write(operand, next));
        ASSIGN_OR_RETURN(next, choose(again, leave));
      }
    }
    for (int i = 0; i < node.min; ++i) {
      const size_t size = program_->instructions.size();
      ASSIGN_OR_RETURN(next, Write(operand, next));
      if (program_->instructions.size() == size) break;  // nothing a thousand times is nothing
    }
    return next;
  }

  RegexProgram* const program_;
};

}  // namespace

absl::StatusOr<RegexProgram> ParseRegex(absl::string_view pattern, RegexDialect dialect) {
  ASSIGN_OR_RETURN(const Node node, Parser(pattern, dialect).Parse());
  RegexProgram program;
  Writer writer(&program);
  ASSIGN_OR_RETURN(const uint32_t match, writer.Emit({.kind = RegexInstruction::Kind::kMatch}));
  ASSIGN_OR_RETURN(program.start, writer.Write(node, match));
  return program;
}

}  // namespace stampmill
