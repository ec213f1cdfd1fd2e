// Whose step is next on a device that several resident models share. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/ids.h"

namespace shoal {

struct TurnView {
  ModelId model;
  bool runnable = false;    // resident, and has something to compute
  uint64_t last_turn = 0;   // number of the turn it had last; 0: never
};

// The runnable model whose last turn is longest ago.
std::optional<ModelId> next_turn(std::span<const TurnView> models);

}  // namespace shoal
