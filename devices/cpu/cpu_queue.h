// CpuQueue: interprets command lists, one command after the other, on whichever thread has the
// queue.
//
// A queue with lists under way is had by exactly one thread at a time, or by a job that is out in
// the worker pool, or by a parked wait; it changes hands when the last chunk of a job ends (the
// thread that ran it goes on here), when a wait is released, or when a turn is over. An idle queue
// is had by nobody: the Submit that finds it so either runs short work itself or gives the queue to
// the pool.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "devices/cpu/worker_pool.h"
#include "devices/device.h"
#include "devices/limits.h"

namespace stampmill {

// Work predicted to take less runs inside Submit: waking a worker costs its caller
// some 5 us, and the result about as much again on its way back.
inline constexpr int64_t kCallerRunNanosMax = 50'000;

class CpuQueue final : public Queue, private Timeline::Waiter {
 public:
  // `device` and `pool` are borrowed from the device that outlives the queue.
  static absl::StatusOr<std::unique_ptr<CpuQueue>> Create(const Device* device, WorkerPool* pool,
                                                          Waker* waker);
  ~CpuQueue() override;

  absl::Status Submit(std::span<const Command> commands) override;

 private:
  using Turn = WorkerPool::Turn;
  enum class Step { kNext, kLeave };

  CpuQueue(const Device* device, WorkerPool* pool, Waker* waker);
  void Advance(Turn& turn);
  void FinishJob();
  bool Leave();
  Step Run(const Command& command, Turn& turn);
  Step RunLaunch(const LaunchCommand& launch, Turn& turn);
  Step RunCopy(const CopyCommand& copy, Turn& turn);
  Step RunFill(const FillCommand& fill, Turn& turn);
  Step RunWait(const WaitCommand& wait);
  Step RunJob(PoolJob job, int64_t nanos_estimate, Turn& turn);
  void Check(int64_t result);
  void Fail(const absl::Status& status);
  void Release(const absl::Status& status) override;  // Timeline::Waiter

  const Device* const device_;
  WorkerPool* const pool_;
  WorkerPool::Stream* stream_ = nullptr;

  // Lists submitted and not yet run to the end, and kClosing. Who takes it from 0 to 1 has the
  // queue.
  std::atomic<uint32_t> pending_{0};
  // Of the submitting thread.
  uint32_t lists_in_ = 0;
  uint64_t last_signal_ = 0;
  Scratch caller_scratch_;

  // Of the thread that has the queue.
  std::array<std::span<const Command>, kQueueListsMax> lists_;  // a ring; slots behind pending_
  uint32_t lists_out_ = 0;
  size_t position_ = 0;  // in the first list
  bool job_out_ = false;
  bool parked_ = false;
  bool failed_ = false;
  absl::Status wait_status_;
  const LaunchCommand* launch_ = nullptr;  // whose job is running, for messages; null: copy or fill
  std::array<void*, kLaunchBuffersMax> buffers_;
  std::array<int64_t, 3> dims_;  // of copies and fills
};

}  // namespace stampmill
