// Instants and durations as values. Nothing below host, gateway and apps may ask for the time; it is handed `now`.
#pragma once

#include <chrono>
#include <cstdint>

namespace shoal {

using Duration = std::chrono::nanoseconds;

// The time line of one process: monotonic, arbitrary origin. The real one is base/clock.h, the simulated one a counter.
struct Timeline {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Timeline>;
  static constexpr bool is_steady = true;
};
using TimePoint = Timeline::time_point;

constexpr Duration from_seconds(double seconds) { return Duration(static_cast<int64_t>(seconds * 1e9)); }
constexpr double to_seconds(Duration d) { return static_cast<double>(d.count()) * 1e-9; }
constexpr TimePoint kForever = TimePoint::max();

}  // namespace shoal
