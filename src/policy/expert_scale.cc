#include "policy/expert_scale.h"

#include <algorithm>
#include <tuple>

namespace shoal {

bool ExpertScale::holds(const ExpertScaleView& view, uint32_t servers, uint32_t copies) const {
  return static_cast<double>(view.bytes) * copies <= static_cast<double>(view.server_bytes) * servers;
}

int ExpertScale::window(const ExpertScaleView& view, TimePoint now) {
  const bool late = view.busy >= options_.busy_low && view.hidden_s > 0 && view.response_s > options_.response_part * view.hidden_s;
  const bool high = view.busy > options_.busy_high || late;
  // What one server less would leave must still be within the band, and hold what must be held.
  const bool low = !high && view.busy < options_.busy_low && view.servers > 1 && view.busy * view.servers / (view.servers - 1) <= options_.busy_high &&
                   holds(view, view.servers - 1, std::min(options_.copies_min, view.servers - 1));
  high_ = high ? high_ + 1 : 0;
  low_ = low ? low_ + 1 : 0;
  if (now < quiet_until_) return 0;
  const bool must = view.servers < options_.servers_min || (view.servers < options_.servers_max && !holds(view, view.servers, 1));
  int change = 0;
  if (must || (high_ >= options_.windows && view.servers < options_.servers_max)) change = 1;
  else if (low_ >= options_.windows && view.servers > options_.servers_min) change = -1;
  if (change == 0) return 0;
  high_ = low_ = 0;
  quiet_until_ = now + options_.cool_down;
  return change;
}

std::optional<size_t> which_leaves(std::span<const ScaledServer> servers) {
  if (servers.empty()) return std::nullopt;
  const auto last = std::max_element(servers.begin(), servers.end(), [](const ScaledServer& a, const ScaledServer& b) { return std::tuple(!a.by_hand, a.number) < std::tuple(!b.by_hand, b.number); });
  return static_cast<size_t>(last - servers.begin());
}

}  // namespace shoal
