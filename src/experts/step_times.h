// What the steps of a client of experts take on either side, and so how many lanes the next one has. Pure.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "policy/lane_choice.h"

namespace shoal {

class StepTimes {
 public:
  // `choose`: as measured to be quickest; else as many as may be.
  StepTimes(uint32_t lanes_max, bool choose) : lanes_max_(lanes_max), choose_(choose), choice_(lanes_max) {}

  uint32_t begin(uint32_t rows, uint32_t sequences, uint32_t lanes_max, TimePoint now);  // how many lanes it has
  void end(TimePoint now);
  void works(TimePoint now);  // the device has something to do, from now on
  void waits(TimePoint now);  // and now it has not
  void answered(Duration away);

 private:
  struct Step {
    uint32_t rows = 0, lanes = 1;
    TimePoint begun{};
    TimePoint working = kForever;      // since the device has something to do
    double computed = 0, away = 0;     // seconds, of all exchanges
    uint64_t exchanges = 0;
  };
  const uint32_t lanes_max_;
  const bool choose_;
  LaneChoice choice_;
  Step step_;
};

}  // namespace shoal
