#include "sim/shared_link.h"

#include <algorithm>

namespace shoal {

uint64_t SharedLink::transfer(double bytes, std::function<void()> done) {
  advance();
  transfers_.push_back({bytes, next_order_, std::move(done)});
  schedule();
  return next_order_++;
}

double SharedLink::cancel(uint64_t number) {
  advance();
  const auto found = std::find_if(transfers_.begin(), transfers_.end(), [number](const Transfer& t) { return t.order == number; });
  if (found == transfers_.end()) return 0;
  const double left = found->bytes_left;
  transfers_.erase(found);
  ++plan_;
  schedule();
  return left;
}

void SharedLink::advance() {
  const double each = to_seconds(world_.now - advanced_) * rate_ / static_cast<double>(std::max<size_t>(transfers_.size(), 1));
  for (Transfer& t : transfers_) t.bytes_left = std::max(0.0, t.bytes_left - each);
  advanced_ = world_.now;
}

void SharedLink::schedule() {
  if (transfers_.empty()) return;
  const auto first = std::min_element(transfers_.begin(), transfers_.end(), [](const Transfer& a, const Transfer& b) {
    return std::pair(a.bytes_left, a.order) < std::pair(b.bytes_left, b.order);
  });
  const double seconds = first->bytes_left * static_cast<double>(transfers_.size()) / rate_;
  world_.after(from_seconds(seconds), [this, plan = ++plan_, order = first->order] {
    if (plan != plan_) return;
    advance();
    const auto ended = std::find_if(transfers_.begin(), transfers_.end(), [&](const Transfer& t) { return t.order == order; });
    const auto done = std::move(ended->done);
    transfers_.erase(ended);
    schedule();
    done();
  });
}

}  // namespace shoal
