#include "memory/page_pool.h"

#include <iterator>

#include "base/check.h"

namespace shoal {

uint32_t page_count(std::span<const PageRun> runs) {
  uint32_t count = 0;
  for (const PageRun& run : runs) count += run.count;
  return count;
}

PagePool::PagePool(uint32_t pages) : capacity_(pages), free_(pages) {
  if (pages > 0) free_runs_[0] = pages;
}

void PagePool::take(std::map<uint32_t, uint32_t>::iterator run, uint32_t count, std::vector<PageRun>& out) {
  const uint32_t first = run->first;
  const uint32_t length = run->second;
  CHECK_LE(count, length);
  free_runs_.erase(run);
  if (count < length) free_runs_[first + count] = length - count;
  free_ -= count;
  out.push_back({PageId(first), count});
}

std::optional<std::vector<PageRun>> PagePool::allocate(uint32_t count) {
  if (count > free_) return std::nullopt;
  std::vector<PageRun> runs;
  if (count == 0) return runs;
  auto best = free_runs_.end();
  for (auto it = free_runs_.begin(); it != free_runs_.end(); ++it) {
    if (it->second >= count && (best == free_runs_.end() || it->second < best->second)) best = it;
  }
  if (best != free_runs_.end()) {
    take(best, count, runs);
    return runs;
  }
  while (count > 0) {
    auto largest = free_runs_.begin();
    for (auto it = free_runs_.begin(); it != free_runs_.end(); ++it) {
      if (it->second > largest->second) largest = it;
    }
    const uint32_t part = std::min(count, largest->second);
    take(largest, part, runs);
    count -= part;
  }
  return runs;
}

void PagePool::release(std::span<const PageRun> runs) {
  for (const PageRun& run : runs) {
    if (run.count == 0) continue;
    uint32_t first = run.first.value;
    uint32_t count = run.count;
    CHECK_LE(uint64_t{first} + count, uint64_t{capacity_});
    auto next = free_runs_.lower_bound(first);
    if (next != free_runs_.end()) CHECK_LE(first + count, next->first);
    if (next != free_runs_.begin()) {
      const auto previous = std::prev(next);
      CHECK_LE(previous->first + previous->second, first);
      if (previous->first + previous->second == first) {
        first = previous->first;
        count += previous->second;
        free_runs_.erase(previous);
      }
    }
    if (next != free_runs_.end() && first + count == next->first) {
      count += next->second;
      free_runs_.erase(next);
    }
    free_runs_[first] = count;
    free_ += run.count;
  }
}

void PagePool::check() const {
  uint64_t end = 0;
  uint32_t total = 0;
  bool first_run = true;
  for (const auto& [first, count] : free_runs_) {
    CHECK_GT(count, 0u);
    if (!first_run) CHECK_GT(uint64_t{first}, end);
    first_run = false;
    end = uint64_t{first} + count;
    CHECK_LE(end, uint64_t{capacity_});
    total += count;
  }
  CHECK_EQ(total, free_);
}

}  // namespace shoal
