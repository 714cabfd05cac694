// The one-file form of cache contents, for `cache export` and `cache import`.
//
// Byte table (little endian, version 1):
//   0   8   magic "STMPARC\0"
//   8   4   version (1)
//   12  4   number of entries
//   16  8   size of the table
//   24  8   zero
//   32  32  SHA-256 of the table
//   64  -   the table; an entry is u8 kind, u32 size and bytes of its name (64 hex digits),
//           u64 offset, u64 size of its contents
//   ... contents, each at a multiple of 64, in the order of the table, up to the end of the file
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/hash.h"

namespace stampmill {

// In the order in which they are imported: what a record names comes before it.
enum class ArchiveKind : uint8_t { kObject = 0, kKernel = 1, kFiles = 2, kModel = 3 };

struct ArchiveEntry {
  ArchiveKind kind = ArchiveKind::kObject;
  Digest name;
  uint64_t offset = 0;  // in the archive
  uint64_t size = 0;
};

// Sets every offset and returns the head, table and padding up to the first content. The caller
// writes the contents, each followed by zeros up to a multiple of kArchiveAlignment.
inline constexpr uint64_t kArchiveAlignment = 64;
std::string ArchiveHead(std::span<ArchiveEntry> entries);

// DATA_LOSS unless head and table are whole and every entry lies within the file. What the contents
// are is the caller's to check.
absl::StatusOr<std::vector<ArchiveEntry>> ParseArchive(std::span<const std::byte> file);

}  // namespace stampmill
