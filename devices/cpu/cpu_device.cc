#include "devices/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "devices/cpu/cpu_executable.h"
#include "devices/cpu/cpu_queue.h"
#include "devices/cpu/worker_pool.h"
#include "devices/host.h"
#include "devices/limits.h"

namespace stampmill {
namespace {

constexpr size_t kAlignment = 64;
// Larger blocks come from mmap: they go back to the system at once, and are zero pages until
// touched.
constexpr size_t kMapBytesMin = 256 << 10;
// From two of its size on, memory is aligned for huge pages and asks for them: reading weights and
// activations through 4 KiB pages costs 10 to 15 %.
constexpr size_t kHugePageBytes = 2 << 20;
// No address space is larger; larger requests are refused before any arithmetic.
constexpr size_t kAllocationBytesMax = size_t{1} << 47;

// Buffer::token().
enum Origin : uint64_t { kImported, kHeap, kMapped };

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Anonymous memory at a multiple of `alignment` (a power of two, a page at least), or null.
void* Map(size_t bytes, size_t alignment, size_t page) {
  const size_t reserve = alignment > page ? bytes + alignment - page : bytes;
  void* memory = mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(memory);
  char* const aligned =
      reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(begin), alignment));
  if (aligned > begin) munmap(begin, aligned - begin);
  const size_t behind = begin + reserve - (aligned + bytes);
  if (behind > 0) munmap(aligned + bytes, behind);
  return aligned;
}

// "model name : AMD EPYC", the processor's own name for itself.
std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos) {
      return std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
    }
  }
  return "unknown processor";
}

// Thread-safe: what changes after construction is in the pool.
class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceInfo info, std::unique_ptr<WorkerPool> pool)
      : info_(std::move(info)), pool_(std::move(pool)) {}

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<Buffer> Allocate(size_t size_bytes) override {
    void* memory = nullptr;
    const bool mapped = size_bytes >= kMapBytesMin;
    if (size_bytes <= kAllocationBytesMax) {
      memory =
          mapped ? AllocatePages(size_bytes)
                 : aligned_alloc(kAlignment, RoundUp(std::max<size_t>(size_bytes, 1), kAlignment));
    }
    if (memory == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("cpu device: no memory for ", size_bytes,
                                                       " bytes, the machine has ",
                                                       info_.memory_bytes));
    }
    return Buffer(this, reinterpret_cast<uint64_t>(memory), size_bytes, mapped ? kMapped : kHeap);
  }

  absl::StatusOr<Buffer> Import(std::span<std::byte> host, bool /*writable*/) override {
    return Buffer(this, reinterpret_cast<uint64_t>(host.data()), host.size(), kImported);
  }

  absl::StatusOr<std::shared_ptr<const Executable>> Load(const Artifact& artifact) override {
    if (!info_.target.Runs(artifact.target())) {
      return absl::InvalidArgumentError(
          absl::StrCat("artifact: target: got ", artifact.target().ToString(), ", the device runs ",
                       info_.target.ToString()));
    }
    return CpuExecutable::Load(this, artifact);
  }

  absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(Waker* waker) override {
    return CpuQueue::Create(this, pool_.get(), waker);
  }

 private:
  void* AllocatePages(size_t size_bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const bool huge = size_bytes >= 2 * kHugePageBytes;
    const size_t bytes = RoundUp(size_bytes, page);
    void* const memory = Map(bytes, huge ? kHugePageBytes : page, page);
    // Advice: a kernel without huge pages refuses it, and nothing is lost but speed.
    if (memory != nullptr && huge) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
  }

  void Release(Buffer& buffer) override {
    void* const memory = reinterpret_cast<void*>(buffer.address());
    switch (static_cast<Origin>(buffer.token())) {
      case kImported:
        return;
      case kHeap:
        free(memory);
        return;
      case kMapped:
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        CHECK_EQ(munmap(memory, RoundUp(buffer.size_bytes(), page)), 0);
        return;
    }
  }

  const DeviceInfo info_;
  const std::unique_ptr<WorkerPool> pool_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options) {
  if (options.threads < 0 || options.threads > kCpuThreadsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("cpu device: threads: got ", options.threads, ", limit ", kCpuThreadsMax));
  }
  const Target host = Target::HostCpu();
  const Target target = options.target.value_or(host);
  if (!host.Runs(target)) {
    return absl::InvalidArgumentError(absl::StrCat("cpu device: target: got ", target.ToString(),
                                                   ", this machine runs ", host.ToString()));
  }
  const int32_t threads =
      options.threads > 0 ? options.threads : std::min(UsableCpuCount(), kCpuThreadsMax);
  ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> pool, WorkerPool::Create(threads));
  DeviceInfo info;
  info.id = "cpu";
  info.name = ProcessorName();
  info.target = target;
  info.memory_bytes = UsableMemoryBytes();
  info.threads = threads;
  info.host_memory = true;
  return std::make_unique<CpuDevice>(std::move(info), std::move(pool));
}

}  // namespace stampmill
