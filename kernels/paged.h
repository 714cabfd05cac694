// How the cache of keys and values lies in memory (paged.cc), for those who make it.
#pragma once

#include <cstdint>

namespace stampmill {

// Tokens of one block of the cache: one vector of f32 on the widest targets.
inline constexpr int64_t kKvBlockTokens = 16;
// A value's elements are filled up to a multiple of this.
inline constexpr int64_t kKvValueGroup = 16;

}  // namespace stampmill
