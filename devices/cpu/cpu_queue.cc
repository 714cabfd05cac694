#include "devices/cpu/cpu_queue.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "devices/command_check.h"
#include "devices/cpu/cpu_executable.h"

namespace stampmill {
namespace {

constexpr uint32_t kClosing = uint32_t{1} << 31;

// Starting and joining a job costs some hundred nanoseconds: pieces below this are not worth it.
constexpr int64_t kChunkNanosMin = 1'000;
// So that workers go round between queues every millisecond, half of it a chunk.
constexpr int64_t kChunkNanosMax = 500'000;
// Enough chunks that a worker which is taken off its core delays the others by little.
constexpr int64_t kChunksPerWorker = 8;

// Copies and fills are cut into tasks of so many bytes, some 30 us each.
constexpr int64_t kPieceBytes = 256 << 10;
constexpr int64_t kBytesPerNano = 8;

int64_t ChunkCount(int64_t tasks, int64_t nanos_estimate, int64_t workers) {
  int64_t chunks = workers * kChunksPerWorker;
  if (nanos_estimate > 0) {
    chunks = workers == 1 ? 1 : std::min(chunks, nanos_estimate / kChunkNanosMin);
    chunks = std::max(chunks, nanos_estimate / kChunkNanosMax);
  }
  chunks = std::clamp<int64_t>(chunks, 1, std::min<int64_t>(tasks, 1 << 20));
  // Even ones: where some had one task and others two, the latter would be waited for.
  const int64_t size = tasks / chunks;
  return (tasks + size - 1) / size;
}

// Kernels of our own. dims: size in bytes, (fill) value.
int32_t CopyPieces(const KernelArgs* args, int64_t begin, int64_t end) {
  const int64_t from = begin * kPieceBytes, to = std::min(end * kPieceBytes, args->dims[0]);
  memcpy(static_cast<char*>(args->buffers[1]) + from,
         static_cast<const char*>(args->buffers[0]) + from, static_cast<size_t>(to - from));
  return 0;
}

int32_t FillPieces(const KernelArgs* args, int64_t begin, int64_t end) {
  const int64_t from = begin * kPieceBytes, to = std::min(end * kPieceBytes, args->dims[0]);
  memset(static_cast<char*>(args->buffers[0]) + from, static_cast<int>(args->dims[1]),
         static_cast<size_t>(to - from));
  return 0;
}

int64_t Pieces(uint64_t bytes) {
  return static_cast<int64_t>(bytes / kPieceBytes + (bytes % kPieceBytes != 0 ? 1 : 0));
}

void* Pointer(const BufferRef& range) { return reinterpret_cast<void*>(range.address); }

}  // namespace

CpuQueue::CpuQueue(const Device* device, WorkerPool* pool, Waker* waker)
    : Queue(waker), device_(device), pool_(pool) {}

absl::StatusOr<std::unique_ptr<CpuQueue>> CpuQueue::Create(const Device* device, WorkerPool* pool,
                                                           Waker* waker) {
  std::unique_ptr<CpuQueue> queue(new CpuQueue(device, pool, waker));
  ASSIGN_OR_RETURN(queue->stream_, pool->OpenStream(
                                       [](void* context, Turn& turn) {
                                         static_cast<CpuQueue*>(context)->Advance(turn);
                                       },
                                       queue.get()));
  return queue;
}

CpuQueue::~CpuQueue() {
  if (stream_ == nullptr) return;
  pending_.fetch_or(kClosing, std::memory_order_acq_rel);
  for (;;) {
    const uint32_t seen = pool_->closing_waker().epoch();
    if (pending_.load(std::memory_order_acquire) == kClosing) break;
    pool_->closing_waker().WaitUntil(seen, kNoDeadline);
  }
  pool_->CloseStream(stream_);
}

absl::Status CpuQueue::Submit(std::span<const Command> commands) {
  RETURN_IF_ERROR(status());
  ASSIGN_OR_RETURN(const CommandListFacts facts,
                   CheckCommands(commands, device_, this, last_signal_));
  if (commands.empty()) return absl::OkStatus();
  if (pending_.load(std::memory_order_acquire) >= kQueueListsMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "queue: lists under way: got ", kQueueListsMax + 1, ", limit ", kQueueListsMax));
  }
  last_signal_ = facts.last_signal;
  lists_[lists_in_ % kQueueListsMax] = commands;
  ++lists_in_;
  if (pending_.fetch_add(1, std::memory_order_acq_rel) != 0) return absl::OkStatus();
  if (facts.nanos_estimate < kCallerRunNanosMax) {
    Turn turn(caller_scratch_);
    Advance(turn);
  } else {
    pool_->Publish(stream_, PoolJob(), nullptr);
  }
  return absl::OkStatus();
}

// Runs commands until the queue is idle, changes hands, or its turn is over.
void CpuQueue::Advance(Turn& turn) {
  if (job_out_) FinishJob();
  if (parked_) {
    parked_ = false;
    if (!wait_status_.ok()) Fail(wait_status_);
  }
  for (;;) {
    // A copy: behind its last signal the list may be gone.
    const std::span<const Command> list = lists_[lists_out_ % kQueueListsMax];
    while (position_ < list.size()) {
      if (turn.MustYield()) return pool_->Publish(stream_, PoolJob(), nullptr);
      if (Run(list[position_++], turn) == Step::kLeave) return;
    }
    if (Leave()) return;
  }
}

// The first list is done. True if it was the only one: then the queue is no longer ours, and may
// already be destroyed.
bool CpuQueue::Leave() {
  position_ = 0;
  ++lists_out_;
  // Only Submit adds lists, and it publishes only once it has seen 0.
  if ((pending_.load(std::memory_order_acquire) & ~kClosing) == 1) pool_->Idle(stream_);
  WorkerPool* const pool = pool_;
  const uint32_t before = pending_.fetch_sub(1, std::memory_order_acq_rel);
  if (before == (kClosing | 1)) pool->closing_waker().Wake();
  return (before & ~kClosing) == 1;
}

CpuQueue::Step CpuQueue::Run(const Command& command, Turn& turn) {
  if (const auto* signal = std::get_if<SignalCommand>(&command)) {
    if (turn.on_worker()) {
      timeline_.Pass(signal->value);
    } else {
      timeline_.PassInSubmit(signal->value);
    }
    return Step::kNext;
  }
  if (failed_) return Step::kNext;
  if (const auto* launch = std::get_if<LaunchCommand>(&command)) return RunLaunch(*launch, turn);
  if (const auto* copy = std::get_if<CopyCommand>(&command)) return RunCopy(*copy, turn);
  if (const auto* fill = std::get_if<FillCommand>(&command)) return RunFill(*fill, turn);
  return RunWait(std::get<WaitCommand>(command));
}

CpuQueue::Step CpuQueue::RunLaunch(const LaunchCommand& launch, Turn& turn) {
  launch_ = &launch;
  for (size_t i = 0; i < launch.buffers.size(); ++i) buffers_[i] = Pointer(launch.buffers[i]);
  const auto* executable = static_cast<const CpuExecutable*>(launch.executable);
  return RunJob({.function = executable->function(launch.entry),
                 .buffers = buffers_.data(),
                 .dims = launch.dims.data(),
                 .tasks = launch.tasks,
                 .scratch_bytes = launch.scratch_bytes},
                launch.nanos_estimate, turn);
}

CpuQueue::Step CpuQueue::RunCopy(const CopyCommand& copy, Turn& turn) {
  if (copy.source.address == copy.target.address) return Step::kNext;
  launch_ = nullptr;
  buffers_[0] = Pointer(copy.source);
  buffers_[1] = Pointer(copy.target);
  const int64_t size = static_cast<int64_t>(copy.source.size_bytes);
  dims_[0] = size;
  return RunJob({.function = CopyPieces,
                 .buffers = buffers_.data(),
                 .dims = dims_.data(),
                 .tasks = Pieces(copy.source.size_bytes)},
                size / kBytesPerNano + 1, turn);
}

CpuQueue::Step CpuQueue::RunFill(const FillCommand& fill, Turn& turn) {
  launch_ = nullptr;
  buffers_[0] = Pointer(fill.target);
  const int64_t size = static_cast<int64_t>(fill.target.size_bytes);
  dims_[0] = size;
  dims_[1] = fill.value;
  return RunJob({.function = FillPieces,
                 .buffers = buffers_.data(),
                 .dims = dims_.data(),
                 .tasks = Pieces(fill.target.size_bytes)},
                size / kBytesPerNano + 1, turn);
}

CpuQueue::Step CpuQueue::RunWait(const WaitCommand& wait) {
  // The other's thread may take this queue on as soon as the waiter hangs there.
  Timeline& timeline = wait.queue->timeline();
  const uint64_t value = wait.value;
  parked_ = true;
  pool_->Idle(stream_);
  if (timeline.AddWaiter(value, this)) return Step::kLeave;
  parked_ = false;
  if (absl::Status status = timeline.StatusAt(value); !status.ok()) Fail(status);
  return Step::kNext;
}

void CpuQueue::Release(const absl::Status& status) {
  wait_status_ = status;
  pool_->Publish(stream_, PoolJob(), nullptr);
}

CpuQueue::Step CpuQueue::RunJob(PoolJob job, int64_t nanos_estimate, Turn& turn) {
  if (job.tasks == 0) return Step::kNext;
  job.chunks = turn.on_worker() ? ChunkCount(job.tasks, nanos_estimate, pool_->threads()) : 1;
  if (job.chunks == 1) {
    Check(RunTasks(job, 0, job.tasks, turn.scratch()));
    return Step::kNext;
  }
  job_out_ = true;
  pool_->Publish(stream_, job, &turn);
  return Step::kLeave;
}

void CpuQueue::FinishJob() {
  job_out_ = false;
  Check(pool_->Result(stream_));
}

void CpuQueue::Check(int64_t result) {
  if (result == 0) return;
  // Only launches fail: copies and fills return 0 and need no scratch.
  CHECK(launch_ != nullptr);
  const auto* executable = static_cast<const CpuExecutable*>(launch_->executable);
  const std::string kernel =
      absl::StrCat("cpu queue: kernel '", executable->name(launch_->entry), "'");
  Fail(result == kNoScratch
           ? absl::ResourceExhaustedError(absl::StrCat(kernel, ": scratch: no memory for ",
                                                       launch_->scratch_bytes, " bytes"))
           : absl::InternalError(absl::StrCat(kernel, ": returned code ", result)));
}

void CpuQueue::Fail(const absl::Status& status) {
  failed_ = true;
  timeline_.Fail(status);
}

}  // namespace stampmill
