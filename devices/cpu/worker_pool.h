// WorkerPool: the threads of a CPU device, and how one launch is spread over them.
//
// Work comes in streams (one a queue). A stream has at most one job out at a time: a kernel and a
// number of chunks, contiguous ranges of its tasks. Every worker has a ticket of every stream, a
// (next, end) pair on a cache line of its own that holds a contiguous range of chunks: it takes
// chunks from its own ticket first, then from the others'. The thread that finishes the last chunk
// runs the stream's continuation, which publishes the next job. So nobody ever waits for a worker
// that has not taken a chunk: one that wakes late, or is preempted while it looks around, delays
// nothing.
//
// A ticket is claimed by fetch_add, and the job is read only after a claim. A claimed chunk keeps
// its job from ending, hence the claimer cannot see a job other than the one it has claimed from,
// however long it was preempted between looking and claiming.
//
// Workers go round over the streams with work, up to kTurnNanos each, spin for kSpinNanos when
// there is none, then sleep. Nothing here allocates after OpenStream, but for scratch that grows.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/waker.h"
#include "devices/artifact.h"
#include "devices/limits.h"

namespace stampmill {

inline constexpr size_t kCacheLineBytes = 64;

// One thread's scratch memory for kernels: grows to the largest launch it has seen and stays. Owned
// by one thread at a time.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // At least `bytes`, 64-byte aligned; null for 0 bytes or when there is no memory.
  void* Get(int64_t bytes);

 private:
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

// What is to be run: function(args, begin, end) over all tasks, in `chunks` pieces.
struct PoolJob {
  CpuKernel function = nullptr;  // null: no tasks, only the continuation
  void* const* buffers = nullptr;
  const int64_t* dims = nullptr;
  int64_t tasks = 0;
  int64_t chunks = 1;  // 1 to max(tasks, 1), less than 2^31
  int64_t scratch_bytes = 0;
};

// Beyond any code that a kernel returns: there was no memory for its scratch.
inline constexpr int64_t kNoScratch = int64_t{1} << 32;

// Runs tasks [begin, end) on this thread. 0, the kernel's code, or kNoScratch.
int64_t RunTasks(const PoolJob& job, int64_t begin, int64_t end, Scratch& scratch);

// Thread-safe.
class WorkerPool {
 public:
  class Stream;

  // A thread's turn at a stream, given to the continuation.
  class Turn {
   public:
    // A turn outside the pool (short work inside Submit): never yields. Borrows `scratch`.
    explicit Turn(Scratch& scratch) : scratch_(scratch) {}

    Scratch& scratch() { return scratch_; }
    bool on_worker() const { return pool_ != nullptr; }
    // Whether other streams have work and this one has had its time: a continuation should then
    // publish what is left as a job without tasks, and return.
    bool MustYield() const;

   private:
    friend class WorkerPool;
    Turn(Scratch& scratch, const WorkerPool* pool, int32_t stream);

    Scratch& scratch_;
    const WorkerPool* pool_ = nullptr;
    int32_t stream_ = -1;
    int64_t start_nanos_ = 0;
  };
  // Runs when a job of the stream has ended, on the thread that ended it.
  using Continuation = void (*)(void* context, Turn& turn);

  // RESOURCE_EXHAUSTED when the system has no more threads. REQUIRES: 1 to kCpuThreadsMax.
  static absl::StatusOr<std::unique_ptr<WorkerPool>> Create(int32_t threads);
  // REQUIRES: all streams closed.
  ~WorkerPool();

  int32_t threads() const { return static_cast<int32_t>(workers_.size()); }

  // Lives until CloseStream. RESOURCE_EXHAUSTED beyond kCpuQueuesMax.
  absl::StatusOr<Stream*> OpenStream(Continuation continuation, void* context);
  // REQUIRES: Idle was called and no job is out.
  void CloseStream(Stream* stream);

  // Gives out `job`; returns at once. REQUIRES: no job is out on the stream. The caller must not
  // touch what the continuation owns afterwards: it may be running. `turn` is the caller's when it
  // is a continuation that goes on with its turn and so takes chunks itself; else null.
  void Publish(Stream* stream, const PoolJob& job, const Turn* turn);
  // The stream has nothing more to do for now; workers stop looking at it. Before the event that
  // may cause the next Publish by another thread.
  void Idle(Stream* stream);
  // Of the job that has just ended: 0 or the first nonzero result. For the continuation.
  int64_t Result(const Stream* stream) const;

  // Bumped by owners of streams that are about to go, for those who wait for it; outlives them.
  Waker& closing_waker() { return closing_waker_; }

 private:
  struct Worker;
  static constexpr int32_t kStreamWords = kCpuQueuesMax / 64;
  static constexpr int32_t kSleepWords = kCpuThreadsMax / 64;

  WorkerPool() = default;
  absl::Status Start(int32_t threads);
  void Run(Worker& self);
  bool RunRound(Worker& self);
  bool RunStream(Worker& self, Stream& stream);
  int64_t Claim(const Worker& self, Stream& stream) const;
  bool HasWork(const Worker& self) const;
  bool SpinForWork(const Worker& self) const;
  void SleepUntilWoken(Worker& self);
  bool OthersHaveWork(int32_t stream) const;
  void WakeWorkers(int64_t count);

  std::vector<std::unique_ptr<Worker>> workers_;

  // Streams that may have work, by index. Read by all workers, written when a queue starts and
  // ends.
  alignas(kCacheLineBytes) std::atomic<uint64_t> listed_[kStreamWords] = {};
  // Indices below 64 x this have been used.
  alignas(kCacheLineBytes) std::atomic<int32_t> stream_words_{0};
  std::atomic<Stream*> streams_[kCpuQueuesMax] = {};

  alignas(kCacheLineBytes) std::atomic<int32_t> searching_{0};  // workers that spin
  std::atomic<int32_t> sleeping_{0};                            // bits set in asleep_
  std::atomic<uint64_t> asleep_[kSleepWords] = {};  // workers that sleep or are about to
  std::atomic<bool> stopping_{false};

  alignas(kCacheLineBytes) Waker closing_waker_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Stream>> all_streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<int32_t> free_streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stampmill
