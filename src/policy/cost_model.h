// Predicted seconds of what a device does. Production predicts with it, the simulator takes it as the truth.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace shoal {

// Linear in what a step computes (the form of DistServe, appendix A, without its quadratic term).
struct CostModel {
  double step_seconds = 0.004;             // of an empty step: weights are read once
  double row_seconds = 0.0002;             // per token computed
  double context_token_seconds = 0.0;      // per token attended to
  double load_bytes_per_second = 2e9;
  double copy_bytes_per_second = 10e9;     // between the tiers

  Duration step(uint64_t rows, uint64_t context_tokens) const {
    return from_seconds(step_seconds + row_seconds * static_cast<double>(rows) +
                        context_token_seconds * static_cast<double>(context_tokens));
  }
  Duration copy(uint64_t bytes) const { return from_seconds(static_cast<double>(bytes) / copy_bytes_per_second); }
  Duration load(uint64_t bytes) const { return from_seconds(static_cast<double>(bytes) / load_bytes_per_second); }
};

}  // namespace shoal
