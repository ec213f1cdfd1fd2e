// How a model's experts are used, as its node reports it.
#pragma once

#include <cstdint>
#include <vector>

namespace shoal {

struct ExpertCounts {
  uint64_t lookups = 0;        // experts that layers of passes needed, of a model that holds a part of them only
  uint64_t hits = 0;           // of these, on the device
  uint64_t bytes_fetched = 0;  // of the others
  // Of a model whose experts are elsewhere: rows that servers were asked for, those asked once more of another one, and the time in
  // which a device had nothing to do but wait for answers.
  uint64_t rows_asked = 0, rows_resent = 0, waited_us = 0;
  // Of each layer with experts: rows of its busiest expert over the mean of all, lately; 1: even. 0: none yet.
  std::vector<float> skew;

  // What came after `before`; of the skew, what is newest.
  ExpertCounts since(const ExpertCounts& before) const {
    return {lookups - before.lookups, hits - before.hits, bytes_fetched - before.bytes_fetched,
            rows_asked - before.rows_asked, rows_resent - before.rows_resent, waited_us - before.waited_us, skew};
  }
  void add(const ExpertCounts& later) {
    lookups += later.lookups;
    hits += later.hits;
    bytes_fetched += later.bytes_fetched;
    rows_asked += later.rows_asked;
    rows_resent += later.rows_resent;
    waited_us += later.waited_us;
    if (!later.skew.empty()) skew = later.skew;
  }
  friend bool operator==(const ExpertCounts&, const ExpertCounts&) = default;
};

}  // namespace shoal
