// Any bytes as each of the cache's formats: records, objects, archives. What parses is what it was
// written from.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "compiler/cache/cache_archive.h"
#include "compiler/cache/model_record.h"
#include "compiler/cache/object_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  if (bytes.empty()) return 0;
  // The first byte says how the digest is had: most inputs would fail at it and get no further.
  const bool mend = (static_cast<uint8_t>(bytes[0]) & 1) != 0;
  bytes = bytes.subspan(1);

  std::string text(AsText(bytes));
  if (mend) text += absl::StrCat("sum ", Sha256(AsBytes(text)).ToHex(), "\n");
  if (const auto record = ModelRecord::Parse(text); record.ok()) {
    CHECK(ModelRecord::Parse(record->Serialize())->Key() == record->Key());
  }
  if (const auto record = ModelFilesRecord::Parse(text); record.ok()) {
    CHECK(ModelFilesRecord::Parse(record->Serialize())->paths == record->paths);
  }
  const Digest key = Sha256(AsBytes("key"));
  if (const auto record = KernelRecord::Parse(text, key); record.ok()) {
    CHECK(KernelRecord::Parse(record->Serialize(key), key)->entry == record->entry);
  }

  Digest digest;
  if (mend) {
    digest = Sha256(bytes.first(std::min<size_t>(bytes.size(), 4096)));
    if (IsPlainObject(bytes)) digest = Sha256(bytes);
  }
  if (const auto view = CheckObject(bytes, digest, ObjectCheck::kWhole); view.ok()) {
    CHECK_LE(view->offset, bytes.size());
    CHECK_EQ(view->bytes.size(), bytes.size() - view->offset);
    // In two parts: the head does not depend on how the payload comes.
    const size_t half = view->bytes.size() / 2;
    const std::span<const std::byte> parts[] = {view->bytes.first(half), view->bytes.subspan(half)};
    if (view->is_weights) CHECK(WeightsHead(parts) == AsText(bytes.first(view->offset)));
  }

  std::string archive(AsText(bytes));
  if (mend && archive.size() > 64) {
    const uint64_t table =
        std::min<uint64_t>(static_cast<uint8_t>(archive[16]) * 64, archive.size() - 64);
    const Digest sum = Sha256(AsBytes(archive).subspan(64, table));
    archive.replace(32, 32, reinterpret_cast<const char*>(sum.bytes.data()), 32);
  }
  if (auto entries = ParseArchive(AsBytes(archive)); entries.ok()) {
    for (const ArchiveEntry& entry : *entries) {
      CHECK_LE(entry.offset + entry.size, archive.size());
    }
    const std::vector<ArchiveEntry> parsed = *entries;
    ArchiveHead(*entries);
    for (size_t i = 0; i < parsed.size(); ++i) CHECK_EQ(parsed[i].offset, (*entries)[i].offset);
  }
  return 0;
}
