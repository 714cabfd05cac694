// The bytes of one cache object: plain (a program, an artifact), or packed weights with the head
// that kernel_cache.h describes. Pure functions over bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/hash.h"

namespace stampmill {

using ByteParts = std::span<const std::span<const std::byte>>;

inline constexpr size_t kWeightsChunkBytes = size_t{1} << 20;

// The head of packed weights whose payload is the concatenation of `parts`.
std::string WeightsHead(ByteParts parts);

struct ObjectView {
  bool is_weights = false;
  uint64_t offset = 0;  // of the bytes that users see
  std::span<const std::byte> bytes;
};

enum class ObjectCheck {
  kLoad,   // weights: the head and each chunk's XXH3
  kWhole,  // weights: the payload's SHA-256 too
};

// DATA_LOSS unless `file` is the object that `digest` names, unaltered.
absl::StatusOr<ObjectView> CheckObject(std::span<const std::byte> file, const Digest& digest,
                                       ObjectCheck check);

// Whether a plain object may have these bytes: they must not look like packed weights.
bool IsPlainObject(std::span<const std::byte> bytes);

}  // namespace stampmill
