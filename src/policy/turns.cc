#include "policy/turns.h"

#include <algorithm>

namespace shoal {

std::optional<ModelId> next_turn(std::span<const StepView> models) {
  double longest_step = 0;
  uint64_t last = 0;
  bool all_late = true;
  for (const StepView& m : models) {
    if (!m.runnable) continue;
    longest_step = std::max(longest_step, m.step_seconds);
    last = std::max(last, m.last_turn);
    all_late &= m.late;
  }
  const StepView *oldest = nullptr, *urgent = nullptr;
  for (const StepView& m : models) {
    if (!m.runnable) continue;
    if (m.late && !all_late && last < m.last_turn + kLateShare) continue;
    if (oldest == nullptr || m.last_turn < oldest->last_turn) oldest = &m;
    if (m.slack < Duration(0) || m.slack >= from_seconds(longest_step + m.step_seconds)) continue;
    if (urgent == nullptr || m.slack < urgent->slack) urgent = &m;
  }
  const StepView* next = urgent != nullptr ? urgent : oldest;
  return next == nullptr ? std::nullopt : std::optional(next->model);
}

}  // namespace shoal
