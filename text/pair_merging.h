// Byte pair encoding's loop: of all neighbours that may merge, the best pair first, the leftmost of
// equals, until none may. Few symbols are searched again after each merge; many wait in a heap, so
// that a megabyte of one letter takes n log n.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace stampmill {

// A stretch of the piece: a token, or what may become one.
struct Symbol {
  int32_t id;
  uint32_t begin;
  uint32_t size;  // bytes, at least 1
};

struct PairMerge {
  static constexpr uint32_t kNever = UINT32_MAX;
  uint32_t priority = kNever;  // the least goes first
  int32_t id = 0;              // of both together
};

namespace pair_merging {

inline constexpr size_t kFewSymbols = 40;

struct Waiting {
  uint32_t priority;
  uint32_t left;  // index of the symbol; its neighbour is the next that is left
  uint32_t size;  // of both: another one says that they have changed since
  int32_t id;
  bool operator<(const Waiting& other) const {
    return priority != other.priority ? priority > other.priority : left > other.left;
  }
};

template <typename MergeOf>
void MergeFew(std::vector<Symbol>* symbols, const MergeOf& merge_of) {
  Symbol* const at = symbols->data();
  size_t count = symbols->size();
  PairMerge merges[kFewSymbols];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merge_of(at[i], at[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].priority < merges[best].priority) best = i;
    }
    if (merges[best].priority == PairMerge::kNever) break;
    at[best].id = merges[best].id;
    at[best].size += at[best + 1].size;
    --count;
    for (size_t i = best + 1; i < count; ++i) at[i] = at[i + 1];
    for (size_t i = best; i + 1 < count; ++i) merges[i] = merges[i + 1];
    if (best > 0) merges[best - 1] = merge_of(at[best - 1], at[best]);
    if (best + 1 < count) merges[best] = merge_of(at[best], at[best + 1]);
  }
  symbols->resize(count);
}

template <typename MergeOf>
void MergeMany(std::vector<Symbol>* symbols, const MergeOf& merge_of) {
  std::vector<Symbol>& at = *symbols;
  const uint32_t count = static_cast<uint32_t>(at.size());
  std::vector<uint32_t> next(count), previous(count);
  std::vector<Waiting> heap;
  const auto consider = [&](uint32_t left) {
    if (next[left] == count) return false;
    const PairMerge merge = merge_of(at[left], at[next[left]]);
    if (merge.priority == PairMerge::kNever) return false;
    heap.push_back({merge.priority, left, at[left].size + at[next[left]].size, merge.id});
    return true;
  };
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first: beyond every index
  }
  for (uint32_t i = 0; i + 1 < count; ++i) consider(i);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    const Waiting best = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    const uint32_t left = best.left, right = next[left];
    if (at[left].size == 0 || right == count) continue;
    if (at[left].size + at[right].size != best.size) continue;
    at[left].id = best.id;
    at[left].size = best.size;
    at[right].size = 0;
    next[left] = next[right];
    if (next[left] < count) previous[next[left]] = left;
    if (consider(left)) std::push_heap(heap.begin(), heap.end());
    if (previous[left] < count && consider(previous[left])) {
      std::push_heap(heap.begin(), heap.end());
    }
  }
  std::erase_if(at, [](const Symbol& symbol) { return symbol.size == 0; });
}

}  // namespace pair_merging

// Merges neighbours among `symbols`, which follow each other in the piece. `merge_of(left, right)`
// returns what becomes of two neighbours.
template <typename MergeOf>
void MergePairs(std::vector<Symbol>* symbols, const MergeOf& merge_of) {
  if (symbols->size() <= pair_merging::kFewSymbols) {
    pair_merging::MergeFew(symbols, merge_of);
  } else {
    pair_merging::MergeMany(symbols, merge_of);
  }
}

}  // namespace stampmill
