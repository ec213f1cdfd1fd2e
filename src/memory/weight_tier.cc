#include "memory/weight_tier.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {

void WeightTier::rank(Entry& entry) {
  entry.rank = level_ + entry.worth_per_page;
  entry.used = ++uses_;
}

std::optional<WeightTier::Place> WeightTier::add(ModelId model, uint32_t pages, double refill_seconds) {
  CHECK(!contains(model));
  CHECK_GT(pages, 0u);
  CHECK_GE(refill_seconds, 0.0);
  if (pages > pages_.capacity()) return std::nullopt;
  Place place;
  while (pages_.free() < pages) {
    const auto least = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second.rank, a.second.used) < std::pair(b.second.rank, b.second.used);
    });
    level_ = least->second.rank;
    place.evicted.push_back(least->first);
    remove(least->first);
  }
  place.pages = pages_.allocate(pages).value();
  Entry& entry = entries_[model];
  entry.pages = place.pages;
  entry.worth_per_page = refill_seconds / pages;
  rank(entry);
  return place;
}

void WeightTier::use(ModelId model) { rank(entries_.at(model)); }

void WeightTier::remove(ModelId model) {
  const auto found = entries_.find(model);
  if (found == entries_.end()) return;
  pages_.release(found->second.pages);
  entries_.erase(found);
}

void WeightTier::check() const {
  pages_.check();
  uint64_t held = 0;
  for (const auto& [model, entry] : entries_) {
    held += page_count(entry.pages);
    CHECK_LE(entry.rank, level_ + entry.worth_per_page);
  }
  CHECK_EQ(held + pages_.free(), uint64_t{pages_.capacity()});
}

}  // namespace shoal
