#include "memory/page_pool.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace shoal {
namespace {

// What is left of a memory is taken back if it is more than one page in so many: less costs more to map among other pages, a
// twentieth of what a copy takes for each, than it saves.
constexpr uint32_t kWorthOneIn = 16;

template <typename Spans>
uint32_t sum_of(const Spans& spans) {
  return std::accumulate(spans.begin(), spans.end(), 0u, [](uint32_t sum, const auto& span) { return sum + span.count; });
}

void append(std::vector<PageRun>& runs, PageRun run) {
  if (!runs.empty() && runs.back().first.value + runs.back().count == run.first.value) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

}  // namespace

uint32_t page_count(std::span<const PageRun> runs) { return sum_of(runs); }
uint32_t page_count(std::span<const PageSpan> spans) { return sum_of(spans); }

PagePool::PagePool(uint32_t pages, uint32_t spare) : capacity_(pages), spare_max_(spare), spare_(spare), blank_count_(pages + spare) {
  if (blank_count_ > 0) blank_[0] = blank_count_;
}

void PagePool::take(Runs::iterator run, uint32_t count, std::vector<PageRun>& out) {
  const uint32_t first = run->first;
  const uint32_t length = run->second;
  CHECK_LE(count, length);
  blank_.erase(run);
  if (count < length) blank_[first + count] = length - count;
  blank_count_ -= count;
  reached_ = std::max(reached_, first + count);
  out.push_back({PageId(first), count});
}

std::vector<PageRun> PagePool::take_blank(uint32_t count) {
  std::vector<PageRun> runs;
  if (count == 0) return runs;
  auto best = blank_.end();
  for (auto it = blank_.begin(); it != blank_.end(); ++it) {
    if (it->second >= count && (best == blank_.end() || it->second < best->second)) best = it;
  }
  if (best != blank_.end()) {
    take(best, count, runs);
    return runs;
  }
  while (count > 0) {
    const auto largest = std::max_element(blank_.begin(), blank_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const uint32_t part = std::min(count, largest->second);
    take(largest, part, runs);
    count -= part;
  }
  return runs;
}

std::optional<std::vector<PageRun>> PagePool::allocate(uint32_t count) {
  if (count > free()) return std::nullopt;
  make_blank(count);
  held_ += count;
  return take_blank(count);
}

void PagePool::insert(Runs& runs, PageRun run) {
  uint32_t first = run.first.value, count = run.count;
  auto next = runs.lower_bound(first);
  if (next != runs.end()) CHECK_LE(first + count, next->first);
  if (next != runs.begin()) {
    const auto previous = std::prev(next);
    CHECK_LE(previous->first + previous->second, first);
    if (previous->first + previous->second == first) {
      first = previous->first;
      count += previous->second;
      runs.erase(previous);
    }
  }
  if (next != runs.end() && first + count == next->first) {
    count += next->second;
    runs.erase(next);
  }
  runs[first] = count;
}

void PagePool::blank(PageRun run) {
  if (run.count == 0) return;
  CHECK_LE(uint64_t{run.first.value} + run.count, uint64_t{capacity_} + spare_max_);
  insert(blank_, run);
  blank_count_ += run.count;
}

void PagePool::release(std::span<const PageRun> runs) {
  for (const PageRun& run : runs) {
    CHECK_LE(run.count, held_);
    blank(run);
    held_ -= run.count;
  }
}

// ---- what stands by ---------------------------------------------------------------------------------------------------------

void PagePool::stand_by(ModelId owner, std::span<const PageRun> pages, std::span<const PageSpan> whole) {
  forget(owner);
  Standby standby;
  standby.since = ++stood_by_;
  uint32_t at = 0;
  size_t next = 0;
  for (PageRun run : pages) {
    CHECK_LE(run.count, held_);
    held_ -= run.count;
    while (run.count > 0) {  // as far as it is whole, or is not
      while (next < whole.size() && whole[next].first + whole[next].count <= at) ++next;
      const bool is_whole = next < whole.size() && whole[next].first <= at;
      const uint32_t until = next == whole.size() ? UINT32_MAX : is_whole ? whole[next].first + whole[next].count : whole[next].first;
      const PageRun part{run.first, std::min(run.count, until - at)};
      if (is_whole) {
        standby.parts.push_back({at, part});
        standby.pages += part.count;
      } else {
        blank(part);
      }
      at += part.count;
      run = {PageId(run.first.value + part.count), run.count - part.count};
    }
  }
  standing_by_ += standby.pages;
  if (standby.pages > 0) standby_[owner] = std::move(standby);
}

std::optional<PagePool::Memory> PagePool::take_back(ModelId owner, uint32_t count) {
  if (count > free()) return std::nullopt;
  if (standing_by(owner) * kWorthOneIn < count) forget(owner);
  Standby mine;
  if (const auto found = standby_.find(owner); found != standby_.end()) {
    mine = std::move(found->second);
    standby_.erase(found);
    standing_by_ -= mine.pages;
    held_ += mine.pages;
  }
  const std::vector<PageRun> others = *allocate(count - mine.pages);
  Memory memory;
  uint32_t at = 0, used = 0;
  auto other = others.begin();
  const auto fill_until = [&](uint32_t end) {
    while (at < end) {
      const uint32_t part = std::min(end - at, other->count - used);
      append(memory.pages, {PageId(other->first.value + used), part});
      at += part;
      used += part;
      if (used == other->count) ++other, used = 0;
    }
  };
  for (const Part& part : mine.parts) {
    fill_until(part.at);
    append(memory.pages, part.run);
    at += part.run.count;
    if (!memory.whole.empty() && memory.whole.back().first + memory.whole.back().count == part.at) memory.whole.back().count += part.run.count;
    else memory.whole.push_back({part.at, part.run.count});
  }
  fill_until(count);
  return memory;
}

uint32_t PagePool::standing_by(ModelId owner) const {
  const auto found = standby_.find(owner);
  return found == standby_.end() ? 0 : found->second.pages;
}

void PagePool::set_awaited(ModelId owner, bool awaited) {
  if (const auto found = standby_.find(owner); found != standby_.end()) found->second.awaited = awaited;
}

void PagePool::forget(ModelId owner) {
  const auto found = standby_.find(owner);
  if (found == standby_.end()) return;
  shorten(found->second, found->second.pages);
  standby_.erase(found);
}

void PagePool::shorten(Standby& standby, uint32_t count) {
  standby.pages -= count;
  standing_by_ -= count;
  while (count > 0) {
    PageRun& last = standby.parts.back().run;
    const uint32_t gone = std::min(count, last.count);
    last.count -= gone;
    blank({PageId(last.first.value + last.count), gone});
    count -= gone;
    if (last.count == 0) standby.parts.pop_back();
  }
}

std::map<ModelId, PagePool::Standby>::iterator PagePool::least_awaited() {
  const auto key = [](const Standby& s) { return std::tuple(s.awaited, s.awaited ? UINT64_MAX - s.since : s.since); };
  return std::min_element(standby_.begin(), standby_.end(), [&](const auto& a, const auto& b) { return key(a.second) < key(b.second); });
}

void PagePool::make_blank(uint32_t count) {
  while (blank_count_ < count) {
    const auto victim = least_awaited();
    CHECK(victim != standby_.end());
    shorten(victim->second, std::min(victim->second.pages, count - blank_count_));
    if (victim->second.pages == 0) standby_.erase(victim);
  }
}

void PagePool::forget_reached() {
  CHECK(held_ == 0 && standing_by_ == 0);
  reached_ = 0;
}

// ---- spare pages ------------------------------------------------------------------------------------------------------------

std::vector<PageRun> PagePool::set_spare(uint32_t spare) {
  CHECK_LE(spare, spare_max_);
  for (; spare_ < spare; ) {
    const auto first = vacant_.begin();
    const PageRun back{PageId(first->first), std::min(first->second, spare - spare_)};
    if (const uint32_t rest = first->second - back.count; rest > 0) vacant_[back.first.value + back.count] = rest;
    vacant_.erase(back.first.value);
    spare_ += back.count;
    blank(back);
  }
  std::vector<PageRun> gone;
  make_blank(spare_ - spare);
  while (spare_ > spare) {  // the last ones: the least likely to have been used
    const auto last = std::prev(blank_.end());
    const uint32_t count = std::min(last->second, spare_ - spare);
    gone.push_back({PageId(last->first + last->second - count), count});
    if ((last->second -= count) == 0) blank_.erase(last);
    blank_count_ -= count;
    spare_ -= count;
    insert(vacant_, gone.back());
  }
  return gone;
}

void PagePool::check() const {
  Runs all;
  uint32_t blank = 0, vacant = 0, standing_by = 0;
  const auto add = [&](uint32_t first, uint32_t count) {
    CHECK_GT(count, 0u);
    CHECK_LE(uint64_t{first} + count, uint64_t{capacity_} + spare_max_);
    insert(all, {PageId(first), count});
    return count;
  };
  for (const auto& [first, count] : blank_) blank += add(first, count);
  for (const auto& [first, count] : vacant_) vacant += add(first, count);
  for (const auto& [owner, standby] : standby_) {
    uint32_t pages = 0, end = 0;
    for (const Part& part : standby.parts) {
      CHECK_GE(part.at, end);
      end = part.at + part.run.count;
      pages += add(part.run.first.value, part.run.count);
    }
    CHECK(pages == standby.pages && pages > 0);
    standing_by += pages;
  }
  CHECK_EQ(blank, blank_count_);
  CHECK_EQ(standing_by, standing_by_);
  CHECK_EQ(vacant, spare_max_ - spare_);
  CHECK_EQ(uint64_t{held_} + standing_by + blank, uint64_t{capacity_} + spare_);
}

}  // namespace shoal
