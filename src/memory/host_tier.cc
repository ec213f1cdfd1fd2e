#include "memory/host_tier.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {

BlockPool* HostTier::blocks(uint64_t block_bytes) {
  if (pages_.capacity() == 0) return nullptr;
  std::unique_ptr<BlockPool>& pool = classes_[block_bytes];
  if (pool == nullptr) pool = std::make_unique<BlockPool>(pages_, block_bytes);
  return pool.get();
}

uint32_t HostTier::blocks_used(uint64_t block_bytes) const {
  const auto found = classes_.find(block_bytes);
  return found == classes_.end() ? 0 : found->second->used();
}

std::vector<SlabChange> HostTier::take_changes() {
  std::vector<SlabChange> changes;
  for (auto& [bytes, pool] : classes_) {
    for (SlabChange& change : pool->take_changes()) changes.push_back(std::move(change));
  }
  // Pages given back by one class may have gone to another.
  std::stable_partition(changes.begin(), changes.end(), [](const SlabChange& c) { return !c.bound; });
  return changes;
}

void HostTier::check() const {
  pages_.check();
  uint64_t bound = 0;
  for (const auto& [bytes, pool] : classes_) {
    pool->check();
    bound += pool->pages_bound();
  }
  CHECK_EQ(bound + pages_.free(), uint64_t{pages_.capacity()});
}

}  // namespace shoal
