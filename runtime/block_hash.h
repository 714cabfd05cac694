// BlockHash: what the keys and values of a block of tokens depend on, as 128 bits: the block's own
// tokens, all before them (by the hash of the block before), and a root that says under what they
// may be shared. Equal hashes mean equal content of the cache.
//
// XXH3 is not proof against somebody who knows the seed, so the seed is chosen at random by whoever
// makes the roots, and no hash leaves the process.
#pragma once

#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"

namespace stampmill {

// Tokens of one block of the cache of keys and values.
inline constexpr int32_t kBlockTokens = 16;

struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;

  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

// What the first block's hash is chained to. Sequences with different salts share nothing.
BlockHash RootHash(uint64_t seed, absl::string_view salt);

// The hash of a full block behind the block of `parent`, or the first one behind a root.
BlockHash ChainHash(const BlockHash& parent, std::span<const int32_t, kBlockTokens> tokens);

}  // namespace stampmill
