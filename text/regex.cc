#include "text/regex.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {

// Sweeps the borders of all sets: between two of them all characters are in the same sets. Those
// with the same memberships are one class.
absl::Status Regex::FindClasses() {
  const size_t sets = program_.sets.size();
  std::vector<std::pair<char32_t, uint32_t>> borders;  // and the set that begins or ends there
  for (uint32_t set = 0; set < sets; ++set) {
    for (const CodePointRange& range : program_.sets[set].ranges()) {
      borders.emplace_back(range.first, set);
      borders.emplace_back(range.last + 1, set);
    }
  }
  std::sort(borders.begin(), borders.end());
  std::map<std::vector<bool>, size_t> class_of;
  std::vector<Class> by_code_point(kCodePointMax + 1);
  std::vector<bool> inside(sets);
  constexpr char32_t kEnd = kCodePointMax + 1;
  char32_t at = 0;
  for (size_t i = 0; at <= kCodePointMax;) {
    for (; i < borders.size() && borders[i].first == at; ++i) {
      inside[borders[i].second] = !inside[borders[i].second];
    }
    const size_t index = class_of.try_emplace(inside, class_of.size()).first->second;
    if (index >= 254) {
      return absl::InvalidArgumentError("regex: tells more than 254 classes of characters apart");
    }
    const char32_t end = i < borders.size() ? std::min(borders[i].first, kEnd) : kEnd;
    std::fill(by_code_point.begin() + at, by_code_point.begin() + end, static_cast<Class>(index));
    at = end;
  }
  class_count_ = class_of.size() + 1;
  members_.assign(sets * class_count_, false);
  for (const auto& [memberships, index] : class_of) {
    for (size_t set = 0; set < sets; ++set) {
      members_[set * class_count_ + index] = memberships[set];
    }
  }
  // Most pages are of one class or are like another.
  constexpr size_t kPage = size_t{1} << kPageBits;
  absl::flat_hash_map<absl::string_view, uint32_t> offsets;
  classes_.reserve(64 * kPage);
  for (size_t page = 0; page < by_code_point.size(); page += kPage) {
    const absl::string_view content(reinterpret_cast<const char*>(&by_code_point[page]), kPage);
    const auto [offset, is_new] = offsets.try_emplace(content, classes_.size());
    if (is_new) {
      classes_.insert(classes_.end(), by_code_point.begin() + page,
                      by_code_point.begin() + page + kPage);
    }
    pages_.push_back(offset->second);
  }
  return absl::OkStatus();
}

// Finds all states that are reached from the starts, and what each does at each class.
class Regex::Builder {
 public:
  explicit Builder(Regex* regex)
      : regex_(*regex), visited_(regex->program_.instructions.size(), 0) {}

  absl::Status Build() {
    const size_t classes = regex_.class_count_;
    IndexOf(State{{}, 0});  // state 0: dead
    for (size_t previous = 0; previous < classes; ++previous) {
      regex_.starts_.push_back(IndexOf(StateOf({regex_.program_.start}, previous)));
    }
    for (size_t index = 0; index < states_.size(); ++index) {
      if (states_.size() > kStatesMax) {
        return absl::InvalidArgumentError(
            absl::StrCat("regex: its automaton has more than ", kStatesMax, " states"));
      }
      for (size_t next = 0; next < classes; ++next) Step(index, static_cast<Class>(next));
    }
    return absl::OkStatus();
  }

 private:
  State StateOf(std::vector<uint32_t> seeds, size_t previous) const {
    const bool keeps = regex_.looks_behind_ && !seeds.empty();
    return {std::move(seeds), keeps ? static_cast<Class>(previous) : Class{0}};
  }

  uint16_t IndexOf(State state) {
    std::string key(1, static_cast<char>(state.previous));
    key.append(reinterpret_cast<const char*>(state.seeds.data()),
               state.seeds.size() * sizeof(uint32_t));
    const auto [index, is_new] = indices_.try_emplace(std::move(key), states_.size());
    if (is_new) states_.push_back(std::move(state));
    return static_cast<uint16_t>(index->second);
  }

  void Step(size_t index, Class next) {
    // A copy: new states may move the old ones.
    const State state = states_[index];
    std::vector<uint32_t> seeds;
    bool matches = false;
    ++generation_;
    for (const uint32_t seed : state.seeds) {
      if ((matches = Follow(seed, state.previous, next, &seeds))) break;
    }
    // One place twice is tried once, where it came first.
    ++generation_;
    std::erase_if(seeds, [&](uint32_t seed) {
      return std::exchange(visited_[seed], generation_) == generation_;
    });
    if (next == regex_.end_class()) seeds.clear();
    const uint16_t to = IndexOf(StateOf(std::move(seeds), next));
    regex_.transitions_.push_back({.next = to, .matches = matches});
  }

  // Appends where each character instruction that is reached from `at` without a character, and
  // whose set has `next`, leads to. True at a match: nothing after it counts.
  bool Follow(uint32_t at, Class previous, Class next, std::vector<uint32_t>* seeds) {
    stack_.assign(1, at);
    while (!stack_.empty()) {
      at = stack_.back();
      stack_.pop_back();
      if (std::exchange(visited_[at], generation_) == generation_) continue;
      const RegexInstruction& instruction = regex_.program_.instructions[at];
      switch (instruction.kind) {
        case RegexInstruction::Kind::kMatch:
          return true;
        case RegexInstruction::Kind::kSplit:
          stack_.push_back(instruction.other);
          stack_.push_back(instruction.next);
          break;
        case RegexInstruction::Kind::kCharacter:
          if (regex_.IsMember(instruction.set, next)) seeds->push_back(instruction.next);
          break;
        default:
          if (regex_.Holds(instruction, previous, next)) stack_.push_back(instruction.next);
      }
    }
    return false;
  }

  Regex& regex_;
  std::vector<State> states_;
  absl::flat_hash_map<std::string, size_t> indices_;
  std::vector<uint32_t> visited_;  // the generation that saw an instruction last
  uint32_t generation_ = 0;
  std::vector<uint32_t> stack_;
};

absl::StatusOr<std::unique_ptr<const Regex>> Regex::Compile(absl::string_view pattern,
                                                            RegexDialect dialect) {
  std::unique_ptr<Regex> regex(new Regex());
  ASSIGN_OR_RETURN(regex->program_, ParseRegex(pattern, dialect));
  for (const RegexInstruction& instruction : regex->program_.instructions) {
    regex->looks_behind_ |= instruction.kind == RegexInstruction::Kind::kLookBehind;
  }
  RETURN_IF_ERROR(regex->FindClasses());
  RETURN_IF_ERROR(Builder(regex.get()).Build());
  return std::unique_ptr<const Regex>(std::move(regex));
}

Regex::Class Regex::ClassBefore(absl::string_view text, size_t at) const {
  if (at == 0) return end_class();
  size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
  const Utf8Character character = DecodeUtf8(text.data() + begin, text.data() + at);
  const bool whole = character.valid && begin + character.size_bytes == at;
  return ClassOf(whole ? character.code_point : kReplacementCharacter);
}

// The match that begins at `begin`. Counts its steps where there is none.
std::optional<Regex::Match> Regex::Search::Attempt(size_t begin) {
  const char* const end = text_.data() + text_.size();
  const size_t classes = regex_.class_count_;
  size_t state = regex_.starts_[regex_.looks_behind_ ? regex_.ClassBefore(text_, begin) : 0];
  const Transition* const transitions = regex_.transitions_.data();
  const char* at = text_.data() + begin;
  const char* match = nullptr;
  uint64_t steps = 0;
  while (state != 0) {
    size_t next_class = regex_.end_class();
    uint32_t size_bytes = 0;
    if (at < end) {
      const Utf8Character character = DecodeUtf8(at, end);
      next_class = regex_.ClassOf(character.code_point);
      size_bytes = character.size_bytes;
    }
    const Transition transition = transitions[state * classes + next_class];
    if (transition.matches) match = at;
    state = transition.next;
    at += size_bytes;
    ++steps;
  }
  const bool empty = match == text_.data() + begin;
  if (match == nullptr || (empty && after_match_)) {
    steps_ += steps - 1;
    return std::nullopt;
  }
  // What was read beyond the match is read again.
  steps_ += at > match ? at - match : 0;
  return Match{begin, static_cast<size_t>(match - text_.data())};
}

// All places from `begin` on at once: threads in order of preference, those that begin earlier
// first; a thread that matches ends all after it.
std::optional<Regex::Match> Regex::Search::SearchAll(size_t begin) {
  struct Thread {
    uint32_t at;
    size_t begin;
  };
  const std::vector<RegexInstruction>& instructions = regex_.program_.instructions;
  std::vector<Thread> threads, next_threads, stack;
  std::vector<size_t> visited(instructions.size(), 0);  // the step that saw an instruction last
  std::optional<Match> match;
  Class previous = regex_.ClassBefore(text_, begin);
  size_t generation = 0;
  for (size_t at = begin;;) {
    const bool ends = at == text_.size();
    Utf8Character character = {.code_point = 0, .size_bytes = 1, .valid = true};
    if (!ends) character = DecodeUtf8(text_.data() + at, text_.data() + text_.size());
    const Class next = ends ? regex_.end_class() : regex_.ClassOf(character.code_point);
    if (!match) threads.push_back({regex_.program_.start, at});
    if (threads.empty()) break;
    ++generation;
    next_threads.clear();
    bool cut = false;
    for (size_t i = 0; i < threads.size() && !cut; ++i) {
      stack.assign(1, threads[i]);
      while (!stack.empty()) {
        const Thread thread = stack.back();
        stack.pop_back();
        if (std::exchange(visited[thread.at], generation) == generation) continue;
        ++steps_;
        const RegexInstruction& instruction = instructions[thread.at];
        if (instruction.kind == RegexInstruction::Kind::kMatch) {
          if (at == begin && after_match_) continue;
          match = Match{thread.begin, at};
          cut = true;
          break;
        }
        if (instruction.kind == RegexInstruction::Kind::kSplit) {
          stack.push_back({instruction.other, thread.begin});
          stack.push_back({instruction.next, thread.begin});
        } else if (instruction.kind != RegexInstruction::Kind::kCharacter) {
          if (regex_.Holds(instruction, previous, next)) {
            stack.push_back({instruction.next, thread.begin});
          }
        } else if (!ends && regex_.IsMember(instruction.set, next)) {
          next_threads.push_back({instruction.next, thread.begin});
        }
      }
    }
    std::swap(threads, next_threads);
    if (ends) break;
    previous = next;
    at += character.size_bytes;
  }
  return match;
}

std::optional<Regex::Match> Regex::Search::Next() {
  const uint64_t size = text_.size();
  std::optional<Match> match;
  while (at_ <= size && !spent_) {
    spent_ = steps_ > kStepsPerByte * size + 1'000'000;
    // A few attempts that fail late are cheaper than threads.
    const bool all = steps_ > 8 * size + 10'000;
    match = all ? SearchAll(at_) : Attempt(at_);
    if (match || all || at_ == size) break;
    at_ += DecodeUtf8(text_.data() + at_, text_.data() + size).size_bytes;
    after_match_ = false;
  }
  if (!match) {
    at_ = size + 1;
    return std::nullopt;
  }
  at_ = match->end;
  after_match_ = true;
  return match;
}

}  // namespace stampmill
