// Rotary position embedding: frequencies of every published scaling, and the table of a step.
//
// RoFormer (arXiv 2104.09864); linear and dynamic NTK scaling, YaRN (arXiv 2309.00071), Llama 3.1's rule and LongRoPE
// (arXiv 2402.13753) as the Hugging Face reference computes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/model_config.h"

namespace shoal {

class RopeFrequencies {
 public:
  // `divisors` [dims / 2] divides the frequencies (GGUF's rope_freqs); empty: none. REQUIRES: checked config.
  explicit RopeFrequencies(const RopeConfig& config, std::span<const float> divisors = {});

  // cos and sin, [dims / 2] each, of the token at `position` of a sequence whose prompt has `rope_length` tokens. Only
  // dynamic and longrope scaling look at the length.
  void table(uint32_t position, uint32_t rope_length, float* cos, float* sin) const;

  const RopeConfig& config() const { return config_; }
  uint32_t half() const { return config_.dims / 2; }

 private:
  RopeConfig config_;
  float magnitude_ = 1.0f;           // scale of cos and sin
  std::vector<float> inverse_;       // radians per position
  std::vector<float> long_inverse_;  // longrope, beyond the original context
};

// The factor of queries at that position.
float query_growth_at(const QueryGrowth& growth, uint32_t position);

// The frequencies alone, [dims / 2]; for tests and for dynamic scaling.
void rope_frequencies(const RopeConfig& config, uint32_t rope_length, float* inverse);

}  // namespace shoal
