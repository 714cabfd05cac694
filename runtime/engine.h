// Engine: one thread that owns a device's queues and the schedulers of all models placed there, and
// turns the loop: arrivals, cancellations, deadlines, a batch, a submission, results. It sleeps
// only on its waker: work finished, arrival, cancel, next deadline. Nothing else touches what it
// owns, so there are no locks.
//
//   server: pool.Acquire -> fill -> Submit                            (any thread)
//   engine: inbox -> Scheduler -> BatchBinding -> Queue -> ready ring
//   server: PopReady -> answer -> drop the handle                     (one reply thread)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/waker.h"
#include "devices/device.h"
#include "runtime/request.h"
#include "runtime/ring.h"
#include "runtime/statistics.h"

namespace stampmill {

class ServedModel;

struct EngineOptions {
  Device* device = nullptr;         // borrowed, outlives the engine
  RequestPool* requests = nullptr;  // likewise
  Waker* reply_waker = nullptr;     // likewise; woken when the ready ring has something
  Clock* clock = nullptr;           // likewise; RealClock() in the daemon
  TensorPool* pool = nullptr;       // likewise; if given, its free pages go back in idle times
};

class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Stops the thread. REQUIRES: no ServedModel of this engine lives, the ready ring is empty.
  ~Engine();

  // Any thread. Checks the request against its model (ServedModel::Prepare) and takes it. On
  // failure the caller still owns it: INVALID_ARGUMENT, or UNAVAILABLE while draining. A request
  // that was taken comes out of PopReady exactly once, whatever happens.
  absl::Status Submit(RequestHandle& request);
  // Any thread, any time; a tag whose request has ended is ignored. The request comes out with
  // CANCELLED at once when it waits, after its step when it runs.
  void Cancel(RequestTag tag);
  // One thread at a time: a finished request with its result, or null.
  RequestHandle PopReady();

  // Runs Turn on a thread of its own, until Stop.
  void Start();
  // From now on Submit refuses (UNAVAILABLE "server is shutting down"); what was taken goes on.
  void BeginDrain();
  // Requests taken and not yet put on the ready ring.
  int64_t in_flight() const { return in_flight_.load(std::memory_order_acquire); }
  // Drains too; ends what still waits with UNAVAILABLE and what runs once its step is over, then
  // joins the thread. Without a thread the caller turns until in_flight() is 0.
  void Stop();

  // One turn of the loop; the engine thread or, in a simulation, the only thread. True when
  // anything was done.
  bool Turn();
  // When Turn must be called next without a wake.
  int64_t NextDeadline() const;
  // CHECK-fails when what the engine counts does not agree. Engine thread, inbox empty.
  void CheckInvariants() const;

  Waker& waker() { return waker_; }
  // Woken when the last pin of one of its models goes.
  Waker& unpinned_waker() { return unpinned_waker_; }
  int32_t requests_max() const { return options_.requests->capacity(); }
  Device* device() const { return options_.device; }
  Clock& clock() const { return *options_.clock; }

 private:
  explicit Engine(const EngineOptions& options);
  void Run();
  int64_t Now() const { return options_.clock->NowNanos(); }

  // Parts of a turn; each is true when it did anything.
  bool DrainInbox();
  bool DropCancelled();
  bool AdvanceModels();
  bool AdvanceModel(ServedModel& model);
  bool DropExpired(ServedModel& model);
  bool StartStep(ServedModel& model);
  bool FinishStep(ServedModel& model);
  // Binds the running requests, or as many of them as can be bound together; puts the rest back.
  absl::Status BindBatch(ServedModel& model);
  // Whether the model must go on waiting for pool memory; and the beginning of that wait.
  bool WaitsForPool(ServedModel& model, int64_t now);
  bool BeginPoolWait(ServedModel& model, int64_t now);
  void PutBack(ServedModel& model, std::span<Request* const> requests);
  static void ClearResults(Request& request);

  // The step that was being started or ran failed: ends its request, or puts several back to run
  // once more by themselves, so that no request's result depends on its neighbours.
  void FailStep(ServedModel& model, const absl::Status& status);
  absl::Status OutcomeOf(const Request& request, int64_t now) const;
  void Finish(Request* request, absl::Status status, FailureReason reason);

  const EngineOptions options_;
  Waker waker_, unpinned_waker_;
  BoundedRing<Request*> inbox_;
  BoundedRing<Request*> ready_;
  std::atomic<int64_t> in_flight_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> cancel_requested_{false};
  std::thread thread_;

  // The engine thread's.
  ServedModel* active_ = nullptr;  // list of models with queued or running requests
  bool finished_any_ = false;      // in this turn: wake the reply thread once
};

}  // namespace stampmill
