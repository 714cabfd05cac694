#include "runtime/block_hash.h"

#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace stampmill {
namespace {

BlockHash Hash(std::span<const std::byte> bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {.low = hash.low64, .high = hash.high64};
}

}  // namespace

BlockHash RootHash(uint64_t seed, absl::string_view salt) {
  return Hash(std::as_bytes(std::span(salt.data(), salt.size())), seed);
}

BlockHash ChainHash(const BlockHash& parent, std::span<const int32_t, kBlockTokens> tokens) {
  // The parent is input and seed: whoever does not know the root knows no seed on the way.
  std::array<std::byte, sizeof(BlockHash) + kBlockTokens * sizeof(int32_t)> bytes;
  std::memcpy(bytes.data(), &parent, sizeof(parent));
  std::memcpy(bytes.data() + sizeof(parent), tokens.data(), tokens.size_bytes());
  return Hash(bytes, parent.high);
}

}  // namespace stampmill
