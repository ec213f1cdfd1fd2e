#include "runner/kv_store.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

std::vector<PageRange> page_ranges(std::span<const PageRun> runs) {
  std::vector<PageRange> ranges;
  for (const PageRun& run : runs) ranges.push_back({run.first.value, run.count});
  return ranges;
}

KvStore::~KvStore() {
  for (auto& [bytes, shape] : classes_) {
    for (const Slab& slab : shape.slabs) {
      if (!slab.memory.empty()) memory_.unmap(slab.memory);
    }
  }
}

Status KvStore::apply(std::span<const SlabChange> changes) {
  for (const SlabChange& change : changes) {
    ShapeClass& shape = classes_[change.block_bytes];
    shape.blocks_per_slab = static_cast<uint32_t>(slab_pages_for(change.block_bytes) * kPageBytes / change.block_bytes);
    if (shape.slabs.size() <= change.slab) shape.slabs.resize(change.slab + 1);
    Slab& slab = shape.slabs[change.slab];
    CHECK_EQ(slab.memory.empty(), change.bound);
    if (change.bound) {
      slab.pages = page_ranges(change.pages);
      ASSIGN_OR_RETURN(slab.memory, memory_.map(slab.pages));
    } else {
      memory_.unmap(slab.memory);
      slab = {};
    }
  }
  return OkStatus();
}

KvStore::Place KvStore::place(uint64_t block_bytes, BlockId id) const {
  const ShapeClass& shape = classes_.at(block_bytes);
  const Slab& slab = shape.slabs.at(id.value / shape.blocks_per_slab);
  CHECK(!slab.memory.empty());
  return {slab, id.value % shape.blocks_per_slab * block_bytes};
}

DeviceAddress KvStore::block(uint64_t block_bytes, BlockId id) const {
  const Place at = place(block_bytes, id);
  return at.slab.memory.begin + at.offset;
}

std::vector<ByteRun> KvStore::runs(uint64_t block_bytes, std::span<const BlockId> blocks) const {
  std::vector<ByteRun> runs;
  runs.reserve(blocks.size());
  for (const BlockId id : blocks) {
    const Place at = place(block_bytes, id);
    uint64_t skip = at.offset, left = block_bytes;
    for (const PageRange& pages : at.slab.pages) {
      const uint64_t bytes = pages.count * kPageBytes;
      const uint64_t begin = std::min(skip, bytes), taken = std::min(left, bytes - begin);
      if (taken > 0) runs.push_back({pages.first * kPageBytes + begin, taken});
      skip -= begin, left -= taken;
    }
    CHECK_EQ(left, 0u);
  }
  return runs;
}

}  // namespace shoal
