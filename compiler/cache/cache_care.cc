// Care of a cache directory: listing, verifying, pruning, export and import of KernelCache.

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "compiler/cache/cache_archive.h"
#include "compiler/cache/cache_directory.h"
#include "compiler/cache/kernel_cache.h"

namespace stampmill {
namespace {

constexpr uint64_t kRecordBytesMax = uint64_t{16} << 20;
constexpr absl::string_view kFilesSuffix = ".files";
// Remembered digests of files that nobody has loaded for so long are only litter.
constexpr int64_t kDigestSecondsMax = int64_t{30} * 24 * 3600;

absl::StatusOr<ModelRecord> ParseModel(absl::string_view text, const Digest& key) {
  ASSIGN_OR_RETURN(ModelRecord record, ModelRecord::Parse(text));
  if (record.Key() != key) return absl::DataLossError("record: of another model");
  return record;
}

absl::Status CheckFiles(absl::string_view text, const Digest& model) {
  ASSIGN_OR_RETURN(const ModelFilesRecord record, ModelFilesRecord::Parse(text));
  if (record.model != model) return absl::DataLossError("record: of another model file");
  return absl::OkStatus();
}

absl::Status CheckObjectFile(const CacheDirectory& disk, absl::string_view name) {
  const std::optional<Digest> digest = Digest::FromHex(name);
  if (!digest.has_value()) return absl::DataLossError("object: its name is no digest");
  ASSIGN_OR_RETURN(const FileDescriptor file, disk.OpenFile(absl::StrCat("objects/", name)));
  ASSIGN_OR_RETURN(const uint64_t size, FileSize(file));
  ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Map(file, 0, size, Mapping::Access::kRead));
  return CheckObject(mapping.bytes(), *digest, ObjectCheck::kWhole).status();
}

absl::Status CheckRecordFile(const CacheDirectory& disk, absl::string_view folder,
                             absl::string_view name) {
  const bool is_files = absl::EndsWith(name, kFilesSuffix);
  const std::optional<Digest> key = Digest::FromHex(absl::StripSuffix(name, kFilesSuffix));
  if (!key.has_value()) return absl::DataLossError("record: its name is no digest");
  ASSIGN_OR_RETURN(const std::string text,
                   disk.ReadText(absl::StrCat(folder, "/", name), kRecordBytesMax));
  if (folder == "kernels") return KernelRecord::Parse(text, *key).status();
  if (is_files) return CheckFiles(text, *key);
  ASSIGN_OR_RETURN(const ModelRecord record, ParseModel(text, *key));
  std::vector<Digest> objects = record.objects;
  objects.push_back(record.program);
  for (const Digest& object : objects) {
    if (!disk.Exists(absl::StrCat("objects/", object.ToHex()))) {
      return absl::DataLossError(absl::StrCat("record: object ", object.ToHex(), " is missing"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CacheListing> KernelCache::List() {
  RETURN_IF_ERROR(CheckHasDirectory());
  CacheListing listing;
  ASSIGN_OR_RETURN(const std::vector<CacheDirectory::Entry> objects, disk_->List("objects"));
  absl::flat_hash_map<std::string, uint64_t> sizes;
  for (const CacheDirectory::Entry& entry : objects) {
    sizes[entry.name] = entry.size;
    ++listing.objects;
    listing.objects_bytes += entry.size;
  }
  ASSIGN_OR_RETURN(const std::vector<CacheDirectory::Entry> records, disk_->List("models"));
  for (const CacheDirectory::Entry& entry : records) {
    if (absl::EndsWith(entry.name, kFilesSuffix)) continue;
    const std::string path = absl::StrCat("models/", entry.name);
    const std::optional<Digest> key = Digest::FromHex(entry.name);
    absl::StatusOr<std::string> text = disk_->ReadText(path, kRecordBytesMax);
    if (absl::IsNotFound(text.status())) continue;  // pruned meanwhile
    absl::StatusOr<ModelRecord> record =
        !text.ok() ? text.status() : ParseModel(*text, key.value_or(Digest{}));
    if (!record.ok()) {
      listing.problems.push_back(absl::StrCat(path, ": ", record.status().message()));
      continue;
    }
    CacheListing::Model model{.record = *std::move(record),
                              .key = *key,
                              .used_unix_seconds = entry.modified_unix_seconds};
    model.size_bytes = sizes[model.record.program.ToHex()];
    for (const Digest& object : model.record.objects) model.size_bytes += sizes[object.ToHex()];
    listing.models.push_back(std::move(model));
  }
  std::sort(listing.models.begin(), listing.models.end(),
            [](const CacheListing::Model& a, const CacheListing::Model& b) {
              return std::pair(-a.used_unix_seconds, a.key) <
                     std::pair(-b.used_unix_seconds, b.key);
            });
  return listing;
}

absl::StatusOr<CacheVerifyReport> KernelCache::Verify() {
  RETURN_IF_ERROR(CheckHasDirectory());
  CacheVerifyReport report;
  for (const absl::string_view folder : {"objects", "models", "kernels"}) {
    ASSIGN_OR_RETURN(const std::vector<CacheDirectory::Entry> entries,
                     disk_->List(folder, CacheDirectory::ListKind::kAll));
    for (const CacheDirectory::Entry& entry : entries) {
      const bool is_object = folder == "objects";
      ++(is_object ? report.objects : report.records);
      const absl::Status status = is_object ? CheckObjectFile(*disk_, entry.name)
                                            : CheckRecordFile(*disk_, folder, entry.name);
      if (status.ok() || absl::IsNotFound(status)) continue;  // pruned meanwhile
      report.problems.push_back(absl::StrCat(folder, "/", entry.name, ": ", status.message()));
      absl::MutexLock lock(&mutex_);
      ++counters_.corrupt_refused;
    }
  }
  return report;
}

absl::StatusOr<CachePruneReport> KernelCache::Prune(uint64_t size_bytes_max) {
  RETURN_IF_ERROR(CheckHasDirectory());
  if (read_only()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cache directory ", options_.directory, ": ", read_only_reason_));
  }
  ASSIGN_OR_RETURN(const auto alone, disk_->Lock("writers", CacheDirectory::LockMode::kExclusive));
  return PruneLocked(size_bytes_max);
}

absl::Status KernelCache::PruneToLimit() {
  if (disk_ == nullptr || read_only()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto alone,
                   disk_->Lock("writers", CacheDirectory::LockMode::kExclusiveNow));
  if (!alone.has_value()) return absl::OkStatus();
  return PruneLocked(options_.size_bytes_max).status();
}

absl::StatusOr<CachePruneReport> KernelCache::PruneLocked(uint64_t size_bytes_max) {
  ASSIGN_OR_RETURN(const CacheListing listing, List());
  ASSIGN_OR_RETURN(const std::vector<CacheDirectory::Entry> objects, disk_->List("objects"));
  absl::flat_hash_map<std::string, uint64_t> sizes;
  for (const CacheDirectory::Entry& entry : objects) sizes[entry.name] = entry.size;
  CachePruneReport report;
  // Most recently used first, each with what it adds to those before it.
  absl::flat_hash_set<std::string> counted;
  uint64_t total = 0;
  std::vector<CacheListing::Model> kept;
  bool is_full = false;
  for (const CacheListing::Model& model : listing.models) {
    // One that does not fit by itself would take the place of all the others and not stay either.
    absl::flat_hash_set<std::string> needed = {model.record.program.ToHex()};
    for (const Digest& object : model.record.objects) needed.insert(object.ToHex());
    uint64_t whole = 0, added = 0;
    for (const std::string& object : needed) {
      whole += sizes[object];
      if (!counted.contains(object)) added += sizes[object];
    }
    if (!is_full && whole <= size_bytes_max) {
      is_full = added > size_bytes_max - total;
      if (!is_full) {
        counted.insert(needed.begin(), needed.end());
        total += added;
        kept.push_back(model);
        continue;
      }
    }
    RETURN_IF_ERROR(disk_->Remove(absl::StrCat("models/", model.key.ToHex())));
    ++report.models_removed;
  }
  RETURN_IF_ERROR(RemoveUnneeded(kept, report));
  return report;
}

absl::Status KernelCache::RemoveUnneeded(std::span<const CacheListing::Model> kept,
                                         CachePruneReport& report) {
  absl::flat_hash_set<std::string> objects;
  absl::flat_hash_set<std::string> records;
  for (const CacheListing::Model& model : kept) {
    objects.insert(model.record.program.ToHex());
    for (const Digest& object : model.record.objects) objects.insert(object.ToHex());
    records.insert(model.key.ToHex());
    records.insert(absl::StrCat(model.record.sources[0].digest.ToHex(), kFilesSuffix));
  }
  {
    // A model whose record could not be written may need objects that could.
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, record] : memory_models_) {
      objects.insert(record.program.ToHex());
      for (const Digest& object : record.objects) objects.insert(object.ToHex());
    }
  }
  ASSIGN_OR_RETURN(const std::vector<CacheDirectory::Entry> object_entries, disk_->List("objects"));
  for (const CacheDirectory::Entry& entry : object_entries) {
    if (objects.contains(entry.name)) {
      report.bytes_kept += entry.size;
      continue;
    }
    RETURN_IF_ERROR(disk_->Remove(absl::StrCat("objects/", entry.name)));
    ++report.objects_removed;
    report.bytes_removed += entry.size;
  }
  // Records that cannot be read go too: nothing would ever find them.
  ASSIGN_OR_RETURN(const std::vector<CacheDirectory::Entry> models, disk_->List("models"));
  for (const CacheDirectory::Entry& entry : models) {
    if (records.contains(entry.name)) continue;
    RETURN_IF_ERROR(disk_->Remove(absl::StrCat("models/", entry.name)));
  }
  ASSIGN_OR_RETURN(const std::vector<CacheDirectory::Entry> kernels, disk_->List("kernels"));
  for (const CacheDirectory::Entry& entry : kernels) {
    const std::string path = absl::StrCat("kernels/", entry.name);
    const std::optional<Digest> key = Digest::FromHex(entry.name);
    const absl::StatusOr<std::string> text = disk_->ReadText(path, kRecordBytesMax);
    if (key.has_value() && text.ok()) {
      const absl::StatusOr<KernelRecord> record = KernelRecord::Parse(*text, *key);
      if (record.ok() && objects.contains(record->artifact.ToHex())) continue;
    }
    RETURN_IF_ERROR(disk_->Remove(path));
  }
  ASSIGN_OR_RETURN(const std::vector<CacheDirectory::Entry> digests, disk_->List("digests"));
  for (const CacheDirectory::Entry& entry : digests) {
    if (time(nullptr) - entry.modified_unix_seconds < kDigestSecondsMax) continue;
    RETURN_IF_ERROR(disk_->Remove(absl::StrCat("digests/", entry.name)));
  }
  return absl::OkStatus();
}

namespace {

std::string ArchivePath(const ArchiveEntry& entry) {
  const std::string name = entry.name.ToHex();
  switch (entry.kind) {
    case ArchiveKind::kObject:
      return absl::StrCat("objects/", name);
    case ArchiveKind::kKernel:
      return absl::StrCat("kernels/", name);
    case ArchiveKind::kFiles:
      return absl::StrCat("models/", name, kFilesSuffix);
    case ArchiveKind::kModel:
      return absl::StrCat("models/", name);
  }
  return "";
}

// What the chosen models need, each once, in the order of import.
absl::StatusOr<std::vector<ArchiveEntry>> EntriesOf(const CacheDirectory& disk,
                                                    const CacheListing& listing,
                                                    std::span<const std::string> chosen) {
  absl::flat_hash_set<Digest> objects, files, models;
  absl::flat_hash_set<std::string> found;
  for (const CacheListing::Model& model : listing.models) {
    bool wanted = chosen.empty();
    for (const std::string& name : chosen) {
      if (name != model.record.name && name != model.key.ToHex()) continue;
      wanted = true;
      found.insert(name);
    }
    if (!wanted) continue;
    models.insert(model.key);
    files.insert(model.record.sources[0].digest);
    objects.insert(model.record.program);
    objects.insert(model.record.objects.begin(), model.record.objects.end());
  }
  for (const std::string& name : chosen) {
    if (!found.contains(name)) {
      return absl::NotFoundError(absl::StrCat("model '", name, "': not in the cache"));
    }
  }
  std::vector<ArchiveEntry> entries;
  const auto add = [&entries](ArchiveKind kind, const absl::flat_hash_set<Digest>& names) {
    for (const Digest& name : names) entries.push_back({.kind = kind, .name = name});
  };
  add(ArchiveKind::kObject, objects);
  add(ArchiveKind::kFiles, files);
  add(ArchiveKind::kModel, models);
  ASSIGN_OR_RETURN(const std::vector<CacheDirectory::Entry> kernels, disk.List("kernels"));
  for (const CacheDirectory::Entry& kernel : kernels) {
    const std::optional<Digest> key = Digest::FromHex(kernel.name);
    const absl::StatusOr<std::string> text =
        disk.ReadText(absl::StrCat("kernels/", kernel.name), kRecordBytesMax);
    if (!key.has_value() || !text.ok()) continue;
    const absl::StatusOr<KernelRecord> record = KernelRecord::Parse(*text, *key);
    if (!record.ok() || !objects.contains(record->artifact)) continue;
    entries.push_back({.kind = ArchiveKind::kKernel, .name = *key});
  }
  // Sorted: the same contents make the same file.
  std::sort(entries.begin(), entries.end(), [](const ArchiveEntry& a, const ArchiveEntry& b) {
    return std::pair(a.kind, a.name) < std::pair(b.kind, b.name);
  });
  return entries;
}

absl::Status WriteContents(const FileDescriptor& out, absl::string_view path,
                           const ArchiveEntry& entry, const FileDescriptor& source) {
  ASSIGN_OR_RETURN(const uint64_t size, FileSize(source));
  if (size != entry.size) {
    return absl::AbortedError(absl::StrCat(ArchivePath(entry), ": changed while it was exported"));
  }
  ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Map(source, 0, size, Mapping::Access::kRead));
  if (entry.kind == ArchiveKind::kObject) {
    const absl::Status intact =
        CheckObject(mapping.bytes(), entry.name, ObjectCheck::kWhole).status();
    if (!intact.ok()) {
      return absl::Status(intact.code(), absl::StrCat(ArchivePath(entry), ": ", intact.message()));
    }
  }
  RETURN_IF_ERROR(WriteAll(out, mapping.bytes(), path));
  static constexpr std::byte kZeros[kArchiveAlignment] = {};
  return WriteAll(
      out,
      std::span(kZeros).first((kArchiveAlignment - size % kArchiveAlignment) % kArchiveAlignment),
      path);
}

// What one entry's contents must be, whatever wrote the archive.
absl::Status CheckEntry(const ArchiveEntry& entry, std::span<const std::byte> bytes) {
  switch (entry.kind) {
    case ArchiveKind::kObject:
      return CheckObject(bytes, entry.name, ObjectCheck::kWhole).status();
    case ArchiveKind::kKernel:
      return KernelRecord::Parse(AsText(bytes), entry.name).status();
    case ArchiveKind::kFiles:
      return CheckFiles(AsText(bytes), entry.name);
    case ArchiveKind::kModel:
      return ParseModel(AsText(bytes), entry.name).status();
  }
  return absl::DataLossError("unknown kind");
}

// Every object that a record names must be in the archive.
absl::Status CheckComplete(std::span<const ArchiveEntry> entries,
                           std::span<const std::byte> archive) {
  absl::flat_hash_set<Digest> objects;
  for (const ArchiveEntry& entry : entries) {
    const std::span<const std::byte> bytes = archive.subspan(entry.offset, entry.size);
    std::vector<Digest> needed;
    if (entry.kind == ArchiveKind::kObject) {
      objects.insert(entry.name);
    } else if (entry.kind == ArchiveKind::kKernel) {
      ASSIGN_OR_RETURN(const KernelRecord record, KernelRecord::Parse(AsText(bytes), entry.name));
      needed.push_back(record.artifact);
    } else if (entry.kind == ArchiveKind::kModel) {
      ASSIGN_OR_RETURN(const ModelRecord record, ParseModel(AsText(bytes), entry.name));
      needed = record.objects;
      needed.push_back(record.program);
    }
    for (const Digest& object : needed) {
      if (!objects.contains(object)) {
        return absl::DataLossError(
            absl::StrCat("cache archive: object ", object.ToHex(), " is missing"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status KernelCache::Export(absl::string_view path, std::span<const std::string> models) {
  RETURN_IF_ERROR(CheckHasDirectory());
  ASSIGN_OR_RETURN(const CacheListing listing, List());
  ASSIGN_OR_RETURN(std::vector<ArchiveEntry> entries, EntriesOf(*disk_, listing, models));
  // Open all first: a prune at the same time then takes nothing away.
  std::vector<FileDescriptor> sources;
  for (ArchiveEntry& entry : entries) {
    ASSIGN_OR_RETURN(FileDescriptor source, disk_->OpenFile(ArchivePath(entry)));
    ASSIGN_OR_RETURN(entry.size, FileSize(source));
    sources.push_back(std::move(source));
  }
  const std::string head = ArchiveHead(entries);
  ASSIGN_OR_RETURN(FileReplacement out, FileReplacement::Begin(path));
  RETURN_IF_ERROR(WriteAll(out.file(), AsBytes(head), path));
  for (size_t i = 0; i < entries.size(); ++i) {
    RETURN_IF_ERROR(WriteContents(out.file(), path, entries[i], sources[i]));
  }
  return out.Commit();
}

absl::StatusOr<int64_t> KernelCache::Import(absl::string_view path) {
  RETURN_IF_ERROR(CheckHasDirectory());
  if (read_only()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cache directory ", options_.directory, ": ", read_only_reason_));
  }
  ASSIGN_OR_RETURN(const Mapping archive, Mapping::File(path));
  ASSIGN_OR_RETURN(const std::vector<ArchiveEntry> entries, ParseArchive(archive.bytes()));
  for (const ArchiveEntry& entry : entries) {
    const absl::Status sound = CheckEntry(entry, archive.bytes().subspan(entry.offset, entry.size));
    if (!sound.ok()) {
      return absl::Status(
          sound.code(), absl::StrCat("cache archive: ", ArchivePath(entry), ": ", sound.message()));
    }
  }
  RETURN_IF_ERROR(CheckComplete(entries, archive.bytes()));
  ASSIGN_OR_RETURN(const auto writer, disk_->Lock("writers", CacheDirectory::LockMode::kShared));
  int64_t models = 0;
  for (const ArchiveEntry& entry : entries) {
    const std::span<const std::byte> bytes = archive.bytes().subspan(entry.offset, entry.size);
    RETURN_IF_ERROR(disk_->Write(ArchivePath(entry), {&bytes, 1}, CacheDirectory::Sync::kYes));
    models += entry.kind == ArchiveKind::kModel ? 1 : 0;
  }
  return models;
}

}  // namespace stampmill
