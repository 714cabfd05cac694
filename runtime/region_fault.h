// Survives SIGBUS in memory that clients share with the daemon: a client may truncate the object
// behind a mapping at any time, and the next touch of the lost pages raises SIGBUS.
//
// The handler finds the faulting address in a fixed table of watched ranges, maps anonymous zero
// pages over the rest of that range and marks it; the access then goes on. Faults elsewhere go to
// the handler that was there before. The table is the one global of the process; the handler is
// installed by the first Watch and uses nothing but atomics and mmap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stampmill {

// Watches a mapping that begins at a page boundary; returns its place in the table, -1 when
// kClientRegionsMax are watched. Thread-safe.
int32_t WatchRegion(std::span<std::byte> mapping);
// REQUIRES: nothing touches the mapping any more; it is still mapped.
void UnwatchRegion(int32_t place);
// Whether pages of the mapping vanished since it is watched. What was read then is zeros.
bool RegionFaulted(int32_t place);

}  // namespace stampmill
