// gzip and deflate (zlib format) of HTTP bodies, with a bound on what comes out.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace stampmill {

enum class ContentCoding { kIdentity, kGzip, kDeflate };

// Takes either format, told apart by its head. INVALID_ARGUMENT for data that is corrupt or ends
// early, RESOURCE_EXHAUSTED when it would pass `bytes_max`.
absl::StatusOr<std::string> Decompress(std::span<const std::byte> data, uint64_t bytes_max);

// Appends pieces of one stream; Finish gives the rest.
std::string Compress(ContentCoding coding, std::span<const std::span<const std::byte>> pieces);

}  // namespace stampmill
