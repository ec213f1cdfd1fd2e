#include "policy/lane_choice.h"

#include <algorithm>
#include <bit>

namespace shoal {
namespace {

constexpr double kNewest = 0.1;   // its weight in the averages
constexpr double kWorth = 0.01;   // a lane more costs memory and launches
constexpr double kMaybe = 2;      // times the best that is known or thought to be
// A lane of half the rows takes three quarters of the time, until it is known.
constexpr double kFixedPart = 0.5;

LaneTimes scaled(const LaneTimes& times, double by) { return {times.attention * by, times.experts * by, times.dispatch * by, times.combine * by}; }

}  // namespace

uint32_t LaneChoice::size_of(uint32_t rows) { return std::min<uint32_t>(static_cast<uint32_t>(std::bit_width(rows)), kSizes - 1); }

// Of a step with so many lanes; -1: nothing is known yet.
double LaneChoice::seconds(const Size& size, uint32_t lanes) const {
  const Tried& tried = size.tried[lanes - 1];
  if (tried.count >= kKnown) return tried.seconds;
  for (uint32_t distance = 1; distance < kLanesMax; ++distance) {
    for (const int other : {static_cast<int>(lanes) - static_cast<int>(distance), static_cast<int>(lanes + distance)}) {
      if (other < 1 || other > static_cast<int>(kLanesMax)) continue;
      const Tried& known = size.tried[static_cast<size_t>(other - 1)];
      if (known.count < kKnown) continue;
      const double by = kFixedPart + (1 - kFixedPart) * other / lanes;
      return known.seconds * layer_seconds(scaled(known.times, by), lanes) / layer_seconds(known.times, static_cast<uint32_t>(other));
    }
  }
  return -1;
}

uint32_t LaneChoice::choose(uint32_t rows, uint32_t sequences) {
  const uint32_t most = std::max(1u, std::min({lanes_max_, sequences, kLanesMax}));
  Size& size = sizes_[size_of(rows)];
  ++size.steps;
  double best = seconds(size, 1);
  if (best < 0) return 1;
  for (uint32_t m = 2; m <= most; ++m) best = std::min(best, seconds(size, m));
  for (uint32_t m = 1; m <= most; ++m) {  // what may be best is tried before anything is settled
    if (size.tried[m - 1].count < kKnown && seconds(size, m) < best * kMaybe) return m;
  }
  uint32_t lanes = 1;
  while (lanes < most && seconds(size, lanes) > best * (1 + kWorth)) ++lanes;
  if (size.steps % kTryEvery != 0) return lanes;
  // The neighbour that was tried less.
  const uint32_t fewer = std::max(lanes - 1, 1u), more = std::min(lanes + 1, most);
  if (fewer == lanes) return more;
  return more == lanes || size.tried[fewer - 1].count <= size.tried[more - 1].count ? fewer : more;
}

void LaneChoice::measured(uint32_t rows, uint32_t lanes, double seconds, const LaneTimes& times) {
  if (lanes < 1 || lanes > kLanesMax || !(seconds > 0)) return;
  Tried& tried = sizes_[size_of(rows)].tried[lanes - 1];
  ++tried.count;
  const double weight = tried.count <= 2 ? 1 : std::max(kNewest, 1.0 / (tried.count - 1));  // the first one of its kind takes longer
  const auto blend = [&](double& kept, double newest) { kept += weight * (newest - kept); };
  blend(tried.seconds, seconds);
  blend(tried.times.attention, times.attention);
  blend(tried.times.experts, times.experts);
  blend(tried.times.dispatch, times.dispatch);
  blend(tried.times.combine, times.combine);
}

}  // namespace shoal
