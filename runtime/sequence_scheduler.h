// SequenceScheduler: which sequences of one language model go on in a step, and by how many tokens.
// A pure state machine: the same calls make the same batches. It knows no devices and no threads.
//
//   Enqueue -> FormBatch -> (the device computes) -> sampled tokens into the entries -> StepDone
//
// A step hands out tokens until its budget is spent: one to every running sequence that has one to
// go, then blocks of tokens to those that have more, then to those that wait. Running ones are in
// order of level and arrival. Those that wait come in by level; in a level first who ran before,
// then one of each client in turn; and whoever is first in order and does not fit stops the others.
// So nobody starves: the first running sequence is in every step, and the others move up.
//
// A sequence takes blocks of the pool when it needs them. On its way through its prompt it takes
// over what it finds there by hash. Does another running sequence make just that, it waits for it.
// If there is no block left, the last running sequence in order (first of all one that is paused)
// gives all of its back and waits to be computed again; mostly it finds them again. The last one
// itself stays as it is until there are blocks.
//
// Up to two steps may be in flight; they end in order. The second one may compute tokens that the
// first one samples. Whatever leaves during a step, its blocks are not used before that step and
// those formed before have ended.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/block_pool.h"
#include "runtime/sequence.h"

namespace stampmill {

// Tokens of one sequence in one step: positions [first, first + count).
struct StepEntry {
  Sequence* sequence = nullptr;  // null: it has left since
  int32_t first = 0;
  int32_t count = 0;
  int32_t drafts = 0;         // the last so many of them are proposals
  int32_t outputs = 0;        // the last so many of them have their logits in the step's results,
  int32_t outputs_begin = 0;  // from this row on
  bool samples = false;       // its next token is to be sampled, from its last 1 + drafts outputs

  // To be filled before StepDone, if it samples: how many of the drafts hold, and what comes next.
  int32_t accepted = 0;
  int32_t token = 0;
};

// One step, as a program takes it. Valid until a batch is formed after its step has ended.
struct SequenceBatch {
  std::vector<StepEntry> entries;
  // By token, the entries' one after the other. A token that the step before samples is
  // -1 - row, the row of that step's results that it is sampled from.
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> sequences;  // rows of `tables`
  std::vector<int32_t> outputs;    // the tokens whose logits are wanted, ascending
  // [rows, blocks_per_row], the same memory in every step: block i of a sequence's positions. What
  // is beyond the last block of a row has no meaning. Rows change while a step is in flight only
  // behind what it reads.
  std::span<const int32_t> tables;
  int32_t blocks_per_row = 0;
};

// Since the beginning.
struct SequenceCounters {
  uint64_t preemptions = 0;
  // Tokens of sequences that ran for the first time, and those of them found in the cache.
  uint64_t prefix_query_tokens = 0;
  uint64_t prefix_hit_tokens = 0;
};

struct SequenceSchedulerOptions {
  int32_t sequences_max = 1;        // that run
  int32_t waiting_max = 1;          // that wait and have never run
  int32_t levels = 1;               // of priority
  int32_t step_tokens_max = 0;      // REQUIRES: >= sequences_max + kBlockTokens
  int32_t sequence_tokens_max = 0;  // of prompt and answer: the model's context
  int32_t steps_in_flight_max = 1;  // 1 or 2
};

// Owned by one thread, the engine's. Sequences are borrowed from Enqueue until they are taken out.
class SequenceScheduler {
 public:
  // `pool` is borrowed; nobody else takes blocks from it. Its total may be changed while sequences
  // are here, but not below what one of them needs at most (BlocksNeeded).
  SequenceScheduler(const SequenceSchedulerOptions& options, BlockPool* pool);

  // RESOURCE_EXHAUSTED: too many wait. INVALID_ARGUMENT: it can never fit into the pool, or is
  // longer than sequences may be. REQUIRES: a level that there is.
  absl::Status Enqueue(Sequence* sequence);
  // Takes a sequence out, whatever it does; its memory is the caller's again at once. If it is in
  // flight, its entries become empty, and its blocks rest until the step has ended.
  void Remove(Sequence* sequence);

  // A sequence whose deadline, or if it never ran queue deadline, has come, taken out; null when
  // there is none. Looks only when a deadline has come.
  Sequence* TakeExpired(int64_t now);
  // Any sequence, taken out; null when there is none.
  Sequence* TakeAny();
  // When TakeExpired must be called; kNoDeadline: never. Not later than the first deadline.
  int64_t NextDeadline() const;

  // The next step; null when there is nothing to do, or enough is in flight. `tokens_wanted` is the
  // budget: less than step_tokens_max when steps would take too long. A token of every running
  // sequence and a block of tokens of another are computed even if they are more.
  SequenceBatch* FormBatch(int64_t tokens_wanted);
  // The oldest step in flight has ended: sampled tokens are appended to their sequences, the others
  // of its tokens are computed. A sequence that has tokens_max tokens, or no more to sample, does
  // nothing more; it must be removed.
  void StepDone();
  // All steps in flight have ended without results. Their sequences are as before them.
  void StepsFailed();

  bool empty() const { return running_.size == 0 && waiting() == 0; }
  int32_t running() const { return running_.size; }
  int32_t waiting() const { return waiting_ + preempted_; }
  int32_t steps_in_flight() const { return static_cast<int32_t>(formed_ - ended_); }
  const SequenceCounters& counters() const { return counters_; }
  // What a sequence can need at most.
  static int32_t BlocksNeeded(const Sequence& sequence);
  // The blocks of a sequence, in the order of its positions.
  std::span<const int32_t> BlocksOf(const Sequence& sequence) const;
  // CHECK-fails when lists, counts, blocks and the pool do not agree.
  void CheckInvariants() const;

 private:
  // A list through Sequence::next and previous.
  struct List {
    Sequence* head = nullptr;
    Sequence* tail = nullptr;
    int32_t size = 0;
    void InsertBefore(Sequence* place, Sequence* sequence);  // null: at the end
    void Remove(Sequence* sequence);
  };
  // Sequences of one client and level that wait. A ring of groups takes turns.
  struct Group {
    uint64_t client = 0;
    int32_t level = 0;
    List waiting;
    int32_t next = -1, previous = -1;  // in the level; in the free ones
    int32_t next_in_bucket = -1;
  };
  struct Level {
    List preempted;                // by arrival
    int32_t head = -1, tail = -1;  // groups, whose turn it is first
  };
  enum class Admission { kAdmitted, kYields, kDoesNotFit };
  // What of a sequence is in the cache.
  struct Found {
    int32_t blocks = 0;
    int32_t cached = 0;  // of them, those that nobody uses
  };

  SequenceBatch& batch_of(uint64_t step) { return batches_[step % 2]; }
  std::span<int32_t> Row(const Sequence& sequence);
  // By level, then by arrival.
  static bool Before(const Sequence& a, const Sequence& b);

  // Groups.
  int32_t FindGroup(const Sequence& sequence) const;
  size_t BucketOf(uint64_t client, int32_t level) const;
  void AddToGroup(Sequence* sequence);
  void RemoveFromGroup(Sequence* sequence);
  void LinkGroup(int32_t group);  // as the last of its level
  void UnlinkGroup(int32_t group);

  // Tokens that could be computed now, drafts not counted.
  static int32_t TokensToGo(const Sequence& sequence);
  bool MayGoOn(const Sequence& sequence) const;
  // Blocks that a sequence will need for the tokens that are known.
  static int32_t BlocksToGo(const Sequence& sequence);
  // How many blocks at the beginning may be taken from the cache.
  static int32_t ShareableBlocks(const Sequence& sequence);

  // Parts of FormBatch.
  // Gives a running sequence at most so many tokens, as whole blocks but for its last; returns how
  // many.
  int32_t Assign(Sequence& sequence, int64_t tokens);
  // Tells the pool which blocks it fills: others may want what it makes.
  void Announce(const StepEntry& entry);
  // Adds its drafts to the entry just made, as far as there is room without anybody else's loss.
  void AssignDrafts(Sequence& sequence);
  // Takes blocks for the positions before `end`. How far they go.
  int32_t TakeBlocks(Sequence& sequence, int32_t end, bool preempt);
  // Makes the last running sequence behind this one give its blocks back; false when there is none.
  bool PreemptFor(const Sequence& sequence);
  Sequence* VictimFor(const Sequence& sequence) const;
  void Preempt(Sequence* sequence);
  void DropEntry(Sequence& sequence);
  Sequence* NextWaiting();
  Admission Admit(Sequence& sequence);
  // Whether another one makes what this one needs next, and it should wait for that.
  bool Yields(Sequence& sequence, const Found& found);
  bool Fits(const Sequence& sequence, const Found& found) const;
  Found FindPrefix(const Sequence& sequence) const;
  // Takes over the blocks that are found behind those that the sequence has.
  void ShareFound(Sequence& sequence);
  SequenceBatch* FinishBatch();

  // Parts of StepDone.
  void Advance(const StepEntry& entry);
  void EndStep();

  void EnterRunning(Sequence* sequence);
  void LeaveRunning(Sequence* sequence);
  // Out of whatever list it is in.
  void TakeOut(Sequence* sequence);
  void NoteDeadline(const Sequence& sequence);
  // The first sequence, in any order, for which `wanted` is true.
  template <typename F>
  Sequence* FindIf(const F& wanted) const;

  const SequenceSchedulerOptions options_;
  BlockPool& pool_;
  const int32_t blocks_per_row_;

  List running_;
  std::vector<Level> levels_;
  std::vector<Group> groups_;
  std::vector<int32_t> buckets_;  // groups by client and level; chains
  int32_t free_group_ = -1;
  int32_t waiting_ = 0;
  int32_t preempted_ = 0;

  std::vector<int32_t> tables_;
  std::vector<int32_t> free_rows_;
  std::array<std::vector<int32_t>, 2> resting_rows_;  // until the last step, by parity, has ended

  std::array<SequenceBatch, 2> batches_;
  uint64_t formed_ = 0;  // steps
  uint64_t ended_ = 0;
  // While a batch is formed, of step formed_ + 1.
  SequenceBatch* batch_ = nullptr;
  uint64_t round_ = 0;        // of forming a batch, also in vain
  int64_t assigned_ = 0;      // tokens
  int64_t drafts_left_ = 0;   // that the budget has room for
  int32_t owed_ = 0;          // Sequence::owed of all running ones
  int32_t yielding_ = 0;      // sequences
  bool any_paused_ = false;   // of those that run
  bool any_dropped_ = false;  // entry of the batch

  uint64_t arrivals_ = 0;
  int64_t next_expiry_nanos_ = kNoDeadline;  // no deadline is earlier
  SequenceCounters counters_;
};

}  // namespace stampmill
