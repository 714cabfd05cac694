// Files as the rest of Stampmill uses them: descriptors with an owner, mappings, whole reads, and
// replacement that is either complete or absent after a crash.
//
// Errors name the call, the path and the system's own words: `open models/a.onnx: Permission
// denied`. Codes are those of absl::ErrnoToStatusCode (ENOENT is NOT_FOUND, ENOSPC
// RESOURCE_EXHAUSTED).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// Sole owner of a file descriptor, or of none (-1). Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Close();

 private:
  int fd_ = -1;
};

// open(2) with O_CLOEXEC added.
absl::StatusOr<FileDescriptor> OpenFile(absl::string_view path, int flags, mode_t mode = 0644);

// Size in bytes. FAILED_PRECONDITION for what is not a regular file (or memfd).
absl::StatusOr<uint64_t> FileSize(const FileDescriptor& fd);

// A range of a file in memory, unmapped on destruction. Move-only; the descriptor may be closed
// while the mapping lives. Touching pages that another process has cut off the file raises SIGBUS.
class Mapping {
 public:
  enum class Access {
    kRead,       // read-only, private: later writes to the file may or may not be seen
    kReadWrite,  // shared with the file
  };

  Mapping() = default;
  ~Mapping() { Unmap(); }
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  // Any offset and size, also 0; OUT_OF_RANGE if the file ends before offset + size.
  static absl::StatusOr<Mapping> Map(const FileDescriptor& fd, uint64_t offset, uint64_t size,
                                     Access access);
  // The whole file, read-only.
  static absl::StatusOr<Mapping> File(absl::string_view path);

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // REQUIRES: mapped with kReadWrite (or empty).
  std::span<std::byte> mutable_bytes();

 private:
  void Unmap();

  std::byte* data_ = nullptr;  // First byte asked for; the mapping begins at its page.
  size_t size_ = 0;
  bool writable_ = false;
};

// Reads to the end, whatever size the file claims. RESOURCE_EXHAUSTED beyond `size_max`.
absl::StatusOr<std::string> ReadFile(absl::string_view path, uint64_t size_max = uint64_t{1} << 30);

// Writes all of `bytes`, also where the system takes them in pieces. `path` is for messages.
absl::Status WriteAll(const FileDescriptor& fd, std::span<const std::byte> bytes,
                      absl::string_view path);

// A file that takes the place of another in one step: a temporary file beside it is written, synced
// and renamed over it, and the directory synced. Readers see the old file or the new one; without
// Commit the old one stays and nothing is left behind.
//
// A symbolic link stays, what it leads to is replaced. Devices and pipes are never replaced: they
// are opened (a pipe waits for its reader) and written straight into.
class FileReplacement {
 public:
  // INVALID_ARGUMENT when `path` is a directory, a socket, a block device or a link to nothing.
  static absl::StatusOr<FileReplacement> Begin(absl::string_view path, mode_t mode = 0644);
  FileReplacement(FileReplacement&&) = default;
  FileReplacement& operator=(FileReplacement&&) = delete;
  ~FileReplacement();

  // To be written from its begin.
  const FileDescriptor& file() const { return file_; }
  // REQUIRES: called once.
  absl::Status Commit();

 private:
  FileReplacement() = default;

  std::string target_;
  FileDescriptor file_;
  std::string temporary_;  // empty: written straight into the target, or committed
};

// Writes all of a FileReplacement.
absl::Status AtomicReplaceFile(absl::string_view path, std::span<const std::byte> bytes,
                               mode_t mode = 0644);

// Anonymous memory with a descriptor (memfd_create, close-on-exec), `size` bytes of zeros. It can
// be sealed. `name` appears in /proc only.
absl::StatusOr<FileDescriptor> CreateMemfd(absl::string_view name, uint64_t size);

// mkdir -p: creates what is missing with `mode`; existing directories are left as they are.
absl::Status MakeDirectories(absl::string_view path, mode_t mode = 0755);

}  // namespace stampmill
