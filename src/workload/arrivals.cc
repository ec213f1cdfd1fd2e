#include "workload/arrivals.h"

#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace shoal {
namespace {

double normal(Rng& rng) {  // Box and Muller 1958
  const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
  return radius * std::cos(2 * std::numbers::pi * rng.uniform());
}

double rate_at(const ArrivalSpec& spec, double progress) {
  if (spec.ramp == "linear") return spec.ramp_start + (spec.ramp_end - spec.ramp_start) * progress;
  if (spec.ramp == "exponential") return spec.ramp_start * std::pow(spec.ramp_end / spec.ramp_start, progress);
  return spec.rate;
}

Status check(const ArrivalSpec& spec) {
  if (!(spec.rate > 0)) return invalid_argument("--request-rate must be above 0, or inf");
  if (!(spec.burstiness > 0)) return invalid_argument("--burstiness must be above 0");
  if (spec.burst_size == 0) return invalid_argument("--burst-size must be at least 1");
  if (spec.ramp.empty()) return OkStatus();
  if (spec.ramp != "linear" && spec.ramp != "exponential") return invalid_argument("--ramp-up-strategy ", spec.ramp, " is neither linear nor exponential");
  if (!(spec.ramp_start > 0) || !(spec.ramp_end > 0) || std::isinf(spec.ramp_start) || std::isinf(spec.ramp_end)) {
    return invalid_argument("--ramp-up-start-rps and --ramp-up-end-rps must be above 0 and finite");
  }
  return OkStatus();
}

}  // namespace

// Gamma with this shape and mean 1. Marsaglia and Tsang 2000, "A simple method for generating gamma variables"; shapes
// below 1 through the boost of its section 6.
double unit_gamma(Rng& rng, double shape) {
  if (std::isinf(shape)) return 1;
  const double boosted = shape < 1 ? shape + 1 : shape;
  const double d = boosted - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal(rng);
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    const double u = 1 - rng.uniform();
    if (std::log(u) >= 0.5 * x * x + d - d * v + d * std::log(v)) continue;
    const double gamma = d * v;
    return shape < 1 ? gamma * std::pow(1 - rng.uniform(), 1 / shape) / shape : gamma / shape;
  }
}

StatusOr<std::vector<double>> arrival_times_s(const ArrivalSpec& spec, size_t count) {
  RETURN_IF_ERROR(check(spec));
  std::vector<double> times(count, 0.0);
  if (std::isinf(spec.rate) && spec.ramp.empty()) return times;
  Rng rng(spec.seed);
  double now = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i % spec.burst_size == 0) {
      now += unit_gamma(rng, spec.burstiness) * spec.burst_size / rate_at(spec, static_cast<double>(i) / static_cast<double>(count));
    }
    times[i] = now;
  }
  if (spec.ramp.empty() && now > 0) {
    const double scale = static_cast<double>(count) / spec.rate / now;
    for (double& time : times) time *= scale;
  }
  return times;
}

}  // namespace shoal
