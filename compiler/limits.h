// Bounds of the compiler, each with its reason.
#pragma once

#include <cstdint>

namespace stampmill {

// Private memory of one compile worker: packed weights, folded constants and LLVM. A model's own
// mapped file is not counted. Models of several GiB are packed within it; one that claims more is a
// mistake or hostile.
inline constexpr int64_t kWorkerMemoryBytesDefault = int64_t{32} << 30;
// And no more than so many quarters of what this process may use.
inline constexpr int64_t kWorkerMemoryQuartersDefault = 3;

// A cold compile takes seconds; an hour is an endless loop.
inline constexpr int64_t kWorkerSecondsDefault = 3600;

// Kernels of one artifact: enough that a model has few files to open, few enough that two threads
// have something to share in a small model.
inline constexpr int64_t kKernelsPerArtifactMax = 8;

// What is kept of a worker's standard error for the message when it dies.
inline constexpr int64_t kLastWordsBytesMax = 2048;

}  // namespace stampmill
