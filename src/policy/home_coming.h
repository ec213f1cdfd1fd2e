// Whose weights come back to a device on which nobody has work. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/time.h"

namespace shoal {

struct HomeView {
  ModelId model;
  double lost = 0;        // weighted tokens that a request is expected to have late because its model is away, times its model's share of the requests
  uint32_t pages = 0;     // that it gives up when it leaves, or needs to come back
  TimePoint last_used{};  // of those that are here: the least recently used leaves first
};

// Of those that are away and may come back the one that loses most there, if it loses twice as much as those that would have to leave for
// it. `here`: who may leave.
std::optional<ModelId> comes_home(std::span<const HomeView> away, std::span<const HomeView> here, uint64_t pages_free);

}  // namespace shoal
