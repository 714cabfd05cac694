// Engine: the loop that owns a device's queues and the schedulers of all models placed there:
// arrivals, cancellations, deadlines, a batch, a submission, results. Its thread sleeps only on its
// waker: work finished, arrival, cancel, next deadline.
//
//   server: pool.Acquire -> fill -> Submit                            (any thread)
//   engine: inbox -> Scheduler -> BatchBinding -> Queue -> ready ring
//   server: PopReady -> answer -> drop the handle                     (one thread at a time)
//
// One thread at a time turns the loop, the one that has its RunToken, and nothing else touches what
// the loop owns, so there are no locks. A thread that submits may be that one: what is short is
// then over when Submit returns, without any thread having been woken.
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
#include "runtime/run_token.h"
#include "runtime/statistics.h"

namespace stampmill {

class ServedModel;

struct EngineOptions {
  Device* device = nullptr;         // borrowed, outlives the engine
  RequestPool* requests = nullptr;  // likewise
  Waker* reply_waker = nullptr;     // likewise; woken when the ready ring has something
  Clock* clock = nullptr;           // likewise; RealClock() in the daemon
  TensorPool* pool = nullptr;       // likewise; if given, its free pages go back in idle times
  // Submit makes a turn itself when no thread is in one. Its caller looks at PopReady afterwards:
  // the reply waker is not woken for what ends in such a turn.
  bool submitters_turn = false;
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

  // One turn of the loop, for a simulation: the only thread. True when anything was done.
  bool Turn();
  // When Turn must be called next without a wake.
  int64_t NextDeadline() const;
  // CHECK-fails when what the engine counts does not agree. As Turn, inbox empty.
  void CheckInvariants() const;

  Waker& waker() { return waker_; }
  // Woken when the last pin of one of its models goes.
  Waker& unpinned_waker() { return unpinned_waker_; }
  int32_t requests_max() const { return options_.requests->capacity(); }
  Device* device() const { return options_.device; }
  Clock& clock() const { return *options_.clock; }

 private:
  explicit Engine(const EngineOptions& options);
  // The engine thread's.
  void Run();
  void SleepUntilNeeded(uint32_t seen_epoch);
  // Turns on the thread of a Submit, unless another one is at it.
  void TurnHere();

  // The rest is done by who has the token.
  bool TurnOnce();
  // Ends a round of turns: what the sleeping engine thread must know.
  void EndTurns();
  int64_t Now() const { return options_.clock->NowNanos(); }

  // Parts of a turn; each is true when it did anything.
  bool DrainInbox();
  bool DropCancelled();
  bool AdvanceModels();
  bool AdvanceModel(ServedModel& model);
  bool DropExpired(ServedModel& model);
  bool StartStep(ServedModel& model);
  bool FinishStep(ServedModel& model);
  // The next piece of a step that runs in pieces, as long as anybody waits for its end; false when
  // it is over before it, with results that nobody gets.
  bool ContinueStep(ServedModel& model);
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

  RunToken token_;
  std::atomic<int64_t> next_deadline_{kNoDeadline};  // after the last turn
  std::atomic<int64_t> thread_wake_{0};              // until when the thread sleeps; 0: it is awake
  std::atomic<int64_t> rounds_{0};                   // of turns
  std::atomic<bool> idle_{true};                     // after the last turn
  std::atomic<bool> pages_returned_{false};          // since then

  // Of who has the token.
  ServedModel* active_ = nullptr;  // list of models with queued or running requests
  bool finished_any_ = false;      // in this turn: wake the reply thread once
};

}  // namespace stampmill
