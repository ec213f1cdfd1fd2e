// Pages of one device: who holds which is decided here, where they are is not known here. Ids only, no bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/page.h"

namespace shoal {

// Pages [first, first + count).
struct PageRun {
  PageId first;
  uint32_t count = 0;
  friend bool operator==(const PageRun&, const PageRun&) = default;
};

uint32_t page_count(std::span<const PageRun> runs);

class PagePool {
 public:
  explicit PagePool(uint32_t pages);

  // `count` pages in as few runs as possible (one of the smallest that fits, else the largest first), or nullopt when
  // fewer are free. A single run needs no mapping on the device, so contiguity is worth looking for.
  std::optional<std::vector<PageRun>> allocate(uint32_t count);

  // REQUIRES: every page was returned by allocate() and not released since.
  void release(std::span<const PageRun> runs);

  uint32_t capacity() const { return capacity_; }
  uint32_t free() const { return free_; }

  // Free runs are disjoint, apart from each other, within the pool and sum up to free().
  void check() const;

 private:
  void take(std::map<uint32_t, uint32_t>::iterator run, uint32_t count, std::vector<PageRun>& out);

  uint32_t capacity_;
  uint32_t free_;
  std::map<uint32_t, uint32_t> free_runs_;  // first page -> count; neighbours are always merged
};

}  // namespace shoal
