// The code goes to a sealed memfd and is opened as /proc/self/fd/N. The artifact's own file would
// save a copy, but glibc knows a library both by its inode and by every name it was opened by: a
// file that is open twice is one library under two names, and a name whose descriptor is closed and
// reused gives the old library to the next caller. A fresh memfd has an inode of its own, so one
// executable is one library with one name, which is free again only after dlclose. What was
// verified also cannot change any more, and a cache on a file system mounted noexec works.
#include "devices/cpu/cpu_executable.h"

#include <dlfcn.h>
#include <fcntl.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/limits.h"

namespace stampmill {

absl::StatusOr<std::shared_ptr<const CpuExecutable>> CpuExecutable::Load(const Device* device,
                                                                         const Artifact& artifact) {
  std::shared_ptr<CpuExecutable> executable(new CpuExecutable(device));
  RETURN_IF_ERROR(executable->Open(artifact));
  RETURN_IF_ERROR(executable->ReadEntries(artifact));
  return executable;
}

CpuExecutable::~CpuExecutable() {
  if (library_ != nullptr) dlclose(library_);
}

absl::Status CpuExecutable::Open(const Artifact& artifact) {
  // Grown by the write, so that no page is zeroed first.
  ASSIGN_OR_RETURN(code_, CreateMemfd("stampmill-kernels", 0));
  RETURN_IF_ERROR(WriteAll(code_, artifact.code(), "memfd of a kernel library"));
  if (fcntl(code_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
      0) {
    return absl::ErrnoToStatus(errno, "fcntl F_ADD_SEALS: memfd of a kernel library");
  }
  const std::string path = absl::StrCat("/proc/self/fd/", code_.get());
  library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("artifact: code: dlopen: ", dlerror()));
  }
  return absl::OkStatus();
}

absl::Status CpuExecutable::ReadEntries(const Artifact& artifact) {
  const auto query = reinterpret_cast<CpuLibraryQuery>(dlsym(library_, kCpuLibraryQuerySymbol));
  if (query == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("artifact: code: exports no ", kCpuLibraryQuerySymbol));
  }
  const CpuLibrary* library = query();
  if (library == nullptr || library->abi_version != kKernelAbiVersion) {
    return absl::InvalidArgumentError(absl::StrCat("artifact: code: kernel ABI version: got ",
                                                   library == nullptr ? 0 : library->abi_version,
                                                   ", known ", kKernelAbiVersion));
  }
  if (memcmp(library->source_digest, artifact.source_digest().bytes.data(),
             sizeof(library->source_digest)) != 0) {
    return absl::InvalidArgumentError(
        "artifact: code: source digest: the library's is not the artifact's");
  }
  if (library->entry_count > kArtifactEntriesMax ||
      (library->entry_count > 0 && library->entries == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "artifact: code: entries: got ", library->entry_count, ", limit ", kArtifactEntriesMax));
  }
  entries_.assign(library->entries, library->entries + library->entry_count);
  for (const CpuKernelEntry& entry : entries_) {
    if (entry.name == nullptr || entry.function == nullptr) {
      return absl::InvalidArgumentError("artifact: code: an entry without name or function");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> CpuExecutable::FindEntry(absl::string_view name) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (name == entries_[i].name) return static_cast<int32_t>(i);
  }
  return absl::NotFoundError(
      absl::StrCat("executable: entry '", name, "': not among its ", entries_.size(), " entries"));
}

}  // namespace stampmill
