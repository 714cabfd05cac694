// BlockPool: counts who uses each block of a cache of keys and values. It owns numbers, not memory.
//
// A block is free, or cached (no user, but its content is known by a hash and can be found again),
// or referenced: free + cached + referenced = total, always. What a sequence releases while a step
// is in flight may still be read and written by it: such blocks rest, and count as referenced,
// until that step has ended.
//
// Taken first are free blocks whose memory has been used already, then those whose memory was never
// touched, lowest first, at last the cached block that was released longest ago. Whoever releases
// the blocks of a sequence from the last to the first makes a prefix outlive what follows it.
//
// All operations take constant time, but for Resize; nothing is allocated after construction.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/block_hash.h"

namespace stampmill {

inline constexpr int32_t kNoBlock = -1;

// Owned by one thread, the engine's.
class BlockPool {
 public:
  // Blocks 0 to blocks - 1.
  explicit BlockPool(int32_t blocks);

  // A block with one reference and no hash; kNoBlock when none is available().
  int32_t Take();
  // One more reference to a block that is referenced, or was just found.
  void Retain(int32_t block);
  // One reference less. REQUIRES: the block is referenced.
  void Release(int32_t block);

  // The block with this content; kNoBlock: there is none. It has no further reference by this.
  int32_t Find(const BlockHash& hash) const;
  // A step that is being formed or in flight makes this content.
  bool Announced(const BlockHash& hash) const;

  // The content of a referenced block is being computed: it is Announced as long as somebody has
  // the block. Nothing happens when another block has that hash.
  void Announce(int32_t block, const BlockHash& hash);
  // The content of a referenced block is complete and never changes again: it can be found from now
  // on. Nothing happens when another block of that content can be found.
  void Publish(int32_t block, const BlockHash& hash);

  // Steps end in the order in which they begin; at most two are in flight.
  void BeginStep();
  void EndStep();

  // Makes the total as near to `blocks` as it goes: free and cached blocks can be taken out of use,
  // others not. Returns the new total. At most capacity().
  int32_t Resize(int32_t blocks);
  // A block nobody uses whose memory has been used; from now on it counts as never touched, and
  // the caller gives its memory back. kNoBlock: there is none.
  int32_t TakeUsedMemory();
  // Forgets the content of all cached blocks: they are free.
  void DropCached();

  int32_t capacity() const { return capacity_; }
  int32_t total() const { return total_; }
  int32_t free() const;
  int32_t cached() const { return lists_[kCached].size; }
  int32_t referenced() const { return total_ - free() - cached(); }
  int32_t available() const { return free() + cached(); }
  // Of one block.
  int32_t references(int32_t block) const { return blocks_[Index(block)].references; }
  bool is_cached(int32_t block) const { return blocks_[Index(block)].place == kCached; }

  // CHECK-fails when lists, counts and hashes do not agree.
  void CheckInvariants() const;

 private:
  // Lists that an unreferenced block may be in; kReferenced has no list.
  enum Place : uint8_t {
    kUntouched,  // free, no memory
    kUsed,       // free, with memory
    kCached,
    kResting0,  // until the last step, if even, has ended
    kResting1,
    kOutUntouched,  // not in use
    kOutUsed,
    kReferenced,
  };
  enum HashState : uint8_t { kNoHash, kAnnounced, kPublished };
  struct Block {
    BlockHash hash;
    int32_t references = 0;
    int32_t previous = kNoBlock;
    int32_t next = kNoBlock;
    Place place = kUntouched;
    HashState hash_state = kNoHash;
  };
  struct List {
    int32_t head = kNoBlock;
    int32_t tail = kNoBlock;
    int32_t size = 0;
  };
  static size_t Index(int32_t block) { return static_cast<size_t>(block); }
  // Out of the list that it is in, and to the end of another.
  void Move(int32_t block, Place to);
  // Where a block without references goes.
  Place PlaceOf(const Block& block) const;
  // The block with the hash, in any state.
  int32_t Lookup(const BlockHash& hash) const;
  void SetHash(int32_t block, const BlockHash& hash, HashState state);
  void DropHash(int32_t block);
  bool in_flight() const { return steps_begun_ != steps_ended_; }

  const int32_t capacity_;
  const std::unique_ptr<Block[]> blocks_;
  std::array<List, kReferenced> lists_;
  // Blocks by hash: open addressing, linear probing, at most half full.
  std::vector<int32_t> table_;
  const size_t table_mask_;
  int32_t total_;
  uint64_t steps_begun_ = 0;
  uint64_t steps_ended_ = 0;
};

}  // namespace stampmill
