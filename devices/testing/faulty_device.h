// FaultyDevice: any device, with failures and delays by plan, for tests of what stands on devices.
//
// It owns a real device and passes everything on. A FaultPlan, which the test keeps, says which
// call fails with what, and may hold back completions: the work is done then, but nobody hears of
// it until the plan lets go. With an empty plan it behaves as the device in it (it passes the
// conformance suite).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "devices/device.h"

namespace stampmill {

// kSubmit: the call fails and nothing is taken. kLaunch: counts launches over all queues, the queue
// fails when it comes to that launch.
enum class FaultyOperation { kAllocate, kImport, kLoad, kCreateQueue, kSubmit, kLaunch };
inline constexpr int32_t kFaultyOperations = 6;

// Thread-safe. Outlives the devices that follow it.
class FaultPlan {
 public:
  // The n-th call from now on (1: the next) fails with `status`, once. Several may be planned.
  // REQUIRES: n >= 1, status not OK.
  void FailNth(FaultyOperation operation, int64_t n, absl::Status status);

  // From here on no signal passes and no failure of a queue shows, until ReleaseCompletions.
  void HoldCompletions();
  // What was held back passes now, on this thread and in order.
  void ReleaseCompletions();

  // Calls so far, failed ones included.
  int64_t calls(FaultyOperation operation) const;

 private:
  friend class FaultyDevice;
  friend class FaultyQueue;
  absl::Status Count(FaultyOperation operation);
  bool holding() const { return holding_.load(std::memory_order_seq_cst); }
  void Add(class FaultyQueue* queue);
  void Remove(class FaultyQueue* queue);

  std::atomic<bool> holding_{false};
  mutable absl::Mutex mutex_;
  std::array<int64_t, kFaultyOperations> calls_ ABSL_GUARDED_BY(mutex_) = {};
  std::map<std::pair<FaultyOperation, int64_t>, absl::Status> faults_ ABSL_GUARDED_BY(mutex_);
  std::vector<class FaultyQueue*> queues_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe.
class FaultyDevice final : public Device {
 public:
  // `plan` is the test's.
  FaultyDevice(std::unique_ptr<Device> inner, FaultPlan* plan);
  // REQUIRES: all buffers and queues are gone.
  ~FaultyDevice() override;

  const DeviceInfo& info() const override { return inner_->info(); }
  absl::StatusOr<Buffer> Allocate(size_t size_bytes) override;
  absl::StatusOr<Buffer> Import(std::span<std::byte> host, bool writable) override;
  // The inner device's executables: their device() is not this one.
  absl::StatusOr<std::shared_ptr<const Executable>> Load(const Artifact& artifact) override;
  absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(Waker* waker) override;

  // Buffers that have not been released: what a test of leaks asks.
  int64_t live_buffers() const;

 private:
  Buffer Wrap(Buffer inner);
  void Release(Buffer& buffer) override;

  const std::unique_ptr<Device> inner_;
  FaultPlan* const plan_;
  mutable absl::Mutex mutex_;
  uint64_t next_token_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Buffer> buffers_ ABSL_GUARDED_BY(mutex_);  // the inner ones, by our tokens
};

}  // namespace stampmill
