// How many lanes a step of a model with its experts elsewhere is cut into. One lane more hides more of what the experts take and costs launches
// and products of fewer rows: the seconds of a layer fall and then rise with the lanes (policy/overlap.h), so a neighbour of the number in use is
// tried, step by step in turns with it, wherever overlap could make it quicker, and is taken if it was. What is settled is tried again ever less
// often, until the times change. Pure.
#pragma once

#include <array>
#include <cstdint>

#include "policy/overlap.h"

namespace shoal {

class LaneChoice {
 public:
  explicit LaneChoice(uint32_t lanes_max) : lanes_max_(lanes_max) {}

  // For a step of so many rows of so many sequences; no lane is empty.
  uint32_t choose(uint32_t rows, uint32_t sequences);
  // The step was computed in `seconds`, one lane taking `times` in a layer.
  void measured(uint32_t rows, uint32_t lanes, double seconds, const LaneTimes& times);

 private:
  static constexpr uint32_t kSizes = 16;  // steps of about as many rows are alike
  // A number of lanes beside the one in use.
  struct Trial {
    uint32_t lanes = 0;           // 0: none is under way
    uint32_t steps = 0;           // of it
    double seconds = 0;           // of those that count
    double beside = 0;            // of the steps of the one in use between them
    uint32_t counted = 0, besides = 0;
  };
  struct Size {
    uint32_t lanes = 1;           // in use
    uint32_t steps = 0;           // measured with it
    double seconds = 0;           // moving averages of them
    LaneTimes times;
    Trial trial;
    bool more = true;             // the next trial has a lane more, not less
    uint32_t every = 0;           // steps between trials
    uint32_t wait = 0;            // steps until the next
    double settled = 0;           // `seconds` after the last trial
  };
  static uint32_t size_of(uint32_t rows);
  static void begin_trial(Size& size, uint32_t most);
  static void decide(Size& size);
  static void keep(Size& size, double seconds, const LaneTimes& times);

  const uint32_t lanes_max_;
  std::array<Size, kSizes> sizes_;
};

}  // namespace shoal
