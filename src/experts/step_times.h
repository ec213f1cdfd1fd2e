// What the steps of a client of experts take on either side, and so how many lanes the next one has. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "policy/expert_calls.h"
#include "policy/lane_choice.h"

namespace shoal {

// How far what a lane computes hides what its experts take, lately.
struct ExpertOverlap {
  uint32_t lanes = 0;       // of the last step; 0: there was none
  double attention_s = 0;   // computing of a lane and layer beside the experts, mean
  double response_s = 0;    // from the rows of a lane and layer to their answers, 95th percentile

  // What can hide a response: the other lanes' computing; 0 if there are none.
  double hidden_s() const { return lanes > 1 ? (lanes - 1) * attention_s : 0; }
};

class StepTimes {
 public:
  // `choose`: as measured to be quickest; else as many as may be.
  StepTimes(uint32_t lanes_max, bool choose) : lanes_max_(lanes_max), choose_(choose), choice_(lanes_max) {}

  uint32_t begin(uint32_t rows, uint32_t sequences, uint32_t lanes_max, TimePoint now);  // how many lanes it has
  void end(TimePoint now);
  void works(TimePoint now);  // the device has something to do, from now on
  void waits(TimePoint now);  // and now it has not
  void answered(Duration away);
  ExpertOverlap overlap() const;
  std::optional<ExpertOverlap> news(TimePoint now);  // once a second, for the servers

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
  uint32_t last_lanes_ = 0;
  double attention_ = 0;     // of a lane and layer, a moving average of steps
  ExpertAnswerTimes aways_;
  TimePoint news_at_{};
};

}  // namespace shoal
