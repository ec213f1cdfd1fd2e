#include "policy/lane_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace shoal {
namespace {

constexpr double kNewest = 0.1;         // its weight in the averages
constexpr double kWorth = 0.01;         // a lane more costs memory and launches
constexpr double kClearlyWorse = 1.1;   // one step that counts is enough then
constexpr uint32_t kKnown = 3;          // steps, before a time counts
constexpr uint32_t kTryEvery = 64, kTryAtLeastEvery = 2048;
constexpr double kChanged = 0.25;       // of what was settled

LaneTimes scaled(const LaneTimes& times, double by) { return {times.attention * by, times.experts * by, times.dispatch * by, times.combine * by}; }

}  // namespace

uint32_t LaneChoice::size_of(uint32_t rows) { return std::min<uint32_t>(static_cast<uint32_t>(std::bit_width(rows)), kSizes - 1); }

// A neighbour that overlap could make quicker: a lane's time goes with its rows at best.
void LaneChoice::begin_trial(Size& size, uint32_t most) {
  const double now = layer_seconds(size.times, size.lanes);
  const auto could_be_quicker = [&](uint32_t lanes) {
    return lanes >= 1 && lanes <= most && (lanes < size.lanes || layer_seconds(scaled(size.times, static_cast<double>(size.lanes) / lanes), lanes) < now * (1 - kWorth));
  };
  const uint32_t first = size.more ? size.lanes + 1 : size.lanes - 1, other = size.more ? size.lanes - 1 : size.lanes + 1;
  size.trial = {};
  if (could_be_quicker(first)) {
    size.trial.lanes = first;
  } else if (could_be_quicker(other)) {
    size.trial.lanes = other;
    size.more = !size.more;
  }
}

// Ends the trial if it is known who is quicker.
void LaneChoice::decide(Size& size) {
  const Trial& trial = size.trial;
  if (trial.counted == 0 || trial.besides == 0) return;
  const double tried = trial.seconds / trial.counted, in_use = trial.beside / trial.besides;
  if (tried < in_use * kClearlyWorse && (trial.counted < kKnown || trial.besides < kKnown)) return;
  const bool quicker = trial.lanes > size.lanes ? tried < in_use * (1 - kWorth) : tried <= in_use * (1 + kWorth);
  if (quicker) {  // and on in the same direction
    size.lanes = trial.lanes;
    size.steps = size.every = 0;
    size.seconds = tried;
  } else {
    size.more = !size.more;
    size.every = size.every == 0 ? kTryEvery : std::min(2 * size.every, kTryAtLeastEvery);
  }
  size.wait = size.every;
  size.settled = size.seconds;
  size.trial = {};
}

uint32_t LaneChoice::choose(uint32_t rows, uint32_t sequences) {
  const uint32_t most = std::max(1u, std::min({lanes_max_, sequences, kLanesMax}));
  Size& size = sizes_[size_of(rows)];
  if (size.lanes > most) return most;
  if (size.steps < kKnown) return size.lanes;
  if (size.trial.lanes > most) size.trial = {};
  if (size.trial.lanes == 0) {
    if (std::abs(size.seconds - size.settled) > kChanged * size.settled) {
      size.settled = size.seconds;
      size.every = std::min(size.every, kTryEvery);
      size.wait = std::min(size.wait, kTryEvery);
    }
    if (size.wait > 0) {
      --size.wait;
    } else {
      begin_trial(size, most);
    }
  }
  const Trial& trial = size.trial;
  if (trial.lanes == 0) return size.lanes;
  return trial.steps <= trial.besides ? trial.lanes : size.lanes;  // in turns
}

void LaneChoice::keep(Size& size, double seconds, const LaneTimes& times) {
  ++size.steps;
  const double weight = size.steps <= 2 ? 1 : std::max(kNewest, 1.0 / (size.steps - 1));  // the first one of its kind takes longer
  const auto blend = [&](double& kept, double newest) { kept += weight * (newest - kept); };
  blend(size.seconds, seconds);
  blend(size.times.attention, times.attention);
  blend(size.times.experts, times.experts);
  blend(size.times.dispatch, times.dispatch);
  blend(size.times.combine, times.combine);
}

void LaneChoice::measured(uint32_t rows, uint32_t lanes, double seconds, const LaneTimes& times) {
  if (lanes < 1 || lanes > kLanesMax || !(seconds > 0)) return;
  Size& size = sizes_[size_of(rows)];
  Trial& trial = size.trial;
  if (lanes == size.lanes) {
    keep(size, seconds, times);
    if (trial.lanes != 0) {
      trial.beside += seconds;
      ++trial.besides;
      decide(size);
    }
  } else if (lanes == trial.lanes) {
    if (++trial.steps == 1) return;  // the first one takes longer
    trial.seconds += seconds;
    ++trial.counted;
    decide(size);
  }
}

}  // namespace shoal
