// What the two files of the sampler have in common. For them only.
#pragma once

#include <cstdint>

#include "kernels/scalar_math.h"

namespace shoal {

constexpr float kGreedyBelow = 1e-5f;  // temperatures under this are greedy: the scaled logits would overflow
constexpr uint64_t kSamplingStream = 0x73616d706c65ull;
constexpr double kLogWeightMin = -690.0;

// e^x for x <= 0, 0 where a double of any sum would not notice it.
inline double weight(double x) { return x < kLogWeightMin ? 0.0 : portable_exp(x); }

// More likely first; equal logits by ascending id, so that the order is total.
struct MoreLikely {
  template <typename C>
  bool operator()(const C& a, const C& b) const {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
};

}  // namespace shoal
