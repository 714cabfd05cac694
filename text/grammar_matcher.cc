#include "text/grammar_matcher.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace stampmill {
namespace {

absl::Status Exhausted() {
  return absl::ResourceExhaustedError(absl::StrCat(
      "grammar: a text needs more than ", GrammarMatcher::kPlacesMax, " places, ",
      GrammarMatcher::kFramesMax, " calls or ", GrammarMatcher::kWalkBytesMax, " bytes at once"));
}

}  // namespace

GrammarMatcher::GrammarMatcher(const Grammar& grammar, const TokenTrie& trie)
    : grammar_(grammar), trie_(trie) {
  current_ = AddStart();
}

int32_t GrammarMatcher::AddStart() {
  Places places;
  bool can_end = false;
  Close({grammar_.start(), kNoFrame}, &places, &can_end);
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  if (places.size() > kPlacesMax) exhausted_ = true;
  return AddState(std::move(places), can_end);
}

void GrammarMatcher::Reset() {
  exhausted_ = false;
  work_ = 0;
  if (bytes_ > kKeptBytesMax || frames_.size() > kFramesMax / 2) {
    states_.clear();
    states_by_contents_.clear();
    frames_ = {{0, 0}};
    frames_by_contents_.clear();
    bytes_ = 0;
  }
  current_ = AddStart();
}

uint32_t GrammarMatcher::FrameOf(uint32_t node, uint32_t parent) {
  // What only returns is left out, so that rules that end in themselves do not pile up.
  if (grammar_.nodes()[node].kind == GrammarNode::Kind::kReturn) return parent;
  const auto [at, is_new] = frames_by_contents_.try_emplace(std::pair(node, parent),
                                                            static_cast<uint32_t>(frames_.size()));
  if (is_new) {
    if (frames_.size() >= kFramesMax) exhausted_ = true;
    frames_.push_back({.node = node, .parent = parent});
  }
  return at->second;
}

void GrammarMatcher::Close(Place place, Places* places, bool* can_end) {
  absl::flat_hash_set<Place> seen;
  Places open = {place};
  while (!open.empty() && !exhausted_) {
    const Place at = open.back();
    open.pop_back();
    if (!seen.insert(at).second) continue;
    if (seen.size() > 4 * kPlacesMax || ++work_ > kWorkMax) exhausted_ = true;
    const GrammarNode& node = grammar_.nodes()[at.first];
    switch (node.kind) {
      case GrammarNode::Kind::kBytes:
        places->push_back(at);
        break;
      case GrammarNode::Kind::kSplit:
        open.push_back({node.argument, at.second});
        open.push_back({node.next, at.second});
        break;
      case GrammarNode::Kind::kCall:
        open.push_back({node.argument, FrameOf(node.next, at.second)});
        break;
      case GrammarNode::Kind::kReturn:
        if (at.second == kNoFrame) {
          *can_end = true;
        } else {
          open.push_back({frames_[at.second].node, frames_[at.second].parent});
        }
        break;
    }
  }
}

int32_t GrammarMatcher::AddState(Places places, bool can_end) {
  const auto [at, is_new] = states_by_contents_.try_emplace(std::pair(std::move(places), can_end),
                                                            static_cast<int32_t>(states_.size()));
  if (is_new) {
    bytes_ += sizeof(State) + 2 * at->first.first.size() * sizeof(Place);
    if (bytes_ > kKeptBytesMax + kWalkBytesMax) exhausted_ = true;
    auto state = std::make_unique<State>();
    state->places = at->first.first;
    state->can_end = can_end;
    states_.push_back(std::move(state));
  }
  return at->second;
}

int32_t GrammarMatcher::StateOf(Places places, bool can_end) {
  if (places.empty() && !can_end) return kDead;
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  if (places.size() > kPlacesMax) exhausted_ = true;
  return AddState(std::move(places), can_end);
}

std::array<int32_t, 256>& GrammarMatcher::StepsOf(int32_t state) {
  std::unique_ptr<std::array<int32_t, 256>>& steps = states_[state]->next;
  if (steps == nullptr) {
    steps = std::make_unique<std::array<int32_t, 256>>();
    steps->fill(kUnknown);
    bytes_ += sizeof(*steps);
  }
  return *steps;
}

int32_t GrammarMatcher::Step(int32_t state, uint8_t byte) {
  const int32_t known = StepsOf(state)[byte];
  if (known != kUnknown) return known;
  work_ += states_[state]->places.size();
  if (work_ > kWorkMax) exhausted_ = true;
  Places places;
  bool can_end = false;
  for (const auto& [node, frame] : states_[state]->places) {
    const GrammarNode& at = grammar_.nodes()[node];
    if (grammar_.set(at.argument)[byte]) Close({at.next, frame}, &places, &can_end);
  }
  if (exhausted_) return kDead;
  const int32_t next = StateOf(std::move(places), can_end);
  (*states_[state]->next)[byte] = next;
  return next;
}

void GrammarMatcher::DropStates() {
  Places places = std::move(states_[current_]->places);
  const bool can_end = states_[current_]->can_end;
  states_.clear();
  states_by_contents_.clear();
  bytes_ = 0;
  current_ = AddState(std::move(places), can_end);
}

absl::StatusOr<bool> GrammarMatcher::Accept(absl::string_view bytes) {
  if (exhausted_) return Exhausted();
  if (bytes_ > kKeptBytesMax) DropStates();
  work_ = 0;
  int32_t state = current_;
  for (const char c : bytes) {
    state = Step(state, static_cast<uint8_t>(c));
    if (exhausted_) return Exhausted();
    if (state == kDead) return false;
  }
  current_ = state;
  return true;
}

absl::StatusOr<std::span<const uint64_t>> GrammarMatcher::Mask() {
  if (exhausted_) return Exhausted();
  if (!states_[current_]->mask.empty()) return std::span<const uint64_t>(states_[current_]->mask);
  if (bytes_ > kKeptBytesMax) DropStates();
  work_ = 0;
  std::vector<uint64_t> mask((trie_.vocabulary_size() + 63) / 64 + 1);
  // The states along the way down to a node, and what is known of the steps from them.
  std::vector<int32_t> way(trie_.depth_max() + 1);
  std::vector<const std::array<int32_t, 256>*> steps(trie_.depth_max() + 1);
  way[0] = current_;
  steps[0] = &StepsOf(current_);
  const std::span<const TokenTrie::Node> nodes = trie_.nodes();
  for (uint32_t i = 0; i + 1 < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    int32_t next = (*steps[node.depth])[node.byte];
    if (next == kUnknown) {
      next = Step(way[node.depth], node.byte);
      if (exhausted_) return Exhausted();
    }
    if (next == kDead) {
      i = node.end;
      continue;
    }
    ++i;
    if (node.end > i) {
      way[node.depth + 1] = next;
      steps[node.depth + 1] = &StepsOf(next);
    }
    for (uint32_t t = node.first_token; t < nodes[i].first_token; ++t) {
      const uint32_t token = trie_.tokens()[t];
      mask[token / 64] |= uint64_t{1} << (token % 64);
    }
  }
  bytes_ += mask.size() * sizeof(uint64_t);
  states_[current_]->mask = std::move(mask);
  return std::span<const uint64_t>(states_[current_]->mask);
}

}  // namespace stampmill
