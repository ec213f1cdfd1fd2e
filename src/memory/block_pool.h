// KV blocks of one shape class (bytes per block), cut from slabs of pages that are bound to the class only while one of
// their blocks is used.
//
//   device pages  [....][slab 0: b0 b1 b2 .][......][slab 1: b3 b4 b5 .][....]      . = tail too short for a block
//
// Blocks are counted: a block is shared by every sequence with the same prefix and by the prefix index. Ids only.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "memory/page_pool.h"

namespace shoal {

// A slab came to the shape class with these pages, or leaves it. Whoever maps memory performs changes in order, before
// it touches a block of a bound slab, and before the pages of a released one are used for something else.
struct SlabChange {
  uint64_t block_bytes = 0;  // the shape class
  uint32_t slab = 0;         // blocks [slab * blocks_per_slab, (slab + 1) * blocks_per_slab)
  bool bound = false;
  std::vector<PageRun> pages;
};

// Pages of one slab: the fewest that waste at most 1/8 of their bytes, at most 8 more than one block needs.
uint32_t slab_pages_for(uint64_t block_bytes);

class BlockPool {
 public:
  // `pages` outlives the pool.
  BlockPool(PagePool& pages, uint64_t block_bytes);

  // A block with count 1 from a bound slab, else from a new one; nullopt if the page pool has no slab left either.
  // Fills the fullest slabs first, so that others can drain and go back.
  std::optional<BlockId> allocate();
  void share(BlockId block);    // REQUIRES: count > 0
  void release(BlockId block);  // REQUIRES: count > 0. An emptied slab returns its pages at once.

  uint32_t count(BlockId block) const;
  uint32_t used() const { return used_; }
  uint32_t free_in_slabs() const { return free_in_slabs_; }
  uint32_t obtainable() const;  // free in slabs + what the free pages would give
  uint32_t slabs_bound() const { return slabs_bound_; }
  uint32_t pages_bound() const { return slabs_bound_ * slab_pages_; }
  uint32_t blocks_per_slab() const { return blocks_per_slab_; }
  uint64_t block_bytes() const { return block_bytes_; }
  // Free bytes in bound slabs over bound bytes: 0 is perfect.
  double fragmentation() const;

  // Changes since the last call, in order.
  std::vector<SlabChange> take_changes();

  void check() const;

 private:
  struct Slab {
    std::vector<PageRun> pages;     // empty: not bound
    std::vector<uint32_t> counts;   // [blocks_per_slab]
    std::vector<uint32_t> free;     // offsets of blocks with count 0
  };

  uint32_t bind_slab();  // REQUIRES: the page pool has slab_pages_ free
  void unbind_slab(uint32_t slab);
  Slab& slab_of(BlockId block) { return slabs_[block.value / blocks_per_slab_]; }
  const Slab& slab_of(BlockId block) const { return slabs_[block.value / blocks_per_slab_]; }

  PagePool& pages_;
  const uint64_t block_bytes_;
  const uint32_t slab_pages_;
  const uint32_t blocks_per_slab_;
  std::vector<Slab> slabs_;
  std::set<uint32_t> unbound_;                            // slots of slabs_ without pages, lowest first
  std::set<std::pair<uint32_t, uint32_t>> with_free_;     // (free blocks, slab) of bound slabs that have some
  uint32_t used_ = 0;
  uint32_t free_in_slabs_ = 0;
  uint32_t slabs_bound_ = 0;
  std::vector<SlabChange> changes_;
};

}  // namespace shoal
