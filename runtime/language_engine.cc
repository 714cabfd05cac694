// One step is in flight at a time. While it runs the thread sleeps, or takes what arrives:
// arrivals, cancels and deadlines change who is in the next step, and what leaves rests its blocks
// until this one has ended.
#include "runtime/language_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/sample.h"
#include "runtime/prompt_lookup.h"

namespace stampmill {
namespace {

// How long a text waits for its reader.
constexpr int64_t kHeldUpNanosMax = 60'000'000'000;
// Steps of at least so many tokens say what a token costs; until there was one, that many are
// taken.
constexpr int64_t kMeasuredTokensMin = 64;
// What rules a token out.
constexpr float kNever = -1e30F;
// A text whose guesses do not hold makes none for up to two to the power of this steps.
constexpr int32_t kMissesMax = 5;

// The row of the results that the first new token comes from.
size_t FirstRow(const StepEntry& entry) {
  return static_cast<size_t>(entry.outputs_begin + entry.outputs - 1 - entry.drafts);
}

absl::Status ShuttingDown() { return absl::UnavailableError("server is shutting down"); }

}  // namespace

LanguageEngine::LanguageEngine(LanguageEngineOptions options)
    : options_(std::move(options)),
      inbox_(static_cast<size_t>(options_.generations->capacity())),
      news_(static_cast<size_t>(options_.generations->capacity())),
      statistics_(options_.context_tokens),
      blocks_(options_.kv_blocks),
      scheduler_({.sequences_max = options_.sequences_max,
                  .waiting_max = options_.waiting_max,
                  .levels = 2 * kPriorityMax + 1,
                  .step_tokens_max =
                      std::max(options_.step_tokens_max, options_.sequences_max + kBlockTokens),
                  .sequence_tokens_max = options_.context_tokens},
                 &blocks_) {}

absl::StatusOr<std::unique_ptr<LanguageEngine>> LanguageEngine::Create(
    LanguageEngineOptions options) {
  if (options.model == nullptr || options.generations == nullptr || options.news_waker == nullptr ||
      options.clock == nullptr || !options.token_bytes || options.context_tokens < 1 ||
      options.kv_blocks < 1 || options.sequences_max < 1) {
    return absl::InvalidArgumentError(
        "language engine: model, generations, waker, clock, vocabulary and limits are needed");
  }
  auto engine = std::unique_ptr<LanguageEngine>(new LanguageEngine(std::move(options)));
  const LanguageEngineOptions& o = engine->options_;
  ASSIGN_OR_RETURN(engine->step_, LanguageStep::Create(o.model.get(), o.kv_blocks));
  ASSIGN_OR_RETURN(engine->queue_, o.model->device()->CreateQueue(&engine->waker_));
  return engine;
}

LanguageEngine::~LanguageEngine() {
  Stop();
  CHECK_EQ(in_flight(), 0);
  queue_.reset();  // waits for its work, so it goes before what that uses
}

absl::Status LanguageEngine::Submit(GenerationHandle& generation) {
  CHECK(generation != nullptr);
  const Sequence& sequence = generation->sequence();
  const int32_t needed = SequenceScheduler::BlocksNeeded(sequence);
  if (needed > options_.kv_blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt and answer: got ", sequence.tokens_max, " tokens, limit ",
                     int64_t{options_.kv_blocks} * kBlockTokens, " of the cache"));
  }
  // Counted before the look at draining_: Stop sees either the text or its refusal.
  in_flight_.fetch_add(1, std::memory_order_seq_cst);
  if (draining_.load(std::memory_order_seq_cst)) {
    in_flight_.fetch_sub(1, std::memory_order_seq_cst);
    waker_.Wake();
    return ShuttingDown();
  }
  generation->times.queued = Now();
  generation->sequence_.drafts.reserve(static_cast<size_t>(options_.drafts_max));
  inbox_.PushCertainly(generation.release());
  waker_.Wake();
  return absl::OkStatus();
}

void LanguageEngine::Cancel(GenerationTag tag) {
  Generation* const generation = options_.generations->slot(tag.slot);
  if (generation == nullptr) return;
  generation->cancelled_use_.store(tag.use, std::memory_order_release);
  look_for_cancels_.store(true, std::memory_order_release);
  waker_.Wake();
}

LanguageEngine::News LanguageEngine::PopNews() {
  const std::optional<Generation*> popped = news_.Pop();
  if (!popped.has_value()) return {};
  Generation* const generation = *popped;
  // Cleared before its tokens are taken: what is put meanwhile is announced again. Once it is over
  // the engine has touched it for the last time.
  const uint32_t state =
      generation->state_.fetch_and(~Generation::kAnnounced, std::memory_order_acq_rel);
  News news = {generation, {}};
  if ((state & Generation::kOver) != 0) news.over = options_.generations->Adopt(generation);
  return news;
}

void LanguageEngine::CaughtUp(Generation& generation) {
  if (!generation.held_up_.exchange(false, std::memory_order_acq_rel)) return;
  look_for_room_.store(true, std::memory_order_release);
  waker_.Wake();
}

void LanguageEngine::Start() {
  thread_ = std::thread([this] { Run(); });
}

void LanguageEngine::BeginDrain() {
  draining_.store(true, std::memory_order_seq_cst);
  waker_.Wake();
}

void LanguageEngine::Stop() {
  draining_.store(true, std::memory_order_seq_cst);
  stopping_.store(true, std::memory_order_seq_cst);
  waker_.Wake();
  if (thread_.joinable()) thread_.join();
}

void LanguageEngine::Run() {
  for (;;) {
    const uint32_t seen = waker_.epoch();
    while (Turn()) {
    }
    if (stopping_.load(std::memory_order_seq_cst) &&
        in_flight_.load(std::memory_order_seq_cst) == 0) {
      return;
    }
    options_.clock->WaitUntil(waker_, seen, NextDeadline());
  }
}

bool LanguageEngine::Turn() {
  bool did = DrainInbox();
  did = FinishStep() || did;
  did = DropCancelled() || did;
  did = DropExpired() || did;
  did = ResumeHeldUp() || did;
  did = StartStep() || did;
  if (did) PublishCounters();
  if (std::exchange(told_any_, false)) options_.news_waker->Wake();
  return did;
}

int64_t LanguageEngine::NextDeadline() const {
  int64_t next = scheduler_.NextDeadline();
  for (const Generation* g = all_; g != nullptr; g = g->next_) {
    if (g->sequence_.paused) next = std::min(next, g->held_up_since_ + kHeldUpNanosMax);
  }
  return next;
}

bool LanguageEngine::DrainInbox() {
  bool did = false;
  while (const std::optional<Generation*> popped = inbox_.Pop()) {
    did = true;
    Generation& generation = **popped;
    Link(generation);
    if (generation.cancelled()) {
      Finish(generation, absl::CancelledError("request was cancelled"), FinishReason::kNone);
      continue;
    }
    const absl::Status status = scheduler_.Enqueue(&generation.sequence_);
    if (status.ok()) continue;
    // Too many wait: the client may come again.
    Finish(generation,
           absl::IsResourceExhausted(status) ? absl::UnavailableError(status.message()) : status,
           FinishReason::kNone);
  }
  return did;
}

bool LanguageEngine::DropCancelled() {
  const bool stopping = stopping_.load(std::memory_order_relaxed);
  // Cleared before looking: a cancel that comes meanwhile sets it again.
  if (!look_for_cancels_.exchange(false, std::memory_order_acq_rel) && !stopping) return false;
  bool did = false;
  for (Generation* g = all_; g != nullptr;) {
    Generation& generation = *std::exchange(g, g->next_);
    if (!stopping && !generation.cancelled()) continue;
    did = true;
    scheduler_.Remove(&generation.sequence_);
    Finish(generation, stopping ? ShuttingDown() : absl::CancelledError("request was cancelled"),
           FinishReason::kNone);
  }
  return did;
}

bool LanguageEngine::DropExpired() {
  bool did = false;
  const int64_t now = Now();
  while (Sequence* const sequence = scheduler_.TakeExpired(now)) {
    did = true;
    auto& generation = *static_cast<Generation*>(sequence->context);
    const bool over = sequence->deadline_nanos <= now;
    Finish(generation,
           over ? absl::DeadlineExceededError("Deadline Exceeded")
                : absl::UnavailableError("Request timeout expired"),
           FinishReason::kNone);
  }
  return did;
}

bool LanguageEngine::ResumeHeldUp() {
  const bool look = look_for_room_.exchange(false, std::memory_order_acq_rel);
  bool did = false;
  const int64_t now = Now();
  for (Generation* g = all_; g != nullptr;) {
    Generation& generation = *std::exchange(g, g->next_);
    if (!generation.sequence_.paused) continue;
    // Said before looking: a reader that takes tokens meanwhile sees that it is waited for.
    if (look) generation.held_up_.store(true, std::memory_order_seq_cst);
    if (look && generation.HasRoom()) {
      generation.held_up_.store(false, std::memory_order_relaxed);
      generation.sequence_.paused = false;
      did = true;
    } else if (now - generation.held_up_since_ >= kHeldUpNanosMax) {
      scheduler_.Remove(&generation.sequence_);
      Finish(generation,
             absl::UnavailableError(absl::StrCat("client: has taken no tokens for ",
                                                 kHeldUpNanosMax / 1'000'000'000, " seconds")),
             FinishReason::kNone);
      did = true;
    }
  }
  return did;
}

// --- Steps ---

bool LanguageEngine::StartStep() {
  if (batch_ != nullptr) return false;
  int64_t tokens = options_.step_tokens_max;
  if (options_.step_nanos_max > 0) {
    const double limit = nanos_of_token_ == 0
                             ? static_cast<double>(kMeasuredTokensMin)
                             : static_cast<double>(options_.step_nanos_max) / nanos_of_token_;
    tokens = std::min(tokens, static_cast<int64_t>(std::clamp(limit, 1.0, 1e6)));
  }
  Propose();
  SequenceBatch* const batch = scheduler_.FormBatch(tokens);
  if (batch == nullptr) return false;
  batch_ = batch;
  step_begin_ = Now();
  absl::Status status;
  if (queue_ == nullptr) {
    absl::StatusOr<std::unique_ptr<Queue>> queue = options_.model->device()->CreateQueue(&waker_);
    status = queue.status();
    if (queue.ok()) queue_ = *std::move(queue);
    signal_ = 0;
  }
  if (status.ok()) status = BindStep(*batch);
  if (status.ok()) status = step_->Submit(*queue_, ++signal_);
  if (!status.ok()) {
    // Part of the step may have been taken: its memory is free only when the queue is.
    queue_.reset();
    FailStep(status);
  }
  return true;
}

void LanguageEngine::Propose() {
  // Rows cost what they cost: the more texts run, the fewer are spent on guesses.
  const int32_t share = options_.drafts_max / std::max(scheduler_.running(), 1);
  if (share == 0) return;
  for (Generation* g = all_; g != nullptr; g = g->next_) {
    Sequence& s = g->sequence_;
    // What a penalty or a constraint says of a token depends on the ones before it.
    if (s.state != SequenceState::kRunning || s.paused || s.size() - s.computed != 1 ||
        g->sampling.HasPenalties() || g->constraint != nullptr) {
      continue;
    }
    s.drafts.clear();
    if (g->draft_rest_ > 0) {
      --g->draft_rest_;
      continue;
    }
    const int32_t room = static_cast<int32_t>(g->Room()) - 1;
    const int32_t most = std::min({share, g->drafts_next_, room});
    LookUpDrafts(s.tokens, static_cast<size_t>(std::max(most, 0)), s.drafts);
  }
}

absl::Status LanguageEngine::BindStep(SequenceBatch& batch) {
  rows_.Clear();
  mask_rows_ = 0;
  int32_t ranks = 0;
  for (const StepEntry& entry : batch.entries) {
    if (entry.sequence == nullptr) continue;
    auto& generation = *static_cast<Generation*>(entry.sequence->context);
    if (generation.times.scheduled == 0) generation.times.scheduled = step_begin_;
    ranks = std::max({ranks, generation.sampling.logprobs, generation.sampling.prompt_logprobs});
    AddRows(entry);
  }
  for (int32_t i = 0; i < ranks; ++i) rows_.ranks.push_back(i);
  return step_->Begin({.tokens = batch.tokens,
                       .positions = batch.positions,
                       .sequences = batch.sequences,
                       .tables = batch.tables,
                       .blocks_per_row = batch.blocks_per_row,
                       .outputs = batch.outputs},
                      rows_, results_);
}

void LanguageEngine::AddRows(const StepEntry& entry) {
  auto& generation = *static_cast<Generation*>(entry.sequence->context);
  for (int32_t i = 0; i < entry.outputs; ++i) {
    // The output behind one token chooses the next.
    const int32_t next = entry.first + entry.count - entry.outputs + i + 1;
    const bool known = next < entry.sequence->size();
    AddRow(generation, next, known ? entry.sequence->tokens[static_cast<size_t>(next)] : -1);
  }
}

void LanguageEngine::AddRow(Generation& generation, int32_t position, int32_t forced) {
  const SamplingParameters& s = generation.sampling;
  rows_.reals.insert(rows_.reals.end(),
                     {s.temperature, s.top_p, s.min_p, s.typical_p, s.repetition_penalty,
                      s.presence_penalty, s.frequency_penalty, 0.0F});
  const bool wants = forced >= 0 ? s.prompt_logprobs >= 0 : s.logprobs >= 0;
  const bool masked = forced < 0 && generation.constraint != nullptr;
  rows_.integers.insert(rows_.integers.end(),
                        {s.top_k, masked ? mask_rows_ : -1, forced, wants ? 1 : 0});
  if (masked) {
    generation.constraint->AppendMask(generation.stop.tokens, step_->facts().mask_words,
                                      rows_.masks);
    ++mask_rows_;
  }
  rows_.seeds.insert(rows_.seeds.end(), {static_cast<int64_t>(s.seed), int64_t{position}});
  if (forced < 0) {
    for (const Generation::Seen& seen : generation.seen_) {
      rows_.history.insert(rows_.history.end(), {seen.token, seen.in_prompt, seen.times});
    }
    for (const auto& [token, value] : s.biases) {
      rows_.bias_tokens.push_back(token);
      rows_.bias_values.push_back(value);
    }
    const int32_t generated = position - generation.sequence_.prompt_size;
    if (generated < generation.stop.tokens_min) {
      for (const int32_t token : generation.stop.tokens) {
        rows_.bias_tokens.push_back(token);
        rows_.bias_values.push_back(kNever);
      }
    }
  }
  rows_.history_ends.push_back(static_cast<int32_t>(rows_.history.size() / 3));
  rows_.bias_ends.push_back(static_cast<int32_t>(rows_.bias_tokens.size()));
}

bool LanguageEngine::FinishStep() {
  if (batch_ == nullptr || queue_->completed() < signal_) return false;
  if (const absl::Status status = queue_->status(); !status.ok()) {
    queue_.reset();
    FailStep(status);
    return true;
  }
  SequenceBatch& batch = *std::exchange(batch_, nullptr);
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  if (tokens >= kMeasuredTokensMin) {
    const double nanos = static_cast<double>(Now() - step_begin_) / static_cast<double>(tokens);
    nanos_of_token_ = nanos_of_token_ == 0 ? nanos : 0.75 * nanos_of_token_ + 0.25 * nanos;
  }
  ++steps_;
  const int64_t told_before = prompt_tokens_ + generated_tokens_;
  for (StepEntry& entry : batch.entries) {
    if (entry.sequence == nullptr) continue;
    prompt_tokens_ +=
        std::max(0, std::min(entry.first + entry.count, entry.sequence->prompt_size) - entry.first);
    TakePromptResults(*static_cast<Generation*>(entry.sequence->context), entry);
    if (entry.samples) {
      entry.accepted = CheckDrafts(*static_cast<Generation*>(entry.sequence->context), entry);
      entry.token = results_.tokens[FirstRow(entry) + static_cast<size_t>(entry.accepted)];
    }
  }
  scheduler_.StepDone();
  for (const StepEntry& entry : batch.entries) {
    if (entry.sequence == nullptr || !entry.samples) continue;
    auto& generation = *static_cast<Generation*>(entry.sequence->context);
    const size_t first = FirstRow(entry);
    const int32_t size = entry.sequence->size() - entry.accepted;
    for (int32_t i = 0; i <= entry.accepted; ++i) {
      if (!TakeToken(generation, first + static_cast<size_t>(i), size + i)) break;
    }
  }
  statistics_.AddStep(prompt_tokens_ + generated_tokens_ - told_before);
  return true;
}

int32_t LanguageEngine::CheckDrafts(Generation& generation, const StepEntry& entry) {
  if (entry.drafts == 0) return 0;
  // What is drawn depends on the scores, the seed and the position: a draft that is what would have
  // been drawn changes nothing.
  const std::vector<int32_t>& drafts = generation.sequence_.drafts;
  const size_t first = FirstRow(entry);
  int32_t held = 0;
  while (held < entry.drafts &&
         drafts[static_cast<size_t>(held)] == results_.tokens[first + static_cast<size_t>(held)]) {
    ++held;
  }
  ++drafts_;
  draft_tokens_ += entry.drafts;
  accepted_tokens_ += held;
  generation.draft_misses_ = held > 0 ? 0 : std::min(generation.draft_misses_ + 1, kMissesMax);
  generation.draft_rest_ = held > 0 ? 0 : 1 << generation.draft_misses_;
  generation.drafts_next_ = held == entry.drafts
                                ? std::min(2 * generation.drafts_next_, options_.drafts_max)
                                : std::max(held, 1);
  return held;
}

std::span<const int32_t> LanguageEngine::LikelyTokens(size_t row, int32_t count) const {
  return std::span(results_.top_tokens)
      .subspan(row * rows_.ranks.size(), static_cast<size_t>(std::max(count, 0)));
}

std::span<const float> LanguageEngine::LikelyLogprobs(size_t row, int32_t count) const {
  return std::span(results_.top_logprobs)
      .subspan(row * rows_.ranks.size(), static_cast<size_t>(std::max(count, 0)));
}

void LanguageEngine::TakePromptResults(Generation& generation, const StepEntry& entry) {
  const int32_t count = generation.sampling.prompt_logprobs;
  if (count < 0) return;
  for (int32_t i = 0; i < entry.outputs; ++i) {
    const int32_t next = entry.first + entry.count - entry.outputs + i + 1;
    // Each once, in order: a text that was computed again has told the first already.
    if (next >= generation.sequence_.prompt_size ||
        next != static_cast<int32_t>(generation.prompt_tokens_.size()) + 1) {
      continue;
    }
    const auto row = static_cast<size_t>(entry.outputs_begin + i);
    generation.prompt_tokens_.push_back(
        {results_.tokens[row], results_.logprobs[row], results_.token_ranks[row]});
    const std::span<const int32_t> tokens = LikelyTokens(row, count);
    const std::span<const float> logprobs = LikelyLogprobs(row, count);
    for (size_t t = 0; t < tokens.size(); ++t) {
      generation.prompt_likely_.push_back({tokens[t], logprobs[t]});
    }
  }
}

bool LanguageEngine::TakeToken(Generation& generation, size_t row, int32_t size) {
  const GeneratedToken token = {results_.tokens[row], results_.logprobs[row],
                                results_.token_ranks[row]};
  ++generated_tokens_;
  const int64_t now = Now();
  statistics_.AddToken(generation.times, now);
  generation.times.last_token = now;
  if (generation.times.first_token == 0) generation.times.first_token = now;
  CountSeen(generation, token.token);
  generation.Put(token, LikelyTokens(row, generation.sampling.logprobs),
                 LikelyLogprobs(row, generation.sampling.logprobs));
  std::optional<FinishReason> reason = EndOf(generation, token.token, size);
  absl::Status status;
  if (generation.constraint != nullptr &&
      reason.value_or(FinishReason::kLength) == FinishReason::kLength) {
    status = generation.constraint->Take(token.token);
    if (!status.ok()) {
      reason = FinishReason::kNone;
    } else if (generation.constraint->complete()) {
      reason = FinishReason::kComplete;
    }
  }
  if (reason.has_value()) {
    scheduler_.Remove(&generation.sequence_);
    // Drafts that held behind it are no part of the text.
    generation.sequence_.tokens.resize(static_cast<size_t>(size));
    Finish(generation, std::move(status), *reason);
    return false;
  }
  if (!generation.HasRoom()) {
    generation.sequence_.paused = true;
    generation.held_up_since_ = generation.times.last_token;
    generation.held_up_.store(true, std::memory_order_seq_cst);
    // The reader may have caught up before it could see that it was waited for.
    look_for_room_.store(true, std::memory_order_release);
  }
  Announce(generation, Generation::kAnnounced);
  return true;
}

void LanguageEngine::CountSeen(Generation& generation, int32_t token) {
  if (!generation.sampling.HasPenalties()) return;
  std::vector<Generation::Seen>& seen = generation.seen_;
  const auto found = std::ranges::lower_bound(seen, token, {}, &Generation::Seen::token);
  if (found != seen.end() && found->token == token) {
    ++found->times;
  } else {
    seen.insert(found, {token, 0, 1});
  }
}

std::optional<FinishReason> LanguageEngine::EndOf(Generation& generation, int32_t token,
                                                  int32_t size) {
  const StopConditions& stop = generation.stop;
  const Sequence& sequence = generation.sequence_;
  const int32_t generated = size - sequence.prompt_size;
  const bool may_stop = generated > stop.tokens_min;
  if (may_stop && std::ranges::find(stop.tokens, token) != stop.tokens.end()) {
    return FinishReason::kStopToken;
  }
  if (!stop.texts.empty()) {
    std::string& tail = generation.tail_;
    const absl::string_view bytes = options_.token_bytes(token);
    const size_t before = tail.size();
    tail.append(bytes.data(), bytes.size());
    size_t longest = 0;
    for (size_t i = 0; i < stop.texts.size(); ++i) {
      const size_t size = stop.texts[i].size();
      longest = std::max(longest, size);
      // One that ended before this token, when none was to stop, is passed.
      const size_t from = before - std::min(before, size - 1);
      if (!may_stop || tail.find(stop.texts[i], from) == std::string::npos) continue;
      generation.stop_text = i;
      return FinishReason::kStopText;
    }
    if (tail.size() >= longest) tail.erase(0, tail.size() - longest + 1);
  }
  if (size >= sequence.tokens_max) return FinishReason::kLength;
  return std::nullopt;
}

void LanguageEngine::FailStep(const absl::Status& status) {
  SequenceBatch& batch = *std::exchange(batch_, nullptr);
  LOG(ERROR) << "language model: a step failed: " << status.ToString();
  std::vector<Generation*> failed;
  for (const StepEntry& entry : batch.entries) {
    if (entry.sequence == nullptr) continue;
    failed.push_back(static_cast<Generation*>(entry.sequence->context));
  }
  scheduler_.StepsFailed();
  for (Generation* generation : failed) {
    scheduler_.Remove(&generation->sequence_);
    Finish(*generation, status, FinishReason::kNone);
  }
}

void LanguageEngine::Finish(Generation& generation, absl::Status status, FinishReason reason) {
  Unlink(generation);
  generation.times.end = Now();
  generation.status = std::move(status);
  generation.reason = reason;
  statistics_.AddText(generation);
  Announce(generation, Generation::kAnnounced | Generation::kOver);
  in_flight_.fetch_sub(1, std::memory_order_seq_cst);
}

void LanguageEngine::Announce(Generation& generation, uint32_t bits) {
  told_any_ = true;
  const uint32_t before = generation.state_.fetch_or(bits, std::memory_order_acq_rel);
  if ((before & Generation::kAnnounced) == 0) news_.PushCertainly(&generation);
}

void LanguageEngine::Link(Generation& generation) {
  generation.previous_ = nullptr;
  generation.next_ = all_;
  if (all_ != nullptr) all_->previous_ = &generation;
  all_ = &generation;
}

void LanguageEngine::Unlink(Generation& generation) {
  if (generation.previous_ != nullptr) generation.previous_->next_ = generation.next_;
  if (generation.next_ != nullptr) generation.next_->previous_ = generation.previous_;
  if (all_ == &generation) all_ = generation.next_;
}

void LanguageEngine::PublishCounters() {
  const SequenceCounters& counters = scheduler_.counters();
  const int64_t numbers[] = {scheduler_.running(),
                             scheduler_.waiting(),
                             blocks_.total(),
                             blocks_.referenced(),
                             static_cast<int64_t>(counters.preemptions),
                             static_cast<int64_t>(counters.prefix_query_tokens),
                             static_cast<int64_t>(counters.prefix_hit_tokens),
                             prompt_tokens_,
                             generated_tokens_,
                             steps_,
                             drafts_,
                             draft_tokens_,
                             accepted_tokens_};
  for (size_t i = 0; i < published_.size(); ++i) {
    published_[i].store(numbers[i], std::memory_order_relaxed);
  }
}

LanguageEngineCounters LanguageEngine::counters() const {
  const auto number = [&](size_t i) { return published_[i].load(std::memory_order_relaxed); };
  return {.running = static_cast<int32_t>(number(0)),
          .waiting = static_cast<int32_t>(number(1)),
          .blocks_total = static_cast<int32_t>(number(2)),
          .blocks_used = static_cast<int32_t>(number(3)),
          .sequences = {.preemptions = static_cast<uint64_t>(number(4)),
                        .prefix_query_tokens = static_cast<uint64_t>(number(5)),
                        .prefix_hit_tokens = static_cast<uint64_t>(number(6))},
          .prompt_tokens = number(7),
          .generated_tokens = number(8),
          .steps = number(9),
          .drafts = number(10),
          .draft_tokens = number(11),
          .accepted_tokens = number(12)};
}

void LanguageEngine::CheckInvariants() const {
  scheduler_.CheckInvariants();
  blocks_.CheckInvariants();
  int64_t texts = 0;
  for (const Generation* g = all_; g != nullptr; g = g->next_) ++texts;
  CHECK_EQ(texts, in_flight());
}

}  // namespace stampmill
