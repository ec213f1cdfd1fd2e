// How a model's experts are used, as its node reports it.
#pragma once

#include <cstdint>
#include <vector>

namespace shoal {

struct ExpertCounts {
  uint64_t lookups = 0;        // experts that layers of passes needed, of a model that holds a part of them only
  uint64_t hits = 0;           // of these, on the device
  uint64_t bytes_fetched = 0;  // of the others
  // Of each layer with experts: rows of its busiest expert over the mean of all, lately; 1: even. 0: none yet.
  std::vector<float> skew;

  // What came after `before`; of the skew, what is newest.
  ExpertCounts since(const ExpertCounts& before) const {
    return {lookups - before.lookups, hits - before.hits, bytes_fetched - before.bytes_fetched, skew};
  }
  void add(const ExpertCounts& later) {
    lookups += later.lookups;
    hits += later.hits;
    bytes_fetched += later.bytes_fetched;
    if (!later.skew.empty()) skew = later.skew;
  }
  friend bool operator==(const ExpertCounts&, const ExpertCounts&) = default;
};

}  // namespace shoal
