#include "devices/command_check.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "devices/limits.h"

namespace stampmill {
namespace {

// Copies and fills run at memory speed, 8 bytes a nanosecond or more.
constexpr uint64_t kBytesPerNano = 8;
// Taking a command out of the list and looking at it.
constexpr int64_t kNanosPerCommand = 50;

// One list in the making; each Check returns OK or the words for the caller.
class Checker {
 public:
  Checker(const Device* device, const Queue* queue, uint64_t last_signal)
      : device_(device), queue_(queue) {
    facts_.last_signal = last_signal;
  }

  const CommandListFacts& facts() const { return facts_; }

  absl::Status Check(const Command& command) {
    if (const auto* launch = std::get_if<LaunchCommand>(&command)) return CheckLaunch(*launch);
    if (const auto* copy = std::get_if<CopyCommand>(&command)) return CheckCopy(*copy);
    if (const auto* fill = std::get_if<FillCommand>(&command)) return CheckRange(fill->target);
    if (const auto* signal = std::get_if<SignalCommand>(&command)) return CheckSignal(*signal);
    return CheckWait(std::get<WaitCommand>(command));
  }

 private:
  absl::Status CheckLaunch(const LaunchCommand& launch) {
    if (launch.executable == nullptr) return Invalid("launch: executable: null");
    if (launch.executable->device() != device_) {
      return Invalid("launch: executable: loaded by another device");
    }
    const int32_t entries = launch.executable->entry_count();
    if (launch.entry < 0 || launch.entry >= entries) {
      return Invalid("launch: entry: got ", launch.entry, ", the executable has ", entries);
    }
    if (launch.tasks < 0) return Invalid("launch: tasks: got ", launch.tasks, ", limit 0");
    if (launch.scratch_bytes < 0 || launch.scratch_bytes > kScratchBytesMax) {
      return Invalid("launch: scratch_bytes: got ", launch.scratch_bytes, ", limit ",
                     kScratchBytesMax);
    }
    if (launch.buffers.size() > kLaunchBuffersMax) {
      return Invalid("launch: buffers: got ", launch.buffers.size(), ", limit ", kLaunchBuffersMax);
    }
    if (launch.dims.size() > kLaunchDimsMax) {
      return Invalid("launch: dims: got ", launch.dims.size(), ", limit ", kLaunchDimsMax);
    }
    if (launch.nanos_estimate < 0) {
      return Invalid("launch: nanos_estimate: got ", launch.nanos_estimate, ", limit 0");
    }
    ++facts_.launches;
    AddNanos(launch.nanos_estimate == 0 && launch.tasks > 0 ? kUnknownNanos
                                                            : launch.nanos_estimate);
    return absl::OkStatus();
  }

  absl::Status CheckCopy(const CopyCommand& copy) {
    if (copy.source.size_bytes != copy.target.size_bytes) {
      return Invalid("copy: size_bytes: source has ", copy.source.size_bytes, ", target ",
                     copy.target.size_bytes);
    }
    if (absl::Status status = CheckRange(copy.source); !status.ok()) return status;
    if (absl::Status status = CheckRange(copy.target); !status.ok()) return status;
    const uint64_t a = copy.source.address, b = copy.target.address;
    const uint64_t distance = a > b ? a - b : b - a;
    if (distance != 0 && distance < copy.source.size_bytes) {
      return Invalid("copy: source and target overlap: ", copy.source.size_bytes, " bytes, ",
                     distance, " apart");
    }
    return absl::OkStatus();
  }

  absl::Status CheckRange(const BufferRef& range) {
    if (range.size_bytes != 0 && range.address == 0) return Invalid("address: null");
    if (range.size_bytes > std::numeric_limits<uint64_t>::max() - range.address ||
        range.size_bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Invalid("size_bytes: got ", range.size_bytes, ": beyond the end of memory");
    }
    AddNanos(static_cast<int64_t>(range.size_bytes / kBytesPerNano));
    return absl::OkStatus();
  }

  absl::Status CheckSignal(const SignalCommand& signal) {
    if (signal.value <= facts_.last_signal) {
      return Invalid("signal: value: got ", signal.value, ", must be above ", facts_.last_signal);
    }
    facts_.last_signal = signal.value;
    AddNanos(0);
    return absl::OkStatus();
  }

  absl::Status CheckWait(const WaitCommand& wait) {
    if (wait.queue == nullptr) return Invalid("wait: queue: null");
    if (wait.queue == queue_ && wait.value > facts_.last_signal) {
      return Invalid("wait: value: the queue would wait for its own signal ", wait.value,
                     ", it has signalled up to ", facts_.last_signal);
    }
    AddNanos(0);
    return absl::OkStatus();
  }

  void AddNanos(int64_t nanos) {
    if (__builtin_add_overflow(facts_.nanos_estimate, nanos, &facts_.nanos_estimate) ||
        __builtin_add_overflow(facts_.nanos_estimate, kNanosPerCommand, &facts_.nanos_estimate)) {
      facts_.nanos_estimate = kUnknownNanos;
    }
  }

  template <typename... Words>
  static absl::Status Invalid(const Words&... words) {
    return absl::InvalidArgumentError(absl::StrCat(words...));
  }

  const Device* const device_;
  const Queue* const queue_;
  CommandListFacts facts_;
};

}  // namespace

absl::StatusOr<CommandListFacts> CheckCommands(std::span<const Command> commands,
                                               const Device* device, const Queue* queue,
                                               uint64_t last_signal) {
  Checker checker(device, queue, last_signal);
  for (size_t i = 0; i < commands.size(); ++i) {
    if (absl::Status status = checker.Check(commands[i]); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("command ", i, ": ", status.message()));
    }
  }
  return checker.facts();
}

}  // namespace stampmill
