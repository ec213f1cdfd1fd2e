#include "runner/kv_store.h"

#include "base/check.h"

namespace shoal {

std::vector<PageRange> page_ranges(std::span<const PageRun> runs) {
  std::vector<PageRange> ranges;
  for (const PageRun& run : runs) ranges.push_back({run.first.value, run.count});
  return ranges;
}

KvStore::~KvStore() {
  for (auto& [bytes, shape] : classes_) {
    for (const DeviceSpan slab : shape.slabs) {
      if (!slab.empty()) memory_.unmap(slab);
    }
  }
}

Status KvStore::apply(std::span<const SlabChange> changes) {
  for (const SlabChange& change : changes) {
    ShapeClass& shape = classes_[change.block_bytes];
    shape.blocks_per_slab = static_cast<uint32_t>(slab_pages_for(change.block_bytes) * kPageBytes / change.block_bytes);
    if (shape.slabs.size() <= change.slab) shape.slabs.resize(change.slab + 1);
    DeviceSpan& slab = shape.slabs[change.slab];
    CHECK_EQ(slab.empty(), change.bound);
    if (change.bound) {
      ASSIGN_OR_RETURN(slab, memory_.map(page_ranges(change.pages)));
    } else {
      memory_.unmap(slab);
      slab = {};
    }
  }
  return OkStatus();
}

DeviceAddress KvStore::block(uint64_t block_bytes, BlockId id) const {
  const ShapeClass& shape = classes_.at(block_bytes);
  const DeviceSpan slab = shape.slabs.at(id.value / shape.blocks_per_slab);
  CHECK(!slab.empty());
  return slab.begin + id.value % shape.blocks_per_slab * block_bytes;
}

}  // namespace shoal
