#include "experts/step_times.h"

#include <algorithm>
#include <utility>

namespace shoal {
namespace {

constexpr Duration kNewsEvery = std::chrono::seconds(1);
constexpr double kNewest = 1.0 / 16;  // what a step counts for in a moving average

}  // namespace

uint32_t StepTimes::begin(uint32_t rows, uint32_t sequences, uint32_t lanes_max, TimePoint now) {
  if (step_.exchanges > 0) {
    const double attention = step_.computed / static_cast<double>(step_.exchanges);
    attention_ += (attention_ == 0 ? 1 : kNewest) * (attention - attention_);
    last_lanes_ = step_.lanes;
  }
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
  aways_.add(away);
}

ExpertOverlap StepTimes::overlap() const { return {.lanes = last_lanes_, .attention_s = attention_, .response_s = to_seconds(aways_.percentile(0.95))}; }

std::optional<ExpertOverlap> StepTimes::news(TimePoint now) {
  if (last_lanes_ == 0 || now - news_at_ < kNewsEvery) return std::nullopt;
  news_at_ = now;
  return overlap();
}

}  // namespace shoal
