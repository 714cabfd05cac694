// Bounds of the device layer, each with its reason. Exceeding one is an error with the number in
// it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stampmill {

// Command lists of one queue that have been submitted and not yet run to the end. The engine keeps
// one or two steps in flight a model, each a handful of lists.
inline constexpr int32_t kQueueListsMax = 64;
// Buffers of one launch. The widest kernels are concatenations, with one buffer an input.
inline constexpr int32_t kLaunchBuffersMax = 1024;
// Dims of one launch; a rank-8 operator with a dozen operands stays below 200.
inline constexpr int32_t kLaunchDimsMax = 4096;
// Scratch of one running task: a packed panel is a few MiB; beyond this something is wrong.
inline constexpr int64_t kScratchBytesMax = int64_t{1} << 30;

// A CPU artifact holds the kernels of one model at most: some MiB.
inline constexpr uint64_t kArtifactCodeBytesMax = uint64_t{1} << 30;
// Entries of one artifact.
inline constexpr uint32_t kArtifactEntriesMax = 1 << 16;

// Workers of a CPU device: the largest servers have about so many hardware threads.
inline constexpr int32_t kCpuThreadsMax = 512;
// Queues of a CPU device: one a loaded model, two for a language model.
inline constexpr int32_t kCpuQueuesMax = 1024;

}  // namespace stampmill
