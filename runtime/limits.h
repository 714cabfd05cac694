// Bounds of the runtime, each with its reason. Everything that a client, a file or a model can make
// grow has one.
#pragma once

#include <cstdint>

namespace stampmill {

// Rank of a tensor in a request. ONNX sets no limit; real models stay at 6 or below.
inline constexpr int32_t kTensorRankMax = 16;

// Inputs or outputs of one model, and so tensors of one request.
inline constexpr int32_t kTensorsPerRequestMax = 1024;

// Bytes of one tensor of a step: sums over all buffers of a program then stay far below 2^63.
inline constexpr int64_t kTensorBytesMax = int64_t{1} << 40;

// Live leases on the arena. A request holds one for each tensor in it, shared by the requests of a
// batch; 1280 slots (--max-queued-requests + --max-sequences) of a dozen tensors stay below. Beyond
// it blocks are handed out without being cut to size.
inline constexpr int32_t kPoolBlocksMax = 1 << 14;

// Engines (one a device) that wait for pool memory at the same time.
inline constexpr int32_t kReleaseWakersMax = 64;

// How long a request may wait for pool memory that others hold before it fails: answers take far
// less to be sent, but to clients that do not read.
inline constexpr int64_t kPoolWaitNanosMax = 1'000'000'000;

// Registered client regions; also the size of the table that the SIGBUS handler walks.
inline constexpr int32_t kClientRegionsMax = 1024;

// Priority levels of a model's queue (Triton's field is a u32).
inline constexpr uint64_t kPriorityLevelsMax = 256;

// Rows of one batch are counted apart up to this size (batch_stats); larger ones count together.
inline constexpr int32_t kBatchSizesCountedMax = 1024;

// Memory of one model's prepared steps, one for each shape signature seen lately: the number kept
// follows from the program's size, at least kStepPlansMin.
inline constexpr int64_t kStepPlanBytesMax = int64_t{8} << 20;
inline constexpr int32_t kStepPlansMin = 2;
inline constexpr int32_t kStepPlansMax = 64;
static_assert(kStepPlansMin >= 1 && kStepPlansMin <= kStepPlansMax);

// Commands of one step that are kept with its plan. Programs with longer repeats run in pieces of
// at most so many commands, or about so long: a cancel waits for one of them.
inline constexpr size_t kPlanCommandsMax = 4096;
inline constexpr size_t kPieceCommandsMax = 512;
inline constexpr int64_t kPieceNanosMax = 1'000'000;

// A configuration or override file; the largest known config.pbtxt has a few KiB.
inline constexpr uint64_t kConfigFileBytesMax = uint64_t{4} << 20;

// Repository work (loads and unloads) waiting for a thread.
inline constexpr int32_t kRepositoryJobsMax = 1024;

// Entries read from one folder of a repository.
inline constexpr int32_t kRepositoryEntriesMax = 100000;

}  // namespace stampmill
