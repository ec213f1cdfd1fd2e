#include "experts/step_times.h"

#include <algorithm>
#include <utility>

namespace shoal {

uint32_t StepTimes::begin(uint32_t rows, uint32_t sequences, uint32_t lanes_max, TimePoint now) {
  const uint32_t most = std::max(1u, std::min({sequences, lanes_max, lanes_max_}));
  step_ = {.rows = rows, .lanes = choose_ ? std::min(choice_.choose(rows, sequences), most) : most, .begun = now, .working = now};
  return step_.lanes;
}

void StepTimes::end(TimePoint now) {
  if (step_.exchanges == 0) return;
  const auto each = static_cast<double>(step_.exchanges);
  choice_.measured(step_.rows, step_.lanes, to_seconds(now - step_.begun), {.attention = step_.computed / each, .experts = step_.away / each});
}

void StepTimes::works(TimePoint now) {
  waits(now);
  step_.working = now;
}

void StepTimes::waits(TimePoint now) {
  if (step_.working != kForever) step_.computed += to_seconds(now - std::exchange(step_.working, kForever));
}

void StepTimes::answered(Duration away) {
  step_.away += to_seconds(away);
  ++step_.exchanges;
}

}  // namespace shoal
