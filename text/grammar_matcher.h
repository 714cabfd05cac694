// GrammarMatcher: how far a text has come in a Grammar, and which tokens may follow.
//
// The grammar's automaton can be in several places at once, each with the calls that it will return
// from. Stacks of calls are shared lists without duplicates, and a set of places is a state of its
// own, found again by its contents; so the automaton becomes deterministic where a text takes it,
// and a step is a table look-up wherever a text has been before. The tokens that a state allows are
// found by one walk over the vocabulary's trie and kept.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "text/grammar.h"
#include "text/token_trie.h"

namespace stampmill {

// Owned by one thread at a time.
class GrammarMatcher {
 public:
  // Places at once, and calls kept within each other: far beyond what schemas need; a text or a
  // grammar that needs more ends with an error, never without its constraint.
  static constexpr size_t kPlacesMax = 4096;
  static constexpr size_t kFramesMax = size_t{1} << 18;
  // Bytes of states and masks that are kept; all but the present one are dropped when there are
  // more. One walk over a vocabulary may add as much again.
  static constexpr size_t kKeptBytesMax = size_t{4} << 20;
  static constexpr size_t kWalkBytesMax = size_t{64} << 20;
  // Places that one call may look at: some tenths of a second.
  static constexpr size_t kWorkMax = size_t{1} << 24;

  // Both borrowed for the matcher's life.
  GrammarMatcher(const Grammar& grammar, const TokenTrie& trie);

  // Back to the beginning, with what it knows of the grammar by now.
  void Reset();

  // Goes on by `bytes` if the grammar allows them; else false, and nothing has changed.
  // RESOURCE_EXHAUSTED if it would take more than the bounds: the text cannot be told to be right.
  absl::StatusOr<bool> Accept(absl::string_view bytes);

  // Whether the text may end here.
  bool can_end() const { return states_[current_]->can_end; }
  // Whether any byte may follow.
  bool can_go_on() const { return !states_[current_]->places.empty(); }

  // Bit t of the result (64 to a word, least first): whether token t may follow. Valid until the
  // next call. Tokens without bytes are not set.
  absl::StatusOr<std::span<const uint64_t>> Mask();

 private:
  // What a call goes on with, within the calls of `parent`.
  struct Frame {
    uint32_t node;
    uint32_t parent;
  };
  static constexpr uint32_t kNoFrame = 0;

  // A kBytes node and the calls around it.
  using Place = std::pair<uint32_t, uint32_t>;
  using Places = std::vector<Place>;

  static constexpr int32_t kUnknown = -1;
  static constexpr int32_t kDead = -2;

  struct State {
    Places places;  // sorted
    bool can_end = false;
    std::unique_ptr<std::array<int32_t, 256>> next;  // null until a step has been taken
    std::vector<uint64_t> mask;                      // empty until it is asked for
  };

  uint32_t FrameOf(uint32_t node, uint32_t parent);
  // Adds the places that `place` reaches without a byte.
  void Close(Place place, Places* places, bool* can_end);
  int32_t AddState(Places places, bool can_end);
  // kDead where there is no way on and no end.
  int32_t StateOf(Places places, bool can_end);
  // By byte: what Step has found out. Stays where it is.
  std::array<int32_t, 256>& StepsOf(int32_t state);
  int32_t Step(int32_t state, uint8_t byte);
  // The state at the beginning, with no calls around it.
  int32_t AddStart();
  // All but state current_.
  void DropStates();

  const Grammar& grammar_;
  const TokenTrie& trie_;
  std::vector<Frame> frames_ = {{0, 0}};
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> frames_by_contents_;
  std::vector<std::unique_ptr<State>> states_;
  std::map<std::pair<Places, bool>, int32_t> states_by_contents_;
  int32_t current_ = 0;
  size_t bytes_ = 0;  // of states, about
  size_t work_ = 0;   // of the present call
  bool exhausted_ = false;
};

}  // namespace stampmill
