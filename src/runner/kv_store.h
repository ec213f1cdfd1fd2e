// The bytes behind block ids: slabs of pages, of a device or of the host tier, mapped while they are bound.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "memory/block_pool.h"

namespace shoal {

std::vector<PageRange> page_ranges(std::span<const PageRun> runs);

struct ByteRun {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend bool operator==(const ByteRun&, const ByteRun&) = default;
};

class KvStore {
 public:
  // `memory` outlives the store.
  explicit KvStore(PagedMemory& memory) : memory_(memory) {}
  ~KvStore();

  // Maps and unmaps, in order. An error leaves the changes before it done.
  Status apply(std::span<const SlabChange> changes);

  // Where a block of a shape class is. REQUIRES: its slab is bound.
  DeviceAddress block(uint64_t block_bytes, BlockId id) const;
  // The same for many, in the pages of the memory one after the other, page i at byte i * kPageBytes: the bytes of each block in turn are
  // those of its runs. No run is of two blocks.
  std::vector<ByteRun> runs(uint64_t block_bytes, std::span<const BlockId> blocks) const;

 private:
  struct Slab {
    DeviceSpan memory;  // empty: not bound
    std::vector<PageRange> pages;
  };
  struct ShapeClass {
    uint32_t blocks_per_slab = 0;
    std::vector<Slab> slabs;
  };
  struct Place {
    const Slab& slab;
    uint64_t offset;
  };
  Place place(uint64_t block_bytes, BlockId id) const;

  PagedMemory& memory_;
  std::map<uint64_t, ShapeClass> classes_;  // by bytes per block
};

}  // namespace shoal
