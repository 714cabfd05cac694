// Unigram: of all ways to cut a piece into tokens the one with the best sum of scores, by dynamic
// programming from left to right over a trie of the tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace stampmill {

// Immutable, thread-safe.
class UnigramModel {
 public:
  // Borrows the vocabulary. INVALID_ARGUMENT: a score that is not finite.
  static absl::StatusOr<std::unique_ptr<const UnigramModel>> Create(const TokenizerSpec& spec,
                                                                    const Vocabulary& vocabulary);

  // Appends the ids of one piece.
  void Encode(absl::string_view piece, std::vector<int32_t>* ids) const;

 private:
  static constexpr uint32_t kRoot = 0;
  struct Node {
    uint32_t parent = 0;
    int32_t token = Vocabulary::kNone;
    unsigned char byte = 0;
  };

  void Insert(absl::string_view text, int32_t id);
  uint64_t Slot(uint32_t parent, unsigned char byte) const {
    const uint64_t key = (uint64_t{parent} << 8 | byte) * 0x9E3779B97F4A7C15;
    return (key ^ key >> 32) & mask_;
  }
  // kRoot where the trie does not go on.
  uint32_t Child(uint32_t parent, unsigned char byte) const {
    for (uint64_t slot = Slot(parent, byte);; slot = (slot + 1) & mask_) {
      const uint32_t child = table_[slot];
      if (child == kRoot) return kRoot;
      if (nodes_[child].parent == parent && nodes_[child].byte == byte) return child;
    }
  }
  void EmitUnknown(absl::string_view text, bool after_unknown, std::vector<int32_t>* ids) const;

  std::vector<Node> nodes_;      // the first is the root
  std::vector<uint32_t> table_;  // of hashes of (parent, byte): a node
  uint64_t mask_ = 0;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  int32_t unknown_ = 0;
  bool fuse_unknown_ = false;
  std::vector<int32_t> byte_ids_;  // with byte_fallback: 256
};

}  // namespace stampmill
