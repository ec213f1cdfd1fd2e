#include "policy/static_choice.h"

namespace shoal {

std::vector<ModelId> choose_static(std::span<const StaticView> models, uint64_t pages) {
  uint64_t taken = 0;
  for (const StaticView& m : models) taken += m.chosen ? m.pages : 0;
  std::vector<ModelId> chosen;
  for (const bool pinned : {true, false}) {
    for (const StaticView& m : models) {
      if (m.chosen || m.retired || m.pinned != pinned || taken + m.pages > pages) continue;
      taken += m.pages;
      chosen.push_back(m.model);
    }
  }
  return chosen;
}

}  // namespace shoal
