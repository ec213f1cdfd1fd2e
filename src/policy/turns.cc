#include "policy/turns.h"

#include <algorithm>

namespace shoal {

std::optional<ModelId> next_turn(std::span<const StepView> models) {
  double longest_step = 0;
  for (const StepView& m : models) {
    if (m.runnable) longest_step = std::max(longest_step, m.step_seconds);
  }
  const StepView *oldest = nullptr, *urgent = nullptr;
  for (const StepView& m : models) {
    if (!m.runnable) continue;
    if (oldest == nullptr || m.last_turn < oldest->last_turn) oldest = &m;
    if (m.slack < Duration(0) || m.slack >= from_seconds(longest_step + m.step_seconds)) continue;
    if (urgent == nullptr || m.slack < urgent->slack) urgent = &m;
  }
  const StepView* next = urgent != nullptr ? urgent : oldest;
  return next == nullptr ? std::nullopt : std::optional(next->model);
}

}  // namespace shoal
