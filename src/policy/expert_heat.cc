#include "policy/expert_heat.h"

#include <algorithm>

namespace shoal {

ExpertHeat::ExpertHeat(std::span<const ExpertLayerSpec> layers, const HeatOptions& options) : layers_(layers.begin(), layers.end()), options_(options) {
  for (const ExpertLayerSpec& layer : layers_) {
    rows_.emplace_back(layer.experts, 0.0);
    streaks_.emplace_back(layer.experts);
  }
}

std::vector<ExpertCopies> ExpertHeat::window(std::span<const std::vector<double>> rows, const ExpertPlacement& placement) {
  std::vector<ExpertCopies> out;
  if (rows.size() != layers_.size()) return out;
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (rows[l].size() != layers_[l].experts) return out;
  }
  for (size_t l = 0; l < layers_.size(); ++l) {
    double sum = 0, copies = 0;
    for (uint32_t e = 0; e < layers_[l].experts; ++e) {
      rows_[l][e] = started_ ? (1 - options_.forget) * rows_[l][e] + options_.forget * rows[l][e] : rows[l][e];
      sum += rows_[l][e];
      copies += static_cast<double>(placement.of(layers_[l].layer, e).size());
    }
    if (sum <= 0 || copies <= 0) continue;
    for (uint32_t e = 0; e < layers_[l].experts; ++e) {
      const auto held = static_cast<uint32_t>(placement.of(layers_[l].layer, e).size());
      if (held == 0) continue;  // it is missing, which is not a matter of heat
      const double heat = rows_[l][e] / held / (sum / copies);
      Streak& streak = streaks_[l][e];
      streak.hot = heat > options_.hot && held < options_.copies_max ? streak.hot + 1 : 0;
      streak.cold = heat < options_.cold && held > options_.copies_min ? streak.cold + 1 : 0;
      if (streak.hot < options_.windows && streak.cold < options_.windows) continue;
      out.push_back({layers_[l].layer, e, streak.hot > 0 ? held + 1 : held - 1});
      streak = {};
    }
  }
  started_ = true;
  return out;
}

}  // namespace shoal
