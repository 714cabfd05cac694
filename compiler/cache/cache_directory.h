// CacheDirectory: files of a cache on disk, below the meaning of their contents: who may write them
// (trust), replacement that is complete or absent, locks between processes, and the traces of
// writers that were killed. Paths are relative to the directory's `v1`.
//
// Thread-safe (it has no state but its path).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "compiler/cache/object_file.h"

namespace stampmill {

class CacheDirectory {
 public:
  struct Options {
    std::string path;
    bool is_default = false;  // must be the user's alone
    bool writable = true;
  };
  struct Opened {
    std::unique_ptr<CacheDirectory> directory;  // null: it cannot be used, not even read
    std::string read_only_reason;               // empty: it can be written
  };
  static absl::StatusOr<Opened> Open(const Options& options);

  // "objects/ab12..." as messages show it and system calls take it.
  std::string Path(absl::string_view relative) const;

  // NOT_FOUND; DATA_LOSS when it cannot be opened, is no regular file, or others than its owner
  // could have written it. Other errors are the process's own (descriptors, memory).
  absl::StatusOr<FileDescriptor> OpenFile(absl::string_view relative) const;
  absl::StatusOr<std::string> ReadText(absl::string_view relative, uint64_t size_max) const;
  bool Exists(absl::string_view relative) const;

  enum class Sync {
    kYes,  // on disk when the call returns
    kNo,   // for records that carry their own sum and are cheap to make anew
  };
  absl::Status Write(absl::string_view relative, ByteParts parts, Sync sync) const;
  // Not an error when it is not there. Of directories only empty ones.
  absl::Status Remove(absl::string_view relative) const;
  // Sets the time of last use, if it is older than a minute. Best effort.
  void Touch(absl::string_view relative) const;

  struct Entry {
    std::string name;
    uint64_t size = 0;
    int64_t modified_unix_seconds = 0;
  };
  enum class ListKind {
    kRegular,  // regular files
    kAll,      // whatever is there
  };
  // What is in a folder, by name. A missing folder is empty.
  absl::StatusOr<std::vector<Entry>> List(absl::string_view folder,
                                          ListKind kind = ListKind::kRegular) const;

  enum class LockMode { kExclusive, kShared, kExclusiveNow };
  // A lock on tmp/`name`.lock, held as long as the descriptor is open; blocks, but kExclusiveNow
  // gives nullopt when somebody has it.
  absl::StatusOr<std::optional<FileDescriptor>> Lock(absl::string_view name, LockMode mode) const;

 private:
  explicit CacheDirectory(std::string root) : root_(std::move(root)) {}

  void RemoveAbandonedFiles() const;
  absl::Status CheckTrust(const Options& options) const;
  // Whether what is in it can be reached, if it is there.
  absl::Status CheckUsable(const Options& options) const;
  absl::Status Prepare() const;

  const std::string root_;  // with v1
};

}  // namespace stampmill
