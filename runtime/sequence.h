// Sequence: the tokens of one text that a language model continues, and how far they are computed.
//
// There is no phase of the prompt and no phase of generation: a sequence has tokens that are known,
// and the keys and values of the first `computed` of them are in the cache. What is between the two
// is work. When all are computed, the next token can be sampled.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/waker.h"
#include "runtime/block_hash.h"

namespace stampmill {

enum class SequenceState : uint8_t {
  kOutside,    // not, or no longer, in a scheduler
  kWaiting,    // has never run
  kPreempted,  // waits to run again
  kRunning,
};

// Made and filled by any thread; from Enqueue to Remove owned by the thread of the scheduler.
struct Sequence {
  // Empties it and makes all the room that it will ever need. REQUIRES: 1 <= prompt.size() <=
  // tokens_max. Tokens of prompt and answer together will be `tokens_max` at most, proposed tokens
  // at once `drafts_max`. `root`: sequences of one root share blocks.
  void Begin(std::span<const int32_t> prompt, int32_t tokens_max, int32_t drafts_max,
             const BlockHash& root);

  // Set by who makes it.
  int32_t level = 0;                           // of priority; 0 is the highest
  uint64_t client = 0;                         // those who wait take turns by client
  int64_t queue_deadline_nanos = kNoDeadline;  // to run for the first time
  int64_t deadline_nanos = kNoDeadline;
  void* context = nullptr;

  // Facts that the owner may change between calls of the scheduler.
  bool waits_for_host = false;  // its next token must be seen before it goes on
  bool paused = false;          // nobody takes its tokens now: it does not go on
  // Proposals for the tokens behind the known ones, for the next step; at most drafts_max. A
  // sequence with drafts behaves as if it waited for the host.
  std::vector<int32_t> drafts;
  // Logits are wanted of the tokens from this one on: by Begin, the last of the prompt. What is
  // found in the cache ends before it.
  int32_t logits_begin = 0;

  // Read by anybody who owns it, changed by the scheduler.
  std::vector<int32_t> tokens;  // the prompt, then what was sampled
  int32_t prompt_size = 0;
  int32_t tokens_max = 0;
  int32_t computed = 0;   // tokens whose keys and values are in the cache
  int32_t scheduled = 0;  // and those that steps in flight compute
  int32_t pending = 0;    // steps in flight that sample for it
  // Tokens that were in the cache when it ran for the first time.
  int32_t cached_at_start = 0;
  int32_t preemptions = 0;
  SequenceState state = SequenceState::kOutside;

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  // Adds the hashes of full blocks that `tokens` has and `hashes` not yet.
  void ExtendHashes();

  // The scheduler's own.
  uint64_t arrival_number = 0;
  BlockHash root;
  std::vector<BlockHash> hashes;  // of the full blocks of `tokens`, as far as they were needed
  int32_t row = -1;               // of the block tables, while it runs
  int32_t blocks = 0;             // in that row
  int32_t published = 0;          // of them, whose content the pool knows
  std::array<int32_t, 2> entries = {-1, -1};  // in the batches in flight; -1: none
  int32_t group = -1;                         // of those of its client and level, while it waits
  uint64_t held_in = 0;                       // the batch that it may not be in
  int32_t owed = 0;                           // blocks that it will need for what is known
  int32_t found = 0;   // blocks found when it last waited for another to make more
  int32_t yields = 0;  // how often it did so since it found more
  Sequence* next = nullptr;
  Sequence* previous = nullptr;
};

}  // namespace stampmill
