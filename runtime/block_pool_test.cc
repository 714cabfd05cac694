#include "runtime/block_pool.h"

#include <array>
#include <iterator>
#include <map>
#include <random>

#include "gtest/gtest.h"

namespace stampmill {
namespace {

constexpr BlockHash kA = {.low = 1, .high = 1}, kB = {.low = 1, .high = 2}, kC = {.low = 9};

// A published block that nobody uses.
int32_t AddCached(BlockPool& pool, const BlockHash& hash) {
  const int32_t block = pool.Take();
  pool.Publish(block, hash);
  pool.Release(block);
  return block;
}

TEST(BlockHashTest, DependsOnEveryTokenOnTheParentAndOnTheRoot) {
  std::array<int32_t, kBlockTokens> tokens = {};
  const BlockHash root = RootHash(1, "");
  const BlockHash first = ChainHash(root, tokens);
  EXPECT_EQ(first, ChainHash(root, tokens));
  EXPECT_NE(first, ChainHash(first, tokens));
  EXPECT_NE(first, ChainHash(RootHash(2, ""), tokens));
  EXPECT_NE(first, ChainHash(RootHash(1, "salt"), tokens));
  for (int32_t& token : tokens) {
    token = 1;
    EXPECT_NE(first, ChainHash(root, tokens));
    token = 0;
  }
}

TEST(BlockPoolTest, GivesOutUntouchedBlocksLowestFirstAndUsedOnesBeforeThem) {
  BlockPool pool(4);
  EXPECT_EQ(pool.Take(), 0);
  EXPECT_EQ(pool.Take(), 1);
  pool.Release(0);
  EXPECT_EQ(pool.Take(), 0);
  EXPECT_EQ(pool.Take(), 2);
  EXPECT_EQ(pool.Take(), 3);
  EXPECT_EQ(pool.Take(), kNoBlock);
  EXPECT_EQ(pool.referenced(), 4);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, AReleasedBlockIsFoundUntilItIsReused) {
  BlockPool pool(1);
  const int32_t block = AddCached(pool, kA);
  EXPECT_EQ(pool.cached(), 1);
  EXPECT_EQ(pool.available(), 1);
  EXPECT_EQ(pool.Find(kA), block);
  EXPECT_EQ(pool.Find(kB), kNoBlock);
  EXPECT_EQ(pool.Take(), block);
  EXPECT_EQ(pool.Find(kA), kNoBlock);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, AFoundBlockIsSharedAndLivesUntilTheLastReference) {
  BlockPool pool(2);
  const int32_t block = AddCached(pool, kA);
  pool.Retain(pool.Find(kA));
  pool.Retain(pool.Find(kA));
  EXPECT_EQ(pool.references(block), 2);
  EXPECT_NE(pool.Take(), block);
  EXPECT_EQ(pool.Take(), kNoBlock);
  pool.Release(block);
  EXPECT_EQ(pool.Take(), kNoBlock);
  pool.Release(block);
  EXPECT_EQ(pool.Take(), block);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, EvictsOldestUnreferencedBlockFirst) {
  BlockPool pool(3);
  std::array<int32_t, 3> blocks = {pool.Take(), pool.Take(), pool.Take()};
  const std::array<BlockHash, 3> hashes = {kA, kB, kC};
  for (size_t i = 0; i < 3; ++i) pool.Publish(blocks[i], hashes[i]);
  // The blocks of a sequence: the last one first.
  for (size_t i = 3; i-- > 0;) pool.Release(blocks[i]);
  EXPECT_EQ(pool.Take(), blocks[2]);
  EXPECT_EQ(pool.Find(kC), kNoBlock);
  EXPECT_EQ(pool.Find(kA), blocks[0]);
  // Used once more, the second outlives the first.
  pool.Retain(blocks[1]);
  pool.Release(blocks[1]);
  EXPECT_EQ(pool.Take(), blocks[0]);
  EXPECT_EQ(pool.Find(kB), blocks[1]);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, TheFirstOfTwoBlocksOfOneContentIsFound) {
  BlockPool pool(2);
  const int32_t first = pool.Take(), second = pool.Take();
  pool.Publish(first, kA);
  pool.Publish(second, kA);
  EXPECT_EQ(pool.Find(kA), first);
  pool.Release(second);
  EXPECT_EQ(pool.free(), 1);  // not cached: its content is elsewhere
  pool.CheckInvariants();
}

TEST(BlockPoolTest, AnAnnouncedBlockIsNotFoundAndForgottenWhenItIsReleased) {
  BlockPool pool(2);
  int32_t block = pool.Take();
  pool.Announce(block, kA);
  EXPECT_TRUE(pool.Announced(kA));
  EXPECT_EQ(pool.Find(kA), kNoBlock);
  pool.Release(block);
  EXPECT_FALSE(pool.Announced(kA));
  EXPECT_EQ(pool.cached(), 0);
  block = pool.Take();
  pool.Announce(block, kA);
  pool.Publish(block, kA);
  EXPECT_FALSE(pool.Announced(kA));
  EXPECT_EQ(pool.Find(kA), block);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, WhoIsFasterTakesTheHashFromWhoAnnouncedIt) {
  BlockPool pool(2);
  const int32_t slow = pool.Take(), fast = pool.Take();
  pool.Announce(slow, kA);
  pool.Publish(fast, kA);
  EXPECT_EQ(pool.Find(kA), fast);
  pool.Publish(slow, kA);
  EXPECT_EQ(pool.Find(kA), fast);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, WhatIsReleasedDuringAStepRestsUntilItEnds) {
  BlockPool pool(2);
  const int32_t a = pool.Take(), b = pool.Take();
  pool.Publish(b, kB);
  pool.BeginStep();
  pool.Release(a);
  pool.Release(b);
  EXPECT_EQ(pool.referenced(), 2);
  EXPECT_EQ(pool.Take(), kNoBlock);
  pool.CheckInvariants();
  // Its content may be read, though.
  EXPECT_EQ(pool.Find(kB), b);
  pool.Retain(b);
  pool.EndStep();
  EXPECT_EQ(pool.free(), 1);
  pool.Release(b);
  EXPECT_EQ(pool.cached(), 1);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, BlocksRestForTheLastStepThatHadBegun) {
  BlockPool pool(2);
  const int32_t a = pool.Take(), b = pool.Take();
  pool.BeginStep();
  pool.Release(a);
  pool.BeginStep();
  pool.Release(b);
  EXPECT_EQ(pool.free(), 0);
  pool.EndStep();
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.Take(), a);
  pool.EndStep();
  EXPECT_EQ(pool.Take(), b);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, ShrinksByWhatNobodyUsesAndGrowsAgain) {
  BlockPool pool(4);
  const int32_t used = pool.Take();
  AddCached(pool, kA);
  EXPECT_EQ(pool.Resize(2), 2);
  EXPECT_NE(pool.Find(kA), kNoBlock);  // free ones go first
  EXPECT_EQ(pool.Resize(0), 1);        // but for the one in use
  EXPECT_EQ(pool.Find(kA), kNoBlock);
  EXPECT_EQ(pool.available(), 0);
  pool.CheckInvariants();
  EXPECT_EQ(pool.Resize(100), 4);
  pool.Release(used);
  EXPECT_EQ(pool.free(), 4);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, TellsWhoseMemoryIsNotNeeded) {
  BlockPool pool(4);
  const int32_t used = pool.Take();
  const int32_t cached = AddCached(pool, kA);
  pool.Release(used);
  EXPECT_EQ(pool.TakeUsedMemory(), used);
  EXPECT_EQ(pool.TakeUsedMemory(), kNoBlock);  // the cached one is worth its memory
  pool.DropCached();
  EXPECT_EQ(pool.Find(kA), kNoBlock);
  EXPECT_EQ(pool.free(), 4);
  EXPECT_EQ(pool.Resize(0), 0);
  EXPECT_EQ(pool.TakeUsedMemory(), cached);  // also of blocks out of use
  EXPECT_EQ(pool.TakeUsedMemory(), kNoBlock);
  pool.CheckInvariants();
}

// All operations at random against counts and hashes that are kept apart, with hashes that collide
// in the table.
TEST(BlockPoolTest, AgreesWithASimpleModelInRandomHistories) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    BlockPool pool(static_cast<int32_t>(1 + random() % 20));
    std::map<int32_t, int> references;
    std::map<int32_t, BlockHash> published;
    const auto any = [&] { return std::next(references.begin(), random() % references.size()); };
    for (int i = 0; i < 500; ++i) {
      const BlockHash hash = {.low = random() % 4, .high = random() % 8};
      switch (random() % 6) {
        case 0:
          if (const int32_t block = pool.Take(); block != kNoBlock) {
            EXPECT_FALSE(references.contains(block));
            references[block] = 1;
            published.erase(block);
          } else {
            EXPECT_EQ(pool.referenced(), pool.total());
          }
          break;
        case 1:
        case 2:
          if (references.empty()) break;
          if (const auto it = any(); pool.Release(it->first), --it->second == 0) {
            references.erase(it);
          }
          break;
        case 3:
          if (references.empty() || pool.Find(hash) != kNoBlock) break;
          if (const int32_t block = any()->first; !published.contains(block)) {
            pool.Publish(block, hash);
            published[block] = hash;
          }
          break;
        case 4:
          if (const int32_t block = pool.Find(hash); block != kNoBlock) {
            EXPECT_EQ(published[block], hash);
            pool.Retain(block);
            ++references[block];
          }
          break;
        case 5:
          if (random() % 8 == 0) pool.Resize(static_cast<int32_t>(random() % 24));
          break;
      }
      pool.CheckInvariants();
      EXPECT_EQ(pool.referenced(), static_cast<int32_t>(references.size()));
      for (const auto& [block, count] : references) {
        EXPECT_EQ(pool.references(block), count);
        if (published.contains(block)) EXPECT_EQ(pool.Find(published[block]), block);
      }
    }
  }
}

}  // namespace
}  // namespace stampmill
