// A turn looks at everything once and never waits. Models with work form a list; each has one step
// in flight, so that a step's memory is its model's own.
#include "runtime/engine.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "runtime/served_model.h"

namespace stampmill {
namespace {

int64_t UnixMilliseconds() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

// Without a request for so long the engine is idle.
constexpr int64_t kIdleNanos = 1'000'000'000;

// So many turns a thread makes in its Submit, mostly for others; what is left is the engine
// thread's.
constexpr int kTurnsHereMax = 16;

absl::Status ShuttingDown() { return absl::UnavailableError("server is shutting down"); }

}  // namespace

Engine::Engine(const EngineOptions& options)
    : options_(options),
      inbox_(static_cast<size_t>(options.requests->capacity())),
      ready_(static_cast<size_t>(options.requests->capacity())) {}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  if (options.device == nullptr || options.requests == nullptr || options.reply_waker == nullptr ||
      options.clock == nullptr) {
    return absl::InvalidArgumentError("engine: device, requests, reply waker and clock are needed");
  }
  return std::unique_ptr<Engine>(new Engine(options));
}

Engine::~Engine() {
  Stop();
  CHECK_EQ(in_flight(), 0);
  CHECK(active_ == nullptr);
}

absl::Status Engine::Submit(RequestHandle& request) {
  CHECK(request != nullptr && request->model.valid());
  RETURN_IF_ERROR(request->model->Prepare(*request));
  // Counted before the look at draining_: Stop sees either the request or its refusal.
  in_flight_.fetch_add(1, std::memory_order_seq_cst);
  if (draining_.load(std::memory_order_seq_cst)) {
    in_flight_.fetch_sub(1, std::memory_order_seq_cst);
    waker_.Wake();
    return ShuttingDown();
  }
  request->times.queue_start = Now();
  request->model->statistics().AddPending(1);
  // Has a place for every slot of the pool.
  inbox_.PushCertainly(request.release());
  if (options_.submitters_turn) {
    TurnHere();
  } else {
    waker_.Wake();
  }
  return absl::OkStatus();
}

void Engine::TurnHere() {
  if (!token_.Ask()) return;
  int turns = 0;
  do {
    token_.BeginRound();
    while (TurnOnce()) {
      finished_any_ = false;
      if (++turns < kTurnsHereMax) continue;
      token_.HandOver();
      waker_.Wake();
      return;
    }
    EndTurns();
  } while (!token_.EndRound());
  // The engine thread may have found the token taken when it came to see whether all is over.
  if (stopping_.load(std::memory_order_seq_cst)) waker_.Wake();
}

void Engine::Cancel(RequestTag tag) {
  Request* const request = options_.requests->slot(tag.slot);
  if (request == nullptr) return;
  request->Cancel(tag.generation);
  cancel_requested_.store(true, std::memory_order_release);
  waker_.Wake();
}

RequestHandle Engine::PopReady() {
  const std::optional<Request*> request = ready_.Pop();
  return options_.requests->Adopt(request.value_or(nullptr));
}

void Engine::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Engine::BeginDrain() {
  draining_.store(true, std::memory_order_seq_cst);
  waker_.Wake();
}

void Engine::Stop() {
  draining_.store(true, std::memory_order_seq_cst);
  stopping_.store(true, std::memory_order_seq_cst);
  waker_.Wake();
  if (thread_.joinable()) thread_.join();
}

void Engine::Run() {
  for (;;) {
    const uint32_t seen = waker_.epoch();
    if (token_.TakeOver() || token_.Ask()) {
      do {
        token_.BeginRound();
        while (Turn()) {
        }
        EndTurns();
        // The token is kept: no turn comes after the last.
        if (stopping_.load(std::memory_order_seq_cst) &&
            in_flight_.load(std::memory_order_seq_cst) == 0) {
          return;
        }
      } while (!token_.EndRound());
    }
    SleepUntilNeeded(seen);
  }
}

void Engine::EndTurns() {
  const int64_t next = NextDeadline();
  idle_.store(active_ == nullptr, std::memory_order_relaxed);
  rounds_.fetch_add(1, std::memory_order_relaxed);
  next_deadline_.store(next, std::memory_order_seq_cst);
  // Sequentially consistent with the two in SleepUntilNeeded: one of the threads sees the other.
  const bool too_late = next < thread_wake_.load(std::memory_order_seq_cst);
  const bool no_longer_idle = pages_returned_.load(std::memory_order_relaxed) &&
                              pages_returned_.exchange(false, std::memory_order_relaxed);
  if (too_late || no_longer_idle) waker_.Wake();
}

void Engine::SleepUntilNeeded(uint32_t seen_epoch) {
  int64_t wake = next_deadline_.load(std::memory_order_seq_cst);
  // After a while without any request the memory of past ones goes back to the system.
  const int64_t rounds = rounds_.load(std::memory_order_relaxed);
  const bool may_return_pages =
      options_.pool != nullptr && !pages_returned_.load(std::memory_order_relaxed);
  if (may_return_pages) wake = std::min(wake, Now() + kIdleNanos);
  thread_wake_.store(wake, std::memory_order_seq_cst);
  bool woken = true;
  if (next_deadline_.load(std::memory_order_seq_cst) >= wake) {
    woken = options_.clock->WaitUntil(waker_, seen_epoch, wake);
  }
  thread_wake_.store(0, std::memory_order_relaxed);
  if (woken || !may_return_pages || !idle_.load(std::memory_order_relaxed) ||
      rounds_.load(std::memory_order_relaxed) != rounds) {
    return;
  }
  options_.pool->ReturnFreePages();
  pages_returned_.store(true, std::memory_order_relaxed);
}

bool Engine::Turn() {
  const bool did = TurnOnce();
  if (std::exchange(finished_any_, false)) options_.reply_waker->Wake();
  return did;
}

bool Engine::TurnOnce() {
  bool did = DrainInbox();
  did = DropCancelled() || did;
  did = AdvanceModels() || did;
  return did;
}

bool Engine::DrainInbox() {
  bool did = false;
  while (const std::optional<Request*> popped = inbox_.Pop()) {
    did = true;
    Request* const request = *popped;
    ServedModel& model = *request->model;
    if (!model.engine_pin_.valid()) {
      model.engine_pin_ = model.Pin();
      model.next_active_ = active_;
      active_ = &model;
    }
    if (request->cancelled()) {
      model.statistics().AddPending(-1);
      Finish(request, absl::CancelledError("request was cancelled"), FailureReason::kCanceled);
    } else if (!model.scheduler_.Enqueue(request, request->times.queue_start)) {
      model.statistics().AddPending(-1);
      Finish(request, absl::UnavailableError("Exceeds maximum queue size"),
             FailureReason::kRejected);
    }
  }
  return did;
}

bool Engine::DropCancelled() {
  // Cleared before looking: a cancel that comes meanwhile sets it again.
  if (!cancel_requested_.exchange(false, std::memory_order_acq_rel)) return false;
  for (ServedModel* model = active_; model != nullptr; model = model->next_active_) {
    while (Request* const request = model->scheduler_.TakeCancelled()) {
      model->statistics().AddPending(-1);
      Finish(request, absl::CancelledError("request was cancelled"), FailureReason::kCanceled);
    }
  }
  return true;
}

bool Engine::AdvanceModels() {
  bool did = false;
  ServedModel** link = &active_;
  while (ServedModel* const model = *link) {
    did = AdvanceModel(*model) || did;
    if (!model->running_.empty() || !model->scheduler_.empty()) {
      link = &model->next_active_;
      continue;
    }
    *link = std::exchange(model->next_active_, nullptr);
    // The last touch: once the pin is gone the model may be too.
    ModelPin last = std::move(model->engine_pin_);
  }
  return did;
}

bool Engine::AdvanceModel(ServedModel& model) {
  bool did = FinishStep(model);
  did = DropExpired(model) || did;
  if (model.running_.empty() && StartStep(model)) {
    did = true;
    FinishStep(model);  // short work ran inside Submit
  }
  return did;
}

bool Engine::DropExpired(ServedModel& model) {
  bool did = false;
  const int64_t now = Now();
  const bool stopping = stopping_.load(std::memory_order_relaxed);
  while (Request* const request =
             stopping ? model.scheduler_.TakeAny() : model.scheduler_.TakeExpired(now)) {
    did = true;
    model.statistics().AddPending(-1);
    if (stopping) {
      Finish(request, ShuttingDown(), FailureReason::kRejected);
    } else if (request->deadline_nanos <= now) {
      Finish(request, absl::DeadlineExceededError("Deadline Exceeded"), FailureReason::kOther);
    } else {
      Finish(request, absl::UnavailableError("Request timeout expired"), FailureReason::kRejected);
    }
  }
  return did;
}

bool Engine::StartStep(ServedModel& model) {
  const int64_t now = Now();
  if (WaitsForPool(model, now)) return false;
  model.pool_releases_seen_ = model.options_.pool->releases();
  const std::span<Request* const> batch = model.scheduler_.FormBatch(now);
  if (batch.empty()) return false;
  model.running_.assign(batch.begin(), batch.end());
  model.statistics().AddPending(-static_cast<int64_t>(batch.size()));
  model.step_times_ = {};
  model.step_times_.compute_start = now;
  absl::Status status = model.EnsureQueue();
  if (status.ok()) status = BindBatch(model);
  if (!status.ok() && model.binding_->pool_is_full() && BeginPoolWait(model, now)) return true;
  model.pool_wait_end_nanos_ = 0;
  if (!status.ok()) {
    FailStep(model, status);
    return true;
  }
  status = model.step_->Submit(*model.queue_, ++model.signal_);
  model.step_times_.compute_input_end = Now();
  if (!status.ok()) {
    // Part of the step may have been taken: its memory is free only when the queue is.
    model.queue_.reset();
    FailStep(model, status);
  }
  return true;
}

absl::Status Engine::BindBatch(ServedModel& model) {
  for (;;) {
    for (Request* request : model.running_) {
      request->times.compute_start = model.step_times_.compute_start;
    }
    const absl::Status status = model.binding_->Bind(model.running_);
    if (status.ok() || model.running_.size() == 1) return status;
    // Too large together, mostly for the memory there is: the first half now, the others later.
    const size_t kept = model.running_.size() / 2;
    PutBack(model, std::span(model.running_).subspan(kept));
    model.running_.resize(kept);
    for (Request* request : model.running_) request->status = absl::OkStatus();
  }
}

bool Engine::WaitsForPool(ServedModel& model, int64_t now) {
  if (model.scheduler_.empty()) model.pool_wait_end_nanos_ = 0;
  if (model.pool_wait_end_nanos_ == 0) return false;
  // Asked for first and looked at then: a release in between is seen by one of the two.
  model.options_.pool->WakeOnRelease(&waker_);
  return model.options_.pool->releases() == model.pool_releases_seen_ &&
         now < model.pool_wait_end_nanos_;
}

bool Engine::BeginPoolWait(ServedModel& model, int64_t now) {
  const uint64_t releases = model.pool_releases_seen_;
  if (model.pool_wait_end_nanos_ == 0) {
    // Another has waited in vain, and nothing came back since: those behind it do not wait again.
    if (model.pool_starved_at_ == releases) return false;
    model.pool_wait_end_nanos_ = now + kPoolWaitNanosMax;
  }
  if (now >= model.pool_wait_end_nanos_) {
    model.pool_starved_at_ = releases;
    return false;
  }
  PutBack(model, model.running_);
  model.running_.clear();
  return true;
}

void Engine::PutBack(ServedModel& model, std::span<Request* const> requests) {
  for (Request* request : requests) {
    request->status = absl::OkStatus();
    ClearResults(*request);
  }
  model.scheduler_.PutBack(requests);
  model.statistics().AddPending(static_cast<int64_t>(requests.size()));
  // Cancels that came while they ran were not for the queue.
  cancel_requested_.store(true, std::memory_order_release);
}

void Engine::ClearResults(Request& request) {
  for (OutputTensor& output : request.outputs) {
    output.lease = Lease();
    output.bytes = {};
  }
}

bool Engine::FinishStep(ServedModel& model) {
  if (model.running_.empty() || model.queue_->completed() < model.signal_) return false;
  model.step_times_.compute_output_start = Now();
  if (const absl::Status status = model.queue_->status(); !status.ok()) {
    model.queue_.reset();
    FailStep(model, status);
    return true;
  }
  if (model.step_->unfinished() && ContinueStep(model)) return true;
  int64_t rows = 0;
  const int64_t now = Now();
  for (Request* request : model.running_) {
    rows += request->rows;
    request->times.compute_input_end = model.step_times_.compute_input_end;
    request->times.compute_output_start = model.step_times_.compute_output_start;
  }
  model.step_times_.end = now;
  model.statistics().AddExecution(model.step_times_, rows);
  model.statistics().AddBytesCopied(model.step_->bytes_copied());
  for (Request* request : model.running_) {
    absl::Status status = OutcomeOf(*request, now);
    if (status.ok()) status = model.binding_->FinishOutputs(*request);
    const FailureReason reason =
        absl::IsCancelled(status) ? FailureReason::kCanceled : FailureReason::kOther;
    if (status.ok()) model.ReshapeOutputs(*request);
    Finish(request, std::move(status), reason);
  }
  model.scheduler_.StepEnded(static_cast<int64_t>(model.running_.size()),
                             now - model.step_times_.compute_start, now);
  model.running_.clear();
  return true;
}

bool Engine::ContinueStep(ServedModel& model) {
  const int64_t now = Now();
  const bool wanted = std::ranges::any_of(
      model.running_, [&](const Request* request) { return OutcomeOf(*request, now).ok(); });
  if (!wanted || stopping_.load(std::memory_order_relaxed)) {
    model.step_->Abandon();
    for (Request* request : model.running_) {
      if (request->status.ok() && OutcomeOf(*request, now).ok()) request->status = ShuttingDown();
    }
    return false;
  }
  if (absl::Status status = model.step_->Continue(*model.queue_, ++model.signal_); !status.ok()) {
    model.queue_.reset();
    FailStep(model, status);
  }
  return true;
}

absl::Status Engine::OutcomeOf(const Request& request, int64_t now) const {
  if (!request.status.ok()) return request.status;
  if (request.cancelled()) return absl::CancelledError("request was cancelled");
  if (request.deadline_nanos <= now) return absl::DeadlineExceededError("Deadline Exceeded");
  for (const InputTensor& input : request.inputs) RETURN_IF_ERROR(input.lease.CheckIntact());
  for (const OutputTensor& output : request.outputs) RETURN_IF_ERROR(output.lease.CheckIntact());
  return absl::OkStatus();
}

void Engine::FailStep(ServedModel& model, const absl::Status& status) {
  if (model.running_.size() > 1) {
    for (Request* request : model.running_) {
      request->alone = true;
      request->queue_deadline_nanos = kNoDeadline;  // it has had its turn
    }
    PutBack(model, model.running_);
  } else {
    for (Request* request : model.running_) {
      Finish(request, request->status.ok() ? status : request->status, FailureReason::kBackend);
    }
  }
  model.running_.clear();
}

void Engine::Finish(Request* request, absl::Status status, FailureReason reason) {
  ModelStatistics& statistics = request->model->statistics();
  request->times.end = Now();
  if (request->times.arrival == 0) request->times.arrival = request->times.queue_start;
  if (status.ok()) {
    statistics.AddSuccess(request->times, request->rows, UnixMilliseconds());
  } else {
    statistics.AddFailure(request->times, reason);
    ClearResults(*request);
  }
  request->status = std::move(status);
  ready_.PushCertainly(request);
  finished_any_ = true;
  in_flight_.fetch_sub(1, std::memory_order_seq_cst);
}

int64_t Engine::NextDeadline() const {
  int64_t next = kNoDeadline;
  for (const ServedModel* model = active_; model != nullptr; model = model->next_active_) {
    next = std::min(next, model->scheduler_.NextDeadline());
    if (model->pool_wait_end_nanos_ > 0 && !model->scheduler_.empty()) {
      next = std::min(next, model->pool_wait_end_nanos_);
    }
  }
  return next;
}

void Engine::CheckInvariants() const {
  int64_t requests = 0;
  for (const ServedModel* model = active_; model != nullptr; model = model->next_active_) {
    model->scheduler_.CheckInvariants();
    CHECK(model->engine_pin_.valid());
    CHECK(!model->running_.empty() || !model->scheduler_.empty());
    requests += model->scheduler_.waiting() + static_cast<int64_t>(model->running_.size());
  }
  CHECK_EQ(requests, in_flight());
}

}  // namespace stampmill
