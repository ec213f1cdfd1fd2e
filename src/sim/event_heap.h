// What happens when: a min-heap of (instant, order of asking). One thread; the same askings give the same order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/time.h"

namespace shoal {

class EventHeap {
 public:
  using Act = absl::AnyInvocable<void()>;

  // `work`: false for what merely wakes somebody up: with nothing else left, nothing more will happen.
  void at(TimePoint when, Act act, bool work = true) {
    items_.push_back({when, next_order_++, work, std::move(act)});
    std::push_heap(items_.begin(), items_.end(), later);
    work_ += work;
  }

  bool empty() const { return items_.empty(); }
  bool has_work() const { return work_ > 0; }
  TimePoint next_time() const { return items_.front().at; }  // REQUIRES: not empty

  // REQUIRES: not empty.
  Act pop() {
    std::pop_heap(items_.begin(), items_.end(), later);
    Item item = std::move(items_.back());
    items_.pop_back();
    work_ -= item.work;
    return std::move(item.act);
  }

 private:
  struct Item {
    TimePoint at;
    uint64_t order;
    bool work;
    Act act;
  };
  static bool later(const Item& a, const Item& b) { return std::pair(a.at, a.order) > std::pair(b.at, b.order); }

  std::vector<Item> items_;
  uint64_t next_order_ = 0;
  uint64_t work_ = 0;
};

}  // namespace shoal
