#include "memory/block_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {

uint32_t slab_pages_for(uint64_t block_bytes) {
  CHECK_GT(block_bytes, 0u);
  const auto least = static_cast<uint32_t>(div_up(block_bytes, kPageBytes));
  uint32_t best = least;
  double best_waste = 1.0;
  for (uint32_t pages = least; pages <= least + 8; ++pages) {
    const uint64_t bytes = pages * kPageBytes;
    const double waste = static_cast<double>(bytes % block_bytes) / static_cast<double>(bytes);
    if (waste < best_waste) {
      best = pages;
      best_waste = waste;
    }
    if (waste <= 1.0 / 8) return pages;
  }
  return best;
}

BlockPool::BlockPool(PagePool& pages, uint64_t block_bytes)
    : pages_(pages),
      block_bytes_(block_bytes),
      slab_pages_(slab_pages_for(block_bytes)),
      blocks_per_slab_(static_cast<uint32_t>(slab_pages_ * kPageBytes / block_bytes)) {
  CHECK_GT(blocks_per_slab_, 0u);
}

uint32_t BlockPool::bind_slab() {
  auto runs = pages_.allocate(slab_pages_);
  CHECK(runs.has_value());
  uint32_t slab = 0;
  if (unbound_.empty()) {
    slab = static_cast<uint32_t>(slabs_.size());
    slabs_.emplace_back();
  } else {
    slab = *unbound_.begin();
    unbound_.erase(unbound_.begin());
  }
  Slab& s = slabs_[slab];
  s.pages = *std::move(runs);
  s.counts.assign(blocks_per_slab_, 0);
  s.free.clear();
  for (uint32_t i = blocks_per_slab_; i-- > 0;) s.free.push_back(i);
  with_free_.insert({blocks_per_slab_, slab});
  free_in_slabs_ += blocks_per_slab_;
  ++slabs_bound_;
  changes_.push_back({block_bytes_, slab, true, s.pages});
  return slab;
}

void BlockPool::unbind_slab(uint32_t slab) {
  Slab& s = slabs_[slab];
  CHECK_EQ(s.free.size(), size_t{blocks_per_slab_});
  with_free_.erase({blocks_per_slab_, slab});
  free_in_slabs_ -= blocks_per_slab_;
  --slabs_bound_;
  pages_.release(s.pages);
  // One that came since changes were taken last goes unsaid: nobody knows of it.
  const auto last = std::find_if(changes_.rbegin(), changes_.rend(), [&](const SlabChange& c) { return c.slab == slab; });
  if (last != changes_.rend() && last->bound) {
    changes_.erase(std::next(last).base());
    s.pages.clear();
  } else {
    changes_.push_back({block_bytes_, slab, false, std::exchange(s.pages, {})});
  }
  unbound_.insert(slab);
}

std::optional<BlockId> BlockPool::allocate() {
  if (with_free_.empty()) {
    if (pages_.free() < slab_pages_) return std::nullopt;
    bind_slab();
  }
  const auto [free_count, slab] = *with_free_.begin();
  with_free_.erase(with_free_.begin());
  Slab& s = slabs_[slab];
  const uint32_t offset = s.free.back();
  s.free.pop_back();
  s.counts[offset] = 1;
  if (free_count > 1) with_free_.insert({free_count - 1, slab});
  ++used_;
  --free_in_slabs_;
  return BlockId(slab * blocks_per_slab_ + offset);
}

void BlockPool::share(BlockId block) {
  uint32_t& count = slab_of(block).counts[block.value % blocks_per_slab_];
  CHECK_GT(count, 0u);
  ++count;
}

void BlockPool::release(BlockId block) {
  const uint32_t slab = block.value / blocks_per_slab_;
  CHECK_LT(slab, slabs_.size());
  Slab& s = slabs_[slab];
  CHECK(!s.pages.empty());
  uint32_t& count = s.counts[block.value % blocks_per_slab_];
  CHECK_GT(count, 0u);
  if (--count > 0) return;
  const auto free_before = static_cast<uint32_t>(s.free.size());
  if (free_before > 0) with_free_.erase({free_before, slab});
  s.free.push_back(block.value % blocks_per_slab_);
  with_free_.insert({free_before + 1, slab});
  --used_;
  ++free_in_slabs_;
  if (free_before + 1 == blocks_per_slab_) unbind_slab(slab);
}

uint32_t BlockPool::count(BlockId block) const {
  CHECK_LT(block.value / blocks_per_slab_, slabs_.size());
  const Slab& s = slab_of(block);
  return s.pages.empty() ? 0 : s.counts[block.value % blocks_per_slab_];
}

uint32_t BlockPool::obtainable() const { return free_in_slabs_ + pages_.free() / slab_pages_ * blocks_per_slab_; }

double BlockPool::fragmentation() const {
  const double bound = static_cast<double>(pages_bound()) * static_cast<double>(kPageBytes);
  return bound == 0 ? 0 : 1.0 - static_cast<double>(used_) * static_cast<double>(block_bytes_) / bound;
}

std::vector<SlabChange> BlockPool::take_changes() { return std::exchange(changes_, {}); }

void BlockPool::check() const {
  uint32_t used = 0, free = 0, bound = 0;
  for (uint32_t i = 0; i < slabs_.size(); ++i) {
    const Slab& s = slabs_[i];
    CHECK_EQ(s.pages.empty(), unbound_.contains(i));
    if (s.pages.empty()) continue;
    ++bound;
    CHECK_EQ(page_count(s.pages), slab_pages_);
    uint32_t in_use = 0;
    for (const uint32_t count : s.counts) in_use += count > 0;
    for (const uint32_t offset : s.free) CHECK_EQ(s.counts[offset], 0u);
    CHECK_EQ(in_use + s.free.size(), size_t{blocks_per_slab_});
    CHECK_GT(in_use, 0u);  // an empty slab has gone back
    CHECK_EQ(with_free_.contains({static_cast<uint32_t>(s.free.size()), i}), !s.free.empty());
    used += in_use;
    free += static_cast<uint32_t>(s.free.size());
  }
  CHECK_EQ(used, used_);
  CHECK_EQ(free, free_in_slabs_);
  CHECK_EQ(bound, slabs_bound_);
}

}  // namespace shoal
