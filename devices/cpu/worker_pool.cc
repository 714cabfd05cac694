#include "devices/cpu/worker_pool.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stampmill {
namespace {

// Long enough to bridge the gap between two launches, short enough to cost little when the cores
// are shared with others.
constexpr int64_t kSpinNanos = 20'000;
// A stream's turn while others wait.
constexpr int64_t kTurnNanos = 1'000'000;
// A futex wake costs its caller 2 us and more; the woken wake the rest.
constexpr int64_t kWakesAtOnceMax = 4;
constexpr int32_t kPausesBetweenLooks = 8;
constexpr int32_t kLooksBetweenTimes = 8;

int64_t NowNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Chunks [next, end) that are still to be taken.
struct alignas(kCacheLineBytes) Ticket {
  std::atomic<uint64_t> value{0};
};
constexpr uint64_t MakeTicket(uint64_t next, uint64_t end) { return end << 32 | next; }
constexpr bool HasChunk(uint64_t ticket) { return (ticket & 0xffffffff) < ticket >> 32; }

}  // namespace

Scratch::~Scratch() { free(memory_); }

void* Scratch::Get(int64_t bytes) {
  if (bytes <= bytes_) return bytes == 0 ? nullptr : memory_;
  free(memory_);
  bytes_ = 0;
  const int64_t rounded = (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  memory_ = aligned_alloc(kCacheLineBytes, static_cast<size_t>(rounded));
  if (memory_ != nullptr) bytes_ = rounded;
  return memory_;
}

int64_t RunTasks(const PoolJob& job, int64_t begin, int64_t end, Scratch& scratch) {
  void* const memory = scratch.Get(job.scratch_bytes);
  if (memory == nullptr && job.scratch_bytes > 0) return kNoScratch;
  const KernelArgs args = {.buffers = job.buffers, .dims = job.dims, .scratch = memory};
  return job.function(&args, begin, end);
}

// Owned by the pool, never freed before it: workers may look at a closed one. What the continuation
// and the job say is written by the one thread that has the stream, and read after a claim.
class WorkerPool::Stream {
 public:
  Stream(int32_t index, int32_t threads) : index(index), tickets(threads) {}

  const int32_t index;
  bool listed = false;  // in listed_; belongs to whoever may publish
  Continuation continuation = nullptr;
  void* context = nullptr;
  PoolJob job;
  // Counts jobs: a worker that has found a generation's tickets empty need not look again.
  alignas(kCacheLineBytes) std::atomic<uint32_t> generation{0};
  alignas(kCacheLineBytes) std::atomic<int64_t> unfinished{0};
  std::atomic<int64_t> result{0};
  std::vector<Ticket> tickets;
};

struct alignas(kCacheLineBytes) WorkerPool::Worker {
  explicit Worker(int32_t index) : index(index) {}

  const int32_t index;
  int32_t last_stream = 0;
  bool was_asleep = false;
  Scratch scratch;
  std::vector<uint32_t> seen = std::vector<uint32_t>(kCpuQueuesMax, 0);  // generations, by stream
  alignas(kCacheLineBytes) Waker waker;
  std::thread thread;
};

WorkerPool::Turn::Turn(Scratch& scratch, const WorkerPool* pool, int32_t stream)
    : scratch_(scratch), pool_(pool), stream_(stream), start_nanos_(NowNanos()) {}

bool WorkerPool::Turn::MustYield() const {
  return pool_ != nullptr && pool_->OthersHaveWork(stream_) &&
         NowNanos() - start_nanos_ >= kTurnNanos;
}

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Create(int32_t threads) {
  CHECK_GE(threads, 1);
  CHECK_LE(threads, kCpuThreadsMax);
  std::unique_ptr<WorkerPool> pool(new WorkerPool);
  for (int32_t i = 0; i < threads; ++i) pool->workers_.push_back(std::make_unique<Worker>(i));
  if (absl::Status status = pool->Start(threads); !status.ok()) return status;
  return pool;
}

absl::Status WorkerPool::Start(int32_t threads) {
  // Signals for the process go to other threads; those that a kernel's own fault raises stay.
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF}) {
    sigdelset(&all, fault);
  }
  pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::Status status;
  for (int32_t i = 0; i < threads && status.ok(); ++i) {
    Worker* const worker = workers_[i].get();
    try {
      worker->thread = std::thread([this, worker] { Run(*worker); });
      pthread_setname_np(worker->thread.native_handle(), absl::StrCat("worker-", i).c_str());
    } catch (const std::system_error& error) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("cpu device: thread ", i + 1, " of ", threads, ": ", error.what()));
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

WorkerPool::~WorkerPool() {
  {
    absl::MutexLock lock(&mutex_);
    CHECK_EQ(free_streams_.size(), all_streams_.size()) << "a queue outlives its device";
  }
  stopping_.store(true, std::memory_order_seq_cst);
  for (const auto& worker : workers_) worker->waker.Wake();
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

absl::StatusOr<WorkerPool::Stream*> WorkerPool::OpenStream(Continuation continuation,
                                                           void* context) {
  absl::MutexLock lock(&mutex_);
  Stream* stream = nullptr;
  if (!free_streams_.empty()) {
    stream = all_streams_[free_streams_.back()].get();
    free_streams_.pop_back();
  } else {
    const int32_t index = static_cast<int32_t>(all_streams_.size());
    if (index >= kCpuQueuesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cpu device: queues: got ", index + 1, ", limit ", kCpuQueuesMax));
    }
    all_streams_.push_back(std::make_unique<Stream>(index, threads()));
    free_streams_.reserve(all_streams_.size());
    stream = all_streams_.back().get();
    streams_[index].store(stream, std::memory_order_release);
    stream_words_.store(index / 64 + 1, std::memory_order_release);
  }
  stream->continuation = continuation;
  stream->context = context;
  return stream;
}

void WorkerPool::CloseStream(Stream* stream) {
  CHECK(!stream->listed);
  absl::MutexLock lock(&mutex_);
  free_streams_.push_back(stream->index);
}

void WorkerPool::Publish(Stream* stream, const PoolJob& job, const Turn* turn) {
  const int64_t chunks = job.chunks;
  const int64_t mine = turn != nullptr && turn->on_worker() ? 1 : 0;
  CHECK_GE(chunks, 1);
  CHECK_LT(chunks, int64_t{1} << 31);
  stream->job = job;
  stream->result.store(0, std::memory_order_relaxed);
  stream->unfinished.store(chunks, std::memory_order_relaxed);
  if (!stream->listed) {
    stream->listed = true;
    listed_[stream->index / 64].fetch_or(uint64_t{1} << stream->index % 64,
                                         std::memory_order_seq_cst);
  }
  const int64_t workers = threads();
  int64_t begin = 0;
  for (int64_t i = 0; i < workers; ++i) {
    const int64_t end = begin + chunks / workers + (i < chunks % workers ? 1 : 0);
    stream->tickets[i].value.store(MakeTicket(begin, end), std::memory_order_release);
    begin = end;
  }
  // From here on the job may have ended and the stream belong to another thread, even be closed and
  // open again: only what tolerates that is touched.
  //
  // Sequentially consistent with SleepUntilWoken: either a worker that is going to sleep sees the
  // new generation, or this sees that it sleeps or searches no more.
  stream->generation.fetch_add(1, std::memory_order_seq_cst);
  WakeWorkers(chunks - mine - searching_.load(std::memory_order_seq_cst));
}

void WorkerPool::Idle(Stream* stream) {
  if (!stream->listed) return;
  stream->listed = false;
  listed_[stream->index / 64].fetch_and(~(uint64_t{1} << stream->index % 64),
                                        std::memory_order_seq_cst);
}

int64_t WorkerPool::Result(const Stream* stream) const {
  return stream->result.load(std::memory_order_relaxed);
}

void WorkerPool::WakeWorkers(int64_t count) {
  if (sleeping_.load(std::memory_order_seq_cst) == 0) return;
  count = std::min(count, kWakesAtOnceMax);
  const int32_t words = (threads() + 63) / 64;
  for (int32_t word = 0; word < words && count > 0; ++word) {
    uint64_t asleep = asleep_[word].load(std::memory_order_seq_cst);
    for (; asleep != 0 && count > 0; asleep &= asleep - 1) {
      const uint64_t bit = asleep & -asleep;
      if ((asleep_[word].fetch_and(~bit, std::memory_order_seq_cst) & bit) == 0) continue;
      sleeping_.fetch_sub(1, std::memory_order_relaxed);
      workers_[word * 64 + __builtin_ctzll(bit)]->waker.Wake();
      --count;
    }
  }
}

bool WorkerPool::OthersHaveWork(int32_t stream) const {
  const int32_t words = stream_words_.load(std::memory_order_relaxed);
  for (int32_t word = 0; word < words; ++word) {
    uint64_t listed = listed_[word].load(std::memory_order_relaxed);
    if (word == stream / 64) listed &= ~(uint64_t{1} << stream % 64);
    if (listed != 0) return true;
  }
  return false;
}

bool WorkerPool::HasWork(const Worker& self) const {
  const int32_t words = stream_words_.load(std::memory_order_seq_cst);
  for (int32_t word = 0; word < words; ++word) {
    uint64_t listed = listed_[word].load(std::memory_order_seq_cst);
    for (; listed != 0; listed &= listed - 1) {
      const int32_t index = word * 64 + __builtin_ctzll(listed);
      const Stream* stream = streams_[index].load(std::memory_order_acquire);
      if (stream->generation.load(std::memory_order_seq_cst) != self.seen[index]) return true;
    }
  }
  return false;
}

bool WorkerPool::SpinForWork(const Worker& self) const {
  const int64_t start = NowNanos();
  do {
    for (int32_t look = 0; look < kLooksBetweenTimes; ++look) {
      if (HasWork(self) || stopping_.load(std::memory_order_relaxed)) return true;
      for (int32_t i = 0; i < kPausesBetweenLooks; ++i) __builtin_ia32_pause();
    }
  } while (NowNanos() - start < kSpinNanos);
  return false;
}

void WorkerPool::SleepUntilWoken(Worker& self) {
  const uint64_t bit = uint64_t{1} << self.index % 64;
  std::atomic<uint64_t>& word = asleep_[self.index / 64];
  const uint32_t epoch = self.waker.epoch();
  sleeping_.fetch_add(1, std::memory_order_seq_cst);
  word.fetch_or(bit, std::memory_order_seq_cst);
  searching_.fetch_sub(1, std::memory_order_seq_cst);
  if (!HasWork(self) && !stopping_.load(std::memory_order_seq_cst)) {
    self.waker.WaitUntil(epoch, kNoDeadline);
    self.was_asleep = true;
  }
  // Whoever clears the bit also counts it.
  if ((word.fetch_and(~bit, std::memory_order_seq_cst) & bit) != 0) {
    sleeping_.fetch_sub(1, std::memory_order_relaxed);
  }
}

void WorkerPool::Run(Worker& self) {
  while (!stopping_.load(std::memory_order_acquire)) {
    if (RunRound(self)) continue;
    searching_.fetch_add(1, std::memory_order_seq_cst);
    if (SpinForWork(self)) {
      searching_.fetch_sub(1, std::memory_order_seq_cst);
    } else {
      SleepUntilWoken(self);
    }
  }
}

// One turn at each listed stream, beginning behind the one that was served last.
bool WorkerPool::RunRound(Worker& self) {
  bool ran = false;
  const int32_t words = stream_words_.load(std::memory_order_acquire);
  const int32_t first = self.last_stream + 1;
  for (int32_t i = 0; i <= words; ++i) {
    const int32_t word = words == 0 ? 0 : (first / 64 + i) % words;
    uint64_t listed = listed_[word].load(std::memory_order_acquire);
    // The first word is visited twice: the part behind `first`, and at the end the part before it.
    const uint64_t behind = ~uint64_t{0} << first % 64;
    if (i == 0) listed &= behind;
    if (i == words) listed &= ~behind;
    for (; listed != 0; listed &= listed - 1) {
      const int32_t index = word * 64 + __builtin_ctzll(listed);
      Stream& stream = *streams_[index].load(std::memory_order_acquire);
      if (stream.generation.load(std::memory_order_acquire) == self.seen[index]) continue;
      if (!RunStream(self, stream)) continue;
      self.last_stream = index;
      ran = true;
    }
  }
  return ran;
}

int64_t WorkerPool::Claim(const Worker& self, Stream& stream) const {
  const int32_t count = threads();
  for (int32_t i = 0, owner = self.index; i < count;
       ++i, owner = owner + 1 < count ? owner + 1 : 0) {
    std::atomic<uint64_t>& ticket = stream.tickets[owner].value;
    // The look before the claim bounds how far `next` runs past `end`: once a worker and job.
    if (!HasChunk(ticket.load(std::memory_order_relaxed))) continue;
    const uint64_t taken = ticket.fetch_add(1, std::memory_order_acq_rel);
    if (HasChunk(taken)) return static_cast<int64_t>(taken & 0xffffffff);
  }
  return -1;
}

// A turn at one stream: chunks of its job and, where this thread ends the job, its continuation and
// what that publishes. False if there was nothing to do.
bool WorkerPool::RunStream(Worker& self, Stream& stream) {
  Turn turn(self.scratch, this, stream.index);
  for (bool ran = false;; ran = true) {
    const uint32_t generation = stream.generation.load(std::memory_order_acquire);
    int64_t finished = 0;
    bool yield = false;
    for (int64_t chunk; !yield && (chunk = Claim(self, stream)) >= 0;) {
      if (self.was_asleep) {
        self.was_asleep = false;
        WakeWorkers(stream.unfinished.load(std::memory_order_relaxed) - 1);
      }
      const PoolJob& job = stream.job;
      if (job.function != nullptr && stream.result.load(std::memory_order_relaxed) == 0) {
        const int64_t size = job.tasks / job.chunks, larger = job.tasks % job.chunks;
        const int64_t begin = chunk * size + std::min(chunk, larger);
        const int64_t result =
            RunTasks(job, begin, begin + size + (chunk < larger ? 1 : 0), self.scratch);
        int64_t none = 0;
        if (result != 0) stream.result.compare_exchange_strong(none, result);
      }
      ++finished;
      yield = turn.MustYield();
    }
    if (finished == 0) {
      self.seen[stream.index] = generation;
      return ran;
    }
    // All at once: a chunk that is done but not counted delays nobody while this thread runs
    // another.
    if (stream.unfinished.fetch_sub(finished, std::memory_order_acq_rel) == finished) {
      stream.continuation(stream.context, turn);
    }
    if (yield) return true;
  }
}

}  // namespace stampmill
