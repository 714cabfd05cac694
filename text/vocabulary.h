// Tokens by their text: one flat table of hashes over a pool of texts.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "text/text_pool.h"

namespace stampmill {

// Immutable, thread-safe.
class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  // Takes the pool. Of equal texts the last one is found, as in tables that are filled in order.
  // Tokens with a true in `hidden` (as many as texts, or empty) are not found.
  explicit Vocabulary(TextPool texts, const std::vector<bool>& hidden = {});

  // The id of the token, kNone when there is none.
  int32_t Find(absl::string_view text) const {
    if (text.size() > longest_bytes_) return kNone;
    const uint64_t hash = HashOf(text);
    for (uint64_t slot = hash & mask_;; slot = (slot + 1) & mask_) {
      const Entry& entry = table_[slot];
      if (entry.id == kNone) return kNone;
      if (entry.tag == TagOf(hash) && texts_[entry.id] == text) return entry.id;
    }
  }

  absl::string_view operator[](int32_t id) const { return texts_[id]; }
  int32_t size() const { return static_cast<int32_t>(texts_.size()); }
  size_t longest_bytes() const { return longest_bytes_; }

 private:
  struct Entry {
    uint32_t tag = 0;
    int32_t id = kNone;
  };
  static uint64_t HashOf(absl::string_view text) { return absl::HashOf(text); }
  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  TextPool texts_;
  std::vector<Entry> table_;
  uint64_t mask_ = 0;
  size_t longest_bytes_ = 0;
};

}  // namespace stampmill
