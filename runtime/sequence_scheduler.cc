// While step formed_ + 1 is being formed, only step formed_ can be in flight: what a sequence has
// under the parity of the one is its entry in the batch, under that of the other its entry in
// flight.
#include "runtime/sequence_scheduler.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stampmill {
namespace {

// How often in a row a sequence waits for another to make a block that it needs too: more than the
// steps in flight. And how many do so in one step, since each is looked at in each.
constexpr int32_t kYieldsMax = 4;
constexpr int32_t kYieldingMax = 16;

// A part of the pool is left to those that run when another is let in: each of them needs a block
// every few steps, and one that must be computed again costs more than one that waits.
constexpr int32_t kSparePart = 64;

int32_t BlocksFor(int32_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

// Positions of it that are ever computed: a token behind the last one is not sampled.
int32_t PositionsMax(const Sequence& s) { return std::max(s.prompt_size, s.tokens_max - 1); }

}  // namespace

void SequenceScheduler::List::InsertBefore(Sequence* place, Sequence* sequence) {
  Sequence* const before = place != nullptr ? place->previous : tail;
  sequence->next = place;
  sequence->previous = before;
  (before != nullptr ? before->next : head) = sequence;
  (place != nullptr ? place->previous : tail) = sequence;
  ++size;
}

void SequenceScheduler::List::Remove(Sequence* sequence) {
  (sequence->previous != nullptr ? sequence->previous->next : head) = sequence->next;
  (sequence->next != nullptr ? sequence->next->previous : tail) = sequence->previous;
  sequence->next = sequence->previous = nullptr;
  --size;
}

SequenceScheduler::SequenceScheduler(const SequenceSchedulerOptions& options, BlockPool* pool)
    : options_(options), pool_(*pool), blocks_per_row_(BlocksFor(options.sequence_tokens_max)) {
  CHECK(options.steps_in_flight_max == 1 || options.steps_in_flight_max == 2);
  CHECK_GE(options.sequences_max, 1);
  CHECK_GE(options.waiting_max, 1);
  CHECK_GE(options.step_tokens_max, options.sequences_max + kBlockTokens);
  levels_.resize(static_cast<size_t>(options.levels));
  groups_.resize(static_cast<size_t>(options.waiting_max));
  for (int32_t g = options.waiting_max; g-- > 0;) {
    groups_[static_cast<size_t>(g)].next = free_group_;
    free_group_ = g;
  }
  buckets_.assign(std::bit_ceil(groups_.size()), -1);
  // Rows that rest are those of a step's sequences that left while it was in flight.
  const int32_t rows = options.sequences_max * options.steps_in_flight_max;
  tables_.resize(static_cast<size_t>(rows) * static_cast<size_t>(blocks_per_row_));
  for (int32_t row = rows; row-- > 0;) free_rows_.push_back(row);
  for (std::vector<int32_t>& resting : resting_rows_) resting.reserve(static_cast<size_t>(rows));
  for (SequenceBatch& batch : batches_) {
    const auto tokens = static_cast<size_t>(options.step_tokens_max);
    batch.entries.reserve(tokens);
    for (std::vector<int32_t>* array :
         {&batch.tokens, &batch.positions, &batch.sequences, &batch.outputs}) {
      array->reserve(tokens);
    }
    batch.tables = tables_;
    batch.blocks_per_row = blocks_per_row_;
  }
}

// --- Who is where ---

int32_t SequenceScheduler::BlocksNeeded(const Sequence& s) { return BlocksFor(PositionsMax(s)); }

std::span<int32_t> SequenceScheduler::Row(const Sequence& s) {
  const auto width = static_cast<size_t>(blocks_per_row_);
  return std::span(tables_).subspan(static_cast<size_t>(s.row) * width, width);
}

std::span<const int32_t> SequenceScheduler::BlocksOf(const Sequence& s) const {
  if (s.blocks == 0) return {};
  const auto begin = static_cast<size_t>(s.row) * static_cast<size_t>(blocks_per_row_);
  return std::span(tables_).subspan(begin, static_cast<size_t>(s.blocks));
}

bool SequenceScheduler::Before(const Sequence& a, const Sequence& b) {
  return a.level != b.level ? a.level < b.level : a.arrival_number < b.arrival_number;
}

void SequenceScheduler::NoteDeadline(const Sequence& s) {
  next_expiry_nanos_ = std::min(next_expiry_nanos_, s.deadline_nanos);
  if (s.state == SequenceState::kWaiting) {
    next_expiry_nanos_ = std::min(next_expiry_nanos_, s.queue_deadline_nanos);
  }
}

absl::Status SequenceScheduler::Enqueue(Sequence* s) {
  CHECK(s->state == SequenceState::kOutside);
  CHECK(s->level >= 0 && s->level < options_.levels);
  if (s->tokens_max > options_.sequence_tokens_max) {
    return absl::InvalidArgumentError(absl::StrCat("tokens of a sequence: got ", s->tokens_max,
                                                   ", limit ", options_.sequence_tokens_max));
  }
  if (BlocksNeeded(*s) > pool_.total()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens of a sequence: got ", s->tokens_max, ", which need ", BlocksNeeded(*s),
                     " blocks of the cache of keys and values, limit ", pool_.total()));
  }
  if (waiting_ == options_.waiting_max) {
    return absl::ResourceExhaustedError("Exceeds maximum queue size");
  }
  s->state = SequenceState::kWaiting;
  s->arrival_number = arrivals_++;
  AddToGroup(s);
  ++waiting_;
  NoteDeadline(*s);
  return absl::OkStatus();
}

void SequenceScheduler::TakeOut(Sequence* s) {
  switch (s->state) {
    case SequenceState::kOutside:
      CHECK(false) << "the sequence is not here";
      break;
    case SequenceState::kWaiting:
      RemoveFromGroup(s);
      --waiting_;
      break;
    case SequenceState::kPreempted:
      levels_[static_cast<size_t>(s->level)].preempted.Remove(s);
      --preempted_;
      break;
    case SequenceState::kRunning:
      LeaveRunning(s);
      break;
  }
  s->state = SequenceState::kOutside;
}

void SequenceScheduler::Remove(Sequence* s) {
  for (uint64_t step = ended_ + 1; step <= formed_; ++step) {
    const int32_t entry = std::exchange(s->entries[step % 2], -1);
    if (entry >= 0) batch_of(step).entries[static_cast<size_t>(entry)].sequence = nullptr;
  }
  TakeOut(s);
}

void SequenceScheduler::EnterRunning(Sequence* s) {
  CHECK(!free_rows_.empty());
  s->row = free_rows_.back();
  free_rows_.pop_back();
  s->state = SequenceState::kRunning;
  Sequence* place = running_.tail;
  while (place != nullptr && Before(*s, *place)) place = place->previous;
  running_.InsertBefore(place != nullptr ? place->next : running_.head, s);
}

void SequenceScheduler::LeaveRunning(Sequence* s) {
  running_.Remove(s);
  // The last one first: a prefix is of use without what follows it.
  const std::span<const int32_t> blocks = BlocksOf(*s);
  for (size_t i = blocks.size(); i-- > 0;) pool_.Release(blocks[i]);
  (formed_ == ended_ ? free_rows_ : resting_rows_[formed_ % 2]).push_back(s->row);
  s->row = -1;
  s->blocks = s->published = 0;
}

size_t SequenceScheduler::BucketOf(uint64_t client, int32_t level) const {
  const uint64_t mixed =
      (client + static_cast<uint64_t>(level) * 0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93;
  return (mixed >> 32) & (buckets_.size() - 1);
}

int32_t SequenceScheduler::FindGroup(const Sequence& s) const {
  int32_t g = buckets_[BucketOf(s.client, s.level)];
  while (g >= 0) {
    const Group& group = groups_[static_cast<size_t>(g)];
    if (group.client == s.client && group.level == s.level) break;
    g = group.next_in_bucket;
  }
  return g;
}

void SequenceScheduler::AddToGroup(Sequence* s) {
  int32_t g = FindGroup(*s);
  if (g < 0) {
    // There is one for each that waits.
    g = free_group_;
    Group& group = groups_[static_cast<size_t>(g)];
    free_group_ = group.next;
    group.client = s->client;
    group.level = s->level;
    group.next_in_bucket = std::exchange(buckets_[BucketOf(s->client, s->level)], g);
    LinkGroup(g);
  }
  s->group = g;
  groups_[static_cast<size_t>(g)].waiting.InsertBefore(nullptr, s);
}

void SequenceScheduler::RemoveFromGroup(Sequence* s) {
  const int32_t g = std::exchange(s->group, -1);
  Group& group = groups_[static_cast<size_t>(g)];
  group.waiting.Remove(s);
  if (group.waiting.size > 0) return;
  UnlinkGroup(g);
  int32_t* link = &buckets_[BucketOf(group.client, group.level)];
  while (*link != g) link = &groups_[static_cast<size_t>(*link)].next_in_bucket;
  *link = group.next_in_bucket;
  group.next = std::exchange(free_group_, g);
}

void SequenceScheduler::LinkGroup(int32_t g) {
  Group& group = groups_[static_cast<size_t>(g)];
  Level& level = levels_[static_cast<size_t>(group.level)];
  group.next = -1;
  group.previous = level.tail;
  (level.tail >= 0 ? groups_[static_cast<size_t>(level.tail)].next : level.head) = g;
  level.tail = g;
}

void SequenceScheduler::UnlinkGroup(int32_t g) {
  const Group& group = groups_[static_cast<size_t>(g)];
  Level& level = levels_[static_cast<size_t>(group.level)];
  const auto at = [this](int32_t i) -> Group& { return groups_[static_cast<size_t>(i)]; };
  (group.previous >= 0 ? at(group.previous).next : level.head) = group.next;
  (group.next >= 0 ? at(group.next).previous : level.tail) = group.previous;
}

template <typename F>
Sequence* SequenceScheduler::FindIf(const F& wanted) const {
  const auto in = [&wanted](const List& list) {
    Sequence* s = list.head;
    while (s != nullptr && !wanted(*s)) s = s->next;
    return s;
  };
  for (const Level& level : levels_) {
    if (Sequence* const s = in(level.preempted)) return s;
    for (int32_t g = level.head; g >= 0; g = groups_[static_cast<size_t>(g)].next) {
      if (Sequence* const s = in(groups_[static_cast<size_t>(g)].waiting)) return s;
    }
  }
  return in(running_);
}

Sequence* SequenceScheduler::TakeExpired(int64_t now) {
  if (now < next_expiry_nanos_) return nullptr;
  next_expiry_nanos_ = kNoDeadline;
  Sequence* const expired = FindIf([this, now](const Sequence& s) {
    if (s.deadline_nanos <= now) return true;
    if (s.state == SequenceState::kWaiting && s.queue_deadline_nanos <= now) return true;
    NoteDeadline(s);
    return false;
  });
  if (expired == nullptr) return nullptr;
  next_expiry_nanos_ = now;  // not seen to the end: look again
  Remove(expired);
  return expired;
}

Sequence* SequenceScheduler::TakeAny() {
  Sequence* const any = FindIf([](const Sequence&) { return true; });
  if (any != nullptr) Remove(any);
  return any;
}

int64_t SequenceScheduler::NextDeadline() const {
  return empty() ? kNoDeadline : next_expiry_nanos_;
}

// --- Forming a step ---

int32_t SequenceScheduler::TokensToGo(const Sequence& s) {
  return std::min(s.size() + s.pending, PositionsMax(s)) - s.scheduled;
}

bool SequenceScheduler::MayGoOn(const Sequence& s) const {
  if (s.paused || s.held_in == round_) return false;
  return s.pending == 0 || (!s.waits_for_host && s.drafts.empty());
}

int32_t SequenceScheduler::BlocksToGo(const Sequence& s) {
  return std::max(BlocksFor(s.scheduled + TokensToGo(s)) - s.blocks, 0);
}

int32_t SequenceScheduler::ShareableBlocks(const Sequence& s) {
  // The last token is always computed: its logits are needed.
  return std::min(s.logits_begin, s.size() - 1) / kBlockTokens;
}

SequenceBatch* SequenceScheduler::FormBatch(int64_t tokens_wanted) {
  if (steps_in_flight() == options_.steps_in_flight_max) return nullptr;
  const int64_t budget = std::min<int64_t>(tokens_wanted, options_.step_tokens_max);
  batch_ = &batch_of(formed_ + 1);
  batch_->entries.clear();
  ++round_;
  assigned_ = 0;
  drafts_left_ = budget - running_.size - kBlockTokens;
  any_paused_ = any_dropped_ = false;
  yielding_ = 0;

  bool more_to_go = false;
  for (Sequence* s = running_.head; s != nullptr; s = s->next) {
    any_paused_ |= s->paused;
    if (!MayGoOn(*s)) continue;
    const int32_t to_go = TokensToGo(*s);
    more_to_go |= to_go > 1;
    if (to_go == 1 && Assign(*s, 1) > 0) AssignDrafts(*s);
  }
  int64_t left = std::max<int64_t>(budget - assigned_, kBlockTokens);
  for (Sequence* s = running_.head; more_to_go && s != nullptr && left > 0; s = s->next) {
    if (!MayGoOn(*s) || TokensToGo(*s) <= 1) continue;
    ShareFound(*s);
    left -= Assign(*s, left);
  }
  owed_ = 0;
  for (Sequence* s = running_.head; waiting() > 0 && s != nullptr; s = s->next) {
    owed_ += s->owed = BlocksToGo(*s);
  }
  while (left >= kBlockTokens) {
    Sequence* const s = NextWaiting();
    const Admission admission = s != nullptr ? Admit(*s) : Admission::kDoesNotFit;
    if (admission == Admission::kDoesNotFit) break;
    if (admission == Admission::kYields) continue;
    left -= Assign(*s, left);
    owed_ += s->owed = BlocksToGo(*s);
  }
  return FinishBatch();
}

int32_t SequenceScheduler::Assign(Sequence& s, int64_t tokens) {
  const int32_t to_go = TokensToGo(s);
  int32_t end = s.scheduled + static_cast<int32_t>(std::min<int64_t>(to_go, tokens));
  if (end - s.scheduled < to_go) end -= end % kBlockTokens;
  if (end > s.scheduled) end = std::min(end, TakeBlocks(s, end, /*preempt=*/true));
  if (end <= s.scheduled) return 0;
  const int32_t expected = s.size() + s.pending;
  StepEntry entry = {.sequence = &s, .first = s.scheduled, .count = end - s.scheduled};
  entry.outputs = std::max(end - std::max(entry.first, s.logits_begin), 0);
  entry.samples = end == expected && expected < s.tokens_max;
  if (entry.count > 1) Announce(entry);
  s.scheduled = end;
  s.pending += entry.samples;
  s.entries[(formed_ + 1) % 2] = static_cast<int32_t>(batch_->entries.size());
  batch_->entries.push_back(entry);
  assigned_ += entry.count;
  return entry.count;
}

void SequenceScheduler::Announce(const StepEntry& entry) {
  const Sequence& s = *entry.sequence;
  const std::span<const int32_t> row = BlocksOf(s);
  // What it samples nobody knows yet.
  const int32_t known = static_cast<int32_t>(s.hashes.size());
  const int32_t end = std::min((entry.first + entry.count) / kBlockTokens, known);
  for (int32_t i = entry.first / kBlockTokens; i < end; ++i) {
    pool_.Announce(row[static_cast<size_t>(i)], s.hashes[static_cast<size_t>(i)]);
  }
}

void SequenceScheduler::AssignDrafts(Sequence& s) {
  StepEntry& entry = batch_->entries.back();
  if (s.drafts.empty() || !entry.samples) return;
  int64_t drafts = std::min<int64_t>(static_cast<int64_t>(s.drafts.size()), drafts_left_);
  drafts = std::min<int64_t>(drafts, s.tokens_max - s.size() - 1);
  if (drafts <= 0) return;
  const int32_t end = s.scheduled + static_cast<int32_t>(drafts);
  entry.drafts = std::min(end, TakeBlocks(s, end, /*preempt=*/false)) - s.scheduled;
  entry.count += entry.drafts;
  entry.outputs += entry.drafts;
  s.scheduled += entry.drafts;
  drafts_left_ -= entry.drafts;
  assigned_ += entry.drafts;
}

int32_t SequenceScheduler::TakeBlocks(Sequence& s, int32_t end, bool preempt) {
  const std::span<int32_t> row = Row(s);
  while (s.blocks * kBlockTokens < end) {
    const int32_t block = pool_.Take();
    if (block != kNoBlock) {
      row[static_cast<size_t>(s.blocks++)] = block;
    } else if (!preempt || !PreemptFor(s)) {
      break;
    }
  }
  return s.blocks * kBlockTokens;
}

Sequence* SequenceScheduler::VictimFor(const Sequence& s) const {
  for (Sequence* v = any_paused_ ? running_.tail : nullptr; v != nullptr; v = v->previous) {
    if (v->paused) return v;
  }
  Sequence* const last = running_.tail;
  if (last == nullptr || last == &s) return nullptr;
  // Who waits makes nobody give way but those of lower levels.
  const bool runs = s.state == SequenceState::kRunning;
  return runs || last->level > s.level ? last : nullptr;
}

bool SequenceScheduler::PreemptFor(const Sequence& s) {
  Sequence* const victim = VictimFor(s);
  if (victim == nullptr) return false;
  DropEntry(*victim);
  if (steps_in_flight() > 0 && victim->entries[formed_ % 2] >= 0) {
    // What it computes is not lost: it gives way once that is done.
    victim->held_in = round_;
    return false;
  }
  Preempt(victim);
  return true;
}

void SequenceScheduler::Preempt(Sequence* s) {
  owed_ -= s->owed;
  LeaveRunning(s);
  s->state = SequenceState::kPreempted;
  s->computed = s->scheduled = 0;
  s->drafts.clear();
  s->ExtendHashes();
  s->found = s->yields = 0;
  List& list = levels_[static_cast<size_t>(s->level)].preempted;
  Sequence* place = list.head;
  while (place != nullptr && Before(*place, *s)) place = place->next;
  list.InsertBefore(place, s);
  ++preempted_;
  ++s->preemptions;
  ++counters_.preemptions;
}

void SequenceScheduler::DropEntry(Sequence& s) {
  const int32_t index = std::exchange(s.entries[(formed_ + 1) % 2], -1);
  if (index < 0) return;
  StepEntry& entry = batch_->entries[static_cast<size_t>(index)];
  s.scheduled -= entry.count;
  s.pending -= entry.samples;
  assigned_ -= entry.count;
  entry.sequence = nullptr;
  any_dropped_ = true;
}

Sequence* SequenceScheduler::NextWaiting() {
  if (waiting() == 0 || yielding_ == kYieldingMax) return nullptr;
  for (const Level& level : levels_) {
    for (Sequence* s = level.preempted.head; s != nullptr; s = s->next) {
      if (MayGoOn(*s)) return s;
    }
    for (int32_t g = level.head; g >= 0; g = groups_[static_cast<size_t>(g)].next) {
      Sequence* const s = groups_[static_cast<size_t>(g)].waiting.head;
      if (MayGoOn(*s)) return s;
    }
  }
  return nullptr;
}

SequenceScheduler::Found SequenceScheduler::FindPrefix(const Sequence& s) const {
  Found found;
  for (const int32_t most = ShareableBlocks(s); found.blocks < most; ++found.blocks) {
    const int32_t block = pool_.Find(s.hashes[static_cast<size_t>(found.blocks)]);
    if (block == kNoBlock) break;
    found.cached += pool_.is_cached(block);
  }
  return found;
}

bool SequenceScheduler::Yields(Sequence& s, const Found& found) {
  // Something must go on meanwhile: what is announced may be of one that does not.
  if (assigned_ == 0 && steps_in_flight() == 0) return false;
  if (found.blocks == ShareableBlocks(s) ||
      !pool_.Announced(s.hashes[static_cast<size_t>(found.blocks)])) {
    return false;
  }
  if (found.blocks > s.found) s.yields = 0;
  s.found = found.blocks;
  if (s.yields == kYieldsMax) return false;
  ++s.yields;
  ++yielding_;
  s.held_in = round_;
  return true;
}

bool SequenceScheduler::Fits(const Sequence& s, const Found& found) const {
  const int32_t spare = running_.size > 0 ? pool_.total() / kSparePart : 0;
  const int32_t needed = BlocksFor(TokensToGo(s)) - found.blocks;
  return pool_.available() - found.cached - owed_ >= needed + spare;
}

SequenceScheduler::Admission SequenceScheduler::Admit(Sequence& s) {
  if (Yields(s, FindPrefix(s))) return Admission::kYields;
  // Whose blocks go may be who has what was found: looked for anew after each.
  while (running_.size >= options_.sequences_max || !Fits(s, FindPrefix(s))) {
    if (!PreemptFor(s)) return Admission::kDoesNotFit;
  }
  const bool first_time = s.state == SequenceState::kWaiting;
  const int32_t group = s.group;
  TakeOut(&s);
  if (first_time && FindGroup(s) >= 0) {
    // It is the next one's turn.
    UnlinkGroup(group);
    LinkGroup(group);
  }
  EnterRunning(&s);
  ShareFound(s);
  if (first_time) {
    s.cached_at_start = s.computed;
    counters_.prefix_query_tokens += static_cast<uint64_t>(s.size());
    counters_.prefix_hit_tokens += static_cast<uint64_t>(s.computed);
  }
  return Admission::kAdmitted;
}

void SequenceScheduler::ShareFound(Sequence& s) {
  if (s.scheduled != s.computed || s.computed != s.blocks * kBlockTokens) return;
  const std::span<int32_t> row = Row(s);
  for (const int32_t most = ShareableBlocks(s); s.blocks < most; ++s.blocks) {
    const int32_t block = pool_.Find(s.hashes[static_cast<size_t>(s.blocks)]);
    if (block == kNoBlock) break;
    pool_.Retain(block);
    row[static_cast<size_t>(s.blocks)] = block;
  }
  s.published = s.blocks;
  s.computed = s.scheduled = s.blocks * kBlockTokens;
}

SequenceBatch* SequenceScheduler::FinishBatch() {
  SequenceBatch& batch = *batch_;
  if (any_dropped_) {
    std::erase_if(batch.entries, [](const StepEntry& entry) { return entry.sequence == nullptr; });
  }
  if (batch.entries.empty()) return nullptr;
  const auto tokens = static_cast<size_t>(assigned_);
  CHECK_LE(assigned_, options_.step_tokens_max);
  batch.tokens.resize(tokens);
  batch.positions.resize(tokens);
  batch.sequences.resize(tokens);
  batch.outputs.clear();
  size_t at = 0;
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    StepEntry& entry = batch.entries[i];
    Sequence& s = *entry.sequence;
    s.entries[(formed_ + 1) % 2] = static_cast<int32_t>(i);
    const auto first = static_cast<size_t>(entry.first), count = static_cast<size_t>(entry.count);
    size_t known = std::min(s.tokens.size() - first, count);
    for (size_t t = 0; t < known; ++t) batch.tokens[at + t] = s.tokens[first + t];
    if (s.pending > entry.samples) {
      const auto before = static_cast<size_t>(s.entries[formed_ % 2]);
      const StepEntry& source = batch_of(formed_).entries[before];
      batch.tokens[at + known++] = -1 - (source.outputs_begin + source.outputs - 1);
    }
    for (size_t d = 0; known < count; ++known, ++d) batch.tokens[at + known] = s.drafts[d];
    for (size_t t = 0; t < count; ++t) {
      batch.positions[at + t] = entry.first + static_cast<int32_t>(t);
      batch.sequences[at + t] = s.row;
    }
    at += count;
    entry.outputs_begin = static_cast<int32_t>(batch.outputs.size());
    for (int32_t o = entry.outputs; o > 0; --o) {
      batch.outputs.push_back(static_cast<int32_t>(at) - o);
    }
  }
  CHECK_EQ(at, tokens);
  ++formed_;
  pool_.BeginStep();
  return &batch;
}

// --- The end of a step ---

void SequenceScheduler::StepDone() {
  CHECK_GT(steps_in_flight(), 0);
  for (const StepEntry& entry : batch_of(ended_ + 1).entries) {
    if (entry.sequence != nullptr) Advance(entry);
  }
  EndStep();
}

void SequenceScheduler::Advance(const StepEntry& entry) {
  Sequence& s = *entry.sequence;
  CHECK(entry.accepted >= 0 && entry.accepted <= entry.drafts);
  s.entries[(ended_ + 1) % 2] = -1;
  const int32_t rejected = entry.drafts - entry.accepted;
  s.scheduled -= rejected;
  s.computed = entry.first + entry.count - rejected;
  s.logits_begin = std::max(s.logits_begin, s.computed);
  if (entry.samples) {
    --s.pending;
    for (int32_t d = 0; d < entry.accepted; ++d) {
      s.tokens.push_back(s.drafts[static_cast<size_t>(d)]);
    }
    s.tokens.push_back(entry.token);
    s.drafts.clear();
  }
  const int32_t full = s.computed / kBlockTokens;
  if (full == s.published) return;
  s.ExtendHashes();
  const std::span<const int32_t> row = BlocksOf(s);
  for (; s.published < full; ++s.published) {
    const auto i = static_cast<size_t>(s.published);
    pool_.Publish(row[i], s.hashes[i]);
  }
}

void SequenceScheduler::EndStep() {
  ++ended_;
  pool_.EndStep();
  std::vector<int32_t>& rows = resting_rows_[ended_ % 2];
  free_rows_.insert(free_rows_.end(), rows.begin(), rows.end());
  rows.clear();
}

void SequenceScheduler::StepsFailed() {
  while (steps_in_flight() > 0) {
    for (const StepEntry& entry : batch_of(ended_ + 1).entries) {
      if (entry.sequence == nullptr) continue;
      Sequence& s = *entry.sequence;
      s.entries = {-1, -1};
      s.scheduled = s.computed;
      s.pending = 0;
    }
    EndStep();
  }
}

void SequenceScheduler::CheckInvariants() const {
  pool_.CheckInvariants();
  std::vector<int32_t> references(static_cast<size_t>(pool_.capacity()), 0);
  const Sequence* before = nullptr;
  int32_t running = 0;
  for (const Sequence* s = running_.head; s != nullptr; before = s, s = s->next) {
    ++running;
    CHECK(s->state == SequenceState::kRunning);
    CHECK(s->previous == before);
    CHECK(before == nullptr || Before(*before, *s));
    CHECK(s->computed <= s->scheduled && s->scheduled <= s->blocks * kBlockTokens);
    CHECK_LE(s->blocks, BlocksNeeded(*s));
    CHECK_EQ(s->published, s->computed / kBlockTokens);
    CHECK(s->pending >= 0 && s->pending <= steps_in_flight());
    CHECK_LE(s->size() + s->pending, s->tokens_max);
    for (const int32_t block : BlocksOf(*s)) ++references[static_cast<size_t>(block)];
    CHECK_GE(s->deadline_nanos, next_expiry_nanos_);
    for (uint64_t step = formed_ - 1; step <= formed_; ++step) {
      const int32_t entry = s->entries[step % 2];
      if (entry < 0) continue;
      CHECK_GT(step, ended_);
      CHECK(batches_[step % 2].entries[static_cast<size_t>(entry)].sequence == s);
    }
  }
  CHECK_EQ(running, running_.size);
  CHECK_LE(running, options_.sequences_max);
  for (int32_t block = 0; block < pool_.capacity(); ++block) {
    CHECK_EQ(references[static_cast<size_t>(block)], pool_.references(block));
  }
  const size_t resting = resting_rows_[0].size() + resting_rows_[1].size();
  CHECK(steps_in_flight() > 0 || resting == 0);
  CHECK_EQ(free_rows_.size() + resting + static_cast<size_t>(running),
           static_cast<size_t>(options_.sequences_max * options_.steps_in_flight_max));
  int32_t waiting = 0, preempted = 0;
  for (const Level& level : levels_) {
    for (const Sequence* s = level.preempted.head; s != nullptr; s = s->next, ++preempted) {
      CHECK(s->state == SequenceState::kPreempted);
      CHECK(s->computed == 0 && s->scheduled == 0 && s->pending == 0 && s->blocks == 0);
      CHECK_GE(s->deadline_nanos, next_expiry_nanos_);
    }
    for (int32_t g = level.head; g >= 0; g = groups_[static_cast<size_t>(g)].next) {
      const Group& group = groups_[static_cast<size_t>(g)];
      CHECK_GT(group.waiting.size, 0);
      for (const Sequence* s = group.waiting.head; s != nullptr; s = s->next, ++waiting) {
        CHECK(s->state == SequenceState::kWaiting);
        CHECK(s->client == group.client && s->group == g && FindGroup(*s) == g);
        CHECK(&levels_[static_cast<size_t>(s->level)] == &level);
        CHECK_GE(std::min(s->deadline_nanos, s->queue_deadline_nanos), next_expiry_nanos_);
      }
    }
  }
  CHECK_EQ(waiting, waiting_);
  CHECK_EQ(preempted, preempted_);
}

}  // namespace stampmill
