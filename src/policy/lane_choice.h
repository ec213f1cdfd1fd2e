// How many lanes a step of a model with its experts elsewhere is cut into: each number that may be best, as predicted from measured times
// (policy/overlap.h), is tried a few times; then it is what was measured that counts. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "policy/overlap.h"

namespace shoal {

class LaneChoice {
 public:
  explicit LaneChoice(uint32_t lanes_max) : lanes_max_(lanes_max) {}

  // For a step of so many rows of so many sequences; no lane is empty. Now and then another number than the best is tried, so that what
  // changes is noticed.
  uint32_t choose(uint32_t rows, uint32_t sequences);
  // The step was computed in `seconds`, one lane taking `times` in a layer.
  void measured(uint32_t rows, uint32_t lanes, double seconds, const LaneTimes& times);

 private:
  static constexpr uint32_t kSizes = 16;     // steps of about as many rows are alike
  static constexpr uint32_t kKnown = 3;      // steps, before their time counts
  static constexpr uint32_t kTryEvery = 64;
  struct Tried {
    uint32_t count = 0;
    double seconds = 0;  // a moving average
    LaneTimes times;     // likewise
  };
  struct Size {
    std::array<Tried, kLanesMax> tried;  // by lanes - 1
    uint32_t steps = 0;
  };
  static uint32_t size_of(uint32_t rows);
  double seconds(const Size& size, uint32_t lanes) const;

  const uint32_t lanes_max_;
  std::array<Size, kSizes> sizes_;
};

}  // namespace shoal
