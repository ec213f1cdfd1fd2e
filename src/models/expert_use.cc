#include "models/expert_use.h"

#include <algorithm>

namespace shoal {

void ExpertUse::note(uint32_t first, const ExpertRoutes& routes) {
  for (const ExpertRoutes::Active& active : routes.active) rows_[first + active.expert] += active.rows;
  uint64_t& all = layer_rows_[first / per_layer_];
  all += routes.routed.size();
  if (all <= kRowsRemembered) return;
  all = 0;
  for (uint64_t& rows : std::span(rows_).subspan(first, per_layer_)) all += rows /= 2;
}

std::vector<float> ExpertUse::skew() const {
  std::vector<float> result;
  for (size_t layer = 0; layer < layer_rows_.size(); ++layer) {
    const auto rows = std::span(rows_).subspan(layer * per_layer_, per_layer_);
    const double mean = static_cast<double>(layer_rows_[layer]) / per_layer_;
    result.push_back(mean == 0 ? 0.0f : static_cast<float>(static_cast<double>(*std::max_element(rows.begin(), rows.end())) / mean));
  }
  return result;
}

}  // namespace shoal
