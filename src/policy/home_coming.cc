#include "policy/home_coming.h"

#include <algorithm>
#include <vector>

namespace shoal {

std::optional<ModelId> comes_home(std::span<const HomeView> away, std::span<const HomeView> here, uint64_t pages_free) {
  constexpr double kTimes = 2;
  const auto next = std::max_element(away.begin(), away.end(), [](const HomeView& a, const HomeView& b) { return a.lost < b.lost; });
  if (next == away.end() || next->lost <= 0) return std::nullopt;
  std::vector<HomeView> leave(here.begin(), here.end());
  std::stable_sort(leave.begin(), leave.end(), [](const HomeView& a, const HomeView& b) { return a.last_used < b.last_used; });
  double lost = 0;
  for (const HomeView& m : leave) {
    if (pages_free >= next->pages) break;
    pages_free += m.pages;
    lost += m.lost;
  }
  return pages_free >= next->pages && next->lost > kTimes * lost ? std::optional(next->model) : std::nullopt;
}

}  // namespace shoal
