#include "compiler/cache/cache_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

constexpr const char* kFolders[] = {"objects", "models", "kernels", "digests", "tmp"};
constexpr absl::string_view kWritingSuffix = ".writing";
constexpr int64_t kTouchSeconds = 60;

absl::Status SystemError(absl::string_view call, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(call, " ", path));
}

absl::Status CheckNotWritableByOthers(const struct stat& info, absl::string_view path) {
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("cache trust: %s may be written by others than its owner: got mode %04o, "
                      "limit 0755",
                      std::string(path), info.st_mode & 07777));
}

// Whether the error of open or read is about what was opened, not about the process.
bool IsOfTheEntry(int error) {
  return error == EACCES || error == EPERM || error == ELOOP || error == ENOTDIR ||
         error == ENXIO || error == ENODEV || error == EIO;
}

absl::StatusOr<std::string> RandomName() {
  char bytes[12];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return SystemError("getrandom", "");
  return absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
}

// Opens `path` and locks it so that it is certainly the file of that name: one that was unlinked or
// replaced between the two calls is tried anew. nullopt: held by somebody else (LOCK_NB only).
absl::StatusOr<std::optional<FileDescriptor>> OpenLocked(const std::string& path, int flags,
                                                         int operation) {
  for (;;) {
    ASSIGN_OR_RETURN(FileDescriptor file, stampmill::OpenFile(path, flags, 0644));
    while (flock(file.get(), operation) != 0) {
      if (errno == EWOULDBLOCK) return std::optional<FileDescriptor>();
      if (errno != EINTR) return SystemError("flock", path);
    }
    struct stat held, named;
    if (fstat(file.get(), &held) != 0) return SystemError("stat", path);
    if (stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
        held.st_dev == named.st_dev) {
      return std::optional<FileDescriptor>(std::move(file));
    }
    if ((flags & O_CREAT) == 0) return absl::NotFoundError(absl::StrCat("open ", path));
  }
}

absl::Status SyncFolder(const std::string& path) {
  ASSIGN_OR_RETURN(const FileDescriptor folder, stampmill::OpenFile(path, O_RDONLY | O_DIRECTORY));
  if (fsync(folder.get()) != 0 && errno != EINVAL) return SystemError("fsync", path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CacheDirectory::Opened> CacheDirectory::Open(const Options& options) {
  Opened opened;
  opened.directory.reset(new CacheDirectory(absl::StrCat(options.path, "/v1")));
  struct stat info;
  const bool exists = stat(options.path.c_str(), &info) == 0;
  if (exists && !S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache directory ", options.path, ": got a file, limit a directory"));
  }
  if (!options.writable) {
    opened.read_only_reason = "opened for reading only";
  } else if (!exists) {
    absl::Status made = MakeDirectories(options.path, options.is_default ? 0700 : 0755);
    if (!made.ok()) opened.read_only_reason = std::string(made.message());
  }
  RETURN_IF_ERROR(opened.directory->CheckTrust(options));
  if (const absl::Status usable = opened.directory->CheckUsable(options); !usable.ok()) {
    return Opened{.directory = nullptr, .read_only_reason = std::string(usable.message())};
  }
  if (opened.read_only_reason.empty()) {
    absl::Status prepared = opened.directory->Prepare();
    if (!prepared.ok()) opened.read_only_reason = std::string(prepared.message());
  }
  if (opened.read_only_reason.empty()) opened.directory->RemoveAbandonedFiles();
  return opened;
}

absl::Status CacheDirectory::CheckTrust(const Options& options) const {
  std::vector<std::string> paths = {options.path, root_};
  for (const char* folder : kFolders) paths.push_back(Path(folder));
  for (const std::string& path : paths) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) {
      continue;  // CheckUsable says what is wrong with it
    }
    RETURN_IF_ERROR(CheckNotWritableByOthers(info, path));
    if (options.is_default && info.st_uid != geteuid()) {
      return absl::FailedPreconditionError(
          absl::StrCat("cache trust: owner of the default directory ", path, ": got user ",
                       info.st_uid, ", want ", geteuid()));
    }
    if (options.is_default && path == options.path && (info.st_mode & 077) != 0) {
      return absl::FailedPreconditionError(
          absl::StrFormat("cache trust: mode of the default directory %s: got %04o, limit 0700",
                          path, info.st_mode & 07777));
    }
  }
  return absl::OkStatus();
}

absl::Status CacheDirectory::CheckUsable(const Options& options) const {
  for (const std::string& path :
       {options.path, root_, Path("objects"), Path("models"), Path("kernels")}) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) {
      if (errno == ENOENT) continue;
      return SystemError("stat", path);
    }
    if (!S_ISDIR(info.st_mode)) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": not a directory"));
    }
    if (faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0) {
      return SystemError("search", path);
    }
  }
  return absl::OkStatus();
}

absl::Status CacheDirectory::Prepare() const {
  for (const char* folder : kFolders) RETURN_IF_ERROR(MakeDirectories(Path(folder), 0755));
  // Permission bits do not tell all (read-only mounts, quotas): try.
  ASSIGN_OR_RETURN(const std::string name, RandomName());
  const std::string path = Path(absl::StrCat("tmp/", name, kWritingSuffix));
  ASSIGN_OR_RETURN(const FileDescriptor file,
                   stampmill::OpenFile(path, O_WRONLY | O_CREAT | O_EXCL));
  // Another process that opens the directory may have taken the probe for abandoned.
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return SystemError("unlink", path);
  return absl::OkStatus();
}

std::string CacheDirectory::Path(absl::string_view relative) const {
  return absl::StrCat(root_, "/", relative);
}

absl::StatusOr<FileDescriptor> CacheDirectory::OpenFile(absl::string_view relative) const {
  const std::string path = Path(relative);
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat info;
  if (fd < 0) {
    const int error = errno;
    const absl::Status status = absl::ErrnoToStatus(error, absl::StrCat("open ", path));
    // A link that leads nowhere takes the name as much as a file does.
    const bool is_link =
        error == ENOENT && lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
    return is_link || IsOfTheEntry(error) ? absl::DataLossError(status.message()) : status;
  }
  FileDescriptor file(fd);
  if (fstat(file.get(), &info) != 0) return SystemError("stat", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::DataLossError(absl::StrCat("open ", path, ": not a regular file"));
  }
  if (const absl::Status trusted = CheckNotWritableByOthers(info, path); !trusted.ok()) {
    return absl::DataLossError(trusted.message());
  }
  return file;
}

absl::StatusOr<std::string> CacheDirectory::ReadText(absl::string_view relative,
                                                     uint64_t size_max) const {
  ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(relative));
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(file.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      const absl::Status status = absl::ErrnoToStatus(error, absl::StrCat("read ", Path(relative)));
      return IsOfTheEntry(error) ? absl::DataLossError(status.message()) : status;
    }
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > size_max) {
      return absl::DataLossError(
          absl::StrCat(Path(relative), ": size: got more than ", size_max, " bytes"));
    }
  }
}

bool CacheDirectory::Exists(absl::string_view relative) const {
  return access(Path(relative).c_str(), F_OK) == 0;
}

absl::Status CacheDirectory::Write(absl::string_view relative, ByteParts parts, Sync sync) const {
  const std::string target = Path(relative);
  ASSIGN_OR_RETURN(const std::string name, RandomName());
  const std::string path = Path(absl::StrCat("tmp/", name, kWritingSuffix));
  // The lock tells RemoveAbandonedFiles of other processes that the writer lives.
  ASSIGN_OR_RETURN(std::optional<FileDescriptor> file,
                   OpenLocked(path, O_WRONLY | O_CREAT, LOCK_EX));
  absl::Cleanup remove = [&path] { unlink(path.c_str()); };
  for (const std::span<const std::byte> part : parts) {
    RETURN_IF_ERROR(WriteAll(*file, part, path));
  }
  // Whatever the umask: readable by other users of a shared directory, writable by none of them.
  if (fchmod(file->get(), 0644) != 0) return SystemError("chmod", path);
  if (sync == Sync::kYes && fsync(file->get()) != 0) return SystemError("fsync", path);
  if (rename(path.c_str(), target.c_str()) != 0) return SystemError("rename", target);
  std::move(remove).Cancel();
  if (sync == Sync::kNo) return absl::OkStatus();
  return SyncFolder(target.substr(0, target.rfind('/')));
}

absl::Status CacheDirectory::Remove(absl::string_view relative) const {
  const std::string path = Path(relative);
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  if (errno == EISDIR && rmdir(path.c_str()) == 0) return absl::OkStatus();
  return SystemError("unlink", path);
}

void CacheDirectory::Touch(absl::string_view relative) const {
  const std::string path = Path(relative);
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || time(nullptr) - info.st_mtime < kTouchSeconds) return;
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

absl::StatusOr<std::vector<CacheDirectory::Entry>> CacheDirectory::List(absl::string_view folder,
                                                                        ListKind kind) const {
  std::vector<Entry> entries;
  const std::string path = Path(folder);
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) {
    if (errno == ENOENT) return entries;
    return SystemError("opendir", path);
  }
  const absl::Cleanup close = [directory] { closedir(directory); };
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(directory);
    if (entry == nullptr) break;
    const absl::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info = {};
    const bool found = fstatat(dirfd(directory), entry->d_name, &info, 0) == 0;
    if (kind == ListKind::kRegular && (!found || !S_ISREG(info.st_mode))) continue;
    entries.push_back({.name = entry->d_name,
                       .size = static_cast<uint64_t>(info.st_size),
                       .modified_unix_seconds = info.st_mtime});
  }
  if (errno != 0) return SystemError("readdir", path);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

absl::StatusOr<std::optional<FileDescriptor>> CacheDirectory::Lock(absl::string_view name,
                                                                   LockMode mode) const {
  const int operation = mode == LockMode::kShared      ? LOCK_SH
                        : mode == LockMode::kExclusive ? LOCK_EX
                                                       : LOCK_EX | LOCK_NB;
  return OpenLocked(Path(absl::StrCat("tmp/", name, ".lock")), O_RDWR | O_CREAT, operation);
}

void CacheDirectory::RemoveAbandonedFiles() const {
  const absl::StatusOr<std::vector<Entry>> entries = List("tmp");
  if (!entries.ok()) return;
  for (const Entry& entry : *entries) {
    // Locks are left: they are empty, and their owners look whether the name is still theirs.
    if (!absl::EndsWith(entry.name, kWritingSuffix)) continue;
    const std::string path = Path(absl::StrCat("tmp/", entry.name));
    // Had we the lock because its writer has only just created it, the writer sees that the name
    // is gone and tries another.
    const auto file = OpenLocked(path, O_RDWR, LOCK_EX | LOCK_NB);
    if (file.ok() && file->has_value()) unlink(path.c_str());
  }
}

}  // namespace stampmill
