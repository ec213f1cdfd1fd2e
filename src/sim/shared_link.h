// A link that the transfers on it share evenly: a device's bus, with weights and KV on it at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sim/event_heap.h"
#include "sim/world_state.h"

namespace shoal {

class SharedLink {
 public:
  SharedLink(WorldState& world, double bytes_per_second) : world_(world), rate_(bytes_per_second) {}

  // `done` at the instant when the last byte is through. Returns its number.
  uint64_t transfer(double bytes, std::function<void()> done);
  // Nobody hears of it any more; the bytes that were left of it, 0 if it has ended.
  double cancel(uint64_t number);
  void clear() { transfers_.clear(), ++plan_; }  // nobody hears of what was under way

 private:
  struct Transfer {
    double bytes_left;
    uint64_t order;
    std::function<void()> done;
  };
  void advance();
  void schedule();

  WorldState& world_;
  const double rate_;
  std::vector<Transfer> transfers_;
  TimePoint advanced_{};
  uint64_t plan_ = 0;  // of the next end; older ones are void
  uint64_t next_order_ = 0;
};

}  // namespace shoal
