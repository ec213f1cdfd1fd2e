#include "text/grammar/trigger_scanner.h"

#include "base/check.h"

namespace shoal::grammar {

TriggerScanner::TriggerScanner(const std::vector<std::string>& triggers) : next_(1) {
  size_t bytes = 0;
  for (const std::string& trigger : triggers) {
    CHECK(!trigger.empty());
    bytes += trigger.size();
    uint32_t at = 0;
    for (size_t i = 0; i < trigger.size() && at != kFound; ++i) {  // what goes on after another trigger is never reached
      const auto byte = static_cast<uint8_t>(trigger[i]);
      uint32_t next = next_[at][byte];
      if (i + 1 == trigger.size()) {
        next = next_[at][byte] = kFound;
      } else if (next == 0) {
        next = next_[at][byte] = static_cast<uint32_t>(next_.size());
        next_.emplace_back();
      }
      at = next;
    }
  }
  CHECK_LE(bytes, kBytesMax);
  // Breadth first: a missing edge is that of the longest proper suffix, whose edges are complete by then.
  std::vector<uint32_t> order, fallback(next_.size(), 0);
  for (uint32_t& next : next_[0]) if (next != 0 && next != kFound) order.push_back(next);
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t state = order[i];
    for (size_t byte = 0; byte < 256; ++byte) {
      uint32_t& next = next_[state][byte];
      const uint32_t shorter = next_[fallback[state]][byte];
      if (shorter == kFound || next == 0) {
        next = shorter;
      } else if (next != kFound) {
        fallback[next] = shorter;
        order.push_back(next);
      }
    }
  }
}

}  // namespace shoal::grammar
