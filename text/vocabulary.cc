#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace stampmill {

Vocabulary::Vocabulary(TextPool texts, const std::vector<bool>& hidden) : texts_(std::move(texts)) {
  // At most half full, so that a search that finds nothing ends soon.
  table_.resize(std::bit_ceil(texts_.size() * 2 + 2));
  mask_ = table_.size() - 1;
  const auto insert = [&](int32_t id, uint64_t hash) {
    for (uint64_t slot = hash & mask_;; slot = (slot + 1) & mask_) {
      Entry& entry = table_[slot];
      const bool free = entry.id == kNone;
      if (!free && (entry.tag != TagOf(hash) || texts_[entry.id] != texts_[id])) continue;
      entry = {.tag = TagOf(hash), .id = id};
      return;
    }
  };
  // Places in the table are far apart: their cache lines are asked for a few texts ahead.
  constexpr int32_t kAhead = 16;
  uint64_t hashes[kAhead];
  for (int32_t id = 0; id < size() + kAhead; ++id) {
    uint64_t& hash = hashes[id % kAhead];
    if (const int32_t due = id - kAhead; due >= 0) {
      if (hidden.empty() || !hidden[due]) {
        insert(due, hash);
        longest_bytes_ = std::max(longest_bytes_, texts_[due].size());
      }
    }
    if (id >= size()) continue;
    hash = HashOf(texts_[id]);
    __builtin_prefetch(&table_[hash & mask_], /*rw=*/1);
  }
}

}  // namespace stampmill
