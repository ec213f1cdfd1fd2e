// The bytes behind block ids: slabs of a device's pages, mapped while they are bound.
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
  // `device` outlives the store.
  explicit KvStore(Device& device) : device_(device) {}
  ~KvStore();

  // Maps and unmaps, in order. An error leaves the changes before it done.
  Status apply(std::span<const SlabChange> changes);

  // Where a block of a shape class is. REQUIRES: its slab is bound.
  std::byte* block(uint64_t block_bytes, BlockId id) const;

 private:
  struct ShapeClass {
    uint32_t blocks_per_slab = 0;
    std::vector<std::span<std::byte>> slabs;  // empty: not bound
  };

  Device& device_;
  std::map<uint64_t, ShapeClass> classes_;  // by bytes per block
};

}  // namespace shoal
