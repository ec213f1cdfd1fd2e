// Which experts have become hot or cold, and when one expert server more or less is due: moving averages and streaks, so that
// one odd window changes nothing. Pure; the caller says when a window ends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
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

struct ExpertScaleView {
  uint32_t servers = 0;       // that do not drain
  double busy = 0;            // mean share of their time that they compute, of the slowest layer's servers
  double response_s = 0;      // p95 of an expert request
  double attention_s = 0;     // that hide it: computing of the lanes beside; 0: not known
};

struct ExpertScaleOptions {
  double busy_low = 0.70, busy_high = 0.85;
  double response_part = 0.9;  // of attention_s
  uint32_t windows = 3;
  uint32_t servers_min = 1, servers_max = 1024;
  Duration cool_down = std::chrono::seconds(60);  // about twice what loading a server takes
};

// One server more (+1), one less (-1), or as many as there are (0), once per window.
class ExpertScale {
 public:
  explicit ExpertScale(const ExpertScaleOptions& options) : options_(options) {}
  int window(const ExpertScaleView& view, TimePoint now);

 private:
  ExpertScaleOptions options_;
  uint32_t high_ = 0, low_ = 0;  // windows in a row
  TimePoint quiet_until_{};
};

}  // namespace shoal
