#include "models/rope.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/scalar_math.h"

namespace shoal {
namespace {

constexpr double kTwoPi = 6.283185307179586;

// theta^(-2i / dims)
double plain_frequency(double theta, uint32_t i, uint32_t dims) {
  return portable_pow(theta, -2.0 * i / dims);
}

// Llama 3.1: long wavelengths are stretched by the factor, short ones kept, those between interpolated.
double llama3_frequency(const RopeConfig& c, double frequency) {
  const double wavelength = kTwoPi / frequency;
  if (wavelength > c.original_context / c.low_freq_factor) return frequency / c.factor;
  if (wavelength < c.original_context / c.high_freq_factor) return frequency;
  const double smooth =
      (c.original_context / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  return (1 - smooth) * frequency / c.factor + smooth * frequency;
}

// YaRN, 3.2 ("NTK-by-parts"): the dimension that makes `rotations` turns within the trained context.
double yarn_dimension(const RopeConfig& c, double rotations) {
  return c.dims * portable_log(c.original_context / (rotations * kTwoPi)) / (2 * portable_log(c.theta));
}

double yarn_frequency(const RopeConfig& c, uint32_t i, double frequency) {
  double low = yarn_dimension(c, c.beta_fast), high = yarn_dimension(c, c.beta_slow);
  if (c.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, c.dims - 1.0);
  if (low == high) high += 0.001;
  const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
  return frequency / c.factor * ramp + frequency * (1 - ramp);
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * portable_log(factor) + 1.0;
}

double magnitude(const RopeConfig& c) {
  if (c.scaling != RopeScaling::kYarn && c.scaling != RopeScaling::kLongRope) return 1.0;
  if (c.attention_factor) return *c.attention_factor;
  if (c.scaling == RopeScaling::kLongRope) {
    return c.factor <= 1 ? 1.0 : std::sqrt(1 + portable_log(c.factor) / portable_log(c.original_context));
  }
  if (c.mscale != 0 && c.mscale_all_dim != 0) return yarn_mscale(c.factor, c.mscale) / yarn_mscale(c.factor, c.mscale_all_dim);
  return yarn_mscale(c.factor, 1.0);
}

// Dynamic NTK: the base grows with the length, so that the lowest frequency just covers it.
double dynamic_theta(const RopeConfig& c, uint32_t length) {
  const double scale = c.factor * std::max(length, c.original_context) / c.original_context - (c.factor - 1);
  return c.dims <= 2 ? c.theta : c.theta * portable_pow(scale, c.dims / (c.dims - 2.0));
}

// Hunyuan: the base is stretched once and for all.
double alpha_theta(const RopeConfig& c) { return c.dims <= 2 ? c.theta : c.theta * portable_pow(c.factor, c.dims / (c.dims - 2.0)); }

double base(const RopeConfig& c, uint32_t rope_length) {
  if (c.scaling == RopeScaling::kDynamic) return dynamic_theta(c, rope_length);
  return c.scaling == RopeScaling::kAlpha ? alpha_theta(c) : c.theta;
}

}  // namespace

float query_growth_at(const QueryGrowth& growth, uint32_t position) {
  return static_cast<float>(1.0 + growth.factor * portable_log(1.0 + (position + growth.ahead) / growth.tokens));
}

void rope_frequencies(const RopeConfig& config, uint32_t rope_length, float* inverse) {
  const double theta = base(config, rope_length);
  const auto& factors = rope_length > config.original_context ? config.long_factor : config.short_factor;
  for (uint32_t i = 0; i < config.dims / 2; ++i) {
    double frequency = plain_frequency(theta, i, config.dims);
    switch (config.scaling) {
      case RopeScaling::kLinear: frequency /= config.factor; break;
      case RopeScaling::kLlama3: frequency = llama3_frequency(config, frequency); break;
      case RopeScaling::kYarn: frequency = yarn_frequency(config, i, frequency); break;
      case RopeScaling::kLongRope: frequency /= factors[i]; break;
      case RopeScaling::kProportional: frequency = i < config.turning_pairs ? frequency / config.factor : 0.0; break;
      default: break;
    }
    inverse[i] = static_cast<float>(frequency);
  }
}

RopeFrequencies::RopeFrequencies(const RopeConfig& config, std::span<const float> divisors)
    : config_(config), magnitude_(static_cast<float>(magnitude(config))), inverse_(config.dims / 2) {
  rope_frequencies(config, 0, inverse_.data());
  if (config.scaling == RopeScaling::kLongRope) {
    long_inverse_.resize(inverse_.size());
    rope_frequencies(config, config.original_context + 1, long_inverse_.data());
  }
  if (divisors.empty()) return;
  CHECK_EQ(divisors.size(), inverse_.size());
  for (size_t i = 0; i < inverse_.size(); ++i) inverse_[i] /= divisors[i];
}

void RopeFrequencies::table(uint32_t position, uint32_t rope_length, float* cos, float* sin) const {
  float scratch[kConfigHeadDimMax / 2];
  const float* inverse = inverse_.data();
  const bool longer = rope_length > config_.original_context;
  if (config_.scaling == RopeScaling::kLongRope && longer) inverse = long_inverse_.data();
  if (config_.scaling == RopeScaling::kDynamic && longer) {
    rope_frequencies(config_, rope_length, scratch);
    inverse = scratch;
  }
  for (size_t i = 0; i < inverse_.size(); ++i) {
    const float angle = static_cast<float>(position) * inverse[i];  // f32, as the reference multiplies
    const SinCos value = portable_sincos(angle);
    cos[i] = static_cast<float>(value.cos) * magnitude_;
    sin[i] = static_cast<float>(value.sin) * magnitude_;
  }
}

}  // namespace shoal
