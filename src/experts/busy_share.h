// Which share of the last seconds was busy. One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/time.h"

namespace shoal {

class BusyShare {
 public:
  static constexpr Duration kPart = std::chrono::milliseconds(500);
  static constexpr int kParts = 8;  // that are over and count

  // Something ended now and took so long; what began before the part it ended in counts there all the same. `now` never goes back.
  void add(TimePoint now, Duration took) {
    Part& part = parts_[index(now) % parts_.size()];
    if (part.index != index(now)) part = {index(now), Duration(0)};
    part.busy += took;
  }
  // Of the last kParts that are over; those that are longer ago than that count as idle.
  double share(TimePoint now) const {
    Duration busy{};
    for (const Part& part : parts_) {
      if (part.index < index(now) && part.index + kParts >= index(now)) busy += part.busy;
    }
    return std::min(1.0, to_seconds(busy) / to_seconds(kPart * kParts));
  }

 private:
  struct Part {
    int64_t index = INT64_MIN / 2;
    Duration busy{};
  };
  static int64_t index(TimePoint now) { return now.time_since_epoch() / kPart; }

  std::array<Part, kParts + 1> parts_;  // and the one that is not over
};

}  // namespace shoal
