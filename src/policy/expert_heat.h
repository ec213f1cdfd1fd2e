// Which experts have become hot or cold: moving averages and streaks, so that one odd window changes nothing. Pure; the caller says
// when a window ends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/expert_placement.h"

namespace shoal {

struct HeatOptions {
  double hot = 1.5;            // times the layer's mean rows per copy: one more copy
  double cold = 0.6;           // below: one less
  uint32_t windows = 3;        // in a row
  double forget = 0.3;         // weight of the newest window in the averages
  uint32_t copies_min = 2;
  uint32_t copies_max = 8;
};

// Of one model's layers.
class ExpertHeat {
 public:
  ExpertHeat(std::span<const ExpertLayerSpec> layers, const HeatOptions& options);

  // `rows`: [layers][experts] rows in the window that ended. What should have another number of copies than `placement` gives
  // it, for PlacementView::copies. A window of another shape is ignored.
  std::vector<ExpertCopies> window(std::span<const std::vector<double>> rows, const ExpertPlacement& placement);
  // [layers][experts] the moving averages, for PlacementView::rows.
  const std::vector<std::vector<double>>& rows() const { return rows_; }

 private:
  struct Streak {
    uint32_t hot = 0, cold = 0;  // windows
  };
  std::vector<ExpertLayerSpec> layers_;
  HeatOptions options_;
  std::vector<std::vector<double>> rows_;
  std::vector<std::vector<Streak>> streaks_;
  bool started_ = false;
};

}  // namespace shoal
