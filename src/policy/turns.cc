#include "policy/turns.h"

namespace shoal {

std::optional<ModelId> next_turn(std::span<const TurnView> models) {
  const TurnView* best = nullptr;
  for (const TurnView& m : models) {
    if (m.runnable && (best == nullptr || m.last_turn < best->last_turn)) best = &m;
  }
  return best == nullptr ? std::nullopt : std::optional(best->model);
}

}  // namespace shoal
