#include "compiler/cache/kernel_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "compiler/cache/cache_directory.h"

namespace stampmill {
namespace {

constexpr uint64_t kRecordBytesMax = uint64_t{16} << 20;
constexpr absl::string_view kWritersLock = "writers";
constexpr absl::string_view kRefused = " refused: ";  // between the path and the reason
// A file changed this recently may change again under the same timestamps: its digest is not kept.
constexpr int64_t kSettledSeconds = 2;

std::string ObjectPath(const Digest& digest) { return absl::StrCat("objects/", digest.ToHex()); }
std::string ModelPath(const ModelKey& key) { return absl::StrCat("models/", key.ToHex()); }
std::string FilesPath(const Digest& model) {
  return absl::StrCat("models/", model.ToHex(), ".files");
}
std::string KernelPath(const Digest& key) { return absl::StrCat("kernels/", key.ToHex()); }

std::string FolderOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? "." : std::string(path.substr(0, slash + 1));
}

// Everything that changes when a file's bytes may have.
std::string IdentityOf(const struct stat& info) {
  return absl::StrCat(info.st_dev, " ", info.st_ino, " ", info.st_size, " ", info.st_mtim.tv_sec,
                      ".", info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, ".",
                      info.st_ctim.tv_nsec);
}

// Of what has this name, links not followed; empty when nothing has.
std::string EntryIdentity(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 ? IdentityOf(info) : "";
}

// Where an identity's digest is remembered: one file for each inode, so that they do not pile up.
std::string DigestPath(absl::string_view identity) {
  const std::vector<absl::string_view> parts = absl::StrSplit(identity, ' ');
  return absl::StrCat("digests/", parts[0], "-", parts[1]);
}

// read(2), not a mapping: a file that is cut off meanwhile is an error and not a signal.
absl::StatusOr<Digest> DigestOf(const FileDescriptor& file, absl::string_view path) {
  constexpr size_t kBufferBytes = size_t{1} << 20;
  const auto buffer = std::make_unique<std::byte[]>(kBufferBytes);
  Sha256Stream hash;
  uint64_t offset = 0;
  for (;;) {
    const ssize_t n = pread(file.get(), buffer.get(), kBufferBytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, absl::StrCat("read ", path));
    if (n == 0) return hash.Finish();
    hash.Update(std::span<const std::byte>(buffer.get(), static_cast<size_t>(n)));
    offset += static_cast<uint64_t>(n);
  }
}

uint64_t TotalSize(ByteParts parts) {
  uint64_t size = 0;
  for (const std::span<const std::byte> part : parts) size += part.size();
  return size;
}

}  // namespace

std::string DefaultCacheDirectory() {
  const char* cache_home = getenv("XDG_CACHE_HOME");
  if (cache_home != nullptr && cache_home[0] == '/') return absl::StrCat(cache_home, "/stampmill");
  const char* home = getenv("HOME");
  if (home != nullptr && home[0] == '/') return absl::StrCat(home, "/.cache/stampmill");
  return "";
}

absl::StatusOr<std::unique_ptr<KernelCache>> KernelCache::Open(const KernelCacheOptions& options) {
  if (options.directory.empty()) {
    return std::unique_ptr<KernelCache>(new KernelCache(options, nullptr, "no cache directory"));
  }
  ASSIGN_OR_RETURN(CacheDirectory::Opened opened,
                   CacheDirectory::Open({.path = options.directory,
                                         .is_default = options.is_default,
                                         .writable = options.writable}));
  if (opened.directory == nullptr) {
    LOG(WARNING) << "cache directory " << options.directory
                 << " cannot be used, compiled models stay in this process: "
                 << opened.read_only_reason;
  } else if (!opened.read_only_reason.empty() && options.writable) {
    LOG(WARNING) << "cache directory " << options.directory
                 << " cannot be written, compiled models stay in this process: "
                 << opened.read_only_reason;
  }
  return std::unique_ptr<KernelCache>(
      new KernelCache(options, std::move(opened.directory), std::move(opened.read_only_reason)));
}

KernelCache::KernelCache(KernelCacheOptions options, std::unique_ptr<CacheDirectory> disk,
                         std::string read_only_reason)
    : options_(std::move(options)),
      disk_(std::move(disk)),
      read_only_reason_(std::move(read_only_reason)) {}

KernelCache::~KernelCache() = default;

absl::Status KernelCache::CheckHasDirectory() const {
  if (disk_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      options_.directory.empty()
          ? "cache directory: none was named"
          : absl::StrCat("cache directory ", options_.directory, ": ", read_only_reason_));
}

KernelCacheCounters KernelCache::counters() const {
  absl::MutexLock lock(&mutex_);
  KernelCacheCounters counters = counters_;
  counters.objects_in_memory = static_cast<int64_t>(memory_.size());
  return counters;
}

// --- Models.

absl::StatusOr<Digest> KernelCache::FileDigest(absl::string_view path) {
  constexpr int kTriesMax = 3;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(path, O_RDONLY | O_NONBLOCK));
    struct stat before, after;
    if (fstat(file.get(), &before) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("stat ", path));
    }
    if (!S_ISREG(before.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat("model file ", path, ": not a regular file"));
    }
    const std::string identity = IdentityOf(before);
    if (const std::optional<Digest> known = RememberedDigest(identity)) return *known;
    ASSIGN_OR_RETURN(const Digest digest, DigestOf(file, path));
    if (fstat(file.get(), &after) != 0 || IdentityOf(after) != identity) continue;
    if (time(nullptr) - std::max(before.st_mtim.tv_sec, before.st_ctim.tv_sec) > kSettledSeconds) {
      RememberDigest(identity, digest);
    }
    return digest;
  }
  return absl::UnavailableError(absl::StrCat("model file ", path, ": changes while it is read"));
}

std::optional<Digest> KernelCache::RememberedDigest(const std::string& identity) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = file_digests_.find(identity);
    if (found != file_digests_.end()) return found->second;
  }
  if (disk_ == nullptr) return std::nullopt;
  const absl::StatusOr<std::string> text = disk_->ReadText(DigestPath(identity), 4096);
  if (!text.ok()) return std::nullopt;
  // identity, digest, and the sum of both: a torn record is as good as none.
  const std::vector<absl::string_view> lines = absl::StrSplit(*text, '\n');
  if (lines.size() != 4 || lines[0] != identity) return std::nullopt;
  if (Sha256(AsBytes(absl::StrCat(lines[0], "\n", lines[1], "\n"))).ToHex() != lines[2]) {
    return std::nullopt;
  }
  const std::optional<Digest> digest = Digest::FromHex(lines[1]);
  if (digest.has_value()) {
    absl::MutexLock lock(&mutex_);
    file_digests_[identity] = *digest;
  }
  return digest;
}

void KernelCache::RememberDigest(const std::string& identity, const Digest& digest) {
  {
    absl::MutexLock lock(&mutex_);
    file_digests_[identity] = digest;
  }
  if (read_only()) return;
  std::string text = absl::StrCat(identity, "\n", digest.ToHex(), "\n");
  absl::StrAppend(&text, Sha256(AsBytes(text)).ToHex(), "\n");
  // Failing costs time at the next start, nothing else; WriteRecord has counted it.
  WriteRecord(DigestPath(identity), text, /*sync=*/false).IgnoreError();
}

absl::StatusOr<std::vector<std::string>> KernelCache::ExternalFiles(const Digest& model) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = memory_files_.find(model);
    if (found != memory_files_.end()) return found->second;
  }
  if (disk_ == nullptr) return absl::NotFoundError("file list");
  const std::string path = FilesPath(model);
  ASSIGN_OR_RETURN(const std::string text, ReadRecord(path));
  absl::StatusOr<ModelFilesRecord> record = ModelFilesRecord::Parse(text);
  if (record.ok() && record->model != model) {
    record = absl::DataLossError("record: of another model file");
  }
  if (!record.ok()) {
    Refuse(path, record.status());
    return record.status();
  }
  return std::move(record->paths);
}

absl::StatusOr<ModelKey> KernelCache::KeyOf(const ModelSource& source, const Digest& model) {
  ModelRecord record{
      .target = source.target, .options = source.options, .compiler_abi = source.compiler_abi};
  record.sources.push_back({.digest = model});
  ASSIGN_OR_RETURN(const std::vector<std::string> files, ExternalFiles(model));
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const Digest digest,
                     FileDigest(absl::StrCat(FolderOf(source.path), "/", file)));
    record.sources.push_back({.digest = digest});
  }
  return record.Key();
}

absl::StatusOr<ModelRecord> KernelCache::ReadModel(const ModelKey& key) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = memory_models_.find(key);
    if (found != memory_models_.end()) return found->second;
  }
  if (disk_ == nullptr) return absl::NotFoundError("model record");
  const std::string path = ModelPath(key);
  ASSIGN_OR_RETURN(const std::string text, ReadRecord(path));
  absl::StatusOr<ModelRecord> record = ModelRecord::Parse(text);
  if (record.ok() && record->Key() != key) {
    record = absl::DataLossError("record: of another model");
  }
  if (!record.ok()) Refuse(path, record.status());
  return record;
}

absl::StatusOr<ModelRecord> KernelCache::Lookup(const ModelSource& source, const Digest& model) {
  ASSIGN_OR_RETURN(const ModelKey key, KeyOf(source, model));
  ASSIGN_OR_RETURN(ModelRecord record, ReadModel(key));
  if (!Contains(record.program)) return absl::NotFoundError("program object");
  for (const Digest& object : record.objects) {
    if (!Contains(object)) return absl::NotFoundError("object of the program");
  }
  if (!read_only()) disk_->Touch(ModelPath(key));
  return record;
}

absl::StatusOr<ModelRecord> KernelCache::FindModel(const ModelSource& source) {
  // What is wrong with the model file itself is not a miss.
  ASSIGN_OR_RETURN(const Digest model, FileDigest(source.path));
  absl::StatusOr<ModelRecord> record = Lookup(source, model);
  absl::MutexLock lock(&mutex_);
  if (record.ok()) {
    ++counters_.hits;
  } else {
    ++counters_.misses;
    if (absl::IsNotFound(record.status())) {
      return absl::NotFoundError(absl::StrCat("compiled model of ", source.path, " for ",
                                              source.target, ": not in the cache"));
    }
  }
  return record;
}

absl::StatusOr<ModelRecord> KernelCache::PeekModel(const ModelSource& source) {
  ASSIGN_OR_RETURN(const Digest model, FileDigest(source.path));
  return Lookup(source, model);
}

absl::Status KernelCache::PutModel(const ModelRecord& record) {
  if (record.sources.empty()) return absl::InvalidArgumentError("model record: no source");
  ModelFilesRecord files{.model = record.sources[0].digest};
  for (size_t i = 1; i < record.sources.size(); ++i) files.paths.push_back(record.sources[i].path);
  const std::string files_text = files.Serialize();
  const absl::StatusOr<ModelFilesRecord> reread = ModelFilesRecord::Parse(files_text);
  if (!reread.ok() || reread->paths != files.paths) {
    return absl::InvalidArgumentError("model record: a path with control characters, or outside");
  }
  bool in_memory = read_only();
  std::vector<Digest> objects = record.objects;
  objects.push_back(record.program);
  for (const Digest& object : objects) {
    if (!Contains(object)) {
      return absl::FailedPreconditionError(
          absl::StrCat("model record: object ", object.ToHex(), " is not in the cache"));
    }
    absl::MutexLock lock(&mutex_);
    in_memory |= memory_.contains(object);
  }
  // The list first: a record without it would never be found.
  in_memory = in_memory || !WriteRecord(FilesPath(files.model), files_text, /*sync=*/true).ok() ||
              !WriteRecord(ModelPath(record.Key()), record.Serialize(), /*sync=*/true).ok();
  if (in_memory) {
    absl::MutexLock lock(&mutex_);
    memory_files_[files.model] = files.paths;
    memory_models_[record.Key()] = record;
  }
  return absl::OkStatus();
}

absl::Status KernelCache::WriteRecord(absl::string_view relative, absl::string_view text,
                                      bool sync) {
  if (disk_ == nullptr) return absl::FailedPreconditionError("no cache directory");
  const std::span<const std::byte> part = AsBytes(text);
  absl::Status written = disk_->Write(
      relative, {&part, 1}, sync ? CacheDirectory::Sync::kYes : CacheDirectory::Sync::kNo);
  if (!written.ok()) {
    CountUnwritten(written);
  }
  return written;
}

void KernelCache::CountUnwritten(const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    ++counters_.write_failures;
  }
  TellUnwritten(why.message());
}

void KernelCache::TellUnwritten(absl::string_view why) {
  {
    absl::MutexLock lock(&mutex_);
    if (!unwritten_reason_.empty()) return;
    unwritten_reason_ = std::string(why);
  }
  if (options_.unwritten) {
    options_.unwritten(why);
    return;
  }
  LOG(WARNING) << "cache directory " << options_.directory
               << " could not be written, what is compiled may stay in this process: " << why;
}

std::string KernelCache::unwritten_reason() const {
  absl::MutexLock lock(&mutex_);
  return unwritten_reason_;
}

absl::StatusOr<std::string> KernelCache::ReadRecord(absl::string_view relative) {
  absl::StatusOr<std::string> text = disk_->ReadText(relative, kRecordBytesMax);
  if (absl::IsDataLoss(text.status())) Refuse(relative, text.status());
  return text;
}

void KernelCache::Refuse(absl::string_view relative, const absl::Status& why) {
  const std::string path = disk_->Path(relative);
  if (read_only() || !disk_->Remove(relative).ok()) {
    std::string identity = EntryIdentity(path);
    absl::MutexLock lock(&mutex_);
    const auto [known, is_new] = refused_.try_emplace(path, identity);
    if (!is_new && known->second == identity) return;
    known->second = std::move(identity);
  }
  TellRefused(absl::StrCat(path, kRefused, why.message()));
}

bool KernelCache::IsRefused(absl::string_view relative) {
  const std::string path = disk_->Path(relative);
  absl::MutexLock lock(&mutex_);
  const auto known = refused_.find(path);
  return known != refused_.end() && known->second == EntryIdentity(path);
}

void KernelCache::CountRefused(absl::string_view what) {
  {
    const std::string path(what.substr(0, what.find(kRefused)));
    std::string identity = EntryIdentity(path);
    absl::MutexLock lock(&mutex_);
    const auto known = refused_.find(path);
    if (known != refused_.end() && known->second == identity) return;
    // Where it can be written the entry may by now be the one that took the refused one's place.
    if (read_only()) refused_[path] = std::move(identity);
  }
  TellRefused(what);
}

void KernelCache::TellRefused(absl::string_view what) {
  if (options_.refused) {
    options_.refused(what);
  } else {
    LOG(ERROR) << "cache: " << what;
  }
  absl::MutexLock lock(&mutex_);
  ++counters_.corrupt_refused;
}

KernelCache::Lock::Lock(Lock&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      name_(std::move(other.name_)),
      path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      writers_file_(std::move(other.writers_file_)) {}

KernelCache::Lock::~Lock() {
  if (cache_ == nullptr) return;
  // Removed while it is held; whoever waits for it sees that the name is gone and makes a new one.
  if (file_.valid()) unlink(path_.c_str());
  file_.Close();
  absl::MutexLock lock(&cache_->mutex_);
  cache_->locked_.erase(name_);
}

absl::StatusOr<KernelCache::Lock> KernelCache::LockModel(const ModelSource& source) {
  // External data is not known before the model is read: the lock's name leaves it out.
  ModelRecord record{
      .target = source.target, .options = source.options, .compiler_abi = source.compiler_abi};
  ASSIGN_OR_RETURN(const Digest digest, FileDigest(source.path));
  record.sources.push_back({.digest = digest});
  Lock lock;
  lock.name_ = record.Key().ToHex();
  {
    absl::MutexLock guard(&mutex_);
    const auto is_free = [this, &lock] {
      mutex_.AssertReaderHeld();
      return !locked_.contains(lock.name_);
    };
    mutex_.Await(absl::Condition(&is_free));
    locked_.insert(lock.name_);
  }
  lock.cache_ = this;
  if (read_only()) return lock;
  absl::StatusOr<std::optional<FileDescriptor>> writers =
      disk_->Lock(kWritersLock, CacheDirectory::LockMode::kShared);
  absl::StatusOr<std::optional<FileDescriptor>> file =
      disk_->Lock(lock.name_, CacheDirectory::LockMode::kExclusive);
  if (!writers.ok() || !file.ok()) {
    // The disk has failed since Open; within this process the lock still holds.
    LOG(WARNING) << "cache: no lock between processes: "
                 << (writers.ok() ? file.status() : writers.status()).ToString();
    return lock;
  }
  lock.writers_file_ = *std::move(*writers);
  lock.path_ = disk_->Path(absl::StrCat("tmp/", lock.name_, ".lock"));
  lock.file_ = *std::move(*file);
  return lock;
}

// --- Objects.

absl::StatusOr<CacheObjectPtr> KernelCache::OpenObject(FileDescriptor file, const Digest& digest) {
  auto object = std::make_shared<CacheObject>();
  ASSIGN_OR_RETURN(const uint64_t size, FileSize(file));
  ASSIGN_OR_RETURN(object->mapping_, Mapping::Map(file, 0, size, Mapping::Access::kRead));
  ASSIGN_OR_RETURN(const ObjectView view,
                   CheckObject(object->mapping_.bytes(), digest, ObjectCheck::kLoad));
  object->digest_ = digest;
  object->is_weights_ = view.is_weights;
  object->bytes_ = view.bytes;
  object->offset_ = view.offset;
  object->file_ = std::move(file);
  return CacheObjectPtr(std::move(object));
}

absl::StatusOr<Digest> KernelCache::Put(std::span<const std::byte> bytes) {
  if (!IsPlainObject(bytes)) {
    return absl::InvalidArgumentError("object: begins like packed weights");
  }
  return Store(Sha256(bytes), {&bytes, 1});
}

absl::StatusOr<Digest> KernelCache::PutWeights(ByteParts parts) {
  const std::string head = WeightsHead(parts);
  std::vector<std::span<const std::byte>> whole = {AsBytes(head)};
  whole.insert(whole.end(), parts.begin(), parts.end());
  return Store(Sha256(AsBytes(head)), whole);
}

absl::StatusOr<Digest> KernelCache::Store(const Digest& digest, ByteParts parts) {
  // Read, not only looked for: a corrupt one would be found only when the model is loaded.
  if (Get(digest).ok()) return digest;
  if (!read_only()) {
    absl::Status written = disk_->Write(ObjectPath(digest), parts, CacheDirectory::Sync::kYes);
    if (written.ok()) return digest;
    CountUnwritten(written);
  }
  RETURN_IF_ERROR(KeepInMemory(digest, parts));
  if (read_only()) {
    absl::MutexLock lock(&mutex_);
    ++counters_.write_failures;
  }
  return digest;
}

absl::Status KernelCache::KeepInMemory(const Digest& digest, ByteParts parts) {
  ASSIGN_OR_RETURN(FileDescriptor file, CreateMemfd("stampmill-object", TotalSize(parts)));
  for (const std::span<const std::byte> part : parts) {
    RETURN_IF_ERROR(WriteAll(file, part, "memfd"));
  }
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
    return absl::ErrnoToStatus(errno, "seal memfd");
  }
  return Keep(digest, std::move(file));
}

absl::Status KernelCache::Adopt(const Digest& digest, FileDescriptor file) {
  RETURN_IF_ERROR(Keep(digest, std::move(file)));
  absl::MutexLock lock(&mutex_);
  ++counters_.write_failures;
  return absl::OkStatus();
}

absl::Status KernelCache::Keep(const Digest& digest, FileDescriptor file) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError("object in memory: not sealed");
  }
  ASSIGN_OR_RETURN(CacheObjectPtr object, OpenObject(std::move(file), digest));
  absl::MutexLock lock(&mutex_);
  memory_.emplace(digest, std::move(object));
  return absl::OkStatus();
}

absl::StatusOr<CacheObjectPtr> KernelCache::Get(const Digest& digest) {
  {
    absl::MutexLock lock(&mutex_);
    const auto in_memory = memory_.find(digest);
    if (in_memory != memory_.end()) return in_memory->second;
    const auto mapped = mapped_.find(digest);
    if (mapped != mapped_.end()) {
      if (CacheObjectPtr object = mapped->second.lock()) return object;
      mapped_.erase(mapped);
    }
  }
  if (disk_ == nullptr) return absl::NotFoundError(absl::StrCat("object ", digest.ToHex()));
  const std::string path = ObjectPath(digest);
  absl::StatusOr<FileDescriptor> file = disk_->OpenFile(path);
  absl::StatusOr<CacheObjectPtr> object =
      file.ok() ? OpenObject(*std::move(file), digest) : file.status();
  if (!object.ok()) {
    if (absl::IsDataLoss(object.status())) Refuse(path, object.status());
    if (absl::StrContains(object.status().message(), path)) return object.status();
    return absl::Status(object.status().code(),
                        absl::StrCat(disk_->Path(path), ": ", object.status().message()));
  }
  absl::MutexLock lock(&mutex_);
  // Another thread may have been faster: then its mapping is the one.
  std::weak_ptr<const CacheObject>& known = mapped_[digest];
  if (CacheObjectPtr first = known.lock()) return first;
  known = *object;
  return object;
}

bool KernelCache::Contains(const Digest& digest) {
  {
    absl::MutexLock lock(&mutex_);
    if (memory_.contains(digest)) return true;
  }
  const std::string path = ObjectPath(digest);
  return disk_ != nullptr && disk_->Exists(path) && !IsRefused(path);
}

KernelCache::InMemory KernelCache::in_memory() const {
  absl::MutexLock lock(&mutex_);
  InMemory all;
  for (const auto& [digest, object] : memory_) all.objects.push_back(object);
  for (const auto& [key, record] : memory_models_) all.models.push_back(record);
  return all;
}

// --- Kernels.

absl::StatusOr<KernelRecord> KernelCache::FindKernel(const Digest& key) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = memory_kernels_.find(key);
    if (found != memory_kernels_.end()) return found->second;
  }
  if (disk_ == nullptr) return absl::NotFoundError("kernel record");
  const std::string path = KernelPath(key);
  const absl::StatusOr<std::string> text = ReadRecord(path);
  if (absl::IsDataLoss(text.status())) return absl::NotFoundError("kernel record: corrupt");
  RETURN_IF_ERROR(text.status());
  absl::StatusOr<KernelRecord> record = KernelRecord::Parse(*text, key);
  if (!record.ok()) {
    Refuse(path, record.status());
    return absl::NotFoundError("kernel record: corrupt");
  }
  if (!Contains(record->artifact)) return absl::NotFoundError("artifact of the kernel");
  return record;
}

absl::Status KernelCache::PutKernel(const Digest& key, const KernelRecord& record) {
  bool in_memory = read_only();
  {
    absl::MutexLock lock(&mutex_);
    in_memory |= memory_.contains(record.artifact);
  }
  if (!in_memory && WriteRecord(KernelPath(key), record.Serialize(key), /*sync=*/false).ok()) {
    return absl::OkStatus();
  }
  absl::MutexLock lock(&mutex_);
  memory_kernels_[key] = record;
  return absl::OkStatus();
}

}  // namespace stampmill
