#include "devices/testing/faulty_device.h"

#include <algorithm>
#include <deque>

#include "base/check.h"
#include "base/status_macros.h"
#include "devices/command_check.h"

namespace stampmill {

// The inner queue runs copies of the lists, in which each signal and each planned failure is a
// signal of the inner timeline. When that passes, the event it stands for happens on this timeline.
class FaultyQueue final : public Queue {
 public:
  FaultyQueue(const Device* inner_device, std::unique_ptr<Queue> inner, FaultPlan* plan,
              Waker* waker)
      : Queue(waker), inner_device_(inner_device), plan_(plan), inner_(std::move(inner)) {
    plan_->Add(this);
  }

  ~FaultyQueue() override {
    inner_.reset();  // waits: every event arrives
    plan_->Remove(this);
    Deliver(/*even_held=*/true);
    CHECK(events_.empty());
  }

  absl::Status Submit(std::span<const Command> commands) override {
    RETURN_IF_ERROR(status());
    ASSIGN_OR_RETURN(const CommandListFacts facts,
                     CheckCommands(commands, inner_device_, this, last_signal_));
    RETURN_IF_ERROR(plan_->Count(FaultyOperation::kSubmit));
    while (!lists_.empty() && inner_->completed() >= lists_.front().end) lists_.pop_front();
    const bool doomed = doomed_;
    List list;
    std::vector<std::unique_ptr<Event>> events;
    for (const Command& command : commands) Translate(command, &list.commands, &events);
    AddEvent({}, &list.commands, &events);  // so that a failure of the inner queue always shows
    list.end = next_inner_signal_ - 1;
    const std::vector<Command>& kept = list.commands;
    std::vector<Event*> added;
    {
      absl::MutexLock lock(&mutex_);
      for (std::unique_ptr<Event>& event : events) {
        added.push_back(event.get());
        events_.push_back(std::move(event));
      }
    }
    if (absl::Status status = inner_->Submit(kept); !status.ok()) {
      doomed_ = doomed;
      absl::MutexLock lock(&mutex_);
      events_.resize(events_.size() - added.size());
      return status;
    }
    last_signal_ = facts.last_signal;
    lists_.push_back(std::move(list));
    for (Event* event : added) Hang(event);
    return absl::OkStatus();
  }

  // Lets events happen that have arrived, in order.
  void Deliver(bool even_held) {
    absl::MutexLock lock(&mutex_);
    while (!events_.empty() && events_.front()->arrived && (even_held || !plan_->holding())) {
      const Event& event = *events_.front();
      if (!event.failure.ok()) timeline_.Fail(event.failure);
      if (event.value != 0) timeline_.Pass(event.value);
      events_.pop_front();
    }
  }

 private:
  struct Event final : Timeline::Waiter {
    void Release(const absl::Status& status) override { queue->Arrive(this, status); }

    FaultyQueue* queue = nullptr;
    uint64_t inner_value = 0;
    uint64_t value = 0;    // to pass; 0: none
    absl::Status failure;  // to fail with
    bool arrived = false;  // guarded by the queue's mutex
  };
  struct EventFacts {
    uint64_t value = 0;
    absl::Status failure;
  };
  struct List {
    std::vector<Command> commands;
    uint64_t end = 0;  // the inner signal behind which the inner queue needs it no more
  };

  void Translate(const Command& command, std::vector<Command>* list,
                 std::vector<std::unique_ptr<Event>>* events) {
    if (const auto* signal = std::get_if<SignalCommand>(&command)) {
      AddEvent({.value = signal->value, .failure = {}}, list, events);
      return;
    }
    if (doomed_) return;
    if (std::holds_alternative<LaunchCommand>(command)) {
      if (absl::Status fault = plan_->Count(FaultyOperation::kLaunch); !fault.ok()) {
        doomed_ = true;
        AddEvent({.value = 0, .failure = std::move(fault)}, list, events);
        return;
      }
    }
    list->push_back(command);
  }

  void AddEvent(EventFacts facts, std::vector<Command>* list,
                std::vector<std::unique_ptr<Event>>* events) {
    auto event = std::make_unique<Event>();
    event->queue = this;
    event->inner_value = next_inner_signal_++;
    event->value = facts.value;
    event->failure = std::move(facts.failure);
    list->push_back(SignalCommand{event->inner_value});
    events->push_back(std::move(event));
  }

  void Hang(Event* event) {
    // Read first: an event that has happened is gone.
    const uint64_t value = event->inner_value;
    if (inner_->timeline().AddWaiter(value, event)) return;
    Arrive(event, inner_->timeline().StatusAt(value));
  }

  void Arrive(Event* event, const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      event->arrived = true;
      if (event->failure.ok()) event->failure = status;
    }
    Deliver(/*even_held=*/false);
  }

  const Device* const inner_device_;
  FaultPlan* const plan_;
  std::unique_ptr<Queue> inner_;

  // Of the submitting thread.
  uint64_t last_signal_ = 0;
  uint64_t next_inner_signal_ = 1;
  bool doomed_ = false;  // a planned failure lies ahead: what follows it is not run
  std::deque<List> lists_;

  absl::Mutex mutex_;
  std::deque<std::unique_ptr<Event>> events_ ABSL_GUARDED_BY(mutex_);
};

void FaultPlan::FailNth(FaultyOperation operation, int64_t n, absl::Status status) {
  CHECK_GE(n, 1);
  CHECK(!status.ok());
  absl::MutexLock lock(&mutex_);
  faults_[{operation, calls_[static_cast<size_t>(operation)] + n}] = std::move(status);
}

void FaultPlan::HoldCompletions() { holding_.store(true, std::memory_order_seq_cst); }

void FaultPlan::ReleaseCompletions() {
  holding_.store(false, std::memory_order_seq_cst);
  absl::MutexLock lock(&mutex_);
  for (FaultyQueue* queue : queues_) queue->Deliver(/*even_held=*/false);
}

int64_t FaultPlan::calls(FaultyOperation operation) const {
  absl::MutexLock lock(&mutex_);
  return calls_[static_cast<size_t>(operation)];
}

absl::Status FaultPlan::Count(FaultyOperation operation) {
  absl::MutexLock lock(&mutex_);
  const auto fault = faults_.find({operation, ++calls_[static_cast<size_t>(operation)]});
  if (fault == faults_.end()) return absl::OkStatus();
  absl::Status status = std::move(fault->second);
  faults_.erase(fault);
  return status;
}

void FaultPlan::Add(FaultyQueue* queue) {
  absl::MutexLock lock(&mutex_);
  queues_.push_back(queue);
}

void FaultPlan::Remove(FaultyQueue* queue) {
  absl::MutexLock lock(&mutex_);
  queues_.erase(std::find(queues_.begin(), queues_.end(), queue));
}

FaultyDevice::FaultyDevice(std::unique_ptr<Device> inner, FaultPlan* plan)
    : inner_(std::move(inner)), plan_(plan) {}

FaultyDevice::~FaultyDevice() { CHECK_EQ(live_buffers(), 0) << "a buffer outlives its device"; }

absl::StatusOr<Buffer> FaultyDevice::Allocate(size_t size_bytes) {
  RETURN_IF_ERROR(plan_->Count(FaultyOperation::kAllocate));
  ASSIGN_OR_RETURN(Buffer buffer, inner_->Allocate(size_bytes));
  return Wrap(std::move(buffer));
}

absl::StatusOr<Buffer> FaultyDevice::Import(std::span<std::byte> host, bool writable) {
  RETURN_IF_ERROR(plan_->Count(FaultyOperation::kImport));
  ASSIGN_OR_RETURN(Buffer buffer, inner_->Import(host, writable));
  return Wrap(std::move(buffer));
}

absl::StatusOr<std::shared_ptr<const Executable>> FaultyDevice::Load(const Artifact& artifact) {
  RETURN_IF_ERROR(plan_->Count(FaultyOperation::kLoad));
  return inner_->Load(artifact);
}

absl::StatusOr<std::unique_ptr<Queue>> FaultyDevice::CreateQueue(Waker* waker) {
  RETURN_IF_ERROR(plan_->Count(FaultyOperation::kCreateQueue));
  ASSIGN_OR_RETURN(std::unique_ptr<Queue> queue, inner_->CreateQueue(nullptr));
  return std::make_unique<FaultyQueue>(inner_.get(), std::move(queue), plan_, waker);
}

int64_t FaultyDevice::live_buffers() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(buffers_.size());
}

Buffer FaultyDevice::Wrap(Buffer inner) {
  absl::MutexLock lock(&mutex_);
  const uint64_t token = next_token_++;
  Buffer outer(this, inner.address(), inner.size_bytes(), token);
  buffers_[token] = std::move(inner);
  return outer;
}

void FaultyDevice::Release(Buffer& buffer) {
  absl::MutexLock lock(&mutex_);
  CHECK_EQ(buffers_.erase(buffer.token()), 1u);
}

}  // namespace stampmill
