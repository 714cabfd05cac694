// Survives SIGBUS in memory that clients share with the daemon: a client may truncate the object
// behind a mapping at any time, and the next touch of the lost pages raises SIGBUS.
//
// The handler finds the faulting address in a fixed table of watched ranges, maps anonymous zero
// pages over the rest of that range and marks it; the access then goes on. A fault elsewhere cannot
// be survived (the pages may be code): a line on standard error names the mapped file, and the
// handler that was there before has it. The table is the one global of the process; the handler
// uses nothing but atomics and system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stampmill {

// Installs the handler, unless it is: before the first file is mapped that somebody may cut off.
// Thread-safe.
void HandleBusErrors();
// Installs the handler and watches a mapping that begins at a page boundary; returns its place in
// the table, -1 when kClientRegionsMax are watched. Thread-safe.
int32_t WatchRegion(std::span<std::byte> mapping);
// REQUIRES: nothing touches the mapping any more; it is still mapped.
void UnwatchRegion(int32_t place);
// Whether pages of the mapping vanished since it is watched. What was read then is zeros.
bool RegionFaulted(int32_t place);

}  // namespace stampmill
