// KernelCache: a content-addressed store of programs, artifacts and packed weights, on disk and
// shared by processes. It knows no operators: it stores, finds, verifies and locks.
//
// Directory layout, version 1 (a cache directory is code: see trust below):
//   v1/objects/<digest>        programs, artifacts: the bytes, named by their SHA-256;
//                              packed weights: a head and the payload, named by the head's SHA-256
//   v1/models/<key>            one compiled model: a short text naming digests (model_record.h)
//   v1/models/<digest>.files   external data files of the model file with that digest
//   v1/kernels/<key>           one compiled kernel: artifact digest and entry name
//   v1/digests/<name>          digest of a model file, by device, inode, size, mtime, ctime
//   v1/tmp/                    files being written, locks
//
// Packed weights (little endian, version 1):
//   0   8    magic "STMPWGT\0"
//   8   4    version (1)
//   12  4    bytes of a chunk (1 MiB)
//   16  8    payload_offset, the size of the head (multiple of 4096)
//   24  8    payload_size
//   32  32   SHA-256 of the payload
//   64  8*n  XXH3 of each chunk of the payload, the last may be short
//   ... zeros up to payload_offset, then the payload
// A load checks the head's SHA-256 and every chunk's XXH3; Verify and Import the payload's SHA-256
// too. Everything else is checked by SHA-256 whenever it is opened.
//
// Files appear complete or not at all (temporary file, fsync, rename). What is truncated, altered,
// foreign, unreadable or no regular file is refused with DATA_LOSS, counted, removed where
// possible, and rebuilt by the caller. Where the directory cannot be written (read-only, full disk)
// or not be used at all (no permission, a file in its place) objects and records are kept as memfds
// by this process alone: counted and logged, never silent.
//
// Trust: the default directory must belong to the user with mode 0700; one that was named may
// belong to somebody else; no file or directory in either may be writable by group or others.
//
// Thread-safe. Used while models load, never in steady state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "base/file.h"
#include "base/hash.h"
#include "compiler/cache/model_record.h"
#include "compiler/cache/object_file.h"

namespace stampmill {

class CacheDirectory;

struct KernelCacheOptions {
  std::string directory;    // empty: nothing on disk, objects live in this process only
  bool is_default = false;  // `directory` is DefaultCacheDirectory(): the stricter rules of trust
  bool writable = true;     // false: never writes to the directory
  uint64_t size_bytes_max = uint64_t{16} << 30;  // of objects on disk; PruneToLimit keeps to it
  // Told of each object and record that is refused as damaged, in place of the log: "PATH refused:
  // why". From any thread that uses the cache.
  std::function<void(absl::string_view)> refused;
  // Told why the directory could not be written when it first happens, in place of the log.
  std::function<void(absl::string_view)> unwritten;
};

// $XDG_CACHE_HOME/stampmill, else $HOME/.cache/stampmill; empty when neither is set.
std::string DefaultCacheDirectory();

// One verified object, mapped read-only. Immutable; the mapping lives as long as the object.
class CacheObject {
 public:
  // The program, the artifact, or the payload of packed weights.
  std::span<const std::byte> bytes() const { return bytes_; }
  const Digest& digest() const { return digest_; }
  bool is_weights() const { return is_weights_; }
  // The open file that was verified (objects of this process only: a memfd). Borrowed. bytes() is
  // at `offset` in it.
  const FileDescriptor& file() const { return file_; }
  uint64_t offset() const { return offset_; }

 private:
  friend class KernelCache;
  Digest digest_;
  bool is_weights_ = false;
  FileDescriptor file_;
  Mapping mapping_;
  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};
using CacheObjectPtr = std::shared_ptr<const CacheObject>;

struct KernelCacheCounters {
  int64_t hits = 0;             // FindModel found
  int64_t misses = 0;           // FindModel did not find
  int64_t corrupt_refused = 0;  // objects and records refused
  int64_t write_failures = 0;   // objects and records that could not be written
  int64_t objects_in_memory = 0;
};

struct CacheListing {
  struct Model {
    ModelRecord record;
    Digest key;
    uint64_t size_bytes = 0;  // of its objects, shared ones counted in full
    int64_t used_unix_seconds = 0;
  };
  std::vector<Model> models;  // most recently used first
  int64_t objects = 0;
  uint64_t objects_bytes = 0;         // on disk, each once
  std::vector<std::string> problems;  // records that cannot be read
};

struct CacheVerifyReport {
  int64_t objects = 0;
  int64_t records = 0;
  std::vector<std::string> problems;  // "objects/<digest>: ..."
};

struct CachePruneReport {
  int64_t models_removed = 0;
  int64_t objects_removed = 0;
  uint64_t bytes_removed = 0;
  uint64_t bytes_kept = 0;
};

class KernelCache {
 public:
  // Creates the directory when it is missing and `writable`. FAILED_PRECONDITION when the rules of
  // trust are broken, INVALID_ARGUMENT when it is no directory. A directory that cannot be created
  // or written is no error: read_only() says so. Clears what killed writers left in tmp/.
  static absl::StatusOr<std::unique_ptr<KernelCache>> Open(const KernelCacheOptions& options);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  const std::string& directory() const { return options_.directory; }
  bool is_default() const { return options_.is_default; }
  uint64_t size_bytes_max() const { return options_.size_bytes_max; }
  // Nothing is written to disk; `read_only_reason` says why, empty when it is written.
  bool read_only() const { return !read_only_reason_.empty(); }
  const std::string& read_only_reason() const { return read_only_reason_; }
  KernelCacheCounters counters() const;

  // --- Models.

  // The compiled form of the model file `source.path` for its target. NOT_FOUND when there is none
  // (counted as a miss), DATA_LOSS when its record is corrupt (removed); the model file's own
  // errors name it. Marks the record as used.
  absl::StatusOr<ModelRecord> FindModel(const ModelSource& source);
  // The same, but counts neither a hit nor a miss.
  absl::StatusOr<ModelRecord> PeekModel(const ModelSource& source);
  // Whether FindModel would find it; counts nothing.
  bool HasModel(const ModelSource& source) { return PeekModel(source).ok(); }
  // Makes `record` findable: its objects must be there (FAILED_PRECONDITION). `record.sources` are
  // the model file, then its external data by path relative to the model file's folder.
  absl::Status PutModel(const ModelRecord& record);

  // Holds the right to compile `source`, alone across threads and processes (a lock file, or within
  // this process when the directory cannot be written). Blocks until it is free. Callers look once
  // more with FindModel when they have it. Prune waits for all of them.
  class Lock {
   public:
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&&) = delete;
    ~Lock();

   private:
    friend class KernelCache;
    Lock() = default;
    KernelCache* cache_ = nullptr;
    std::string name_;  // held within this process
    std::string path_;  // of the lock file
    FileDescriptor file_;
    FileDescriptor writers_file_;
  };
  absl::StatusOr<Lock> LockModel(const ModelSource& source);

  // SHA-256 of a file, read whole unless it is remembered for the same device, inode, size, mtime
  // and ctime (in this process, and in the directory when it can be written).
  absl::StatusOr<Digest> FileDigest(absl::string_view path);

  // --- Objects.

  // Stores a program or artifact; the digest names it afterwards. Never fails for want of disk: the
  // object then stays in this process.
  absl::StatusOr<Digest> Put(std::span<const std::byte> bytes);
  // Stores packed weights, the concatenation of `parts`.
  absl::StatusOr<Digest> PutWeights(ByteParts parts);
  // The verified object; equal digests share one mapping. NOT_FOUND; DATA_LOSS when it is corrupt.
  absl::StatusOr<CacheObjectPtr> Get(const Digest& digest);
  bool Contains(const Digest& digest);

  // --- Kernels: which artifact and entry a kernel's key was compiled into.

  absl::StatusOr<KernelRecord> FindKernel(const Digest& key);  // NOT_FOUND, also when corrupt
  absl::Status PutKernel(const Digest& key, const KernelRecord& record);

  // --- What could not be written, to be handed to another process.

  struct InMemory {
    std::vector<CacheObjectPtr> objects;
    std::vector<ModelRecord> models;
  };
  InMemory in_memory() const;
  // Takes over an object that another process made: verified like any other.
  absl::Status Adopt(const Digest& digest, FileDescriptor file);
  // What another process that works for this one was told by its `refused`: logged and counted as
  // if it had been refused here, unless it was already.
  void CountRefused(absl::string_view what);
  // What such a process was told by its `unwritten`: logged unless a reason already was. What it
  // then hands over is counted by Adopt.
  void TellUnwritten(absl::string_view why);
  // Why something could not be written first; empty when all was.
  std::string unwritten_reason() const;

  // --- Care of the directory. FAILED_PRECONDITION without a directory.

  absl::StatusOr<CacheListing> List();
  // Reads everything whole. Counts and reports what is wrong, removes nothing.
  absl::StatusOr<CacheVerifyReport> Verify();
  // Removes the least recently used models until the objects of the rest take at most
  // `size_bytes_max`, then every object, kernel and file list that no model needs. Waits for
  // compiles that run.
  absl::StatusOr<CachePruneReport> Prune(uint64_t size_bytes_max);
  // The same with the limit of the options, and not at all while a compile runs. After compiling.
  absl::Status PruneToLimit();
  // Writes all models, or those whose key or name is in `models`, to one file (cache_archive.h).
  absl::Status Export(absl::string_view path, std::span<const std::string> models);
  // Adds what is in such a file; everything is verified before it is stored. Returns how many
  // models.
  absl::StatusOr<int64_t> Import(absl::string_view path);

 private:
  KernelCache(KernelCacheOptions options, std::unique_ptr<CacheDirectory> disk,
              std::string read_only_reason);

  // Reads and checks one object file.
  static absl::StatusOr<CacheObjectPtr> OpenObject(FileDescriptor file, const Digest& digest);
  absl::StatusOr<Digest> Store(const Digest& digest, ByteParts parts);
  absl::Status Keep(const Digest& digest, FileDescriptor file);
  absl::Status KeepInMemory(const Digest& digest, ByteParts parts);
  absl::StatusOr<ModelKey> KeyOf(const ModelSource& source, const Digest& model);
  absl::StatusOr<ModelRecord> ReadModel(const ModelKey& key);
  absl::StatusOr<ModelRecord> Lookup(const ModelSource& source, const Digest& model);
  absl::StatusOr<std::vector<std::string>> ExternalFiles(const Digest& model);
  std::optional<Digest> RememberedDigest(const std::string& identity);
  void RememberDigest(const std::string& identity, const Digest& digest);
  absl::Status WriteRecord(absl::string_view relative, absl::string_view text, bool sync);
  void CountUnwritten(const absl::Status& why);
  // Removes what `why` says is corrupt; counts and logs it, once where it cannot be removed.
  void Refuse(absl::string_view relative, const absl::Status& why);
  void TellRefused(absl::string_view what);
  // Whether the entry that is there now was refused.
  bool IsRefused(absl::string_view relative);
  // The text of a record; one that cannot be read is refused.
  absl::StatusOr<std::string> ReadRecord(absl::string_view relative);
  absl::Status CheckHasDirectory() const;
  absl::StatusOr<CachePruneReport> PruneLocked(uint64_t size_bytes_max);
  absl::Status RemoveUnneeded(std::span<const CacheListing::Model> kept, CachePruneReport& report);

  const KernelCacheOptions options_;
  const std::unique_ptr<CacheDirectory> disk_;  // null without a directory
  const std::string read_only_reason_;

  mutable absl::Mutex mutex_;
  KernelCacheCounters counters_ ABSL_GUARDED_BY(mutex_);
  // Objects and records of this process only, and the objects that somebody has mapped now.
  absl::flat_hash_map<Digest, CacheObjectPtr> memory_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, std::weak_ptr<const CacheObject>> mapped_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<ModelKey, ModelRecord> memory_models_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, KernelRecord> memory_kernels_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, std::vector<std::string>> memory_files_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Digest> file_digests_ ABSL_GUARDED_BY(mutex_);
  // What was refused and could not be removed: the identity of each by its path. Whoever replaces
  // it, in whatever process, changes the identity.
  absl::flat_hash_map<std::string, std::string> refused_ ABSL_GUARDED_BY(mutex_);
  std::string unwritten_reason_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::string> locked_ ABSL_GUARDED_BY(mutex_);  // Locks held in this process
};

}  // namespace stampmill
