#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

absl::Status SystemError(absl::string_view call, absl::string_view path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(call, " ", path));
}

// The name that /proc knows a descriptor by, for messages where no path is at hand.
std::string DescriptorName(const FileDescriptor& fd) {
  char name[PATH_MAX];
  const ssize_t n = readlink(absl::StrCat("/proc/self/fd/", fd.get()).c_str(), name, sizeof(name));
  return n > 0 ? std::string(name, static_cast<size_t>(n)) : absl::StrCat("descriptor ", fd.get());
}

absl::Status SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "."
                                : slash == 0               ? "/"
                                                           : path.substr(0, slash);
  ASSIGN_OR_RETURN(const FileDescriptor fd, OpenFile(directory, O_RDONLY | O_DIRECTORY));
  // Some file systems cannot sync a directory and say EINVAL; there the rename is all one can do.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return SystemError("fsync", directory);
  return absl::OkStatus();
}

}  // namespace

void FileDescriptor::Close() {
  // Not repeated on EINTR: Linux has released the number by then.
  if (fd_ >= 0) close(Release());
}

absl::StatusOr<FileDescriptor> OpenFile(absl::string_view path, int flags, mode_t mode) {
  const std::string name(path);
  int fd;
  do {
    fd = open(name.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return SystemError("open", path);
  return FileDescriptor(fd);
}

absl::StatusOr<uint64_t> FileSize(const FileDescriptor& fd) {
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemError("stat", DescriptorName(fd));
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("stat ", DescriptorName(fd), ": not a regular file"));
  }
  return static_cast<uint64_t>(info.st_size);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      writable_(other.writable_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    Unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    writable_ = other.writable_;
  }
  return *this;
}

absl::StatusOr<Mapping> Mapping::Map(const FileDescriptor& fd, uint64_t offset, uint64_t size,
                                     Access access) {
  ASSIGN_OR_RETURN(const uint64_t file_size, FileSize(fd));
  if (offset > file_size || size > file_size - offset) {
    return absl::OutOfRangeError(absl::StrCat("map ", DescriptorName(fd), ": got offset ", offset,
                                              " and size ", size, ", limit ", file_size));
  }
  Mapping mapping;
  mapping.writable_ = access == Access::kReadWrite;
  if (size == 0) return mapping;
  const uint64_t lead = offset % static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  void* const start = mmap(
      nullptr, size + lead, mapping.writable_ ? PROT_READ | PROT_WRITE : PROT_READ,
      mapping.writable_ ? MAP_SHARED : MAP_PRIVATE, fd.get(), static_cast<off_t>(offset - lead));
  if (start == MAP_FAILED) return SystemError("mmap", DescriptorName(fd));
  mapping.data_ = static_cast<std::byte*>(start) + lead;
  mapping.size_ = size;
  return mapping;
}

absl::StatusOr<Mapping> Mapping::File(absl::string_view path) {
  ASSIGN_OR_RETURN(const FileDescriptor fd, OpenFile(path, O_RDONLY));
  ASSIGN_OR_RETURN(const uint64_t size, FileSize(fd));
  return Map(fd, 0, size, Access::kRead);
}

std::span<std::byte> Mapping::mutable_bytes() {
  CHECK(writable_ || size_ == 0);
  return {data_, size_};
}

void Mapping::Unmap() {
  if (size_ == 0) return;
  const uintptr_t lead =
      reinterpret_cast<uintptr_t>(data_) % static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  CHECK_EQ(munmap(data_ - lead, size_ + lead), 0);
  data_ = nullptr;
  size_ = 0;
}

absl::StatusOr<std::string> ReadFile(absl::string_view path, uint64_t size_max) {
  ASSIGN_OR_RETURN(const FileDescriptor fd, OpenFile(path, O_RDONLY));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemError("stat", path);
  std::string text;
  uint64_t used = 0;
  // One byte more than the file claims, so that the usual case ends with one short read.
  uint64_t room = std::clamp<uint64_t>(static_cast<uint64_t>(info.st_size) + 1, 4096,
                                       size_max < UINT64_MAX ? size_max + 1 : size_max);
  while (true) {
    text.resize(used + room);
    const ssize_t n = read(fd.get(), text.data() + used, room);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError("read", path);
    if (n == 0) break;
    used += static_cast<uint64_t>(n);
    if (used > size_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("read ", path, ": got more bytes, limit ", size_max));
    }
    room = std::max<uint64_t>(text.size() - used, 64 << 10);
  }
  text.resize(used);
  return text;
}

absl::Status WriteAll(const FileDescriptor& fd, std::span<const std::byte> bytes,
                      absl::string_view path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError("write", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileReplacement> FileReplacement::Begin(absl::string_view path, mode_t mode) {
  FileReplacement replacement;
  replacement.target_ = std::string(path);
  struct stat info;
  if (lstat(replacement.target_.c_str(), &info) == 0) {
    if (S_ISLNK(info.st_mode)) {
      const std::unique_ptr<char, decltype(&free)> led_to(
          realpath(replacement.target_.c_str(), nullptr), &free);
      if (stat(replacement.target_.c_str(), &info) != 0) {
        return absl::InvalidArgumentError(absl::StrCat("write ", path, ": a link to nothing"));
      }
      // The links of /proc lead to things that have no path: those are none to be replaced.
      if (led_to != nullptr && S_ISREG(info.st_mode)) replacement.target_ = led_to.get();
      if (led_to == nullptr && S_ISREG(info.st_mode)) return SystemError("realpath", path);
    }
    if (S_ISCHR(info.st_mode) || S_ISFIFO(info.st_mode)) {
      ASSIGN_OR_RETURN(replacement.file_, OpenFile(path, O_WRONLY));
      return replacement;
    }
    if (!S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat("write ", path, ": got a ",
                       S_ISDIR(info.st_mode)    ? "directory"
                       : S_ISSOCK(info.st_mode) ? "socket"
                                                : "block device",
                       ", limit a file, a character device or a pipe"));
    }
  }
  std::string temporary = replacement.target_ + ".XXXXXX";
  replacement.file_ = FileDescriptor(mkostemp(temporary.data(), O_CLOEXEC));
  if (!replacement.file_.valid()) return SystemError("create", temporary);
  replacement.temporary_ = std::move(temporary);
  if (fchmod(replacement.file_.get(), mode) != 0) {
    return SystemError("chmod", replacement.temporary_);
  }
  return replacement;
}

FileReplacement::~FileReplacement() {
  if (file_.valid() && !temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status FileReplacement::Commit() {
  if (temporary_.empty()) return absl::OkStatus();
  if (fsync(file_.get()) != 0) return SystemError("fsync", temporary_);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) return SystemError("rename", target_);
  temporary_.clear();
  file_.Close();
  return SyncDirectoryOf(target_);
}

absl::Status AtomicReplaceFile(absl::string_view path, std::span<const std::byte> bytes,
                               mode_t mode) {
  ASSIGN_OR_RETURN(FileReplacement replacement, FileReplacement::Begin(path, mode));
  RETURN_IF_ERROR(WriteAll(replacement.file(), bytes, path));
  return replacement.Commit();
}

absl::StatusOr<FileDescriptor> CreateMemfd(absl::string_view name, uint64_t size) {
  const std::string text(name);
  FileDescriptor fd(memfd_create(text.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return SystemError("memfd_create", name);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return SystemError("ftruncate", name);
  return fd;
}

absl::Status MakeDirectories(absl::string_view path, mode_t mode) {
  const std::string whole(path);
  for (size_t end = 0; end != std::string::npos;) {
    end = whole.find('/', end + 1);
    const std::string part = whole.substr(0, end);
    if (mkdir(part.c_str(), mode) == 0) continue;
    const int error = errno;
    // An existing parent may be unwritable or a mount that says something else than EEXIST.
    struct stat info;
    if (stat(part.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) continue;
    return absl::ErrnoToStatus(error, absl::StrCat("mkdir ", part));
  }
  return absl::OkStatus();
}

}  // namespace stampmill
