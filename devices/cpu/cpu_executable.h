// CpuExecutable: a CPU artifact's shared object, loaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "devices/artifact.h"
#include "devices/device.h"

namespace stampmill {

// Immutable. The library is unloaded with it.
class CpuExecutable final : public Executable {
 public:
  // INVALID_ARGUMENT when the code is not a library of this ABI, or not the artifact's.
  // RESOURCE_EXHAUSTED without memory or descriptors. REQUIRES: the artifact's target was checked.
  static absl::StatusOr<std::shared_ptr<const CpuExecutable>> Load(const Device* device,
                                                                   const Artifact& artifact);
  ~CpuExecutable() override;

  int32_t entry_count() const override { return static_cast<int32_t>(entries_.size()); }
  absl::StatusOr<int32_t> FindEntry(absl::string_view name) const override;

  // REQUIRES: 0 <= entry < entry_count().
  CpuKernel function(int32_t entry) const { return entries_[entry].function; }
  absl::string_view name(int32_t entry) const { return entries_[entry].name; }

 private:
  explicit CpuExecutable(const Device* device) : Executable(device) {}
  absl::Status Open(const Artifact& artifact);
  absl::Status ReadEntries(const Artifact& artifact);

  FileDescriptor code_;  // open as long as the library is loaded
  void* library_ = nullptr;
  std::vector<CpuKernelEntry> entries_;  // names are the library's
};

}  // namespace stampmill
