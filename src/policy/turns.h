// Whose step is next on a device that several resident models share. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/time.h"

namespace shoal {

struct StepView {
  ModelId model;
  bool runnable = false;    // resident, and has something to compute
  uint64_t last_turn = 0;   // number of the step it had last; 0: never
  Duration slack = Duration::max();  // until the next token of its requests is due
  double step_seconds = 0;           // predicted
  bool late = false;                 // nothing of it can be on time any more
};

// The runnable model whose last step is longest ago, unless the token of another would be late after one more step: then
// the one with the least slack. Who is late already takes turns like everybody else, or it would drag the others along. A
// model of which nothing can be on time any more has each kLateShare-th step, and those that nobody else wants.
constexpr uint64_t kLateShare = 16;
std::optional<ModelId> next_turn(std::span<const StepView> models);

}  // namespace shoal
