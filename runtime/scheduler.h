// Scheduler: which requests of one model run next. A pure state machine: given arrivals, times and
// cancellations it chooses; the same calls give the same batches. It knows no devices and no
// threads; the engine thread owns it.
//
// A one-shot request is a sequence of one token: a step advances whole requests until the budget of
// rows is spent. Order: priority level, in a level those within their queue timeout, then the
// delayed ones, in each by arrival. The first in order always runs in the next step, so nobody
// starves within a level; requests whose dims other than the batch differ from its are passed over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model_config.h"
#include "runtime/request.h"

namespace stampmill {

// A list through Request::next and previous. Borrows its members.
struct RequestList {
  Request* head = nullptr;
  Request* tail = nullptr;
  int64_t size = 0;

  void PushBack(Request* request);
  // Before the first that arrived later.
  void InsertByArrival(Request* request);
  void Remove(Request* request);
};

class Scheduler {
 public:
  // `requests_max`: requests of one step at most, also for a huge max_batch_size.
  Scheduler(const BatchingPolicy& policy, int32_t requests_max);

  // Takes `request` into its level's queue and sets its queue_deadline_nanos. False: the level is
  // full (max_queue_size), nothing is taken.
  bool Enqueue(Request* request, int64_t now);
  // Takes out a request that is waiting.
  void Remove(Request* request);

  // Takes back requests that FormBatch gave out, to the places that they had, but for their limits
  // on queue size.
  void PutBack(std::span<Request* const> requests);

  // The next request that waited too long at `now`, taken out; null when there is none. Those of
  // levels with the policy DELAY move behind instead. Looks only when a deadline has come.
  Request* TakeExpired(int64_t now);
  // The next cancelled request, taken out; null when there is none.
  Request* TakeCancelled();
  // Any waiting request, taken out; null when there is none.
  Request* TakeAny();

  // The last step, of so many requests, has ended after so many nanoseconds. Its clients are likely
  // to send their next requests at once: FormBatch then waits for them a little, as long as they
  // keep coming, since a batch of the first few would make all others wait for it.
  void StepEnded(int64_t requests, int64_t nanos, int64_t now);

  // The requests to run now, in order, taken out; valid until the next call. Empty: nothing waits,
  // or waiting for more is right until NextDeadline.
  std::span<Request* const> FormBatch(int64_t now);

  // When FormBatch or TakeExpired must be called again without a new arrival; kNoDeadline: never.
  int64_t NextDeadline() const;

  size_t requests_max() const { return requests_max_; }  // of one step
  bool empty() const { return waiting_ == 0; }
  int64_t waiting() const { return waiting_; }
  // CHECK-fails when lists, counts and orders do not agree.
  void CheckInvariants() const;

 private:
  struct Level {
    QueuePolicy policy;
    RequestList on_time, delayed;
  };
  struct Candidates {
    int64_t rows = 0;
    size_t preferred_count = 0;  // requests that make up the largest preferred size; 0: none do
    int64_t oldest_start_nanos = 0;
    bool can_grow = true;
  };
  Candidates CollectCandidates();
  // Until when to wait for those that are expected back; `now`: no longer.
  int64_t ReturnDeadline(int64_t now) const;
  RequestList& ListOf(const Request& request);
  static bool Compatible(const Request& a, const Request& b);
  void NoteDeadline(const Request& request);

  const BatchingPolicy policy_;
  const size_t requests_max_;
  std::vector<Level> levels_;
  std::vector<Request*> batch_;
  int64_t waiting_ = 0;
  uint64_t arrivals_ = 0;
  int64_t next_expiry_nanos_ = kNoDeadline;  // no queued deadline is earlier
  int64_t next_batch_nanos_ = kNoDeadline;   // end of the delay that FormBatch chose to wait for
  // After a step and until the next batch.
  int64_t expected_ = 0;  // requests, if all that the step had come back
  int64_t step_end_nanos_ = 0;
  int64_t step_nanos_ = 0;
  int64_t last_arrival_nanos_ = 0;
  bool waits_for_returns_ = false;
  int32_t steps_without_wait_ = 0;  // still to come, after a wait in vain
};

}  // namespace stampmill
