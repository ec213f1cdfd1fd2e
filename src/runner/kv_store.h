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

class KvStore {
 public:
  // `memory` outlives the store.
  explicit KvStore(PagedMemory& memory) : memory_(memory) {}
  ~KvStore();

  // Maps and unmaps, in order. An error leaves the changes before it done.
  Status apply(std::span<const SlabChange> changes);

  // Where a block of a shape class is. REQUIRES: its slab is bound.
  DeviceAddress block(uint64_t block_bytes, BlockId id) const;

 private:
  struct ShapeClass {
    uint32_t blocks_per_slab = 0;
    std::vector<DeviceSpan> slabs;  // empty: not bound
  };

  PagedMemory& memory_;
  std::map<uint64_t, ShapeClass> classes_;  // by bytes per block
};

}  // namespace shoal
