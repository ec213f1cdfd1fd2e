// The tier of raw weights in the memory of the machine, under the devices: whose bytes are kept within a budget of pages,
// and who gives way. Ids only, no bytes.
//
// GreedyDual-Size (Cao and Irani, 1997): what a model is worth is the seconds that reading it again would take, per page, on
// top of a level that rises to the worth of whoever left last. So among models read at one speed the least recently used
// goes, and one from a slow disk outlives many from a fast one, but not for ever.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "memory/page_pool.h"

namespace shoal {

class WeightTier {
 public:
  explicit WeightTier(uint32_t pages) : pages_(pages) {}

  struct Place {
    std::vector<PageRun> pages;
    std::vector<ModelId> evicted;  // their pages are free, and may be among these
  };
  // Room for a model that is not kept; others leave for it, least worth first. nullopt if it is larger than the tier:
  // then nobody leaves. REQUIRES: pages > 0, refill_seconds >= 0.
  std::optional<Place> add(ModelId model, uint32_t pages, double refill_seconds);
  void use(ModelId model);     // REQUIRES: kept
  void remove(ModelId model);  // nothing happens if it is not kept

  bool contains(ModelId model) const { return entries_.contains(model); }
  uint32_t pages_free() const { return pages_.free(); }
  uint32_t pages() const { return pages_.capacity(); }
  void check() const;

 private:
  struct Entry {
    std::vector<PageRun> pages;
    double worth_per_page = 0;  // seconds
    double rank = 0;            // level when it was used last + worth
    uint64_t used = 0;          // ties: the one used longest ago goes first
  };
  void rank(Entry& entry);

  PagePool pages_;
  std::map<ModelId, Entry> entries_;
  double level_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace shoal
