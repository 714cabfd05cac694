// Every unreferenced block is in exactly one list, through indices in the blocks themselves.
#include "runtime/block_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace stampmill {

BlockPool::BlockPool(int32_t blocks)
    : capacity_(blocks),
      blocks_(std::make_unique<Block[]>(Index(blocks))),
      table_(std::bit_ceil(std::max(2 * Index(blocks), size_t{2})), kNoBlock),
      table_mask_(table_.size() - 1),
      total_(blocks) {
  for (int32_t block = 0; block < blocks; ++block) {
    blocks_[Index(block)].place = kReferenced;
    Move(block, kUntouched);
  }
}

int32_t BlockPool::free() const { return lists_[kUntouched].size + lists_[kUsed].size; }

void BlockPool::Move(int32_t block, Place to) {
  Block& b = blocks_[Index(block)];
  if (b.place != kReferenced) {
    List& from = lists_[b.place];
    (b.previous != kNoBlock ? blocks_[Index(b.previous)].next : from.head) = b.next;
    (b.next != kNoBlock ? blocks_[Index(b.next)].previous : from.tail) = b.previous;
    --from.size;
  }
  b.place = to;
  b.next = kNoBlock;
  b.previous = kNoBlock;
  if (to == kReferenced) return;
  List& list = lists_[to];
  b.previous = list.tail;
  (list.tail != kNoBlock ? blocks_[Index(list.tail)].next : list.head) = block;
  list.tail = block;
  ++list.size;
}

int32_t BlockPool::Take() {
  for (const Place place : {kUsed, kUntouched, kCached}) {
    const int32_t block = lists_[place].head;
    if (block == kNoBlock) continue;
    DropHash(block);
    Move(block, kReferenced);
    blocks_[Index(block)].references = 1;
    return block;
  }
  return kNoBlock;
}

void BlockPool::Retain(int32_t block) {
  Block& b = blocks_[Index(block)];
  if (b.references++ > 0) return;
  CHECK(b.hash_state == kPublished);
  Move(block, kReferenced);
}

BlockPool::Place BlockPool::PlaceOf(const Block& block) const {
  if (in_flight()) return steps_begun_ % 2 == 0 ? kResting0 : kResting1;
  return block.hash_state == kPublished ? kCached : kUsed;
}

void BlockPool::Release(int32_t block) {
  Block& b = blocks_[Index(block)];
  CHECK(b.references > 0);
  if (--b.references > 0) return;
  if (b.hash_state == kAnnounced) DropHash(block);
  Move(block, PlaceOf(b));
}

void BlockPool::BeginStep() {
  CHECK_LT(steps_begun_ - steps_ended_, 2);
  ++steps_begun_;
}

void BlockPool::EndStep() {
  CHECK(in_flight());
  ++steps_ended_;
  // What was released when this was the last step that had begun.
  const List& resting = lists_[steps_ended_ % 2 == 0 ? kResting0 : kResting1];
  while (resting.head != kNoBlock) {
    const bool published = blocks_[Index(resting.head)].hash_state == kPublished;
    Move(resting.head, published ? kCached : kUsed);
  }
}

int32_t BlockPool::Lookup(const BlockHash& hash) const {
  for (size_t at = hash.low & table_mask_; table_[at] != kNoBlock; at = (at + 1) & table_mask_) {
    if (blocks_[Index(table_[at])].hash == hash) return table_[at];
  }
  return kNoBlock;
}

int32_t BlockPool::Find(const BlockHash& hash) const {
  const int32_t block = Lookup(hash);
  return block != kNoBlock && blocks_[Index(block)].hash_state == kPublished ? block : kNoBlock;
}

bool BlockPool::Announced(const BlockHash& hash) const {
  const int32_t block = Lookup(hash);
  return block != kNoBlock && blocks_[Index(block)].hash_state == kAnnounced;
}

void BlockPool::Announce(int32_t block, const BlockHash& hash) {
  CHECK(references(block) > 0);
  if (blocks_[Index(block)].hash_state != kNoHash || Lookup(hash) != kNoBlock) return;
  SetHash(block, hash, kAnnounced);
}

void BlockPool::Publish(int32_t block, const BlockHash& hash) {
  Block& b = blocks_[Index(block)];
  CHECK(b.references > 0);
  if (b.hash_state != kNoHash) {
    CHECK(b.hash == hash);
    b.hash_state = kPublished;
    return;
  }
  const int32_t other = Lookup(hash);
  if (other != kNoBlock) {
    if (blocks_[Index(other)].hash_state == kPublished) return;
    DropHash(other);  // announced by somebody who is slower
  }
  SetHash(block, hash, kPublished);
}

void BlockPool::SetHash(int32_t block, const BlockHash& hash, HashState state) {
  Block& b = blocks_[Index(block)];
  b.hash = hash;
  b.hash_state = state;
  size_t at = hash.low & table_mask_;
  while (table_[at] != kNoBlock) at = (at + 1) & table_mask_;
  table_[at] = block;
}

void BlockPool::DropHash(int32_t block) {
  Block& b = blocks_[Index(block)];
  if (b.hash_state == kNoHash) return;
  b.hash_state = kNoHash;
  size_t hole = b.hash.low & table_mask_;
  while (table_[hole] != block) hole = (hole + 1) & table_mask_;
  // Those behind it move up as far as their own place lets them, so that no search ends early.
  for (size_t at = (hole + 1) & table_mask_; table_[at] != kNoBlock; at = (at + 1) & table_mask_) {
    const size_t home = blocks_[Index(table_[at])].hash.low & table_mask_;
    if (((at - home) & table_mask_) < ((at - hole) & table_mask_)) continue;
    table_[hole] = table_[at];
    hole = at;
  }
  table_[hole] = kNoBlock;
}

int32_t BlockPool::Resize(int32_t blocks) {
  blocks = std::clamp(blocks, 0, capacity_);
  while (total_ > blocks && available() > 0) {
    // The highest of the untouched ones, so that the lowest are still given out first.
    const bool untouched = lists_[kUntouched].size > 0;
    const int32_t block = untouched                ? lists_[kUntouched].tail
                          : lists_[kUsed].size > 0 ? lists_[kUsed].head
                                                   : lists_[kCached].head;
    DropHash(block);
    Move(block, untouched ? kOutUntouched : kOutUsed);
    --total_;
  }
  while (total_ < blocks) {
    const bool used = lists_[kOutUsed].size > 0;
    Move(used ? lists_[kOutUsed].tail : lists_[kOutUntouched].tail, used ? kUsed : kUntouched);
    ++total_;
  }
  return total_;
}

int32_t BlockPool::TakeUsedMemory() {
  for (const auto [used, untouched] :
       {std::pair(kUsed, kUntouched), std::pair(kOutUsed, kOutUntouched)}) {
    const int32_t block = lists_[used].head;
    if (block == kNoBlock) continue;
    Move(block, untouched);
    return block;
  }
  return kNoBlock;
}

void BlockPool::DropCached() {
  while (lists_[kCached].head != kNoBlock) {
    const int32_t block = lists_[kCached].head;
    DropHash(block);
    Move(block, kUsed);
  }
}

void BlockPool::CheckInvariants() const {
  int32_t listed = 0;
  for (size_t place = 0; place < lists_.size(); ++place) {
    int32_t size = 0, before = kNoBlock;
    for (int32_t block = lists_[place].head; block != kNoBlock;
         before = block, block = blocks_[Index(block)].next) {
      CHECK_EQ(blocks_[Index(block)].place, place);
      CHECK_EQ(blocks_[Index(block)].previous, before);
      ++size;
    }
    CHECK_EQ(lists_[place].tail, before);
    CHECK_EQ(lists_[place].size, size);
    listed += size;
  }
  int32_t hashed = 0, taken = 0;
  for (int32_t block = 0; block < capacity_; ++block) {
    const Block& b = blocks_[Index(block)];
    CHECK_EQ(b.references > 0, b.place == kReferenced);
    CHECK(b.place != kCached || b.hash_state == kPublished);
    CHECK(b.hash_state == kNoHash || b.place == kCached || b.place == kResting0 ||
          b.place == kResting1 || b.place == kReferenced);
    CHECK(b.hash_state != kAnnounced || b.place == kReferenced);
    if (b.hash_state != kNoHash) {
      ++hashed;
      CHECK_EQ(Lookup(b.hash), block);
    }
    taken += b.place == kReferenced;
  }
  CHECK_EQ(hashed, std::ranges::count_if(table_, [](int32_t b) { return b != kNoBlock; }));
  CHECK_EQ(taken + listed, capacity_);
  const int32_t resting = lists_[kResting0].size + lists_[kResting1].size;
  CHECK(in_flight() || resting == 0);
  CHECK_EQ(lists_[kOutUntouched].size + lists_[kOutUsed].size, capacity_ - total_);
  CHECK_EQ(free() + cached() + taken + resting, total_);
}

}  // namespace stampmill
