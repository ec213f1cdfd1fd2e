// When one expert server more or less is due, and which one goes: streaks of windows and a pause after each change, so that one odd window
// changes nothing. Pure; the caller says when a window ends.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/time.h"

namespace shoal {

struct ExpertScaleView {
  uint32_t servers = 0;       // that do not drain
  double busy = 0;            // mean share of their time that they compute, of the slowest layer's servers
  double response_s = 0;      // p95, from a lane's rows to their answers, of the client that waits most
  double hidden_s = 0;        // of that: what the lanes beside compute meanwhile; 0: not known, or there are none
  uint64_t bytes = 0;         // of one copy of every expert; 0: memory is enough
  uint64_t server_bytes = 0;  // for experts, of each server
};

struct ExpertScaleOptions {
  double busy_low = 0.70, busy_high = 0.85;  // one less is due below, one more above
  double response_part = 0.9;  // of hidden_s: one more is due above, if the servers are not idle, whom one more would not help
  uint32_t windows = 3;        // in a row
  uint32_t servers_min = 1, servers_max = 1024;
  uint32_t copies_min = 2;     // that must have room when a server goes, as far as there are servers for them
  Duration cool_down = std::chrono::seconds(60);  // about twice what loading a server takes
};

// One server more (+1), one less (-1), or as many as there are (0), once per window. Never fewer than servers_min or than one copy of every
// expert needs, never more than servers_max.
class ExpertScale {
 public:
  explicit ExpertScale(const ExpertScaleOptions& options) : options_(options) {}
  int window(const ExpertScaleView& view, TimePoint now);

 private:
  bool holds(const ExpertScaleView& view, uint32_t servers, uint32_t copies) const;

  ExpertScaleOptions options_;
  uint32_t high_ = 0, low_ = 0;  // windows in a row
  TimePoint quiet_until_{};
};

struct ScaledServer {
  uint32_t number = 0;   // the later it came, the higher
  bool by_hand = false;  // an operator placed experts on it
};
// Which of them goes when there is one too many: the last that came, and one on which an operator placed something only if all are like that.
// Nothing if there is none.
std::optional<size_t> which_leaves(std::span<const ScaledServer> servers);

}  // namespace shoal
