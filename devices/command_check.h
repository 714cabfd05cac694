// CheckCommands: what every backend's Submit asks of a command list before it takes it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "devices/device.h"

namespace stampmill {

// What a queue wants to know of a list that it has just checked.
struct CommandListFacts {
  uint64_t last_signal = 0;    // of the list, else the one given
  int64_t nanos_estimate = 0;  // sum over the list; kUnknownNanos if one launch does not say
  int64_t launches = 0;
};
inline constexpr int64_t kUnknownNanos = INT64_MAX;

// INVALID_ARGUMENT naming the command, field, value and limit: null or foreign executables (those
// of a device other than `device`), entries out of range, negative counts, limits of limits.h,
// copies between ranges of different size or that overlap, null addresses, signals that do not go
// up from `last_signal`, waits for nobody or for the queue itself later on. Allocates only on
// error.
absl::StatusOr<CommandListFacts> CheckCommands(std::span<const Command> commands,
                                               const Device* device, const Queue* queue,
                                               uint64_t last_signal);

}  // namespace stampmill
