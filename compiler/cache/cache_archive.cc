#include "compiler/cache/cache_archive.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace stampmill {
namespace {

constexpr absl::string_view kMagic("STMPARC\0", 8);
constexpr uint32_t kVersion = 1;
constexpr uint64_t kFixedHead = 64;
constexpr size_t kDigestHexBytes = 64;
constexpr size_t kEntryBytes = 1 + 4 + kDigestHexBytes + 8 + 8;

uint64_t Aligned(uint64_t offset) {
  return (offset + kArchiveAlignment - 1) / kArchiveAlignment * kArchiveAlignment;
}

}  // namespace

std::string ArchiveHead(std::span<ArchiveEntry> entries) {
  uint64_t offset = Aligned(kFixedHead + entries.size() * kEntryBytes);
  std::string table;
  ByteWriter out(&table);
  for (ArchiveEntry& entry : entries) {
    entry.offset = offset;
    offset = Aligned(offset + entry.size);
    out.U8(static_cast<uint8_t>(entry.kind));
    out.String(entry.name.ToHex());
    out.U64(entry.offset);
    out.U64(entry.size);
  }
  const Digest digest = Sha256(AsBytes(table));
  std::string head;
  ByteWriter head_out(&head);
  head_out.Bytes(AsBytes(kMagic));
  head_out.U32(kVersion);
  head_out.U32(static_cast<uint32_t>(entries.size()));
  head_out.U64(table.size());
  head_out.U64(0);
  head_out.Bytes(std::as_bytes(std::span(digest.bytes)));
  head_out.Bytes(AsBytes(table));
  head_out.AlignTo(kArchiveAlignment);
  return head;
}

absl::StatusOr<std::vector<ArchiveEntry>> ParseArchive(std::span<const std::byte> file) {
  ByteReader in(file, "cache archive");
  if (AsText(in.Bytes(kMagic.size())) != kMagic) {
    return absl::DataLossError("cache archive: not a file that `cache export` made");
  }
  const uint32_t version = in.U32();
  if (in.ok() && version != kVersion) {
    return absl::DataLossError(
        absl::StrCat("cache archive version: got ", version, ", limit ", kVersion));
  }
  const uint32_t count = in.U32();
  const uint64_t table_size = in.U64();
  if (in.U64() != 0) in.Fail("reserved bytes are not zero");
  const std::span<const std::byte> digest = in.Bytes(sizeof(Digest::bytes));
  const std::span<const std::byte> table_bytes = in.Bytes(table_size);
  if (!in.ok()) return absl::DataLossError(in.status().message());
  const Digest actual = Sha256(table_bytes);
  if (AsText(digest) != AsText(std::as_bytes(std::span(actual.bytes)))) {
    return absl::DataLossError("cache archive: the table does not match its digest");
  }
  if (table_size != count * uint64_t{kEntryBytes}) {
    return absl::DataLossError(
        absl::StrCat("cache archive table: got ", table_size, " bytes for ", count, " entries"));
  }
  ByteReader table(table_bytes, "cache archive table");
  std::vector<ArchiveEntry> entries;
  entries.reserve(count);
  uint64_t expected = Aligned(kFixedHead + table_size);
  for (uint32_t i = 0; i < count; ++i) {
    ArchiveEntry entry;
    const uint8_t kind = table.U8();
    if (kind > static_cast<uint8_t>(ArchiveKind::kModel)) table.Fail("unknown kind");
    entry.kind = static_cast<ArchiveKind>(kind);
    const std::optional<Digest> name = Digest::FromHex(table.String());
    if (!name.has_value()) table.Fail("a name that is no digest");
    entry.name = name.value_or(Digest{});
    entry.offset = table.U64();
    entry.size = table.U64();
    if (entry.offset != expected || entry.offset > file.size() ||
        entry.size > file.size() - entry.offset) {
      table.Fail("contents outside the file");
    }
    if (!table.ok()) return absl::DataLossError(table.status().message());
    expected = Aligned(entry.offset + entry.size);
    entries.push_back(entry);
  }
  return entries;
}

}  // namespace stampmill
