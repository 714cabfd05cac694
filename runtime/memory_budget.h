// MemoryBudget: the accounting of one device's memory. What is loaded reserves its
// share by kind and name; what does not fit is refused with the whole plan. It allocates nothing
// itself: pages are touched when used.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace stampmill {

// Thread-safe.
class MemoryBudget {
 public:
  enum class Kind { kWeights, kWorkspace, kPool, kKv };

  MemoryBudget(std::string device, uint64_t budget_bytes)
      : device_(std::move(device)), budget_bytes_(budget_bytes) {}

  // "4GiB", "512MiB", "1000000" or "90%" of `available_bytes`. INVALID_ARGUMENT else.
  static absl::StatusOr<uint64_t> ParseFlag(absl::string_view text, uint64_t available_bytes);
  // The cgroup's memory limit or the machine's available memory, whichever is less.
  static uint64_t AvailableHostBytes();

  // RESOURCE_EXHAUSTED names what was asked and carries the plan. A second reservation of one kind
  // and name replaces the first.
  absl::Status Reserve(Kind kind, absl::string_view name, uint64_t bytes);
  void Release(Kind kind, absl::string_view name);

  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t reserved_bytes() const;
  // One line an entry, totals last.
  std::string Plan() const;

 private:
  struct Entry {
    Kind kind;
    std::string name;
    uint64_t bytes;
  };
  uint64_t ReservedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string PlanLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string device_;
  const uint64_t budget_bytes_;
  mutable absl::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stampmill
