// Sums are small (a few entries a model), so nothing is cached.
#include "runtime/memory_budget.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"

namespace stampmill {
namespace {

const char* KindName(MemoryBudget::Kind kind) {
  switch (kind) {
    case MemoryBudget::Kind::kWeights:
      return "weights";
    case MemoryBudget::Kind::kWorkspace:
      return "workspace";
    case MemoryBudget::Kind::kPool:
      return "tensor pool";
    case MemoryBudget::Kind::kKv:
      return "kv";
  }
  return "";
}

// The number in a file that holds nothing else; nullopt for "max", or when there is no such file.
std::optional<uint64_t> ReadNumber(absl::string_view path) {
  const absl::StatusOr<std::string> text = ReadFile(path, 4096);
  uint64_t value = 0;
  if (!text.ok() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &value)) {
    return std::nullopt;
  }
  return value;
}

// The smallest memory limit from the process's cgroup up to the root, version 2 or 1.
std::optional<uint64_t> CgroupLimit() {
  const absl::StatusOr<std::string> groups = ReadFile("/proc/self/cgroup", 1 << 16);
  std::optional<uint64_t> limit;
  if (!groups.ok()) return limit;
  for (absl::string_view line : absl::StrSplit(*groups, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const bool version2 = fields[1].empty();
    if (!version2 && !absl::StrContains(absl::StrCat(",", fields[1], ","), ",memory,")) continue;
    const std::string root = version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* const file = version2 ? "/memory.max" : "/memory.limit_in_bytes";
    for (std::string path = fields[2];; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      if (const std::optional<uint64_t> value = ReadNumber(absl::StrCat(root, path, file))) {
        limit = std::min(limit.value_or(*value), *value);
      }
      if (path.empty()) break;
    }
  }
  return limit;
}

uint64_t AvailableMachineBytes() {
  const absl::StatusOr<std::string> info = ReadFile("/proc/meminfo", 1 << 16);
  if (info.ok()) {
    for (absl::string_view line : absl::StrSplit(*info, '\n')) {
      uint64_t kib = 0;
      if (absl::ConsumePrefix(&line, "MemAvailable:") && absl::ConsumeSuffix(&line, "kB") &&
          absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kib)) {
        return kib * 1024;
      }
    }
  }
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

uint64_t MemoryBudget::AvailableHostBytes() {
  const uint64_t available = AvailableMachineBytes();
  return std::min(available, CgroupLimit().value_or(available));
}

absl::StatusOr<uint64_t> MemoryBudget::ParseFlag(absl::string_view text, uint64_t available_bytes) {
  const absl::Status error = absl::InvalidArgumentError(absl::StrCat(
      "memory budget: got '", text, "', limit: bytes, KiB, MiB, GiB, TiB or 1 to 100 per cent"));
  absl::string_view number = absl::StripAsciiWhitespace(text);
  if (absl::ConsumeSuffix(&number, "%")) {
    double percent = 0;
    if (!absl::SimpleAtod(absl::StripAsciiWhitespace(number), &percent) || !(percent > 0) ||
        percent > 100) {
      return error;
    }
    return static_cast<uint64_t>(static_cast<double>(available_bytes) * (percent / 100));
  }
  int shift = 0;
  for (const auto& [suffix, bits] : {std::pair<absl::string_view, int>{"KiB", 10},
                                     {"MiB", 20},
                                     {"GiB", 30},
                                     {"TiB", 40},
                                     {"B", 0}}) {
    if (absl::ConsumeSuffix(&number, suffix)) {
      shift = bits;
      break;
    }
  }
  uint64_t value = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(number), &value) || value == 0 ||
      value > (std::numeric_limits<uint64_t>::max() >> shift)) {
    return error;
  }
  return value << shift;
}

absl::Status MemoryBudget::Reserve(Kind kind, absl::string_view name, uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.kind == kind && name == e.name; });
  const uint64_t before = entry == entries_.end() ? 0 : entry->bytes;
  const uint64_t others = ReservedLocked() - before;
  // Shrinking is always granted, also when other reservations took all there is.
  if (bytes > before && (others > budget_bytes_ || bytes > budget_bytes_ - others)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "memory of device ", device_, ": ", KindName(kind), " of '", name, "': got ", bytes,
        " bytes, limit ", others > budget_bytes_ ? 0 : budget_bytes_ - others,
        " (--device-memory-budget", kind == Kind::kPool ? ", --pinned-memory-pool-byte-size" : "",
        ")\n", PlanLocked()));
  }
  if (entry != entries_.end()) {
    entry->bytes = bytes;
  } else {
    entries_.push_back({kind, std::string(name), bytes});
  }
  return absl::OkStatus();
}

void MemoryBudget::Release(Kind kind, absl::string_view name) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(entries_, [&](const Entry& e) { return e.kind == kind && name == e.name; });
}

uint64_t MemoryBudget::ReservedLocked() const {
  uint64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.bytes;
  return sum;
}

uint64_t MemoryBudget::reserved_bytes() const {
  absl::MutexLock lock(&mutex_);
  return ReservedLocked();
}

std::string MemoryBudget::Plan() const {
  absl::MutexLock lock(&mutex_);
  return PlanLocked();
}

std::string MemoryBudget::PlanLocked() const {
  const auto mib = [](uint64_t bytes) { return absl::StrCat((bytes + (1 << 19)) >> 20, " MiB"); };
  std::string plan = absl::StrCat("memory plan of device ", device_, ":\n");
  for (const Entry& entry : entries_) {
    absl::StrAppend(&plan, "  ", KindName(entry.kind), " ", entry.name, ": ", mib(entry.bytes),
                    "\n");
  }
  absl::StrAppend(&plan, "  total: ", mib(ReservedLocked()), " of ", mib(budget_bytes_), "\n");
  return plan;
}

}  // namespace stampmill
