// Which experts rows are routed to, counted by layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/expert_counts.h"
#include "kernels/expert_ops.h"

namespace shoal {

// Used by one thread.
class ExpertUse {
 public:
  // `per_layer` experts in each of the layers that have some.
  ExpertUse(uint32_t experts, uint32_t per_layer) : per_layer_(per_layer), rows_(experts), layer_rows_(experts / per_layer) {}

  // Rows of the layer whose first expert is `first`.
  void note(uint32_t first, const ExpertRoutes& routes);
  std::vector<float> skew() const;

 private:
  static constexpr uint64_t kRowsRemembered = 1 << 16;  // of a layer; older ones count half

  const uint32_t per_layer_;
  std::vector<uint64_t> rows_;        // by expert
  std::vector<uint64_t> layer_rows_;
};

}  // namespace shoal
