#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "memory/block_pool.h"
#include "memory/host_tier.h"
#include "memory/page_pool.h"
#include "memory/prefix_index.h"
#include "memory/residency.h"

namespace shoal {
namespace {

std::set<uint32_t> page_set(std::span<const PageRun> runs) {
  std::set<uint32_t> pages;
  for (const PageRun& run : runs) {
    for (uint32_t i = 0; i < run.count; ++i) EXPECT_TRUE(pages.insert(run.first.value + i).second);
  }
  return pages;
}

// ---- pages ----------------------------------------------------------------------------------------------------------

TEST(PagePool, GivesTheSmallestRunThatFits) {
  PagePool pool(10);
  const auto a = *pool.allocate(3), b = *pool.allocate(2), c = *pool.allocate(5);
  pool.release(a);
  pool.release(c);  // free: [0,3) and [5,10)
  EXPECT_EQ(pool.allocate(3), (std::vector<PageRun>{{PageId(0), 3}}));
}

TEST(PagePool, JoinsRunsOnlyWhenNoSingleOneFits) {
  PagePool pool(10);
  const auto a = *pool.allocate(3), b = *pool.allocate(4), c = *pool.allocate(3);
  pool.release(a);
  pool.release(c);
  const auto joined = *pool.allocate(5);
  EXPECT_EQ(page_count(joined), 5u);
  EXPECT_EQ(joined.size(), 2u);
}

TEST(PagePool, RefusesMoreThanIsFreeAndStaysWhole) {
  PagePool pool(4);
  EXPECT_FALSE(pool.allocate(5).has_value());
  EXPECT_EQ(pool.free(), 4u);
  EXPECT_TRUE(pool.allocate(0)->empty());
}

TEST(PagePool, AgreesWithASetOfPagesUnderRandomOperations) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    const auto capacity = static_cast<uint32_t>(1 + rng.below(64));
    PagePool pool(capacity);
    std::set<uint32_t> naive_used;
    std::vector<std::vector<PageRun>> held;
    for (int step = 0; step < 400; ++step) {
      if (held.empty() || rng.chance(0.55)) {
        const auto count = static_cast<uint32_t>(rng.below(capacity / 2 + 2));
        const auto runs = pool.allocate(count);
        ASSERT_EQ(runs.has_value(), count <= capacity - naive_used.size());
        if (!runs) continue;
        const auto pages = page_set(*runs);
        ASSERT_EQ(pages.size(), count);
        for (const uint32_t page : pages) ASSERT_TRUE(page < capacity && naive_used.insert(page).second);
        held.push_back(*runs);
      } else {
        const size_t victim = rng.below(held.size());
        for (const uint32_t page : page_set(held[victim])) naive_used.erase(page);
        pool.release(held[victim]);
        held.erase(held.begin() + static_cast<int64_t>(victim));
      }
      pool.check();
      ASSERT_EQ(pool.free(), capacity - naive_used.size());
    }
  }
}

TEST(PagePoolDeathTest, ReleasingAFreePageIsABrokenInvariant) {
  PagePool pool(4);
  const auto runs = *pool.allocate(2);
  pool.release(runs);
  EXPECT_DEATH(pool.release(runs), "invariant broken");
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

TEST(BlockPool, SlabsWasteLittleAndStaySmall) {
  for (uint64_t bytes : {4096ull, 61440ull, 299592ull, 917504ull, 2097152ull, 3145728ull, 13107200ull}) {
    const uint32_t pages = slab_pages_for(bytes);
    EXPECT_GE(pages * kPageBytes, bytes);
    EXPECT_LE(pages, bytes / kPageBytes + 9);
    EXPECT_LE((pages * kPageBytes) % bytes, pages * kPageBytes / 5) << bytes;
  }
}

TEST(BlockPool, AnEmptySlabGoesBackAtOnce) {
  PagePool pages(4);
  BlockPool blocks(pages, kPageBytes / 2);
  const BlockId a = *blocks.allocate(), b = *blocks.allocate(), c = *blocks.allocate();
  EXPECT_EQ(blocks.slabs_bound(), 2u);
  const auto bound = blocks.take_changes();
  ASSERT_EQ(bound.size(), 2u);
  EXPECT_TRUE(bound[0].bound && bound[1].bound);
  blocks.release(c);
  EXPECT_EQ(pages.free(), 3u);
  blocks.release(a);
  EXPECT_EQ(pages.free(), 3u);
  blocks.release(b);
  EXPECT_EQ(pages.free(), 4u);
  const auto changes = blocks.take_changes();
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_TRUE(!changes[0].bound && !changes[1].bound);
}

// Whoever performs changes may then take all releases first: none of them is of pages that came in the same breath.
TEST(BlockPool, ASlabThatComesAndGoesBetweenTwoLooksIsNoChange) {
  PagePool pages(2);
  BlockPool blocks(pages, kPageBytes);
  const BlockId old = *blocks.allocate();
  (void)blocks.take_changes();
  blocks.release(*blocks.allocate());
  EXPECT_TRUE(blocks.take_changes().empty());
  blocks.release(old);
  const BlockId again = *blocks.allocate();  // in the place of the one that went
  blocks.release(again);
  const auto changes = blocks.take_changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_FALSE(changes[0].bound);
}

TEST(BlockPool, FillsTheFullestSlabSoThatOthersCanDrain) {
  PagePool pages(4);
  BlockPool blocks(pages, kPageBytes / 4);
  std::vector<BlockId> all;
  for (int i = 0; i < 8; ++i) all.push_back(*blocks.allocate());
  for (int i = 0; i < 3; ++i) blocks.release(all[i]);  // slab 0: one used
  blocks.release(all[7]);                              // slab 1: three used
  const BlockId next = *blocks.allocate();
  EXPECT_EQ(next.value / 4, 1u);
}

TEST(BlockPool, TwoShapeClassesShareThePages) {
  PagePool pages(2);
  BlockPool small(pages, kPageBytes / 4), large(pages, kPageBytes);
  const BlockId a = *small.allocate(), b = *large.allocate();
  EXPECT_FALSE(large.allocate().has_value());
  EXPECT_EQ(small.obtainable(), 3u);
  small.release(a);
  EXPECT_EQ(large.obtainable(), 1u);
  large.release(b);
}

TEST(BlockPool, AgreesWithCountsUnderRandomOperations) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    PagePool pages(1 + static_cast<uint32_t>(rng.below(20)));
    const uint64_t sizes[] = {kPageBytes / 2, kPageBytes / 3, kPageBytes * 3 / 2, kPageBytes};
    BlockPool blocks(pages, sizes[rng.below(4)]);
    std::map<uint32_t, uint32_t> naive;  // block -> count
    std::map<uint32_t, bool> bound;
    for (int step = 0; step < 500; ++step) {
      const uint64_t kind = rng.below(3);
      if (kind == 0) {
        const uint32_t obtainable = blocks.obtainable();
        const auto block = blocks.allocate();
        ASSERT_EQ(block.has_value(), obtainable > 0);
        if (block) {
          ASSERT_FALSE(naive.contains(block->value));
          naive[block->value] = 1;
        }
      } else if (!naive.empty()) {
        auto it = naive.begin();
        std::advance(it, rng.below(naive.size()));
        if (kind == 1) {
          blocks.share(BlockId(it->first));
          ++it->second;
        } else {
          blocks.release(BlockId(it->first));
          if (--it->second == 0) naive.erase(it);
        }
      }
      for (const SlabChange& change : blocks.take_changes()) {
        ASSERT_NE(bound[change.slab], change.bound);
        bound[change.slab] = change.bound;
      }
      blocks.check();
      pages.check();
      ASSERT_EQ(blocks.used(), naive.size());
      ASSERT_EQ(blocks.pages_bound() + pages.free(), pages.capacity());
      for (const auto& [block, count] : naive) {
        ASSERT_EQ(blocks.count(BlockId(block)), count);
        ASSERT_TRUE(bound[block / blocks.blocks_per_slab()]);
      }
    }
  }
}

// ---- prefixes -------------------------------------------------------------------------------------------------------

std::vector<TokenId> tokens_of(uint32_t seed, uint32_t blocks) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < blocks * kTokensPerBlock; ++i) tokens.push_back(static_cast<TokenId>(seed * 1000 + i));
  return tokens;
}

// Publishes a chain of blocks as a sequence would, and gives up the sequence's counts.
void publish(BlockPool& blocks, PrefixIndex& index, const std::vector<TokenId>& tokens, uint64_t salt = 0) {
  PrefixEntry entry = PrefixIndex::root(salt);
  std::vector<BlockId> held;
  for (uint32_t i = 0; i < tokens.size() / kTokensPerBlock; ++i) {
    held.push_back(*blocks.allocate());
    entry = index.publish(entry, std::span(tokens).subspan(i * kTokensPerBlock, kTokensPerBlock), held.back());
  }
  while (!held.empty()) {
    index.release(held.back());
    held.pop_back();
  }
}

TEST(PrefixIndex, FindsTheLongestChainOfWholeBlocks) {
  PagePool pages(8);
  BlockPool blocks(pages, kPageBytes / 4);
  PrefixIndex index(blocks);
  auto tokens = tokens_of(1, 3);
  publish(blocks, index, tokens);
  tokens.resize(2 * kTokensPerBlock + 5);
  auto match = index.acquire(PrefixIndex::root(0), tokens, 10);
  EXPECT_EQ(match.blocks.size(), 2u);
  EXPECT_EQ(index.evictable(), 1u);
  for (const BlockId block : match.blocks) index.release(block);
  EXPECT_EQ(index.evictable(), 3u);
  index.check();
}

TEST(PrefixIndex, TheSameBlockAfterAnotherPrefixIsAnotherBlock) {
  PagePool pages(8);
  BlockPool blocks(pages, kPageBytes / 4);
  PrefixIndex index(blocks);
  const auto a = tokens_of(1, 1), shared = tokens_of(2, 1), b = tokens_of(3, 1);
  std::vector<TokenId> ab = a, cb = b;
  ab.insert(ab.end(), shared.begin(), shared.end());
  cb.insert(cb.end(), shared.begin(), shared.end());
  publish(blocks, index, ab);
  EXPECT_EQ(index.probe(PrefixIndex::root(0), cb, 10).blocks, 0u);
  publish(blocks, index, cb);
  EXPECT_EQ(index.size(), 4u);
}

// Blocks of a state, of which the caller has one count each.
std::vector<BlockId> state_of(BlockPool& blocks) { return {*blocks.allocate(), *blocks.allocate()}; }

TEST(PrefixIndex, AChainIsOfUseUpToTheLastState) {
  PagePool pages(8);
  BlockPool blocks(pages, kPageBytes / 4);
  PrefixIndex index(blocks, /*state_blocks=*/2, /*states_max=*/2);
  std::vector<TokenId> tokens(64, 7);
  PrefixEntry entry = PrefixIndex::root(0);
  std::vector<PrefixEntry> entries;
  for (int i = 0; i < 4; ++i) {
    const BlockId block = *blocks.allocate();
    entry = index.publish(entry, std::span<const TokenId>(tokens).subspan(16 * i, 16), block);
    entries.push_back(entry);
    index.release(block);
  }
  EXPECT_EQ(index.probe(PrefixIndex::root(0), tokens, 10).blocks, 0u);
  index.keep_state(entries[1], 16, state_of(blocks), 32);
  EXPECT_EQ(index.evictable(), 4u + 2u);
  const PrefixIndex::Probe probe = index.probe(PrefixIndex::root(0), tokens, 10);
  EXPECT_EQ(probe.blocks, 2u);
  EXPECT_EQ(probe.evictable, 2u + 2u);
  auto match = index.acquire(PrefixIndex::root(0), tokens, 10);
  EXPECT_EQ(match.blocks.size(), 2u);
  ASSERT_EQ(match.state.size(), 2u);
  EXPECT_EQ(blocks.count(match.state[0]), 2u);
  EXPECT_EQ(index.evictable(), 2u);
  {
    const auto reader = index.acquire(PrefixIndex::root(0), tokens, 10);
    for (const BlockId block : reader.blocks) index.release(block);
    index.release_state(reader.state);
  }
  EXPECT_EQ(index.evictable(), 2u) << "somebody reads it still";
  index.check();
  index.keep_state(entries[1], 16, state_of(blocks), 32);  // there is one: these come free
  index.keep_state(entries[3], 16, state_of(blocks), 64);
  index.keep_state(entries[2], 16, state_of(blocks), 16);  // the least worth goes, also while somebody reads it
  EXPECT_EQ(index.states(), 2u);
  EXPECT_EQ(index.probe(PrefixIndex::root(0), tokens, 2).blocks, 0u);
  EXPECT_EQ(blocks.count(match.state[0]), 1u);
  index.check();
  for (const BlockId block : match.blocks) index.release(block);
  index.release_state(match.state);
  EXPECT_EQ(index.evictable(), 4u + 2 * 2u);
  index.check();
  index.evict_all();
  EXPECT_EQ(pages.free(), 8u);
}

// A state within a block, and one within a block that never was full.
TEST(PrefixIndex, AChainIsOfUseUpToAStateWithinABlock) {
  PagePool pages(8);
  BlockPool blocks(pages, kPageBytes / 4);
  PrefixIndex index(blocks, /*state_blocks=*/1, /*states_max=*/40);
  const PrefixEntry root = PrefixIndex::root(0);
  std::vector<TokenId> tokens(40);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto part = [&](size_t begin, size_t count) { return std::span<const TokenId>(tokens).subspan(begin, count); };
  const auto add = [&](PrefixEntry parent, std::span<const TokenId> of) {
    const BlockId block = *blocks.allocate();
    const PrefixEntry entry = of.size() == kTokensPerBlock ? index.publish(parent, of, block) : index.publish_part(parent, of, block);
    index.release(block);
    return std::pair(entry, block);
  };
  const auto [first, first_block] = add(root, part(0, 16));
  const auto [second, second_block] = add(first, part(16, 16));
  const auto [third, third_block] = add(second, part(32, 5));
  index.keep_state(first, 10, {*blocks.allocate()}, 10);
  index.keep_state(second, 3, {*blocks.allocate()}, 9);
  index.keep_state(third, 5, {*blocks.allocate()}, 18);
  index.check();
  const auto found = [&](size_t count) {
    const PrefixIndex::Probe probe = index.probe(root, part(0, count), 10);
    return std::pair(probe.blocks, probe.tail);
  };
  EXPECT_EQ(found(9), std::pair(0u, 0u));
  EXPECT_EQ(found(10), std::pair(0u, 10u));
  EXPECT_EQ(found(18), std::pair(0u, 10u));
  EXPECT_EQ(found(19), std::pair(1u, 3u));
  EXPECT_EQ(found(36), std::pair(1u, 3u));
  EXPECT_EQ(found(37), std::pair(2u, 5u));
  EXPECT_EQ(found(40), std::pair(2u, 5u));
  EXPECT_EQ(index.probe(root, part(0, 40), 10).evictable, 2u + 1 + 1);
  EXPECT_EQ(index.probe(root, part(0, 40), 0).tail, 0u) << "nothing may be shared";
  EXPECT_EQ(index.probe(root, part(0, 40), 1).tail, 3u);
  tokens[20] = 7;  // within the second block, behind its state
  EXPECT_EQ(found(40), std::pair(1u, 3u));
  tokens[18] = 7;
  EXPECT_EQ(found(40), std::pair(0u, 10u));
  tokens[18] = 18, tokens[20] = 20;

  auto match = index.acquire(root, part(0, 40), 10);
  EXPECT_EQ(match.blocks, std::vector<BlockId>({first_block, second_block}));
  EXPECT_EQ(match.tail_block, third_block);
  EXPECT_EQ(match.tail, 5u);
  EXPECT_EQ(index.evictable(), 2u) << "the other two states";
  index.check();
  while (index.evict_one()) {
  }
  EXPECT_EQ(index.states(), 0u) << "also that which is read: its reader has it";
  EXPECT_EQ(index.size(), 3u);
  index.check();
  for (const BlockId block : match.blocks) index.release(block);
  index.release(*match.tail_block);
  index.release_state(match.state);
  index.evict_all();
  EXPECT_EQ(pages.free(), 8u);
}

TEST(PrefixIndex, TooManyStatesWithinBlocksAfterOnePrefixReplaceOneAnother) {
  PagePool pages(64);
  BlockPool blocks(pages, kPageBytes / 4);
  PrefixIndex index(blocks, 1, 200);
  for (TokenId id = 0; id < 100; ++id) {
    const std::vector<TokenId> tokens = {id, id};
    const BlockId block = *blocks.allocate();
    index.keep_state(index.publish_part(PrefixIndex::root(0), tokens, block), 2, {*blocks.allocate()}, 2);
    index.release(block);
    index.check();
  }
  EXPECT_EQ(index.states(), 32u);
  const std::vector<TokenId> oldest(17, 0), latest(17, 99);
  EXPECT_EQ(index.probe(PrefixIndex::root(0), oldest, 1).tail, 0u);
  EXPECT_EQ(index.probe(PrefixIndex::root(0), latest, 1).tail, 2u);
  index.evict_all();
  EXPECT_EQ(pages.free(), 64u);
}

TEST(PrefixIndex, SaltedSequencesDoNotShare) {
  PagePool pages(8);
  BlockPool blocks(pages, kPageBytes / 4);
  PrefixIndex index(blocks);
  const auto tokens = tokens_of(1, 2);
  publish(blocks, index, tokens, 77);
  EXPECT_EQ(index.probe(PrefixIndex::root(0), tokens, 10).blocks, 0u);
  EXPECT_EQ(index.probe(PrefixIndex::root(77), tokens, 10).blocks, 2u);
}

TEST(PrefixIndex, TheLeastRecentlyUsedTailGoesFirst) {
  PagePool pages(8);
  BlockPool blocks(pages, kPageBytes / 4);
  PrefixIndex index(blocks);
  const auto old = tokens_of(1, 2), young = tokens_of(2, 2);
  publish(blocks, index, old);
  publish(blocks, index, young);
  ASSERT_TRUE(index.evict_one());
  EXPECT_EQ(index.probe(PrefixIndex::root(0), old, 10).blocks, 1u);
  EXPECT_EQ(index.probe(PrefixIndex::root(0), young, 10).blocks, 2u);
}

TEST(PrefixIndex, NothingHeldByASequenceIsEvicted) {
  PagePool pages(8);
  BlockPool blocks(pages, kPageBytes / 4);
  PrefixIndex index(blocks);
  const auto tokens = tokens_of(1, 2);
  publish(blocks, index, tokens);
  const auto match = index.acquire(PrefixIndex::root(0), tokens, 10);
  EXPECT_FALSE(index.evict_one());
  for (const BlockId block : match.blocks) index.release(block);
  index.evict_all();
  EXPECT_EQ(blocks.used(), 0u);
  EXPECT_EQ(pages.free(), 8u);
}

TEST(PrefixIndex, AnOrphanedChainIsNotFoundAndIsEvictedLater) {
  PagePool pages(8);
  BlockPool blocks(pages, kPageBytes / 4);
  PrefixIndex index(blocks);
  const auto tokens = tokens_of(1, 2);
  // The head is released before its tail, so that it is evicted first.
  const BlockId head = *blocks.allocate(), tail = *blocks.allocate();
  const PrefixEntry entry = index.publish(PrefixIndex::root(0), std::span(tokens).first(kTokensPerBlock), head);
  index.publish(entry, std::span(tokens).last(kTokensPerBlock), tail);
  index.release(head);
  index.release(tail);
  ASSERT_TRUE(index.evict_one());
  EXPECT_EQ(index.probe(PrefixIndex::root(0), tokens, 10).blocks, 0u);
  publish(blocks, index, tokens);  // a fresh chain: the orphan must not be taken for its second block
  EXPECT_EQ(index.probe(PrefixIndex::root(0), tokens, 10).blocks, 2u);
  EXPECT_EQ(index.size(), 3u);
  index.evict_all();
  EXPECT_EQ(pages.free(), 8u);
}

TEST(PrefixIndex, AgreesWithAMapOfPrefixesUnderRandomOperations) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    PagePool pages(16);
    BlockPool blocks(pages, kPageBytes / 4);
    PrefixIndex index(blocks);
    std::set<std::vector<TokenId>> naive;  // prefixes whose whole chain was published; evictions only shrink what is found
    std::vector<std::vector<BlockId>> held;
    for (int step = 0; step < 300; ++step) {
      std::vector<TokenId> tokens;
      for (uint64_t n = 1 + rng.below(3); n > 0; --n) {
        const auto part = tokens_of(static_cast<uint32_t>(rng.below(3)), 1);
        tokens.insert(tokens.end(), part.begin(), part.end());
      }
      const uint64_t kind = rng.below(4);
      if (kind == 0 && blocks.obtainable() > 3) {
        publish(blocks, index, tokens);
        for (size_t n = kTokensPerBlock; n <= tokens.size(); n += kTokensPerBlock) {
          naive.insert({tokens.begin(), tokens.begin() + static_cast<int64_t>(n)});
        }
      } else if (kind == 1) {
        const auto match = index.acquire(PrefixIndex::root(0), tokens, 10);
        for (size_t n = 1; n <= match.blocks.size(); ++n) {
          ASSERT_TRUE(naive.contains({tokens.begin(), tokens.begin() + static_cast<int64_t>(n * kTokensPerBlock)}));
        }
        held.push_back(match.blocks);
      } else if (kind == 2 && !held.empty()) {
        for (const BlockId block : held.back()) index.release(block);
        held.pop_back();
      } else if (kind == 3) {
        index.evict_one();
      }
      index.check();
      blocks.check();
    }
    for (const auto& chain : held) {
      for (const BlockId block : chain) index.release(block);
    }
    index.evict_all();
    EXPECT_EQ(pages.free(), 16u) << "seed " << seed;
  }
}

// ---- weights --------------------------------------------------------------------------------------------------------

TEST(Residency, PagesAreHeldWhileLoadingAndResident) {
  PagePool pages(10);
  Residency residency(pages);
  residency.add_model(ModelId(1), 4);
  ASSERT_TRUE(residency.begin_load(ModelId(1)).has_value());
  EXPECT_EQ(residency.state(ModelId(1)), WeightsState::kLoading);
  EXPECT_EQ(pages.free(), 6u);
  residency.finish_load(ModelId(1), Residency::LoadEnd::kDone, TimePoint{});
  residency.check();
  residency.drop(ModelId(1));
  EXPECT_EQ(pages.free(), 10u);
  residency.check();
}

TEST(Residency, AFailedLoadLeavesNothingBehind) {
  PagePool pages(10);
  Residency residency(pages);
  residency.add_model(ModelId(1), 4);
  residency.begin_load(ModelId(1));
  residency.finish_load(ModelId(1), Residency::LoadEnd::kFailed, TimePoint{});
  EXPECT_EQ(residency.state(ModelId(1)), WeightsState::kOnDisk);
  EXPECT_EQ(pages.free(), 10u);
}

TEST(Residency, ALoadThatDoesNotFitTakesNothing) {
  PagePool pages(3);
  Residency residency(pages);
  residency.add_model(ModelId(1), 4);
  EXPECT_FALSE(residency.begin_load(ModelId(1)).has_value());
  EXPECT_EQ(residency.state(ModelId(1)), WeightsState::kOnDisk);
  residency.check();
}

// ---- the host tier ----------------------------------------------------------------------------------------------------

TEST(HostTier, ShapeClassesShareItsPagesWithinTheBudget) {
  HostTier tier(2);
  BlockPool& small = *tier.blocks(kPageBytes / 4);
  BlockPool& large = *tier.blocks(kPageBytes);
  const BlockId a = *small.allocate(), b = *large.allocate();
  EXPECT_EQ(tier.pages_free(), 0u);
  EXPECT_FALSE(large.allocate().has_value());
  EXPECT_TRUE(small.allocate().has_value());  // within its slab
  EXPECT_EQ(tier.blocks_used(kPageBytes / 4), 2u);
  large.release(b);
  EXPECT_EQ(tier.pages_free(), 1u);
  small.release(a);
  tier.check();
}

TEST(HostTier, TellsOfPagesGivenBackBeforeThoseTaken) {
  HostTier tier(1);
  BlockPool& small = *tier.blocks(kPageBytes / 4);
  BlockPool& large = *tier.blocks(kPageBytes);
  const BlockId a = *small.allocate();
  EXPECT_EQ(tier.take_changes().size(), 1u);
  small.release(a);
  EXPECT_TRUE(large.allocate().has_value());
  const auto changes = tier.take_changes();
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_FALSE(changes[0].bound);
  EXPECT_TRUE(changes[1].bound);
}

TEST(HostTier, KnowsHowFarItsMemoryWasUsed) {
  HostTier tier(8);
  BlockPool& blocks = *tier.blocks(kPageBytes);
  const BlockId a = *blocks.allocate(), b = *blocks.allocate();
  blocks.release(a);
  EXPECT_EQ(tier.pages_reached(), 2u);
  blocks.release(b);
  EXPECT_EQ(tier.pages_reached(), 2u);
  tier.forget_reached();
  EXPECT_EQ(tier.pages_reached(), 0u);
}

TEST(HostTier, WithoutPagesThereIsNone) { EXPECT_EQ(HostTier(0).blocks(kPageBytes), nullptr); }

}  // namespace
}  // namespace shoal
