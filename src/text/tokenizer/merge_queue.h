// The order in which pairs of symbols merge: by rank, then from left to right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"

namespace shoal {

struct MergeCandidate {
  uint32_t rank, at;  // the lowest rank merges first; `at`: where the left symbol is
  TokenId result;     // of the two symbols
};

// For pieces of moderate length: log n per candidate. pop() REQUIRES: not empty.
class MergeHeap {
 public:
  bool empty() const { return heap_.empty(); }
  void push(const MergeCandidate& c) { heap_.push(c); }
  MergeCandidate pop() {
    const MergeCandidate top = heap_.top();
    heap_.pop();
    return top;
  }

 private:
  struct Later {
    bool operator()(const MergeCandidate& a, const MergeCandidate& b) const { return a.rank != b.rank ? a.rank > b.rank : a.at > b.at; }
  };
  std::priority_queue<MergeCandidate, std::vector<MergeCandidate>, Later> heap_;
};

// For pieces of a megabyte, which have many candidates of few ranks: a small heap of ranks over one list of places per
// rank. Places mostly arrive in ascending order; a list becomes a heap of its own where they do not.
class MergeBuckets {
 public:
  bool empty() const { return ranks_.empty(); }

  void push(const MergeCandidate& c) {
    Bucket& bucket = buckets_[c.rank];
    if (bucket.empty()) {
      bucket.clear();
      ranks_.push(c.rank);
    }
    bucket.push({c.at, c.result});
  }
  MergeCandidate pop() {
    const uint32_t rank = ranks_.top();
    Bucket& bucket = buckets_[rank];
    const Place place = bucket.pop();
    if (bucket.empty()) ranks_.pop();
    return {rank, place.at, place.result};
  }

 private:
  struct Place {
    uint32_t at;
    TokenId result;
    bool operator>(const Place& other) const { return at > other.at; }
  };
  class Bucket {
   public:
    bool empty() const { return next_ == places_.size(); }
    void clear() { places_.clear(), next_ = 0, is_heap_ = false; }
    void push(Place place) {
      if (!is_heap_ && !empty() && places_.back() > place) {
        places_.erase(places_.begin(), places_.begin() + static_cast<ptrdiff_t>(next_));
        next_ = 0, is_heap_ = true;
        std::make_heap(places_.begin(), places_.end(), std::greater<>());
      }
      places_.push_back(place);
      if (is_heap_) std::push_heap(places_.begin(), places_.end(), std::greater<>());
    }
    Place pop() {
      if (!is_heap_) return places_[next_++];
      std::pop_heap(places_.begin(), places_.end(), std::greater<>());
      const Place place = places_.back();
      places_.pop_back();
      return place;
    }

   private:
    std::vector<Place> places_;
    size_t next_ = 0;       // of a sorted list: the first that has not been taken
    bool is_heap_ = false;
  };
  absl::flat_hash_map<uint32_t, Bucket> buckets_;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ranks_;  // of the buckets that are not empty
};

}  // namespace shoal
