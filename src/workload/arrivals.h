// When requests are sent: arrival processes as functions of a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"

namespace shoal {

struct ArrivalSpec {
  double rate = std::numeric_limits<double>::infinity();  // requests per second; infinite: all at once
  // Shape of the gamma distribution of the gaps: 1 is Poisson, below 1 burstier, above 1 more even, infinite a clock.
  double burstiness = 1;
  uint32_t burst_size = 1;  // requests that arrive together; bursts come at rate / burst_size
  // "", "linear" or "exponential": the rate goes from ramp_start to ramp_end over the requests instead.
  std::string ramp;
  double ramp_start = 0;
  double ramp_end = 0;
  uint64_t seed = 0;
};

// Seconds from the start at which each of `count` requests is due, ascending. Without a ramp the gaps are scaled so that
// the last one is due at count / rate: the rate that was asked for is the rate that is offered.
// InvalidArgument for a rate, shape or ramp that is not positive.
StatusOr<std::vector<double>> arrival_times_s(const ArrivalSpec& spec, size_t count);

class Rng;
// Gamma with this shape and mean 1: a gap between arrivals whose coefficient of variation is 1 / sqrt(shape). Infinite: 1.
double unit_gamma(Rng& rng, double shape);

}  // namespace shoal
